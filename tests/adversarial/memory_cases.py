"""The cases run under a memory bound: inputs that decode to much more than their stored size, and operations on them.

A case is named ``path-input``. Inputs are made by :func:`make`, in a process of their own, and the tables for readers
are ingested by another one.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.errors import DamagedError
from lakebed.log.segments import SegmentCache, SegmentStore, StoredSegment
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.columnar_codecs import CODECS
from lakebed.read.snapshot.pins import Pin, read_pins
from lakebed.storage import LocalStorage, connect
from lakebed.storage.digests import digest_bytes
from lakebed.upkeep.compaction.merge_jobs import MergeTask
from lakebed.upkeep.export.plan import Cell
from lakebed.upkeep.export.run import ExportTask, run_export_task
from lakebed.upkeep.ingest_jobs import IngestTarget, IngestTask, JobPart, run_ingest_task
from lakebed.write.attach import check_sorted
from lakebed.write.conformer import Conformer
from lakebed.write.plan import Method
from lakebed.write.sources import find_files

MIB = 1024 * 1024
ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")

# -- inputs -----------------------------------------------------------------------------------------------------


def _table(values: Any, **columns: Any) -> pa.Table:
    count = len(values)
    # Unordered, so that they have to be sorted.
    keys = (np.arange(count, dtype=np.int64) * 7919) % count
    return pa.table({"k": keys, "v": values, **columns})


def _references(count: int, texts: list[str]) -> pa.Array:
    indices = pa.array((np.arange(count) * 31) % len(texts), pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts))


def bomb(count: int = 2000) -> tuple[pa.Table, dict]:
    """References to one text of 1 MB: a few kilobytes stored, and 2 GB of rows."""
    return _table(_references(count, ["x" * 1_000_000])), {"compression": "zstd", "store_schema": False}


def fuse() -> tuple[pa.Table, dict]:
    """The same with a fifth of the rows."""
    return bomb(400)


def skewed() -> tuple[pa.Table, dict]:
    """One value of 60 MiB among small ones."""
    values = [f"small {i:08d}" for i in range(50_000)]
    values[23_456] = "w" * (60 * MIB)
    return _table(pa.array(values)), {"use_dictionary": False}


def wide() -> tuple[pa.Table, dict]:
    """400 incompressible values of 1 MiB, after 20,000 small ones, in pages of one row each."""
    block = np.random.default_rng(1).bytes(MIB)
    values = [b"small"] * 20_000 + [block[i:] + block[:i] for i in range(400)]
    return _table(pa.array(values)), {"use_dictionary": False, "max_rows_per_page": 1}


def megabytes(*, late: bool = False) -> tuple[pa.Table, dict]:
    """220 incompressible values of 1 MiB among 2,000 small ones; ``late``: with the last keys."""
    block = np.random.default_rng(1).bytes(MIB)
    rows = _table(pa.array([b"small"] * 2000 + [block[i:] + block[:i] for i in range(220)]))
    if late:
        rows = rows.set_column(0, "k", pa.array(np.arange(2220)))
    return rows, {"use_dictionary": False, "max_rows_per_page": 1}


def late() -> tuple[pa.Table, dict]:
    """As :func:`megabytes`, with the large values last."""
    return megabytes(late=True)


def lists(count: int = 500) -> tuple[pa.Table, dict]:
    """Lists of lists of 100,000 equal numbers in each of 500 rows: 400 MB of rows in kilobytes."""
    numbers = np.zeros(count * 100_000, np.int64)
    inner = pa.ListArray.from_arrays(pa.array(np.arange(0, len(numbers) + 1, 100, dtype=np.int32)), pa.array(numbers))
    return _table(pa.ListArray.from_arrays(pa.array(np.arange(0, count * 1000 + 1, 1000, dtype=np.int32)), inner)), {}


def short_lists() -> tuple[pa.Table, dict]:
    """As :func:`lists` with 275 rows: two runs of them exceed the memory of a reader."""
    return lists(275)


def texts() -> tuple[pa.Table, dict]:
    """1,500 references to 32 values of 1 MiB."""
    return _table(_references(1500, [chr(97 + i % 26) * MIB + str(i) for i in range(32)])), {}


def zeros() -> tuple[pa.Table, dict]:
    """A row group of 1 GB that compresses a thousand times."""
    values = pa.repeat(pa.scalar(bytes(64 * 1024)), 16_384)
    return _table(values), {"use_dictionary": ["k"], "compression": "zstd", "write_batch_size": 16}


def columns() -> tuple[pa.Table, dict]:
    """2,000 columns."""
    rng = np.random.default_rng(1)
    return _table(np.zeros(4000), **{f"c{i}": rng.integers(0, 9, 4000) for i in range(2000)}), {}


def attachable() -> tuple[pa.Table, dict]:
    """:func:`fuse` with the field ids of the table, in its order."""
    rows, options = fuse()
    schema = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.dictionary(pa.int32(), pa.string()))]
    ids = [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(schema, 1)]
    columns = [pa.array(np.arange(len(rows))), rows.column("v")]
    return pa.Table.from_arrays(columns, schema=pa.schema(ids)), options


INPUTS: dict[str, Callable[[], tuple[pa.Table, dict]]] = {
    made.__name__: made
    for made in (bomb, fuse, skewed, wide, megabytes, late, lists, short_lists, texts, zeros, columns, attachable)
}


def make(name: str, folder: Path) -> None:
    """Write the input."""
    if name == "segment":
        with pa.ipc.new_file(folder / name, zeros := pa.schema([("n", pa.int64())]), options=ZSTD) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([np.zeros(100_000_000, np.int64)], schema=zeros))
        return
    rows, options = INPUTS[name]()
    pq.write_table(rows, folder / f"{name}.parquet", **options)


def schema_of(name: str, folder: Path) -> lakebed.Schema:
    found = pq.read_schema(folder / f"{name}.parquet")
    fields = {field.name: field.type for field in found if field.name != "k"}
    return lakebed.Schema({"k": "int64"}, values=fields)


# -- paths ------------------------------------------------------------------------------------------------------


def prepared(case: str, limit: int, folder: Path) -> Callable[[], Any]:
    """Return the operation of a case, after its imports and with its inputs in place."""
    import lakebed.files.sorting.merge
    import lakebed.read.rows.datafusion_scan

    path, _, name = case.partition("-")
    if path == "make":
        return lambda: make(name, folder)
    if path == "ingest":
        return lambda: _ingest(name, limit, folder)
    if path == "map":
        return lambda: _map(name, limit, folder)
    if path == "attach":
        return lambda: _attach(name, limit, folder)
    if case == "documents":
        return lambda: _documents(folder)
    if case == "segment":
        return lambda: _segment(folder)
    if path == "line":
        return _long_line(name, limit, folder)
    if path == "write":
        return lambda: _write(int(name), limit, folder)
    table = lakebed.open(str(folder / f"lake-{name}")).table("t")
    return lambda: PATHS[path](table, limit, folder)


def _write(value_bytes: int, limit: int, folder: Path) -> dict:
    """Write ten values of ``value_bytes``, from a reader that makes one at a time."""
    schema = lakebed.Schema({"k": "int64"}, values={"v": "binary"})
    table = lakebed.create(str(folder / f"written-{lakebed.clock.new_id()}")).create_table("t", schema)
    table.set(memory_limit_bytes=limit)
    if value_bytes > 64 * MIB:
        table.set(value_bytes_max=value_bytes + MIB)
    value = bytes(value_bytes)
    rows = ({"k": pa.array([k]), "v": pa.array([value])} for k in (7, 3, 9, 1, 0, 8, 2, 6, 4, 5))
    batches = (pa.RecordBatch.from_arrays(list(row.values()), schema=schema.arrow) for row in rows)
    table.write(pa.RecordBatchReader.from_batches(schema.arrow, batches))
    return {"rows": table.count().rows}


def _long_line(name: str, limit: int, folder: Path) -> Callable[[], dict]:
    """Write a file of two megabytes whose only row is a line of 500 MiB."""
    begin, end = {"csv": (b"k,v\n1,", b"\n"), "jsonl": (b'{"k": 1, "v": "', b'"}\n')}[name]
    with gzip.open(folder / f"line.{name}.gz", "wb", 1) as file:
        file.write(begin)
        for _ in range(500):
            file.write(b"a" * MIB)
        file.write(end)
    table = lakebed.create(str(folder / name)).create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "string"}))
    table.set(memory_limit_bytes=limit)

    def write() -> dict:
        try:
            table.write(str(folder / f"line.{name}.gz"))
        except lakebed.SchemaMismatchError as error:
            return {"said": error.message}
        return {}

    return write


def _map(name: str, limit: int, folder: Path) -> dict:
    """Run a map task of a bulk import, and the reduce task of its only reducer."""
    from lakebed.jobs.bulk_import.map_inputs import native_chunks
    from lakebed.jobs.bulk_import.shuffle import Shuffle, merge_pieces, send_pieces
    from lakebed.jobs.executor import Root

    table = lakebed.create(str(folder / f"bulk-{lakebed.clock.new_id()}")).create_table("t", schema_of(name, folder))
    place = Root(table.storage.url)
    shuffle = Shuffle(place, table.id, lakebed.clock.new_id(), table.layout(), limit, (), ())
    groups = list(range(pq.read_metadata(folder / f"{name}.parquet").num_row_groups))
    (file,) = find_files(folder / f"{name}.parquet")
    chunks = native_chunks(((file, tuple(groups)),), shuffle, conformer=Conformer(shuffle.layout.schema))
    # An exchange passes the pieces from one to the other.
    made = merge_pieces(0, send_pieces(0, chunks, shuffle), shuffle, folder)
    return {"rows": sum(new.file.rows for new in made.files)}


def _ingest(name: str, limit: int, folder: Path) -> dict:
    """Ingest two runs of the input, so that readers have to merge."""
    lake = lakebed.create(str(folder / f"lake-{name}"))
    table = lake.create_table("t", schema_of(name, folder))
    table.set(memory_limit_bytes=limit)
    rows = 0
    for _ in range(2):
        parts = tuple(JobPart(file) for file in find_files(folder / f"{name}.parquet"))
        target = IngestTarget(table.id, table.layout(), limit, ())
        task = IngestTask(lakebed.clock.new_id(), Method.SORT, parts, target)
        files = run_ingest_task(task, table.storage, folder).files
        rows += sum(new.file.rows for new in files)
        table.commit(lakebed.model.state.transactions.ProposeFiles(files))
    return {"rows": rows}


def _attach(name: str, limit: int, folder: Path) -> dict:
    """Do the work of a task that has copied a file to attach."""
    schema = schema_of(name, folder)
    checked = check_sorted(folder / f"{name}.parquet", [schema], (), name, memory_limit_bytes=limit)
    return {"rows": checked.rows}


def _documents(folder: Path) -> dict:
    """Make a small lake in which one JSON object is a sparse file of two gigabytes; return which one, and the error."""
    at = folder / f"documents-{lakebed.clock.new_id()}"
    # A checkpoint written in the background would replace the removed one and the entry.
    with lakebed.create(str(at)) as lake:
        table = lake.create_table("t", lakebed.Schema({"k": "int64"}))
        table.write(pa.table({"k": [1, 2, 3]}))
    said = {}
    with Pin(table.storage, table.id) as pin:
        pin.put(1)
        for path in (
            next(at.glob("tables/*/pins/*")),
            at / "instance.json",
            # Derived: the log is read instead.
            next(at.glob("tables/*/checkpoints/latest/manifest.ndjson")),
            max(at.glob("tables/*/log/*.ndjson")),
        ):
            before = path.read_bytes()
            with path.open("r+b") as file:
                file.truncate(2**31)
            said[path.name] = _said(at)
            if path.name == "manifest.ndjson":
                path.unlink()
            else:
                path.write_bytes(before)
    return said


def _said(at: Path) -> str:
    try:
        table = lakebed.open(str(at)).table("t")
        rows = table.scan().read_all().num_rows
        return f"{rows} rows, {len(read_pins(table.storage, table.id).versions)} pins"
    except DamagedError as error:
        return error.message


def _segment(folder: Path) -> dict:
    """Return a checkpoint segment of less than 50 kB that decodes to 800 MB, with the digest that its manifest has."""
    storage = LocalStorage(folder)
    data = (folder / "segment").read_bytes()
    stored = StoredSegment("segment", digest_bytes(data), len(data), 100_000_000, 0, 0)
    store = SegmentStore(storage, str, SegmentCache(2**30))
    try:
        store.fetched(CODECS["references"], stored)
    except DamagedError as error:
        return {"stored": len(data), "said": error.message}
    return {"stored": len(data), "said": "it was read"}


def _deep(table: lakebed.Table, limit: int, folder: Path) -> dict:
    from lakebed.model.findings import Deep

    return {"findings": len(table.verify(deep=Deep()).findings)}


def _drained(stream: Any) -> dict:
    rows = size = largest = 0
    for batch in stream:
        rows += batch.num_rows
        size += batch.nbytes
        largest = max(largest, batch.nbytes)
    return {"rows": rows, "bytes": size, "largest": largest}


def _merge(table: lakebed.Table, limit: int, folder: Path) -> dict:
    from lakebed.upkeep.compaction.run import run_merge_task

    files = tuple(table.state().referenced().values())
    rows = sum(file.rows for file in files)
    task = MergeTask(lakebed.clock.new_id(), table.id, (ALL_KEYS,), files, table.layout(), limit, rows)
    return {"rows": sum(new.file.rows for new in run_merge_task(task, table.storage, folder))}


def _export(format: str, files_max: int = 2) -> Callable[[lakebed.Table, int, Path], dict]:
    def act(table: lakebed.Table, limit: int, folder: Path) -> dict:
        files = tuple(table.state().referenced().values())[:files_max]
        rows = sum(file.rows for file in files)
        cell = Cell(ALL_KEYS, files, rows, sum(file.size_bytes for file in files), True, True)
        task = ExportTask(lakebed.clock.new_id(), 0, table.id, (cell,), table.layout(), format, None, limit)
        target = connect(str(folder / f"export-{format}-{lakebed.clock.new_id()}"), {})
        return {"rows": sum(f.rows for f in run_export_task(task, table.storage, target, folder))}

    return act


def _get(table: lakebed.Table, limit: int, folder: Path) -> dict:
    return {"rows": sum(table.get(key).num_rows for key in range(0, 200, 7))}


PATHS: dict[str, Callable[[lakebed.Table, int, Path], Any]] = {
    "merge": _merge,
    "parquet": _export("parquet"),
    # A file alone is much more than the allowance, and text takes long to write.
    "csv": _export("csv", 1),
    "json": _export("json", 1),
    "scan": lambda table, *_: _drained(table.scan()),
    "reverse": lambda table, *_: _drained(table.scan(reverse=True)),
    "where": lambda table, *_: _drained(table.scan(where="k % 3 = 0")),
    "limit": lambda table, *_: _drained(table.scan(limit=5)),
    "get": _get,
    "many": lambda table, *_: {"rows": table.get_many(list(range(40)), columns=["k"]).num_rows},
    "values": lambda table, *_: {"rows": table.get_many(list(range(40))).num_rows},
    "deep": _deep,
}
