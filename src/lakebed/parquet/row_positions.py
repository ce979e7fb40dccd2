"""Rows of a file by their places: how many rows lie below a bound, and the rows that stand at given places.

A sorted file with a page index answers both without being read: which page may hold a key is known, of that the key
columns are decoded, and the bound is searched for among them. So a rank, which counts and samples rest on, costs one
page, and rows cost those that they lie in.

A column without a page index, or of nested values, is read for the whole row group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.model.arrays import of_integers
from lakebed.model.keys import EncodedRange
from lakebed.parquet.open_files import StoredFile
from lakebed.parquet.page_decoder import Cut, decoded, row_keys
from lakebed.parquet.pages import PagedFile, Spans
from lakebed.parquet.read_statistics import ReadStatistics

if TYPE_CHECKING:
    from lakebed.model.arrays import Integers
    from lakebed.model.schema import Field, Schema
    from lakebed.parquet.footer import RowGroup
    from lakebed.parquet.open_files import OpenFile, OpenFiles
    from lakebed.parquet.read_cache import ReadCache


@dataclass(frozen=True, slots=True)
class GroupRows:
    """One row group of an open file; ``files`` fetches parts of one that stays on its store."""

    opened: OpenFile
    position: int
    schema: Schema
    kept: ReadCache
    statistics: ReadStatistics = field(default_factory=ReadStatistics)
    files: OpenFiles | None = None

    @property
    def group(self) -> RowGroup:
        """What the footer says of it."""
        return self.opened.footer.groups[self.position]

    def rank(self, bound: bytes) -> int:
        """How many rows of the row group have a key below the bound."""
        codec, fields = self.schema.codec, self.schema.row_key
        if not self.opened.footer.paged:
            return codec.lower_rank(row_keys(self.whole(fields), self.schema), bound, 0, self.group.rows)
        known = self.file.key_pages(self.position, self.group)
        pages = known.fences.reaching(EncodedRange(bound, bound))
        firsts = [*known.first_rows, self.group.rows]
        if not pages:
            return firsts[pages.start]
        rows = range(firsts[pages.start], firsts[pages.stop])
        keys = row_keys(self._decoded(fields, rows), self.schema)
        return rows.start + codec.lower_rank(keys, bound, 0, len(rows))

    def take(self, fields: Sequence[Field], positions: Integers) -> dict[str, pa.Array]:
        """The rows at these ascending places, by field.

        Raises OSError or ArrowException if the file is not what was written.
        """
        footer = self.opened.footer
        paged = [field for field in fields if footer.gives_pages([field])]
        found = {}
        if paged:
            found = self._decoded(paged, Spans(positions, positions + 1))
        whole = [field for field in fields if field.name not in found]
        return found | {name: column.take(of_integers(positions)) for name, column in self.whole(whole).items()}

    @property
    def file(self) -> PagedFile:
        """The file, to be read by pages."""
        return PagedFile(self.opened, self.schema, self.kept, self.statistics, self.files)

    def _decoded(self, fields: Sequence[Field], rows: range | Spans) -> dict[str, pa.Array]:
        return decoded([Cut(self.file, self.position, self.group, rows)], fields)

    def whole(self, fields: Sequence[Field]) -> dict[str, pa.Array]:
        """All rows of the row group, by field; null where the file has no such column."""
        names = self.opened.footer.names
        stored = {field.name: names[field.id] for field in fields if field.id in names}
        found = {field.name: pa.nulls(self.group.rows, field.type) for field in fields if field.name not in stored}
        if stored:
            source: Any = self.opened.path
            if source is None:
                assert self.files is not None, "a file on a store is read by whoever opened it"
                source = pa.PythonFile(StoredFile(self.opened, self.files), mode="r")
            self.opened.verify(self.opened.footer.byte_ranges_of([field.id for field in fields], [self.group]))
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                rows = file.read_row_group(self.position, columns=list(stored.values()), use_threads=False)
            for field in fields:
                if field.name in stored:
                    column = rows.column(stored[field.name]).combine_chunks()
                    found[field.name] = column if column.type == field.type else column.cast(field.type)
        return found


def rank(opened: OpenFile, schema: Schema, kept: ReadCache, bound: bytes, files: OpenFiles | None = None) -> int:
    """How many rows of a file have a key below the bound: reads one page, as a rule.

    ``files`` fetches parts of a file on a store, which gives pages.
    """
    fences = opened.footer.fences
    groups = opened.footer.groups
    position = bisect_right(fences.ends, bound)
    passed = sum(group.rows for group in groups[:position])
    for reached in range(position, bisect_left(fences.starts, bound)):
        passed += GroupRows(opened, reached, schema, kept, files=files).rank(bound)
    return passed


def positions_by_group(opened: OpenFile, positions: Sequence[int]) -> Iterator[tuple[int, Integers]]:
    """The ascending places in a file as places in row groups: each row group that has any, and these."""
    passed = first = 0
    for position, group in enumerate(opened.footer.groups):
        last = bisect_left(positions, passed + group.rows, first)
        if first < last:
            yield position, np.array(positions[first:last], np.int64) - passed
        passed, first = passed + group.rows, last
