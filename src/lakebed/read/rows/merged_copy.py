"""Merged rows as a local file, for engines that read Parquet by themselves and cannot merge.

Where files of a table with a merge mode overlap, no file holds the table's rows. The rows of these parts are merged and
written to a temporary Parquet file, with the columns that the engine will read. Its size is that of the merged rows,
and the memory is that of a scan.

Errors: as :meth:`lakebed.read.rows.reader.Reader.scan`, and StorageError if there is no room for the copy.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.clock import random_token
from lakebed.files.parquet.open_files import LocalCopy, copies_folder
from lakebed.files.parquet.sizes import gather
from lakebed.storage.disk_space import writing_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.rows.reader import Reader
    from lakebed.read.rows.row_stream import RowStream

_GROUP_ROWS = 1_000_000
GROUP_BYTES = 32 * 1024 * 1024
"""A row group is held once as rows and once encoded."""


def merged_copy(plan: QueryPlan, reader: Reader, columns: Iterable[str] | None = None) -> LocalCopy:
    """Return the rows of a plan in key order, as a Parquet file with these columns (None: all) in the order of the
    schema.

    The file exists as long as the returned value.
    """
    wanted = set(plan.schema.names if columns is None else columns) or {plan.schema.names[0]}
    return rows_copy(reader.scan(plan, [name for name in plan.schema.names if name in wanted], None))


def rows_copy(
    found: RowStream,
    compression: str = "lz4",
    *,
    group_bytes: int = GROUP_BYTES,
    grown: Callable[[int], None] = lambda _: None,
) -> LocalCopy:
    """Return the rows of a stream as a Parquet file, which exists as long as the returned value. Closes the stream.

    ``grown`` gets the size of the file so far, in bytes, after each row group; the file is deleted if it raises.
    """
    folder = copies_folder()
    copy = LocalCopy(folder / f"merged-{random_token()}.parquet")
    with closing(found) as rows, writing_to(folder):
        # Statistics of Parquet leave NaN out, so that the engine would skip rows with it, or read them as others.
        bounded = [field.name for field in rows.schema if not _may_hold_nan(field.type)]
        writer = pq.ParquetWriter(copy.path, rows.schema, compression=compression, write_statistics=bounded)
        try:
            with writer:
                for group in gather(rows, _GROUP_ROWS, group_bytes):
                    writer.write_table(group)
                    grown(copy.path.stat().st_size)
        except BaseException:
            # The error may be kept for long, and would keep the file.
            copy.path.unlink(missing_ok=True)
            raise
    return copy


def _may_hold_nan(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))
