"""A log as items of a DynamoDB table: one table for the entries of all logs, of any number of instances.

    log (S, partition key), version (N, sort key), data (B), stored_us (N), parts (S)

``log`` is ``<instance id>/<prefix>``. A conditional put decides a race: a create is one ``PutItem`` with
``attribute_not_exists``. Every read is strongly consistent. The log start of a log is item 0 of ``<log>/log-start``,
raised by a conditional put over the bytes that were read.

*Large entries.* An item holds at most 400 KB. A longer entry is put as parts first, items of ``<log>/parts/<digest>``,
and its own item names that digest. Parts of an entry that lost its race, or of a writer that died, stay; nothing reads
them.

*Time.* DynamoDB last-modified times no item, but each response carries its clock in whole seconds. ``stored_us`` is
that clock, as it was at the last response plus the monotonic time since then, and never less than that of an entry
which this process has seen. It is off by about a second; no writer's wall clock is used.

:mod:`~lakebed.log.dynamodb.items` is the log, :mod:`~lakebed.log.dynamodb.client` the requests and what their errors
mean. Source: docs/decisions/0010 and 0031.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from lakebed.errors import Code
from lakebed.log.dynamodb.client import DynamoTable
from lakebed.log.dynamodb.items import DynamoLog, DynamoLogs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DynamoLog", "DynamoLogs", "connect_dynamodb"]

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}", re.ASCII)
_CREDENTIALS = {"access_key_id": "aws_access_key_id", "secret_access_key": "aws_secret_access_key"} | dict.fromkeys(
    ("session_token", "token"), "aws_session_token"
)


def connect_dynamodb(url: str, instance: str, storage_options: Mapping[str, str] | None = None) -> DynamoLogs:
    """The logs of an instance in the table at ``dynamodb://TABLE``, optionally with ``?region=…&endpoint_url=…``.

    Credentials come from the storage options (``aws_access_key_id`` …) or from boto3's usual chain. Nothing is read or
    written yet. Raises UsageError if the URL cannot mean a table, or holds credentials.
    """
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    if "@" in parts.netloc:
        raise Code.URL_HAS_CREDENTIALS("credentials do not belong into a dynamodb:// URL: give them as storage options")
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/") or parts.fragment:
        raise Code.URL_INVALID(f"{url!r} is not dynamodb://TABLE: 3 to 255 of A-Z a-z 0-9 _ . -")
    if set(query) - {"region", "endpoint_url"} or any(len(values) > 1 for values in query.values()):
        raise Code.URL_INVALID(f"{url!r}: a dynamodb:// URL takes region= and endpoint_url= only, once each")
    if "@" in urlsplit(query.get("endpoint_url", [""])[0]).netloc:
        raise Code.URL_HAS_CREDENTIALS("credentials do not belong into the endpoint of a dynamodb:// URL")
    given = {name.removeprefix("aws_"): text for name, text in (storage_options or {}).items()}
    options = {_CREDENTIALS[name]: text for name, text in given.items() if name in _CREDENTIALS}
    region = query["region"][0] if "region" in query else given.get("region")
    location = {"region_name": region, "endpoint_url": query.get("endpoint_url", [None])[0]}
    named = {name: text for name, text in (location | options).items() if text}
    return DynamoLogs(DynamoTable(parts.netloc, url, tuple(sorted(named.items()))), instance)
