"""Values for writing a run: the layout of its files, and the written files.

Pure: plans may import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lakebed.model.key_summaries import Summary
from lakebed.model.schema import Field, Schema
from lakebed.model.settings import Compression, Settings

ONE_FILE_BYTES = 2**62
"""A size that no file reaches: all rows of a run go into one file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of the files of a run; the numbers are the table's settings of the same names.

    ``added`` are the last value fields of the schema, if the table does not have them yet. ``statistics_off`` are the
    value columns without minima and maxima; ``*`` stands for all.
    """

    schema: Schema
    file_bytes: int
    page_rows: int
    page_bytes: int
    row_group_rows: int
    bloom_fpp: float
    added: tuple[Field, ...] = ()
    statistics_off: frozenset[str] = frozenset()
    compression: Compression = Compression.ZSTD
    bloom_fields: int = 0

    @classmethod
    def of(cls, schema: Schema, settings: Settings) -> Layout:
        """Return the layout by the settings of a table."""
        return cls(
            schema,
            file_bytes=settings.file_bytes,
            page_rows=settings.page_rows,
            page_bytes=settings.page_bytes,
            row_group_rows=settings.row_group_rows,
            bloom_fpp=settings.bloom_fpp,
            statistics_off=settings.columns_without_statistics,
            compression=settings.compression,
            bloom_fields=settings.bloom_fields,
        )

    @property
    def filtered(self) -> tuple[Field, ...]:
        """The first fields of the row key whose values the filters are over."""
        return self.schema.row_key[: self.bloom_fields or None]


@dataclass(frozen=True, slots=True)
class SortedFile:
    """One local Parquet file of a run, whole and closed, not yet sent. The keys are those of its first and last row.

    ``markers`` is the number of rows that are deletes or partial rows.
    """

    path: Path
    rows: int
    min_key: bytes
    max_key: bytes
    summary: Summary
    schema_version: int
    bounds: bytes = b""
    added: tuple[Field, ...] = ()
    markers: int = 0
