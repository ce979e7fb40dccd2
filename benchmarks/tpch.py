"""SQL over whole tables: the 22 queries of TPC-H, against DataFusion by itself and DuckDB.

    python -m benchmarks.tpch [--scale 1] [--rounds 3] [--queries 1 18] [--memory-limit 536870912]

Each table is written in four overlapping runs, by its primary key, and not compacted. DataFusion reads the same runs as
files of its own writer, with its own settings and without a limit on memory; DuckDB reads these files as well. Each
side is a process of its own, and runs all queries in turn, as often as there are rounds. *CPU* is that of all threads
of a side, planning included, in seconds, the least of the rounds; *equal* says whether Lakebed's rows are those of
DuckDB, up to a millionth of a number.

Aim: at most 1.3 times the CPU of DataFusion for all queries together, and every answer equal.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from benchmarks.results import record
from benchmarks.tpch_queries import KEYS, QUERIES, make_data, query, runs_of, same_rows, write_tables

SIDES = ("lakebed", "datafusion", "duckdb")

AIM = 1 / 1.3
"""The least ratio of DataFusion's CPU to Lakebed's."""

Run = Callable[[str], pa.Table]


def make(folder: Path, scale: float, memory_limit_bytes: int) -> None:
    """Write the data in both forms."""
    import datafusion

    import lakebed

    make_data(folder / "source", scale)
    lake = lakebed.create(str(folder / "lake"))
    lake.set(memory_limit_bytes=memory_limit_bytes)
    write_tables(lake, folder / "source")
    context = datafusion.SessionContext()
    for name in KEYS:
        (folder / "files" / name).mkdir(parents=True)
        for number, run in enumerate(runs_of(folder / "source", name)):
            context.from_arrow(run).write_parquet(folder / "files" / name / f"{number}.parquet")


def lakebed_side(folder: Path) -> Run:
    import lakebed

    lake = lakebed.open(str(folder / "lake"))
    return lambda text: lake.sql(text).read_all()


def datafusion_side(folder: Path) -> Run:
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(max(os.cpu_count() or 1, 2)))
    for name in KEYS:
        context.register_parquet(name, folder / "files" / name)
    return lambda text: context.sql(text).to_arrow_table()


def duckdb_side(folder: Path) -> Run:
    import duckdb

    connection = duckdb.connect()
    for name in KEYS:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/files/{name}/*.parquet')")
    return lambda text: connection.execute(text).to_arrow_table()


@dataclass(slots=True)
class Answer:
    """The CPU of a query in seconds, in each round, and its rows, or how it failed."""

    cpu: list[float]
    rows: pa.Table | str


def run_side(side: str, folder: Path, args: argparse.Namespace) -> dict[int, Answer]:
    """Run the queries on a side, and return their answers by number."""
    run = {"lakebed": lakebed_side, "datafusion": datafusion_side, "duckdb": duckdb_side}[side](folder)
    found = {number: Answer([], "") for number in args.queries}
    for _ in range(args.rounds):
        for number, answer in found.items():
            begin = time.process_time()
            try:
                answer.rows = run(query(number, args.scale))
            except Exception as error:  # noqa: BLE001 - shown in the table
                answer.rows = f"{type(error).__name__}: {error}"
            answer.cpu.append(time.process_time() - begin)
    return found


def verdict(mine: pa.Table | str, theirs: pa.Table | str) -> str:
    if isinstance(mine, str):
        return mine[:60]
    return "yes" if not isinstance(theirs, str) and same_rows(mine, theirs) else "no"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, nargs="+", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--memory-limit", type=int, default=512 * 2**20)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        side, folder = args.side
        sys.stdout.buffer.write(pickle.dumps(run_side(side, Path(folder), args)))
        return 0
    print(f"load {os.getloadavg()[0]:.1f};", ", ".join(f"{p} {version(p)}" for p in SIDES))
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as scratch:
        make(Path(scratch), args.scale, args.memory_limit)
        command = [sys.executable, "-m", "benchmarks.tpch", *sys.argv[1:], "--side"]
        ran = {side: subprocess.run([*command, side, scratch], check=True, stdout=subprocess.PIPE) for side in SIDES}
    return show({side: pickle.loads(one.stdout) for side, one in ran.items()}, args)


def show(found: dict[str, dict[int, Answer]], args: argparse.Namespace) -> int:
    """Print the table; return 1 if an answer is not equal, or failed."""
    print(f"{'query':>5} {'Lakebed':>9} {'DataFusion':>11} {'DuckDB':>8} {'ratio':>6}  equal")
    wrong = 0
    for number, answer in found["lakebed"].items():
        said = verdict(answer.rows, found["duckdb"][number].rows)
        wrong += said != "yes"
        print(f"{number:5} {_figures([min(found[side][number].cpu) for side in SIDES])}  {said}")
    totals = {side: [sum(one) for one in zip(*(a.cpu for a in of.values()), strict=True)] for side, of in found.items()}
    print(f"{'all':>5} {_figures([min(totals[side]) for side in SIDES])}")
    what = f"{len(found['lakebed'])} queries of TPC-H at scale {args.scale:g}, {args.memory_limit // 2**20} MiB"
    for peer, aim in (("datafusion", AIM), ("duckdb", None)):
        record(what, "CPU s", totals["lakebed"], peer=peer, theirs=totals[peer], aim=aim)
    return 1 if wrong else 0


def _figures(cpu: list[float]) -> str:
    """Return the CPU of each side, and the ratio of the first to the second."""
    return f"{cpu[0]:9.2f} {cpu[1]:11.2f} {cpu[2]:8.2f} {cpu[0] / cpu[1]:6.2f}"


if __name__ == "__main__":
    sys.exit(main())
