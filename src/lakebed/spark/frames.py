"""DataFrames as a source of a bulk import: staged first, whatever they are.

A DataFrame may give other rows each time it is computed (``rand``, ``limit``, a source that changes), and computing it
once to sample it and again to import it would cost twice where it is dear. So it is computed exactly once, by one
action: each of its partitions is sorted and written as a run of its own under the table's data, as orphans to be. What
follows, the cutting and merging, then reads immutable files, and may be repeated as often as Spark likes. Their
summaries tell where to cut.

Text formats (CSV, JSON) have no types of their own: their columns are matched by name and cast to the table's types by
Spark, strictly. ORC has types, and goes the same way as a DataFrame.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Error, NotFoundError, SchemaMismatchError, UsageError
from lakebed.files import NewFile, object_names
from lakebed.ingest.send import send_run
from lakebed.schema import Schema, check_columns, conform
from lakebed.spark import wire
from lakebed.spark.batch import TaskError, on_one_core, said_by_spark, spark_errors, task_scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.spark.shuffle import Shuffle
    from lakebed.storage.contract import Storage

FORMATS = ("parquet", "csv", "json", "orc")

_DATA_ERRORS = (
    "CAST_INVALID_INPUT", "CAST_OVERFLOW", "FAILED_READ_FILE", "MALFORMED_RECORD", "NUMERIC_VALUE_OUT_OF_RANGE",
)  # fmt: skip
"""Spark's error conditions that are about the data, not about Spark."""

_STAGED = "row_count long, payload binary"
_STAGED_SCHEMA = pa.schema([("row_count", pa.int64()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class Staged:
    """The run that one partition of a DataFrame became."""

    rows: int
    files: tuple[NewFile, ...]


def read_frame(session: SparkSession, source: Any, format: str, schema: Schema) -> DataFrame:
    """The source as a DataFrame with the table's columns.

    Raises:
        UsageError: an unknown format.
        NotFoundError: a path that does not exist.
        SchemaMismatchError: missing or extra columns.
    """
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}; there are: {', '.join(FORMATS)}", format=format)
    items = [source] if isinstance(source, str | Path) else list(source)
    if not items:
        raise UsageError("no source was given: name files, folders or globs")
    # Spark would look in the folder where its JVM was started, whatever folder this process is in now.
    paths = [str(i) if "://" in str(i) else str(Path(i).expanduser().absolute()) for i in items]
    reader = session.read.option("mode", "FAILFAST")
    with _reading(paths):
        if format == "csv":
            frame = reader.option("header", "true").csv(paths)
        elif format == "json":
            frame = reader.json(paths)
        else:
            return reader.orc(paths)
        return _typed(frame, schema, ", ".join(paths))


def check_frame(frame: DataFrame, schema: Schema, source: str) -> None:
    """Raise SchemaMismatchError unless the frame's columns can be made to fit; nothing is computed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    check_columns(to_arrow_schema(frame.schema, timezone="UTC"), schema, source)


def stage(frame: DataFrame, shuffle: Shuffle) -> tuple[Staged, ...]:
    """Compute the frame, once, and write each partition as a run of job ``shuffle.job``."""
    with spark_errors():
        found = frame.mapInArrow(_stage_function(shuffle), _STAGED).toArrow()
    return tuple(
        Staged(rows, wire.decode_new_files(wire.load(payload)))
        for rows, payload in zip(*(column.to_pylist() for column in found.columns), strict=True)
    )


def unstage(staged: Sequence[Staged], storage: Storage, table_id: str) -> None:
    """Delete staged files: nothing ever names them in a log."""
    files = [new.file for part in staged for new in part.files]
    storage.delete([name for f in files for name in object_names(table_id, f)])


def _stage_function(shuffle: Shuffle) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lakebed.kernels.sort import sort_runs

        on_one_core()
        schema = shuffle.layout.schema
        try:
            with task_scratch() as scratch:
                rows = (conform(batch, schema, "the DataFrame") for batch in batches)
                run_files = sort_runs(rows, shuffle.layout, scratch, memory_limit_bytes=shuffle.memory_limit_bytes)
                files = send_run(shuffle.place.connect(), shuffle.table_id, run_files, job=shuffle.job)
            count = sum(new.file.rows for new in files)
            yield pa.record_batch([[count], [wire.dump(wire.encode_new_files(files))]], schema=_STAGED_SCHEMA)
        except Exception as error:
            raise TaskError(error) from error

    return run


def _typed(frame: DataFrame, schema: Schema, source: str) -> DataFrame:
    """The columns of a text format, cast to the table's types by name."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    plain = pa.schema([pa.field(name, schema.arrow.field(name).type) for name in frame.columns if name in schema.names])
    strangers = [pa.field(name, pa.string()) for name in frame.columns if name not in schema.names]
    # Only the names can be wrong here; the check says which, as for any other source.
    check_columns(pa.schema([*plain, *strangers]), schema, source)
    columns = []
    for field in schema.fields:
        try:
            kind = from_arrow_type(field.type, prefer_timestamp_ntz=True)
        except Exception as error:
            raise UsageError(
                f"column {field.name} is {field.type}, which Spark cannot read from text; import Parquet instead",
                column=field.name,
            ) from error
        name = field.name.replace("`", "``")
        columns.append(functions.col(f"`{name}`").cast(kind).alias(field.name))
    return frame.select(*columns)


@contextlib.contextmanager
def _reading(paths: Sequence[str]) -> Iterator[None]:
    """Turn what Spark says about paths and text into the errors that any other source gives."""
    from pyspark.errors import AnalysisException, PySparkException

    names = ", ".join(paths)
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise NotFoundError(f"nothing matches {names}", name=names) from error
        raise SchemaMismatchError(f"{names}: {said_by_spark(error)}", source=names) from error
    except PySparkException as error:
        raise SchemaMismatchError(f"{names}: {said_by_spark(error)}", source=names) from error


def refused_text(error: Error, source: str) -> Error:
    """What Spark says of a malformed record or a failed cast is about the data, and names no source."""
    if type(error) is Error and any(mark in error.message for mark in _DATA_ERRORS):
        return SchemaMismatchError(f"{source}: {error.message}", source=source)
    return error
