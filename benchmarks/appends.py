"""Many appends, then one compaction of all their rows, against Iceberg on Spark: the same files, in turns.

    python -m benchmarks.appends [--kind hex] [--appends 20] [--rows 250000] [--rounds 5] [--sides lakebed iceberg]

Each append takes one unsorted Parquet file of ``--rows`` rows of a kind of :mod:`benchmarks.row_kinds`. Lakebed appends
with ``Table.write`` in the calling process and compacts with ``Pipeline.compact`` on Spark. Iceberg appends with
``writeTo(…).append()`` and compacts with the procedure ``rewrite_data_files`` and its strategy ``sort``, by row key and
sort key, into zstd. Each side is a process of its own with a session of its own, warmed up by appending and compacting
two small files. Sides take turns, in a different order each round. Iceberg's session is that of
:mod:`benchmarks.iceberg_ordered`.

Core-seconds are those of the whole process tree, JVM and workers included (:mod:`benchmarks.turns`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.iceberg_ordered import ICEBERG, SPARK, create_table, files_of, iceberg_session, peers
from benchmarks.turns import Found, Turn, core_seconds, in_turns, measured, ratio, spread

SMALL_ROWS = 10_000
TARGETS = "at most 5 s, and half of Iceberg's core-seconds"


def timed(append: Callable[[Path], Any], compact: Callable[[], Any], files: list[Path]) -> Found:
    """Append all files, then compact."""
    begin, begin_cores = time.perf_counter(), core_seconds()
    for file in files:
        append(file)
    appended = measured(begin, begin_cores)
    compact()
    return measured(begin, begin_cores) | {"appends": appended}


def ours(kind: str, files: list[Path], small: list[Path], folder: Path) -> Found:
    import lakebed
    from benchmarks.row_kinds import KINDS
    from lakebed import Pipeline

    instance = lakebed.create(folder / "lake")
    with Pipeline(instance) as pipeline:

        def run(name: str, given: list[Path]) -> Found:
            table = instance.create_table(name, KINDS[kind].schema)
            found = timed(table.write, lambda: pipeline.compact(table, strategy="full"), given)
            held = table.files()
            return found | {"rows": sum(held.column("rows").to_pylist()), "files": held.num_rows}

        run("small", small)
        return run("rows", files)


def iceberg(order: str, files: list[Path], small: list[Path], folder: Path) -> Found:
    session = iceberg_session(folder)

    def run(name: str, given: list[Path]) -> Found:
        table = create_table(session, name, given[0])
        options = "map('rewrite-all', 'true')"
        rewrite = (
            f"CALL lake.system.rewrite_data_files(table => 'db.{name}', strategy => 'sort', "
            f"sort_order => '{order}', options => {options})"
        )
        found = timed(
            lambda file: session.read.parquet(str(file)).writeTo(table).append(),
            lambda: session.sql(rewrite).collect(),
            given,
        )
        return found | files_of(session, table)

    run("small", small)
    result = run("rows", files)
    session.stop()
    return result


def child(side: str, kind: str, source: Path) -> Found:
    """Run one side in a process of its own."""
    from benchmarks.row_kinds import KINDS

    # Iceberg's process has no Lakebed, and needs only the sort order.
    what = kind if side == "lakebed" else ",".join(KINDS[kind].schema.sort_names)
    python = sys.executable if side == "lakebed" else str(peers())
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as folder:
        command = [python, "-m", "benchmarks.appends", "--child", side, what, str(source), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def run_child(side: str, what: str, source: Path, folder: Path) -> Found:
    files, small = (sorted(source.glob(f"{name}-*.parquet")) for name in ("rows", "small"))
    return (ours if side == "lakebed" else iceberg)(what, files, small, folder)


def make_files(kind: str, source: Path, appends: int, rows: int) -> None:
    import pyarrow.parquet as pq

    from benchmarks.row_kinds import KINDS

    for name, count, size in (("rows", appends, rows), ("small", 2, SMALL_ROWS)):
        for number in range(count):
            path = source / f"{name}-{number:03d}.parquet"
            pq.write_table(KINDS[kind].rows(size, number), path, compression="zstd")


def show(name: str, side: list[Found]) -> None:
    cells = [f"{name:<9}", spread([one["seconds"] for one in side], " s")]
    cells.append(spread([one["core_seconds"] for one in side], " core-s"))
    cells.append("appends alone " + spread([one["appends"]["seconds"] for one in side], " s"))
    cells.append(spread([one["appends"]["core_seconds"] for one in side], " core-s"))
    cells.append(f"{side[0]['rows']:,} rows in {side[0]['files']} files")
    cells.append("others " + spread([one["others"] for one in side], " cores"))
    print("  ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="hex")
    parser.add_argument("--appends", type=int, default=20)
    parser.add_argument("--rows", type=int, default=250_000, help="in each append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=("lakebed", "iceberg"), default=["lakebed", "iceberg"])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        side, what, source, folder = args.child
        print(json.dumps(run_child(side, what, Path(source), Path(folder))))
        return
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("lakebed", "pyspark", "pyarrow", "datafusion"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {packages}; {ICEBERG} on Spark {SPARK}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        source = Path(folder)
        make_files(args.kind, source, args.appends, args.rows)
        turns: dict[str, Turn] = {name: lambda _, name=name: child(name, args.kind, source) for name in args.sides}
        found = in_turns(turns, args.rounds)
    for name, side in found.items():
        show(name, side)
    if len(found) == 2:
        own, peer = found["lakebed"], found["iceberg"]
        print(f"of iceberg's: {ratio(own, peer, 'seconds')} s, {ratio(own, peer)} core-s; wanted: {TARGETS}")


if __name__ == "__main__":
    main()
