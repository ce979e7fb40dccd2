"""Compaction of sorted files, against its bare plan and DuckDB's sort and copy of the same files.

    python -m benchmarks.compaction [--kinds prefix hex …] [--files 10] [--rows 2000000] [--rounds 5]
                                    [--sides spark here bare duckdb] [--overlap 0.1]

Each file is one write of sorted rows, and so one run. Kinds of rows are those of :mod:`benchmarks.row_kinds`; there are
a fifth as many wide rows. The sides take turns, in a different order each round:

* ``spark``: ``Pipeline.compact`` in a warm session, on all cores
* ``here``: the same call, whose tasks run in one process, one after another, without Spark
* ``bare``: DataFusion's ordered merge with its own Parquet writer (:mod:`benchmarks.bare_plan`)
* ``duckdb``: ``COPY (SELECT … ORDER BY …) TO … (FORMAT parquet, COMPRESSION zstd)`` with all cores

Core-seconds are those of the whole process tree: driver, JVM and workers. A result is a median and its range; ratios
are medians over rounds. *Others* is the use of the machine's cores by other processes meanwhile: above a tenth of a
core, seconds are not reliable.

With ``--overlap`` there are two runs, with the same total of rows, that share this part of their key ranges; the side
*full* is the compaction of two runs of the same rows with equal key ranges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakebed
from benchmarks.row_kinds import KINDS, KindOfRows
from benchmarks.session_here import SessionHere
from benchmarks.turns import Found, Turn, core_seconds, in_turns, measured, ratio, spread
from lakebed import Pipeline
from lakebed.jobs.executor import on_one_core

SIDES = ("spark", "here", "bare", "duckdb")


# -- runs -------------------------------------------------------------------------------------------------------


def make_pair(kind: KindOfRows, rows: int, overlap: float) -> list[pa.Table]:
    """Return two runs of half of the rows each, whose key ranges share a part: rows in it are assigned to both
    alternately.
    """
    every = kind.sorted_rows(rows, 0).combine_chunks()
    shared = int(rows * overlap)
    begin = (rows - shared) // 2
    places = pa.array(range(shared))
    middle = every.slice(begin, shared)
    first, second = (middle.filter(pc.equal(pc.bit_wise_and(places, 1), odd)) for odd in (0, 1))
    return [pa.concat_tables([every.slice(0, begin), first]), pa.concat_tables([second, every.slice(begin + shared)])]


def make_table(instance: lakebed.Instance, kind: KindOfRows, runs: list[pa.Table], name: str = "rows") -> lakebed.Table:
    """Make a table of these runs."""
    table = instance.create_table(name, kind.schema)
    for run in runs:
        table.write(run.to_reader(65_536))
    return table


@contextlib.contextmanager
def copied(lake: Path) -> Iterator[Path]:
    """Copy the instance for the duration of the block: files are never changed, so hard links suffice."""
    # A checkpoint may still be written while the folder is deleted.
    with tempfile.TemporaryDirectory(dir=lake.parent, ignore_cleanup_errors=True) as folder:
        yield Path(shutil.copytree(lake, Path(folder, "lake"), copy_function=os.link))


def inputs_of(table: lakebed.Table) -> list[str]:
    return [url.removeprefix("file://") for url in table.files().column("url").to_pylist()]


# -- sides ------------------------------------------------------------------------------------------------------


def warm_up(pipeline: Pipeline) -> None:
    """Start every core's Python worker and load its libraries, as in a session that has compacted before."""
    runs = [KINDS["prefix"].sorted_rows(20_000, seed) for seed in range(2)]
    table = make_table(pipeline.instance, KINDS["prefix"], runs, "small")
    table.set(split_rows=1000)
    pipeline.split(table)
    pipeline.compact(table, strategy="full")


def compacted(pipeline: Pipeline, table: lakebed.Table) -> Found:
    begin, begin_cores = time.perf_counter(), core_seconds()
    report = pipeline.compact(table, strategy="full")
    return measured(begin, begin_cores) | {"rows": report.rows, "bytes": report.bytes_out}


def here(lake: Path) -> Found:
    """Compact in a process of its own, which has compacted a small table before."""
    with copied(lake) as place:
        return in_child("benchmarks.compaction", "--child", str(place))


def child(place: Path) -> Found:
    # As in a worker, before anything else in a task.
    on_one_core()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as folder:
        warm = lakebed.create(folder)
        warm_up(Pipeline(warm, SessionHere()))
        instance = lakebed.open(str(place))
        return compacted(Pipeline(instance, SessionHere()), instance.table("rows"))


def bare(lake: Path, kind: KindOfRows, folder: Path) -> Found:
    """Run the bare plan in a process of its own."""
    out = folder / "bare.parquet"
    inputs = inputs_of(lakebed.open(str(lake)).table("rows"))
    found = in_child("benchmarks.bare_plan", str(out), ",".join(kind.schema.sort_names), *inputs)
    return found | written(out)


