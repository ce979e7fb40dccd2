"""Plans the reads for the changes of one version, from its log entry and the states before and after it.

An entry may hold several transactions; they count together, as one step from the state before to the state after. Each
kind of transaction says where rows may differ:

* A removal takes away all rows in its ranges. The ranges are the change; no row is read. Everything else is compared
  with the rows after the removal, so a consumer removes the ranges first.
* Added files bring the rows that they hold in the state after. If all rows of a key are kept, these are the change.
  Otherwise the rows of their keys are compared, before and after.
* A restore may change any row in the regions that it replaces, and a rewrite any row of the partitions in which it
  replaces files. The rows there are compared.
* A change of the table's filter may show or hide any row, and all rows are compared.
* A cut of the age-off that rises hides the rows that the cut before did not; they are read by their times.
* All other transactions change no rows: compactions, splits and joins, tags, settings, requests; schemas, by which all
  versions are read alike; and the removal of files whose rows are all hidden by their age.

Core types. :class:`VersionChange`; :class:`Scope`, the keys that are wanted; :class:`Compared`, the two sides of a
comparison. Pure: no I/O.

*Rows of a change feed: three columns for the change, then columns of the table.*

Core types. :class:`ChangeKind`; :func:`change_schema`. A removed range is a row as well: ``_range`` has its bounds as
JSON, and all columns of the table are null. Rows of other kinds have a null there. Pure: no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
from msgspec import structs

from lakebed.errors import Code
from lakebed.model.arrays import of_binary
from lakebed.model.keys import ALL_KEYS, EncodedRange, iter_ranges, successor
from lakebed.model.row_filters import NO_FILTER, filter_sql
from lakebed.model.state.transactions import (
    AddFiles,
    AddIndex,
    AdvanceView,
    AlterSchema,
    AlterSettings,
    ChangeFilter,
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    DropExpired,
    DropIndex,
    DropTable,
    FailRequest,
    JoinPartitions,
    OpenJob,
    PurgeFiles,
    RaiseWatermark,
    RejectRequest,
    RemoveRange,
    RemoveTag,
    Replace,
    RequireFeatures,
    RestoreVersion,
    RetireFiles,
    SetMerge,
    SetTag,
    SplitPartitions,
    SubmitRequests,
    Watermark,
)
from lakebed.read.rows.key_ranges import shared
from lakebed.read.rows.plan import PartitionQuery, QueryPlan, coarser, plan

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.keys import KeyCodec
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Transaction
    from lakebed.read.rows.key_ranges import KeySet

VERSION, CHANGE, RANGE = "_version", "_change", "_range"

FEED_COLUMNS = (
    pa.field(VERSION, pa.int64(), nullable=False),
    pa.field(CHANGE, pa.string(), nullable=False),
    pa.field(RANGE, pa.string()),
)


class ChangeKind(IntEnum):
    """The kind of a change. Rows of one key in one version are in this order."""

    REMOVE_RANGE = 0
    DELETE = 1
    UPDATE_BEFORE = 2
    UPDATE_AFTER = 3
    INSERT = 4


_TEXTS = of_binary([kind.name.lower().encode() for kind in ChangeKind], pa.string())


def change_schema(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of a feed with these columns of a table. All of them are nullable, for removed ranges.

    Raises UsageError if one has the name of a column of the feed.
    """
    if taken := [name for name in names if name in (VERSION, CHANGE, RANGE)]:
        raise Code.COLUMN_DUPLICATE(
            f"the table has a column {taken[0]}, which is a column of every feed of changes; name the columns to read "
            "without it, or rename it",
            column=taken[0],
        )
    return pa.schema([*FEED_COLUMNS, *(field.with_nullable(nullable=True) for field in schema.arrow_of(names))])


