"""Reads of a few thousand rows at the most: the pages of all files decoded at once, and put in order in memory.

What is narrow is decided by page indexes before any row is read. Beyond a few pages the engine, which decodes on
without looking back, is no slower: then its 2 ms of planning and thread hops come with 20 ms of work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Field
from lakebed.parquet.key_search import places_within
from lakebed.parquet.open_files import OpenFile, OpenFiles
from lakebed.parquet.page_decoder import Cut, decoded, row_keys, rows_at
from lakebed.parquet.pages import PagedFile
from lakebed.parquet.read_cache import ReadCache
from lakebed.read.request import ReadRequest

if TYPE_CHECKING:
    import pyarrow as pa

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


class PageReader:
    """Narrow reads of one table's files. Safe to use from many threads."""

    def __init__(self, files: OpenFiles, cache: ReadCache) -> None:
        self._files = files
        self._cache = cache

    def read(self, files: Sequence[OpenFile], request: ReadRequest) -> list[pa.RecordBatch] | None:
        """The rows asked for, in order, maybe with other columns too; None: not narrow, or not possible by pages.

        Raises OSError or ArrowException if a file is not what was written.
        """
        fields = request.fields(with_keys=len(files) > 1)
        if not all(opened.footer.gives_pages(fields) for opened in files):
            return None
        if request.limit is None:
            return self._merged(files, request, fields)
        near = self._near(files, request, request.limit) if len(files) >= NEAR_FILES else None
        if near is not None:
            found = self._merged(files, replace(request, keys=near, limit=None), fields)
            if found and found[0].num_rows >= request.limit:
                return [found[0].slice(0, request.limit)]
        found = self._merged(files, request, fields)
        return None if found is None else [rows.slice(0, request.limit) for rows in found]

    def read_slice(
        self, files: Sequence[OpenFile], request: ReadRequest, bytes_max: int
    ) -> list[pa.RecordBatch] | None:
        """As :meth:`read`, of files that give pages and so many decompressed bytes; None: there are more."""
        return self._merged(files, request, request.fields(with_keys=len(files) > 1), (bytes_max, bytes_max))

    def _merged(
        self,
        files: Sequence[OpenFile],
        request: ReadRequest,
        fields: Sequence[Field],
        at_most: tuple[int, int] | None = None,
    ) -> list[pa.RecordBatch] | None:
        """As :meth:`read`, but with as many rows of each file as the limit. ``at_most`` are rows and bytes."""
        shares = min(-(-len(files) // SHARE_FILES), SHARES_MAX)
        rows_left, bytes_left = at_most or (ROWS_MAX * shares, BYTES_MAX * shares)
        cuts: list[Cut] = []
        for cut in self._cuts(files, request):
            rows_left -= len(cut.rows)
            bytes_left -= cut.group.content_bytes * len(cut.rows) // max(1, cut.group.rows)
            if rows_left < 0 or bytes_left < 0:
                return None
            cuts.append(cut)
        rows = _rows(cuts, fields, request) if cuts else None
        if rows is None:
            return []
        if len(files) > 1:
            rows = rows.sort_by([(name, "ascending") for name in request.schema.sort_names])
        return [rows]

    def _near(self, files: Sequence[OpenFile], request: ReadRequest, limit: int) -> EncodedRange | None:
        """Of the keys asked for the first few, which probably have as many rows as the limit; None: not known.

        Of many files that overlap each has few of the first rows, and so many of the largest tell where these end.
        """
        largest = max(files, key=lambda opened: opened.file.rows)
        share = largest.file.rows / sum(opened.file.rows for opened in files)
        reached = int(NEAR_TIMES * limit * share) + NEAR_ROWS
        cuts = list(self._cuts([largest], replace(request, limit=reached))) if reached <= AT_ONCE_ROWS_MAX else []
        if not cuts or sum(len(cut.rows) for cut in cuts) > 2 * AT_ONCE_ROWS_MAX:
            return None
        codec = request.schema.codec
        keys = row_keys(decoded(cuts, request.schema.row_key), request.schema)
        position = codec.lower_rank(keys, request.keys.min, 0, keys.num_rows) + reached
        if position >= keys.num_rows:
            return None
        near = request.keys.intersect(EncodedRange(max=codec.encode_row(keys, position)))
        return None if near.empty else near

    def _cuts(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[Cut]:
        """Where rows of these keys may be; of each file, with a limit, no further than it reaches."""
        for opened in files:
            file = PagedFile(opened, request.schema, self._cache, request.statistics, self._files)
            left = request.limit
            reaching = opened.footer.fences.reaching(request.keys)
            for position in reaching:
                group = opened.footer.groups[position]
                request.statistics.files.add(opened.file.id)
                span = file.locate(position, group, request.keys, left)
                if not span.rows:
                    continue
                yield Cut(file, position, group, span.rows)
                if left is not None:
                    left -= span.above
                    if left <= 0:
                        break


def _rows(cuts: Sequence[Cut], fields: Sequence[Field], request: ReadRequest) -> pa.RecordBatch | None:
    """The rows asked for, those of each file in order; None if there are none.

    Key columns are read first, and the others where there are rows to return. In short spans there surely are some, so
    the others are read along with the keys.
    """
    request.statistics.row_groups += len(cuts)
    keys = request.schema.row_key
    short = all(len(cut.rows) <= AT_ONCE_ROWS_MAX for cut in cuts)
    held = decoded(cuts, keys, fields if short else ())
    starts = list(accumulate((len(cut.rows) for cut in cuts), initial=0))
    found = places_within(row_keys(held, request.schema), request.schema.codec, request.keys, starts)
    if request.limit is not None:
        found = limited(found, cuts, request.limit)
    names = [field.name for field in fields]
    return rows_at(cuts, starts, found, held, fields, arrow=request.schema.arrow_of(names))


def limited(found: Sequence[range], cuts: Sequence[Cut], limit: int) -> list[range]:
    """At most ``limit`` rows of each file."""
    limited = []
    for _, run in groupby(zip(cuts, found, strict=True), lambda pair: pair[0].file):
        left = limit
        for _, positions in run:
            limited.append(positions[:left])
            left -= len(limited[-1])
    return limited
