"""Bulk import on Spark and in worker processes, against sorted Parquet files by Spark itself, DuckDB, Iceberg and
delta-rs, from the same rows.

    python -m benchmarks.bulk_import [--cases hex,prefix,short,long,composite,integer,skewed,wide,narrow]
                                     [--files 10] [--rows 2000000] [--rounds 5] [--scale 10]
                                     [--sides lakebed,here,spark,duckdb]
    python -m benchmarks.bulk_import --cases iceberg,1,8,256,10000,delta,frame,csv,lineitem [--source FOLDER]

Cases: the kinds of rows of :mod:`benchmarks.row_kinds`, as Parquet files that go into 8 partitions with about as many
rows each (wide rows are a fifth as many). The other cases have keys with a common prefix: a number is the number of
partitions of the table; ``frame`` and ``csv`` are the same rows from a DataFrame and from text; ``delta`` appends to a
Delta table and z-orders it by the key; ``lineitem`` is that table of TPC-H at ``--scale``, by order and line, whose
import must stay under 4 GiB for all processes together.

Sides: ``lakebed`` imports on Spark; ``here`` in worker processes, one a core; ``spark`` is
``repartitionByRange(n, key).sortWithinPartitions(key, ts).write.parquet``, zstd, of the same input; ``duckdb`` is
``COPY (SELECT * FROM … ORDER BY …) TO … (FORMAT parquet, COMPRESSION zstd)`` with all cores, into one file. ``here``
and ``duckdb`` are sides of the kinds of rows only. Each side is a process of its own with a session of its own; Spark
gets its defaults and a larger heap. Sides take turns, in a different order each round. Each does the work twice in its
session: *first* is the first job after the session has started, and of ``here`` the start of its workers as well;
*warm* is the second (for ``lineitem``, the first has two small files). Seconds and core-seconds are for a million rows
of the warm job, medians and ranges; ratios are medians over rounds, between sides of the same round.

Core-seconds are those of the whole process tree, JVM and workers included: on a machine with other load they are more
reliable than wall time. Peak memory is the maximum of the resident memory in /proc, read four times a second.

delta-rs runs in an environment made with pip.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.iceberg_ordered import peers as iceberg_peers
from benchmarks.results import record
from benchmarks.row_kinds import KINDS
from benchmarks.tpch_queries import make_data
from benchmarks.turns import Found, core_seconds, in_turns, measured, python_with, ratio, spread

KEYS = {"rows": (["key"], ["ts"]), "lineitem": (["l_orderkey"], ["l_linenumber"])}
"""Row key and sort key of each kind of input that is not in KINDS."""

CASES = (*KINDS, "iceberg", "1", "8", "256", "10000", "delta", "frame", "csv", "lineitem")

SIDES = ("lakebed", "here", "spark", "duckdb")
IMPORTS = ("lakebed", "here")

EVEN_KINDS = ("hex", "prefix", "integer")

PEERS = ("deltalake", "numpy", "psutil", "pyarrow")

LINEITEM_SETTINGS = {"memory_limit_bytes": 256 * 1024 * 1024}
LINEITEM_HEAP = "1g"
LINEITEM_MIB_MAX = 4096


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the table: the input, how it is read, the number of partitions, and the required ratios to its peer in
    time and core-seconds.
    """

    name: str
    peer: str
    kind: str
    form: str
    partitions: int
    at_least: float

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides of the case: imports first, then their peers."""
        if self.peer == "none":
            return ("lakebed",)
        return SIDES if self.kind in KINDS and self.peer == "spark" else ("lakebed", self.peer)

    def aim(self, side: str, peer: str) -> float:
        """The least ratio of a peer to an import in seconds and core-seconds; 0: none."""
        if side == "here":
            return 0.0 if peer == "lakebed" else 0.95 if peer == "duckdb" else 3.0 if self.kind in EVEN_KINDS else 2.4
        return self.at_least if peer == self.peer else 0.0

    @property
    def keys(self) -> tuple[list[str], list[str]]:
        """The fields of row key and sort key."""
        if self.kind not in KINDS:
            return KEYS[self.kind]
        schema = KINDS[self.kind].schema
        return list(schema.row_key_names), [name for name in schema.sort_names if name not in schema.row_key_names]


def case_of(word: str) -> Case:
    match word:
        case "iceberg":
            return Case("hex, 8 partitions, and Iceberg", "iceberg", "hex", "parquet", 8, 3.0)
        case "delta":
            return Case("Parquet, 8 partitions", "delta", "rows", "parquet", 8, 2.0)
        case "frame":
            return Case("a DataFrame", "spark", "rows", "frame", 1, 1.5)
        case "csv":
            return Case("CSV", "spark", "rows", "csv", 1, 1.2)
        case "lineitem":
            return Case("lineitem", "none", "lineitem", "parquet", 1, 0.0)
        case _ if word in KINDS:
            return Case(f"{word}, 8 partitions", "spark", word, "parquet", 8, 2.2 if word in EVEN_KINDS else 1.8)
        case _:
            partitions = int(word)
            at_least = 2.5 if partitions <= 256 else 1.5
            return Case(f"Parquet, {partitions:,} partitions", "spark", "rows", "parquet", partitions, at_least)


def make_kind(folder: Path, kind: str, files: int, rows: int) -> None:
    """Make files of unordered rows of a kind."""
    folder.mkdir(parents=True)
    for number in range(files):
        table = KINDS[kind].rows(rows // 5 if kind == "wide" else rows, number)
        pq.write_table(table, folder / f"part-{number:04d}.parquet", compression="zstd")


def make_rows(folder: Path, files: int, rows: int, *, sort: bool = False) -> None:
    """Rows of about 80 bytes: near-unique text keys, times, small numbers, text; unsorted unless ``sort``."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for number in range(files):
        table = pa.table(
            {
                "key": pa.array(np.char.add("user-", np.char.mod("%016x", random.integers(0, 2**62, rows)))),
                "ts": pa.array(random.integers(1_600_000_000_000, 1_700_000_000_000, rows)),
                "count": pa.array(random.integers(0, 1000, rows)),
                "value": pa.array(np.char.mod("%032x", random.integers(0, 2**62, rows))),
            }
        )
        if sort:
            table = table.sort_by([("key", "ascending"), ("ts", "ascending")])
        pq.write_table(table, folder / f"part-{number:04d}.parquet", compression="zstd")


