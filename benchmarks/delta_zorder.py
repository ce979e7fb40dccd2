"""Appends Parquet files to a Delta table and z-orders it by the key, with delta-rs: a peer of
:mod:`benchmarks.bulk_import`, which runs it in an environment without Lakebed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from benchmarks.turns import Found, core_seconds, measured


def z_ordered(source: str, table: str) -> Found:
    begin, begin_cores = time.perf_counter(), core_seconds()
    given = ds.dataset(source)
    write_deltalake(table, pa.RecordBatchReader.from_batches(given.schema, given.to_batches()), mode="append")
    DeltaTable(table).optimize.z_order(["key"])
    result = measured(begin, begin_cores)
    facts = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    rows, size = sum(facts["num_records"].to_pylist()), sum(facts["size_bytes"].to_pylist())
    return result | {"rows": rows, "files": facts.num_rows, "bytes": size}


if __name__ == "__main__":
    print(json.dumps(z_ordered(sys.argv[1], str(Path(sys.argv[2]) / "delta"))))
