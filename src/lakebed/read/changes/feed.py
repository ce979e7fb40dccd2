"""The change feed of a table: reads the changes of versions as one stream, in bounded memory.

Rows come by version; in a version first the removed ranges and then the rows, in key order. The states between the two
versions come from the log, one entry after another. Rows come from the files that the entry added; if rows may have
been deleted too, both states are read and compared.

Errors: NotRetainedError for a version that is too old, before or while the stream is read; it says from which version
on a feed can start.

*Finds the changes between two sorted streams of rows: rows that are in only one of them, and updated rows.*

Both streams are read batch by batch and compared up to the last key that both have read completely. About two batches
of each are held, and at most HELD_BYTES_MAX of rows with one key. If there are more, the old rows are reported as
deletes and the new ones as inserts, which is always correct.

Two rows are the same if every column has the same value, null and NaN included. Floats are compared by their bits,
also in lists, structs and maps.
Source: a merge join.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from lakebed.errors import Code, DamagedError, NotRetainedError
from lakebed.files.parquet.sizes import gather
from lakebed.model.arrays import booleans, integers, of_binary, of_integers
from lakebed.model.checks import is_whole, shown
from lakebed.model.keys import by_bits
from lakebed.model.state.time_travel import moment_in
from lakebed.read.changes.plan import (
    ChangeKind,
    Scope,
    VersionChange,
    change_rows,
    change_schema,
    cut_at,
    removed_ranges,
    version_change,
)
from lakebed.read.rows.key_ranges import shared
from lakebed.read.rows.plan import plan
from lakebed.read.rows.row_stream import RowStream

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.engine.predicate import Predicate
    from lakebed.log.checkpoint import Head
    from lakebed.model.arrays import Integers
    from lakebed.model.keys import EncodedRange, KeyCodec, KeyRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.read.changes.plan import Compared
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.snapshot.versions import TableVersions

HELD_BYTES_MAX = 32 * 1024 * 1024
"""The rows of one key that are held of a side, if they are not merged by the key."""

Changed = tuple[pa.RecordBatch, pa.Array]
"""Rows, and the numbers of their kinds."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sorted rows, and their encoded keys."""

    rows: pa.RecordBatch
    keys: pa.Array

    def __len__(self) -> int:
        count: int = self.rows.num_rows
        return count

    @classmethod
    def of(cls, rows: pa.RecordBatch, codec: KeyCodec) -> Rows:
        """Return rows with the columns of the codec's fields."""
        return cls(rows, codec.encode_columns(rows))

    def divide(self, count: int) -> tuple[Rows, Rows]:
        """Return the first rows, and the others."""
        first = Rows(self.rows.slice(0, count), self.keys.slice(0, count))
        return first, Rows(self.rows.slice(count), self.keys.slice(count))

    def key_at(self, position: int) -> bytes:
        """Return the key of a row."""
        key: bytes = self.keys[position].as_py()
        return key


class _Side:
    """One side: the rows that were read and are not compared yet, and those to be read."""

    def __init__(self, batches: Iterator[pa.RecordBatch], codec: KeyCodec) -> None:
        self._batches = batches
        self._codec = codec
        self._held: Rows | None = None
        self.ended = False

    def fill(self) -> None:
        """Read a batch, if there is one."""
        batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            return
        read = Rows.of(batch, self._codec)
        if self._held is not None:
            read = Rows(pa.concat_batches([self._held.rows, read.rows]), pa.concat_arrays([self._held.keys, read.keys]))
        self._held = read if len(read) else self._held

    def start(self) -> None:
        """Read until a row is held, or none is left."""
        while self._held is None and not self.ended:
            self.fill()

    @property
    def last(self) -> bytes | None:
        """The last key that was read, whose rows may go on; None if all rows are read."""
        if self.ended:
            return None
        assert self._held is not None
        return self._held.key_at(len(self._held) - 1)

    @property
    def held_bytes(self) -> int:
        """The size of the held rows."""
        return 0 if self._held is None else self._held.rows.nbytes

    def below(self, bound: bytes | None) -> Rows | None:
        """Take the held rows with a smaller key, all if None; returns None if there are none."""
        return self._take(bound, through=False)

    def through(self, key: bytes) -> Iterator[Rows]:
        """Take all rows with a key that is not greater, batch by batch, reading what is left of them."""
        while (taken := self._take(key, through=True)) is not None:
            yield taken
            self.start()

    def _take(self, bound: bytes | None, *, through: bool) -> Rows | None:
        held = self._held
        if held is None:
            return None
        count = len(held)
        if bound is not None:
            count = (bisect_right if through else bisect_left)(range(count), bound, key=held.key_at)
        if not count:
            return None
        taken, left = held.divide(count)
        self._held = left if len(left) else None
        return taken


