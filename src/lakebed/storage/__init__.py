"""Stores of objects: every byte that Lakebed writes or reads passes through one.

:func:`connect` opens the store of a URL; :mod:`lakebed.storage.contract` specifies what a store promises. Other
packages use object names, never paths or requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lakebed.errors import Code
from lakebed.model.checks import check_text, shown
from lakebed.storage.contract import Listed, Locality, PutOutcome, Storage, Stored, check_name
from lakebed.storage.local import LocalStorage, user_path
from lakebed.storage.probe import check_conditional_puts, keeps_replace_if

if TYPE_CHECKING:
    from lakebed.storage.clients import Clients
    from lakebed.storage.disk_cache import DiskCache

__all__ = [
    "Listed",
    "LocalStorage",
    "Locality",
    "PutOutcome",
    "Storage",
    "Stored",
    "check_conditional_puts",
    "check_name",
    "connect",
    "is_store",
    "keeps_replace_if",
]

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "memory": "memory"}

CACHE_DIR, CACHE_BYTES = "cache_dir", "cache_bytes"
"""The options for the cache on local disk. A variable says the same to processes that are given no option."""
_CACHE_VARIABLES = {CACHE_DIR: "LAKEBED_CACHE_DIR", CACHE_BYTES: "LAKEBED_CACHE_BYTES"}

_memories: dict[str, Clients] = {}
_memories_lock = threading.Lock()


def connect(url: str | Path, storage_options: Mapping[str, str] | None = None) -> Storage:
    """Return the store at a root URL: ``file:///…``, a path, ``s3://bucket/prefix``, ``gs://…``, ``az://…``,
    ``memory://name``.

    Connecting reads and writes nothing. In a process, ``memory://`` stores with equal names are one store. With the
    options ``cache_dir`` and ``cache_bytes``, or the variables ``LAKEBED_CACHE_DIR`` and ``LAKEBED_CACHE_BYTES``, an
    object store has a cache on local disk.

    Raises:
        UsageError: the scheme is unknown, the URL holds a password or a query, or an option is unknown.
    """
    if not isinstance(url, Path):
        check_text("url", url)
    options = _checked_options(storage_options)
    if isinstance(url, Path) or "://" not in url:
        return _local(str(url), options)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Code.URL_INVALID(f"not a URL: {shown(url)} ({error})") from error
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise Code.URL_HAS_CREDENTIALS(
            f"a URL must not contain credentials ({parts.scheme}://...@{parts.netloc.rpartition('@')[2]}): give "
            "them as storage options, or in the environment"
        )
    if parts.query or parts.fragment:
        raise Code.URL_INVALID(f"a root URL has no query and no fragment: {parts.scheme}://{parts.netloc}{parts.path}")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise Code.URL_INVALID(f"{url} names a host: write file:/// and an absolute path")
        return _local(unquote(parts.path), options)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None:
        known = ", ".join(f"{name}://" for name in ("file", *sorted(set(_SCHEMES.values()))))
        served = ". A service is opened by lakebed.connect, in Python" if parts.scheme in ("http", "https") else ""
        raise Code.URL_SCHEME_UNKNOWN(
            f"unknown scheme {parts.scheme}:// in {url}: use a path or one of {known}{served}", scheme=parts.scheme
        )
    return _remote(scheme, parts.netloc, parts.path.strip("/"), options)


def is_store(url: str) -> bool:
    """Return whether :func:`connect` opens URLs of this scheme, or paths."""
    scheme, separator, _ = url.partition("://")
    return not separator or scheme == "file" or scheme in _SCHEMES


def is_object_store(url: str) -> bool:
    """Return whether a URL is that of S3, Google Cloud Storage or Azure."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and _SCHEMES.get(scheme, "memory") != "memory"


def _checked_options(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Code.ARGUMENT_INVALID(
            "storage options must map names to strings, such as {'region': 'eu-west-1'}, not be a "
            f"{type(given).__name__}"
        )
    return dict(given)


def _local(path: str, options: dict[str, str]) -> Storage:
    if options:
        raise Code.OPTION_UNKNOWN(
            f"storage option {min(options)!r} is not supported on local disk; files on another store are opened as the "
            "variables of its provider say, such as AWS_ENDPOINT_URL",
            option=min(options),
        )
    if not path or "\0" in path:
        raise Code.URL_INVALID(f"{path!r} is not a path")
    return LocalStorage(user_path(path))


def _remote(scheme: str, bucket: str, prefix: str, options: dict[str, str]) -> Storage:
    from lakebed.storage.clients import open_clients
    from lakebed.storage.object_store import ObjectStorage

    if not bucket:
        raise Code.URL_INVALID(f"{scheme}:// needs a {'name' if scheme == 'memory' else 'bucket'}: {scheme}://name")
    if prefix:
        check_name(prefix)
    url = f"{scheme}://{bucket}/{prefix}" if prefix else f"{scheme}://{bucket}"
    if scheme != "memory":
        cache = cache_of(options)
        return ObjectStorage(url, prefix, open_clients(scheme, bucket, without_cache(options)), cache=cache)
    if options:
        raise Code.OPTION_UNKNOWN(f"storage option {min(options)!r} is not supported in memory", option=min(options))
    return ObjectStorage(url, prefix, _memory(bucket), locality=Locality.MEMORY)


def cache_folder(options: Mapping[str, str]) -> str:
    """Return the folder of the cache that options or variables choose; "": none."""
    return options.get(CACHE_DIR, os.environ.get(_CACHE_VARIABLES[CACHE_DIR], ""))


def without_cache(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the client of the store, which knows no cache."""
    return {name: text for name, text in options.items() if name not in _CACHE_VARIABLES}


def cache_of(options: Mapping[str, str]) -> DiskCache | None:
    """Return the cache that options or variables choose; None: there is none.

    Raises UsageError for a folder that is no path, and a bound that is no number of bytes.
    """
    folder = cache_folder(options)
    if not folder:
        return None
    from lakebed.storage.disk_cache import BYTES_MAX, DiskCache

    if not isinstance(folder, str | Path):
        raise Code.ARGUMENT_INVALID(f"{CACHE_DIR} = {shown(folder)}: must be the path of a folder", option=CACHE_DIR)
    text = str(options.get(CACHE_BYTES) or os.environ.get(_CACHE_VARIABLES[CACHE_BYTES]) or BYTES_MAX)
    if not (text.isascii() and text.isdecimal()):
        raise Code.ARGUMENT_INVALID(
            f"{CACHE_BYTES} = {shown(text)}: must be a whole number of bytes, such as {BYTES_MAX}", option=CACHE_BYTES
        )
    return DiskCache(user_path(folder).absolute(), int(text))


def _memory(name: str) -> Clients:
    from obstore.store import MemoryStore

    from lakebed.storage.clients import Clients

    with _memories_lock:
        if name not in _memories:
            store = MemoryStore()
            _memories[name] = Clients(store, lambda: store, runtime=None)
        return _memories[name]