def duckdb(lake: Path, kind: KindOfRows, folder: Path) -> Found:
    """Run DuckDB's sort and copy in a process of its own."""
    out = folder / "duckdb.parquet"
    names = ", ".join(f"'{path}'" for path in inputs_of(lakebed.open(str(lake)).table("rows")))
    order = ", ".join(kind.schema.sort_names)
    query = f"SELECT * FROM read_parquet([{names}]) ORDER BY {order}"
    copy = f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
    return in_child("benchmarks.compaction", "--duckdb", copy) | written(out)


def duckdb_child(statement: str) -> Found:
    import duckdb as peer

    connection = peer.connect()
    begin, begin_cores = time.perf_counter(), core_seconds()
    connection.execute(statement)
    return measured(begin, begin_cores) | {"version": peer.__version__}


def written(out: Path) -> Found:
    found = {"rows": pq.read_metadata(out).num_rows, "bytes": out.stat().st_size}
    out.unlink()
    return found


def in_child(module: str, *arguments: str) -> Found:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


# -- turns and tables -------------------------------------------------------------------------------------------


def show(kind: str, found: dict[str, list[Found]], peers: tuple[str, ...]) -> None:
    for name, side in found.items():
        rows = side[0]["rows"] / 1e6
        cells = [f"{kind:<10}{name:<8}", spread([one["seconds"] for one in side], " s")]
        cells.append(spread([one["core_seconds"] / rows for one in side], " core-s / M rows"))
        cells.append(f"{side[0]['bytes'] / rows / 1e6:6.1f} bytes / row")
        cells.append("others " + spread([one["others"] for one in side], " cores"))
        if name not in peers:
            cells += [
                f"of {peer}: {ratio(side, found[peer], 'seconds')} s, {ratio(side, found[peer])} core-s"
                for peer in peers
                if peer in found
            ]
        print("  ".join(cells), flush=True)


def compare(kind: KindOfRows, args: argparse.Namespace, folder: Path, pipelines: Pipelines) -> None:
    """Compare all sides on the same runs, for one kind of rows."""
    rows = args.rows // 5 if kind.name == "wide" else args.rows
    lake = folder / "lake"
    make_table(lakebed.create(lake), kind, [kind.sorted_rows(rows, seed) for seed in range(args.files)])
    every: dict[str, Turn] = {
        "spark": lambda _: pipelines.on_spark(lake),
        "here": lambda _: here(lake),
        "bare": lambda _: bare(lake, kind, folder),
        "duckdb": lambda _: duckdb(lake, kind, folder),
    }
    show(kind.name, in_turns({name: every[name] for name in args.sides}, args.rounds), ("bare", "duckdb"))
    shutil.rmtree(lake)


def compare_overlap(kind: KindOfRows, args: argparse.Namespace, folder: Path, pipelines: Pipelines) -> None:
    """Compare two runs that share a part of their key ranges with two that share all of it."""
    sides: dict[str, Turn] = {}
    for name, overlap in (("part", args.overlap), ("full", 1.0)):
        lake = folder / name
        make_table(lakebed.create(lake), kind, make_pair(kind, args.files * args.rows, overlap))
        if "spark" in args.sides:
            sides[name] = lambda _, lake=lake: pipelines.on_spark(lake)
        else:
            sides[name] = lambda _, lake=lake: here(lake)
    show(kind.name, in_turns(sides, args.rounds), ("full",))
    for name in sides:
        shutil.rmtree(folder / name)


class Pipelines:
    """The warm session, shared by a pipeline for each instance."""

    def __init__(self, folder: Path) -> None:
        self._own = Pipeline(lakebed.create(folder / "session"))
        warm_up(self._own)

    def on_spark(self, lake: Path) -> Found:
        with copied(lake) as place:
            instance = lakebed.open(str(place))
            return compacted(Pipeline(instance, self._own.session), instance.table("rows"))

    def close(self) -> None:
        self._own.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE")
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--overlap", type=float, help="two runs that share this part of their keys, such as 0.1")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--duckdb", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child)))
        return
    if args.duckdb:
        print(json.dumps(duckdb_child(args.duckdb)))
        return
    print(f"{args.files} files of {args.rows:,} rows, {args.rounds} rounds; {os.cpu_count()} cores", end="; ")
    print(f"load {os.getloadavg()[0]:.1f}; lakebed {lakebed.__version__}, pyarrow {pa.__version__}", end=", ")
    print(f"datafusion {version('datafusion')}, duckdb {version('duckdb')}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        pipelines = Pipelines(folder) if "spark" in args.sides else None
        for name in args.kinds:
            work = compare if args.overlap is None else compare_overlap
            work(KINDS[name], args, folder, pipelines)
        if pipelines is not None:
            pipelines.close()


if __name__ == "__main__":
    main()
