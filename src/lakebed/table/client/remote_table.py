"""A table through a service: reads, writes, versions and settings, as :class:`lakebed.table.table.Table` has them.

Core types: :class:`RemoteTable`, and :class:`RemoteSnapshot`, whose reads all name one version. Each method is one
request, checked here before it is sent. What needs the store itself, as registering the table with an engine, is a
method that raises and says what to use instead.

Errors: those of the methods of the same name, as the service answers them; UsageError without a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_request_key, check_seconds, check_whole_number
from lakebed.model.documents import load
from lakebed.model.keys import KeyCodec
from lakebed.model.state.time_travel import is_day
from lakebed.table.client.connection import ARROW, JSON, missing, path_with, refused, segment
from lakebed.table.client.remote_reads import RemoteReads, names_document, rows_of
from lakebed.table.client.remote_rows import encoded
from lakebed.table.client.request_values import end_document, keys_document, moment_text, ranges_document

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.keys import KeyRange
    from lakebed.model.row_filters import FilterChange
    from lakebed.model.state.transactions import SetMerge
    from lakebed.model.state.transactions.schema_changes import SchemaChange
    from lakebed.read.drawing.pictures import Picture
    from lakebed.read.inspect.history import HistoryRow
    from lakebed.read.inspect.verification import VerificationReport
    from lakebed.table.client.connection import Connection
    from lakebed.table.client.remote_rows import RemoteRows
    from lakebed.table.deletion import DeleteReport
    from lakebed.table.prefix_choice import Choose
    from lakebed.write.requests import SubmitReport, WithdrawReport

HISTORY_MAX = 10_000
"""Transactions in one answer of the service."""


class RemoteSnapshot(RemoteReads):
    """A table at one version, through a service."""

    def __init__(self, connection: Connection, name: str, version: int) -> None:
        super().__init__(connection, name, str(version))
        self._version = version

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r} at version {self.version} at {self._connection.url}>"

    @property
    def version(self) -> int:
        """The version of the table that this snapshot shows."""
        return self._version

    def _repr_html_(self) -> str:
        """Return its figures, key space and fields, for notebooks; a few requests that read no rows."""
        from lakebed.table.client.remote_view import remote_table_view

        return remote_table_view(repr(self), self)

    def plot_partitions(self) -> Picture:
        """Return the key space as SVG, as :meth:`lakebed.Table.plot_partitions` draws it. Raises AccessError."""
        from lakebed.table.client.remote_view import remote_partitions_picture

        return remote_partitions_picture(self)

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RemoteSnapshot:
        """Return this snapshot. Raises NotFoundError if ``at_least`` is a later version than its own."""
        check_seconds("max_staleness", max_staleness)
        check_whole_number("at_least", at_least)
        if at_least is not None and at_least > self.version:
            raise Code.VERSION_NOT_FOUND(
                f"at_least = {at_least}: this snapshot is of version {self.version}; read the table itself",
                version=at_least,
            )
        return self


class RemoteTable(RemoteReads):
    """A table of a connected instance. Every read uses the latest version that the service has read."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, name, None)

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r} at {self._connection.url}>"

    def _repr_html_(self) -> str:
        """Return its figures, key space and fields, for notebooks; a few requests that read no rows."""
        from lakebed.table.client.remote_view import remote_table_view

        return remote_table_view(repr(self), self)

    def plot_partitions(self) -> Picture:
        """Return the key space of the latest version as SVG. Raises AccessError."""
        return self.snapshot().plot_partitions()

    # -- versions -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The latest version; a request."""
        return self._version_at(None)

    def _version_at(self, at: str | None) -> int:
        """Return the version for a text. Raises NotFoundError, NotRetainedError."""
        document = {"limit": 0} if at is None else {"limit": 0, "at": at}
        return int(self._connection.ask("POST", f"{self._path}/explain", document, reads=True)["version"])

    def at(
        self,
        moment: int | datetime | str | None = None,
        /,
        *,
        version: int | None = None,
        time: datetime | str | None = None,
        tag: str | None = None,
    ) -> RemoteSnapshot:
        """Return the table as it was after a version, at a time (of the store's clock), or at a tag; give one of them,
        by name or as ``moment``.
        """
        return RemoteSnapshot(
            self._connection, self.name, self._version_at(self._moment_text(moment, version, time, tag))
        )

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RemoteSnapshot:
        """Return a snapshot of the latest version."""
        check_seconds("max_staleness", max_staleness)
        if at_least is not None:
            self.get_many([], at_least=at_least)
        return RemoteSnapshot(self._connection, self.name, self.version)

    def _moment_text(self, moment: Any, version: int | None, time: datetime | str | None, tag: str | None) -> str:
        """Return a moment as one text. Raises NotFoundError for a tag that is missing and has the name of a date: the
        service would take the text for a time.
        """
        text = moment_text(moment, version, time, tag)
        if is_day(tag) and tag not in self.tags():
            raise Code.TAG_NOT_FOUND(f"the table has no tag {tag!r}; give a date without tag=", tag=tag)
        return text

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version, by default the latest, and keep it readable while the tag exists; returns the version."""
        check_whole_number("version", version)
        document = {} if version is None else {"version": version}
        return int(self._connection.ask("PUT", f"{self._path}/tags/{segment(name)}", document, reads=False)["version"])

    def untag(self, name: str) -> int:
        """Remove a tag; returns the version. Raises RejectedError if there is none of that name."""
        return int(self._connection.ask("DELETE", f"{self._path}/tags/{segment(name)}", reads=False)["version"])

    def tags(self) -> dict[str, int]:
        """Return the tags and their versions."""
        return dict(self._connection.ask("GET", f"{self._path}/tags", reads=True)["tags"])

    def history(self, limit: int | None = None) -> pa.Table:
        """Return one row per transaction, newest first; at most the last 10,000, or ``limit``."""
        from lakebed.read.inspect.history import history_table

        return history_table(self.history_rows(limit))

    def history_rows(self, limit: int | None = None) -> Iterator[HistoryRow]:
        """Return the same as values."""
        from lakebed.read.inspect.history import HistoryRow

        check_whole_number("limit", limit)
        wanted = HISTORY_MAX if limit is None else min(limit, HISTORY_MAX)
        found = self._connection.ask("GET", path_with(f"{self._path}/history", {"limit": str(wanted)}), reads=True)
        return iter(convert(found["transactions"], list[HistoryRow]))

    def changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        ranges: Sequence[KeyRange] = (),
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> RemoteRows:
        """Return the changes of the versions after ``since`` up to ``until``, by default the latest; a stream."""
        moments = {
            "since": end_document("since", since),
            "until": None if until is None else end_document("until", until),
        }
        which = {"ranges": ranges_document(ranges), "columns": names_document(columns), "where": where}
        return rows_of(self._connection, f"{self._path}/changes", self._request({**moments, **which}))

    def outcome(self, request_key: str) -> int | None:
        """Return the version at which a ``commit_id`` or ``job_id`` was committed; None: it was not, or has expired."""
        check_request_key("request_key", request_key)
        found = self._connection.ask("GET", f"{self._path}/outcomes/{segment(request_key)}", reads=True)["version"]
        return None if found is None else int(found)

    def restore(
        self,
        moment: int | datetime | str | None = None,
        /,
        *,
        version: int | None = None,
        time: datetime | str | None = None,
        tag: str | None = None,
    ) -> int:
        """Restore the rows of a version, a time or a tag; returns the new version."""
        return self._change("restore", {"at": self._moment_text(moment, version, time, tag)})

    def failures(self) -> pa.Table:
        """Return the calls of pipelines and services that failed within ``jobs_kept_s``, newest first, with reasons."""
        return self._listed("failures")

    def verify(self, *, files: bool = False, deep: Any = False) -> VerificationReport:
        """Check that the log is complete and matches its checkpoint and, with ``files``, that all objects exist.

        ``deep`` is refused, because it may take longer than a request is allowed to.
        """
        from lakebed.read.inspect.verification import VerificationReport

        check_flag("files", files)
        if deep is not False:
            raise refused("deep of verify", "use `lakebed verify --deep` beside the store, or lakebed.open(url)")
        return convert(self._ask("verify", {"files": files}), VerificationReport)

    # -- changes ------------------------------------------------------------------------------------------------

    def write(  # noqa: PLR0913 - what users say of a write
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

        Rows are sent as they are read, and committed when the last one has arrived: a call that fails earlier adds
        nothing. Raises UnknownOutcomeError if the service does not answer; repeat it with the same ``commit_id``.
        """
        from lakebed.write.python_data import open_stream
        from lakebed.write.run import TEXT

        check_whole_number("base_version", base_version)
        how: dict[str, Any] = {"commit_id": commit_id, "base_version": base_version}
        how |= {"partial": partial, "row_kind": row_kind, "casts": casts, "ignore_extra": ignore_extra}
        path = path_with(f"{self._path}/rows", how)
        cast = self.schema.names if casts == TEXT else () if isinstance(casts, str) else casts
        rows = encoded(open_stream(data, lambda: self.schema, casts=cast).reader())
        answer = self._connection.send("POST", path, rows, ARROW, JSON, reads=False, streamed=False)
        return int(load(answer.data)["version"])

    def delete(
        self,
        keys: Any = None,
        *,
        where: str | None = None,
        commit_id: str | None = None,
        base_version: int | None = None,
    ) -> DeleteReport:
        """Delete the rows of some keys, or those for which a predicate is true; for tables that merge by Latest."""
        from lakebed.table.deletion import DeleteReport

        request: dict[str, Any] = {"keys": None if keys is None else keys_document(_key_tuples(keys)), "where": where}
        request |= {"commit_id": commit_id, "base_version": base_version}
        found = self._connection.ask("POST", f"{self._path}/delete", self._request(request), reads=False)
        return convert(found, DeleteReport)

    def remove(
        self,
        *ranges: KeyRange,
        prefix: Any = None,
        choose: Choose | None = None,
        depth: int | None = None,
        fence: bool = False,
    ) -> int:
        """Remove all rows with a key in any of the ranges, or with any of the prefixes; returns the version."""
        from lakebed.table.prefix_choice import check_choice, chosen_ranges

        check_flag("fence", fence)
        check_choice(choose, depth, named=bool(ranges) or prefix is not None)
        prefixes = None
        if choose is not None and depth is not None:
            schema = self.schema
            chosen = chosen_ranges(self.prefixes(depth), choose, schema)
            columns = KeyCodec(schema.row_key[:depth]).decode_columns([one.min for one in chosen]).columns
            prefixes = keys_document(list(zip(*(column.to_pylist() for column in columns), strict=True)))
        elif prefix is not None:
            prefixes = keys_document(prefix if isinstance(prefix, list) else [prefix])
        return self._change("remove", {"ranges": ranges_document(ranges), "prefixes": prefixes, "fence": fence})

    def submit(self, files: str | Path | Sequence[str | Path], *, again: bool = False) -> SubmitReport:
        """Record Parquet files, folders or globs, by URLs that the service may read, to be ingested later."""
        from lakebed.write.requests import SubmitReport

        given = [files] if isinstance(files, str | Path) else files
        document = {"files": [str(one) for one in given], "again": again}
        return convert(self._connection.ask("POST", f"{self._path}/requests", document, reads=False), SubmitReport)

    def withdraw(self, *requests: str) -> WithdrawReport:
        """Withdraw open requests, by their ids or the URLs of their files; they may be submitted again."""
        from lakebed.write.requests import WithdrawReport

        document = {"requests": list(requests)}
        found = self._connection.ask("POST", f"{self._path}/requests/withdraw", document, reads=False)
        return convert(found, WithdrawReport)

    def requests(self) -> pa.Table:
        """Return a row per request: open requests, then the last rejected ones, with the reason of the last failure."""
        import pyarrow as pa

        from lakebed.write.requests import SCHEMA

        rows = self._connection.ask("GET", f"{self._path}/requests", reads=True)["requests"]
        times = [None if row["time"] is None else datetime.fromisoformat(row["time"]) for row in rows]
        return pa.Table.from_pylist([{**row, "time": t} for row, t in zip(rows, times, strict=True)], schema=SCHEMA)

    # -- schema and settings ------------------------------------------------------------------------------------

    def settings(self) -> dict[str, int | float]:
        """Return the value in force of every setting, by name."""
        return dict(self._connection.ask("GET", f"{self._path}/settings", reads=True))

    def set(self, **changes: Any) -> int:
        """Change settings of this table; None restores the instance's default. Returns the latest version."""
        self._connection.ask("PATCH", f"{self._path}/settings", changes, reads=False)
        return self.version

    def alter(self, *changes: SchemaChange | SetMerge | FilterChange) -> int:
        """Change the schema, the merge mode, or which rows are visible; returns the version."""
        from lakebed.model.state.change_documents import change_document

        return self._change("alter", {"changes": [to_builtins(change_document(change)) for change in changes]})

    pin = missing("pin", "tag the version, and read it at the tag")

    def _change(self, what: str, document: dict[str, Any]) -> int:
        """Change the table; the version."""
        return int(
            self._connection.ask("POST", f"{self._path}/{what}", self._request(document), reads=False)["version"]
        )


def _key_tuples(keys: Any) -> Any:
    """Return keys of Arrow data as tuples, and any others as they are."""
    import pyarrow as pa

    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()
    if hasattr(keys, "__arrow_c_stream__"):
        table = pa.table(keys)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return keys
