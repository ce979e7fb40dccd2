"""Reads of a few thousand rows at the most: the pages of all files decoded at once, and put in order in memory.

What is narrow is decided by page indexes before any row is read. Beyond a few pages the engine, which decodes on
without looking back, is no slower: then its 2 ms of planning and thread hops come with 20 ms of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.arrays import of_binary
from lakebed.model.files import DataFile
from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Field, Schema
from lakebed.parquet.bloom_filters import Membership, Overlap, filters_of
from lakebed.parquet.footer import RowGroup, Value
from lakebed.parquet.key_search import equal_range, places_within
from lakebed.parquet.open_files import ByteRange, OpenFile, OpenFiles
from lakebed.parquet.page_decoder import Cut, decoded, row_keys
from lakebed.parquet.pages import PagedFile, gathered, taken
from lakebed.parquet.read_cache import CacheKind, ReadCache
from lakebed.parquet.read_statistics import ReadStatistics

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate

ROWS_MAX = 32_768
BYTES_MAX = 8 * 1024 * 1024
"""Of pages that are decompressed."""

AT_ONCE_ROWS_MAX = 8_192
"""A few pages: of more, those without a row that is asked for are better not decoded."""

SHARE_FILES = 8
"""So many files share the rows above. Each is decoded up to a page too far at both ends, 2,000 rows; and for each the
engine takes a millisecond or two to plan, several times of what a page takes."""

SHARES_MAX = 16  # 128 MiB

NEAR_FILES = 8
"""So many files that overlap are asked with a limit only for keys near the first. Of fewer each is asked for all."""

NEAR_TIMES = 2
NEAR_ROWS = 8
"""So many times its share of the limit, and so many rows more, one file has before the others' rows are enough too."""


