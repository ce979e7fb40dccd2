"""The bare plan of a compaction: DataFusion's ordered merge of sorted Parquet files, written by its own writer.

    python -m benchmarks.bare_plan OUT.parquet COLUMN,COLUMN IN.parquet …

The columns are those of the sort order. Settings are those of Sleeper's compaction for DataFusion (its instance
defaults): no membership filters, page checksums, digests or sync. It is the lower bound with which compaction is
compared (:mod:`benchmarks.compaction`). Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import datafusion
from datafusion import SessionConfig, SessionContext

OPTIONS = {
    "execution.parquet.enable_page_index": "false",
    "optimizer.repartition_aggregations": "false",
    "execution.parquet.max_row_group_size": "100000",
    "execution.parquet.data_pagesize_limit": "131072",
    "execution.parquet.compression": "zstd(1)",
    "execution.parquet.writer_version": "2.0",
    "execution.parquet.dictionary_enabled": "false",
    "execution.parquet.metadata_size_hint": "1048576",
}


def merge(out: Path, columns: list[str], inputs: list[Path]) -> dict[str, Any]:
    """Merge the files into one; return seconds and core-seconds of this process."""
    config = SessionConfig().with_target_partitions(max(2, len(inputs)))
    for name, value in OPTIONS.items():
        config = config.set(f"datafusion.{name}", value)
    context = SessionContext(config)
    order = ", ".join(f'"{column}" ASC NULLS LAST' for column in columns)
    query = f"SELECT * FROM rows ORDER BY {order}"
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        for number, path in enumerate(inputs):
            Path(folder, f"{number:03d}.parquet").symlink_to(path.absolute())
        context.sql(f"CREATE EXTERNAL TABLE rows STORED AS PARQUET LOCATION '{folder}/' WITH ORDER ({order})")
        plan = context.sql(query).execution_plan().display_indent()
        if "SortExec" in plan or (len(inputs) > 1 and "SortPreservingMergeExec" not in plan):
            raise SystemExit(f"the plan does not merge:\n{plan}")
        begin, begin_cores = time.perf_counter(), time.process_time()
        context.sql(f"COPY ({query}) TO '{out}' STORED AS PARQUET").collect()
        seconds, cores = time.perf_counter() - begin, time.process_time() - begin_cores
    return {"seconds": seconds, "core_seconds": cores, "version": datafusion.__version__}


if __name__ == "__main__":
    print(json.dumps(merge(Path(sys.argv[1]), sys.argv[2].split(","), [Path(path) for path in sys.argv[3:]])))
