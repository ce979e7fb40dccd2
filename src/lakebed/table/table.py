"""The handle of a table: write, administer, and read the latest version. Maintenance is done by the pipeline.

Reads are declared in :class:`~lakebed.read.snapshot.snapshot.Readable`. Each of them first probes the log for newer
entries (one request) unless ``max_staleness`` allows an older version. Writes of this process are always visible.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.committer import Log
from lakebed.model import settings
from lakebed.model.checks import check_request_key
from lakebed.model.files import table_prefix
from lakebed.model.row_filters import AgeOff, SetFilter
from lakebed.model.state.machine import TABLE
from lakebed.model.state.time_travel import check_tag
from lakebed.model.state.transactions import AlterSettings, ProposeSchema, RemoveTag, SetMerge, SetTag
from lakebed.model.state.transactions.schema_changes import check_changes
from lakebed.read.snapshot.handles import TableAddress
from lakebed.table.reopening import InstanceAddress
from lakebed.table.table_writes import TableWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from lakebed.log.backends.backend import LogLocation
    from lakebed.log.through_service import CommitService
    from lakebed.model.findings import Deep
    from lakebed.model.keys import KeyRange
    from lakebed.model.row_filters import FilterChange
    from lakebed.model.settings import Settings
    from lakebed.model.state.transactions.schema_changes import SchemaChange
    from lakebed.read.inspect.history import HistoryRow
    from lakebed.read.inspect.verification import VerificationReport
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.storage.contract import Storage
    from lakebed.table.tracker.recorder import Recorder
    from lakebed.write.requests import SubmitReport, WithdrawReport


class Table(TableWrites):
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
        address: InstanceAddress | None = None,
    ) -> None:
        prefix = table_prefix(table_id)
        through = None if commits is None else commits.of_table(table_id)
        log = Log(logs.open(prefix), CheckpointLocation(storage, prefix), table_id, TABLE, through)
        super().__init__(table_id, storage, log, None if address is None else TableAddress(address, table_id))
        self.name = name
        self._defaults = defaults
        self._tracker = tracker

    @cached_property
    def tracker(self) -> Recorder:
        """The recorder of job runs on this table in this process."""
        from lakebed.table.tracker.recorder import Recorder

        return Recorder(self.storage) if self._tracker is None else self._tracker()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as where the table is, by its id (:mod:`lakebed.table.reopening`)."""
        if self.reopening is None:
            raise TypeError(f"cannot pickle {self!r}: it belongs to no instance that can be opened again")
        return self.reopening.instance.table, (self.reopening.table_id,)

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r}{f' at version {self.version}' if self.version else ''}>"

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

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version, by default the latest, and keep it readable while the tag exists; returns the version.

        Raises:
            UsageError: the name is invalid.
            NotFoundError, NotRetainedError: the version does not exist, or is no longer retained.
            RejectedError: the tag exists at another version, or files of that version may be deleted.
        """
        target, stands = self._taggable(check_tag(name), version)
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

        schema, rows = changes(self, since, until, ranges=ranges, columns=columns, where=where)
        return returned_stream(rows, schema)

    def outcome(self, request_key: str) -> int | None:
        """Return the version at which a ``commit_id`` or ``job_id`` was committed; None: it was not, or has expired.

        After an unknown outcome None is not final: a commit in progress may still arrive. Repeat the call to settle it.
        """
        check_request_key("request_key", request_key)
        return self.state().answered(request_key)

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
