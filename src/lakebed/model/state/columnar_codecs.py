"""The columns of checkpoint segments, for each kind of rows of a table's state: files, references, requests. Pure.

The facts of a file are stored with the partitions that refer to it. A segment of references has one row for each
partition, and the facts of each referenced file once. The facts are in the order of first use, so the files of one
partition are mostly adjacent, and reading a partition needs one segment. Files are looked up by id only for commits,
which need no facts. So a segment of files has the facts only of files without a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from lakebed.model.files import CommittedFile, DataFile, PartitionFile
from lakebed.model.state.columns import ColumnarCodec, edges_reader, span_reader
from lakebed.model.state.table_state import Answer, IngestRequest, Source

_FACTS = [
    pa.field("id", pa.string()),
    pa.field("job", pa.string()),
    pa.field("rows", pa.int64()),
    pa.field("size_bytes", pa.int64()),
    pa.field("min_key", pa.binary()),
    pa.field("max_key", pa.binary()),
    pa.field("schema_version", pa.int64()),
    pa.field("last_modified_us", pa.int64()),
    pa.field("digest", pa.string()),
    pa.field("footer_bytes", pa.int64()),
    pa.field("footer_digest", pa.string()),
    pa.field("bounds", pa.binary()),
    pa.field("markers", pa.int64()),
]
"""The fields of a DataFile, in order."""

_RUN = pa.field("run", pa.string())


def _facts(files: Sequence[DataFile]) -> list[pa.Array]:
    return [_column(field, files) for field in _FACTS]


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """Return the attribute named by the field, of each value, as an array."""
    return pa.array(list(map(attrgetter(field.name), values)), field.type)


def _lists(offsets: Any, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _offsets(lengths: Sequence[int]) -> list[int]:
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    return edges


def _starts(column: pa.ListArray) -> Any:
    """Return the offset of each row's values in ``column.flatten()``, and the end of the last."""
    import numpy as np

    # Not np.asarray: Arrow imports pandas for it.
    found = column.offsets
    offsets = np.frombuffer(found.buffers()[1], np.int32, len(found), 4 * found.offset)
    return offsets - offsets[0]


def _batch(flat: pa.Table) -> pa.RecordBatch:
    """Return a table of at least one row as one batch."""
    return flat.combine_chunks().to_batches()[0]


def _unpacked(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


# -- files ------------------------------------------------------------------------------------------------------

_FILE_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("sequence_lo", pa.int64()),
        pa.field("sequence_hi", pa.int64()),
        pa.field("added", pa.int64()),
        pa.field("dropped", pa.int64()),
        pa.field("references", pa.int64()),
        pa.field("retired", pa.bool_()),
        pa.field("file", pa.list_(pa.struct(_FACTS))),
    ]
)


def _encode_files(rows: Sequence[tuple[str, CommittedFile]]) -> pa.Table:
    fields = list(_FILE_COLUMNS)[1:-1]
    every = [known for _, known in rows]
    columns = [pa.array([name for name, _ in rows], pa.string())]
    columns += [_column(field, every) for field in fields]
    own = pa.StructArray.from_arrays(_facts([known.file for known in every if known.file]), fields=_FACTS)
    columns.append(_lists(_offsets([known.file is not None for known in every]), own))
    return pa.Table.from_arrays(columns, schema=_FILE_COLUMNS)


def _file_reader(batch: pa.RecordBatch) -> Callable[[int], CommittedFile]:
    *columns, own = batch.columns[1:]
    spans, edges = [span_reader(column) for column in columns], edges_reader(own)
    facts = [span_reader(column) for column in own.values.flatten()]

    def read(row: int) -> CommittedFile:
        begin, end = edges(row)
        file = DataFile(*(span(begin, end)[0] for span in facts)) if end > begin else None
        lo, hi, added, dropped, references, retired = (span(row, row + 1)[0] for span in spans)
        return CommittedFile(lo, hi, added, dropped, references, retired, file)

    return read


