"""Reads of a few thousand rows at the most: files asked one after another, and put in order in memory.

What is narrow is decided by page indexes before any row is read. Beyond a few pages the engine, which decodes on
without looking back, is no slower: then its 2 ms of planning and thread hops come with 20 ms of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.files import DataFile
from lakebed.keys import EncodedRange
from lakebed.query.cache import Kind, ReadCache
from lakebed.query.footer import RowGroup
from lakebed.query.membership import Membership, Overlap, filters_of
from lakebed.query.opening import OpenFile, OpenFiles
from lakebed.query.pages import OpenPages, Span
from lakebed.query.tally import Tally
from lakebed.schema import Field, Schema

if TYPE_CHECKING:
    from lakebed.kernels.predicate import Predicate

ROWS_MAX = 32_768
BYTES_MAX = 4 * 1024 * 1024

AT_ONCE_ROWS_MAX = 8_192
"""A few pages: of more, those without a row that is asked for are better not decoded."""

SHARE_FILES = 8
"""So many files share the rows above. Each is decoded up to a page too far at both ends, 4,000 rows; and for each the
engine takes a millisecond or two to plan, twice of what a page takes."""

SHARES_MAX = 16  # 64 MiB

_TRUE = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])[0]
"""Made of a byte: to convert a value of Python, Arrow would import pandas first."""


@dataclass(frozen=True, slots=True)
class Point:
    """One whole row key, ready to be compared with columns and looked up in filters."""

    values: tuple[pa.Scalar, ...]
    member: Membership


@dataclass(frozen=True, slots=True)
class Ask:
    """What is read from a set of files, as rows of the schema: at most ``limit`` rows of these keys.

    ``point`` is there if they are a single one. With ``where``, rows of which that is not true neither come nor count.
    What is done is noted in ``tally``.
    """

    schema: Schema
    keys: EncodedRange
    point: Point | None
    names: tuple[str, ...]
    limit: int | None
    where: Predicate | None = None
    tally: Tally = field(default_factory=Tally, compare=False)

    def before_where(self) -> Ask:
        """What has to be read for the predicate to be asked of each row."""
        assert self.where is not None
        return replace(self, names=(*self.names, *self.where.columns), limit=None, where=None)

    def fields(self, *, with_keys: bool) -> list[Field]:
        """The fields that are looked at, each once; before them those by which rows are sorted, if they are needed."""
        first = self.schema.sort_names if with_keys else ()
        names = dict.fromkeys((*first, *self.names, *(() if self.where is None else self.where.columns)))
        return [self.schema.by_name[name] for name in names]


class NarrowReader:
    """Narrow reads of one table's files. Safe to use from many threads."""

    def __init__(self, files: OpenFiles, cache: ReadCache) -> None:
        self._files = files
        self._cache = cache

    def holding(self, files: Sequence[DataFile], ask: Ask) -> Sequence[DataFile]:
        """Those of files that overlap which may have the one key asked for; of any other ask, all of them.

        Opens what it asks. Raises as :meth:`OpenFiles.open`.
        """
        if ask.point is None or len(files) < 2:
            return files
        with ask.tally.step("filters"):
            name = (self._files.scope, *[file.id for file in files])
            overlap: Overlap | None = self._cache.get(Kind.FILTERS, name)
            at_hand: set[int] = set()
            if overlap is None:
                opened = self._files.open_all(files, ask.schema)
                at_hand = {position for position, each in enumerate(opened) if each.path is not None}
                footers = [(each.name, each.footer) for each in opened]
                overlap = Overlap.of(footers, ask.schema.row_key)
                self._cache.keep(Kind.FILTERS, name, overlap, overlap.size_bytes)
            if not self._cache.has_room_for(overlap.filter_bytes):
                # Each is asked in place.
                return files
            holding = ask.point.member.among(
                overlap, lambda at, place: self._filter(files[at], place, ask), self._cache, at_hand
            )
        ask.tally.files_by_filter += len(files) - len(holding)
        return [files[position] for position in holding]

    def _filter(self, file: DataFile, place: tuple[int, int], ask: Ask) -> bytes:
        return self._files.read(self._files.open(file, ask.schema), place)

    def read(self, files: Sequence[OpenFile], ask: Ask) -> list[pa.Table] | None:
        """The rows asked for, in order, maybe with other columns too; None: not narrow, or not possible by pages.

        Raises OSError or ArrowException if a file is not what was written.
        """
        fields = ask.fields(with_keys=len(files) > 1)
        if any(opened.path is None or not opened.footer.gives_pages(fields) for opened in files):
            return None
        shares = min(-(-len(files) // SHARE_FILES), SHARES_MAX)
        rows_left, bytes_left = ROWS_MAX * shares, BYTES_MAX * shares
        parts: list[pa.Table] = []
        for opened in files:
            assert opened.path is not None
            with closing(OpenPages(opened.path, opened.name, ask.schema, self._cache, ask.tally)) as pages:
                found = []
                for position, group, span in _spans(pages, opened, ask):
                    rows_left -= span.end - span.begin
                    bytes_left -= group.size_bytes * (span.end - span.begin) // max(1, group.rows)
                    if rows_left < 0 or bytes_left < 0:
                        return None
                    found.append(_Part(ask.schema, pages, position, group, span))
                parts += _rows(found, fields, ask)
        if len(parts) < 2:
            return parts
        rows = pa.concat_tables(parts)
        if len(files) > 1:
            rows = rows.sort_by([(name, "ascending") for name in ask.schema.sort_names])
        return [rows if ask.limit is None else rows.slice(0, ask.limit)]


def _spans(pages: OpenPages, opened: OpenFile, ask: Ask) -> Iterator[tuple[int, RowGroup, Span]]:
    """Where rows of these keys may be in a file; with a limit, no further than it reaches."""
    left = ask.limit
    reaching = opened.footer.fences.reaching(ask.keys)
    for position in reaching:
        group = opened.footer.groups[position]
        if ask.point is not None and not ask.point.member.may_be_in(pages.descriptor, group):
            continue
        ask.tally.files.add(opened.file.id)
        span = pages.locate(position, group, ask.keys, left)
        if span.begin == span.end:
            continue
        yield position, group, span
        if left is not None:
            left -= span.above
            if left <= 0:
                return
    if reaching and opened.file.id not in ask.tally.files:
        ask.tally.files_by_filter += 1


def _rows(parts: Sequence[_Part], fields: Sequence[Field], ask: Ask) -> Iterator[pa.Table]:
    """The rows asked for of one file, a table for each row group that has any."""
    left = ask.limit
    for part in parts:
        ask.tally.row_groups += 1
        begin, end = part.find(ask, fields)
        if left is not None:
            end = min(end, begin + left)
            left -= end - begin
        if begin < end:
            yield part.rows(fields, begin, end)


class _Part:
    """A span of one row group: its key columns, read at once, and the others where there are rows to return.

    Where there surely are some (a short span of a range, or one key that the filter knows), the others are read with
    the keys, as far as their pages end where the span does: to decode a column more costs less than to begin anew.
    """

    def __init__(self, schema: Schema, pages: OpenPages, position: int, group: RowGroup, span: Span) -> None:
        self._schema = schema
        self._pages = pages
        self._position = position
        self._group = group
        self._span = span
        self._held: dict[str, pa.Array] = {}

    def find(self, ask: Ask, fields: Sequence[Field]) -> tuple[int, int]:
        """Which rows of the span have the keys asked for; ``fields`` are what is read of them afterwards."""
        rows = self._span.end - self._span.begin
        keys = self._schema.row_key
        at_once = keys
        if rows <= AT_ONCE_ROWS_MAX and (ask.point is None or filters_of(self._group, [key.id for key in keys])):
            ending = self._pages.ending_with(self._position, self._group, fields, self._span)
            at_once = (*keys, *(field for field in ending if field not in keys))
        self._held = self._read(at_once, 0, rows)
        columns = [self._held[key.name] for key in keys]
        if ask.point is not None:
            # Comparing all rows of a page at once is quicker than a binary search in Python.
            pairs = zip(columns, ask.point.values, strict=True)
            equal = reduce(pc.and_, (pc.equal(column, value) for column, value in pairs))
            begin = pc.index(equal, _TRUE).as_py()
            return (begin, begin + equal.true_count) if begin >= 0 else (0, 0)
        held = pa.RecordBatch.from_arrays(columns, names=[key.name for key in keys])
        bounds = [ask.keys.min] if ask.keys.max is None else [ask.keys.min, ask.keys.max]
        begin, end = (*self._schema.codec.lower_ranks(held, bounds), rows)[:2]
        return begin, end

    def rows(self, fields: Sequence[Field], begin: int, end: int) -> pa.Table:
        """Rows ``[begin, end)`` of the span."""
        held = {name: column.slice(begin, end - begin) for name, column in self._held.items()}
        held |= self._read([field for field in fields if field.name not in held], begin, end)
        return pa.table([held[field.name] for field in fields], names=[field.name for field in fields])

    def _read(self, fields: Sequence[Field], begin: int, end: int) -> dict[str, pa.Array]:
        first = self._span.begin
        return self._pages.read(self._position, self._group, fields, first + begin, first + end)
