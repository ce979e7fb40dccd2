"""The part of a table's handle that adds, deletes, removes and restores rows, each call in one commit.

Core type: :class:`TableWrites`. The work is done in :mod:`lakebed.write` and in modules that are imported by the call
that needs them, so that a process which only reads does not load them. Errors: those that each method names; an
unknown outcome is an error too, and the same commit id can be given again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.log.outcomes import version_of
from lakebed.model.state.transactions import ProposeRestore
from lakebed.read.snapshot.table_reads import TableReads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakebed.files.parquet.layout import Layout
    from lakebed.log.outcomes import Outcome
    from lakebed.model.keys import KeyRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.transactions import Proposal
    from lakebed.table.deletion import DeleteReport
    from lakebed.table.prefix_choice import Choose


class TableWrites(TableReads):
    """Writes of one process to one table. Safe to use from many threads."""

    name: str
    """The table's name when the handle was made."""

    @property
    def version(self) -> int:
        """The latest version known to this process; no request."""
        return self.log.head.version

    @property
    def schema(self) -> Schema:
        """The latest schema known to this process."""
        return (self.log.head.state if self.log.head.version else self.state()).created

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
        from lakebed.write.operation import Operation
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

    def layout(self) -> Layout:
        """Return the layout of new data files of this table."""
        from lakebed.files.parquet.layout import Layout

        return Layout.of(self.schema, self.settings_in_force())

    def try_commit(self, proposal: Proposal) -> Outcome:
        """Propose a change to the table's state; the outcome is a value."""
        from lakebed.write.send import try_commit

        return try_commit(self, proposal)

    def commit(self, proposal: Proposal) -> int:
        """As :meth:`try_commit`, but returns the version, and raises an error for any other outcome.

        Raises RejectedError, ContentionError, UnknownOutcomeError: see their docstrings.
        """
        return version_of(self.try_commit(proposal), f"table {self.name}")