FILES: ColumnarCodec[str, CommittedFile] = ColumnarCodec(
    _FILE_COLUMNS, _encode_files, _file_reader, _batch, _unpacked, nullable=frozenset({"dropped"})
)

# -- references -------------------------------------------------------------------------------------------------

_REFERENCE_COLUMNS = pa.schema(
    [
        pa.field("partition", pa.int64()),
        pa.field("file", pa.list_(pa.int32())),
        pa.field("rows", pa.list_(pa.int64())),
        pa.field("exact", pa.list_(pa.bool_())),
        pa.field("files", pa.list_(pa.struct([*_FACTS, _RUN]))),
    ]
)
_HELD = [*_FACTS, _RUN, pa.field("rows_here", pa.int64()), pa.field("exact", pa.bool_())]
_FLAT_REFERENCES = pa.schema([pa.field("partition", pa.int64()), pa.field("held", pa.list_(pa.struct(_HELD)))])


def _encode_references(rows: Sequence[tuple[int, tuple[PartitionFile, ...]]]) -> pa.Table:
    every = [one for _, held in rows for one in held]
    columns = _facts([one.file for one in every])
    columns.append(pa.array([one.run for one in every], pa.string()))
    columns.append(pa.array([one.rows for one in every], pa.int64()))
    columns.append(pa.array([one.exact for one in every], pa.bool_()))
    held = _lists(_offsets([len(held) for _, held in rows]), pa.StructArray.from_arrays(columns, fields=_HELD))
    return pa.Table.from_arrays(
        [pa.array([partition for partition, _ in rows], pa.int64()), held], schema=_FLAT_REFERENCES
    )


def _pack_references(flat: pa.Table) -> pa.RecordBatch:
    import numpy as np
    import pyarrow.compute as pc

    partitions, held = _batch(flat).columns
    starts = _starts(held)
    *facts, rows, exact = held.flatten().flatten()
    # A file has the same facts in all partitions, but its run may have a different id in each.
    names = pc.binary_join_element_wise(facts[0], facts[-1], "\0")
    # Codes are numbered in the order of first use, so the positions of first use ascend.
    codes = np.asarray(pc.dictionary_encode(names).indices)
    _, first = np.unique(codes, return_index=True)
    users = np.searchsorted(starts, first, side="right") - 1
    counts = np.bincount(users, minlength=len(partitions))
    files = pa.StructArray.from_arrays(facts, fields=[*_FACTS, _RUN]).take(pa.array(first))
    columns = [
        partitions,
        _lists(starts, pa.array(codes, pa.int32())),
        _lists(starts, rows),
        _lists(starts, exact),
        _lists(np.concatenate([[0], np.cumsum(counts)]), files),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_REFERENCE_COLUMNS)


def _unpack_references(batch: pa.RecordBatch) -> pa.Table:
    partitions, index, rows, exact, files = batch.columns
    facts = files.flatten().take(index.flatten()).flatten()
    held = pa.StructArray.from_arrays([*facts, rows.flatten(), exact.flatten()], fields=_HELD)
    return pa.Table.from_arrays([partitions, _lists(_starts(index), held)], schema=_FLAT_REFERENCES)


def _reference_reader(batch: pa.RecordBatch) -> Callable[[int], tuple[PartitionFile, ...]]:
    _, index, rows, exact, files = batch.columns
    edges = edges_reader(index)
    positions, rows_here, exactly = (span_reader(column.values) for column in (index, rows, exact))
    *facts, run = (span_reader(column) for column in files.values.flatten())

    def read(row: int) -> tuple[PartitionFile, ...]:
        begin, end = edges(row)
        found: list[DataFile] = []
        runs: list[str] = []
        for low, high in _consecutive(positions(begin, end)):
            found += map(DataFile, *(span(low, high) for span in facts))
            runs += run(low, high)
        return tuple(map(PartitionFile, found, rows_here(begin, end), exactly(begin, end), runs))

    return read


