"""Compaction of sorted files on Spark, against DuckDB's sort and copy of the very same files.

    python -m benchmarks.compaction [--files 10] [--rows 2000000] [--rounds 2]

Each file is one write of sorted rows, and so one run; the session is warm. The peer is ``COPY (SELECT … ORDER BY key,
ts) TO … (FORMAT parquet, COMPRESSION zstd)`` with all cores. Core-seconds are those of the whole process tree.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from benchmarks.bulk_import import core_seconds, make_rows, measured
from lakebed.spark import Pipeline


def prepared(instance: lakebed.Instance, name: str, sources: list[Path]) -> lakebed.Table:
    """A table with one run for each source file."""
    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    table = instance.create_table(name, schema)
    for source in sources:
        with pq.ParquetFile(source) as parquet:
            table.write(pa.RecordBatchReader.from_batches(parquet.schema_arrow, parquet.iter_batches()))
    return table


def warm_up(pipeline: Pipeline, table: lakebed.Table) -> None:
    """Have every core's Python worker started and its libraries loaded, as in a session that has compacted before."""
    table.set(split_rows=1000)
    pipeline.split(table)
    pipeline.compact(table, strategy="full")


def ours(pipeline: Pipeline, table: lakebed.Table) -> dict[str, Any]:
    begin, begin_cores = time.perf_counter(), core_seconds()
    report = pipeline.compact(table, strategy="full")
    return measured(begin, begin_cores) | {"rows": report.rows, "files": report.files_out, "bytes": report.bytes_out}


def duckdb(sources: list[str], out: Path) -> dict[str, Any]:
    import duckdb as peer

    connection = peer.connect()
    begin, begin_cores = time.perf_counter(), core_seconds()
    names = ", ".join(f"'{source}'" for source in sources)
    connection.execute(
        f"COPY (SELECT * FROM read_parquet([{names}]) ORDER BY key, ts) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
    )
    result = measured(begin, begin_cores)
    return result | {"rows": pq.ParquetFile(out).metadata.num_rows, "files": 1, "bytes": out.stat().st_size}


def report(name: str, found: list[dict[str, Any]]) -> tuple[float, float]:
    seconds, cores = median(f["seconds"] for f in found), median(f["core_seconds"] for f in found)
    rows = found[0]["rows"]
    print(
        f"{name:<20} {seconds:7.1f} s {rows / seconds / 1e6:6.2f} M rows/s {cores:7.1f} core-s "
        f"{rows / cores / 1e6:6.2f} M rows/s a core   {found[0]['files']} files, {found[0]['bytes'] / 1e6:.0f} MB"
    )
    return seconds, cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    mine: list[dict[str, Any]] = []
    peer: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        folder = Path(scratch)
        make_rows(folder / "rows", args.files, args.rows)
        make_rows(folder / "small", 2, 20_000)
        instance = lakebed.create(folder / "lake")
        with Pipeline(instance) as pipeline:
            warm_up(pipeline, prepared(instance, "small", sorted((folder / "small").iterdir())))
            for version in range(args.rounds):
                table = prepared(instance, f"rows-{version}", sorted((folder / "rows").iterdir()))
                urls = [url.removeprefix("file://") for url in table.files().column("url").to_pylist()]
                peer.append(duckdb(urls, folder / f"duckdb-{version}.parquet"))
                mine.append(ours(pipeline, table))
    print(f"compaction of {args.files} sorted files of {args.rows:,} rows, {args.rounds} rounds, medians")
    my_seconds, my_cores = report("lakebed on Spark", mine)
    seconds, cores = report("duckdb sort and copy", peer)
    print(
        f"ratio: {seconds / my_seconds:.2f} times the rows/s (at least 1.6), {cores / my_cores:.2f} times a core; "
        f"{mine[0]['rows'] / my_cores / 1e6:.2f} M rows/s a core (at least 2.1)"
    )


if __name__ == "__main__":
    main()