@dataclass(frozen=True, slots=True)
class Point:
    """One whole row key, ready to be looked up in columns and filters: a value for each of its fields."""

    fields: tuple[Field, ...]
    values: tuple[Value, ...]
    member: Membership

    def scalars(self) -> list[pa.Scalar]:
        """The values as Arrow has them."""
        return [_scalar(field, value) for field, value in zip(self.fields, self.values, strict=True)]

    def may_be_in(self, file: PagedFile, group: RowGroup) -> bool:
        """Whether filters know the key in a row group of a file. Raises OSError if they cannot be read.

        Of a file on a store they are not asked here: the page comes in one round trip too.
        """
        if file.is_remote:
            return True
        with file:
            return self.member.may_be_in(file.look, group)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is read from a set of files, as rows of the schema: at most ``limit`` rows of these keys.

    ``point`` is there if they are a single one. With ``where``, rows of which that is not true neither come nor count.
    What is done is noted in ``read statistics``.
    """

    schema: Schema
    keys: EncodedRange
    point: Point | None
    names: tuple[str, ...]
    limit: int | None
    where: Predicate | None = None
    statistics: ReadStatistics = field(default_factory=ReadStatistics, compare=False)

    def before_where(self) -> Ask:
        """What has to be read for the predicate to be asked of each row."""
        assert self.where is not None
        return replace(self, names=(*self.names, *self.where.columns), limit=None, where=None)

    def fields(self, *, with_keys: bool) -> list[Field]:
        """The fields that are looked at, each once; before them those by which rows are sorted, if they are needed."""
        first = self.schema.sort_names if with_keys else ()
        names = dict.fromkeys((*first, *self.names, *(() if self.where is None else self.where.columns)))
        return [self.schema.by_name[name] for name in names]


class PageReader:
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
        with ask.statistics.step("filters"):
            name = (self._files.scope, *[file.id for file in files])
            overlap: Overlap | None = self._cache.get(CacheKind.FILTERS, name)
            if overlap is None:
                opened = self._files.open_all(files, ask.schema)
                footers = [(each.name, each.footer) for each in opened]
                overlap = Overlap.of(footers, ask.schema.row_key)
                self._cache.keep(CacheKind.FILTERS, name, overlap, overlap.size_bytes)
            if not self._cache.has_room_for(overlap.filter_bytes):
                # Each is asked in place.
                return files
            holding = ask.point.member.among(
                overlap, lambda at, position: self._filter(files[at], position, ask), self._cache, self._files.at_once
            )
        ask.statistics.files_by_filter += len(files) - len(holding)
        return [files[position] for position in holding]

    def _filter(self, file: DataFile, byte_range: ByteRange, ask: Ask) -> bytes:
        return self._files.read(self._files.open(file, ask.schema), byte_range)

    def read(self, files: Sequence[OpenFile], ask: Ask) -> list[pa.RecordBatch] | None:
        """The rows asked for, in order, maybe with other columns too; None: not narrow, or not possible by pages.

        Raises OSError or ArrowException if a file is not what was written.
        """
        fields = ask.fields(with_keys=len(files) > 1)
        if not all(opened.footer.gives_pages(fields) for opened in files):
            return None
        if ask.limit is None:
            return self._merged(files, ask, fields)
        near = self._near(files, ask, ask.limit) if len(files) >= NEAR_FILES and ask.point is None else None
        if near is not None:
            found = self._merged(files, replace(ask, keys=near, limit=None), fields)
            if found and found[0].num_rows >= ask.limit:
                return [found[0].slice(0, ask.limit)]
        found = self._merged(files, ask, fields)
        return None if found is None else [rows.slice(0, ask.limit) for rows in found]

    def read_slice(self, files: Sequence[OpenFile], ask: Ask, bytes_max: int) -> list[pa.RecordBatch] | None:
        """As :meth:`read`, of files that give pages and so many decompressed bytes; None: there are more."""
        return self._merged(files, ask, ask.fields(with_keys=len(files) > 1), (bytes_max, bytes_max))

    def _merged(
        self, files: Sequence[OpenFile], ask: Ask, fields: Sequence[Field], at_most: tuple[int, int] | None = None
    ) -> list[pa.RecordBatch] | None:
        """As :meth:`read`, but with as many rows of each file as the limit. ``at_most`` are rows and bytes."""
        shares = min(-(-len(files) // SHARE_FILES), SHARES_MAX)
        rows_left, bytes_left = at_most or (ROWS_MAX * shares, BYTES_MAX * shares)
        cuts: list[Cut] = []
        for cut in self._cuts(files, ask):
            rows_left -= len(cut.rows)
            bytes_left -= cut.group.content_bytes * len(cut.rows) // max(1, cut.group.rows)
            if rows_left < 0 or bytes_left < 0:
                return None
            cuts.append(cut)
        rows = _rows(cuts, fields, ask) if cuts else None
        if rows is None:
            return []
        # Of files one after another; rows of one key are in order but for their sort key.
        unsorted = ask.schema.sort_names[0 if ask.point is None else len(ask.schema.row_key) :]
        if len(files) > 1 and unsorted:
            rows = rows.sort_by([(name, "ascending") for name in unsorted])
        return [rows]

    def _near(self, files: Sequence[OpenFile], ask: Ask, limit: int) -> EncodedRange | None:
        """Of the keys asked for the first few, which probably have as many rows as the limit; None: not known.

        Of many files that overlap each has few of the first rows, and so many of the largest tell where these end.
        """
        largest = max(files, key=lambda opened: opened.file.rows)
        share = largest.file.rows / sum(opened.file.rows for opened in files)
        reached = int(NEAR_TIMES * limit * share) + NEAR_ROWS
        cuts = list(self._cuts([largest], replace(ask, limit=reached))) if reached <= AT_ONCE_ROWS_MAX else []
        if not cuts or sum(len(cut.rows) for cut in cuts) > 2 * AT_ONCE_ROWS_MAX:
            return None
        codec = ask.schema.codec
        keys = row_keys(decoded(cuts, ask.schema.row_key), ask.schema)
        position = codec.lower_rank(keys, ask.keys.min, 0, keys.num_rows) + reached
        if position >= keys.num_rows:
            return None
        near = ask.keys.intersect(EncodedRange(max=codec.encode_row(keys, position)))
        return None if near.empty else near

    def _cuts(self, files: Sequence[OpenFile], ask: Ask) -> Iterator[Cut]:
        """Where rows of these keys may be; of each file, with a limit, no further than it reaches."""
        for opened in files:
            file = PagedFile(opened, ask.schema, self._cache, ask.statistics, self._files)
            left = ask.limit
            reaching = opened.footer.fences.reaching(ask.keys)
            for position in reaching:
                group = opened.footer.groups[position]
                if ask.point is not None and not ask.point.may_be_in(file, group):
                    continue
                ask.statistics.files.add(opened.file.id)
                span = file.locate(position, group, ask.keys, left)
                if not span.rows:
                    continue
                yield Cut(file, position, group, span.rows)
                if left is not None:
                    left -= span.above
                    if left <= 0:
                        break
            if reaching and opened.file.id not in ask.statistics.files:
                ask.statistics.files_by_filter += 1


def _rows(cuts: Sequence[Cut], fields: Sequence[Field], ask: Ask) -> pa.RecordBatch | None:
    """The rows asked for, those of each file in order; None if there are none.

    Key columns are read first, and the others where there are rows to return. Where there surely are some (short spans
    of a range, or one key that filters know), the others are read along with the keys.
    """
    ask.statistics.row_groups += len(cuts)
    keys = ask.schema.row_key
    short = all(len(cut.rows) <= AT_ONCE_ROWS_MAX for cut in cuts)
    known = ask.point is None or all(filters_of(cut.group, [key.id for key in keys]) for cut in cuts)
    held = decoded(cuts, keys, [field for field in fields if field not in keys] if short and known else ())
    starts = list(accumulate((len(cut.rows) for cut in cuts), initial=0))
    if ask.point is not None:
        found = _point_places([held[key.name] for key in keys], starts, ask.point)
    else:
        found = places_within(row_keys(held, ask.schema), ask.schema.codec, ask.keys, starts)
    if ask.limit is not None:
        found = _limited(found, cuts, ask.limit)
    some = [index for index, positions in enumerate(found) if positions]
    if not some:
        return None
    positions = gathered([found[index] for index in some])
    given = {field.name: taken(held[field.name], positions) for field in fields if field.name in held}
    rest = [field for field in fields if field.name not in held]
    if rest:
        given |= decoded([_narrowed(cuts[index], starts[index], found[index]) for index in some], rest)
    schema = ask.schema.arrow_of(field.name for field in fields)
    return pa.RecordBatch.from_arrays([given[field.name] for field in fields], schema=schema)


def _narrowed(cut: Cut, start: int, positions: range) -> Cut:
    """The part of a cut whose rows are at these places among those of all cuts; its own begin at ``start``."""
    begin = cut.first + positions.start - start
    return replace(cut, rows=range(begin, begin + len(positions)))


def _point_places(columns: Sequence[pa.Array], starts: Sequence[int], point: Point) -> list[range]:
    """Where in the key columns of some cuts the rows with one key are. ``starts`` has where each cut begins, and ends.

    Rows of a cut ascend by the first field, those that are equal in it by the second, and so on.
    """
    found = []
    for low, high in pairwise(starts):
        for column, value in zip(columns, point.values, strict=True):
            low, high = equal_range(column, value, low, high)  # noqa: PLW2901 - narrowed field by field
        found.append(range(low, high))
    return found


def _scalar(field: Field, value: Value) -> pa.Scalar:
    if isinstance(value, int):
        content = value.to_bytes(field.width, "little", signed=True)
        return pa.Array.from_buffers(field.type, 1, [None, pa.py_buffer(content)])[0]
    return of_binary([value.encode("utf-8") if isinstance(value, str) else value], field.type)[0]


def _limited(found: Sequence[range], cuts: Sequence[Cut], limit: int) -> list[range]:
    """Of each file the first so many rows."""
    limited = []
    for _, run in groupby(zip(cuts, found, strict=True), lambda pair: pair[0].file):
        left = limit
        for _, positions in run:
            limited.append(positions[:left])
            left -= len(limited[-1])
    return limited
