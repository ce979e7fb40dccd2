"""A table of another system as a stream of rows, and the rows of Parquet files as one.

Each kind of table has a module that opens it. Tables with a library of their own are read through it, so that their
deletes and renamed columns are applied. For the others the module finds the live files, and :func:`of_files` reads
them.

Core types: :class:`ForeignTable`, :class:`RowsPart`, :class:`ParquetPart`.

Rules. Columns of files are matched by name, and get the type that fits all files. No rows are read before the stream
is. A part can be pickled and read in any process that can access the files, for example in a Spark task.

Errors: NotFoundError, StorageError and DamagedError name the file; UsageError names an unsupported feature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import xxhash

from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.state.migration_keys import MigrationKey
from lakebed.storage.external import identity_of, open_external
from lakebed.write.sources import FilePattern, files_below, without_own

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.storage.external import ExternalFile, ExternalFiles


FOOTER_THREADS = 16


class RowsPart(Protocol):
    """Some of the rows of a table, to be read by one task."""

    @property
    def name(self) -> str:
        """The URL of a file, for errors."""

    @property
    def size_bytes(self) -> int:
        """About the number of bytes to read."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, with the columns of the table."""


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table at one of its versions. ``rows`` is the number of rows by its own metadata; None if that is not exact.
    ``batches`` are all of its rows; ``parts`` are the same rows divided for tasks.

    ``origin`` identifies the table at all of its versions, however its address is spelled. ``content`` identifies the
    rows where the source has no versions. ``since`` returns the rows that were added after a version, or None if others
    were changed or removed since, or the source does not have that version any more. It is None itself if the source
    cannot say which rows were added.
    """

    name: str
    version: str | None
    schema: pa.Schema
    rows: int | None
    batches: Callable[[], Iterator[pa.RecordBatch]]
    parts: Callable[[], Sequence[RowsPart]]
    origin: str
    content: str | None = None
    since: Callable[[str], ForeignTable | None] | None = None

    def key(self, job_id: str | None = None) -> MigrationKey:
        """Return the key under which a migration of this version is committed."""
        origin = xxhash.xxh3_128_hexdigest(self.origin.encode())
        return MigrationKey(origin, str(self.content or self.version), job_id)

    def with_parts(self, parts: Sequence[RowsPart], rows: int | None) -> ForeignTable:
        """Return the table with only the rows of some of its parts; ``rows`` is their number by its metadata."""

        def batches() -> Iterator[pa.RecordBatch]:
            for part in parts:
                yield from part.batches()

        return replace(self, rows=rows, batches=batches, parts=lambda: parts)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The location of a table: the text of the user, and the store of the instance, whose options may apply there."""

    url: str
    home: Storage
    version: str | None = None
    catalog: str | None = None
    wanted: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The fields of the target table, if there is one."""

    @property
    def identity(self) -> str:
        """The same text for every spelling of the URL."""
        _, path = open_external(self.url, self.home)
        return identity_of(self.url, path)

    def number(self) -> int | None:
        """Return the version as a number. Raises UsageError if it is not one."""
        if self.version is None:
            return None
        if not self.version.isdecimal():
            raise Code.ARGUMENT_INVALID(f"--version {self.version} is not a number")
        return int(self.version)


_WRAPPERS = re.compile(r"^(?:[A-Za-z ]*\berror(?: ->|:) |External: )+", re.IGNORECASE)


def library_text(error: BaseException) -> str:
    """Return the message of an exception of a library in Rust, without the names of its layers and its trace."""
    return _WRAPPERS.sub("", error_text(error)).partition(" 0: <unknown>")[0]


def unsupported(location: SourceLocation) -> AbstractContextManager[None]:
    """Convert errors of another system's library in the block to a UsageError that names the table."""

    def translated(error: BaseException) -> Error:
        return Code.SOURCE_UNSUPPORTED(f"{location.url}: {library_text(error)}", source=location.url)

    return translate_errors(translated)


def unreadable(location: SourceLocation, version: str | None) -> AbstractContextManager[None]:
    """Convert errors of another system's library that reads rows in the block to a DamagedError."""

    def translated(error: BaseException) -> Error:
        text = library_text(error)
        gone = "not found" in text
        remedy = "its garbage collection may have deleted them: migrate its latest version" if gone else "restore them"
        return Code.SOURCE_DAMAGED(
            f"the files of version {version} of {location.url} cannot be read: {text}; {remedy}", name=location.url
        )

    return translate_errors(translated)


# -- Parquet files -------------------------------------------------------------------------------------------------


Keep = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""Maps a batch of a file, and the position of its first row in the file, to the rows to keep."""


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A Parquet file, or the rows of it that ``keep`` returns. ``constants`` are columns with a single value each."""

    path: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    keep: Keep | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """The rows of a Parquet file with the columns of its table. Raises DamagedError, which names the file."""

    location: SourceLocation
    part: ParquetPart
    schema: pa.Schema
    size_bytes: int

    @property
    def name(self) -> str:
        """The URL of the file."""
        return f"{self.location.url.rstrip('/')}/{self.part.path}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows to keep, in the order of the file."""
        from lakebed.files.parquet.row_groups import read_row_groups

        constants = {
            name: _constant(value, self.schema.field(name).type, self.name)
            for name, value in self.part.constants.items()
        }
        position = 0
        with SourceFolder(self.location).open(self.part.path) as source:
            try:
                for batch in read_row_groups(source, self.name):
                    kept = batch if self.part.keep is None else self.part.keep(batch, position)
                    position += batch.num_rows
                    columns = [
                        pa.repeat(constants[one.name], kept.num_rows)
                        if one.name in constants
                        else _cast(kept.column(one.name), one.type)
                        if one.name in kept.schema.names
                        else pa.nulls(kept.num_rows, one.type)
                        for one in self.schema
                    ]
                    yield pa.RecordBatch.from_arrays(columns, names=self.schema.names)
            except (pa.ArrowInvalid, OSError) as error:
                raise Code.SOURCE_DAMAGED(f"{self.name} cannot be read: {error}", name=self.name) from error


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as the type that fits all files. Times of INT96 that it does not hold stay in their own unit."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column


