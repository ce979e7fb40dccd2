"""Reads files of Parquet, Arrow IPC and CSV in this process, batch by batch, as rows of a table.

The first bytes of a file determine its format; CSV is recognised by its name. CSV columns are read as the table's
types: an empty cell is null, and quotes with nothing between them are an empty text.

Core types: :data:`InputFile`, :class:`RemoteFile`, :class:`Kind`.

Errors name the file: NotFoundError, StorageError (unreadable), DamagedError, SchemaMismatchError, BadKeyError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakebed.errors import Code, NotFoundError
from lakebed.ingest.source_rows import RowInput, SourceRows

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage
    from lakebed.storage.external import ExternalFiles

_PARQUET_MAGIC = b"PAR1"
_IPC_FILE_MAGIC = b"ARROW1"
_IPC_STREAM_MAGIC = b"\xff\xff\xff\xff"
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_CSV_SUFFIXES = (".csv", *(f".csv{suffix}" for suffix in _CODECS))


class Kind(Enum):
    """The format of a file."""

    PARQUET = "Parquet"
    IPC_FILE = "an Arrow file"
    IPC_STREAM = "an Arrow stream"
    CSV = "CSV"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on an object store."""

    url: str
    files: ExternalFiles = field(repr=False)
    path: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The file name without folders."""
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        """The end of the name, from the last dot on."""
        return PurePosixPath(self.path).suffix


InputFile = Path | RemoteFile


def is_remote(text: str) -> bool:
    """Whether the text is a URL of an object store."""
    return "://" in text and not text.startswith("file://")


def input_file(text: str, home: Storage | None = None) -> InputFile:
    """The file of a path or URL; ``home`` is the store of the instance, as :func:`open_external` takes it.

    Raises UsageError for an invalid URL.
    """
    if not is_remote(text):
        return Path(unquote(urlsplit(text).path) if text.startswith("file://") else text)
    from lakebed.storage.external import open_external

    return RemoteFile(text, *open_external(text, home))


def _bytes_of(path: InputFile) -> Any:
    """The file opened for reading bytes."""
    return path.open("rb") if isinstance(path, Path) else path.files.open(path.path)


def kind_of(path: InputFile) -> Kind:
    """The format of a file. Raises NotFoundError, StorageError (unreadable), UsageError (unknown format)."""
    with _reading(path), _bytes_of(path) as file:
        start = file.read(8)
    if path.name.lower().endswith(_CSV_SUFFIXES):
        return Kind.CSV
    for magic, kind in (
        (_PARQUET_MAGIC, Kind.PARQUET),
        (_IPC_FILE_MAGIC, Kind.IPC_FILE),
        (_IPC_STREAM_MAGIC, Kind.IPC_STREAM),
    ):
        if start.startswith(magic):
            return kind
    if path.suffix.lower() in (".parquet", ".arrow", ".arrows", ".feather", ".ipc"):
        raise Code.SOURCE_DAMAGED(
            f"{path} is named {path.suffix} but does not have the header of such a file", name=str(path)
        )
    raise Code.SOURCE_UNSUPPORTED(f"{path}: neither Parquet nor Arrow IPC, and not named .csv", source=str(path))


def rows_known(paths: Sequence[InputFile]) -> int | None:
    """The rows of all files, for a progress bar; None unless all are Parquet, whose footers say so."""
    import pyarrow.parquet as pq

    total = 0
    for path in paths:
        if kind_of(path) is not Kind.PARQUET:
            return None
        with _reading(path), _bytes_of(path) as file:
            total += pq.read_metadata(file).num_rows
    return total


def arrow_schema(path: InputFile) -> pa.Schema:
    """The columns of a data file. Raises as :func:`kind_of`, and UsageError for CSV, which has no types."""
    if kind_of(path) is Kind.CSV:
        raise Code.SOURCE_UNSUPPORTED(f"{path}: CSV has no types; write a schema file, or use a Parquet or Arrow file")
    return _columns(path, None)


def _columns(path: InputFile, schema: Schema | None) -> pa.Schema:
    with _reading(path), _open(path, schema) as (found, _):
        return found


@contextlib.contextmanager
def open_rows(path: InputFile, schema: Schema) -> Iterator[pa.RecordBatchReader]:
    """The rows of one file as they are there, read batch by batch; columns of CSV have the types of the schema.

    Raises NotFoundError, StorageError, DamagedError and SchemaMismatchError, which name the file, also while the rows
    are read within the ``with`` block.
    """
    with _reading(path), _open(path, schema) as (found, batches):
        yield pa.RecordBatchReader.from_batches(found, batches)


def open_files(items: Any, schema: Schema, home: Storage | None = None) -> RowInput:
    """The rows of all files of a path or URL, or of a list of them, in order. Columns of CSV have the types of the
    schema.

    Errors name the file: NotFoundError, StorageError, DamagedError or SchemaMismatchError, also while rows are read.
    """
    given = [items] if isinstance(items, str | Path) else items
    files = [input_file(str(item), home) for item in given]
    return RowInput(tuple((str(file), _columns(file, schema)) for file in files), _rows(files, schema))


def _rows(files: Sequence[InputFile], schema: Schema) -> Iterator[SourceRows]:
    for file in files:
        before = 0
        with _reading(file), _open(file, schema) as (_, batches):
            for batch in batches:
                yield SourceRows(batch, str(file), before)
                before += batch.num_rows


@contextlib.contextmanager
def _open(path: InputFile, schema: Schema | None) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    match kind_of(path):
        case Kind.PARQUET:
            import pyarrow.parquet as pq

            from lakebed.ingest.sources import plain
            from lakebed.parquet.row_groups import read_row_groups

            with pa.OSFile(str(path)) if isinstance(path, Path) else _bytes_of(path) as source:
                found = pq.read_schema(source)
                yield found, map(plain, read_row_groups(source, str(path)))
        case Kind.IPC_FILE:
            with _mapped(path) as source, pa.ipc.open_file(source) as file:
                yield file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
        case Kind.IPC_STREAM:
            with _mapped(path) as source, pa.ipc.open_stream(source) as stream:
                yield stream.schema, iter(stream)
        case Kind.CSV:
            with _open_csv(path, schema) as reader:
                yield reader.schema, iter(reader)


def _mapped(path: InputFile) -> Any:
    return pa.memory_map(str(path)) if isinstance(path, Path) else _bytes_of(path)


def _open_csv(path: InputFile, schema: Schema | None) -> Any:
    from pyarrow import csv

    # The conformer checks whether text is UTF-8, and names the column and the row.
    kinds = {f.name: f.type for f in schema.fields} if schema is not None else {}
    options = csv.ConvertOptions(
        column_types=kinds,
        default_column_type=None if schema is None else pa.string(),
        check_utf8=False,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    try:
        return csv.open_csv(_text_of(path), convert_options=options)
    except pa.ArrowInvalid as error:
        raise Code.SOURCE_UNPARSABLE(f"{path}: {error}", source=str(path)) from error


def _text_of(path: InputFile) -> Any:
    """What a CSV is read from. Arrow derives the compression from the name of local files only."""
    if isinstance(path, Path):
        return path
    codec = _CODECS.get(path.suffix.lower())
    return _bytes_of(path) if codec is None else pa.CompressedInputStream(_bytes_of(path), codec)


@contextlib.contextmanager
def _reading(path: InputFile) -> Iterator[None]:
    """Turn errors of reading a file into those of Lakebed."""
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise Code.SOURCE_NOT_FOUND(f"no file {path}", name=str(path)) from error
    except pa.ArrowNotImplementedError as error:
        raise Code.SOURCE_UNPARSABLE(f"{path}: {error}", source=str(path)) from error
    except pa.ArrowInvalid as error:
        if path.name.lower().endswith(_CSV_SUFFIXES):
            raise Code.SOURCE_UNPARSABLE(f"{path}: {error}", source=str(path)) from error
        raise Code.SOURCE_DAMAGED(f"{path} cannot be read: {error}", name=str(path)) from error
    except OSError as error:
        if "Couldn't deserialize thrift" in str(error) or "Corrupt" in str(error) or error.errno is None:
            raise Code.SOURCE_DAMAGED(f"{path} cannot be read: {error}", name=str(path)) from error
        raise Code.SOURCE_UNREADABLE(f"{path}: {error.strerror or error}", name=str(path)) from error


def read_text(path: Path) -> str:
    """A small text file. Raises NotFoundError, StorageError, or UsageError if it is not UTF-8."""
    with _reading(path):
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise Code.SOURCE_UNSUPPORTED(f"{path} is not UTF-8 text", source=str(path)) from error
