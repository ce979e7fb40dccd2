"""The hook of a Lakebed connection: SQL by the Database API of Python, and the instance for all else.

Core type: :class:`LakebedHook`. The connection has the URL of an instance or of a service as its host, the token of a
service as its password, and in its extra ``storage_options``, ``memory_limit_bytes`` and ``timeout_s``.

Errors: AirflowException for a connection without a URL, or with an unknown extra; those of
:func:`lakebed.dbapi.connect`.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.sdk.exceptions import AirflowException

from lakebed import dbapi

OPTIONS = ("storage_options", "memory_limit_bytes", "timeout_s")
"""What the extra of a connection may have."""


class LakebedHook(DbApiHook):
    """A connection to an instance or a service, for the SQL operators of Airflow and for Python.

    Each statement is its own commit, so ``autocommit`` changes nothing. The parameters of a statement are ``?``.
    """

    conn_name_attr = "lakebed_conn_id"
    default_conn_name = "lakebed_default"
    conn_type = "lakebed"
    hook_name = "Lakebed"
    supports_executemany = True
    _placeholder = "?"

    @property
    def is_service(self) -> bool:
        """Whether the connection is to a service, which does its work itself."""
        return self._url.startswith(("http://", "https://"))

    def get_conn(self) -> dbapi.SqlConnection:
        """Return a new connection; close it. No request is made to a service before the first statement."""
        options = {name: value for name, value in self.connection_extra.items() if value not in (None, "", {})}
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise AirflowException(
                f"connection {self.get_conn_id()!r} has the extra {', '.join(unknown)}; it may have "
                f"{', '.join(OPTIONS)}"
            )
        return dbapi.connect(self._url, token=self.connection.password or None, **options)

    @contextmanager
    def instance(self) -> Iterator[Any]:
        """Return the :class:`lakebed.Instance`, or the same of a service, for the block."""
        with closing(self.get_conn()) as connection:
            yield connection.instance

    @property
    def _url(self) -> str:
        if not self.connection.host:
            raise AirflowException(
                f"connection {self.get_conn_id()!r} has no URL: give its host a path, s3://…, gs://…, az://…, or the "
                "http(s)://… of a service"
            )
        return str(self.connection.host)

    @staticmethod
    def _serialize_cell(cell: Any, conn: Any = None) -> Any:
        """Return a value of ``insert_rows`` as it is: the Database API takes values of Python."""
        return cell
