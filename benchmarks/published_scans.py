"""How fast engines scan a published table, against the same rows written by Iceberg itself.

    ENGINES="$(scripts/ensure-engines)" python -m benchmarks.published_scans [--rows 20000000] [--commits 50]
        [--commit-rows 10000] [--modes keep-all latest] [--rounds 3]

The table of :mod:`benchmarks.published`, published and not compacted. PyIceberg writes the same rows with its defaults
twice: ``same commits`` appends each of them (a table that keeps all rows alone), ``one append`` writes the final rows
at once, in the order of the key. All columns are read: PyIceberg to Arrow, Spark (with ENGINES, in a JVM of its own
with two threads) to its sink ``noop``; Spark also writes and reads a table of its own, in the order of the key. The
best of some rounds, after one that is not counted: rows a second, and rows for each second of CPU of all threads, which
is valid on a machine with other load.

Aim: 0.8 of the rate of Iceberg's own table of the same commits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

import lakebed
from benchmarks.published import MODES, SCHEMA, batch, commit_keys
from benchmarks.results import record
from lakebed.upkeep.publish.run import publish

if TYPE_CHECKING:
    import pyarrow as pa

Rates = tuple[float, float]
"""Rows a second, and rows for each second of CPU."""

BASE_ROWS = 2_000_000
"""The most rows of a commit of the first rows."""

SPARK = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

request = json.loads(sys.argv[1])
options = {"spark.jars": request["jars"], "spark.ui.enabled": "false", "spark.driver.memory": "4g",
           "spark.sql.catalog.own": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.own.type": "hadoop",
           "spark.sql.catalog.own.warehouse": request["warehouse"]}
spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
java = spark._jvm.java.lang.ProcessHandle.current().pid()

def cpu_s():
    user, system = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

def rates(frame):
    begin, begin_cpu = time.perf_counter(), cpu_s()
    frame.write.format("noop").mode("overwrite").save()
    return request["rows"] / (time.perf_counter() - begin), request["rows"] / (cpu_s() - begin_cpu)

frames = {name: spark.read.format("iceberg").load(location) for name, location in request["tables"].items()}
frames["published"].sort("k").writeTo("own.db.t").using("iceberg").create()
frames["by Spark"] = spark.table("own.db.t")
rounds = [{name: rates(frame) for name, frame in frames.items()} for _ in range(request["rounds"] + 1)][1:]
print(json.dumps({name: [max(one) for one in zip(*(of[name] for of in rounds))] for name in frames}))
"""


def locations(mode: str, args: argparse.Namespace, folder: Path) -> dict[str, str]:
    """Write and publish the table, and write its rows with PyIceberg; return the metadata files by what they are."""
    lake = lakebed.create(str(folder / "lake"))
    table = lake.create_table("t", SCHEMA, merge=MODES[mode], settings={"publish": "iceberg"})
    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/own.db", warehouse=f"file://{folder}/own")
    catalog.create_namespace("db")
    same = catalog.create_table("db.same", schema=batch(np.arange(1), 0).schema) if mode == "keep-all" else None

    def commit(rows: pa.Table) -> None:
        table.write(rows)
        if same is not None:
            same.append(rows)

    for start in range(0, args.rows, BASE_ROWS):
        commit(batch(2 * np.arange(start, min(args.rows, start + BASE_ROWS)), start))
    for seed in range(args.commits):
        commit(batch(commit_keys(args.rows, args.commit_rows, seed), seed))
    found = {"published": publish(table).metadata_location}
    if same is not None:
        found["same commits"] = same.metadata_location
    rows = StaticTable.from_metadata(found["published"]).scan().to_arrow().sort_by("k")
    one = catalog.create_table("db.one", schema=rows.schema)
    one.append(rows)
    return found | {"one append": one.metadata_location}


def by_pyiceberg(tables: dict[str, str], rounds: int) -> dict[str, Rates]:
    """Return the rates of scans of each table in this process."""
    found: dict[str, list[Rates]] = {}
    for _ in range(rounds + 1):
        for name, location in tables.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            count = StaticTable.from_metadata(location).scan().to_arrow().num_rows
            rates = count / (time.perf_counter() - begin), count / (time.process_time() - begin_cpu)
            found.setdefault(name, []).append(rates)
    return {name: (max(one for one, _ in of[1:]), max(one for _, one in of[1:])) for name, of in found.items()}


def by_spark(engines: Path, tables: dict[str, str], folder: Path, rows: int, rounds: int) -> dict[str, Rates]:
    """Return the rates of Spark with Iceberg's runtime, for a table that Spark writes too."""
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    request = {"jars": jars, "tables": tables, "warehouse": str(folder / "spark"), "rows": rows, "rounds": rounds}
    command = [str(engines / "bin" / "python"), "-c", SPARK, json.dumps(request)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {name: (wall, cpu) for name, (wall, cpu) in json.loads(ran.stdout.strip().splitlines()[-1]).items()}


def show(mode: str, engine: str, rates: dict[str, Rates]) -> None:
    """Print the rates of the tables, and those of the published one against each."""
    wall, cpu = rates["published"]
    for name, (its_wall, its_cpu) in rates.items():
        print(
            f"{mode:10} {engine:10} {name:14} {its_wall:12,.0f} {its_cpu:12,.0f} "
            f"{wall / its_wall:6.2f} {cpu / its_cpu:6.2f}",
            flush=True,
        )
        if name != "published":
            what = f"scan of a published table by {engine}, {mode}"
            record(what, "rows/core-s", cpu, peer=name, theirs=its_cpu, aim=0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--commit-rows", type=int, default=10_000)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.rows:,} rows, {args.commits} commits of {args.commit_rows:,}")
    print(f"{'mode':10} {'engine':10} {'table':14} {'rows/s':>12} {'rows/CPU s':>12} {'ratio':>6} {'CPU':>6}")
    for mode in args.modes:
        with tempfile.TemporaryDirectory() as folder:
            tables = locations(mode, args, Path(folder))
            show(mode, "PyIceberg", by_pyiceberg(tables, args.rounds))
            if engines := os.environ.get("ENGINES"):
                rows = StaticTable.from_metadata(tables["published"]).scan().count()
                show(mode, "Spark", by_spark(Path(engines), tables, Path(folder), rows, args.rounds))


if __name__ == "__main__":
    main()
