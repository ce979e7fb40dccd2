"""A table through a service: reads, writes, versions and settings, as :class:`lakebed.table.table.Table` has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.client.connection import ARROW, JSON, path_with, segment
from lakebed.client.missing import missing
from lakebed.client.remote_reads import RemoteReads
from lakebed.client.remote_rows import encoded
from lakebed.client.request_values import keys_document, moment_text
from lakebed.errors import Code
from lakebed.model.checks import check_seconds, check_whole_number
from lakebed.model.documents import load

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.client.connection import Connection
    from lakebed.ingest.requests import SubmitReport
    from lakebed.table.deletion import DeleteReport

HISTORY_MAX = 10_000
"""Transactions in one answer of the service."""


class RemoteSnapshot(RemoteReads):
    """A table at one version, through a service."""

    def __init__(self, connection: Connection, name: str, version: int) -> None:
        super().__init__(connection, name, str(version))
        self.version = version

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r} at version {self.version} at {self._connection.url}>"

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RemoteSnapshot:
        """This snapshot. Raises NotFoundError if ``at_least`` is a later version than its own."""
        check_seconds("max_staleness", max_staleness)
        check_whole_number("at_least", at_least)
        if at_least is not None and at_least > self.version:
            raise Code.VERSION_NOT_FOUND(
                f"at_least = {at_least}: this snapshot is of version {self.version}; read the table itself",
                version=at_least,
            )
        return self


class RemoteTable(RemoteReads):
    """A table of a connected instance. Every read is of the latest version that the service knows."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, name, None)

    def __repr__(self) -> str:
        return f"<lakebed table {self.name!r} at {self._connection.url}>"

    # -- versions -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The latest version; a request."""
        return self._version_at(None)

    def _version_at(self, at: str | None) -> int:
        """The version that a text means. Raises NotFoundError, NotRetainedError."""
        document = {"limit": 0} if at is None else {"limit": 0, "at": at}
        return int(self._connection.ask("POST", f"{self._path}/explain", document, reads=True)["version"])

    def at(
        self, *, version: int | None = None, time: datetime | str | None = None, tag: str | None = None
    ) -> RemoteSnapshot:
        """The table as it was after a version, at a time (of the store's clock), or at a tag; give one of them."""
        return RemoteSnapshot(self._connection, self.name, self._version_at(moment_text(version, time, tag)))

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RemoteSnapshot:
        """The latest version, which later changes do not alter."""
        check_seconds("max_staleness", max_staleness)
        if at_least is not None:
            self.get_many([], at_least=at_least)
        return RemoteSnapshot(self._connection, self.name, self.version)

    def tag(self, name: str, version: int | None = None) -> int:
        """Name a version, by default the latest, and keep it readable while the tag exists; returns the version."""
        check_whole_number("version", version)
        document = {} if version is None else {"version": version}
        return int(self._connection.ask("PUT", f"{self._path}/tags/{segment(name)}", document, reads=False)["version"])

    def untag(self, name: str) -> int:
        """Take a tag away; returns the version. Raises RejectedError if there is none of that name."""
        return int(self._connection.ask("DELETE", f"{self._path}/tags/{segment(name)}", reads=False)["version"])

    def tags(self) -> dict[str, int]:
        """The tags and the versions they stand at."""
        return dict(self._connection.ask("GET", f"{self._path}/tags", reads=True)["tags"])

    def history(self, limit: int | None = None) -> pa.Table:
        """One row a transaction, newest first: of at most the 10,000 last, or ``limit``."""
        from lakebed.inspect.history import HistoryRow, history_table

        check_whole_number("limit", limit)
        wanted = HISTORY_MAX if limit is None else min(limit, HISTORY_MAX)
        found = self._connection.ask("GET", path_with(f"{self._path}/history", {"limit": str(wanted)}), reads=True)
        names = {field.name for field in fields(HistoryRow)}
        rows = ({name: row[name] for name in names} for row in found["transactions"])
        return history_table(HistoryRow(**{**row, "time": datetime.fromisoformat(row["time"])}) for row in rows)

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

        Rows are sent as they are read, and committed when the last one has arrived: a call that fails before adds
        nothing. Raises UnknownOutcomeError if the service does not answer; repeat it with the same ``commit_id``.
        """
        from lakebed.ingest.python_data import open_stream

        check_whole_number("base_version", base_version)
        how: dict[str, Any] = {"commit_id": commit_id, "base_version": base_version}
        how |= {"partial": partial, "row_kind": row_kind, "casts": casts, "ignore_extra": ignore_extra}
        path = path_with(f"{self._path}/rows", how)
        rows = encoded(open_stream(data, lambda: self.schema).reader())
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
        """Delete the rows of some keys, or those of which a predicate is true; for tables that merge by Latest."""
        from lakebed.table.deletion import DeleteReport

        told: dict[str, Any] = {"keys": None if keys is None else keys_document(_key_tuples(keys)), "where": where}
        told |= {"commit_id": commit_id, "base_version": base_version}
        return DeleteReport(**self._connection.ask("POST", f"{self._path}/delete", self._told(told), reads=False))

    def submit(self, files: str | Path | Sequence[str | Path], *, again: bool = False) -> SubmitReport:
        """Record Parquet files, folders or globs, by URLs that the service may read, to be ingested later."""
        from lakebed.ingest.requests import Standing, SubmitReport, SubmittedFile

        given = [files] if isinstance(files, str | Path) else files
        document = {"files": [str(one) for one in given], "again": again}
        found = self._connection.ask("POST", f"{self._path}/requests", document, reads=False)
        submitted = (SubmittedFile(**{**one, "standing": Standing(one["standing"])}) for one in found["files"])
        return SubmitReport(found["table"], found["version"], tuple(submitted))

    # -- settings -----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, int | float]:
        """The value in force of every setting, by name."""
        return dict(self._connection.ask("GET", f"{self._path}/settings", reads=True))

    def set(self, **changes: Any) -> int:
        """Change settings of this table; None takes the instance's default again. Returns the latest version."""
        self._connection.ask("PATCH", f"{self._path}/settings", changes, reads=False)
        return self.version

    alter = missing("alter", "use `lakebed table alter`, or lakebed.open(url)")
    changes = missing("changes")
    failures = missing("failures")
    history_rows = missing("history_rows", "use history")
    outcome = missing("outcome", "repeat the write with its commit_id, which adds nothing twice")
    pin = missing("pin", "tag the version, and read it at the tag")
    remove = missing("remove", "use `lakebed remove`, or lakebed.open(url)")
    requests = missing("requests")
    restore = missing("restore", "use `lakebed restore`, or lakebed.open(url)")
    verify = missing("verify", "use `lakebed verify`, or lakebed.open(url)")
    withdraw = missing("withdraw")


def _key_tuples(keys: Any) -> Any:
    """Keys of Arrow data as tuples, and any others as they are."""
    import pyarrow as pa

    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return keys.to_pylist()
    if hasattr(keys, "__arrow_c_stream__"):
        table = pa.table(keys)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return keys