def differences(
    before: Iterator[pa.RecordBatch],
    after: Iterator[pa.RecordBatch],
    codec: KeyCodec,
    *,
    merged: bool,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> Generator[Changed]:
    """Return the changes from one stream to the other, in key order; both are sorted by the codec's fields, and have
    them.

    If rows are ``merged``, a key with one row on each side was updated if they differ. Otherwise, and if a key has
    several rows, these are deletes and inserts.
    """
    sides = _Side(before, codec), _Side(after, codec)
    while True:
        for side in sides:
            side.start()
        lasts = [last for last in (side.last for side in sides) if last is not None]
        bound = min(lasts, default=None)
        past, present = (side.below(bound) for side in sides)
        if past is not None or present is not None:
            yield from _compared(past, present, merged=merged)
        elif bound is None:
            return
        elif max(side.held_bytes for side in sides) > held_bytes_max:
            for side, kind in zip(sides, (ChangeKind.DELETE, ChangeKind.INSERT), strict=True):
                for taken in side.through(bound):
                    yield _all(taken, kind)
        else:
            # All held rows of a side have one key, which may have more rows.
            for side in sides:
                if side.last == bound:
                    side.fill()


def _compared(before: Rows | None, after: Rows | None, *, merged: bool) -> Iterator[Changed]:
    if after is None:
        if before is not None:
            yield _all(before, ChangeKind.DELETE)
    elif before is None:
        yield _all(after, ChangeKind.INSERT)
    else:
        found = _pairs(before, after, merged=merged)
        if found.num_rows:
            order = pc.sort_indices(found, [("key", "ascending"), ("kind", "ascending")])
            found = found.take(order)
            rows = pa.concat_batches([before.rows, after.rows])
            yield rows.take(found.column("row")), found.column("kind")


def _all(rows: Rows, kind: ChangeKind) -> Changed:
    return rows.rows, of_integers(np.full(len(rows), kind, np.int64))


def _pairs(before: Rows, after: Rows, *, merged: bool) -> pa.RecordBatch:
    """Return the changes, in no order: key, kind, and the position of the row among those of both sides."""
    doubled = _doubled(before, after)
    singles = [_positions(side.keys, doubled, members=False) for side in (before, after)]
    past, present = (
        side.keys.take(of_integers(positions)) for side, positions in zip((before, after), singles, strict=True)
    )
    match = pc.index_in(past, value_set=present)
    paired = booleans(match.is_valid())
    ours, theirs = singles[0][paired], singles[1][integers(match.drop_null().cast(pa.int64()))]
    changed = ~_same_rows(before.rows.take(of_integers(ours)), after.rows.take(of_integers(theirs)))
    gone = singles[0][~paired]
    came = singles[1][~booleans(pc.is_in(present, value_set=past))]
    kinds = (ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER) if merged else (ChangeKind.DELETE, ChangeKind.INSERT)
    more_gone, more_came = _unmatched(before, after, doubled)
    parts = [
        (ChangeKind.DELETE, before, gone, 0),
        (ChangeKind.DELETE, before, more_gone, 0),
        (kinds[0], before, ours[changed], 0),
        (kinds[1], after, theirs[changed], len(before)),
        (ChangeKind.INSERT, after, came, len(before)),
        (ChangeKind.INSERT, after, more_came, len(before)),
    ]
    keys = pa.concat_arrays([side.keys.take(of_integers(positions)) for _, side, positions, _ in parts])
    numbers = np.concatenate([np.full(len(positions), kind, np.int64) for kind, _, positions, _ in parts])
    rows = np.concatenate([positions + offset for _, _, positions, offset in parts])
    return pa.RecordBatch.from_arrays([keys, of_integers(numbers), of_integers(rows)], ["key", "kind", "row"])


def _positions(keys: pa.Array, wanted: Sequence[bytes], *, members: bool) -> Integers:
    """Return the positions of the keys that are among some, or are not."""
    if not wanted:
        return np.arange(0 if members else len(keys))
    found = booleans(pc.is_in(keys, value_set=of_binary(wanted)))
    return np.flatnonzero(found if members else ~found)


def _doubled(before: Rows, after: Rows) -> list[bytes]:
    """Return the keys that more than one row of a side has."""
    found: set[bytes] = set()
    for keys in (before.keys, after.keys):
        again = keys.slice(1).filter(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)))
        found.update(again.to_pylist())
    return sorted(found)


