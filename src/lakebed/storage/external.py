"""Finds, lists and reads files of the user under any name, and never writes them.

On S3, Google Cloud Storage and Azure through obstore, with the storage options of the instance if both are on the same
kind of store, else with those of the environment and profiles. On other systems (HDFS) through Arrow.

Rules. A file has one identity (:func:`identity_of`), however its path is spelt and through whatever links it is
reached. Links are followed; a listing has each folder and each file once, under its own name if that is below the
folder.
"""

from __future__ import annotations

import io
import os
import posixpath
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakebed.errors import Code
from lakebed.storage.client_errors import explained, is_missing_root, scrubbed
from lakebed.storage.clients import Clients, allow_http, listed_objects, open_clients
from lakebed.storage.local import user_path

if TYPE_CHECKING:
    from pyarrow import fs as pafs

    from lakebed.storage.contract import Storage

_KINDS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az"}
"""Scheme of a URL -> kind of store."""

_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A file or folder. ``regular``: it can be read more than once (not a device, pipe or socket). ``identity`` is that
    of :func:`identity_of`.
    """

    path: str
    size_bytes: int
    modified_ns: int
    etag: str | None = None
    is_folder: bool = False
    regular: bool = True
    identity: str = ""


Below = Callable[[tuple[str, ...]], frozenset[int]]
"""What is wanted below a folder, by the names of the path to it from the listed one: nothing if empty, and the same
files if equal."""


def everything(_: tuple[str, ...]) -> frozenset[int]:
    """Return that all files below any folder are wanted."""
    return frozenset({0})


class ExternalFiles(Protocol):
    """One file system or bucket. Paths begin with the bucket. Methods raise StorageError or OSError if it fails."""

    def look(self, path: str) -> ExternalFile | None:
        """Return the file or folder at a path; None if there is none."""

    def below(self, folder: str, wanted: Below = everything) -> Iterator[ExternalFile]:
        """Return the files below a folder, at least those that are wanted; nothing if it does not exist."""

    def open(self, path: str) -> Any:
        """Open a file as an Arrow file. Raises NotFoundError or FileNotFoundError."""


def kind_of(url: str | Path) -> str:
    """Return the kind of store of a URL: ``s3``, ``gs`` or ``az``; any other scheme unchanged; ``file`` for a path."""
    scheme, separator, _ = str(url).partition("://")
    return _KINDS.get(scheme.lower(), scheme) if separator else "file"


def identity_of(url: str | Path, path: str) -> str:
    """Return the same text for every spelling of the place of a file: its URL, and its path in the store of that URL.

    Of a local file, it is the path without links. Raises UsageError for what is no path.
    """
    kind = kind_of(url)
    if "\0" in path:
        raise Code.URL_INVALID(f"{path!r} is not a path")
    return os.path.realpath(path) if kind == "file" else f"{kind}://{posixpath.normpath(path)}"


def options_for(url: str | Path, home: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a URL: those of the instance at ``home`` if both are on one kind of store, else none."""
    return dict(options) if kind_of(url) == kind_of(home) else {}


def options_of(url: str, home: Storage) -> dict[str, str]:
    """Return the options for reading a file at the URL; ``home`` is the store of the instance."""
    return options_for(url, home.url, getattr(getattr(home, "clients", None), "options", {}))


def library_options(url: str, home: Storage) -> dict[str, str]:
    """As :func:`options_of`, for a library with the same client that does not allow plain HTTP by default."""
    options = options_of(url, home)
    allowed: dict[str, str] = {}
    allow_http(kind_of(url), options, allowed)
    return options | allowed


