"""Reads the sources of a bulk import that Spark reads: formats, queries, DataFrames, and the result of a ``select``.

CSV and JSON have no types: their values are read as text, and the tasks cast them to the table's types like any column
with a cast. Only nested values in JSON are cast by Spark, strictly. In CSV an empty cell is null, and quotes with
nothing between them are an empty text. Spark gets the files that a folder or glob means to Lakebed, one by one, and
interprets no path: neither wildcards nor columns in the names of folders. Only stores that Lakebed cannot list are
listed by Spark.

Core types: :class:`SparkSource`.

Errors: UsageError for formats and queries, NotFoundError for paths, SchemaMismatchError for what Spark cannot read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.files.formats.file_format import SUFFIXES as DATA_SUFFIXES
from lakebed.files.formats.file_format import format_of
from lakebed.files.formats.input_file import input_file
from lakebed.files.formats.reading_options import DETECTED, FORMATS
from lakebed.model import types
from lakebed.spark.datasource.spark_columns import arrow_of, spark_of
from lakebed.spark.spark_exchange import run_tasks
from lakebed.spark.spark_job import is_spark_error, spark_errors, spark_job, spark_message
from lakebed.storage.external import absolute, kind_of
from lakebed.write.conformer import Conformer
from lakebed.write.sources import SUFFIXES, find_files, is_hidden, items_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from lakebed.jobs.executor import T, TableCall
    from lakebed.storage.contract import Storage

TEXT_FORMATS = ("csv", "json")

_CONNECTORS = {
    "avro": "org.apache.spark:spark-avro_2.13",
    "delta": "io.delta:delta-spark_2.13",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime",
}
"""Formats that Spark reads only with an additional package."""

_DATA_ERRORS = ("FAILED_READ_FILE", "MALFORMED_RECORD", "CAST_INVALID_INPUT", "CAST_OVERFLOW", "DIVIDE_BY_ZERO")
"""Spark's error conditions that are about the data, not about Spark."""

_LISTED = ("file", "s3", "gs", "az")
"""Kinds of stores that Lakebed lists itself."""

_GLOBS = "__globPaths__"
"""Spark's option whether characters of a path are wildcards."""

_NULL = "\ufdd0"
"""The text of null in CSV: a code point that no byte is read as, so that it differs from an empty text."""

_BYTES = "ISO-8859-1"
"""The encoding that CSV is read with, which keeps every byte. With UTF-8, Spark replaces other bytes silently."""


def is_frame(given: Any) -> bool:
    """Return whether the source is a DataFrame of Spark."""
    from pyspark.sql import DataFrame

    return isinstance(given, DataFrame)


class SparkSource:
    """A source as a DataFrame; see :class:`lakebed.jobs.executor.FrameSource`. Spark is started when its columns are
    asked for.
    """

    def __init__(
        self, session: Callable[[], SparkSession], call: TableCall, given: Any, format: str | None, select: str | None
    ) -> None:
        """A DataFrame, or a source that Spark reads; with ``select`` the rows of that query. Raises as
        :func:`format_for`.
        """
        self._session, self._call, self._given, self._select = session, call, given, select
        framed = is_frame(given)
        self.name = "the DataFrame" if framed else str(given)
        self._format = "parquet" if framed else format_for(given, format, call.table.storage)
        self.untyped = not framed and self._format in TEXT_FORMATS

    @cached_property
    def frame(self) -> DataFrame:
        """The frame. Raises as :func:`read_frame`, KeyboardInterrupt if the call was asked to stop."""
        with spark_job(session := self._session(), self._call.stop):
            return read_frame(session, self._given, self._format, self._select, self._call.table.storage)

    @property
    def columns(self) -> pa.Schema:
        """As :attr:`FrameSource.columns`."""
        frame = self.frame
        with spark_errors():
            return columns_of(frame)

    def typed(self, conformer: Conformer) -> SparkSource:
        """As :meth:`FrameSource.typed`."""
        found, frame = copy(self), self.frame
        with spark_errors():
            found.frame = typed(frame, conformer)
        return found

    def run_all(self, work: Callable[[Iterator[pa.RecordBatch]], T], made: type[T], call: TableCall) -> list[T]:
        """As :meth:`FrameSource.run_all`, by one action."""
        try:
            return run_tasks(self.frame, work, made, call)
        except Error as error:
            raise refused_text(error, self.name) from error