class SourceFolder:
    """A folder of files, on a store or on local disk. Paths are relative to it."""

    def __init__(self, location: SourceLocation) -> None:
        self.url = location.url.rstrip("/")
        self._files: ExternalFiles
        self._files, self._root = open_external(self.url, location.home)
        self._home = location.home

    def list(self, below: str = "") -> dict[str, ExternalFile]:
        """Return the files below a subfolder, by path, in order. Raises NotFoundError if there is no file."""
        found = self.list_if_any(below)
        if not found:
            raise Code.SOURCE_NOT_FOUND(f"no files below {self.url}/{below}".rstrip("/"), name=self.url)
        return found

    def list_if_any(self, below: str) -> dict[str, ExternalFile]:
        """Return the files below a subfolder, as :meth:`list`; empty if there is none."""
        return self._by_path(self._files.below(f"{self._root}/{below}".rstrip("/")))

    def data_files(self) -> dict[str, ExternalFile]:
        """Return the files that an import of the folder reads, whatever their names end with, by path, in order.

        Raises NotFoundError if there is no file.
        """
        found = self._by_path(without_own(files_below(self._files, self._root, FilePattern()), self.url, self._home))
        if not found:
            raise Code.SOURCE_NOT_FOUND(f"no files below {self.url}", name=self.url)
        return found

    def _by_path(self, files: Iterable[ExternalFile]) -> dict[str, ExternalFile]:
        return dict(sorted((file.path.removeprefix(f"{self._root}/"), file) for file in files))

    def open(self, path: str) -> Any:
        """Open a file as an Arrow file. Raises NotFoundError, which names it."""
        try:
            return self._files.open(f"{self._root}/{path}")
        except FileNotFoundError as error:
            raise Code.SOURCE_NOT_FOUND(
                f"no file {self.url}/{path}, which the table refers to", name=f"{self.url}/{path}"
            ) from error

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file."""
        with self.open(path) as file:
            return bytes(file.read())


def of_files(
    folder: SourceFolder,
    parts: Sequence[ParquetPart],
    location: SourceLocation,
    version: str | None = None,
    content: str | None = None,
) -> ForeignTable:
    """Return the rows of all parts, in order. Reads all footers. A part with ``keep`` makes their number unknown."""
    if not parts:
        raise Code.SOURCE_NOT_FOUND(f"no Parquet files that count in {folder.url}", name=folder.url)
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        footers = list(pool.map(lambda part: _footer(folder, part.path), parts))
    rows = None if any(part.keep for part in parts) else sum(footer.num_rows for footer in footers)
    schema = _united([plain_schema(footer.schema.to_arrow_schema()) for footer in footers], folder.url)
    for name in dict.fromkeys(name for part in parts for name in part.constants):
        column = pa.field(name, location.wanted.get(name) or _type_of([part.constants.get(name) for part in parts]))
        schema = schema.set(schema.get_field_index(name), column) if name in schema.names else schema.append(column)
    read = [
        FilePart(location, part, schema, sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups)))
        for part, footer in zip(parts, footers, strict=True)
    ]

    def batches() -> Iterator[pa.RecordBatch]:
        for part in read:
            yield from part.batches()

    return ForeignTable(folder.url, version, schema, rows, batches, lambda: read, location.identity, content)


def _footer(folder: SourceFolder, path: str) -> Any:
    import pyarrow.parquet as pq

    with folder.open(path) as source:
        try:
            return pq.read_metadata(source)
        except (pa.ArrowInvalid, OSError) as error:
            url = f"{folder.url}/{path}"
            raise Code.SOURCE_DAMAGED(
                f"{url} cannot be read as Parquet: {error_text(error)}. Restore it, or move it elsewhere if the table "
                "has no rows in it",
                name=url,
            ) from error


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns in the layout of tables, without metadata."""
    return pa.schema([pa.field(one.name, types.canonical(one.type), one.nullable) for one in schema])


def _united(schemas: Sequence[pa.Schema], url: str) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise Code.COLUMN_TYPE_MISMATCH(f"the files below {url} differ in a column: {error}", source=url) from error


def _type_of(values: Sequence[str | None]) -> pa.DataType:
    """Return the type of a column whose values are in the names of folders: whole numbers if all are, else text."""
    texts = [value for value in values if value is not None]
    whole = texts and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in texts)
    return pa.int64() if whole else pa.string()


def _constant(value: Any, kind: pa.DataType, url: str) -> pa.Scalar:
    """Return a value of the type from a value or its text."""
    if value is not None and not isinstance(value, str):
        return pa.scalar(value, kind)
    text = value
    try:
        return pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Code.COLUMN_TYPE_MISMATCH(f"{url}: {text!r} in the name of a folder is not {kind}", source=url) from error
