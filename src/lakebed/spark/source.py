"""The Parquet files of a bulk import: found, checked and sampled by the driver, read by its tasks.

The list of files is explicit from the start, with sizes and times, so that what a task reads when it is tried again is
what it read at first, or an error. Before anything runs, every footer has been read: a file that is no Parquet file,
or does not fit the schema, is named while nothing has been written.

A folder stands for the Parquet files below it, as their names end; what begins with ``_`` or ``.`` belongs to whoever
wrote the folder. A file named outright may have any name.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import DamagedError, NotFoundError, StorageError, UsageError

if TYPE_CHECKING:
    from pyarrow import fs as pafs

    from lakebed.ingest.intake import Intake
    from lakebed.schema import Schema

SUFFIXES = (".parquet", ".parq", ".pq")
FOOTER_THREADS = 16
"""A footer is one or two small requests: many at once hide the waiting."""

BATCH_ROWS = 65_536

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as it was when the import began. ``modified_ns`` is 0 where the store does not tell."""

    uri: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Group:
    """One row group. ``raw_bytes`` are uncompressed; ``bounds`` are the first key field's minimum and maximum."""

    file: int
    index: int
    rows: int
    raw_bytes: int
    key_bytes: int
    bounds: tuple[Any, Any] | None


# -- finding ----------------------------------------------------------------------------------------------------


def find_files(source: str | Path | Sequence[str | Path]) -> tuple[SourceFile, ...]:
    """All files of paths, folders, globs and URIs, in order of name. Raises NotFoundError for one that has none."""
    items = [source] if isinstance(source, str | Path) else list(source)
    if not items:
        raise UsageError("no source was given: name Parquet files, folders or globs")
    found = [file for item in items for file in sorted(_find(str(item)), key=lambda f: f.uri)]
    uri, times = Counter(file.uri for file in found).most_common(1)[0]
    if times > 1:
        raise UsageError(f"{uri} is named twice; its rows would be imported twice", name=uri)
    return tuple(found)


def _find(item: str) -> list[SourceFile]:
    from pyarrow import fs as pafs

    system, path = open_system(item)
    try:
        there = system.get_file_info(path)
        missing = there.type == pafs.FileType.NotFound
        files: list[Any] = []
        for match in _expand(system, path) if missing and _GLOB.search(path) else [there]:
            if match.type == pafs.FileType.Directory:
                files += _below(system, match.path)
            elif match.type != pafs.FileType.NotFound:
                files.append(match)
    except OSError as error:
        raise StorageError(f"cannot read {item}: {error}", name=item) from error
    if not files:
        what = "nothing matches" if _GLOB.search(item) else "there is no file or folder with Parquet files at"
        raise NotFoundError(f"{what} {item}", name=item)
    prefix = _prefix(item)
    return [SourceFile(prefix + file.path, file.size, file.mtime_ns or 0) for file in files]