def format_for(source: Any, format: str | None, home: Storage) -> str:
    """Return the format of a source; if none is given, that of its first file.

    Raises UsageError for a source that cannot be of the format. Does not use Spark, which takes long to start.
    """
    items = items_of(source)
    if format in ("delta", "iceberg", "query") and len(items) > 1:
        raise Code.ARGUMENT_INVALID(f"{format} takes one source at a time, not {len(items)}: {', '.join(items)}")
    if format is not None:
        return format
    first = input_file(find_files(source, home, DATA_SUFFIXES)[0].url, home)
    kind = format_of(first, DETECTED)
    formats = {"Parquet": "parquet", "CSV": "csv", "JSON": "json", "ORC": "orc"}
    if kind.value not in formats:
        raise Code.SOURCE_UNSUPPORTED(f"{first} is {kind.value}, which Spark does not read: import it without a select")
    return formats[kind.value]


def read_frame(session: SparkSession, source: Any, format: str, select: str | None, home: Storage) -> DataFrame:
    """Return the source as a DataFrame, or the result of the query ``select`` over it under the name ``source``.
    ``home`` is the store of the instance.

    Raises:
        UsageError: a format whose connector the session does not have, or not a query.
        NotFoundError: a path that does not exist.
        SchemaMismatchError: a source that Spark cannot read.
    """
    from pyspark.sql import DataFrame

    frame = source if isinstance(source, DataFrame) else _frame_of(session, source, format, home)
    return frame if select is None else _queried(session, select, frame)


def typed(frame: DataFrame, conformer: Conformer) -> DataFrame:
    """Return the frame, with columns of nested values in a text format cast by Spark."""
    found = columns_of(frame)
    for field in conformer.schema.fields:
        name = conformer.column(field.name)
        if field.name not in conformer.casts or name not in found.names or not pa.types.is_nested(field.type):
            continue
        if not types.widens(found.field(name).type, field.type):
            frame = frame.withColumn(name, frame[_quoted(name)].cast(spark_of(field.type, name)))
    return frame


def columns_of(frame: DataFrame) -> pa.Schema:
    """Return the columns of a frame in Arrow's types."""
    return arrow_of(frame.schema)


def _frame_of(session: SparkSession, source: Any, format: str, home: Storage) -> DataFrame:
    items = items_of(source)
    if format == "query":
        return _queried(session, items[0])
    # An Iceberg table has a name.
    paths = items if format == "iceberg" else _paths_of(items, format, home)
    with _reading(", ".join(items), format):
        reader = session.read.option("mode", "FAILFAST").option(_GLOBS, str(kind_of(items[0]) not in _LISTED).lower())
        frame = _loaded(reader, paths, format)
        # A session of Spark Connect analyses the source only here.
        _ = frame.schema
        return frame


def _paths_of(items: list[str], format: str, home: Storage) -> list[str]:
    """Return the files to be read by Spark, or the folder of a Delta table."""
    if format == "delta" or any(kind_of(item) not in _LISTED for item in items):
        # Spark resolves relative paths where its JVM was started.
        return [absolute(item) for item in items]
    suffixes = SUFFIXES if format == "parquet" else DATA_SUFFIXES if format in FORMATS else ("",)
    paths = [_in_scheme_of(items, file.url) for file in find_files(items, home, suffixes)]
    unread = [path for path in paths if is_hidden(path.rpartition("/")[2])]
    if unread:
        raise Code.SOURCE_UNSUPPORTED(
            f"Spark leaves out files whose names begin with _ or .: rename {unread[0]}, or import it without a select",
            source=unread[0],
        )
    return paths


