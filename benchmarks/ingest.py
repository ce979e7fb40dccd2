"""Ingest of many small files on Spark by one job, timed without the session's start.

    python -m benchmarks.ingest [--files 100] [--rows 10000] [--rounds 3]

The files are submitted, then ingested by one job of one task. The session's start is timed separately, and so is the
first round, whose Python worker has nothing loaded yet. The peer is Spark's own sort and write of the same files,
without a table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import lakebed
from benchmarks.bulk_import import make_rows
from lakebed import Pipeline

TARGET_S = 5.0


def ours(pipeline: Pipeline, instance: lakebed.Instance, name: str, folder: Path) -> tuple[float, float]:
    """Return the seconds of the submission, and of the ingest."""
    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    table = instance.create_table(name, schema)
    begin = time.perf_counter()
    submitted = table.submit(folder)
    middle = time.perf_counter()
    report = pipeline.ingest(table, force=True)
    end = time.perf_counter()
    assert (report.jobs, report.requests, report.waiting) == (1, len(submitted.files), 0)
    return middle - begin, end - middle


def spark_itself(pipeline: Pipeline, folder: Path, out: Path) -> float:
    """Return the seconds of reading, sorting and writing the same files."""
    begin = time.perf_counter()
    pipeline.session.read.parquet(str(folder)).sort("key", "ts").write.option("compression", "zstd").parquet(str(out))
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        folder = Path(scratch)
        make_rows(folder / "rows", args.files, args.rows)
        instance = lakebed.create(str(folder / "lake"))
        with Pipeline(instance) as pipeline:
            begin = time.perf_counter()
            pipeline.session.range(1).count()
            print(f"Spark session: {time.perf_counter() - begin:.1f} s")
            mine = [ours(pipeline, instance, f"rows-{n}", folder / "rows") for n in range(args.rounds)]
            peer = [spark_itself(pipeline, folder / "rows", folder / f"out-{n}") for n in range(args.rounds)]
    rows = args.files * args.rows
    ingests = [ingest for _, ingest in mine]
    print(f"{args.files} files of {args.rows:,} rows, {args.rounds} rounds")
    print(f"submission           {median(submission for submission, _ in mine):6.2f} s")
    print(f"ingest, the first    {ingests[0]:6.2f} s (at most {TARGET_S:.0f} beyond the session's start)")
    print(f"ingest, median       {median(ingests):6.2f} s {rows / median(ingests) / 1e6:6.2f} M rows/s")
    print(f"Spark sort and write {median(peer):6.2f} s {rows / median(peer) / 1e6:6.2f} M rows/s")


if __name__ == "__main__":
    main()
