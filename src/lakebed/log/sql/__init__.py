"""A log as rows of an SQL database: one table for the entries of all logs, of any number of instances.

    lakebed_entries (log, version, data, stored), primary key (log, version)

``log`` is ``<instance id>/<prefix>``. The primary key is what decides a race: :meth:`SqlLog.create` is one INSERT
in a transaction of its own. ``stored`` is the database's clock, so that no writer's clock is ever compared.
The log start of a log is a row of ``<log>/log-start``.

:mod:`~lakebed.log.sql.rows` is what both databases have in common, :mod:`~lakebed.log.sql.sqlite` and
:mod:`~lakebed.log.sql.postgresql` are what they have not: how to connect, what makes them durable, and what their
errors mean. Only this package knows SQLAlchemy and psycopg. Source: docs/decisions/0010.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from lakebed.errors import Code
from lakebed.log.sql.rows import SqlLog, SqlLogs

__all__ = ["SqlLog", "SqlLogs", "connect_sql"]


def connect_sql(url: str, instance: str) -> SqlLogs:
    """The logs of an instance in the database at ``sqlite:///<absolute path>`` or ``postgresql://…``.

    Nothing is read or written yet.

    Raises:
        UsageError: the URL holds a password or cannot mean a database.
        ModuleNotFoundError: psycopg, which ``postgresql://`` needs, is not installed.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from lakebed.log.sql.sqlite import Sqlite

        return SqlLogs(Sqlite.at(url), instance)
    if scheme == "postgresql":
        from lakebed.log.sql.postgresql import Postgresql

        return SqlLogs(Postgresql.at(url), instance)
    raise Code.URL_SCHEME_UNKNOWN(
        f"no database is known by {scheme}://: use sqlite:/// or postgresql://", scheme=scheme
    )
