"""Finds the source files that users name, and reads them as rows.

A list of files has sizes and versions from the start, so that a task that is repeated reads what it read before, or
fails. :class:`FilePattern` says which files a folder or a glob means; the files of the
instance itself are left out. A file that is named itself may have any name and place. One file that several paths lead
to is read once for each folder or glob, and refused if it is named twice.

Files of object stores are read with the storage options of the instance if it is on a store of the same kind (``home``
is its store); otherwise the environment and profiles need to have the credentials.

Core types: :class:`~lakebed.model.state.table_state.Source`.

Errors: NotFoundError, UsageError, DamagedError, and StorageError for files that cannot be read or have changed.

*Which files below a folder a source means: the one rule of folders and globs, for every way in.*

A folder means the files below it whose names end as those of a format. In a glob, ``*``, ``?`` and ``[…]`` stand for
characters of one name, and ``**`` for any number of folders; a file that it matches is meant whatever its name ends
with, and a folder that it matches means the files below it.

Rules. *Hidden* names begin with ``_`` or ``.``: markers, checksums, and the folders of unfinished tasks. Spark and Hive
do not read them. Nothing hidden is meant, at any depth, except by a part of a glob that itself begins with that
character, as in a shell: ``_old*/*.parquet``. A name that begins with ``_`` and contains ``=`` is not hidden, since it
is the folder of a partition column, as in Spark. Pure: no I/O.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.parquet.sizes import DEFAULT_PAGES_BYTES_MAX, has_dictionary
from lakebed.model import types
from lakebed.model.checks import is_text, shown
from lakebed.model.state.table_state import Source
from lakebed.storage.external import ExternalFile, ExternalFiles, LocalFiles, kind_of, open_external

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.write.conformer import Conformer
    from lakebed.write.row_encoder import RowEncoder

_GLOB = re.compile(r"[*?\[]")
_ANY_FOLDERS = "**"


def has_glob(text: str) -> bool:
    """Return whether a path has a character that makes it a glob."""
    return _GLOB.search(text) is not None


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of that name is left out unless it is named."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@dataclass(frozen=True, slots=True)
class FilePattern:
    """The parts of a glob after its fixed folder, none for a folder; files of folders end with one of ``suffixes``.

    A *state* is the number of parts that the names so far have matched: all of them is a match, one more is a place
    below a match.
    """

    parts: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)
    _known: dict[tuple[str, ...], frozenset[int]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, path: str, suffixes: tuple[str, ...]) -> tuple[str, FilePattern]:
        """Return the fixed folder of a glob, and the pattern below it."""
        folder, parts = [], path.split("/")
        while not has_glob(parts[0]):
            folder.append(parts.pop(0))
        return "/".join(folder) or ("/" if path.startswith("/") else "."), cls(tuple(filter(None, parts)), suffixes)

    def means(self, names: tuple[str, ...]) -> bool:
        """Return whether the file is meant whose path below the folder has these names."""
        if not names:
            return False
        states = self._after(self._states(names[:-1]), names[-1])
        return self._is_match(states) or (len(self.parts) + 1 in states and names[-1].lower().endswith(self.suffixes))

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether a glob matches the file itself, and not only a folder above it."""
        return bool(names) and self._is_match(self._after(self._states(names[:-1]), names[-1]))

    def below(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the states at the folder with these names: none if no file below it can be meant, and equal for
        folders below which the same files are.
        """
        return self._states(names)

    def _is_match(self, states: frozenset[int]) -> bool:
        return bool(self.parts) and len(self.parts) in states

    def _states(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the states at a folder."""
        if names not in self._known:
            found = self._after(self._states(names[:-1]), names[-1]) if names else self._closed({0})
            self._known[names] = found
        return self._known[names]

    def _after(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Return the states after one more name."""
        end, found = len(self.parts), set()
        for state in states:
            part = self.parts[state] if state < end else _ANY_FOLDERS
            if is_hidden(name) and not part.startswith(name[0]):
                continue
            if part == _ANY_FOLDERS:
                found |= {state, end} if state == end - 1 else {state} if state < end else {end + 1}
            elif fnmatch.fnmatchcase(name, part):
                found.add(state + 1)
        return self._closed(found)

    def _closed(self, states: set[int]) -> frozenset[int]:
        """Return the states and those reached without a name: ``**`` before another part also stands for no folder."""
        for place, part in enumerate(self.parts[:-1]):
            if part == _ANY_FOLDERS and place in states:
                states.add(place + 1)
        return frozenset(states)


SUFFIXES = (".parquet", ".parq", ".pq")
CHECK_THREADS = 16
"""To check a file takes one or two small requests; many at once hide their latency."""

PARQUET_BYTES_MIN = 12
"""Two magic numbers of four bytes, and the length of the footer."""


# -- finding ----------------------------------------------------------------------------------------------------


def find_files(
    source: str | Path | Sequence[str | Path], home: Storage | None = None, suffixes: tuple[str, ...] = SUFFIXES
) -> tuple[Source, ...]:
    """Return all files of paths, folders, globs and URIs, in order of name; those of folders have one of the
    ``suffixes``.

    Raises NotFoundError if an item names no file, UsageError if it is no path, or a device, a pipe or a socket.
    """
    found: dict[str, Source] = {}
    for item in items_of(source):
        for identity, file in sorted(_find(item, home, suffixes), key=lambda pair: pair[1].url):
            if (before := found.setdefault(identity, file)) is not file:
                raise named_twice(before.url, file.url)
    return tuple(found.values())


def named_twice(first: str, again: str) -> Error:
    """Return the error of one file under two names, which may be the same."""
    also = "" if first == again else f", and as {again}"
    return Code.SOURCE_DUPLICATE(
        f"{first} is named twice{also}; its rows would be added twice: name it once", name=first
    )


def items_of(source: object) -> list[str]:
    """Return the items of a source, one or several, as texts. Raises UsageError if there is none, or one is no path."""
    items = [source] if isinstance(source, str | Path) else list(source) if isinstance(source, list | tuple) else []
    if not items:
        raise Code.ARGUMENT_MISSING(f"no source was given ({shown(source)}): name Parquet files, folders or globs")
    for item in items:
        if not isinstance(item, str | Path) or not is_text(str(item)) or "\0" in str(item) or not str(item):
            raise Code.URL_INVALID(f"not a path or URI of a source: {shown(item)}")
    return [str(item) for item in items]


def _find(item: str, home: Storage | None, suffixes: tuple[str, ...]) -> list[tuple[str, Source]]:
    """Return the files of an item, each once, by their identities."""
    store, path = open_external(item, home)
    try:
        there = store.look(path)
        if there is not None and not there.is_folder:
            _check_file(there)
            files = [there]
        else:
            globbed = there is None and has_glob(path)
            folder, pattern = FilePattern.of(path, suffixes) if globbed else (path, FilePattern((), suffixes))
            files = without_own(files_below(store, folder, pattern), item, home)
    except OSError as error:
        raise Code.SOURCE_UNREADABLE(f"cannot read {item}: {error}", name=item) from error
    if not files:
        of = "Parquet files" if suffixes == SUFFIXES else "data files (.csv, .parquet …)"
        reason = "nothing matches" if has_glob(item) else f"there is no file or folder with {of} at"
        raise Code.SOURCE_NOT_FOUND(f"{reason} {item}", name=item)
    prefix = _prefix(item)
    return [(file.identity, Source(prefix + file.path, file.size_bytes, _version(file))) for file in files]


def files_below(store: ExternalFiles, folder: str, pattern: FilePattern) -> list[ExternalFile]:
    """Return the files that a folder or glob means, each once.

    Raises UsageError for a name that is not UTF-8, and for a device, a pipe or a socket that a glob matches.
    """
    found: dict[str, ExternalFile] = {}
    start = f"{folder.rstrip('/')}/"
    for file in store.below(folder, pattern.below):
        names = tuple(file.path.removeprefix(start).split("/"))
        if not pattern.means(names):
            continue
        if not is_text(file.path):
            raise Code.SOURCE_UNSUPPORTED(
                f"{folder} has a file whose name is not UTF-8 ({file.path!a}); give it another name", name=folder
            )
        if pattern.matches(names):
            _check_file(file)
        if file.regular and not _is_folder_marker(store, file):
            found.setdefault(file.identity, file)
    return list(found.values())


def _is_folder_marker(store: ExternalFiles, file: ExternalFile) -> bool:
    """Return whether an object without a byte stands for a folder: its key ends with ``/``, which a listing omits, or
    as the markers of Hadoop do.
    """
    if file.size_bytes or isinstance(store, LocalFiles):
        return False
    there = store.look(file.path)
    return file.path.endswith("_$folder$") or there is None or there.is_folder


def without_own(files: list[ExternalFile], item: str, home: Storage | None) -> list[ExternalFile]:
    """Return the files that are not the instance's own. Raises UsageError if all are."""
    if home is None or kind_of(item) != kind_of(home.url):
        return files
    own = unquote(home.url.partition("://")[2]).rstrip("/") + "/"
    is_local = kind_of(item) == "file"
    kept = [f for f in files if not (f.identity if is_local else f.path).startswith(own)]
    if files and not kept:
        raise Code.SOURCE_UNSUPPORTED(
            f"{item} has only files of the instance {home.url} itself, which are no input: name files elsewhere, or "
            "read a table of it by lakebed export",
            source=item,
        )
    return kept


def _check_file(file: ExternalFile) -> None:
    """Raise UsageError for a device, a pipe or a socket, which has no end."""
    if not file.regular:
        raise Code.SOURCE_UNSUPPORTED(
            f"{file.path} is not a regular file: a device, a pipe or a socket cannot be read twice"
        )


def check_parquet(files: Sequence[Source], home: Storage | None = None) -> None:
    """Raise UsageError unless each file ends as a Parquet file does; nothing else is checked.

    One small request a file, many at once. Raises StorageError for a file that cannot be read.
    """
    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        wrong = [reason for reason in pool.map(lambda file: _why_not_parquet(file, home), files) if reason is not None]
    if wrong:
        more = f"; and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise Code.SOURCE_UNSUPPORTED(
            f"{'; '.join(wrong[:3])}{more}. Nothing was submitted: leave out files that are not Parquet"
        )


def _why_not_parquet(file: Source, home: Storage | None) -> str | None:
    """Return why it cannot be a Parquet file, which ends with its footer's length and a magic number; else None."""
    if file.size_bytes < PARQUET_BYTES_MIN:
        return f"{file.url} is no Parquet file: it has {file.size_bytes} bytes"
    store, path = open_external(file.url, home)
    try:
        with store.open(path) as source:
            end = source.read_at(8, file.size_bytes - 8)
    except OSError as error:
        raise Code.SOURCE_UNREADABLE(f"cannot read {file.url}: {error}", name=file.url) from error
    if end[4:] == b"PARE":
        return f"{file.url} is an encrypted Parquet file, which cannot be read here"
    footer_bytes = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or not 0 < footer_bytes <= file.size_bytes - PARQUET_BYTES_MIN:
        return f"{file.url} is no Parquet file: its last 8 bytes are {bytes(end)!r}"
    return None


def modified_ns(file: Source) -> int:
    """Return when the file was modified, by its store's clock: ns since 1970; 0 if unknown."""
    return int(file.version.partition(" ")[0])


def identity(version: str) -> str:
    """Return the part of a version that identifies the file: the ETag, or else the last-modified time."""
    return version.partition(" ")[2] or version


def _version(file: ExternalFile) -> str:
    """Return a file's last-modified time in ns (0 if unknown) and, after a blank, its ETag if it has one.

    The last-modified time alone does not distinguish two objects that were put within one second.
    """
    return f"{file.modified_ns} {file.etag}" if file.etag else str(file.modified_ns)


def _prefix(item: str) -> str:
    """Return the prefix that makes a path of the store a URL."""
    scheme, separator, _ = item.partition("://")
    if not separator or scheme == "file":
        return ""
    return "s3://" if kind_of(item) == "s3" else f"{scheme}://"


# -- reading ----------------------------------------------------------------------------------------------------


def _look_at(file: Source, home: Storage | None) -> ExternalFile | None:
    store, path = open_external(file.url, home)
    try:
        return store.look(path)
    except OSError as error:
        raise Code.SOURCE_UNREADABLE(f"cannot read {file.url}: {error}", name=file.url) from error


def why_changed(file: Source, home: Storage | None = None) -> str | None:
    """Return why the file is not the one that was found: it is gone, or has changed. None if it is the same.

    Raises StorageError if the store does not answer.
    """
    there = _look_at(file, home)
    if there is None:
        return f"{file.url} is not there any more"
    if there.is_folder or not there.regular:
        return f"{file.url} is not a regular file"
    if (there.size_bytes, identity(_version(there))) != (file.size_bytes, identity(file.version)):
        return f"{file.url} was changed since it was found: {file.size_bytes} bytes then, {there.size_bytes} now"
    return None


def is_gone(file: Source, home: Storage | None = None) -> bool:
    """Return whether there is no file at the URL any more. Raises as :func:`why_changed`."""
    return _look_at(file, home) is None


def check_unchanged(file: Source, home: Storage | None = None) -> None:
    """Raise StorageError if the file is gone or has changed."""
    if (reason := why_changed(file, home)) is not None:
        raise Code.SOURCE_CHANGED(f"{reason}. Nothing of it was ingested", name=file.url)


@contextlib.contextmanager
def open_source(file: Source, home: Storage | None = None) -> Iterator[tuple[pa.NativeFile, Any]]:
    """A file opened for reading, and as Parquet; errors inside the block name it.

    Raises DamagedError if its bytes are not Parquet, StorageError if it cannot be read, or has changed.
    """
    import pyarrow.parquet as pq

    check_unchanged(file, home)
    store, path = open_external(file.url, home)
    try:
        # Page CRCs are verified where a file has them.
        with (
            store.open(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            yield source, parquet
    except OSError as error:
        # A file that was overwritten meanwhile reads as damaged.
        check_unchanged(file, home)
        if error.errno is None:
            # An error of Arrow: failed decompression, an invalid footer.
            raise _unreadable(file, error) from error
        raise Code.SOURCE_UNREADABLE(f"cannot read {file.url}: {error.strerror}", name=file.url) from error
    except pa.ArrowException as error:
        check_unchanged(file, home)
        raise _unreadable(file, error) from error


def _unreadable(file: Source, error: Exception) -> Error:
    return Code.SOURCE_DAMAGED(
        f"{file.url} cannot be read as Parquet ({str(error)[:300]}); nothing of it was added. Restore the "
        "file, or leave it out",
        name=file.url,
    )


def read_rows(
    file: Source,
    groups: Sequence[int] | None = None,
    *,
    pages_bytes: int = DEFAULT_PAGES_BYTES_MAX,
    home: Storage | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, or of some of its row groups, in order, with canonical layouts.

    Batches and pages are bounded as :func:`~lakebed.files.parquet.row_groups.read_row_groups` says.

    Raises DamagedError if they are not as many as its footer says.
    """
    from lakebed.files.parquet.row_groups import read_row_groups

    with open_source(file, home) as (source, parquet):
        wanted = list(range(parquet.num_row_groups) if groups is None else groups)
        rows = 0
        for batch in read_row_groups(source, file.url, wanted, pages_bytes=pages_bytes):
            rows += batch.num_rows
            yield plain(batch)
        expected = sum(parquet.metadata.row_group(index).num_rows for index in wanted)
        if rows != expected:
            raise Code.SOURCE_DAMAGED(f"{file.url} has {rows} rows, but its footer says {expected}", name=file.url)
    check_unchanged(file, home)


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with text, bytes and lists in the layout of tables: Arrow can neither take nor filter views.

    Dictionaries stay: the conformer checks the total size of their values first.
    """
    columns = [column if has_dictionary(column.type) else column.cast(types.canonical(column.type)) for column in rows]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def columns_of(file: Source, home: Storage | None = None) -> tuple[str, pa.Schema]:
    """Return the URL of a file, and its columns as its footer has them."""
    with open_source(file, home) as (_, parquet):
        return file.url, parquet.schema_arrow


def read_file(
    file: Source,
    encoder: Conformer | RowEncoder,
    *,
    pages_bytes: int = DEFAULT_PAGES_BYTES_MAX,
    home: Storage | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return all rows of a file as the encoder makes them; its columns are checked before the first row is read."""
    url, columns = columns_of(file, home)
    encoder.check(columns, url)
    return _conformed(read_rows(file, pages_bytes=pages_bytes, home=home), encoder, url)


def _conformed(
    batches: Iterator[pa.RecordBatch], encoder: Conformer | RowEncoder, url: str
) -> Iterator[pa.RecordBatch]:
    before = 0
    for batch in batches:
        yield encoder.conform(batch, url, rows_before=before)
        before += batch.num_rows
