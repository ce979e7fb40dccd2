"""Data files made ready for queries: found, verified, their footers read, and kept while in use.

Files are immutable, so what was learnt at the first open holds for ever. Opening verifies the size and the digest of
the Parquet footer (a flipped bit there loses rows without an error); the footer then gives the row groups, by which
scans are sliced and membership filters found. Where the bytes come from:

* ``file://``: read in place by path. Each block is verified once by a process, before its first use. The summary of a
  file that was attached has its block digests. A file without any is verified whole when it is opened;
* other stores, files of at most 16 MiB, and all files where the engine cannot go (``memory://``): fetched whole in one
  request, verified, and kept in a folder of this process, which goes at exit;
* larger files elsewhere: by ranges of whole blocks, each verified when it arrives, after one request for the footer and
  the page indexes before it.

What is open is kept in the process's read cache (:mod:`lakebed.parquet.read_cache`). A copy goes with the last query
that holds it, so an open file never vanishes under a query.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakebed.clock import random_token
from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.model.files import DataFile, data_name, summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.schema import Schema
from lakebed.parquet.damage import located
from lakebed.parquet.footer import Footer, read_footer
from lakebed.parquet.read_cache import CacheKind, ReadCache
from lakebed.storage.blocks import BLOCK_BYTES, DIGEST_BYTES, BlockList, Blocks
from lakebed.storage.digests import digest_bytes

ByteRange = tuple[int, int]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakebed.storage.contract import Storage

COPY_BYTES_MAX = 16 * 1024 * 1024
"""Up to this size one request for everything beats several for parts: at 100 MB/s it is 0.16 s, five round trips."""

TAIL_BYTES = 512 * 1024
"""So much of a larger file is fetched with its footer: the page indexes of a few million rows, in 5 ms at 100 MB/s."""

OPENED_AT_ONCE = 16
"""Files opened side by side on a store, where each takes a round trip: so many copies of 16 MiB are under way."""

_FOOTER_TIMES = 8
"""A decoded footer takes about so many times the bytes of the stored one."""


class LocalCopy:
    """A fetched file; it is deleted when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        weakref.finalize(self, path.unlink, missing_ok=True)


_folders: dict[int, Path] = {}
_folders_lock = threading.Lock()


def copies_folder() -> Path:
    """The folder of this process for fetched files; made at first use, removed at exit."""
    with _folders_lock:
        # By process id: a forked child must neither fill nor remove its parent's.
        if os.getpid() not in _folders:
            from tempfile import mkdtemp

            _folders[os.getpid()] = Path(mkdtemp(prefix="lakebed-copies-"))
            atexit.register(_remove_folder, os.getpid())
        return _folders[os.getpid()]


def _remove_folder(process: int) -> None:
    if process == os.getpid():
        from shutil import rmtree

        rmtree(_folders[process], ignore_errors=True)


@dataclass(frozen=True, slots=True)
class FileTail:
    """The last bytes of a file that stays on its store, from an offset on."""

    offset: int
    content: bytes


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OpenFile:
    """A file ready to be read: at a ``path``, or on its store, of which the ``tail`` is known.

    ``name`` tells it from files of other tables in the read cache. ``blocks`` verifies what is read; None if the whole
    file was verified, or cannot be. ``filter_sizes`` has the size in bytes of each bloom filter whose header was read,
    by offset.
    """

    file: DataFile
    name: str
    object_url: str
    footer: Footer
    path: Path | None
    copy: LocalCopy | None
    tail: FileTail | None = None
    blocks: Blocks | None = None
    filter_sizes: dict[int, int | None] = field(default_factory=dict)

    def part(self, descriptor: int, byte_range: ByteRange) -> bytes:
        """These bytes of a file at a path, verified; fewer where a file without blocks ends. Raises OSError."""
        if self.blocks is None:
            return os.pread(descriptor, byte_range[1], byte_range[0])
        return self.blocks.read(descriptor, byte_range)

    def verify(self, byte_ranges: Iterable[ByteRange]) -> None:
        """Verify these (offset, length) parts of a file at a path, each once. Raises OSError if one is damaged."""
        if self.blocks is not None and self.path is not None:
            self.blocks.verify(self.path, byte_ranges)

    def verify_all(self) -> None:
        """The same for the whole file."""
        if self.blocks is not None and self.path is not None:
            self.blocks.verify_all(self.path)

    @property
    def url(self) -> str:
        """Where the engine reads it."""
        return self.object_url if self.path is None else self.path.as_uri()


