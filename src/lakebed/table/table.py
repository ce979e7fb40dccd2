"""The handle of a table: write, administer, and read the latest version. Maintenance is done by the pipeline.

Core type: :class:`Table`. Its reads are those of :class:`~lakebed.read.snapshot.snapshot.Readable`, at the version
that its :class:`~lakebed.read.snapshot.versions.TableVersions` chooses: each first probes the log for newer entries
(one request) unless ``max_staleness`` allows an older version. Writes of this process are always visible. Every other
method makes a call into :mod:`lakebed.write` or a module beside this one, which it imports itself, so that a process
which only reads does not load what it does not need.

Errors: those that each method names. An unknown outcome of a commit is an error too, and the same commit id can be
given again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.log import Log
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model import settings
from lakebed.model.checks import check_request_key
from lakebed.model.files import table_prefix
from lakebed.model.row_filters import AgeOff, SetFilter
from lakebed.model.state.machine import TABLE
from lakebed.model.state.migration_keys import migrated_as
from lakebed.model.state.time_travel import check_tag
from lakebed.model.state.transactions import AlterSettings, ProposeRestore, ProposeSchema, RemoveTag, SetMerge, SetTag
from lakebed.model.state.transactions.schema_changes import check_changes
from lakebed.read.snapshot.handles import TableAddress
from lakebed.read.snapshot.snapshot import Readable, Snapshot
from lakebed.read.snapshot.versions import TableVersions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from lakebed.files.parquet.layout import Layout
    from lakebed.log.backends.backend import LogLocation
    from lakebed.log.outcomes import Outcome
    from lakebed.log.through_service import CommitService
    from lakebed.model.findings import Deep
    from lakebed.model.keys import KeyRange
    from lakebed.model.row_filters import FilterChange
    from lakebed.model.schema import Schema
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal
    from lakebed.model.state.transactions.schema_changes import SchemaChange
    from lakebed.read.inspect.history import HistoryRow
    from lakebed.read.inspect.verification import VerificationReport
    from lakebed.read.rows.reader import Reader
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.handles import Address
    from lakebed.storage.contract import Storage
    from lakebed.table.deletion import DeleteReport
    from lakebed.table.prefix_choice import Choose
    from lakebed.table.tracker.recorder import Recorder
    from lakebed.write.requests import SubmitReport, WithdrawReport


class Table(Readable):
    """One table of an instance; made by :meth:`Instance.table` and :meth:`Instance.create_table`.

    Safe to use from many threads.
    """

    def __init__(  # noqa: PLR0913 - what a table is made of
        self,
        table_id: str,
        name: str,
        storage: Storage,
        logs: LogLocation,
        defaults: Callable[[], dict[str, Any]],
        *,
        commits: CommitService | None = None,
        tracker: Callable[[], Recorder] | None = None,
        address: Address | None = None,
        related: Callable[[str], TableVersions] | None = None,
    ) -> None:
        prefix = table_prefix(table_id)
        through = None if commits is None else commits.of_table(table_id)
        log = Log(logs.open(prefix), CheckpointLocation(storage, prefix), table_id, TABLE, through)
        self.id = table_id
        self.name = name
        """The table's name when the handle was made."""
        self.storage = storage
        self.log = log
        self.versions = TableVersions(
            table_id,
            storage,
            log,
            lambda: self.settings_in_force().memory_limit_bytes,
            None if address is None else TableAddress(address, table_id),
            related=related,
        )
        self._get = self.versions.get
        self._defaults = defaults
        self._tracker = tracker

    @cached_property
    def tracker(self) -> Recorder:
        """The recorder of job runs on this table in this process."""
        from lakebed.table.tracker.recorder import Recorder

        return Recorder(self.storage) if self._tracker is None else self._tracker()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as where the table is, by its id (:mod:`lakebed.table.opening`)."""
        reopening = self.versions.reopening
        if reopening is None:
            raise TypeError(f"cannot pickle {self!r}: it belongs to no instance that can be opened again")
        return reopening.instance.table, (reopening.table_id,)

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r}{f' at version {self.version}' if self.version else ''}>"

    # -- the latest version -------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The latest version known to this process; no request."""
        return self.log.head.version

    @property
    def schema(self) -> Schema:
        """The latest schema known to this process."""
        return (self.log.head.state if self.log.head.version else self.state()).created

    @property
    def reader(self) -> Reader:
        """The reader of data files."""
        return self.versions.reader

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> Snapshot:
        """Return the latest version as a value; ``max_staleness`` and ``at_least`` are as for :meth:`get`."""
        return self.versions.snapshot(max_staleness, at_least)

    def state(self, max_staleness: float | None = None, at_least: int | None = None) -> TableState:
        """Return the latest state; ``max_staleness`` and ``at_least`` are as for :meth:`get`.

        Raises NotFoundError if the version does not come within ten seconds.
        """
        return self.versions.state(max_staleness, at_least)

    def base_state(self) -> TableState:
        """Return a recent state as the base of a write. It may lack commits of this process through a service."""
        return self.versions.base_state()

    # -- rows in ------------------------------------------------------------------------------------------------

    def write(  # noqa: PLR0913 - public parameters
        self,
        data: Any,
        *,
        commit_id: str | None = None,
        base_version: int | None = None,
        partial: bool = False,
        row_kind: str | None = None,
        casts: str | Sequence[str] = "lossless",
        ignore_extra: bool = False,
    ) -> int:
        """Add all rows of ``data`` in one commit; returns the version from which on they are visible.

        ``data`` is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, a dataset of PyArrow, a frame of
        pandas or Polars (lazy too), a relation of DuckDB, a dict of lists, a list or generator of dicts, dataclasses,
        Pydantic models or batches, or files: a path, URL, folder or glob of Parquet, CSV, TSV, JSON lines, Arrow IPC or
        ORC, or a list of them. It may have any length and order; only lists of rows are held in memory.

        Columns are matched by name with the latest schema known to this process; a nullable field may be missing. If
        the setting ``schema_growth`` is ``add``, other columns become nullable fields in the same commit; with
        ``ignore_extra`` they are ignored. Rows that fit that schema are accepted even if another process has altered
        the table since. A write without rows makes no log entry.

        Values of another type are converted if the conversion is lossless: the int64 or float 5 fits into an int32
        field. Otherwise the write is refused with the first such value and its row. Text is parsed as numbers or times
        only with ``casts="text"``, or ``casts=["amount", …]`` for these fields; then integers and dates are also
        converted to text, and times without a zone are in UTC. Files without types (CSV, JSON lines) are read as the
        table's types.

        Rows with equal keys are merged by the table's merge mode, in the order of ``data``. With :class:`Latest` a
        write is an upsert; with ``partial``, columns that ``data`` lacks keep the values of older rows. ``row_kind``
        names a column with the kind of each row, in the letters of Debezium (``c``, ``r``, ``u``, ``d``) or Paimon
        (``+I``, ``+U``, ``-D``; rows of kind ``-U`` are ignored).

        ``commit_id`` makes the write idempotent: a repeat, from any process, adds nothing and returns the version of
        the first commit. Commit ids are remembered for ``log_s``. To repeat a write later than that, pass the
        :attr:`version` from before the first call as ``base_version`` to every call: a repeat that is too old to be
        checked then raises UnknownOutcomeError and adds nothing. The default is the version when the call begins.

        Raises:
            UsageError: an invalid id or base version; ``partial`` or ``row_kind``, but the table does not merge by
                Latest; data that cannot be read as rows, such as a pandas frame whose index has a name.
            NotFoundError: a file does not exist.
            SchemaMismatchError: a column is unknown, missing but not nullable, of a type that cannot be converted
                losslessly, or null in a key; it holds a value that its type does not allow, such as text that is not
                UTF-8; the name or type of a new column is not allowed; a row kind is unknown; or an aggregate is too
                large.
            BadKeyError: a key is too long.
            RejectedError, ContentionError: nothing was added; write again. A write is rejected if it took longer than
                ``orphan_age_s`` and orphans were deleted meanwhile, or if it reaches more than two million partitions.
            UnknownOutcomeError: it may have been added; repeat it with the same ``commit_id``.
        """
        from lakebed.write.row_encoder import Operation
        from lakebed.write.run import Write, add

        operation = Operation.of(partial, row_kind)
        write = Write(commit_id, base_version, operation, casts=casts, ignore_extra=ignore_extra)
        return add(self, data, write).version

    def delete(
        self,
        keys: Any = None,
        *,
        where: str | None = None,
        commit_id: str | None = None,
        base_version: int | None = None,
    ) -> DeleteReport:
        """Delete the rows of some keys, in one commit; for tables that merge by :class:`Latest`.

        ``keys`` are as :meth:`get_many` takes them; whether they have rows is not looked up. If the table merges by
        ``Latest(by="sort_key")``, give an Arrow table with the sort key columns too: a delete hides the rows of a key
        up to that sort key, but no row with a greater one, whenever it is written.

        ``where`` is a predicate as for :meth:`scan`: the rows for which it is true are found in the latest version, and
        their keys deleted. A row that is written meanwhile is never lost: if one may have such a key, the search is
        repeated, at most ten times.

        Older versions and tags still show the rows; :meth:`remove` removes whole key ranges. ``commit_id``
        and ``base_version`` are as for :meth:`write`.

        Raises as :meth:`write`, and:
            UsageError: keys and a predicate, or neither; an invalid predicate.
            BadKeyError: a key does not fit.
            ContentionError: nothing was deleted, because the keys that the predicate finds were written repeatedly.
        """
        from lakebed.table.deletion import delete
        from lakebed.write.run import Write

        return delete(self, keys, where, Write(commit_id, base_version))

    def remove(
        self,
        *ranges: KeyRange,
        prefix: Any = None,
        choose: Choose | None = None,
        depth: int | None = None,
        fence: bool = False,
    ) -> int:
        """Remove all rows with a key in any of the ranges, atomically; returns the version. Moves no data.

        ``prefix`` names keys by the values of the first row key fields: a value, a tuple of several, or a list of
        prefixes. ``choose`` is a function of :meth:`prefixes` at ``depth``: it returns a boolean for each of them, or
        the prefixes to remove, as a list or as an Arrow table. If it chooses none, or the list is empty, nothing is
        committed, and the latest version is returned.

        Older versions and tags still show the rows, and :meth:`restore` brings them back. Files that also hold other
        rows keep their bytes until they are compacted. Log order decides: rows committed later are kept; rows committed
        before, even while ``choose`` ran, are removed. With a ``fence``, writes and compactions that began earlier are
        refused if the key bounds of one of their files overlap a range, even if no row is inside.

        Raises:
            UsageError: nothing to remove is given (for all rows pass ``KeyRange()``); ``choose`` without ``depth`` or
                together with ranges or prefixes, or it returns something else, such as too many booleans.
            BadKeyError: a range is inverted, or values do not fit the key.
            RejectedError: no key can lie in the ranges, such as ``KeyRange(a, a)``; nothing was removed.
            ContentionError: nothing was removed.
            UnknownOutcomeError: it may have been done; repeat it.
        """
        from lakebed.read.rows.summaries import removal
        from lakebed.table.prefix_choice import check_choice, chosen_ranges, ranges_of

        snapshot = self.snapshot()
        going = [snapshot.schema.codec.encode_range(one) for one in ranges]
        if prefix is not None:
            going += ranges_of(prefix, snapshot.schema)
        check_choice(choose, depth, named=bool(ranges) or prefix is not None)
        if choose is not None and depth is not None:
            going = chosen_ranges(snapshot.prefixes(depth), choose, snapshot.schema)
        if not going and (prefix is not None or choose is not None):
            return snapshot.version
        return self.commit(removal(snapshot.state, snapshot.reader, self.storage, going, fence=fence))

    def restore(
        self,
        moment: int | datetime | str | None = None,
        /,
        *,
        version: int | None = None,
        time: datetime | str | None = None,
        tag: str | None = None,
    ) -> int:
        """Restore the rows of a version, a time or a tag; returns the new version.

        One commit, which moves no data. Everything written since is undone, but stays readable at its own version, so a
        restore can be undone by another. If the rows are already in the same files and partitions, nothing is
        committed. Give one of the three arguments, as for :meth:`at`.

        Schema, settings and tags do not change: fields that were dropped since are not shown, fields that were added
        are null. Commit ids and submitted files stay recorded: a repeat of a write that was undone adds nothing, and
        returns the version of the first. Running compactions of partitions that change are closed.

        Raises:
            NotFoundError: the tag does not exist; or the version or time is in the future, or before the table was
                created.
            NotRetainedError: files of that version are deleted, or will be. A tag retains a version.
            ContentionError: nothing was restored.
            UnknownOutcomeError: it may have been done; repeat it.
        """
        return self.commit(ProposeRestore(self.at(moment, version=version, time=time, tag=tag).state))

    # -- requests -----------------------------------------------------------------------------------------------

    def submit(self, files: str | Path | Sequence[str | Path], *, again: bool = False) -> SubmitReport:
        """Record Parquet files, folders, globs or URLs as requests, which the pipeline ingests later.

        A file is identified by its URL, size and version. A file that is open, was ingested within ``log_s``, or
        is older than that, is submitted again only with ``again``; the report lists such files.

        Raises:
            NotFoundError: a path or glob matches nothing.
            UsageError: there is no file, a file is named twice, is a device or a pipe, or does not end as Parquet does.
            RejectedError: too many requests are open; nothing was submitted.
            ContentionError, UnknownOutcomeError: submit them again; files that are already recorded are skipped.
        """
        from lakebed.write.requests import submit

        return submit(self.log, self.name, files, again=again, home=self.storage)

    def withdraw(self, *requests: str) -> WithdrawReport:
        """Withdraw open requests, by their ids or the URLs of their files; they may be submitted again.

        Raises NotFoundError, and withdraws none, if any of them is not open.
        """
        from lakebed.write.requests import withdraw

        return withdraw(self.log, self.name, requests)

    # -- what there is ------------------------------------------------------------------------------------------

    def requests(self) -> pa.Table:
        """Return a row per request: open requests, then the last rejected ones, with the reason of the last failure."""
        from lakebed.write.requests import requests_table

        return requests_table(self.state(), self.log.last_modified_or_epoch)

    # -- versions and tags -------------------------------------------------------------------------------------------

    def at(
        self,
        moment: int | datetime | str | None = None,
        /,
        *,
        version: int | None = None,
        time: datetime | str | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Return the table as it was after a version, at a time (of the store's clock), or at a tag; give one of them.

        ``moment`` is any of them, in a text as after the ``@`` of a table in SQL: ``at(12)``, ``at("audited")``.
        A date is its midnight in UTC, unless a tag has its name. ``time`` is aware, or ISO 8601 with an offset, or a
        date. Reads the log up to there, from its checkpoint if that is older.
        A time after the newest entry means the latest version. One to come is waited for, at most ten seconds.

        Raises:
            NotFoundError: no such tag; a version or time that is not there yet, or before the table was; a dropped
                table.
            NotRetainedError: files of that version may be deleted; names the versions that are kept.
        """
        return self.versions.at(moment, version=version, time=time, tag=tag)

    def pin(self, version: int | None = None) -> AbstractContextManager[Snapshot]:
        """A snapshot, of the latest version or an older one, that stays readable to the end of the ``with`` block.

        Garbage collection does not touch its files: for exports, and for queries that may outlive the setting
        ``history_s``. Costs an object, rewritten every 20 minutes. If that fails for so long, reads raise
        NotRetainedError.

        Raises:
            NotFoundError, NotRetainedError: the version does not exist yet, or is not retained; lists those that are;
                or the table was dropped.
            ContentionError: collections kept overtaking; try again.
        """
        return self.versions.pin(version)

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version, by default the latest, and keep it readable while the tag exists; returns the version.

        Raises:
            UsageError: the name is invalid.
            NotFoundError, NotRetainedError: the version does not exist, or is no longer retained.
            RejectedError: the tag exists at another version, or files of that version may be deleted.
        """
        target, stands = self.versions.taggable(check_tag(name), version)
        if not stands:
            self.commit(SetTag(name, target))
        return target

    def untag(self, name: str) -> int:
        """Remove a tag; returns the version. Raises RejectedError if there is none of that name."""
        check_tag(name)
        return self.commit(RemoveTag(name))

    def tags(self) -> dict[str, int]:
        """Return the tags and their versions."""
        return dict(sorted(self.state().tags.items()))

    # -- what happened ------------------------------------------------------------------------------------------

    def changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        ranges: Sequence[KeyRange] = (),
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> RowStream:
        """Return the changes of the versions after ``since`` up to ``until``, by default the latest.

        Each is a version (0: before the first), a time, or a text that names one of these or a tag, as for ``--at``.
        The rows have the columns ``_version``, ``_change`` and ``_range``, and then those of the table at ``until``, or
        ``columns`` of them. They are ordered by version; within a version removed ranges come first, then rows in key
        order. ``_change`` is one of:

        * ``insert``, ``delete``: the row was added, or deleted.
        * ``update_before``, ``update_after``: the old and the new row of a key, in this order, in tables that have one
          row for each key.
        * ``remove_range``: all rows with a key in ``_range`` (JSON) were removed; the columns of the table are null.

        Applied in this order to the rows at ``since``, they give the rows at ``until``. Compactions, splits and joins
        change no rows. ``ranges`` and ``where`` restrict the feed to rows with keys in the ranges for which the
        predicate is true. Memory is bounded as for :meth:`scan`.

        Raises:
            NotFoundError: a version, time or tag does not exist.
            NotRetainedError: ``since`` is older than :attr:`earliest_retained_version` of the error, the earliest
                version from which changes can be read. Also while the stream is read, if it takes longer than
                ``history_s``.
            UsageError, BadKeyError: as :meth:`scan`; ``until`` is older than ``since``; or a column of the table has
                the name of one of these three columns.
        """
        from lakebed.read.changes.feed import changes
        from lakebed.read.rows.row_stream import returned_stream

        schema, rows = changes(self.versions, since, until, ranges=ranges, columns=columns, where=where)
        return returned_stream(rows, schema)

    def outcome(self, request_key: str) -> int | None:
        """Return the version at which a ``commit_id`` or ``job_id`` was committed; None: it was not, or has expired.

        After an unknown outcome None is not final: a commit in progress may still arrive. Repeat the call to settle it.
        """
        check_request_key("request_key", request_key)
        state = self.state()
        answered = state.answered(request_key)
        return migrated_as(state, request_key) if answered is None else answered

    def history(self, limit: int | None = None) -> pa.Table:
        """Return one row per transaction, newest first, with writer and time (by the store's clock). Reads ``limit``
        entries.

        Raises UsageError for an invalid limit, DamagedError for a damaged entry.
        """
        from lakebed.read.inspect.history import history_table

        return history_table(self.history_rows(limit))

    def history_rows(self, limit: int | None = None) -> Iterator[HistoryRow]:
        """Return the same as a stream of values; entries are read lazily."""
        from lakebed.read.inspect.history import history_rows

        return history_rows(self.log, self.id, limit)

    def failures(self) -> pa.Table:
        """Return the calls of pipelines and services that failed within ``jobs_kept_s``, newest first, with reasons."""
        from lakebed.table.tracker.listing import failures_table, read_failures

        self.tracker.flush()
        return failures_table(read_failures(self.storage, self.id))

    def verify(self, *, files: bool = False, deep: bool | Deep = False) -> VerificationReport:
        """Check that the log is complete and matches its checkpoint and, with ``files``, that all objects exist.

        ``deep`` also reads every data file and summary, ``Deep(share=0.05)`` some of them. Findings are returned as
        values.
        """
        from lakebed.read.inspect.verification import checked_arguments, verify

        return verify(self.log, self.id, self.name, *checked_arguments(self.storage, files, deep))

    def settings(self) -> dict[str, int | float]:
        """Return the value in force of every setting, by name."""
        self.state()
        in_force = self.settings_in_force()
        return {name: getattr(in_force, name) for name in settings.NAMES}

    def settings_in_force(self) -> Settings:
        """Return the same as one value, from the newest known state: no request after the table was read once."""
        return settings.in_force(self._defaults(), (self.log.head.state if self.version else self.state()).settings)

    def set(self, **changes: Any) -> int:
        """Change settings of this table; None restores the instance's default. Returns the version."""
        return self.commit(AlterSettings(settings.validate(changes)))

    def alter(self, *changes: SchemaChange | SetMerge | FilterChange) -> int:
        """Change the schema by values such as :class:`AddField`, in order, all or none; returns the version.

        No file is rewritten: existing rows are read with the new schema. A single :class:`SetMerge`
        changes the merge mode of a table without rows. A :class:`SetFilter`, an :class:`AgeOff` or both change which
        rows are visible: at once for all reads from this version on. Compaction drops hidden rows for good.

        Raises:
            UsageError: not AddField, DropField, RenameField, WidenField or AllowNulls values, or none; values of
                several kinds together; a filter that is not a predicate over a row, or an age-off by a field that is
                not a time.
            RejectedError: the latest schema, or the merge mode, does not allow one of the changes; the message says
                which and why.
        """
        match changes:
            case (SetMerge() as change,):
                from lakebed.table.creation import checked_mode

                checked_mode(change.mode, self.schema)
                return self.commit(change)
            case (SetFilter() | AgeOff(), *_):
                from lakebed.table.filter_choice import proposed_filter

                return self.commit(proposed_filter(changes, self.schema, self.log.now()))
            case _:
                from lakebed.table.creation import check_query_fits

                proposal = ProposeSchema(check_changes(changes))
                check_query_fits(proposal, self.state())
                return self.commit(proposal)

    # -- commits --------------------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """Return the layout of new data files of this table."""
        from lakebed.files.parquet.layout import Layout

        return Layout.of(self.schema, self.settings_in_force())

    def try_commit(self, proposal: Proposal) -> Outcome:
        """Propose a change to the table's state; the outcome is a value.

        Raises UnsupportedFormatError if the table requires a feature that this Lakebed does not know: no later attempt
        of it can succeed either.
        """
        from lakebed.write.run import try_commit

        outcome = try_commit(self, proposal)
        if isinstance(outcome, NotCommitted) and outcome.code is Code.FORMAT_TOO_NEW:
            raise outcome.error(f"table {self.name}")
        return outcome

    def commit(self, proposal: Proposal) -> int:
        """As :meth:`try_commit`, but returns the version, and raises an error for any other outcome.

        Raises RejectedError, ContentionError, UnknownOutcomeError: see their docstrings.
        """
        return version_of(self.try_commit(proposal), f"table {self.name}")