def open_system(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    from pyarrow import fs as pafs

    if "://" not in uri:
        return pafs.LocalFileSystem(), str(Path(uri).expanduser().absolute())
    try:
        system, path = pafs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", uri))
    except (pa.ArrowInvalid, OSError) as error:
        raise UsageError(f"cannot read from {uri}: {error}", name=uri) from error
    return system, path


def _prefix(item: str) -> str:
    """What turns a path of the item's file system into something :func:`open_system` takes."""
    scheme = re.match(r"(\w+)://", item)
    if scheme is None or scheme[1] == "file":
        return ""
    return "s3://" if scheme[1] in ("s3a", "s3n") else f"{scheme[1]}://"


def _expand(system: pafs.FileSystem, pattern: str) -> list[Any]:
    from pyarrow import fs as pafs

    parts = PurePosixPath(pattern).parts
    fixed = next(index for index, part in enumerate(parts) if _GLOB.search(part))
    base, rest = str(PurePosixPath(*parts[:fixed])), parts[fixed:]
    if isinstance(system, pafs.LocalFileSystem):
        return list(system.get_file_info([str(path) for path in sorted(Path(base).glob("/".join(rest)))]))
    listed = system.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
    return [entry for entry in listed if _matches(PurePosixPath(entry.path).relative_to(base).parts, rest)]


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skip:], pattern[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _below(system: pafs.FileSystem, folder: str) -> Iterator[Any]:
    from pyarrow import fs as pafs

    for entry in system.get_file_info(pafs.FileSelector(folder, recursive=True)):
        if entry.type != pafs.FileType.File or not entry.path.lower().endswith(SUFFIXES):
            continue
        inside = PurePosixPath(entry.path).relative_to(folder).parts
        if not any(part.startswith(("_", ".")) for part in inside):
            yield entry


# -- checking ---------------------------------------------------------------------------------------------------


def read_footers(files: Sequence[SourceFile], intake: Intake) -> tuple[Group, ...]:
    """The row groups of all files, in order. Raises DamagedError or SchemaMismatchError naming the file at fault."""
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        found = pool.map(lambda item: _read_footer(item[0], item[1], intake), enumerate(files))
        return tuple(group for groups in found for group in groups)


def _read_footer(number: int, file: SourceFile, intake: Intake) -> list[Group]:
    with open_parquet(file) as parquet:
        intake.check(parquet.schema_arrow, file.uri)
        metadata = parquet.metadata
        first = intake.schema.row_key[0]
        groups = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
            keys = [columns[name] for name in intake.keys.needed if name in columns]
            groups.append(
                Group(
                    file=number,
                    index=index,
                    rows=group.num_rows,
                    raw_bytes=group.total_byte_size,
                    key_bytes=sum(column.total_compressed_size for column in keys),
                    bounds=None if first.expression else _bounds(columns.get(intake.column(first.name))),
                )
            )
        return groups


def _bounds(column: Any) -> tuple[Any, Any] | None:
    try:
        statistics = None if column is None else column.statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
    except (pa.ArrowException, ValueError, OverflowError):
        # A value that Python's own types cannot hold, such as a date before the year 1.
        return None


# -- reading ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_parquet(file: SourceFile) -> Iterator[Any]:
    """A Parquet file opened for reading; what fails inside the block names it, too.

    Raises DamagedError if its bytes are not Parquet, StorageError if it cannot be read or is another file by now.
    """
    import pyarrow.parquet as pq

    system, path = open_system(file.uri)
    try:
        there = system.get_file_info(path)
        if (there.size, there.mtime_ns or 0) != (file.size_bytes, file.modified_ns):
            raise StorageError(
                f"{file.uri} was changed or removed while it was being imported; nothing was imported", name=file.uri
            )
        # Foreign files that have page CRCs are held to them.
        with (
            system.open_input_file(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as parquet,
        ):
            yield parquet
    except OSError as error:
        if error.errno is None:
            # Arrow's own: decompression that fails, a footer that is none.
            raise _unreadable(file, error) from error
        raise StorageError(f"cannot read {file.uri}: {error.strerror}", name=file.uri) from error
    except pa.ArrowException as error:
        raise _unreadable(file, error) from error


def _unreadable(file: SourceFile, error: Exception) -> DamagedError:
    return DamagedError(
        f"{file.uri} cannot be read as Parquet ({str(error)[:300]}); nothing was imported. Restore the file, or leave "
        "it out",
        name=file.uri,
    )


def read_rows(file: SourceFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups as they are there, in order, on the calling thread."""
    with open_parquet(file) as parquet:
        yield from parquet.iter_batches(batch_size=BATCH_ROWS, row_groups=list(groups), use_threads=False)


# -- sampling ---------------------------------------------------------------------------------------------------

SAMPLE_BYTES = 48 * 1024 * 1024
"""Compressed key columns read for the sample: half a second of one core."""

SAMPLE_ROWS = 16_384
"""Keys taken of a row group: a share of an eighth is then known to about 3%."""


def chosen_groups(groups: Sequence[Group]) -> list[int]:
    """Positions of the row groups to sample: all, or as many as SAMPLE_BYTES allow, spread evenly."""
    total = sum(group.key_bytes for group in groups)
    if total <= SAMPLE_BYTES:
        return list(range(len(groups)))
    count = max(1, len(groups) * SAMPLE_BYTES // total)
    return [(2 * i + 1) * len(groups) // (2 * count) for i in range(count)]


def sample_keys(file: SourceFile, group: Group, intake: Intake, whole: Schema) -> tuple[bytes, ...]:
    """Keys of a row group at even distances, encoded with ``whole``, whose row key is row key and sort key."""
    import numpy as np

    with open_parquet(file) as parquet:
        rows = parquet.read_row_group(group.index, columns=intake.keys.needed, use_threads=False)
        step = max(1, rows.num_rows // SAMPLE_ROWS)
        taken = rows.take(pa.array(np.arange(step // 2, rows.num_rows, step))).combine_chunks().to_batches()
        names = list(intake.schema.sort_names)
        # What does not fit is refused where the rows are read.
        keys = [intake.keys.sift(batch, file.uri)[0] for batch in taken]
        return tuple(key for batch in keys for key in whole.codec.encode_columns(batch.select(names)).to_pylist())
