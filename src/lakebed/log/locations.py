"""Open the logs of an instance by URL, and record the URLs to which the user has agreed.

Logs are kept on a store, in PostgreSQL or DynamoDB, or where an installed package keeps them. A package declares the
schemes of its URLs as entry points of the group ``lakebed.log_backends``
(:class:`~lakebed.log.backends.backend.OpenLogs`).

``instance.json`` may name a separate location for the log, chosen by the program that wrote the object. Opening the
instance would then connect to a host that the user never chose, with the credentials in the user's environment. So the
first connection needs the user's agreement, which is kept in ``lakebed/log_urls.json`` of the user's configuration
folder (``XDG_CONFIG_HOME``, by default ``~/.config``), a JSON object from the instance's root URL to its log URL.

A log in the same bucket as the data, or both on local disk, needs no agreement: no other host is reached.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.checks import check_text
from lakebed.model.documents import load
from lakebed.model.foreign_errors import installed_function, optional_imports
from lakebed.storage import connect, is_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.log.backends.backend import LogLocation, OpenLogs
    from lakebed.storage.contract import Storage

GROUP = "lakebed.log_backends"
"""The entry points by which installed packages supply log backends: the scheme of a URL, and what opens it."""


def connect_logs(
    url: str | None, storage: Storage, instance: str, *, storage_options: Mapping[str, str] | None = None
) -> LogLocation:
    """Return the logs of an instance: at a separate URL, or (None) in the store of its data.

    The URL is one of a store, ``postgresql://…``, ``dynamodb://TABLE``, or of a scheme that an installed package
    supplies; the storage options are for stores of the data's kind, and the credentials in them for other backends.
    Nothing is read or written yet.

    Raises:
        UsageError: as :func:`lakebed.storage.connect` does; or the URL of another backend holds a password, or its
            package is not installed or cannot be loaded.
    """
    if url is None:
        return ObjectLogs(storage)
    check_text("log_url", url)
    if (open_logs := _backend_of(url)) is not None:
        return open_logs(url, instance, storage_options or {})
    from lakebed.storage.external import options_for

    return ObjectLogs(connect(url, options_for(url, storage.url, storage_options or {})))


def _backend_of(url: str) -> OpenLogs | None:
    """Return what opens the logs at a URL; None: they are objects of a store."""
    scheme, _, rest = url.partition(":")
    with optional_imports():
        if scheme == "postgresql":
            from lakebed.log.backends.postgresql import connect_postgresql

            return connect_postgresql
        if scheme == "dynamodb":
            from lakebed.log.backends.dynamodb import connect_dynamodb

            return connect_dynamodb
    if scheme == "sqlite":
        raise Code.URL_SCHEME_UNKNOWN(
            f"log_url = {url!r}: logs in SQLite are not supported. On one machine leave log_url out, which keeps the "
            "log on local disk; for many commits a second use postgresql://host/database",
            log_url=url,
        )
    if is_store(url):
        return None
    # The URL is stored in the instance.
    if "@" in rest and urlsplit(url).password is not None:
        raise Code.URL_HAS_CREDENTIALS(f"{scheme}:// URLs are stored and must not contain a password")
    return installed_function(GROUP, scheme, "log backend", Code.URL_SCHEME_UNKNOWN)


def check_trusted(root_url: str, log_url: str | None, given: str | None, *, trusted: bool) -> None:
    """Raise UsageError unless the user has agreed to the log URL of the instance at ``root_url``.

    ``given`` is the log URL that the caller expects; ``trusted`` accepts whichever the instance names.
    """
    if given is not None and given != log_url:
        location = "beside its data" if log_url is None else f"at {log_url}"
        raise Code.LOG_URL_MISMATCH(
            f"log_url = {given!r}: the instance at {root_url} keeps its log {location}; correct log_url, or leave it "
            "out",
            log_url=log_url,
        )
    if log_url is None or _is_same_store(root_url, log_url):
        return
    if _remembered().get(root_url) == log_url:
        return
    if given is None and not trusted:
        raise Code.LOG_URL_UNTRUSTED(
            f"the instance at {root_url} keeps its log at {log_url}, and to open it is to connect there with your "
            f"credentials. If that is right, open it once with log_url={log_url!r} (or trust_log_url=True; in a shell "
            f"--log-url {log_url}); it is remembered in {_path()}",
            log_url=log_url,
        )
    remember(root_url, log_url)


def remember(root_url: str, log_url: str) -> None:
    """Note that the user has chosen this log URL. Without a writable home, the next open raises again."""
    known = _remembered()
    if known.get(root_url) == log_url:
        return
    path = _path()
    temporary = path.with_name(f".{path.name}-{random_token()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps(known | {root_url: log_url}, indent=1, sort_keys=True) + "\n", "utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _is_same_store(root_url: str, log_url: str) -> bool:
    return _store(root_url) == _store(log_url)


def _store(url: str) -> tuple[str, str]:
    if "://" not in url:
        return ("file", "")
    parts = urlsplit(url)
    return (parts.scheme, "" if parts.scheme == "file" else parts.netloc)


def _path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path("~/.config").expanduser()) / "lakebed" / "log_urls.json"


def _remembered() -> dict[str, str]:
    try:
        known = load(_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in known.items() if isinstance(v, str)} if isinstance(known, dict) else {}
