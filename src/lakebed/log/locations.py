"""Where the logs of an instance are kept, by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.log.objects import ObjectLogs
from lakebed.model.checks import check_text
from lakebed.model.foreign_errors import extras
from lakebed.storage import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.log.backend import LogLocation
    from lakebed.storage.contract import Storage

_SQL = ("sqlite:", "postgresql:")


def connect_logs(
    url: str | None, storage: Storage, instance: str, *, storage_options: Mapping[str, str] | None = None
) -> LogLocation:
    """Where an instance keeps its logs: at a URL of their own, or (None) in the store that holds its data.

    The URL is one of a store, ``sqlite:////path``, ``postgresql://…`` or ``dynamodb://TABLE``; the storage options are
    for stores of the data's kind, and their credentials for DynamoDB. Nothing is read or written yet.

    Raises:
        UsageError: as :func:`lakebed.storage.connect` does; or a database's URL holds a password, or its driver is not
            installed.
    """
    if url is not None:
        check_text("log_url", url)
    if url is not None and url.startswith(_SQL):
        return _connect_sql(url, instance)
    if url is not None and url.startswith("dynamodb:"):
        return _connect_dynamodb(url, instance, storage_options)
    if url is None:
        return ObjectLogs(storage)
    from lakebed.storage.external import options_for

    return ObjectLogs(connect(url, options_for(url, storage.url, storage_options or {})))


def _connect_sql(url: str, instance: str) -> LogLocation:
    with extras():
        from lakebed.log.sql import connect_sql

        return connect_sql(url, instance)


def _connect_dynamodb(url: str, instance: str, storage_options: Mapping[str, str] | None) -> LogLocation:
    with extras():
        from lakebed.log.dynamodb import connect_dynamodb

        return connect_dynamodb(url, instance, storage_options)