class OpenFiles:
    """The open files of one table; safe to use from many threads."""

    def __init__(self, storage: Storage, table_id: str, keeps: Callable[[DataFile], bool], cache: ReadCache) -> None:
        self._storage = storage
        self._keeps = keeps
        self._table_id = table_id
        self._cache = cache
        # Two stores in memory may have one URL.
        self.scope = f"{storage.url if storage.shared else random_token()}/{table_id}"
        self._folder = Path(unquote(urlsplit(storage.url).path)) if storage.url.startswith("file://") else None
        self._is_ranged = self._folder is None and _reads_ranges(storage)

    @property
    def at_once(self) -> int:
        """How many files are best read side by side."""
        return 1 if self._folder is not None else OPENED_AT_ONCE

    def open(self, file: DataFile, schema: Schema) -> OpenFile:
        """The file, opened at first use; ``schema`` is any of the table's.

        Raises:
            NotRetainedError: its object is not there, nor does the table keep it any more.
            NotFoundError: its object is not there, and should be.
            DamagedError: it is not what was written; names the object.
            StorageError: it cannot be read.
        """
        found: OpenFile | None = self._cache.get(CacheKind.FILES, self._name(file))
        if found is not None:
            return found
        # Two threads may open it at once; the later one's stays, and the other's goes with its query.
        opened = self._make(file, schema, ranged=self._is_ranged and file.size_bytes > COPY_BYTES_MAX)
        self._keep(opened)
        return opened

    def open_all(self, files: Sequence[DataFile], schema: Schema) -> list[OpenFile]:
        """As :meth:`open`, side by side where each takes a round trip."""
        if self.at_once < 2 or len(files) < 2:
            return [self.open(file, schema) for file in files]
        with ThreadPoolExecutor(min(self.at_once, len(files)), "lakebed-open") as threads:
            return list(threads.map(lambda file: self.open(file, schema), files))

    def read(self, opened: OpenFile, byte_range: ByteRange) -> bytes:
        """These (offset, length) bytes of a file. Raises OSError, or as :meth:`open`."""
        return self._part(opened, byte_range)

    def _part(self, opened: OpenFile, byte_range: ByteRange) -> bytes:
        if opened.path is None:
            return self.fetch(opened, [byte_range])[0]
        with opened.path.open("rb", buffering=0) as stream:
            return opened.part(stream.fileno(), byte_range)

    def fetch(self, opened: OpenFile, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        """Parts of a file on a store, in one round trip or, if all are in its tail, none. Raises as :meth:`read`."""
        assert opened.tail is not None
        tail, blocks = opened.tail, opened.blocks
        # Behind the blocks are their digests and the footer, which were verified and are in the tail.
        spans = [
            byte_range if blocks is None or blocks.ends_before(byte_range) else blocks.around(byte_range)
            for byte_range in byte_ranges
        ]
        remote = list(dict.fromkeys(span for span in spans if span[0] < tail.offset))
        found = dict(zip(remote, self._fetch_ranges(opened.file, remote), strict=True)) if remote else {}
        for begin, length in spans:
            if begin >= tail.offset:
                at = begin - tail.offset
                found[begin, length] = tail.content[at : at + length]
        if blocks is not None:
            for span, content in found.items():
                if not blocks.ends_before(span):
                    blocks.check(span[0], content)
        pairs = zip(byte_ranges, spans, strict=True)
        return [found[span][at - span[0] : at - span[0] + length] for (at, length), span in pairs]

    def local(self, file: DataFile, schema: Schema) -> OpenFile:
        """As :meth:`open`, but with a ``path`` in any case."""
        opened = self.open(file, schema)
        if opened.path is None:
            opened = self._make(file, schema, ranged=False)
            self._keep(opened)
        return opened

    def verify(self, file: DataFile) -> None:
        """Read all of the file. Raises as :meth:`open`, and DamagedError if any byte of it is not what was written.

        The error says in which row group and column the damage is, where that can be told.
        """
        name = data_name(self._table_id, file)
        try:
            with self._storage.fetch(name, digest=file.digest):
                pass
        except NotFoundError as error:
            raise self._missing(file) from error
        except DamagedError as damage:
            raise located(damage, self._storage, self._table_id, file) from damage

    def drop(self, *files: DataFile) -> None:
        """Drop all that is kept of the files, so that the next use looks at them anew."""
        self._cache.drop(*map(self._name, files))

    def _keep(self, opened: OpenFile) -> None:
        size_bytes = _FOOTER_TIMES * opened.file.footer_bytes
        if opened.copy is not None:
            size_bytes += opened.file.size_bytes
        if opened.tail is not None:
            size_bytes += len(opened.tail.content)
        self._cache.keep(CacheKind.FILES, opened.name, opened, size_bytes)

    def _name(self, file: DataFile) -> str:
        return f"{self.scope}/{file.id}"

    def _make(self, file: DataFile, schema: Schema, *, ranged: bool) -> OpenFile:
        name = data_name(self._table_id, file)
        url = self._storage.object_url(name)
        copy: LocalCopy | None = None
        path: Path | None = None
        tail: FileTail | None = None
        if ranged:
            tail = self._look(file)
            footer = tail.content[-file.footer_bytes :]
        else:
            if self._folder is not None:
                path = self._folder / name
            else:
                copy = self._fetch(name, file)
                path = copy.path
            footer = self._read_footer(path, file)
        self._check_footer(footer, file)
        read = read_footer(footer, schema, url, file.size_bytes)
        opened = OpenFile(file, self._name(file), url, read, path, copy, tail)
        if copy is not None:
            return opened
        blocks = self._blocks(opened)
        if blocks is None and path is not None:
            self.verify(file)
        return replace(opened, blocks=blocks)

    def _blocks(self, opened: OpenFile) -> Blocks | None:
        """Out of the file, or from its summary; None if neither has block digests."""
        file, listed = opened.file, opened.footer.blocks
        try:
            if listed is not None:
                return Blocks(listed, self._part(opened, listed.byte_range))
            name = summary_name(self._table_id, file)
            data = self._storage.get(name) if file.summarised else None
            digests = b"" if data is None else Summary.from_ipc(data, name).blocks
            return Blocks(BlockList.beside(file.size_bytes - file.footer_bytes, digests), digests) if digests else None
        except OSError as error:
            raise self.damaged(file, str(error)) from error

    def _fetch(self, name: str, file: DataFile) -> LocalCopy:
        path = copies_folder() / f"{file.id}-{random_token()}.parquet"
        try:
            with self._storage.fetch(name, digest=file.digest) as fetched:
                # A second name for the same bytes costs nothing, and outlives the block.
                try:
                    os.link(fetched, path)
                except OSError:
                    from shutil import copyfile

                    copyfile(fetched, path)
        except NotFoundError as error:
            raise self._missing(file) from error
        except OSError as error:
            path.unlink(missing_ok=True)
            raise Code.TEMPORARY_STORAGE_FAILED(
                f"cannot keep a copy of {name} in {path.parent}: {error.strerror}. Make room there, or set TMPDIR to "
                "another folder",
                name=name,
                errno=error.errno,
                transient=False,
            ) from error
        return LocalCopy(path)

    def _read_footer(self, path: Path, file: DataFile) -> bytes:
        try:
            with path.open("rb", buffering=0) as stream:
                found = os.fstat(stream.fileno()).st_size
                if found != file.size_bytes:
                    raise self.damaged(file, f"it has {found} bytes, {file.size_bytes} were written")
                return os.pread(stream.fileno(), file.footer_bytes, file.size_bytes - file.footer_bytes)
        except FileNotFoundError as error:
            raise self._missing(file) from error
        except OSError as error:
            raise Code.TEMPORARY_STORAGE_FAILED(
                f"cannot read {path}: {error.strerror}", name=str(path), errno=error.errno, transient=False
            ) from error

    def _look(self, file: DataFile) -> FileTail:
        """Of a file on a store what must be known before any of it is read: one request."""
        # The block digests are in it, and it begins with a block.
        digests = DIGEST_BYTES * (file.size_bytes // BLOCK_BYTES + 1)
        offset = max(0, file.size_bytes - max(TAIL_BYTES, file.footer_bytes) - digests) // BLOCK_BYTES * BLOCK_BYTES
        length = file.size_bytes - offset
        try:
            return FileTail(offset, self._fetch_ranges(file, [(offset, length)])[0])
        except OSError as error:
            raise self.damaged(file, str(error)) from error

    def _fetch_ranges(self, file: DataFile, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        from lakebed.storage.object_store import ObjectStorage

        assert isinstance(self._storage, ObjectStorage)
        try:
            return self._storage.read_ranges(data_name(self._table_id, file), byte_ranges)
        except NotFoundError as error:
            raise self._missing(file) from error
        except StorageError as error:
            if error.transient:
                raise
            # It may be an object that has not so many bytes: whoever reads finds out what is wrong with the file.
            raise OSError(str(error)) from error

    def _check_footer(self, footer: bytes, file: DataFile) -> None:
        found = digest_bytes(footer)
        if found != file.footer_digest:
            raise self.damaged(file, f"the digest of its footer is {found}, {file.footer_digest} was written")

    def damaged(self, file: DataFile, reason: str) -> Error:
        """The error for a file that is not what was written."""
        name = data_name(self._table_id, file)
        return Code.DATA_FILE_DAMAGED(
            f"{self._storage.object_url(name)} is damaged: {reason}; restore the object", name=name, file=file.id
        )

    def _missing(self, file: DataFile) -> Error:
        name = data_name(self._table_id, file)
        url = self._storage.object_url(name)
        if self._keeps(file):
            return Code.DATA_FILE_MISSING(
                f"{url} is missing, and the table needs it: restore the object", name=name, file=file.id
            )
        return Code.DATA_FILE_NOT_RETAINED(
            f"{url} was garbage-collected: the version read here is no longer retained. Read the latest version, or "
            "keep old ones with Table.pin(), a tag, or a larger history_s",
            name=name,
            file=file.id,
        )


def _reads_ranges(storage: Storage) -> bool:
    """Whether the engine can read this storage by itself."""
    from lakebed.storage.object_store import ObjectStorage

    # A storage that wraps another one has its reasons, which the engine would go around.
    return isinstance(storage, ObjectStorage) and not storage.url.startswith("memory://")
