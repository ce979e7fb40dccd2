"""Which rows of a table's files count, after each commit and anew: what publication costs beside the commit.

    python -m benchmarks.hidden_rows [--rows 20000000] [--keys 10000] [--commits 9] [--kinds integer,hex]

A table of ``--rows`` rows with random keys gets ``--commits`` writes of ``--keys`` rows, half of which have keys of
the table; once with ``KeepAll``, once with ``Latest``. After each of them the hidden rows are found from those of the
version before. CPU time is that of the process; the files were read before, as in a service. The result is compared
with the one that is found anew, whose time is printed too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from lakebed import KeepAll, Latest, Schema
from lakebed.upkeep.publish.hidden_rows import LiveFiles, live_files

BATCH_ROWS = 500_000
CPU_MS_MAX = {"KeepAll": 50, "Latest": 150}


def _hex(numbers: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([f"user-{number:016x}" for number in numbers.tolist()])


KINDS: dict[str, tuple[str, Callable[[np.ndarray[Any, Any]], pa.Array]]] = {
    "integer": ("int64", pa.array),
    "hex": ("string", _hex),
}


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, and its milliseconds: CPU and wall."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = call()
    return found, 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)


def rows_of(kind: str, numbers: np.ndarray[Any, Any]) -> pa.Table:
    values = np.random.default_rng(len(numbers)).random(len(numbers))
    return pa.table({"k": KINDS[kind][1](numbers), "v": values, "w": np.char.mod("%d", numbers % 977)})


def batches(kind: str, numbers: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(numbers), BATCH_ROWS):
        yield from rows_of(kind, numbers[first : first + BATCH_ROWS]).to_batches()


def measure(kind: str, merge: Any, args: argparse.Namespace, folder: str) -> tuple[list[float], list[float], float]:
    chance = np.random.default_rng(1)
    numbers = np.unique(chance.integers(0, 2**62, args.rows))
    schema = Schema({"k": KINDS[kind][0]}, values={"v": "double", "w": "string"})
    table = lakebed.create(folder).create_table("t", schema, merge=merge)
    table.write(pa.RecordBatchReader.from_batches(rows_of(kind, numbers[:1]).schema, batches(kind, numbers)))
    table.state()
    known = live_files(table, table.log.head)
    cpu, wall, anew = [], [], 0.0
    for _ in range(args.commits):
        half = args.keys // 2
        written = np.concatenate([chance.choice(numbers, half, replace=False), chance.integers(0, 2**62, half)])
        table.write(rows_of(kind, np.unique(written)))
        head = table.log.head
        known, cpu_ms, wall_ms = timed(lambda head=head, known=known: live_files(table, head, known))
        cpu.append(cpu_ms)
        wall.append(wall_ms)
    full, anew, _ = timed(lambda: live_files(table, table.log.head))
    assert hidden(full) == hidden(known), "hidden rows found from version to version differ from those found anew"
    count = sum(len(live.hidden) for live in known.files.values())
    expected = 0 if merge == KeepAll() else args.commits * half
    assert count == 0 if not expected else 0.9 * expected <= count <= expected, (count, expected)
    return cpu, wall, anew


def hidden(found: LiveFiles) -> dict[str, Any]:
    return {name: live.hidden for name, live in found.files.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=9)
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    print(f"{args.keys:,} rows into {args.rows:,}, median of {args.commits} commits")
    print(f"{'keys':<9}{'merge':<9}{'CPU ms':>9}{'max':>9}{'wall ms':>9}{'anew, CPU ms':>14}{'at most':>9}")
    for kind in args.kinds.split(","):
        for merge in (KeepAll(), Latest()):
            with tempfile.TemporaryDirectory() as folder:
                cpu, wall, anew = measure(kind, merge, args, folder)
            name = type(merge).__name__
            record(f"hidden rows after a commit, {kind} keys, {name}", "CPU ms", cpu, peer="anew", theirs=anew)
            print(
                f"{kind:<9}{name:<9}{median(cpu):>9.1f}{max(cpu):>9.1f}{median(wall):>9.1f}{anew:>14.1f}"
                f"{CPU_MS_MAX[name]:>9}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
