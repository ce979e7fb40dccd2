"""Rows by an indexed field, beside rows by key and DuckDB's filter; and what the index costs.

    python -m benchmarks.second_key [--rows 2000000] [--upsert-rows 50000] [--lookups 1000]

A ``latest`` table of ``--rows`` rows with an 8-byte key, a near-unique text of 16 bytes and another is written in one
commit, in no order, and the text is indexed. Each figure is CPU of this process, and the time of a call: a warm
``get``, a warm ``get(by=)`` with one match, the same while ``--upsert-rows`` rows wait for a refresh, and DuckDB's
filter on the data files. Then an upsert with and without a refresh of the index, the build against the write of the
rows, a build by four tasks against an import of the rows, both in worker processes and with their CPU, and the bytes of
the index.

Aims: ``get(by=)`` at most twice ``get`` and 50 times faster than DuckDB's filter; an upsert with an index at most 1.6
times one without.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from benchmarks.results import record
from lakebed import Pipeline
from lakebed.jobs.executor import Root
from lakebed.jobs.tasks import entries_tasks
from lakebed.upkeep.index_feed import Workers, feed_index

SCHEMA = lakebed.Schema({"k": "int64"}, values={"tag": "string", "v": "string"})
PEER_LOOKUPS = 20
PARTS = 4


def batch(keys: np.ndarray, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    tags = np.char.mod("%016x", random.integers(0, 2**62, len(keys)))
    return pa.table({"k": keys, "tag": tags, "v": np.char.mod("value %d", random.integers(0, 10**9, len(keys)))})


def timed(call: Callable[[Any], object], values: Iterable[Any]) -> tuple[float, float]:
    """Return the CPU and the time of a call, in milliseconds, once all values were read before."""
    wanted = list(values)
    for one in wanted:
        call(one)
    begin_cpu, begin = time.process_time(), time.perf_counter()
    for one in wanted:
        call(one)
    cpu, passed = time.process_time() - begin_cpu, time.perf_counter() - begin
    return 1e3 * cpu / len(wanted), 1e3 * passed / len(wanted)


def once(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def with_workers(lake: lakebed.Instance, call: Callable[[Pipeline], object]) -> float:
    """Return the CPU seconds of a call of a pipeline with two worker processes, with theirs and their starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def run() -> None:
        with Pipeline(lake, launcher="in-process[2]", progress=None) as pipeline:
            call(pipeline)

    here = once(run)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return here + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size_of(table: lakebed.Table) -> int:
    return sum(file.size_bytes for file in table.state().referenced().values())


def chunks(table: lakebed.Table, names: tuple[str, ...]) -> Iterable[Any]:
    """Return the column chunks of these columns in the data files of a table."""
    for url in table.files()["url"].unique().to_pylist():
        metadata = pq.ParquetFile(url.removeprefix("file://")).metadata
        for group in range(metadata.num_row_groups):
            inside = [metadata.row_group(group).column(place) for place in range(metadata.num_columns)]
            yield from (chunk for chunk in inside if chunk.path_in_schema in names)


def show(name: str, figures: tuple[float, float], beside: tuple[float, float]) -> None:
    print(f"{name:34}{figures[0]:10.3f}{figures[1]:10.3f}{figures[1] / beside[1]:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--upsert-rows", type=int, default=50_000)
    parser.add_argument("--lookups", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        lake = lakebed.create(str(Path(folder) / "lake"))
        table, plain = (lake.create_table(name, SCHEMA, merge=lakebed.Latest()) for name in ("t", "plain"))
        rows = batch(np.random.default_rng(4).permutation(options.rows), 0)
        write_s = once(lambda: table.write(rows))
        plain.write(rows)
        index = lake.create_index("t_by_tag", table="t", on=["tag"])
        build_s = once(lambda: feed_index(index, table))
        pq.write_table(rows, file := Path(folder) / "rows.parquet")
        lake.create_table("imported", SCHEMA, merge=lakebed.Latest())
        import_s = with_workers(lake, lambda pipeline: pipeline.bulk_import("imported", str(file)))

        parts = lake.create_table("parts", SCHEMA, merge=lakebed.Latest())
        for part in range(PARTS):
            parts.write(rows.slice(part * options.rows // PARTS, options.rows // PARTS))
        index_of_parts = lake.create_index("parts_by_tag", table="parts", on=["tag"])

        def build(pipeline: Pipeline) -> None:
            workers = Workers(entries_tasks(pipeline.executor, Root(lake.url)), lambda: 2)
            feed_index(index_of_parts, parts, workers=workers, part_rows=options.rows // PARTS)

        by_tasks_s = with_workers(lake, build)
        of_index, of_table = size_of(index), sum(chunk.total_compressed_size for chunk in chunks(table, ("k", "tag")))
        places = np.random.default_rng(1).integers(0, options.rows, options.lookups)
        tags = rows["tag"].take(pa.array(places)).to_pylist()
        keys = rows["k"].take(pa.array(places)).to_pylist()
        got = timed(table.get, keys)
        by = timed(lambda tag: table.get(by={"tag": tag}), tags)
        relation = table.to_duckdb()
        found = timed(lambda tag: relation.filter(f"tag = '{tag}'").fetchall(), tags[:PEER_LOOKUPS])
        print(f"{'':34}{'CPU ms':>10}{'ms':>10}{'of get':>10}")
        for name, figures in (("get", got), ("get(by=)", by), ("DuckDB's filter", found)):
            show(name, figures, got)
        rows_text = f"{options.rows:,} rows"
        record(f"get by an indexed field, {rows_text}", "ms", by[1], peer="get", theirs=got[1], aim=0.5)
        record(f"get by an indexed field, {rows_text}", "ms", by[1], peer="DuckDB's filter", theirs=found[1], aim=50)

        changed = batch(np.random.default_rng(2).choice(options.rows, options.upsert_rows, replace=False), 3)
        without = once(lambda: plain.write(changed))
        alone = once(lambda: table.write(changed))
        late = timed(lambda tag: table.get(by={"tag": tag}), tags[:PEER_LOOKUPS])
        show(f"get(by=), {options.upsert_rows:,} rows late", late, got)
        fed = once(lambda: feed_index(index, table))
        print(f"upsert without an index {without:.3f} s CPU; with one {alone:.3f} and refresh {fed:.3f}:", end=" ")
        print(f"{(alone + fed) / without:.2f} times")
        upsert = f"upsert of {options.upsert_rows:,} into {rows_text}, with an index and its refresh"
        record(upsert, "CPU s", alone + fed, peer="without", theirs=without, aim=1 / 1.6)
        record("build of an index", "CPU s", build_s, peer="the write of its table", theirs=write_s, aim=0.5)
        what = "build of an index in worker processes"
        record(what, "CPU s", by_tasks_s, peer="an import of its table", theirs=import_s, aim=0.5)
        record("size of an index", "MB", of_index / 1e6, peer="its columns", theirs=of_table / 1e6, aim=1 / 1.1)
        print(f"write {write_s:.2f} s CPU, build {build_s:.2f}: {write_s / build_s:.2f} of its rate")
        print(f"in worker processes: import {import_s:.2f} s CPU, build {by_tasks_s:.2f}: {import_s / by_tasks_s:.2f}")
        print(f"index {of_index:,} bytes, its columns in the table {of_table:,}: {of_index / of_table:.2f} times")


if __name__ == "__main__":
    main()