def split_points(case: Case, source: Path) -> list[Any]:
    """Return keys that divide the rows among the partitions."""
    if case.kind not in KINDS:
        return [f"user-{i * 2**62 // case.partitions:016x}" for i in range(1, case.partitions)]
    names, _ = case.keys
    first = pq.read_table(next(source.glob("*.parquet")), columns=names)
    ordered = first.sort_by([(name, "ascending") for name in names])
    points = [ordered.slice(i * ordered.num_rows // case.partitions, 1) for i in range(1, case.partitions)]
    # A skewed key may occur several times.
    return list(dict.fromkeys(tuple(row[name] for name in names) for p in points for row in p.to_pylist()))


def ours(case: Case, source: Path, small: Path, folder: Path, launcher: str | None) -> Found:
    import lakebed
    from lakebed import Pipeline
    from lakebed.spark.session import _DRIVER_SETTINGS

    row_key, sort_key = case.keys
    example = small.parent / "small" if case.form == "csv" else small
    schema = lakebed.Schema.from_arrow(pq.read_schema(next(example.rglob("*.parquet"))), row_key, sort_key)
    points = split_points(case, source)
    settings = LINEITEM_SETTINGS if case.kind == "lineitem" else {}
    if case.kind == "lineitem":
        _DRIVER_SETTINGS["spark.driver.memory"] = LINEITEM_HEAP
    instance = lakebed.create(folder / "lake")
    form = "csv" if case.form == "csv" else "parquet"
    with Pipeline(instance, launcher=launcher, progress=None) as pipeline:
        if launcher is None:
            # Started before the first job is measured.
            _ = pipeline.session

        def run(name: str, path: Path) -> Found:
            table = instance.create_table(name, schema, split_points=points, settings=settings)
            given = pipeline.session.read.parquet(str(path)) if case.form == "frame" else path
            begin, begin_cores = time.perf_counter(), core_seconds()
            report = pipeline.bulk_import(table, given, format=form)
            found = measured(begin, begin_cores)
            return found | {"rows": report.rows, "files": report.files, "bytes": report.size_bytes}

        first = run("first", small if case.kind == "lineitem" else source)
        return run("warm", source) | {"first": first}


def spark(case: Case, source: Path, folder: Path) -> Found:
    session = spark_session("6g")
    row_key, sort_key = case.keys
    # As many files as the import made, passed by the caller.
    count = int(os.environ["BENCH_FILES"])

    def run(out: Path) -> Found:
        begin, begin_cores = time.perf_counter(), core_seconds()
        if case.form == "csv":
            schema = "key string, ts long, count long, value string"
            frame = session.read.option("header", "true").schema(schema).csv(str(source))
        else:
            frame = session.read.parquet(str(source))
        placed = frame.repartitionByRange(count, *row_key).sortWithinPartitions(*row_key, *sort_key)
        placed.write.option("compression", "zstd").parquet(str(out))
        return measured(begin, begin_cores)

    first = run(folder / "first")
    result = run(folder / "rows")
    written = list((folder / "rows").glob("*.parquet"))
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in written)
    session.stop()
    size = sum(path.stat().st_size for path in written)
    return result | {"rows": rows, "files": len(written), "bytes": size, "first": first}


def duckdb(case: Case, source: Path, folder: Path) -> Found:
    import duckdb as peer

    order = ", ".join(name for names in case.keys for name in names)
    connection = peer.connect()

    def run(out: Path) -> Found:
        query = f"SELECT * FROM read_parquet('{source}/*.parquet') ORDER BY {order}"
        begin, begin_cores = time.perf_counter(), core_seconds()
        connection.execute(f"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
        return measured(begin, begin_cores)

    first = run(folder / "first.parquet")
    result = run(out := folder / "rows.parquet")
    return result | {
        "rows": pq.read_metadata(out).num_rows, "files": 1, "bytes": out.stat().st_size, "first": first,
    }  # fmt: skip


def spark_session(heap: str) -> Any:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", heap)
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


# -- the parent's side ------------------------------------------------------------------------------------------


def peers() -> Path:
    """Return the Python of an environment that has the peers."""
    return python_with("peers", PEERS)


def make_csv(source: Path, folder: Path) -> None:
    from pyarrow import csv

    folder.mkdir()
    for path in sorted(source.glob("*.parquet")):
        csv.write_csv(pq.read_table(path), folder / f"{path.stem}.csv")


def make_lineitem(folder: Path, scale: float) -> None:
    """Make some files of the table, each of a part of its orders."""
    make_data(folder, scale, "--tables=lineitem", f"--parts={max(2, round(scale * 2))}")


def resident_mib(root: psutil.Process) -> float:
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            # The process ended meanwhile.
            continue
    return total / 2**20


def child(side: str, word: str, source: Path, small: Path, files: int) -> Found:
    """Run one side in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        if side == "delta":
            command = [peers(), "-m", "benchmarks.delta_zorder", source, folder]
        elif side == "iceberg":
            order = ",".join(name for names in case_of(word).keys for name in names)
            command = [iceberg_peers(), "-m", "benchmarks.iceberg_ordered", order, source, folder]
        else:
            command = [sys.executable, "-m", "benchmarks.bulk_import", "--child", side, word, source, small, folder]
        environment = os.environ | {"BENCH_FILES": str(files)}
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        peak = 0.0
        outputs: list[str] = []
        reader = threading.Thread(target=lambda: outputs.extend(process.communicate()))
        reader.start()
        watched = psutil.Process(process.pid)
        while reader.is_alive():
            try:
                peak = max(peak, resident_mib(watched))
            except psutil.NoSuchProcess:
                break
            reader.join(0.25)
        reader.join()
        if process.returncode:
            raise SystemExit(f"{side} failed at {word}:\n{outputs[1][-3000:]}")
        result: Found = json.loads(outputs[0].splitlines()[-1])
        return result | {"peak_mib": peak}


def show(name: str, side: list[Found]) -> None:
    rows = side[0]["rows"] / 1e6
    cells = [f"  {name:<9}", spread([one["seconds"] for one in side], " s")]
    cells.append(spread([one["core_seconds"] / rows for one in side], " core-s / M rows"))
    if "first" in side[0]:
        cells.append("first: " + spread([one["first"]["seconds"] for one in side], " s"))
        cells.append(spread([one["first"]["core_seconds"] for one in side], " core-s in all"))
    cells.append(f"{max(one['peak_mib'] for one in side):.0f} MiB")
    cells.append(f"{side[0]['files']} files, {side[0]['bytes'] / rows / 1e6:.1f} bytes / row")
    cells.append("others " + spread([one["others"] for one in side], " cores"))
    print("  ".join(cells), flush=True)


def compare(word: str, source: Path, small: Path, rounds: int, wanted: Sequence[str]) -> bool:
    """Run and print one case; return whether time and memory are within the limits."""
    case = case_of(word)
    files = [0]

    def one(side: str, _: int) -> Found:
        found = child(side, word, source, small, files[0])
        # The first round begins with an import, which determines the number of files.
        files[0] = found["files"] if side in IMPORTS else files[0]
        return found

    sides = [side for side in case.sides if side in wanted or side not in SIDES]
    found = in_turns({side: partial(one, side) for side in sides}, rounds)
    print(f"{case.name}: {found[sides[0]][0]['rows']:,} rows, {rounds} rounds", flush=True)
    for name, side in found.items():
        show(name, side)
    if case.peer == "none":
        peak = max(one["peak_mib"] for one in found["lakebed"])
        print(f"  heap {LINEITEM_HEAP}, {LINEITEM_SETTINGS}; at most {LINEITEM_MIB_MAX} MiB", flush=True)
        return bool(peak <= LINEITEM_MIB_MAX)
    pairs = [(side, peer) for side in sides if side in IMPORTS for peer in sides if peer not in IMPORTS]
    reached = [compare_pair(case, side, peer, found) for side, peer in pairs]
    return all(reached)


def compare_pair(case: Case, side: str, peer: str, found: dict[str, list[Found]]) -> bool:
    """Print how an import compares with a peer; return whether it is as good as it has to be."""
    own, other, aim = found[side], found[peer], case.aim(side, peer)
    print(
        f"  {side} and {peer}: {ratio(other, own, 'seconds')} times as fast, in {ratio(other, own)} times fewer "
        f"core-seconds{f' (at least {aim})' if aim else ''}",
        flush=True,
    )
    rows = own[0]["rows"] / 1e6
    record(
        f"import {case.name}, {'in worker processes' if side == 'here' else 'on Spark'}",
        "core-s/M rows",
        [one["core_seconds"] / rows for one in own],
        peer=peer,
        theirs=[one["core_seconds"] / rows for one in other],
        aim=aim or None,
    )
    return all(
        median(theirs[what] / ours[what] for theirs, ours in zip(other, own, strict=True)) >= aim
        for what in ("seconds", "core_seconds")
    )


def run_child(side: str, word: str, places: list[Path]) -> Found:
    source, small, folder = places
    match side:
        case "spark":
            return spark(case_of(word), source, folder)
        case "duckdb":
            return duckdb(case_of(word), source, folder)
        case _:
            return ours(case_of(word), source, small, folder, "in-process" if side == "here" else None)


def inputs(word: str, root: Path, args: argparse.Namespace) -> tuple[Path, Path]:
    """Return the input of a case and a small one; make missing ones."""
    kind = case_of(word).kind
    if kind in KINDS:
        make_kind(root / word, kind, args.files, args.rows)
        return root / word, root / word
    if word == "lineitem":
        make_lineitem(root / "lineitem", args.scale)
        make_lineitem(root / "lineitem-small", 0.01)
        return root / "lineitem", root / "lineitem-small"
    source, small = args.source or root / "rows", root / "small"
    if not small.exists():
        make_rows(small, 2, 50_000)
        if args.source is None:
            make_rows(source, args.files, args.rows)
    if word != "csv":
        return source, small
    make_csv(source, root / "csv")
    make_csv(small, root / "csv-small")
    return root / "csv", root / "csv-small"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=10, help="of TPC-H: 6 million rows of lineitem each")
    parser.add_argument("--sides", default=",".join(SIDES), help="of the kinds of rows; the first is an import")
    parser.add_argument("--source", type=Path, help="a folder of such files, instead of making them")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        side, word, *places = args.child
        print(json.dumps(run_child(side, word, [Path(place) for place in places])))
        return 0
    packages = ("lakebed", "pyspark", "pyarrow", "datafusion", "numpy")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};", ", ".join(f"{p} {version(p)}" for p in packages))
    slow = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        for word in args.cases.split(","):
            slow += [] if compare(word, *inputs(word, root, args), args.rounds, args.sides.split(",")) else [word]
            shutil.rmtree(root / word, ignore_errors=True)
    if slow:
        print(f"below what they must reach: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
