"""An instance through a service, with the methods of :class:`lakebed.Instance`; :func:`lakebed.connect` opens it.

Core type: :class:`RemoteInstance`. Each method is one request or a few; nothing is cached, so an answer is as new as
what the service has read. Arguments are checked here if a request would otherwise be made for nothing.

Errors: those of the methods of the same name, as the service answers them; UsageError for what needs the store itself.
Source: docs/client.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from lakebed.errors import Code, ExistsError
from lakebed.model.checks import check_flag, check_index_fields, check_seconds, check_text, check_whole_number
from lakebed.model.key_type import Word
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.operations import operations_named
from lakebed.model.schema import check_same
from lakebed.model.wording import did_you_mean
from lakebed.read.snapshot.handles import TableNames
from lakebed.table.client.connection import missing, segment
from lakebed.table.client.remote_queries import RemoteQueries
from lakebed.table.client.remote_reads import rows_of
from lakebed.table.client.remote_table import RemoteTable
from lakebed.table.client.request_values import given, key_document

if TYPE_CHECKING:
    from lakebed.engine.statement_parameters import Parameters
    from lakebed.model.schema import Schema
    from lakebed.table.client.connection import Connection
    from lakebed.table.client.remote_rows import RemoteRows
    from lakebed.table.statement_run import ChangeReport


class RemoteInstance(RemoteQueries, TableNames[RemoteTable]):
    """An instance of a service. Safe to use from many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<lakebed instance through {self.url}>"

    def _repr_html_(self) -> str:
        """Return its tables with their figures, for notebooks: a request for each of the first ones."""
        from lakebed.table.client.remote_view import remote_instance_view

        return remote_instance_view(repr(self), self.tables(), self.described)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are idle."""
        self._connection.close()

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._connection.url

    # -- tables -------------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Return names of the tables that the caller may read, sorted."""
        return list(self._connection.ask("GET", "/v1/tables", reads=True)["tables"])

    def table(self, name: str) -> RemoteTable:
        """Return the table of that name. Raises NotFoundError if there is none."""
        check_text("name", name)
        names = self.tables()
        if name not in names:
            known = f"{', '.join(names) or 'none yet'}{did_you_mean(name, names)}"
            raise Code.TABLE_NOT_FOUND(f"no table named {name!r} at {self.url}; its tables: {known}", table=name)
        return RemoteTable(self._connection, name)

    def create_table(  # noqa: PLR0913 - as Instance.create_table
        self,
        name: str,
        schema: Schema,
        *,
        split_points: Iterable[Any] = (),
        settings: Mapping[str, Any] | None = None,
        online: bool = True,
        merge: MergeMode = KEEP_ALL,
        if_not_exists: bool = False,
    ) -> RemoteTable:
        """Make an empty table; the arguments are those of :meth:`lakebed.Instance.create_table`.

        With ``if_not_exists`` the schemas are compared, and not the merge modes, which a service does not show.
        """
        check_text("name", name)
        check_flag("online", online)
        check_flag("if_not_exists", if_not_exists)
        document: dict[str, Any] = {"name": name, "schema": schema.to_json(), "online": online}
        document["split_points"] = _points(split_points)
        document |= {"settings": dict(settings or {}), "merge": merge.document()}
        table = RemoteTable(self._connection, name)
        try:
            self._connection.ask("POST", "/v1/tables", document, reads=False)
        except ExistsError:
            if not if_not_exists:
                raise
            check_same(name, table.schema, schema)
        return table

    def rename_table(self, name: str, new_name: str, *, replace: bool = False) -> None:
        """Rename a table, with ``replace`` in place of one that has the name; no data are moved.

        Raises NotFoundError, ExistsError.
        """
        check_text("new_name", new_name)
        check_flag("replace", replace)
        self._change_table(name, {"name": new_name, **({"replace": True} if replace else {})})

    def drop_table(self, name: str) -> None:
        """Drop a table; every later use of it is refused. Raises NotFoundError."""
        self._connection.ask("DELETE", f"/v1/tables/{segment(name)}", reads=False)

    def is_online(self, name: str) -> bool:
        """Return whether splitting and compaction run on the table."""
        return bool(self.described(name)["online"])

    def set_online(self, name: str, online: bool) -> None:  # noqa: FBT001 - as Instance.set_online
        """Switch splitting and compaction of a table on or off."""
        check_flag("online", online)
        self._change_table(name, {"online": online})

    def create_view_table(  # noqa: PLR0913 - as Instance.create_view_table
        self,
        name: str,
        *,
        source: str,
        select: str,
        row_key: Sequence[str],
        sort_key: Sequence[str] = (),
        split_points: Iterable[Any] = (),
        settings: Mapping[str, Any] | None = None,
        merge: MergeMode = KEEP_ALL,
    ) -> RemoteTable:
        """Create a view of another table: ``select`` is SQL over the table ``source``."""
        check_text("name", name)
        document: dict[str, Any] = {"name": name, "source": source, "select": select, "row_key": list(row_key)}
        document |= {"sort_key": list(sort_key), "split_points": _points(split_points)}
        document |= {"settings": dict(settings or {}), "merge": merge.document()}
        self._connection.ask("POST", "/v1/views", document, reads=False)
        return RemoteTable(self._connection, name)

    def create_index(
        self,
        name: str,
        *,
        table: str,
        on: Sequence[str],
        include: None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> RemoteTable:
        """Make an index of the fields ``on`` of a table, which the service builds and refreshes."""
        check_text("name", name)
        check_index_fields(on, include)
        document = {"name": name, "table": table, "on": list(on), "settings": dict(settings or {})}
        self._connection.ask("POST", "/v1/indexes", document, reads=False)
        return RemoteTable(self._connection, name)

    def drop_index(self, name: str) -> None:
        """Drop an index; its table keeps its rows. Raises NotFoundError, and UsageError if it is no index."""
        self._connection.ask("DELETE", f"/v1/indexes/{segment(name)}", reads=False)

    def indexes(self, table: str) -> dict[str, list[str]]:
        """Return the indexes of a table by their names: their fields, in order. Raises NotFoundError."""
        found = self._connection.ask("GET", f"/v1/tables/{segment(table)}/indexes", reads=True)
        return {one["index"]: list(one["on"]) for one in found["indexes"]}

    def paused(self, name: str) -> frozenset[str]:
        """Return the operations of a table that are paused. Raises NotFoundError."""
        return frozenset(self.described(name)["paused"])

    def pause(self, name: str, *operations: str) -> None:
        """Pause operations of a table, by default all, until :meth:`resume`."""
        self._change_table(name, {"pause": sorted(operations_named(operations))})

    def resume(self, name: str, *operations: str) -> None:
        """Resume paused operations, by default all."""
        self._change_table(name, {"resume": sorted(operations_named(operations))})

    def described(self, name: str) -> dict[str, Any]:
        """Return the latest version of a table as the service describes it: `GET /v1/tables/{table}`.

        Raises NotFoundError.
        """
        return dict(self._connection.ask("GET", f"/v1/tables/{segment(name)}", reads=True))

    def _change_table(self, name: str, changes: dict[str, Any]) -> None:
        self._connection.ask("PATCH", f"/v1/tables/{segment(name)}", changes, reads=False)

    # -- queries ------------------------------------------------------------------------------------------------

    def sql(
        self,
        statement: str,
        *,
        parameters: Parameters | None = None,
        memory_limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> RemoteRows:
        """Return the rows of a query over the tables that the caller may read, by their names; a stream.

        ``parameters`` are as for :meth:`lakebed.Instance.sql`. It runs in a process of the service, within the
        service's limits, or these if they are lower.
        """
        from lakebed.engine.statement_parameters import with_parameters

        check_text("statement", statement)
        statement = with_parameters(statement, parameters)
        check_whole_number("memory_limit_bytes", memory_limit_bytes)
        check_seconds("timeout_s", timeout_s)
        document = {"statement": statement, "memory_limit_bytes": memory_limit_bytes, "timeout_s": timeout_s}
        return rows_of(self._connection, "/v1/sql", given(document))

    def execute(
        self,
        statement: str,
        *,
        parameters: Parameters | None = None,
        commit_id: str | None = None,
        memory_limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> ChangeReport:
        """Run a statement that changes something, as :meth:`lakebed.Instance.execute`; the caller's roles decide."""
        from lakebed.engine.statement_parameters import with_parameters
        from lakebed.table.statement_run import ChangeReport

        check_text("statement", statement)
        statement = with_parameters(statement, parameters)
        check_whole_number("memory_limit_bytes", memory_limit_bytes)
        check_seconds("timeout_s", timeout_s)
        limits = {"memory_limit_bytes": memory_limit_bytes, "timeout_s": timeout_s}
        document = {"statement": statement, "commit_id": commit_id, **limits}
        return ChangeReport(**self._connection.ask("POST", "/v1/sql/execute", given(document), reads=False))

    # -- settings -----------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, int | float]:
        """Return the instance's default of every setting."""
        return dict(self._connection.ask("GET", "/v1/settings", reads=True))

    def set(self, **changes: Any) -> None:
        """Change defaults for all tables that do not set their own; None restores Lakebed's default."""
        self._connection.ask("PATCH", "/v1/settings", changes, reads=False)

    named = missing("named", "use table, with its name")


def _points(split_points: Iterable[Any]) -> list[list[Word]]:
    return [key_document(point if isinstance(point, tuple | list) else (point,)) for point in split_points]
