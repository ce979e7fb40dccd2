"""Feeds views: applies the query of a view to what changed in its source, and commits the result to the view.

A view records the version of its source up to which it has the rows. A feed reads what changed in the source since, or
all of its rows the first time, and commits the result together with the new version. Queries are applied to rows in
parts of bounded size, and the results of several parts are merged by the view's merge mode.

Results for rows that came are added as they are. If rows went or changed, the keys of their results get new rows
(:mod:`lakebed.upkeep.view_retraction`), and the partitions of the view that hold these keys are replaced. Keys whose
new rows do not follow from what is stored are made again, in one scan of the source. What would take more memory than a
feed may use, and a source that no longer retains the view's version, need a feed *anew*: it reads all rows of the
source, and replaces all rows of the view in one commit.

A result with a null in a key field is left out, as if the query had ``WHERE field IS NOT NULL``.

Errors: RejectedError (``view_not_fed``; ``proposal_outdated`` if another process fed the view meanwhile, see
:func:`beside_others`), and those of writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.engine.row_query import Origin, RowQuery
from lakebed.errors import Code, Error, NotRetainedError, RejectedError, UsageError
from lakebed.files.parquet.sizes import gather, size_of
from lakebed.log.outcomes import version_of
from lakebed.model.keys import iter_ranges
from lakebed.model.reports import WorkReport
from lakebed.model.state.transactions import ProposeFeed
from lakebed.model.wording import count_text
from lakebed.read.changes.feed import changes
from lakebed.read.changes.plan import CHANGE, FEED_COLUMNS, ChangeKind
from lakebed.read.rows.plan import plan
from lakebed.read.rows.row_stream import exactly
from lakebed.upkeep.ingest_jobs import Ingested
from lakebed.upkeep.view_retraction import Unsettled, ViewRows, having, settled
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import FileTarget, commit_files, write_files
from lakebed.write.source_rows import RowInput, conformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import ViewSource
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table

FEEDS_AT_ONCE = 4
"""How often a feed may lose to another one; a service and a command are two."""

PART_ROWS = 250_000
PART_SHARE = 8
"""A query gets parts of at most this many rows, and of this fraction of the memory limit: it keeps a part several
times."""

HELD_SHARE = 8
"""Results for rows that went, for rows that came, and what is stored of their keys, are each held up to this fraction
of the memory limit."""

_OLD = pa.array([kind.name.lower() for kind in (ChangeKind.DELETE, ChangeKind.UPDATE_BEFORE)])


@dataclass(frozen=True, slots=True)
class RefreshReport(WorkReport):
    """The result of a refresh: the old and new version of the source, the number of rows read, and the view's version.

    ``anew``: the rows replaced all others. ``rows_without_key`` results of the query had a null in a key field, and
    were left out; None: not counted.
    """

    view: str
    source: str
    since: int
    until: int
    rows_read: int
    version: int
    anew: bool
    rows_without_key: int | None = 0

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if not self.rows_read and not self.anew and self.since == self.until:
            return f"nothing to do; it has version {self.until} of {self.source}"
        left_out = f", {count_text(self.rows_without_key, 'result')} without a key" if self.rows_without_key else ""
        return f"{count_text(self.rows_read, 'row')} of {self.source} read{left_out}; it has version {self.until}"

    @property
    def idle(self) -> bool:
        """Whether the view had all of its source."""
        return self.until == self.since and not self.anew

    @property
    def done(self) -> tuple[int, None]:
        """The rows that were read."""
        return self.rows_read, None


def view_source(view: Table) -> ViewSource:
    """Return the source of a view. Raises UsageError for a table that is no view, and for an index."""
    fed = view.state().view
    if fed is None:
        raise Code.ARGUMENT_INVALID(f"table {view.name} is no view; make one with create_view_table", table=view.name)
    if fed.index is not None:
        raise Code.ARGUMENT_INVALID(
            f"{view.name} is an index: use `lakebed index refresh`, or Pipeline.refresh", table=view.name
        )
    return fed


Backfill = Callable[["Snapshot", "ViewSource"], "Ingested | None"]
"""Makes files of a query's result over all rows of a snapshot; None if this process has to do it."""


