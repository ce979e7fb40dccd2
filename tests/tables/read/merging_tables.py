"""Small tables with a merge mode, and the plain meaning of their rows: a list of what arrived, merged in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

import lakebed
from lakebed import Schema, clock
from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.open_files import FetchLimits
from lakebed.files.parquet.read_cache import READ_CACHE_BYTES, ReadCache
from lakebed.log.outcomes import version_of
from lakebed.model.merge_modes import Aggregate, Custom, First, KeepAll, Latest, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, presence_name, with_hidden
from lakebed.model.state.transactions import ProposeFiles, ProposeSplit
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import ReadLimits
from lakebed.storage import Locality
from lakebed.table.table import Table
from lakebed.write.run import commit_files, send_run

MODES: dict[str, MergeMode] = {
    "latest": Latest(),
    "latest by sort key": Latest(by="sort_key"),
    "first": First(),
    "aggregate": Aggregate({"a": "sum", "b": "last"}),
    # Rows whose sum is 0 are gone, so what is left depends on a column that a read may not ask for.
    "sums": Custom(sql="SELECT k, s, sum(a) AS a, 'x' AS b FROM rows GROUP BY k, s HAVING sum(a) <> 0"),
    # What is left of a sort key depends on the other sort keys of the row key.
    "newest": Custom(
        sql="""
        SELECT k, s, last_value(a ORDER BY __lakebed_arrival) AS a, last_value(b ORDER BY __lakebed_arrival) AS b
        FROM rows GROUP BY k, s QUALIFY row_number() OVER (PARTITION BY k ORDER BY s DESC) <= 2
        """
    ),
}

SCHEMA = Schema({"k": "string"}, {"s": "int64"}, {"a": "int32", "b": "string"})
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {"a": lambda one, other: one + other, "b": lambda _, other: other}


@dataclass(frozen=True)
class Change:
    """A row that arrives: whole, partial (``values`` has the fields that it sets) or a delete."""

    key: str
    sort: int
    values: dict[str, Any]
    kind: RowKind = RowKind.WHOLE

    def row(self, schema: Schema) -> dict[str, Any]:
        """The row as files hold it."""
        found = {"k": self.key, "s": self.sort, **self.values}
        if self.kind is RowKind.PARTIAL:
            found |= {presence_name(field): field.name in self.values for field in schema.values}
        return found if self.kind is RowKind.WHOLE else found | {KIND: int(self.kind)}


class MergingTable:
    """A table, and the changes that arrived in it."""

    def __init__(self, mode: MergeMode, url: str | None = None, *, page_rows: int = 1) -> None:
        lake = lakebed.create(f"memory://{clock.random_token()}" if url is None else url)
        self.mode = mode
        self.table: Table = lake.create_table("t", SCHEMA, merge=mode)
        self.changes: list[Change] = []
        self._page_rows = page_rows

    def arrive(self, changes: Sequence[Change]) -> None:
        """Commit the changes as one file; at most one of them has a given key."""
        schema = self.table.schema
        if any(change.kind is not RowKind.WHOLE for change in changes):
            schema = with_hidden(schema)
        rows = pa.Table.from_pylist([change.row(self.table.schema) for change in changes], schema.arrow)
        if isinstance(self.mode, Custom):
            # The rows of a file are those that the function has given.
            ordered = rows.sort_by([("k", "ascending"), ("s", "ascending")]).combine_chunks().to_batches()
            rows = pa.Table.from_batches(RowMerger(self.mode, schema, complete=True).merge(ordered), schema.arrow)
        if rows.num_rows:
            commit_run(self.table, rows, schema, page_rows=self._page_rows)
        self.changes += changes

    def split(self, key: str) -> None:
        """Split the partition of a key there."""
        partitions, encoded = self.table.state().partitions, self.table.schema.codec.encode_key((key,))
        if encoded not in partitions.boundaries:
            self.table.commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))

    def rows(self) -> list[dict[str, Any]]:
        """The merged rows, in key order."""
        names = [field.name for field in self.table.schema.values]
        found = merged(self.changes, self.mode)
        return [{"k": c.key, "s": c.sort, **{name: c.values.get(name) for name in names}} for c in found]


def commit_run(table: Table, rows: pa.Table, schema: Schema, *, page_rows: int, row_group_rows: int = 4) -> None:
    """Add the rows as files of one run, with pages as small as the test wants."""
    layout = replace(table.layout(), schema=schema, page_rows=page_rows, row_group_rows=row_group_rows)
    ordered = rows.combine_chunks().sort_by([(name, "ascending") for name in schema.sort_names])
    with tempfile.TemporaryDirectory() as scratch:
        run = write_run(ordered.to_batches(), layout, Path(scratch), rows_estimate=rows.num_rows)
        files = send_run(table.storage, table.id, run, job=clock.new_id())
    version_of(commit_files(table, ProposeFiles(files, None, table.version)), "the table of the test")


def merged(changes: Iterable[Change], mode: MergeMode) -> list[Change]:
    """The merged rows of changes in the order of arrival, in key order."""

    def row_key(change: Change) -> Any:
        return change.key

    def sort_key(change: Change) -> Any:
        return change.key, change.sort

    if isinstance(mode, Custom):
        return _custom(sorted(changes, key=sort_key), mode)
    by_arrival = mode in (Latest(), First())
    in_order = sorted(changes, key=row_key if by_arrival else sort_key)
    groups = groupby(in_order, sort_key if isinstance(mode, Aggregate) else row_key)
    found = (_merged(list(group), mode) for _, group in groups)
    return [change for change in found if change.kind is not RowKind.DELETE]


def _custom(changes: list[Change], mode: Custom) -> list[Change]:
    """The rows of the queries of MODES."""
    found = []
    for _, rows_of_key in groupby(changes, lambda change: change.key):
        groups = [list(group) for _, group in groupby(rows_of_key, lambda change: change.sort)]
        if mode == MODES["newest"]:
            found += [group[-1] for group in groups[-2:]]
            continue
        for group in groups:
            total = sum(change.values["a"] or 0 for change in group)
            if total:
                found.append(Change(group[0].key, group[0].sort, {"a": total, "b": "x"}))
    return found


def _merged(changes: list[Change], mode: MergeMode) -> Change:
    match mode:
        case First():
            return changes[0]
        case Latest():
            return reduce(_followed, changes)
        case Aggregate():
            return reduce(_aggregated, changes)
        case KeepAll() | Custom():
            raise AssertionError("rows are not merged")


def _followed(one: Change, other: Change) -> Change:
    if other.kind is not RowKind.PARTIAL:
        return other
    before = {} if one.kind is RowKind.DELETE else one.values
    kind = RowKind.PARTIAL if one.kind is RowKind.PARTIAL else RowKind.WHOLE
    return Change(other.key, other.sort, {**before, **other.values}, kind)


def _aggregated(one: Change, other: Change) -> Change:
    values = dict(one.values)
    for name, value in other.values.items():
        known = values.get(name)
        if value is not None:
            values[name] = value if known is None else FUNCTIONS[name](known, value)
    return Change(one.key, one.sort, values)


WAYS = ("pages", "engine", "levels", "slices")


CONTESTED = {"contested_rows_min": 0, "rows_a_contested_key": 0}
"""Limits with which an engine joins the large files of every part without the keys of the small ones."""

SMALL_SLICES = ReadLimits(
    **CONTESTED,
    page_rows=-1,
    narrowed_rows=0,
    narrowed_bytes=0,
    last_slice_bytes=100,
    slice_bytes=200,
    slice_file_bytes=1,
    scan_first_rows=1,
)
LIMITS = {
    "pages": ReadLimits(**CONTESTED, last_slice_bytes=100, narrowed_rows=0, narrowed_bytes=0),
    "levels": structs.replace(SMALL_SLICES, fan_in=1),
}


@contextmanager
def reading_by(table: Table, way: str, **limits: float) -> Iterator[None]:
    """Read by pages, by the engine, by the engine's merge in levels, or slice by slice from a store."""
    own, before = table.reader, table.reader.limits
    if way == "slices":
        remote = copy(table.storage)
        remote.locality = Locality.REMOTE
        # Its own cache, because files that are open have a local path.
        table.versions.reader = Reader(remote, table.id, lambda _file: True, cache=ReadCache(READ_CACHE_BYTES))
        table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=0)
    table.reader.limits = structs.replace(LIMITS.get(way, SMALL_SLICES), **limits)
    try:
        yield
    finally:
        table.versions.reader = own
        own.limits = before