def _unmatched(before: Rows, after: Rows, keys: Sequence[bytes]) -> tuple[Integers, Integers]:
    """Return the rows with one of these keys that the other side has fewer times, by position."""
    sides = [(side, _positions(side.keys, keys, members=True)) for side in (before, after)]
    texts = [_texts(side.rows.take(of_integers(positions))) for side, positions in sides]
    missing = [Counter(texts[0]), Counter(texts[1])]
    missing = [missing[0] - missing[1], missing[1] - missing[0]]
    found = []
    for (_, positions), ours, left in zip(sides, texts, missing, strict=True):
        chosen = []
        for position, text in zip(positions.tolist(), ours, strict=True):
            if left[text] > 0:
                left[text] -= 1
                chosen.append(position)
        found.append(np.array(chosen, np.int64))
    return found[0], found[1]


def _texts(rows: pa.RecordBatch) -> list[str]:
    """Return a text for each row, the same for the same values."""
    return [repr(row) for row in zip(*(column.to_pylist() for column in map(by_bits, rows.columns)), strict=True)]


def _same_rows(before: pa.RecordBatch, after: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each row is the same on both sides."""
    same = np.ones(before.num_rows, np.bool_)
    for ours, theirs in zip(map(by_bits, before.columns), map(by_bits, after.columns), strict=True):
        if ours.equals(theirs):
            continue
        if pa.types.is_nested(ours.type):
            texts = zip(map(repr, ours.to_pylist()), map(repr, theirs.to_pylist()), strict=True)
            same &= np.array([one == other for one, other in texts], np.bool_)
            continue
        equal = pc.equal(ours, theirs)
        # Null if either side is null: then both are null, or the values differ.
        same &= booleans(pc.coalesce(equal, pc.and_(ours.is_null(), theirs.is_null())))
    return same


def changes(  # noqa: PLR0913 - from where to where, and what of it: each is the caller's choice
    table: TableVersions,
    since: int | datetime | str,
    until: int | datetime | str | None = None,
    *,
    ranges: Sequence[KeyRange] = (),
    columns: Sequence[str] | None = None,
    where: str | None = None,
    removed_rows: bool = False,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> tuple[Schema, RowStream]:
    """As :meth:`lakebed.table.table.Table.changes`, with stored rows, and their schema. ``removed_rows``: a removed
    range is returned as a delete of each removed row, for readers who may not see the range.
    """
    known = table.log.head
    newest = table.snapshot().state
    first = version_of(table, "since", since, newest)
    last = newest.version if until is None else version_of(table, "until", until, newest)
    if last < first:
        raise Code.ARGUMENT_INVALID(f"until = {last} is an older version than since = {first}")
    if first < newest.earliest_retained_version and first < last:
        raise _too_old(first, newest)
    # Without changes, the version of the columns need not be retained any more.
    is_there = newest.earliest_retained_version <= last < newest.version and last
    present = table.at(version=last).state if is_there else newest
    feed = Feed.of(table, present, present.created.codec.encode_ranges(ranges), columns, where)
    feed = replace(feed, removed_rows=removed_rows, held_bytes_max=held_bytes_max)
    return feed.schema, feed.stream(known if known.version == first > 0 else None, first, last)


def follow(  # noqa: PLR0913 - as for changes
    table: TableVersions,
    since: int | datetime | str | None = None,
    *,
    ranges: Sequence[KeyRange] = (),
    columns: Sequence[str] | None = None,
    where: str | None = None,
    wait: Callable[[], None],
) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
    """Return the schema and the rows of the changes after a version, by default the latest; the rows never end.

    ``wait`` is called when there are no more. Rows are read with the schema at that time; the columns are those of the
    call.

    Raises as :func:`changes`, and while it follows UsageError if one of the columns is dropped or renamed.
    """
    head, newest = table.log.head, table.state()
    first = newest.version if since is None else version_of(table, "since", since, newest)
    if first < min(newest.version, newest.earliest_retained_version):
        raise _too_old(first, newest)
    feed = Feed.of(table, newest, newest.created.codec.encode_ranges(ranges), columns, where)

    def rows() -> Generator[pa.RecordBatch]:
        now = head if head.version == first > 0 else table.log.at(first)
        reading = feed
        while True:
            now = yield from reading.rows(now, reading.present.version)
            while (present := table.state()).version == now.version:
                wait()
            if present.dropped:
                raise Code.TABLE_NOT_FOUND(f"the table was dropped at version {present.version}", table=present.table)
            reading = Feed.of(table, present, feed.scope.ranges, feed.names, where)

    return feed.arrow, rows()


@dataclass(frozen=True, slots=True)
class Feed:
    """The parameters of the feed. Rows are read with the schema of ``present``, the state at the last version."""

    table: TableVersions
    present: TableState
    names: tuple[str, ...]
    arrow: pa.Schema
    scope: Scope
    where: Predicate | None
    removed_rows: bool = False
    held_bytes_max: int = HELD_BYTES_MAX

    @classmethod
    def of(
        cls,
        table: TableVersions,
        present: TableState,
        ranges: Sequence[EncodedRange],
        columns: Sequence[str] | None,
        where: str | None = None,
    ) -> Feed:
        """Check the arguments; the ranges are disjoint, in key order. Raises UsageError."""
        schema = present.created
        names = schema.project(columns)
        scope, predicate = _scope(tuple(ranges), where, schema)
        return cls(table, present, names, change_schema(schema, names), scope, predicate)

    @property
    def schema(self) -> Schema:
        """The schema that all rows have."""
        return self.present.created

    def stream(self, head: Head[TableState] | None, first: int, last: int) -> RowStream:
        """Return the changes of the versions after the first, up to the last; ``head`` is that of the first, if it is
        known.

        Raises NotRetainedError while it is read.
        """

        def rows() -> Generator[pa.RecordBatch]:
            if first < last:
                yield from self.rows(self.table.log.at(first) if head is None else head, last)

        return RowStream(self.arrow, rows())

    def rows(self, head: Head[TableState], last: int) -> Generator[pa.RecordBatch, None, Head[TableState]]:
        """Return the changes of the versions after a head, up to the last; returns the head there."""
        log = self.table.log
        try:
            for following, steps in log.past.after(head, last):
                change = version_change(head.state, steps, self.present)
                with closing(self._version_rows(change)) as batches, _telling_repairs(change):
                    yield from batches
                head = following
        except NotRetainedError as error:
            earliest = self.table.state().earliest_retained_version
            text = f"{error.message}. The changes since version {earliest} are retained"
            raise error.restated(text, earliest_retained_version=earliest) from error.__cause__
        return head

    def _version_rows(self, change: VersionChange) -> Generator[pa.RecordBatch]:
        removed = list(shared(change.removed, self.scope.ranges))
        if removed and self.removed_rows:
            yield from self._whole(self._scan(plan(change.before, removed), self.names), ChangeKind.DELETE, change)
        elif removed:
            yield removed_ranges(removed, change.version, self.arrow, self.schema)
        if change.aged:
            yield from self._aged_rows(change)
        for keys, compared in cut_at(change.compared):
            scope = self.scope.within(keys)
            if compared:
                yield from self._compared_rows(change, change.compared_rows((keys,), scope))
            elif change.files and change.merges:
                yield from self._updated_rows(change, scope)
            elif change.files:
                yield from self._whole(self._scan(change.added_rows(scope), self.names), ChangeKind.INSERT, change)

    def _whole(self, rows: RowStream, kind: ChangeKind, change: VersionChange) -> Generator[pa.RecordBatch]:
        """Return all of the rows, as changes of one kind."""
        with rows as stream:
            for batch in stream:
                yield change_rows(batch, kind, change.version, self.arrow)

    def _aged_rows(self, change: VersionChange) -> Generator[pa.RecordBatch]:
        """Return the rows that are older than the cut that rose, and were not hidden before."""
        where = change.aged_where if self.where is None else f"({self.where.text}\n) AND {change.aged_where}"
        scope, predicate = _scope(self.scope.ranges, where, self.schema)
        found = plan(change.before, scope.narrowed or (), scope.keys)
        names = tuple(dict.fromkeys(self.names))
        yield from self._whole(self.table.reader.scan(found, names, None, where=predicate), ChangeKind.DELETE, change)

    def _updated_rows(self, change: VersionChange, scope: Scope) -> Generator[pa.RecordBatch]:
        """Return the changes of the keys that the added files have: in whole rows, partial rows or deletes."""
        # The predicate is not applied here: a row that begins or ceases to satisfy it is also a change.
        found, limits = change.added_rows(replace(scope, keys=None)), self.table.reader.limits
        files = {file.id: file for partition in found.partitions for file in partition.files}.values()
        if scope.narrowed in (None, scope.ranges) and change.is_dense(files, limits.feed_rows_a_key):
            yield from self._compared_rows(change, change.compared_rows(change.added, scope))
            return
        row_bytes = sum(file.size_bytes for file in files) // max(1, sum(file.rows for file in files))
        keys_max = max(1, min(limits.feed_keys, limits.feed_keys_bytes // max(1, row_bytes)))
        if change.replaces_rows(files):
            yield from self._replaced_rows(change, structs.replace(found, merge=change.after.merge), keys_max)
            return
        with self.table.reader.scan(found, self.schema.row_key_names, None) as stream:
            for keys in _key_batches(stream, self.schema, keys_max):
                yield from self._changes_of(change, keys)

    def _replaced_rows(self, change: VersionChange, found: QueryPlan, keys_max: int) -> Generator[pa.RecordBatch]:
        """Return the changes that rows make which are read as they come, in place of all older rows of their keys."""
        names, reader = self._compared_names(), self.table.reader
        read = self._read_names(names)
        with reader.scan(found, read, None) as stream:
            for after in gather(stream, keys_max, reader.limits.feed_keys_bytes):
                keys = self.schema.codec.encode_columns(after).to_pylist()
                before = reader.get_many(change.before, change.held_before(keys), read)
                yield from self._differences(change, self._kept(before, names), self._kept(after, names))

    def _changes_of(self, change: VersionChange, keys: Sequence[bytes]) -> Generator[pa.RecordBatch]:
        if change.key is not self.schema.codec:
            # A key may have any number of rows, of which few changed.
            yield from self._compared_rows(change, change.rows_of(keys), keys)
            return
        names, reader = self._compared_names(), self.table.reader
        read = self._read_names(names)
        before = reader.get_many(change.before, change.held_before(keys), read)
        after = reader.get_many(change.after, keys, read)
        yield from self._differences(change, self._kept(before, names), self._kept(after, names))

    def _compared_rows(
        self, change: VersionChange, plans: Compared, keys: Sequence[bytes] | None = None
    ) -> Generator[pa.RecordBatch]:
        """Return the differences of the rows of both sides; of those with the given row keys, if any are given."""
        names = self._compared_names()
        with self._scan(plans.before, names) as before, self._scan(plans.after, names) as after:
            yield from self._differences(change, _among(before, keys, self.schema), _among(after, keys, self.schema))

    def _differences(
        self, change: VersionChange, before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch]
    ) -> Generator[pa.RecordBatch]:
        streams = iter(before), iter(after)
        for rows, kinds in differences(*streams, change.key, merged=change.merges, held_bytes_max=self.held_bytes_max):
            yield change_rows(rows, kinds, change.version, self.arrow)

    def _kept(self, rows: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows for which the predicate is true."""
        if self.where is None:
            yield from rows.to_batches()
            return
        from lakebed.engine.predicate import keep

        for batch in rows.to_batches():
            yield keep(batch, self.where).select(names)

    def _read_names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns, and those of the predicate."""
        return names if self.where is None else tuple(dict.fromkeys((*names, *self.where.columns)))

    def _compared_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.schema.sort_names, *self.names)))

    def _scan(self, found: QueryPlan, names: Sequence[str]) -> RowStream:
        return self.table.reader.scan(found, tuple(dict.fromkeys(names)), None, where=self.where)


@contextmanager
def _telling_repairs(change: VersionChange) -> Iterator[None]:
    """Say of rows that cannot be read before a version that it repaired them."""
    try:
        yield
    except DamagedError as error:
        if error.code is not Code.STORED_TEXT_INVALID or not change.compared:
            raise
        raise error.restated(
            f"version {change.version} repaired rows that cannot be read as they were before, so its changes are not "
            f"known: read the rows of that version, and the changes since version {change.version}; refresh a view "
            f"anew ({error.message})"
        ) from error.__cause__


def _key_batches(batches: Iterable[pa.RecordBatch], schema: Schema, keys_max: int) -> Iterator[list[bytes]]:
    """Return the distinct keys of sorted rows, ascending."""
    held: list[bytes] = []
    last = b""
    for batch in batches:
        for key in schema.codec.encode_columns(batch).to_pylist():
            if key != last:
                held.append(key)
                last = key
        while len(held) >= keys_max:
            yield held[:keys_max]
            held = held[keys_max:]
    if held:
        yield held


def _among(batches: Iterable[pa.RecordBatch], keys: Sequence[bytes] | None, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows with one of the row keys; all of them for None."""
    if keys is None:
        yield from batches
        return
    import pyarrow.compute as pc

    only = of_binary(keys)
    for batch in batches:
        yield batch.filter(pc.is_in(schema.codec.encode_columns(batch), value_set=only))


def version_of(table: TableVersions, name: str, moment: Any, newest: TableState) -> int:
    """Return the version that an argument means. Raises UsageError, NotFoundError, NotRetainedError."""
    if isinstance(moment, str):
        version = moment_in(moment).get("version")
        if version is None:
            return table.at(moment).version
        moment = version
    if is_whole(moment, -(2**63)):
        if not 0 <= moment <= newest.version:
            raise Code.VERSION_NOT_FOUND(
                f"{name} = {moment}: the table has versions up to {newest.version}, and 0 is before the first",
                version=moment,
            )
        return int(moment)
    if isinstance(moment, bool) or not hasattr(moment, "utcoffset"):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(moment)}: must be a version, a tag, or a time")
    return table.at(time=moment).version


def _scope(asked: tuple[EncodedRange, ...], where: str | None, schema: Schema) -> tuple[Scope, Predicate | None]:
    if where is None:
        return Scope(asked), None
    from lakebed.engine.predicate import check_where
    from lakebed.read.rows.conditions import narrow
    from lakebed.read.rows.expressions import condition_of

    predicate = check_where(where, schema.arrow)
    narrowed, keys = narrow(asked, condition_of(predicate.parts), schema)
    return Scope(asked, narrowed, keys), predicate


def _too_old(version: int, newest: TableState) -> NotRetainedError:
    earliest = newest.earliest_retained_version
    error = Code.VERSION_NOT_RETAINED(
        f"the changes since version {version} are no longer retained; those since version {earliest} are. Read the "
        "table as it is at a version from there on (Table.at), and then the changes since that version. To keep more, "
        "raise the setting history_s",
        version=version,
        earliest_retained_version=earliest,
    )
    assert isinstance(error, NotRetainedError)
    return error