def refresh(
    view: Table,
    source: Table,
    *,
    anew: bool = False,
    backfill: Backfill | None = None,
    part_rows: int = PART_ROWS,
) -> RefreshReport:
    """Bring a view up to date with its source; see :meth:`lakebed.Pipeline.refresh`.

    The query gets parts of at most ``part_rows``.
    """
    fed = view_source(view)
    base_version = view.version
    with source.pin() as snapshot:
        until = snapshot.version
        if not anew and (idle := nothing_new(f"view {view.name}", view, source, fed.version, until)):
            return idle
        reading = _Reading(view, source, snapshot, fed, part_rows=part_rows)
        made = None if anew or not fed.version else reading.changed()
        if made is None:
            anew = anew or bool(fed.version)
            ingested = None if backfill is None else backfill(snapshot, fed)
            made = reading.whole() if ingested is None else _Made(ingested, None)
        proposal = ProposeFeed(made.ingested.files, base_version, fed.version, until, anew, made.replaced)
        version = version_of(commit_files(view, proposal), f"view {view.name}")
    read, without_key = made.ingested.rows_read, made.rows_without_key
    return RefreshReport(view.name, source.name, fed.version, until, read, version, anew, without_key)


def beside_others(feed: Callable[[], RefreshReport]) -> RefreshReport:
    """Return the report of a feed, which begins again if another process fed the view or the index meanwhile: after
    that, little or nothing is left to do. Raises as the feed.
    """
    for _ in range(FEEDS_AT_ONCE):
        try:
            return feed()
        except RejectedError as error:
            if error.code is not Code.PROPOSAL_OUTDATED:
                raise
    return feed()


def nothing_new(what: str, fed: Table, source: Table, has: int, until: int) -> RefreshReport | None:
    """Return the report of a refresh with nothing to do; None if the source is at a later version than the one it has.

    Raises RejectedError if the source is at an earlier one.
    """
    if until < has:
        raise Code.LOG_WENT_BACK(
            f"{what} has version {has} of {source.name}, which is at version {until}: the log of the source went back "
            "(`lakebed docs operations`). Refresh it anew",
            log=source.id,
            version=has,
        )
    return RefreshReport(fed.name, source.name, until, until, 0, fed.version, anew=False) if until == has else None


