"""Reads files of Parquet, Arrow IPC and CSV in this process, batch by batch, as rows of a table.

The first bytes of a file determine its format; CSV is recognised by its name. CSV columns are read as the table's
types: an empty cell is null, and quotes with nothing between them are an empty text.

Core types: :data:`InputFile`, :class:`RemoteFile`, :class:`Kind`.

Errors name the file: NotFoundError, StorageError (unreadable), DamagedError, SchemaMismatchError, BadKeyError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakebed.errors import Code, NotFoundError

if TYPE_CHECKING:
    from lakebed.ingest.growth import Growth
    from lakebed.ingest.row_encoder import RowEncoder
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


def read_rows(
    paths: Sequence[InputFile], encoder: RowEncoder, progress: Callable[[int], None], growth: Growth | None = None
) -> pa.RecordBatchReader:
    """All rows of the files, in order, as they are stored; ``progress`` is called with the rows read so far.

    With a ``growth``, rows have the other columns of all files as well; those of CSV are text.

    Errors name the file: while it is read, NotFoundError, StorageError, DamagedError, SchemaMismatchError or
    BadKeyError.
    """
    from lakebed.state.transactions.schema_growth import with_fields

    if growth is not None:
        schema, row_kind = encoder.conformer.schema, encoder.operation.row_kind
        read = () if row_kind is None else (row_kind,)
        added = growth.fields(schema, [(str(path), _columns(path, schema)) for path in paths], read)
        conformer = replace(encoder.conformer, schema=with_fields(schema, added), grows=True)
        encoder = replace(encoder, conformer=conformer)
    return pa.RecordBatchReader.from_batches(encoder.schema.arrow, _batches(paths, encoder, progress))


def _batches(
    paths: Sequence[InputFile], encoder: RowEncoder, progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    from lakebed.parquet.sizes import BATCH_BYTES, cut

    done = 0
    for path in paths:
        with _reading(path), _open(path, encoder.conformer.schema) as (found, batches):
            encoder.check(found, str(path))
            for batch in batches:
                for rows in cut(batch, BATCH_BYTES):
                    yield encoder.conform(rows, str(path))
                    done += rows.num_rows
                    progress(done)


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