def change_rows(rows: pa.RecordBatch, kinds: pa.Array | ChangeKind, version: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a table as rows of a feed; ``kinds`` are the numbers of their kinds, or one kind for all."""
    count = rows.num_rows
    texts = pa.repeat(_TEXTS[kinds], count) if isinstance(kinds, ChangeKind) else _TEXTS.take(kinds)
    columns = [pa.repeat(pa.scalar(version, pa.int64()), count), texts, pa.nulls(count, pa.string())]
    columns += [rows.column(name) for name in schema.names[len(FEED_COLUMNS) :]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def removed_ranges(ranges: Sequence[EncodedRange], version: int, feed: pa.Schema, schema: Schema) -> pa.RecordBatch:
    """Return a row for each removed range."""
    count = len(ranges)
    bounds = of_binary([range_json(keys, schema).encode() for keys in ranges], pa.string())
    columns = [
        pa.repeat(pa.scalar(version, pa.int64()), count),
        pa.repeat(_TEXTS[ChangeKind.REMOVE_RANGE], count),
        bounds,
    ]
    columns += [pa.nulls(count, field.type) for field in list(feed)[len(FEED_COLUMNS) :]]
    return pa.RecordBatch.from_arrays(columns, schema=feed)


def range_json(keys: EncodedRange, schema: Schema) -> str:
    """Return the JSON of :func:`range_document`."""
    return json.dumps(range_document(keys, schema), ensure_ascii=False)


def range_document(keys: EncodedRange, schema: Schema) -> dict[str, Any]:
    """Return a range for JSON: ``{"min": […], "max": […], "max_inclusive": false}``, as :class:`KeyRange` has it.

    A bound has values of the first row key fields, or is null for no bound. Dates and times are ISO 8601, binary values
    hex digits.
    """
    low, after_low = _bound_values(keys.min, schema) if keys.min else (None, False)
    high, after = (None, False) if keys.max is None else _bound_values(keys.max, schema)
    assert not after_low, "a range begins at a key, never after all keys with a prefix"
    return {"min": low, "max": high, "max_inclusive": after}


def _bound_values(bound: bytes, schema: Schema) -> tuple[list[Any], bool]:
    """Return the values of a bound, and whether it lies after the keys that begin with them."""
    found = schema.codec.decode_bound(bound)
    return [field.key_type.json(value) for field, value in zip(schema.row_key, found.values, strict=False)], found.after


@dataclass(frozen=True, slots=True)
class Scope:
    """The keys whose changes are read: disjoint ranges in key order, and the keys of a predicate.

    ``narrowed`` are the ranges in which the predicate can be true, ``keys`` as for a plan.
    """

    ranges: tuple[EncodedRange, ...] = (ALL_KEYS,)
    narrowed: tuple[EncodedRange, ...] | None = None
    keys: KeySet | None = None

    def within(self, keys: EncodedRange) -> Scope:
        """Return the part that lies in a range."""
        narrowed = None if self.narrowed is None else tuple(shared(self.narrowed, (keys,)))
        return replace(self, ranges=tuple(shared(self.ranges, (keys,))), narrowed=narrowed)


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The step from ``before`` to ``after``, the next version, both seen by one schema.

    All ranges are disjoint, in key order. ``removed`` are the ranges of removals. ``files`` are the ids of added files,
    which lie in ``added``. Rows in ``compared`` have to be compared; if it was ``refiltered``, also where the files are
    the same. If it ``aged``, rows went by their age.
    """

    before: TableState
    after: TableState
    removed: tuple[EncodedRange, ...] = ()
    files: frozenset[str] = frozenset()
    added: tuple[EncodedRange, ...] = ()
    compared: tuple[EncodedRange, ...] = ()
    refiltered: bool = False
    aged: bool = False

    @property
    def version(self) -> int:
        """The version that made the change."""
        return self.after.version

    @property
    def merges(self) -> bool:
        """Whether rows with equal keys are merged, so that a row may be updated."""
        return not self.after.merge.keeps_all

    @property
    def key(self) -> KeyCodec:
        """The fields by which rows are compared: those of the merge, or all that rows are sorted by."""
        schema = self.after.created
        is_alone = self.after.merge.one_row_per_key or not schema.sort_key
        return schema.codec if self.merges and is_alone else schema.order

    def added_rows(self, scope: Scope) -> QueryPlan:
        """Return what to read of the added files: their rows, or if rows are merged, those that go into a merge."""
        within = list(shared(self.added, scope.ranges))
        narrower = within if scope.narrowed is None else list(shared(within, scope.narrowed))
        found = coarser(plan(self.after, narrower, scope.keys), within)
        left = tuple(one for query in found.partitions for one in self._of_added(query))
        # Keys are wanted of rows that a merge, or a filter, does not show.
        return QueryPlan(left, self.after.created) if self.merges else structs.replace(found, partitions=left)

    def _of_added(self, query: PartitionQuery) -> Iterator[PartitionQuery]:
        """Return what the query reads of the added files."""
        files = [file for file in query.files if file.id in self.files]
        ranges = tuple(keys for keys in query.ranges if any(file.reaches(keys) for file in files))
        reaching = tuple(file for file in files if any(file.reaches(keys) for keys in ranges))
        if ranges:
            yield PartitionQuery(query.partition, ranges, reaching)

    @property
    def aged_where(self) -> str:
        """The predicate of the rows that are too old after it, in SQL."""
        after = self.after
        young = filter_sql(
            structs.replace(after.row_filter, predicate="", columns=()), after.created, after.age_off_cut_us
        )
        return f"NOT ({young})"

    def held_before(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return those of the ascending keys that a removal did not take the rows of."""
        if not self.removed:
            return list(keys)
        left = [one for one, removed in cut_at(self.removed) if not removed]
        return [one.min for one in shared([EncodedRange(key, successor(key)) for key in keys], left)]

    def rows_of(self, keys: Sequence[bytes]) -> Compared:
        """Return what to read of both states to find the rows of ascending keys, among others."""
        ranges, left = ([EncodedRange(key, successor(key)) for key in some] for some in (keys, self.held_before(keys)))
        return Compared(coarser(plan(self.before, left)), coarser(plan(self.after, ranges)))

    def replaces_rows(self, files: Iterable[DataFile]) -> bool:
        """Return whether the rows of all added files, merged with each other, are those of their keys after it: no
        older row counts, and none is hidden.
        """
        mode = self.after.merge
        newest = mode.kept is not None and mode.kept != 0 and not mode.by_sort_key
        whole = self.key is self.after.created.codec and not any(file.markers for file in files)
        return newest and whole and not self.after.visibility.sql

    def is_dense(self, files: Iterable[DataFile], rows_a_key: int) -> bool:
        """Return whether reading all rows of these partitions costs less than looking up the keys of the files.

        It does if they have at most ``rows_a_key`` rows for each of these keys.
        """
        rows = sum(held.rows for state in (self.before, self.after) for held in self._held(state))
        return rows <= rows_a_key * sum(file.rows for file in files)

    def _held(self, state: TableState) -> Iterator[PartitionFile]:
        """Return the references of the partitions into which files were added."""
        positions = {position for keys in self.added for position in state.partitions.overlapping(keys)}
        return (held for position in positions for held in state.held_by(state.partitions.ids[position]))

    def compared_rows(self, ranges: Sequence[EncodedRange], scope: Scope) -> Compared:
        """Return what to read of both states to compare the rows in some ranges.

        Left out are files that both have there, if all rows are kept; otherwise places where all files are the same.
        With another filter nothing is left out.
        """
        before: list[PartitionQuery] = []
        after: list[PartitionQuery] = []
        for keys in shared(ranges, scope.ranges):
            for piece in self._pieces(keys):
                past = (
                    []
                    if any(removed.covers(piece) for removed in self.removed)
                    else _files_reaching(self.before, piece)
                )
                present = _files_reaching(self.after, piece)
                same = {file.id for file in past} & {file.id for file in present}
                if self.refiltered or (self.merges and past != present):
                    same = set()
                before += _query(self.before, piece, [file for file in past if file.id not in same])
                after += _query(self.after, piece, [file for file in present if file.id not in same])
        return Compared(
            structs.replace(plan(self.before, ()), partitions=tuple(before)),
            structs.replace(plan(self.after, ()), partitions=tuple(after)),
        )

    def _pieces(self, keys: EncodedRange) -> Iterator[EncodedRange]:
        """Return a range, cut at the partition boundaries of both states and at the ends of removed ranges."""
        cuts = {*self.before.partitions.inside(keys), *self.after.partitions.inside(keys)}
        ends = {end for one in self.removed for end in (one.min, one.max) if end is not None}
        cuts |= {end for end in ends if keys.contains(end) and end != keys.min}
        lows = [keys.min, *sorted(cuts)]
        return (EncodedRange(low, high) for low, high in zip(lows, [*lows[1:], keys.max], strict=True))


@dataclass(frozen=True, slots=True)
class Compared:
    """The two sides of a comparison. Rows that both sides would have are in neither."""

    before: QueryPlan
    after: QueryPlan


def may_change_rows(transaction: Transaction) -> bool:
    """Return whether a transaction may change rows. If not, the states before and after it have the same."""
    match transaction:
        case AddFiles() | RemoveRange() | RestoreVersion() | ChangeFilter():
            return True
        case RaiseWatermark():
            return transaction.mark is Watermark.AGE_OFF_CUT
        case Replace():
            return transaction.changes_rows
        case (
            CreateTable() | OpenJob() | CloseJob() | ConcatenateRuns() | SplitPartitions()
            | JoinPartitions() | AlterSettings() | AlterSchema() | RetireFiles() | PurgeFiles() | SetMerge()
            | DropExpired() | AdvanceView() | SetTag() | RemoveTag() | SubmitRequests() | FailRequest()
            | RejectRequest() | AddIndex() | DropIndex() | RequireFeatures() | DropTable()
        ):  # fmt: skip
            return False
        case _:
            assert_never(transaction)


def version_change(
    before: TableState, steps: Sequence[tuple[Transaction, TableState]], present: TableState
) -> VersionChange:
    """Return the changes of one entry's transactions, each given with the state after it.

    Rows are seen by the schema of ``present``, a later state of the table. Raises UsageError if they cannot be.
    """
    removed: list[EncodedRange] = []
    files: set[str] = set()
    added: list[EncodedRange] = []
    compared: list[EncodedRange] = []
    refiltered = aged = False
    last_next_id = before.partitions.next_id
    for transaction, state in steps:
        match transaction:
            case AddFiles():
                files.update(file.id for file in transaction.files)
                added += _ranges(state, {reference.partition for reference in transaction.references})
            case RemoveRange():
                removed += transaction.ranges
            case RestoreVersion():
                compared += _ranges(state, range(last_next_id, state.partitions.next_id))
            case Replace(changes_rows=True):
                compared += _ranges(state, {partition for _, partition in transaction.drop})
            case ChangeFilter():
                refiltered = True
            case RaiseWatermark(mark=Watermark.AGE_OFF_CUT):
                aged = True
            case _:
                assert not may_change_rows(transaction), "what may change rows says where"
        last_next_id = state.partitions.next_id
    # Rare enough to compare all rows.
    refiltered = refiltered or (aged and bool(files or removed or compared))
    return VersionChange(
        _seen_by(present, before),
        _seen_by(present, steps[-1][1]),
        tuple(iter_ranges(removed)),
        frozenset(files),
        tuple(iter_ranges(added)),
        (ALL_KEYS,) if refiltered else tuple(iter_ranges(compared)),
        refiltered,
        aged and not refiltered,
    )


def _seen_by(present: TableState, state: TableState) -> TableState:
    """Return the state with the schema of a later one, and its own merge mode in the names of that schema.

    Its filter is a text with names, which have to be those of the schema.
    """
    if state.merge_version == present.merge_version:
        merge = present.merge
    else:
        merge = state.merge.with_fields(state.created, present.created, {}) if state.schemas else state.merge
    if state.row_filter not in (NO_FILTER, present.row_filter):
        _check_filter_fields(present, state)
    return structs.replace(state, schemas=present.schemas, merge=merge)


def _check_filter_fields(present: TableState, state: TableState) -> None:
    now = {field.id: field.name for field in present.created.fields}
    for field in state.created.fields:
        used = field.id in state.row_filter.columns and now.get(field.id) != field.name
        if used or (field.id == state.row_filter.age_field and field.id not in now):
            raise Code.TABLE_CHANGED(
                f"version {state.version} has a filter over the field {field.name}, which has been renamed or dropped "
                f"by version {present.version}; read the changes up to an earlier version first (until)",
                column=field.name,
                version=state.version,
            )


def cut_at(ranges: Iterable[EncodedRange]) -> Iterator[tuple[EncodedRange, bool]]:
    """Return all keys in order, as these ascending disjoint ranges and those between; whether each is one of them."""
    begin: bytes | None = b""
    for keys in ranges:
        assert begin is not None, "no range follows one without an end"
        if begin < keys.min:
            yield EncodedRange(begin, keys.min), False
        yield keys, True
        begin = keys.max
    if begin is not None:
        yield EncodedRange(begin), False


def _ranges(state: TableState, partitions: Iterable[int]) -> Iterator[EncodedRange]:
    for partition in partitions:
        position = state.partitions.position_of(partition)
        assert position is not None, "a transaction refers to partitions that it leaves"
        yield state.partitions.range_at(position)


def _files_reaching(state: TableState, keys: EncodedRange) -> list[DataFile]:
    """Return the files that may have rows in a range that lies in one partition."""
    position = state.partitions.position(keys.min)
    return [file for file in state.files_of(state.partitions.ids[position]) if file.reaches(keys)]


def _query(state: TableState, keys: EncodedRange, files: Sequence[DataFile]) -> Iterator[PartitionQuery]:
    if files:
        yield PartitionQuery(state.partitions.ids[state.partitions.position(keys.min)], (keys,), tuple(files))
