"""What it costs to publish a table as Iceberg after each commit.

    python -m benchmarks.published [--rows 20000000] [--commits 50] [--commit-rows 10000] [--modes keep-all latest]
        [--formats iceberg iceberg-3]
    python -m benchmarks.published --small 10000

A table of ``--rows`` rows gets commits of ``--commit-rows`` rows with random keys, in a ``latest`` table half of them
keys that are there. After each commit the table is published: CPU of this process, in the order of the commits, and the
bytes of the metadata that the current snapshot needs against those of the data. :mod:`benchmarks.published_scans` reads
such tables, :mod:`benchmarks.published_visible` asks a service for them.

With ``--small``, a small table in memory gets as many commits of ten rows, is compacted after each fifty, and its last
hundred publications are compared with the first.

Aims: at most 50 ms of CPU for a publication of a table that keeps all rows, 150 ms for ``latest``; metadata below one
per mille of the data; the last tenth of the commits costs what the first did.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.table import StaticTable

import lakebed
from benchmarks.results import record
from lakebed.model.settings import ICEBERG_FORMATS
from lakebed.upkeep.publish.run import current, publish
from lakebed.upkeep.retention.run import collect_garbage

COMPACT_EVERY = 50
"""Small commits."""

MODES = {"keep-all": lakebed.KeepAll(), "latest": lakebed.Latest()}
SCHEMA = lakebed.Schema({"k": "int64"}, values={"a": "int64", "b": "double", "c": "string"})
WARM_UP = 2
"""Publications that are not counted: the first reads what there is, and imports."""


def batch(keys: np.ndarray, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    texts = pa.array([f"value-{one}" for one in range(1000)]).take(pa.array(random.integers(0, 1000, len(keys))))
    columns = {"k": keys, "a": random.integers(0, 2**60, len(keys)), "b": random.random(len(keys)), "c": texts}
    return pa.table(columns)


def commit_keys(rows: int, commit_rows: int, seed: int) -> np.ndarray:
    """Return the sorted keys of a commit: half of them are even, as those of the first rows."""
    random = np.random.default_rng(seed)
    there = 2 * random.integers(0, rows, commit_rows // 2)
    new = 2 * random.integers(0, rows, commit_rows - len(there)) + 1
    return np.unique(np.concatenate([there, new]))


def commits(table: lakebed.Table, rows: int, commit_rows: int, number: int) -> list[float]:
    """Commit and publish; return the CPU seconds of each publication."""
    found = []
    for seed in range(number):
        table.write(batch(commit_keys(rows, commit_rows, seed), seed))
        begin = time.process_time()
        publish(table)
        found.append(time.process_time() - begin)
    return found[WARM_UP:]


def small_commits(mode: str, form: str, number: int) -> list[float]:
    """Commit ten rows and publish them, many times; compact now and then. Return the CPU seconds of publications."""
    found = []
    lake = lakebed.create(f"memory://{mode}-{form}")
    table = lake.create_table("t", SCHEMA, merge=MODES[mode], settings={"publish": form, "history_s": 60})
    with lakebed.Pipeline(lake, launcher="this-thread") as pipeline:
        for seed in range(number):
            keys = np.unique(np.random.default_rng(seed).integers(0, 10_000, 10))
            table.write(batch(keys, seed))
            begin = time.process_time()
            publish(table)
            found.append(time.process_time() - begin)
            if seed % COMPACT_EVERY == COMPACT_EVERY - 1:
                pipeline.compact("t", strategy="full")
                collect_garbage(table)
    return found


def metadata_share(table: lakebed.Table) -> float:
    """Return the bytes of the metadata that the current snapshot needs, for each byte of its data files."""
    published = current(table)
    assert published is not None
    iceberg = StaticTable.from_metadata(published.metadata_location)
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(iceberg.io)
    data = sum(held.file.size_bytes for every in table.state().references.values() for held in every)
    deletes = [task for task in iceberg.scan().plan_files() if task.delete_files]
    held = {one.file_path: one.file_size_in_bytes for task in deletes for one in task.delete_files}
    return (len(published.metadata) + sum(one.manifest_length for one in manifests) + sum(held.values())) / data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--commit-rows", type=int, default=10_000)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--formats", nargs="+", choices=list(ICEBERG_FORMATS), default=list(ICEBERG_FORMATS))
    parser.add_argument("--small", type=int, default=0, help="commits of ten rows, in place of all else")
    args = parser.parse_args()
    if args.small:
        for mode, form in product(args.modes, args.formats):
            found = small_commits(mode, form, args.small)
            first, last = (1000 * statistics.median(one) for one in (found[:100], found[-100:]))
            print(f"{mode:10} {form:10} first hundred {first:6.1f} ms, last hundred {last:6.1f} ms", flush=True)
            what = f"publication as {form}, {mode}, the last of {args.small:,} commits"
            record(what, "CPU ms", last, peer="the first", theirs=first, aim=1)
        return
    print(f"{args.rows:,} rows, {args.commits} commits of {args.commit_rows:,}")
    heads = ("CPU median", "first tenth", "last tenth")
    columns = f"{heads[0]:>11} {heads[1]:>12} {heads[2]:>11} {'metadata':>10}"
    print(f"{'mode':10} {'format':10} {columns}")
    for mode, form in product(args.modes, args.formats):
        with tempfile.TemporaryDirectory() as folder:
            measured(mode, form, args, Path(folder))


def measured(mode: str, form: str, args: argparse.Namespace, folder: Path) -> None:
    """Print a line of figures."""
    lake = lakebed.create(str(folder / "lake"))
    table = lake.create_table("t", SCHEMA, merge=MODES[mode], settings={"publish": form})
    step = min(args.rows, 2_000_000)
    for start in range(0, args.rows, step):
        table.write(batch(2 * np.arange(start, min(args.rows, start + step)), start))
    found = commits(table, args.rows, args.commit_rows, args.commits)
    tenth = max(1, len(found) // 10)
    first, last = (statistics.median(one) for one in (found[:tenth], found[-tenth:]))
    share = metadata_share(table)
    what = f"publication as {form}, {mode}, {args.commit_rows:,} rows into {args.rows:,}"
    record(what, "CPU ms", [1000 * one for one in found])
    record(f"metadata of {form} for data, {mode}", "per mille", 1000 * share)
    print(
        f"{mode:10} {form:10} {1000 * statistics.median(found):8.1f} ms {1000 * first:9.1f} ms "
        f"{1000 * last:8.1f} ms {1000 * share:7.2f} ‰",
        flush=True,
    )


if __name__ == "__main__":
    main()
