"""The state of a very large table: opening it, planning a key, applying a commit, writing its checkpoint.

    python -m benchmarks.state [--partitions 132000] [--files 20] [--entries 100]

Every partition has ``--files`` files of its own, so there are as many files as references, which is the worst case.
Writing and opening are done in processes of their own, whose peak memory is printed beside each figure; imports are not
counted. The peer is the same state in SQLite (WAL, one row a reference, an index on the partition), asked for the
references of a partition. Sleeper, whose size this is, reports 26 s for loading such a state from its checkpoint.
"""

from __future__ import annotations

import argparse
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed import Schema
from lakebed.log.backends.objects import ObjectLog
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.log.log import Log
from lakebed.model.files import DataFile, NewFile, checkpoint_name
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.partitions import Partitions
from lakebed.model.state.columnar_codecs import FILES, REFERENCES
from lakebed.model.state.columns import SEGMENT_BYTES, Columns, Segment, packed
from lakebed.model.state.machine import TABLE
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import AddFiles, CreateTable, ProposeFiles, apply, resolve
from lakebed.read.rows.plan import plan
from lakebed.storage import LocalStorage

TABLE_ID = "01a1fce2-8c7f-7278-ad10-4482428b1368"
PREFIX = f"tables/{TABLE_ID}"
SCHEMA = Schema({"key": "int64"})
STEP = 1_000_000
ROUNDS = 2_000
CHUNK = 16_384


def place(folder: str) -> CheckpointLocation:
    return CheckpointLocation(LocalStorage(Path(folder)), PREFIX)


def log_of(folder: str) -> Log:
    return Log(ObjectLog(LocalStorage(Path(folder)), PREFIX), place(folder), TABLE_ID, TABLE)


def key(version: int) -> bytes:
    return SCHEMA.codec.encode_key((version,))


def file_id(version: int) -> str:
    return f"01a1fce2-8c7f-7278-ad10-{version:012x}"


def texts(numbers: np.ndarray, codec: str) -> pa.Array:
    return pa.array(np.char.mod(codec, numbers))


def keys_of(numbers: np.ndarray) -> pa.Array:
    raw = (numbers.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(raw)]).cast(pa.binary())


def large_state(partitions: int, files: int) -> TableState:
    """Return the state, built from whole columns: no loop over references."""
    file_segments: list[Segment] = []
    reference_segments: list[Segment] = []
    held_type = REFERENCES.encode([]).schema.field("held").type
    step = max(1, CHUNK // files)
    for begin in range(0, partitions, step):
        partition = np.arange(begin, min(partitions, begin + step))
        numbers = np.arange(partition[0] * files, (partition[-1] + 1) * files)
        count = len(numbers)
        ids = texts(numbers, "01a1fce2-8c7f-7278-ad10-%012x")
        same = np.ones(count, np.int64)
        true = pa.array(np.ones(count, bool))
        digests = texts(numbers * 2654435761 % (1 << 32), "%032x")
        low = np.repeat(partition, files) * STEP
        held = [
            ids, ids, pa.array(same * 1_000_000), pa.array(same * 25_000_000),
            keys_of(low + 10), keys_of(low + STEP - 10),
            pa.array(same), pa.array(same * 1_795_000_000_000_000), digests, pa.array(same * 20_000), digests,
            pa.array([b""]).take(pa.array(same - 1)), pa.array(same * 0), ids, pa.array(same * 1_000_000), true,
        ]  # fmt: skip
        offsets = pa.array(np.arange(len(partition) + 1, dtype=np.int32) * files)
        lists = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(held, fields=list(held_type.value_type)))
        flat = pa.Table.from_arrays([pa.array(partition + 1), lists], names=["partition", "held"])
        reference_segments += packed(REFERENCES, flat, SEGMENT_BYTES)
        none = pa.nulls(count, FILES.schema.field("file").type).fill_null([])
        known = [
            ids, pa.array(numbers), pa.array(numbers), pa.array(same), pa.nulls(count, pa.int64()), pa.array(same),
            pc.invert(true), none,
        ]  # fmt: skip
        file_segments += packed(FILES, pa.Table.from_arrays(known, schema=FILES.schema), SEGMENT_BYTES)
    return TableState(
        version=2,
        table=TABLE_ID,
        schemas=(SCHEMA,),
        partitions=Partitions.at(tuple(key(number * STEP) for number in range(1, partitions))),
        files=PersistentTable(Columns(FILES, file_segments)),
        references=PartitionFiles(Columns(REFERENCES, reference_segments)),
        next_sequence=partitions * files + 1,
    )


def new_file(version: int, partition: int) -> NewFile:
    low, high = key(partition * STEP + 10), key(partition * STEP + STEP - 10)
    name = file_id(1 << 40 | version)
    file = DataFile(name, name, 1000, 25_000, low, high, 1, 0, f"{version:032x}", 900, f"{version:032x}")
    return NewFile(file, Summary((low,), (0,), 1000, high), name)


# -- what is measured, each in a process of its own -------------------------------------------------------------


