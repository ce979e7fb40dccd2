"""Opens data files: locates and verifies them, reads their footers, and caches them.

Opening verifies the size and the digest of the Parquet footer, because a flipped bit there loses rows without an error.
The bytes of files come from:

* ``file://``: read in place. A process verifies each block once, before its first use. The block digests of an attached
  file are in its summary. A file without block digests is verified whole when it is opened.
* Other stores, files of at most 16 MiB, and all files of ``memory://``: fetched whole in one request, verified, and
  kept in a folder of this process, which is deleted at exit.
* Larger files on other stores: fetched in ranges of whole blocks, each verified on arrival, after one request for the
  footer and the page indexes before it.

What is fetched is kept in the cache on local disk, if the storage has one, once it is verified.

Open files are kept in the read cache of the process (:mod:`lakebed.files.parquet.read_cache`); files are immutable, so
they stay valid. A local copy is deleted with the last reference to it, so a query never loses an open file.

Core types: :class:`OpenFiles`, :class:`OpenFile`. Errors: NotRetainedError, NotFoundError, DamagedError, StorageError.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from lakebed.clock import random_token
from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.files.parquet.footer import Footer, read_footer
from lakebed.files.parquet.read_cache import CacheKind, ReadCache
from lakebed.model.files import DataFile, data_name, summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.schema import Schema
from lakebed.storage import Locality, telemetry
from lakebed.storage.blocks import BLOCK_BYTES, DIGEST_BYTES, BlockList, Blocks
from lakebed.storage.digests import digest_bytes
from lakebed.storage.disk_cache import fetched, link_or_copy

ByteRange = tuple[int, int]

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from lakebed.storage.contract import Storage
    from lakebed.storage.disk_cache import DiskCache

OPENED_AT_ONCE = 16
"""Files opened concurrently on a store, where each takes a round trip: up to this many copies of 16 MiB at a time."""

_FOOTER_TIMES = 8
"""The size of a decoded footer, as a multiple of the stored one; an estimate."""


class FetchLimits(Struct, frozen=True):
    """How much of a file on a store is fetched at once."""

    copy_bytes: int = 16 * 1024 * 1024
    """Up to this size one request for the whole file is faster than several: 0.16 s at 100 MB/s, five round trips."""

    kept_bytes: int = 1024 * 1024
    """More of a larger file at once is not kept on local disk: a scan asks for it, whose time is that of the transfer
    and not of the request, and which would evict what lookups need."""

    tail_bytes: int = 512 * 1024
    """The bytes of a larger file fetched with its footer: page indexes of a few million rows, in 5 ms at 100 MB/s."""


class LocalCopy:
    """A fetched file; it is deleted with the last reference to this object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        weakref.finalize(self, path.unlink, missing_ok=True)


_folders: dict[int, Path] = {}
_folders_lock = threading.Lock()


def copies_folder() -> Path:
    """Return the folder of this process for fetched files; created at first use, deleted at exit."""
    with _folders_lock:
        # By process id: a forked child must neither use nor delete the folder of its parent.
        if os.getpid() not in _folders:
            from tempfile import gettempdir

            from lakebed.storage.disk_space import scratch_prefix

            folder = Path(gettempdir(), f"{scratch_prefix('copies')}{random_token()}")
            # Before it is made: an interrupt may come at once.
            atexit.register(_remove_folder, os.getpid(), folder)
            folder.mkdir(mode=0o700)
            _folders[os.getpid()] = folder
        return _folders[os.getpid()]


def _remove_folder(process: int, folder: Path) -> None:
    if process == os.getpid():
        from shutil import rmtree

        rmtree(folder, ignore_errors=True)


def _part_key(file: DataFile, byte_range: ByteRange) -> str:
    """Return the key of a part of a file in the cache on disk."""
    return f"{file.digest}/{byte_range[0]}+{byte_range[1]}"


def _kept(disk: DiskCache, file: DataFile, spans: Sequence[ByteRange]) -> dict[ByteRange, bytes]:
    """Return the parts of a file that are in the cache on disk."""
    found = {span: disk.get(_part_key(file, span)) for span in spans}
    return {span: content for span, content in found.items() if content is not None}


class FileTail(Struct, frozen=True):
    """The last bytes of a file on a store, from ``offset`` on."""

    offset: int
    content: bytes