def parts_of(
    rows: Iterable[pa.RecordBatch], memory_limit_bytes: int, part_rows: int = PART_ROWS
) -> Iterator[pa.RecordBatch]:
    """Return the rows in the parts that a query gets."""
    for part in gather(rows, part_rows, memory_limit_bytes // PART_SHARE):
        yield from part.combine_chunks().to_batches()


def with_keys(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the results of a query without those that have a null in a key field of the view."""
    for name in schema.sort_names:
        if batch.column(name).null_count:
            batch = batch.filter(batch.column(name).is_valid())
    return batch


@dataclass(frozen=True, slots=True)
class _Made:
    """Files with rows of the view, how many results had no key, if known, and the ranges whose rows they replace."""

    ingested: Ingested
    rows_without_key: int | None
    replaced: tuple[EncodedRange, ...] = ()


class _Held:
    """Rows in memory, until they take too much of it: then it is full, and holds none."""

    def __init__(self, merged: Callable[[Sequence[pa.RecordBatch]], pa.Table], bytes_max: int) -> None:
        """``merged`` merges rows with equal keys, to make room."""
        self._merged = merged
        self._bytes_max = bytes_max
        self._bytes = 0
        self.batches: list[pa.RecordBatch] = []
        self.is_full = False

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Hold the rows of these batches too."""
        for batch in batches:
            if batch.num_rows and not self.is_full:
                self.batches.append(batch)
                self._bytes += size_of(batch)
                if self._bytes > self._bytes_max:
                    self._make_room()

    def _make_room(self) -> None:
        self.batches = self._merged(self.batches).to_batches()
        self._bytes = sum(map(size_of, self.batches))
        if self._bytes > self._bytes_max // 2:
            self.batches, self.is_full = [], True


@dataclass(frozen=True, slots=True)
class _Again:
    """Rows that are read again by everyone who goes over them."""

    read: Callable[[], Iterator[pa.RecordBatch]]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.read()


class _Reading:
    """The rows of a source that are being fed to a view."""

    _settled = staticmethod(settled)

    def __init__(
        self, view: Table, source: Table, snapshot: Snapshot, fed: ViewSource, *, part_rows: int = PART_ROWS
    ) -> None:
        self._view = view
        self._source = source
        self._snapshot = snapshot
        self._fed = fed
        self._part_rows = part_rows
        self._settings = view.settings_in_force()
        self._query = self._bound()
        self._rows_read = 0
        self._rows = self._view_rows()
        self._held_bytes_max = self._settings.memory_limit_bytes // HELD_SHARE
        self._rows_without_key: int | None = 0

    def _bound(self) -> RowQuery:
        """Return the query over the fields that the source had when the view was declared."""
        state = self._snapshot.state
        gone = self._fed.dropped(state)
        try:
            query = RowQuery(self._fed.select, self._snapshot.schema.arrow, self._fed.columns(state))
        except UsageError:
            if not gone:
                raise
            query = None
        if query is None or {*query.schema.names} != {*self._view.schema.names}:
            raise Code.SQL_INVALID(
                f"view {self._view.name} cannot be fed: its query reads some of {', '.join(gone)}, which were dropped "
                f"from {self._source.name}. Drop the view, and create it without them",
                table=self._view.name,
            )
        return query

    def _parts(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return parts_of(rows, self._settings.memory_limit_bytes, self._part_rows)

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Return all rows of the source."""
        with self._snapshot.scan() as rows:
            yield from (exactly(batch, self._snapshot.schema.arrow) for batch in rows)

    def changed(self) -> _Made | None:
        """Return what the changes since the view was fed make of it; None if all rows have to be read.

        Raises RejectedError if the source does not retain these changes.
        """
        with self._retained():
            taken, added = self._took()
            if taken is None:
                return None
            if not taken.num_rows:
                return self._made(added)
            with self._view.pin() as held:
                return self._replacing(held, taken, added)

    def _replacing(self, held: Snapshot, taken: pa.Table, added: Iterable[pa.RecordBatch]) -> _Made | None:
        """Return the files that add rows, and replace those partitions of which rows were taken; None as before."""
        rows, view = self._rows, self._view
        keys, partitions = rows.keys(taken), held.state.partitions
        places = {partitions.position(key) for key in view.schema.codec.encode_columns(taken).unique().to_pylist()}
        replaced = tuple(iter_ranges([partitions.range_at(place) for place in sorted(places)]))
        stored = partial(self._stored, held, replaced)
        touched = self._collected(having(batch, rows.keys(batch), keys) for batch in stored())
        new = self._collected(having(batch, rows.keys(batch), keys) for batch in added)
        if touched is None or new is None:
            return None
        try:
            found = self._settled(rows, touched, taken, new)
        except Unsettled:
            return None

        def written() -> Iterator[pa.RecordBatch]:
            # Those that were stored come first: some modes go by arrival.
            for batch in chain(stored(), added):
                yield having(batch, rows.keys(batch), keys, among=False)
            yield from found.rows.to_batches()
            if len(found.again):
                for batch in self._results(self._counted(self.all_rows())):
                    yield having(batch, rows.keys(batch), found.again)

        return self._made(written(), replaced)

    def _stored(self, held: Snapshot, ranges: Sequence[EncodedRange]) -> Iterator[pa.RecordBatch]:
        """Return the rows of the view in these ranges."""
        schema = self._view.schema
        with self._view.reader.scan(plan(held.state, ranges), schema.names, None) as found:
            # In large parts: their keys are searched for in as many others, which Arrow prepares each time.
            for part in self._parts(found):
                yield exactly(part, schema.arrow)

    def _took(self) -> tuple[pa.Table | None, Iterable[pa.RecordBatch]]:
        """Return the results for the rows that went, None if they are too many, and those for the rows that came."""
        rows = self._rows
        taken, added = _Held(rows.taken, self._held_bytes_max), _Held(rows.merged, self._held_bytes_max)
        for went, part in self._changes():
            if went:
                taken.add(self._results([part]))
                if taken.is_full:
                    return None, ()
                continue
            self._rows_read += part.num_rows
            if not added.is_full:
                added.add(self._results([part], self._left_out))
        if added.is_full:
            self._rows_without_key = None
            return rows.taken(taken.batches), _Again(self._added)
        return rows.taken(taken.batches), added.batches

    def _added(self) -> Iterator[pa.RecordBatch]:
        """Return the results for the rows that came, from the source."""
        return self._results(part for went, part in self._changes() if not went)

    def _changes(self) -> Iterator[tuple[bool, pa.RecordBatch]]:
        """Return the rows that went, each with True, and those that came, in parts; in the order of versions."""
        schema = self._snapshot.schema
        found = changes(self._source.versions, self._fed.version, self._snapshot.version, removed_rows=True)[1]
        with closing(found) as batches:
            for part in self._parts(batches):
                gone = pc.is_in(part.column(CHANGE), value_set=_OLD)
                rows = exactly(part.drop_columns([field.name for field in FEED_COLUMNS]), schema.arrow)
                for went, mask in ((True, gone), (False, pc.invert(gone))):
                    if (some := rows.filter(mask)).num_rows:
                        yield went, some

    def _collected(self, batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
        """Return the rows as a table; None if they are too many."""
        held = _Held(self._rows.merged, self._held_bytes_max)
        for batch in batches:
            held.add([batch])
            if held.is_full:
                return None
        return self._rows.table(held.batches)

    def whole(self) -> _Made:
        """Return what the query makes of all rows of the source."""
        self._rows_read, self._rows_without_key = 0, 0
        return self._made(self._results(self._counted(self.all_rows()), self._left_out))

    def _made(self, results: Iterable[pa.RecordBatch], replaced: tuple[EncodedRange, ...] = ()) -> _Made:
        """Write rows of the view to files."""
        view = self._view
        files = write_files(
            iter(results),
            view.layout(),
            FileTarget(view.storage, view.id, clock.new_id()),
            memory_limit_bytes=self._settings.memory_limit_bytes,
            cuts=view.log.head.state.partitions.boundaries,
            merge=self._rows.mode,
        )
        return _Made(Ingested(files, self._rows_read), self._rows_without_key, replaced)

    def _results(
        self, parts: Iterable[pa.RecordBatch], left_out: Callable[[int], None] = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        """Return the query's results over parts of the rows, as rows of the view; ``left_out`` gets the number of those
        without a key.
        """
        view, source = self._view, f"the query of view {self._view.name}"

        def with_a_key() -> Iterator[pa.RecordBatch]:
            for batch in self._query.rows(parts):
                kept = with_keys(batch, view.schema)
                left_out(batch.num_rows - kept.num_rows)
                yield kept

        conformer = Conformer(view.schema, value_bytes_max=self._settings.value_bytes_max)
        row_input = RowInput.of_batches(self._query.schema, with_a_key(), source)
        return conformed(row_input, RowEncoder(conformer, self._rows.mode))

    def _left_out(self, results: int) -> None:
        if self._rows_without_key is not None:
            self._rows_without_key += results

    def _counted(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in self._parts(rows):
            self._rows_read += part.num_rows
            yield part

    def _view_rows(self) -> ViewRows:
        groups = self._query.groups or []
        return ViewRows(
            self._view.schema,
            self._view.log.head.state.merge,
            row_counts=frozenset(column.name for column in groups if column.counts_rows),
            counts=frozenset(column.name for column in groups if column.made_of == "count"),
            constants=frozenset(column.name for column in groups if column.origin is Origin.CONSTANT),
        )

    @contextmanager
    def _retained(self) -> Iterator[None]:
        try:
            yield
        except NotRetainedError as error:
            raise self._not_fed(str(error)) from error
        except UsageError as error:
            if error.code is not Code.TABLE_CHANGED:
                raise
            raise self._not_fed(str(error)) from error

    def _not_fed(self, what: str) -> Error:
        return Code.VIEW_NOT_FED(
            f"view {self._view.name} has version {self._fed.version} of {self._source.name}, and cannot be fed from "
            f"there: {what}. Refresh it anew, which replaces all of its rows",
            table=self._view.name,
        )