def open_external(uri: str, home: Storage | None = None) -> tuple[ExternalFiles, str]:
    """Open the file system or bucket of a path or URI, and return it with the path in it. ``home`` is the store of the
    instance.

    Raises UsageError for a URI that is malformed or has credentials; StorageError if a setting of the store is missing.
    """
    from pyarrow import fs as pafs

    if "\0" in uri:
        raise Code.URL_INVALID(f"not a path or URI: {uri!r}", name=uri)
    if kind_of(uri) == "file":
        path = user_path(local_path(uri)).absolute()
        # One path for each file, whatever the working directory.
        return LocalFiles(), str(path.resolve() if ".." in path.parts else path)
    bucket = urlsplit(uri.replace("?", "%3F").replace("#", "%23")).netloc
    if "@" in bucket:
        raise Code.URL_HAS_CREDENTIALS(
            f"a URL must not contain credentials ({scrubbed(uri)}): give them as storage options of the "
            "instance, in the environment or in a profile"
        )
    kind = kind_of(uri)
    if kind in _KINDS.values():
        if not bucket:
            raise Code.URL_INVALID(f"{uri} has no bucket", name=uri)
        given = {} if home is None else options_of(uri, home)
        return ObjectFiles(f"{kind}://{bucket}", _clients(kind, bucket, given)), uri.partition("://")[2].rstrip("/")
    if kind in ("http", "https"):
        raise Code.URL_INVALID(
            f"cannot read from {uri}: files of web servers are not fetched; download it (curl -fLO {uri}) and name the "
            "file, or pipe it (curl -fL … | lakebed write TABLE -)",
            name=uri,
        )
    try:
        system, path = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError) as error:
        raise Code.URL_INVALID(f"cannot read from {uri}: {error}", name=uri) from error
    return ArrowFiles(system), path


def absolute(item: str) -> str:
    """Return a path as an absolute path; a URL as it is."""
    return item if "://" in item else str(user_path(item).absolute())


def local_path(url: str) -> str:
    """Return the path of a URL of a local file, and a path as it is. Raises UsageError for a URL of another host."""
    if "://" not in url:
        return url
    host, _, path = url.partition("://")[2].partition("/")
    if host not in ("", "localhost"):
        raise Code.URL_INVALID(f"cannot read from {url}: {host} is another host, not a folder: file:///…", name=url)
    return unquote(f"/{path}")