def _in_scheme_of(items: list[str], url: str) -> str:
    """Return the URL with the scheme that the user gave, since that of Spark's own client is another: ``s3a``."""
    given = [item.partition("://")[0] for item in items if "://" in item and kind_of(item) == kind_of(url)]
    return f"{given[0]}://{url.partition('://')[2]}" if given and "://" in url else url


def _loaded(reader: DataFrameReader, paths: list[str], format: str) -> DataFrame:
    match format:
        case "csv":
            # Every file's header is checked: columns are matched by name, and otherwise by position.
            # Quotes within quotes are doubled; Spark's default is a backslash.
            options = {"header": "true", "enforceSchema": "false", "escape": '"', "emptyValue": "", "nullValue": _NULL}
            return _as_utf8(reader.options(**options, encoding=_BYTES).csv(paths))
        case "json":
            return reader.option("primitivesAsString", "true").json(paths)
        case "parquet" | "orc":
            # Without it the columns of one file stand for all, and other columns are lost.
            return reader.option("mergeSchema", "true").format(format).load(paths)
        case "delta" | "iceberg":
            return reader.format(format).load(paths[0])
        case _:
            return reader.format(format).load(paths)


def _as_utf8(frame: DataFrame) -> DataFrame:
    """Return text that was read byte by byte as its original bytes; the conformer checks that they are UTF-8."""
    from pyspark.sql import functions as fn

    columns = []
    for name in frame.columns:
        column = fn.encode(frame[_quoted(name)], _BYTES).cast("string")
        columns.append(column.alias(name.encode(_BYTES).decode("utf-8", "replace")))
    return frame.select(columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _queried(session: SparkSession, query: str, source: DataFrame | None = None) -> DataFrame:
    """Return the rows of a query, which may name ``source``; analysed now, computed later.

    Raises UsageError if invalid.
    """
    # In parentheses only a query is valid.
    text = f"SELECT * FROM (\n{query.strip().rstrip(';')}\n)"  # noqa: S608 - the caller's own query, in the caller's session
    try:
        if source is None:
            frame = session.sql(text)
        else:
            # With a frame as argument, PySpark interprets braces.
            named = "WITH source AS (SELECT * FROM {given}) " + text.replace("{", "{{").replace("}", "}}")  # noqa: S608 - as above
            frame = session.sql(named, given=source)
        _ = frame.schema
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise Code.SQL_INVALID(f"Spark cannot run the query {query!r}: {spark_message(error)}", query=query) from error
    return frame


@contextlib.contextmanager
def _reading(names: str, format: str) -> Iterator[None]:
    """Turn errors of Spark about paths and formats into those of other sources."""
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        text = str(error)
        if "No FileSystem for scheme" in text or "S3AFileSystem not found" in text:
            raise Code.PACKAGE_MISSING(
                f"Spark reads {format} itself, and this session cannot read {names}: for s3a:// start Spark with "
                "--packages org.apache.hadoop:hadoop-aws of its Hadoop's version (`lakebed docs import`), or put the "
                "files where all tasks can read them. Lakebed reads Parquet without a query, from s3:// too",
                format=format,
                source=names,
            ) from error
        if "PATH_NOT_FOUND" in text:
            raise Code.SOURCE_NOT_FOUND(f"nothing matches {names}", name=names) from error
        if format in _CONNECTORS and ("DATA_SOURCE_NOT_FOUND" in text or "Failed to find data source" in text):
            raise Code.PACKAGE_MISSING(
                f"this Spark session cannot read {format}: it lacks the package {_CONNECTORS[format]} of its version. "
                "Start Spark with --packages or spark.jars.packages, and pass the session",
                format=format,
            ) from error
        raise Code.SOURCE_UNPARSABLE(f"{names}: {spark_message(error)}", source=names) from error


def refused_text(error: Error, source: str) -> Error:
    """Return an error of Spark about a malformed record or failed cast, as a SchemaMismatchError with the source."""
    if type(error) is Error and any(mark in error.message for mark in _DATA_ERRORS):
        return Code.SOURCE_UNPARSABLE(f"{source}: {error.message}", source=source)
    return error
