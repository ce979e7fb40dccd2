"""Tables of Delta Lake, through the package ``deltalake``, which applies deletion vectors and renamed columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.migration.foreign_table import ForeignTable, SourceLocation, plain_schema, unsupported
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage.external import options_of


def open_delta(location: SourceLocation) -> ForeignTable:
    """The table at its latest version, or at ``location.version``. Raises UsageError for one that cannot be read."""
    with optional_imports():
        from deltalake import DeltaTable

    with unsupported(location):
        options = options_of(location.url, location.home)
        table = DeltaTable(location.url, version=location.number(), storage_options=options or None)
        schema = plain_schema(pa.schema(table.schema().to_arrow()))
        rows = _row_count(table)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.RecordBatchReader.from_stream(table.scan(columns=schema.names))

    return ForeignTable(location.url, str(table.version()), schema, rows, batches)


def _row_count(table: Any) -> int | None:
    """The rows of all files, less those that deletion vectors hide; None if a file has no statistics."""
    counts = pa.table(table.get_add_actions()).column("num_records")
    if counts.null_count:
        return None
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().column("selection_vector")
    hidden = pc.sum(pc.invert(pc.list_flatten(vectors))).as_py() or 0
    return (pc.sum(counts).as_py() or 0) - hidden