def _consecutive(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Group positions, in their order, into ranges of consecutive ones."""
    if positions[-1] - positions[0] + 1 == len(positions) and positions == list(range(positions[0], positions[-1] + 1)):
        return [(positions[0], positions[-1] + 1)]
    ranges = [(positions[0], positions[0] + 1)]
    for position in positions[1:]:
        low, high = ranges[-1]
        if position == high:
            ranges[-1] = (low, high + 1)
        else:
            ranges.append((position, position + 1))
    return ranges


REFERENCES: ColumnarCodec[int, tuple[PartitionFile, ...]] = ColumnarCodec(
    _REFERENCE_COLUMNS,
    _encode_references,
    _reference_reader,
    _pack_references,
    _unpack_references,
)

# -- requests ---------------------------------------------------------------------------------------------------

_REQUEST_COLUMNS = pa.schema(
    [pa.field("request", pa.string()), pa.field("version", pa.int64()), pa.field("base_version", pa.int64())]
)


def _encode_requests(rows: Sequence[tuple[str, Answer]]) -> pa.Table:
    columns = {"request": [k for k, _ in rows], "version": [a.version for _, a in rows]}
    return pa.Table.from_pydict({**columns, "base_version": [a.base_version for _, a in rows]}, _REQUEST_COLUMNS)


def _request_reader(batch: pa.RecordBatch) -> Callable[[int], Answer]:
    versions = [span_reader(column) for column in batch.columns[1:]]
    return lambda row: Answer(*(read(row, row + 1)[0] for read in versions))


REQUESTS: ColumnarCodec[str, Answer] = ColumnarCodec(
    _REQUEST_COLUMNS, _encode_requests, _request_reader, _batch, _unpacked
)

_SOURCE = ("url", "size_bytes", "version")
_OPEN_REQUEST_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.list_(pa.string())),
        pa.field("size_bytes", pa.list_(pa.int64())),
        pa.field("version", pa.list_(pa.string())),
        pa.field("base_version", pa.int64()),
        pa.field("submitted", pa.int64()),
        pa.field("failures", pa.int64()),
        pa.field("rejected", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


def _encode_open_requests(rows: Sequence[tuple[str, IngestRequest]]) -> pa.Table:
    columns: dict[str, list[Any]] = {"id": [name for name, _ in rows]}
    for name in _SOURCE:
        columns[name] = [[getattr(file, name) for file in request.files] for _, request in rows]
    for name in _OPEN_REQUEST_COLUMNS.names[1 + len(_SOURCE) :]:
        columns[name] = [getattr(request, name) for _, request in rows]
    return pa.Table.from_pydict(columns, _OPEN_REQUEST_COLUMNS)


def _open_request_reader(batch: pa.RecordBatch) -> Callable[[int], IngestRequest]:
    name, columns = batch.column(0), batch.columns[1:]
    lists, rest = columns[: len(_SOURCE)], columns[len(_SOURCE) :]
    edges, facts = edges_reader(lists[0]), [span_reader(column.values) for column in lists]
    spans = [span_reader(column) for column in (name, *rest)]

    def read(row: int) -> IngestRequest:
        urls, sizes, versions = (span(*edges(row)) for span in facts)
        files = tuple(map(Source, urls, sizes, versions))
        name, *others = (span(row, row + 1)[0] for span in spans)
        return IngestRequest(name, files, *others)

    return read


OPEN_REQUESTS: ColumnarCodec[str, IngestRequest] = ColumnarCodec(
    _OPEN_REQUEST_COLUMNS, _encode_open_requests, _open_request_reader, _batch, _unpacked
)

CODECS: Mapping[str, ColumnarCodec[Any, Any]] = {
    "files": FILES,
    "references": REFERENCES,
    "requests": REQUESTS,
    "open_requests": OPEN_REQUESTS,
}
