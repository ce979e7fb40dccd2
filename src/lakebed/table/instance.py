"""An instance: one root URL with a catalog and many tables.

Creating a table writes entry 1 of its own log under a fresh id, then registers the name in the catalog's log, which
decides races for it; the loser leaves an orphan. Dropping works in reverse: first the catalog, then a last entry after
which the table's log refuses everything. If that entry is missing, garbage collection commits it.

A name in a statement of :meth:`Instance.sql` is that of a table, optionally with a suffix for an old version or for its
rows before any merge.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, ExistsError, NotFoundError
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.locations import connect_logs
from lakebed.log.log import Log
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model import settings
from lakebed.model.checks import check_flag, check_seconds, check_text, check_whole_number, is_id, shown
from lakebed.model.files import table_prefix
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.operations import operations_named
from lakebed.model.schema import Schema
from lakebed.model.state.catalog import (
    CatalogChange,
    CatalogProposal,
    FenceCreations,
    PauseOperations,
    PurgeTable,
    RegisterTable,
    RenameTable,
    ReplaceTable,
    SetDefaults,
    SetOnline,
    decode_change,
)
from lakebed.model.state.machine import CATALOG
from lakebed.model.state.transactions import CreateTable, DropIndex, DropTable
from lakebed.model.wording import did_you_mean
from lakebed.read.snapshot.handles import Address, TableNames
from lakebed.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Self

    from lakebed.engine.statement_parameters import Parameters
    from lakebed.log.backends.backend import LogBackend
    from lakebed.log.through_service import CommitService
    from lakebed.model.state.catalog import CatalogState, CatalogTable
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.read.snapshot.versions import TableVersions
    from lakebed.read.sql.limited import LimitedRows
    from lakebed.read.sql.query import SqlEngine
    from lakebed.storage.contract import Storage
    from lakebed.table.statement_run import ChangeReport
    from lakebed.table.tracker.recorder import Recorder

TABLES_RECENT_MAX = 512
"""The number of tables, those used last, whose states stay in memory while no caller holds a handle."""

_RAW = "$raw"


class Instance(TableNames[Table]):
    """An open instance. Tables and catalog are followed lazily; safe to use from many threads."""

    def __init__(
        self,
        storage: Storage,
        document: Mapping[str, Any],
        storage_options: Mapping[str, str] | None = None,
        *,
        commits: CommitService | None = None,
        address: Address | None = None,
    ) -> None:
        """``address`` is where the instance can be opened again; None: nowhere."""
        self.id: str = document["instance"]
        self.storage = storage
        self.storage_options = dict(storage_options or {})
        self.log_url: str | None = document.get("log_url")
        self.address = address
        self._sql: SqlEngine | None = None
        self._logs = connect_logs(self.log_url, storage, self.id, storage_options=storage_options)
        through = None if commits is None else commits.of_catalog
        checkpoints = CheckpointLocation(storage, "catalog")
        self._catalog = Log(self._logs.open("catalog"), checkpoints, self.id, CATALOG, through)
        self._made: Callable[[str, str], Table] = partial(
            Table,
            storage=storage,
            logs=self._logs,
            defaults=self._defaults,
            commits=commits,
            tracker=lambda: self.tracker,
            address=address,
            related=self._related,
        )
        self._tables: WeakValueDictionary[str, Table] = WeakValueDictionary()
        self._recent: OrderedDict[str, Table] = OrderedDict()
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"<lakebed instance at {self.url}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the URL of the instance, with its storage options (:mod:`lakebed.table.opening`)."""
        if self.address is None:
            raise TypeError(f"cannot pickle {self!r}: it was not opened by its URL")
        return self.address.instance, ()

    @property
    def url(self) -> str:
        """The root URL."""
        return str(self.storage.url)

    @property
    def location(self) -> dict[str, Any]:
        """The arguments of :func:`lakebed.open` in a process that reads the instance."""
        return {"url": self.url, "storage_options": self.storage_options, "log_url": self.log_url}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the checkpoints that this process is writing for the instance, as a process does when it exits.

        Only needed before the folder of the instance is removed. The instance can still be used afterwards.
        """
        self._catalog.wait_for_checkpoint()
        with self._opening:
            tables = list(self._tables.values())
        for table in tables:
            table.log.wait_for_checkpoint()

    @cached_property
    def tracker(self) -> Recorder:
        """The recorder of job runs in this process."""
        from lakebed.table.tracker.recorder import Recorder

        return Recorder(self.storage, lambda: settings.in_force(self._defaults(), {}).jobs_kept_s)

    # -- tables -------------------------------------------------------------------------------------------------

    def create_table(  # noqa: PLR0913 - what a table is made of
        self,
        name: str,
        schema: Schema,
        *,
        split_points: Iterable[Any] = (),
        settings: Mapping[str, Any] | None = None,
        online: bool = True,
        merge: MergeMode = KEEP_ALL,
        if_not_exists: bool = False,
    ) -> Table:
        """Make an empty table. ``split_points`` are keys (tuples, or values of the first field) that divide partitions.

        ``merge`` is the rule for rows with equal keys: :class:`~lakebed.model.merge_modes.KeepAll`, ``Latest``,
        ``First``, ``Aggregate`` or ``Custom``.

        With ``online=False`` maintenance neither compacts nor splits it until :meth:`set_online` says so. With
        ``if_not_exists``, a table of that name is returned as it is if it has the same schema and merge mode.

        Raises:
            ExistsError: the name is taken; with ``if_not_exists``, by a different table (the message names the
                difference).
            RejectedError: dropped tables were deleted at the same time; create it again.
            UsageError: a bad name, split point or setting, an expression that cannot generate its field, or a merge
                mode that does not fit the schema.
        """
        from lakebed.model.schema import check_same
        from lakebed.table.creation import check_name, new_table

        check_name(name)
        check_flag("online", online)
        check_flag("if_not_exists", if_not_exists)
        created = new_table(clock.new_id(), schema, split_points, {} if settings is None else settings, merge)
        try:
            return self.register_new(name, created, online=online)
        except ExistsError:
            if not if_not_exists:
                raise
        table = self.table(name)
        there = table.state()
        merged = [] if there.merge == created.merge else [f"it merges rows by {there.merge}, not {created.merge}"]
        check_same(name, there.created, created.schema, *merged)
        return table

    def create_view_table(
        self,
        name: str,
        *,
        source: str,
        select: str,
        row_key: Sequence[str],
        sort_key: Sequence[str] = (),
        **options: Any,
    ) -> Table:
        """Create a view of another table: ``select`` is SQL over the table ``source``.

        Its columns are those of the query; ``row_key`` and ``sort_key`` name the key fields, ``options`` are those of
        :meth:`create_table`. The view is empty until :meth:`lakebed.Pipeline.refresh`, and only changed by
        refreshes.

        Raises as :meth:`create_table`; NotFoundError if there is no source; UsageError for a query that cannot be
        applied incrementally, such as one with a limit, a join or a window.
        """
        from lakebed.table.creation import check_name, new_view

        check_name(name)
        created = new_view(
            clock.new_id(), self.table(source).state(), select, row_key=row_key, sort_key=sort_key, **options
        )
        return self.register_new(name, created)

    def create_index(
        self,
        name: str,
        *,
        table: str,
        on: Sequence[str],
        include: None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make an index of the fields ``on`` of a table: ``table.get(by=…)`` then finds rows by their values.

        Its entries are the rows of a table of this name, which is maintained as any other, and fed by
        :meth:`lakebed.Pipeline.refresh`. Until it is fed, reads by these fields read all rows. Writes go on
        meanwhile. It has no other columns, so ``include`` is refused (decision 0078).

        Raises:
            NotFoundError: there is no such table.
            ExistsError: the name is taken.
            UsageError: a field that the table does not have, or ``on`` is empty, or ``include`` is given.
            RejectedError: rows of the table are computed by its merge mode, a field has no order, or the table has an
                index of these fields.
        """
        from lakebed.model.checks import check_index_fields
        from lakebed.table.creation import check_name, new_index

        check_name(name)
        check_index_fields(on, include)
        source = self.table(table)
        created, added = new_index(clock.new_id(), source.state(), on, {} if settings is None else settings)
        index = self.register_new(name, created)
        try:
            source.commit(added)
        except Error:
            self.drop_table(name)
            raise
        return index

    def drop_index(self, name: str) -> None:
        """Drop an index; its table keeps its rows. Raises NotFoundError, and UsageError if it is no index."""
        fed = self.table(name).state().view
        if fed is None or fed.index is None:
            raise Code.ARGUMENT_INVALID(f"{name} is no index; use drop_table", table=name)
        self.drop_table(name)

    def indexes(self, table: str) -> dict[str, list[str]]:
        """Return the indexes of a table by their names: their fields, in order. Raises NotFoundError."""
        state, names = self.table(table).state(), self.known_tables()
        known = {field.id: field.name for field in state.created.fields}
        found = {names.get(one.table, one.table): [known[field] for field in one.fields] for one in state.indexes}
        return dict(sorted(found.items()))

    def table(self, name: str) -> Table:
        """Return the table of that name.

        Raises NotFoundError if there is none; if the cache on local disk knows one, its first use raises it.
        """
        check_text("name", name)
        with self._opened_ahead(name):
            registered = self._find(name)
        table = self._handle(registered.id, registered.name)
        # It may have been opened by a name that it had before.
        table.name = registered.name
        return table

    @contextmanager
    def _opened_ahead(self, name: str) -> Iterator[None]:
        """Read, beside the first look at the catalog, what is likely the state of the table that had the name before.

        The table is opened next in any case, if the name still means it. A failure is raised by its first use.
        """
        near, tail = self.storage.locality.near, self._catalog.tail
        known = None if near or tail.proven_s > -math.inf else self._catalog.likely().state.named(name)
        if known is None:
            yield
            return
        opening = threading.Thread(target=self._open, args=(self._handle(known.id, known.name),), name="lakebed-open")
        opening.start()
        try:
            yield
        finally:
            opening.join()

    @staticmethod
    def _open(table: Table) -> None:
        with suppress(Error):
            table.log.likely()

    def named(self, table_id: str) -> Table:
        """Return the table with this id. Raises NotFoundError if there is none, or it was dropped."""
        registered = self._catalog.follow().tables.get(table_id)
        if registered is None:
            raise Code.TABLE_NOT_FOUND(f"no table with the id {table_id} at {self.url}: it was dropped", table=table_id)
        return self._handle(registered.id, registered.name)

    def tables(self) -> list[str]:
        """Return names of all tables, sorted."""
        return sorted(table.name for table in self._catalog.follow().tables.values())

    def rename_table(self, name: str, new_name: str, *, replace: bool = False) -> None:
        """Rename a table; no data are moved.

        With ``replace`` it takes the name of a table that has it, which is dropped in the same commit: every reader
        finds the one or the other. Errors after that are those of :meth:`drop_table`.

        Raises NotFoundError; ExistsError if a table has the new name, with ``replace`` only if another one took it
        meanwhile.
        """
        from lakebed.table.creation import check_name

        check_name(new_name)
        check_flag("replace", replace)
        registered = self._find(name)
        held = self._catalog.head.state.named(new_name) if replace else None
        if held is None or held.id == registered.id:
            self._change(RenameTable(registered.id, new_name), new_name)
        else:
            replaced = self._handle(held.id, new_name)
            self._drop_indexes(replaced)
            self._change(ReplaceTable(registered.id, new_name, held.id), new_name)
            self._finish_drop(replaced)
        self._handle(registered.id, new_name).name = new_name

    def drop_table(self, name: str) -> None:
        """Drop a table; every later use of it is refused.

        Raises NotFoundError. If another error is raised after the name was freed, its message says so, and ``lakebed
        gc`` finishes the drop.
        """
        registered = self._find(name)
        table = self._handle(registered.id, name)
        self._drop_indexes(table)
        self._change(PurgeTable(registered.id), name)
        self._finish_drop(table)

    def _finish_drop(self, table: Table) -> None:
        """Commit the last entry of the log of a table that is out of the catalog."""
        try:
            finish_drop(table)
        except Error as error:
            raise error.restated(
                f"{error.message}. Table {table.name} is out of the catalog, and processes that have it open can still "
                "write to it, until `lakebed gc` finishes the drop"
            ) from error.__cause__
        self.release(table.id)

    def _drop_indexes(self, table: Table) -> None:
        """Drop the indexes of a table; or declare that its own table has this index no more."""
        try:
            state = table.state()
        except DamagedError:
            # The table can be dropped nevertheless; its indexes stay, and can be dropped as well.
            return
        for index in state.indexes:
            if (known := self._catalog.head.state.tables.get(index.table)) is not None:
                self.drop_table(known.name)
        if state.view is not None and state.view.index is not None:
            with suppress(NotFoundError, DamagedError):
                self.named(state.view.table).commit(DropIndex(table.id))

    def is_online(self, name: str) -> bool:
        """Return whether splitting and compaction run on the table."""
        return self._find(name).online

    def set_online(self, name: str, online: bool) -> None:  # noqa: FBT001 - the value, not a switch of behaviour
        """Switch splitting and compaction of a table on or off; ingest and queries are not affected.

        Raises UsageError for a value that is neither True nor False.
        """
        check_flag("online", online)
        self._change(SetOnline(self._find(name).id, online), name)

    def paused(self, name: str) -> frozenset[str]:
        """Return the operations of a table that are paused. Raises NotFoundError."""
        return self._find(name).paused

    def pause(self, name: str, *operations: str) -> None:
        """Pause operations of a table, by default all: services and ``maintain`` skip them until :meth:`resume`.

        An operation is ``ingest``, ``compaction``, ``splitting``, ``refresh``, ``publication`` or ``gc``. Calls that
        name one, such as :meth:`lakebed.Pipeline.compact`, still run it, and running operations continue. Raises
        UsageError for another name, NotFoundError.
        """
        self._change(PauseOperations(self._find(name).id, operations_named(operations), paused=True), name)

    def resume(self, name: str, *operations: str) -> None:
        """Resume paused operations, by default all. Raises as :meth:`pause`."""
        self._change(PauseOperations(self._find(name).id, operations_named(operations), paused=False), name)

    # -- SQL ----------------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        """Return its tables with their figures, for notebooks. Reads the states of the first ones only."""
        from lakebed.read.drawing.table_view import SHOWN_TABLES, figures_of, instance_view

        names = self.tables()
        shown = {name: figures_of(self.table(name).state()) for name in names[:SHOWN_TABLES]}
        return instance_view(repr(self), shown, len(names) - len(shown))

    def sql(
        self,
        statement: str,
        *,
        parameters: Parameters | None = None,
        memory_limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> RowStream | LimitedRows:
        """Return the rows of a query in SQL (DataFusion's dialect) over any of the tables, by their names; a stream.

        Read it batch by batch, or whole: ``.to_arrow()``, ``.to_pandas()``, ``.to_polars()``. ``parameters`` are the
        values of ``?`` or ``$1`` in the statement, in order, or those of ``$name`` by name.

        Names are case-sensitive. To read an old version of a table, append a version, a tag or a time: ``FROM
        "flights@12"``, ``"flights@audited"``, ``"flights@2026-01-31T12:00:00Z"``. ``"flights$raw"`` has its rows before
        any merge (``raw`` of :meth:`Table.scan`). Conditions on a prefix of the row key (``=``, ``IN``, ``BETWEEN``,
        ``<``, ``LIKE 'abc%'``) decide what is read. Rows have no order without ORDER BY. Memory for sorts, groups and
        joins is bounded by the instance's ``memory_limit_bytes``. Results of functions are not: give the statement its
        own limit.

        With ``memory_limit_bytes`` or ``timeout_s`` the statement runs in a separate process, which is killed when its
        total memory, or its time, exceeds the limit (:mod:`lakebed.read.sql.limited`). Both are measured from when that
        process is ready. Close or drop the reader to end the process.

        Raises:
            UsageError: an invalid statement, one that is not a query, or an unknown column (the message lists the known
                ones). A parameter without a value, or a value that has no literal. An invalid or exceeded limit, or a
                limit on a ``memory://`` instance.
            NotFoundError: no such table, tag or version.
        """
        check_text("statement", statement)
        from lakebed.engine.statement_parameters import with_parameters

        statement = with_parameters(statement, parameters)
        check_whole_number("memory_limit_bytes", memory_limit_bytes)
        check_seconds("timeout_s", timeout_s)
        if memory_limit_bytes is None and timeout_s is None:
            engine, pool_bytes = self.sql_engine()
            return engine.run(statement, pool_bytes)

        from lakebed.read.sql.limited import Limits, StatementWorker, run_limited

        return run_limited(StatementWorker(self.location), statement, Limits(memory_limit_bytes, timeout_s))

    def execute(
        self,
        statement: str,
        *,
        parameters: Parameters | None = None,
        commit_id: str | None = None,
        memory_limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> ChangeReport:
        """Run a statement in SQL that changes something, and return what it changed.

        The statements are INSERT, UPDATE, DELETE, MERGE, TRUNCATE, CREATE TABLE (also AS a query), CREATE INDEX, ALTER
        TABLE and DROP (docs/sql-writes.md). Each is one commit: all of it or nothing. INSERT replaces the rows of its
        keys in a table that merges by latest. A statement that decides by what it reads (UPDATE, DELETE, MERGE, an
        INSERT that reads its own table) is done again if what it read was changed meanwhile, at most ten times.

        ``parameters`` are as for :meth:`sql`. With a ``commit_id`` a repeat, from any process, changes nothing, and its
        report is ``repeated``. Commit ids are remembered for ``log_s``. ``memory_limit_bytes`` and ``timeout_s`` limit
        the query that finds the rows, as in :meth:`sql`.

        Raises:
            UsageError: an invalid statement, or one that has no meaning here; the message has the place of the fault
                and what to do instead. An UPDATE of a key; a ``commit_id`` for a statement that changes no rows.
            NotFoundError, ExistsError: a table or an index is missing, or is there already.
            SchemaMismatchError, BadKeyError: a value does not fit its column; names it. Nothing was changed.
            RejectedError, ContentionError: nothing was changed; run it again.
            UnknownOutcomeError: it may have been done; repeat it with the same ``commit_id``.
        """
        from lakebed.engine.statement_parameters import with_parameters
        from lakebed.table.statement_run import execute

        check_text("statement", statement)
        return execute(
            self,
            with_parameters(statement, parameters),
            lambda query: self.sql(query, memory_limit_bytes=memory_limit_bytes, timeout_s=timeout_s),
            commit_id=commit_id,
        )

    def sql_engine(self) -> tuple[SqlEngine, int]:
        """Return the engine that runs statements, and the memory of its pool by the settings."""
        if self._sql is None:
            from lakebed.read.sql.query import SqlEngine

            self._sql = SqlEngine(self.snapshot_named, self.tables)
        return self._sql, self.sql_pool_bytes()

    def sql_pool_bytes(self) -> int:
        """Return the memory of the pool of statements, by the settings that are known."""
        return settings.in_force(self._defaults(), {}).memory_limit_bytes

    def snapshot_named(self, name: str) -> Snapshot | None:
        """Return the snapshot for a name in a statement, such as ``flights``, or ``flights@12`` (a version, a tag or a
        time).

        ``flights$raw`` has the rows of all files before any merge. None if there is no such table. Raises
        NotFoundError, NotRetainedError, UsageError as :meth:`Table.at`.
        """
        from lakebed.read.snapshot.row_views import raw_rows

        check_text("name", name)
        table_name, at, moment = name.partition("@")
        found = self.catalog().named(table_in(name))
        if found is None:
            return None
        table = self.opened(found)
        snapshot = table.at(moment) if at else table.snapshot()
        return raw_rows(snapshot) if table_name.endswith(_RAW) else snapshot

    # -- settings -----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, int | float]:
        """Return the instance's default of every setting."""
        in_force = settings.in_force(self._catalog.follow().defaults, {})
        return {name: getattr(in_force, name) for name in settings.NAMES}

    def set(self, **changes: Any) -> None:
        """Change defaults for all tables that do not set their own; None restores Lakebed's default."""
        self._change(SetDefaults(settings.validate(changes)), "settings")

    # -- for the pipeline and services ------------------------------------------------------------------------------

    def catalog(self) -> CatalogState:
        """Return the latest catalog; two requests, even if there is nothing new."""
        return self._catalog.follow()

    def opened(self, found: CatalogTable) -> Table:
        """Return the handle of a table of the catalog, without a request."""
        return self._handle(found.id, found.name)

    def catalog_log(self) -> Log[CatalogState, CatalogProposal, CatalogChange]:
        """Return the log of the catalog."""
        return self._catalog

    def log_of(self, table_id: str) -> LogBackend:
        """Return the entries of a table's log."""
        return self._logs.open(table_prefix(table_id))

    def release(self, table_id: str) -> None:
        """Release the state of a table that is not in use; the next use reads it again."""
        with self._opening:
            self._recent.pop(table_id, None)

    def table_ids(self) -> Collection[str]:
        """Return the ids of all tables that have a name."""
        return self._catalog.follow().tables.keys()

    def known_tables(self) -> dict[str, str]:
        """Return the names of all tables by id, in the newest catalog that this process has read; no request."""
        return {table.id: table.name for table in self._catalog.head.state.tables.values()}

    def unnamed_logs(self) -> list[str]:
        """Return the ids of tables with a log but never a name: creations that lost their name, failed or are in
        progress.

        Lists all logs; if there is a candidate, reads the whole log of the catalog.
        """
        there = {prefix.removeprefix("tables/") for prefix in self._logs.prefixes() if prefix.startswith("tables/")}
        unnamed = there - set(self.table_ids())
        if unnamed:
            unnamed -= {change.table for change in self.catalog_changes() if isinstance(change, RegisterTable)}
        return sorted(unnamed)

    def catalog_changes(self) -> Iterator[CatalogChange]:
        """Return all changes of the catalog, the latest first; reads its whole log."""
        return (
            decode_change(document) for stored in self._catalog.newest_first() for document in stored.entry.documents
        )

    def register_new(
        self, name: str, created: CreateTable, *, online: bool = True, fill: Callable[[Table], Any] | None = None
    ) -> Table:
        """Create a table, and register its name; before, ``fill`` writes the rows that it has from the start."""
        catalog = self._catalog.follow()
        if catalog.named(name) is not None:
            raise _taken(name)
        table = self._handle(created.table, name)
        table.commit(created)
        if fill is not None:
            fill(table)
        self._change(RegisterTable(table.id, name, catalog.version, online), name)
        return table

    def fence_creations(self) -> None:
        """Refuse every creation of a table that is in progress: its log may be deleted as that of a failed creation."""
        self._change(FenceCreations(), "creations")

    def unnamed(self, table_id: str) -> Table:
        """Return a table by its id, even if it is not in the catalog. Raises UsageError for an invalid id."""
        if not is_id(table_id):
            raise Code.ARGUMENT_INVALID(f"not the id of a table: {shown(table_id)}")
        return self._made(table_id, table_id)

    def take_catalog_ahead(self, manifest: bytes | None) -> None:
        """Use the manifest of the catalog's checkpoint that was read while the instance was opened."""
        self._catalog.checkpoints.take_ahead(manifest)

    # -- within -------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> CatalogTable:
        check_text("name", name)
        registered = self._catalog.follow().named(name)
        if registered is None:
            known = f"{', '.join(self.tables()) or 'none yet'}{did_you_mean(name, self.tables())}"
            raise Code.TABLE_NOT_FOUND(f"no table named {name!r} at {self.url}; its tables: {known}", table=name)
        return registered

    def _handle(self, table_id: str, name: str) -> Table:
        with self._opening:
            if (table := self._tables.get(table_id)) is None:
                table = self._tables[table_id] = self._made(table_id, name)
            self._recent[table_id] = table
            self._recent.move_to_end(table_id)
            if len(self._recent) > TABLES_RECENT_MAX:
                self._recent.popitem(last=False)
            return table

    def _related(self, table_id: str) -> TableVersions:
        """Return the versions of a table with a name; no request."""
        return self._handle(table_id, self.known_tables().get(table_id) or table_id).versions

    def _defaults(self) -> dict[str, Any]:
        return dict(self._catalog.head.state.defaults)

    def _change(self, change: CatalogProposal, name: str) -> None:
        outcome = self._catalog.commit(change)
        if isinstance(outcome, NotCommitted) and outcome.code is Code.TABLE_EXISTS:
            raise _taken(name)
        version_of(outcome, name)


def finish_drop(table: Table) -> None:
    """Commit the last entry of the log of a table that is out of the catalog, unless it is there."""
    outcome = table.try_commit(DropTable())
    if not (isinstance(outcome, NotCommitted) and outcome.code is Code.TABLE_DROPPED):
        version_of(outcome, f"table {table.name}")


def _taken(name: str) -> Error:
    return Code.TABLE_EXISTS(f"a table named {name!r} exists already; choose another name or drop it first", table=name)


def table_in(name: str) -> str:
    """Return the table of a name in a statement: ``flights`` in ``flights$raw@12``."""
    return name.partition("@")[0].removesuffix(_RAW)