class OpenFile(Struct, frozen=True, eq=False, weakref=True):
    """A file ready to be read: at a ``path``, or on its store, with its ``tail``.

    ``name`` identifies it in the read cache. ``blocks`` verifies what is read; it is None if the whole file was
    verified, or has no digests. ``filter_sizes`` has the size in bytes of each Bloom filter whose header was read, by
    offset.
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
        """Return these bytes of a local file, verified; fewer at the end of a file without blocks. Raises OSError."""
        if self.blocks is None:
            return os.pread(descriptor, byte_range[1], byte_range[0])
        return self.blocks.read(descriptor, byte_range)

    def verify(self, byte_ranges: Iterable[ByteRange]) -> None:
        """Verify these (offset, length) parts of a local file, each once. Raises OSError if one is damaged."""
        if self.blocks is not None and self.path is not None:
            self.blocks.verify(self.path, byte_ranges)

    def verify_all(self) -> None:
        """As :meth:`verify`, for the whole file."""
        if self.blocks is not None and self.path is not None:
            self.blocks.verify_all(self.path)


class OpenFiles:
    """The open files of one table. Safe to use from many threads."""

    def __init__(self, storage: Storage, table_id: str, keeps: Callable[[DataFile], bool], cache: ReadCache) -> None:
        self._storage = storage
        self._keeps = keeps
        self._table_id = table_id
        self.cache = cache
        # Two stores in memory may have the same URL.
        self.scope = f"{storage.url if storage.locality.shared else random_token()}/{table_id}"
        self._folder = storage.folder
        self._disk = storage.cache
        self.limits = FetchLimits()
        self._is_ranged = storage.locality is Locality.REMOTE

    @property
    def at_once(self) -> int:
        """The number of files to read concurrently."""
        return 1 if self._folder is not None else OPENED_AT_ONCE

    def is_ranged(self, file: DataFile) -> bool:
        """Return whether a file is on a store, and so large that it is read in parts."""
        return self._is_ranged and file.size_bytes > self.limits.copy_bytes

    def open(self, file: DataFile, schema: Schema) -> OpenFile:
        """Return the file, opened at first use; ``schema`` is any of the table's.

        Raises:
            NotRetainedError: its object is missing, and the table does not retain it any more.
            NotFoundError: its object is missing, and the table needs it.
            DamagedError: it is damaged; names the object.
            StorageError: it cannot be read.
        """
        cached: OpenFile | None = self.cache.get(CacheKind.FILES, self._name(file))
        if cached is not None:
            return cached
        # If two threads open it at once, the later one is cached, and the other is released by its query.
        opened = self._make(file, schema, ranged=self.is_ranged(file))
        self._keep(opened)
        return opened

    def open_all(self, files: Sequence[DataFile], schema: Schema) -> list[OpenFile]:
        """As :meth:`open` for each file, concurrently on a store."""
        if self.at_once < 2 or len(files) < 2:
            return [self.open(file, schema) for file in files]
        with ThreadPoolExecutor(min(self.at_once, len(files)), "lakebed-open") as threads:
            return list(threads.map(telemetry.carry(partial(self.open, schema=schema)), files))

    def read(self, opened: OpenFile, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        """Return these (offset, length) parts of a file, in one round trip. Raises OSError, or as :meth:`open`."""
        if opened.path is None:
            return self.fetch(opened, byte_ranges)
        with opened.path.open("rb", buffering=0) as stream:
            return [opened.part(stream.fileno(), byte_range) for byte_range in byte_ranges]

    def fetch(self, opened: OpenFile, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        """Fetch parts of a file on a store in one round trip, none if all are in its tail. Raises as :meth:`read`."""
        assert opened.tail is not None
        tail, blocks = opened.tail, opened.blocks
        # After the blocks come their digests and the footer, which are verified and in the tail.
        spans = [
            byte_range if blocks is None or blocks.ends_before(byte_range) else blocks.around(byte_range)
            for byte_range in byte_ranges
        ]
        remote = list(dict.fromkeys(span for span in spans if span[0] < tail.offset))
        short = blocks is not None and sum(length for _, length in remote) <= self.limits.kept_bytes
        disk = self._disk if short else None
        contents = {} if disk is None else _kept(disk, opened.file, remote)
        missing = [span for span in remote if span not in contents]
        if missing:
            contents |= zip(missing, self._fetch_ranges(opened.file, missing), strict=True)
        for begin, length in spans:
            if begin >= tail.offset:
                offset = begin - tail.offset
                contents[begin, length] = tail.content[offset : offset + length]
        if blocks is not None:
            for span, content in contents.items():
                if not blocks.ends_before(span):
                    blocks.check(span[0], content)
        if disk is not None:
            for span in missing:
                disk.keep(_part_key(opened.file, span), contents[span])
        pairs = zip(byte_ranges, spans, strict=True)
        return [contents[span][offset - span[0] : offset - span[0] + length] for (offset, length), span in pairs]

    def stored_footer(self, file: DataFile) -> bytes:
        """Return the bytes of the footer of a file, without opening it. One request. Raises as :meth:`open`."""
        if self._folder is not None:
            footer = self._read_footer(self._folder / data_name(self._table_id, file), file)
        else:
            try:
                [footer] = self._fetch_ranges(file, [(file.size_bytes - file.footer_bytes, file.footer_bytes)])
            except OSError as error:
                raise self.damaged(file, str(error)) from error
        self._check_footer(footer, file)
        return footer

    def local(self, file: DataFile, schema: Schema) -> OpenFile:
        """As :meth:`open`, but always with a ``path``."""
        opened = self.open(file, schema)
        if opened.path is None:
            opened = self._make(file, schema, ranged=False)
            self._keep(opened)
        return opened

    def verify(self, file: DataFile) -> None:
        """Read the whole file. Raises as :meth:`open`, and DamagedError if any byte of it has changed.

        The error names the damaged row group and column, if it lies in a page.
        """
        from lakebed.files.parquet.stored_file import locate_damage

        name = data_name(self._table_id, file)
        try:
            with self._storage.fetch(name, digest=file.digest):
                pass
        except NotFoundError as error:
            raise self._missing(file) from error
        except DamagedError as damage:
            raise locate_damage(damage, self._storage, self._table_id, file) from damage

    def attribute(
        self,
        error: BaseException,
        files: Sequence[DataFile],
        evaluation_error: Callable[[BaseException], Error] | None = None,
    ) -> None:
        """Raise the error of the file that caused an exception of a read; return if it is an error of Lakebed.

        If each file can be read, ``evaluation_error`` makes the error, for a read that evaluates a predicate.
        """
        if isinstance(error, Error | GeneratorExit | KeyboardInterrupt | SystemExit | MemoryError):
            return
        for file in files:
            self.drop(file)
            try:
                self.verify(file)
            except DamagedError as damage:
                raise damage from error
        if evaluation_error is not None:
            raise evaluation_error(error) from error
        if "non UTF-8" in str(error):
            raise Code.STORED_TEXT_INVALID(
                "the table holds text that is not UTF-8, written by an older version: run `lakebed table repair` "
                f"({str(error)[:200]})"
            ) from error
        raise Code.QUERY_FAILED(
            f"the query failed, though each of its {len(files)} files can be read: {error}"
        ) from error

    def drop(self, *files: DataFile) -> None:
        """Drop everything cached for the files, so that the next use opens them again."""
        self.cache.drop(*map(self._name, files))

    def kept_rows(self, file: DataFile, form: tuple[Hashable, ...]) -> pa.Table | None:
        """Return rows of a file from the read cache; ``form`` says which, and with what columns. None: not kept."""
        rows: pa.Table | None = self.cache.get(CacheKind.ROWS, (self._name(file), *form))
        return rows

    def keep_rows(self, file: DataFile, form: tuple[Hashable, ...], rows: pa.Table) -> None:
        """Keep rows of a file for :meth:`kept_rows`."""
        self.cache.keep(CacheKind.ROWS, (self._name(file), *form), rows, rows.nbytes)

    def _keep(self, opened: OpenFile) -> None:
        size_bytes = _FOOTER_TIMES * opened.file.footer_bytes
        if opened.copy is not None:
            size_bytes += opened.file.size_bytes
        if opened.tail is not None:
            size_bytes += len(opened.tail.content)
        self.cache.keep(CacheKind.FILES, opened.name, opened, size_bytes)

    def _name(self, file: DataFile) -> str:
        return f"{self.scope}/{file.id}"

    def _make(self, file: DataFile, schema: Schema, *, ranged: bool) -> OpenFile:
        name = data_name(self._table_id, file)
        url = self._storage.object_url(name)
        copy: LocalCopy | None = None
        path: Path | None = None
        tail: FileTail | None = None
        if ranged:
            tail = self._fetch_tail(file)
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
        if self._disk is not None and tail is not None and blocks is not None:
            self._keep_tail(file, tail, blocks)
        return replace(opened, blocks=blocks)

    def _keep_tail(self, file: DataFile, tail: FileTail, blocks: Blocks) -> None:
        """Keep the tail on disk, if all of its blocks are what was written; its other bytes were verified."""
        assert self._disk is not None
        with suppress(OSError):  # A read of the damaged block raises the error.
            blocks.check(tail.offset, memoryview(tail.content)[: max(0, blocks.end - tail.offset)])
            self._disk.keep(_part_key(file, (tail.offset, len(tail.content))), tail.content)

    def _blocks(self, opened: OpenFile) -> Blocks | None:
        """Return the block digests, from the file or its summary; None if neither has them."""
        file, listed = opened.file, opened.footer.blocks
        try:
            if listed is not None:
                return Blocks(listed, self.read(opened, [listed.byte_range])[0])
            name = summary_name(self._table_id, file)
            data = self._storage.get(name) if file.summarised else None
            digests = b"" if data is None else Summary.of(file, data, name).blocks
            return Blocks(BlockList.beside(file.size_bytes - file.footer_bytes, digests), digests) if digests else None
        except OSError as error:
            raise self.damaged(file, str(error)) from error

    def _fetch(self, name: str, file: DataFile) -> LocalCopy:
        path = copies_folder() / f"{file.id}-{random_token()}.parquet"
        try:
            with self._fetched(name, file) as whole:
                # A hard link copies nothing, and outlives the ``with`` block.
                link_or_copy(whole, path)
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

    def _fetched(self, name: str, file: DataFile) -> AbstractContextManager[Path]:
        """Return the whole file, verified; through the cache on disk if it is small."""
        disk = self._disk if file.size_bytes <= self.limits.copy_bytes else None
        return fetched(disk, file.digest, lambda: self._storage.fetch(name, digest=file.digest))

    def _read_footer(self, path: Path, file: DataFile) -> bytes:
        try:
            with path.open("rb", buffering=0) as stream:
                size_bytes = os.fstat(stream.fileno()).st_size
                if size_bytes != file.size_bytes:
                    raise self.damaged(file, f"it has {size_bytes} bytes, {file.size_bytes} were written")
                return os.pread(stream.fileno(), file.footer_bytes, file.size_bytes - file.footer_bytes)
        except FileNotFoundError as error:
            raise self._missing(file) from error
        except OSError as error:
            raise Code.TEMPORARY_STORAGE_FAILED(
                f"cannot read {path}: {error.strerror}", name=str(path), errno=error.errno, transient=False
            ) from error

    def _fetch_tail(self, file: DataFile) -> FileTail:
        """Return the footer of a file on a store and what lies before it, in one request."""
        # It includes the block digests, and begins with a block.
        digests = DIGEST_BYTES * (file.size_bytes // BLOCK_BYTES + 1)
        offset = (
            max(0, file.size_bytes - max(self.limits.tail_bytes, file.footer_bytes) - digests)
            // BLOCK_BYTES
            * BLOCK_BYTES
        )
        length = file.size_bytes - offset
        kept = None if self._disk is None else self._disk.get(_part_key(file, (offset, length)))
        if kept is not None:
            return FileTail(offset, kept)
        try:
            return FileTail(offset, self._fetch_ranges(file, [(offset, length)])[0])
        except OSError as error:
            raise self.damaged(file, str(error)) from error

    def _fetch_ranges(self, file: DataFile, byte_ranges: Sequence[ByteRange]) -> list[bytes]:
        try:
            return self._storage.read_ranges(data_name(self._table_id, file), byte_ranges)
        except NotFoundError as error:
            raise self._missing(file) from error
        except StorageError as error:
            if error.transient:
                raise
            # The object may be too short: the caller attributes the error to the file.
            raise OSError(str(error)) from error

    def _check_footer(self, footer: bytes, file: DataFile) -> None:
        digest = digest_bytes(footer)
        if digest != file.footer_digest:
            raise self.damaged(file, f"the digest of its footer is {digest}, {file.footer_digest} was written")

    def damaged(self, file: DataFile, reason: str) -> Error:
        """Return the error for a damaged file."""
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
