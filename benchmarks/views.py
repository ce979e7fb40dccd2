"""Refreshes of views after an upsert into their source, against refreshes anew.

    python -m benchmarks.views [--rows 5000000] [--upserted 50000] [--groups 1000,1000000]

A ``Latest`` table of ``--rows`` rows in ``--groups`` groups gets an upsert of ``--upserted`` of its rows, which moves
each to another group. Then views of it are refreshed: ``sums`` has counts and sums, of which the difference is
exact; ``extremes`` also a maximum, so that some groups are made again; ``rows`` has the rows themselves under another
key. All rows of each view are compared with those after a refresh anew, whose time is printed beside.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from lakebed import Aggregate, Latest, Schema
from lakebed.upkeep.view_feed import RefreshReport, refresh

SUMS = {"n": "sum", "v": "sum"}
VIEWS: dict[str, dict[str, Any]] = {
    "sums": {
        "select": "SELECT g, count(*) AS n, sum(v) AS v FROM source GROUP BY g", "row_key": ["g"],
        "merge": Aggregate(SUMS),
    },
    "extremes": {
        "select": "SELECT g, count(*) AS n, sum(v) AS v, max(v) AS top FROM source GROUP BY g", "row_key": ["g"],
        "merge": Aggregate({**SUMS, "top": "max"}),
    },
    "rows": {"select": "SELECT g, k, v FROM source", "row_key": ["g"], "sort_key": ["k"]},
}  # fmt: skip


def rows_of(keys: np.ndarray[Any, Any], groups: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    moved = {"g": chance.integers(0, groups, len(keys)), "v": chance.integers(0, 10**9, len(keys))}
    return pa.table({"k": keys, **moved})


def timed(view: lakebed.Table, source: lakebed.Table, *, anew: bool) -> tuple[RefreshReport, float, float]:
    """Return the report of a refresh, and its seconds: CPU and wall."""
    cpu, wall = time.process_time(), time.perf_counter()
    report = refresh(view, source, anew=anew)
    return report, time.process_time() - cpu, time.perf_counter() - wall


def measure(groups: int, args: argparse.Namespace, folder: str) -> bool:
    """Print a line for each view; return whether all have the rows that they have anew."""
    lake = lakebed.create(folder)
    schema = Schema({"k": "int64"}, values={"g": "int64", "v": "int64"})
    source = lake.create_table("source", schema, merge=Latest())
    source.write(rows_of(np.arange(args.rows), groups, 1))
    views = {name: lake.create_view_table(name, source="source", **given) for name, given in VIEWS.items()}
    for view in views.values():
        refresh(view, source)
    chosen = np.random.default_rng(2).choice(args.rows, args.upserted, replace=False)
    source.write(rows_of(chosen, groups, 3))
    same = True
    for name, view in views.items():
        report, cpu, wall = timed(view, source, anew=False)
        found = view.scan().read_all()
        _, cpu_anew, wall_anew = timed(view, source, anew=True)
        is_same = found.equals(view.scan().read_all())
        same &= is_same
        what = f"refresh of the view {name}, {groups:,} groups, {args.upserted:,} upserts into {args.rows:,} rows"
        record(what, "CPU s", cpu, peer="anew", theirs=cpu_anew, aim=1)
        print(
            f"{groups:>9,} {name:>9}  {report.rows_read:>9,} rows read  {cpu:6.2f} s CPU {wall:6.2f} s   anew "
            f"{cpu_anew:6.2f} s CPU {wall_anew:6.2f} s   {wall_anew / wall:5.1f} times"
            f"{'  (read anew)' if report.anew else ''}{'' if is_same else '  DIFFERENT ROWS'}",
            flush=True,
        )
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upserted", type=int, default=50_000)
    parser.add_argument("--groups", type=lambda text: [int(one) for one in text.split(",")], default=[1_000, 1_000_000])
    args = parser.parse_args()
    same = True
    for groups in args.groups:
        with tempfile.TemporaryDirectory() as folder:
            same &= measure(groups, args, f"{folder}/lake")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
