"""``fetchall`` of the Python Database API beside Arrow's ``to_pylist`` of the same rows: core-seconds.

    python -m benchmarks.database_api [--rows 1000000] [--turns 3]

Both run the same statement and make a Python value of each cell; ``fetchall`` makes tuples, ``to_pylist`` dicts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from lakebed import dbapi

SCHEMA = lakebed.Schema({"k": "string"}, values={"n": "int64", "x": "double", "at": "timestamp[us, tz=UTC]"})
STATEMENTS = {"text and numbers": "SELECT k, n, x FROM t", "and a time": "SELECT k, n, x, at FROM t"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake = lakebed.create(f"{folder}/lake")
        numbers = np.arange(arguments.rows)
        columns = [[f"key{n:09d}" for n in numbers], numbers, numbers / 7, pa.array(numbers).cast(SCHEMA.arrow[3].type)]
        lake.create_table("t", SCHEMA).write(pa.table(columns, schema=SCHEMA.arrow))
        print(f"{arguments.rows:,} rows, {arguments.turns} turns, medians of core-seconds\n")
        print(f"{'':20}{'fetchall':>10}{'to_pylist':>11}{'ratio':>8}")
        for what, statement in STATEMENTS.items():
            ours, theirs = measure(lake, statement, arguments.turns)
            record(
                f"fetchall of {arguments.rows:,} rows, {what}", "CPU s", ours, peer="Arrow's to_pylist", theirs=theirs
            )
            print(f"{what:20}{median(ours):>10.2f}{median(theirs):>11.2f}{median(ours) / median(theirs):>8.2f}")


def measure(lake: lakebed.Instance, statement: str, turns: int) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    with dbapi.connect(lake) as connection:
        for _ in range(turns):
            ours.append(core_seconds(lambda: connection.cursor().execute(statement).fetchall()))
            theirs.append(core_seconds(lambda: lake.sql(statement).read_all().to_pylist()))
    return ours, theirs


def core_seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
