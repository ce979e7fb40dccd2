"""SQL over the tables of an instance, by their names.

A name in a statement is that of a table, optionally with a suffix for an old version or for its rows before any merge.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakebed.model import settings
from lakebed.model.checks import check_seconds, check_text, check_whole_number
from lakebed.read.snapshot.handles import TableNames
from lakebed.table.table import Table

if TYPE_CHECKING:
    from lakebed.engine.statement_parameters import Parameters
    from lakebed.model.state.catalog import CatalogState, CatalogTable
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.read.sql.limited import LimitedRows
    from lakebed.read.sql.query import SqlEngine
    from lakebed.storage.contract import Storage

_RAW = "$raw"


class InstanceQueries(TableNames[Table]):
    """An instance as statements read it. Safe to use from many threads."""

    def __init__(self, storage: Storage, storage_options: Mapping[str, str] | None, log_url: str | None) -> None:
        self.storage = storage
        self.storage_options = dict(storage_options or {})
        self.log_url = log_url
        self._sql: SqlEngine | None = None

    @property
    def url(self) -> str:
        """The root URL."""
        return str(self.storage.url)

    @property
    def location(self) -> dict[str, Any]:
        """The arguments of :func:`lakebed.open` in a process that reads the instance."""
        return {"url": self.url, "storage_options": self.storage_options, "log_url": self.log_url}

    @abstractmethod
    def catalog(self) -> CatalogState:
        """Return the latest catalog."""

    @abstractmethod
    def opened(self, found: CatalogTable) -> Table:
        """Return the handle of a table of the catalog."""

    @abstractmethod
    def _defaults(self) -> dict[str, Any]:
        """Return the known settings of the instance, without a request."""

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


def table_in(name: str) -> str:
    """Return the table of a name in a statement: ``flights`` in ``flights$raw@12``."""
    return name.partition("@")[0].removesuffix(_RAW)
