"""Reads of tables with a merge mode: the reads below a merge, and the merge of the rows.

A part of a partition is a group of files that overlap. If the table has a merge mode, their rows are merged
(:class:`~lakebed.files.merging.row_merger.RowMerger`), and so are those of a single file with markers. A file has at
most one row for each key that rows are merged by, so a single file without markers is read as it is.

Core type: :class:`MergeSchemas`, which derives the request for the rows below a merge. Pure.

Rules: files come in the order of arrival, and rows with equal keys in the order of their files. The caller's request
applies to merged rows:

* a predicate is evaluated below the merge only if it names no column but those that rows are merged by, because then it
  keeps all rows of a key or none. Any other might hide a row that supersedes one which it does not hide;
* a limit of n rows needs the first n keys. Each file has a key once, so these keys are complete in the first n rows of
  each of the files, and some more for keys that are deleted. A merge function (``Custom``) may drop any number of rows;
* a merge function is called with all columns, whichever of them the caller asks for.

Errors: as :class:`~lakebed.files.merging.row_merger.RowMerger`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from lakebed.model.merge_modes import MergeMode
from lakebed.model.row_kinds import KIND, RowKind, merge_schema, presence_name, without_hidden
from lakebed.read.rows.row_stream import Unfiltered, exactly

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.read.rows.request import ReadRequest


Item = TypeVar("Item")


class MergeSchemas:
    """The merge schemas of one table; cached, because a lookup takes less time than making one."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[int, MergeMode, bool], Schema] = {}

    def of(self, mode: MergeMode, schema: Schema, *, hidden: bool) -> Schema:
        """As :func:`lakebed.model.row_kinds.merge_schema`, for a schema of the table."""
        name = (schema.version, mode, hidden)
        found = self._schemas.get(name)
        if found is None:
            found = self._schemas[name] = merge_schema(mode, schema, hidden=hidden)
        return found

    def below(self, request: ReadRequest, files: Sequence[DataFile]) -> ReadRequest:
        """Return the request for the rows of these files below the merge."""
        hidden = any(file.markers for file in files)
        schema = self.of(request.merge, request.schema, hidden=hidden)
        where = request.where
        if where is not None and not set(where.columns) <= set(request.merge.merge_key(request.schema)):
            where = None
        limit = request.limit
        if limit is not None:
            # A predicate above the merge drops any number of rows.
            deleted = sum([file.markers for file in files])
            is_known = where is request.where and not request.merge.may_drop_rows
            limit = (limit + deleted) * len(files) if is_known else None
        names = _names(request, schema, hidden=hidden)
        return replace(request, schema=schema, merged_as=request.schema, names=names, limit=limit, where=where)


def _names(request: ReadRequest, schema: Schema, *, hidden: bool) -> tuple[str, ...]:
    """Return the columns below a merge: keys, requested ones, those of the predicate, hidden ones."""
    if request.merge.reads_whole_rows:
        return schema.names
    names = dict.fromkeys((*schema.sort_names, *request.names))
    if request.where is not None:
        names.update(dict.fromkeys(request.where.columns))
    if hidden:
        presences = (presence_name(field) for field in request.schema.values if field.name in names)
        names.update(dict.fromkeys((KIND, *presences)))
    return tuple(names)


def merged_rows(
    rows: Generator[pa.RecordBatch | Unfiltered], request: ReadRequest, below: ReadRequest
) -> Generator[pa.RecordBatch | Unfiltered]:
    """Return the merged rows of a part; ``rows`` are those of the request ``below``. With a limit, more rows may come.

    If the predicate has not been evaluated below, all batches are :class:`Unfiltered`, with the columns of the request
    and of the predicate.
    """
    # Closed in the reverse order: the thread must have ended.
    with closing(rows), closing(ahead(rows, request.limits.merged_alone)) as following:
        first = next(rows, None)
        if first is None:
            return
        # Either all batches of a part are unfiltered, or none is.
        unfiltered = isinstance(first, Unfiltered) or (request.where is not None and below.where is None)
        arrow = (request.before_where() if unfiltered else request).arrow()
        plain = (one.rows if isinstance(one, Unfiltered) else one for one in chain((first,), following))
        for batch in merge(plain, below):
            exact = exactly(batch, arrow)
            yield Unfiltered(exact) if unfiltered else exact


def ahead(rows: Iterator[Item], alone: int) -> Generator[Item]:
    """Return the same items. After the first ``alone``, another thread reads the next one while one is merged."""
    for _ in range(alone):
        one = next(rows, None)
        if one is None:
            return
        yield one
    with ThreadPoolExecutor(1, "lakebed-merge") as thread:
        under_way = thread.submit(next, rows, None)
        while (following := under_way.result()) is not None:
            under_way = thread.submit(next, rows, None)
            yield following


def merge(rows: Iterable[pa.RecordBatch], below: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Return the merged rows of a request below a merge, in key order; without hidden columns."""

    def counted() -> Iterator[pa.RecordBatch]:
        arrow = None
        for batch in rows:
            if arrow is None:
                # Rows that were merged in levels have no hidden columns any more.
                names = below.names if KIND in batch.schema.names else without_hidden(below.names)
                arrow = below.schema.arrow_of(names)
            below.statistics.rows_merged += batch.num_rows
            yield exactly(batch, arrow)

    # Importing Arrow's kernels takes as long as a whole lookup.
    from lakebed.files.merging.row_merger import RowMerger

    return RowMerger(below.merge, below.schema, complete=True).merge(counted())


def merge_one_key(rows: pa.RecordBatch, below: ReadRequest) -> list[pa.RecordBatch]:
    """As :func:`merge`, for some rows of a single row key; quick where the result is one of them."""
    if KIND not in rows.schema.names:
        if rows.num_rows == 1:
            return [rows]
        if below.merge.kept is not None:
            return [rows.slice(below.merge.kept % rows.num_rows, 1)]
    return list(merge((rows,), below))


def has_whole_row(rows: pa.RecordBatch) -> bool:
    """Return whether a row is whole, or a delete: no row that arrived before it can contribute to the merged row."""
    if KIND not in rows.schema.names:
        return bool(rows.num_rows)
    return any(kind != RowKind.PARTIAL for kind in rows.column(KIND).to_pylist())


def merge_table(rows: pa.Table, below: ReadRequest) -> pa.Table:
    """As :func:`merge`, for rows in memory."""
    merged = list(merge(rows.combine_chunks().to_batches(), below))
    return pa.Table.from_batches(merged, below.schema.arrow_of(without_hidden(below.names)))