def make(folder: str, partitions: int, files: int, entries: int) -> None:
    """Write the checkpoint, as if the table's log had come so far, and some entries after it."""
    log = log_of(folder)
    log.commit(CreateTable(TABLE_ID, SCHEMA, {}, ()))
    log.wait_for_checkpoint()
    log.commit(ProposeFiles((new_file(0, 0),)))
    log.wait_for_checkpoint()
    head = Head(2, log.head.digest, large_state(partitions, files))
    begin = time.perf_counter()
    place(folder).storage.delete([checkpoint_name(PREFIX)])
    Checkpoints(place(folder), TABLE_ID, TABLE).write(head)
    report("checkpoint written, every part", time.perf_counter() - begin, "s", "at most 5 s")
    log = log_of(folder)
    state = log.follow()
    begin = time.perf_counter()
    for version in range(entries):
        log.commit(ProposeFiles((new_file(version, version * 977 % partitions),)))
    log.wait_for_checkpoint()
    if not entries:
        return
    report(f"{entries} commits to it, each", (time.perf_counter() - begin) / entries * 1e3, "ms")
    changed = log.follow()
    assert len(changed.files) == len(state.files) + entries
    begin = time.perf_counter()
    Checkpoints(place(f"{folder}-changed"), TABLE_ID, TABLE).write(Head(changed.version, "", changed))
    report("checkpoint written after them, elsewhere", time.perf_counter() - begin, "s")


def open_it(folder: str, partitions: int, files: int, entries: int) -> None:
    """Open the state, plan one key; then many, and apply commits in memory."""
    log = log_of(folder)
    begin = time.perf_counter()
    state = log.follow()
    planned = plan(state, [one_key(state, partitions // 2)])
    report(f"opened, {entries} entries behind, one key planned", time.perf_counter() - begin, "s", "at most 1.5, 2 s")
    assert len(planned.partitions[0].files) >= files
    choose = random.Random(1)
    asked = [one_key(state, choose.randrange(partitions)) for _ in range(ROUNDS)]
    times = []
    for keys in asked:
        begin = time.perf_counter()
        plan(state, [keys])
        times.append(time.perf_counter() - begin)
    report(f"one key planned, of {ROUNDS} random ones", median(times) * 1e3, "ms", "at most 0.2 ms")
    proposals = [ProposeFiles((new_file(1 << 30 | number, choose.randrange(partitions)),)) for number in range(ROUNDS)]
    times = []
    for proposal in proposals:
        begin = time.perf_counter()
        transaction = resolve(proposal, state)
        assert isinstance(transaction, AddFiles)
        state = apply(state, transaction, state.version + 1)
        times.append(time.perf_counter() - begin)
    report("one commit of a file resolved and applied", median(times) * 1e3, "ms", "at most 1 ms")
    begin = time.perf_counter()
    assert len(partition_sums(state)) == partitions
    report("rows, bytes and runs of every partition", time.perf_counter() - begin, "s")


def sqlite(folder: str, partitions: int, files: int, entries: int) -> None:
    """Measure the peer."""
    del entries
    path = Path(folder) / "peer.db"
    if not path.exists():
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        columns = "partition INT, file TEXT, rows INT, min BLOB, max BLOB, digest TEXT, job TEXT"
        connection.execute(f"CREATE TABLE refs ({columns})")
        begin = time.perf_counter()
        rows = (
            (n // files, file_id(n), 10**6, key(n // files * STEP), key(n // files * STEP), file_id(n), file_id(n))
            for n in range(partitions * files)
        )
        connection.executemany("INSERT INTO refs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE INDEX of_leaf ON refs (partition)")
        connection.commit()
        report("sqlite: written", time.perf_counter() - begin, "s")
        connection.close()
    connection = sqlite3.connect(path)
    choose = random.Random(1)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        found = connection.execute("SELECT * FROM refs WHERE partition = ?", (choose.randrange(partitions),)).fetchall()
        times.append(time.perf_counter() - begin)
        assert len(found) == files
    report("sqlite: references of one partition", median(times) * 1e3, "ms")


def one_key(state: TableState, partition: int) -> EncodedRange:
    low = state.created.codec.encode_key((partition * STEP + STEP // 2,))
    return EncodedRange(low, successor(low))


def report(what: str, figure: float, unit: str, target: str = "") -> None:
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:<46}{figure:>9.3f} {unit:<3}{rss:>8,.0f} MiB   {target}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=132_000)
    parser.add_argument("--files", type=int, default=20, help="of each partition")
    parser.add_argument("--entries", type=int, default=100, help="behind the checkpoint")
    parser.add_argument("--step", choices=("make", "open_it", "sqlite"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        {"make": make, "open_it": open_it, "sqlite": sqlite}[args.step](
            args.folder, args.partitions, args.files, args.entries
        )
        return
    print(f"{args.partitions:,} partitions, {args.partitions * args.files:,} files and references\n{'':<60}peak memory")
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        sizes = [f"--partitions={args.partitions}", f"--files={args.files}"]
        behind = args.entries
        for step, entries in (("make", 0), ("open_it", 0), ("make", behind), ("open_it", behind), ("sqlite", 0)):
            folder = Path(scratch) / str(entries)
            folder.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "benchmarks.state", f"--step={step}", f"--folder={folder}", *sizes]
            subprocess.run([*command, f"--entries={entries}"], check=True)


if __name__ == "__main__":
    main()