class LocalFiles:
    """The disk of this machine."""

    def look(self, path: str) -> ExternalFile | None:
        """Return the file or folder at a path; None if there is none."""
        try:
            return _of_status(path, os.path.realpath(path), Path(path).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def below(self, folder: str, wanted: Below = everything) -> Iterator[ExternalFile]:
        """Return the files below a folder, at least those that are wanted; nothing if it does not exist.

        What is reached through links comes last. A folder is listed once for the same files wanted below it, so that
        one that is linked into itself has an end.
        """
        listed: set[tuple[str, frozenset[int]]] = set()
        folders, links = [_Place(folder, os.path.realpath(folder), ())], deque[_Place]()
        while folders or links:
            place = folders.pop() if folders else links.popleft()
            found = self.look(place.path)
            if found is not None and not found.is_folder and place.names:
                yield found
            key = (place.real, wanted(place.names))
            if found is None or not found.is_folder or not key[1] or key in listed:
                continue
            listed.add(key)
            with os.scandir(place.path) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    inside = _Place(entry.path, f"{place.real.rstrip('/')}/{entry.name}", (*place.names, entry.name))
                    if entry.is_symlink():
                        links.append(replace(inside, real=os.path.realpath(entry.path)))
                    elif entry.is_dir():
                        folders.append(inside)
                    else:
                        # A file that a program of its own removed meanwhile is none.
                        with suppress(FileNotFoundError):
                            yield _of_status(entry.path, inside.real, entry.stat())

    def open(self, path: str) -> Any:
        """Open a file as an Arrow file."""
        from pyarrow import fs as pafs

        return pafs.LocalFileSystem().open_input_file(path)


@dataclass(frozen=True, slots=True)
class _Place:
    """A local file or folder: its path without links, and the names of the path to it from the listed folder."""

    path: str
    real: str
    names: tuple[str, ...]


def _of_status(path: str, real: str, status: os.stat_result) -> ExternalFile:
    folder = stat.S_ISDIR(status.st_mode)
    regular = folder or stat.S_ISREG(status.st_mode)
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return ExternalFile(path, size, status.st_mtime_ns, None, folder, regular, real)


class ArrowFiles:
    """A file system that Arrow supports."""

    def __init__(self, system: pafs.FileSystem) -> None:
        self.system = system

    def look(self, path: str) -> ExternalFile | None:
        """Return the file or folder at a path; None if there is none."""
        return self._found(self.system.get_file_info(path))

    def below(self, folder: str, wanted: Below = everything) -> Iterator[ExternalFile]:  # noqa: ARG002 - lists all
        """Return all files below a folder; nothing if it does not exist."""
        from pyarrow import fs as pafs

        selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
        found = map(self._found, self.system.get_file_info(selector))
        return (one for one in found if one is not None and not one.is_folder)

    def open(self, path: str) -> Any:
        """Open a file as an Arrow file."""
        return self.system.open_input_file(path)

    def _found(self, info: Any) -> ExternalFile | None:
        from pyarrow import fs as pafs

        if info.type == pafs.FileType.NotFound:
            return None
        folder = info.type == pafs.FileType.Directory
        size = info.size if isinstance(info.size, int) and info.size >= 0 else 0
        regular = folder or (info.is_file and isinstance(info.size, int))
        identity = identity_of(f"{self.system.type_name}://", info.path)
        return ExternalFile(info.path, size, info.mtime_ns or 0, None, folder, regular, identity)


class ObjectFiles:
    """The objects of a bucket or container."""

    def __init__(self, root: str, clients: Clients) -> None:
        self._root = root
        self._bucket = root.partition("://")[2]
        self._clients = clients

    def look(self, path: str) -> ExternalFile | None:
        """Return the object or folder at a path; None if there is none. A folder is a prefix of objects."""
        import obstore

        key = self._key(path)
        if key:
            with explained("read", self._url(path)):
                try:
                    return self._found(obstore.head(self._clients.retrying, key))
                except FileNotFoundError as error:
                    if is_missing_root(error):
                        raise
                except ValueError as error:
                    raise Code.URL_INVALID(
                        f"cannot read {self._url(path)}: a key with an empty part, '.' or '..' has no file ({error})",
                        name=self._url(path),
                    ) from error
        return ExternalFile(path, 0, 0, is_folder=True) if next(self.below(path), None) is not None else None

    def below(self, folder: str, wanted: Below = everything) -> Iterator[ExternalFile]:  # noqa: ARG002 - lists all
        """Return every object below a folder."""
        return map(self._found, listed_objects(self._clients, self._key(folder), self._url(folder)))

    def open(self, path: str) -> Any:
        """Open an object as an Arrow file that makes a request for each read."""
        found = self.look(path)
        if found is None or found.is_folder:
            raise Code.SOURCE_NOT_FOUND(f"no file {self._url(path)}", name=self._url(path))
        file = _ObjectFile(self._clients.retrying, self._key(path), found.size_bytes, self._url(path))
        return pa.PythonFile(file, mode="r")

    def _found(self, meta: Any) -> ExternalFile:
        modified_ns = int(meta["last_modified"].timestamp()) * 1_000_000_000
        path = f"{self._bucket}/{meta['path']}"
        return ExternalFile(path, meta["size"], modified_ns, meta["e_tag"], identity=identity_of(self._root, path))

    def _key(self, path: str) -> str:
        return path.partition("/")[2]

    def _url(self, path: str) -> str:
        return f"{self._root}/{self._key(path)}"


class _ObjectFile(io.RawIOBase):
    """An object as a file object of Python."""

    def __init__(self, store: Any, key: str, size_bytes: int, url: str) -> None:
        super().__init__()
        self._store, self._key, self._size, self._url = store, key, size_bytes, url
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        import obstore

        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        with explained("read", self._url):
            try:
                data = bytes(obstore.get_range(self._store, self._key, start=self._at, length=length))
            except FileNotFoundError as error:
                if is_missing_root(error):
                    raise
                raise Code.SOURCE_NOT_FOUND(f"no file {self._url}", name=self._url) from error
        if len(data) != length:
            raise Code.TRANSFER_INTERRUPTED(
                f"{self._url} ended after {len(data)} of {length} bytes", name=self._url, transient=True
            )
        self._at += length
        return data


_opening = threading.Lock()


def _clients(kind: str, bucket: str, options: Mapping[str, str]) -> Clients:
    """Return the clients of a bucket, cached: opening one takes longer than a request."""
    variables = tuple(sorted((k, v) for k, v in os.environ.items() if k.upper().startswith(_VARIABLES)))
    with _opening:
        return _made(kind, bucket, tuple(sorted(options.items())), (os.getpid(), variables))


@lru_cache(maxsize=64)
def _made(kind: str, bucket: str, options: tuple[tuple[str, str], ...], _process: object) -> Clients:
    return open_clients(kind, bucket, dict(options))
