"""The Parquet files of a bulk import, checked and sampled by the driver.

Before anything runs, every footer has been read: a file that is no Parquet file, or does not fit the schema, is named
while nothing has been written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakebed.ingest.sources import CHECK_THREADS, open_parquet, open_source, plain, read_rows
from lakebed.parquet.row_groups import read_row_groups
from lakebed.state.transactions import Source

if TYPE_CHECKING:
    from lakebed.ingest.conformer import Conformer
    from lakebed.model.schema import Schema
    from lakebed.spark.interrupt import Stop
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group. ``raw_bytes`` are uncompressed; ``bounds`` are the first key field's minimum and maximum."""

    file: int
    index: int
    rows: int
    raw_bytes: int
    key_bytes: int
    bounds: tuple[Any, Any] | None


# -- checking ---------------------------------------------------------------------------------------------------


def read_footers(files: Sequence[Source], conformer: Conformer, home: Storage, stop: Stop) -> tuple[SourceGroup, ...]:
    """The row groups of all files, in order.

    Raises DamagedError or SchemaMismatchError naming the file at fault; KeyboardInterrupt if the call was stopped.
    """

    def read(item: tuple[int, Source]) -> list[SourceGroup]:
        stop.check()
        return _read_footer(*item, conformer, home)

    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        found = pool.map(read, enumerate(files))
        return tuple(group for groups in found for group in groups)


def _read_footer(version: int, file: Source, conformer: Conformer, home: Storage) -> list[SourceGroup]:
    with open_parquet(file, home) as parquet:
        conformer.check(parquet.schema_arrow, file.url)
        metadata = parquet.metadata
        first = conformer.schema.row_key[0]
        groups = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
            keys = [columns[name] for name in conformer.keys.read if name in columns]
            groups.append(
                SourceGroup(
                    file=version,
                    index=index,
                    rows=group.num_rows,
                    raw_bytes=group.total_byte_size,
                    key_bytes=sum(column.total_compressed_size for column in keys),
                    bounds=None if first.expression else _bounds(columns.get(conformer.column(first.name))),
                )
            )
        return groups


def _bounds(column: Any) -> tuple[Any, Any] | None:
    try:
        statistics = None if column is None else column.statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
    except (pa.ArrowException, ValueError, OverflowError):
        # A value that Python's own types cannot hold, such as a date before the year 1.
        return None


# -- sampling ---------------------------------------------------------------------------------------------------

SAMPLE_BYTES = 48 * 1024 * 1024
"""Compressed key columns read for the sample: half a second of one core."""

SAMPLE_ROWS = 16_384
"""Keys taken of a row group: a share of an eighth is then known to about 3%."""


def chosen_groups(groups: Sequence[SourceGroup]) -> list[int]:
    """Positions of the row groups to sample: all, or as many as SAMPLE_BYTES allow, spread evenly."""
    total = sum(group.key_bytes for group in groups)
    if total <= SAMPLE_BYTES:
        return list(range(len(groups)))
    count = max(1, len(groups) * SAMPLE_BYTES // total)
    return [(2 * i + 1) * len(groups) // (2 * count) for i in range(count)]


def sample_keys(file: Source, group: SourceGroup, forms: tuple[Conformer, Schema], home: Storage) -> tuple[bytes, ...]:
    """Keys of a row group at even distances, encoded with the second form, whose row key is row key and sort key."""
    conformer, whole = forms
    step = max(1, group.rows // SAMPLE_ROWS)
    names = list(conformer.schema.sort_names)
    found: list[bytes] = []
    passed = 0
    with open_source(file, home) as (source, _):
        for stored in read_row_groups(source, file.url, [group.index], conformer.keys.read):
            wanted = np.arange((step // 2 - passed) % step, stored.num_rows, step)
            passed += stored.num_rows
            if len(wanted):
                # What does not fit is refused where the rows are read.
                rows, _ = conformer.keys.separate(plain(stored.take(pa.array(wanted))), file.url)
                found += whole.codec.encode_columns(rows.select(names)).to_pylist()
    return tuple(found)


# -- reading -----------------------------------------------------------------------------------------------------


def read_task(document: Any, pages_bytes: int, home: Storage) -> Iterator[tuple[pa.RecordBatch, str]]:
    """The rows of a map task's files and row groups, each batch with the file's URL."""
    for *found, groups in document:
        file = Source(*found)
        for batch in read_rows(file, groups, pages_bytes=pages_bytes, home=home):
            yield batch, file.url
