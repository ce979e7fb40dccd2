"""Row streams: filters rows by a predicate, gives them their exact types, and returns them as an Arrow stream.

Core types: :class:`RowStream`, :class:`Unfiltered`. :func:`filtered` evaluates a predicate over the rows of many small
reads at once, because the engine takes far longer to plan a predicate than to evaluate it over a few rows. A predicate
of 1,000 alternatives comes with as many key ranges, each of which is a read of a few rows.

Arrow's reader over a Python generator still holds the generator, and its open files, when it is closed.
:class:`RowStream` closes the generator first, which stops the read and frees its memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.extension_values import returned, returned_schema
from lakebed.model.frames import Frames
from lakebed.model.validity import as_stored
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from types import TracebackType

    from lakebed.engine.predicate import Predicate
    from lakebed.files.parquet.read_cache import ReadStatistics
    from lakebed.model.schema import Schema

WAITING_ROWS_MAX = 16_384
"""The most rows that wait for the predicate; for this many rows, planning is a small part of the work."""

WAITING_BYTES_MAX = 8 * 1024 * 1024


class Unfiltered(Struct, frozen=True):
    """Rows over which the predicate was not evaluated yet."""

    rows: pa.RecordBatch


def unfiltered(batches: Iterable[pa.RecordBatch], wanted: pa.Schema) -> Iterator[Unfiltered]:
    """Return the batches with the columns ``wanted`` only, so that one predicate can be evaluated over several parts.

    Overlapping files are read with the key columns, other files without.
    """
    return (Unfiltered(exactly(rows, wanted)) for rows in batches)


def filtered(batches: Iterator[pa.RecordBatch | Unfiltered], where: Predicate | None) -> Generator[pa.RecordBatch]:
    """Return the rows for which the predicate is true, in their order. Batches that are no :class:`Unfiltered` pass
    unchanged.

    The first batch is filtered at once, for callers that want a few rows; then twice as many each time.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    reads_max = 1
    for one in batches:
        if isinstance(one, Unfiltered):
            waiting.append(one.rows)
            rows += one.rows.num_rows
            size_bytes += one.rows.nbytes
            if len(waiting) < reads_max and rows < WAITING_ROWS_MAX and size_bytes < WAITING_BYTES_MAX:
                continue
            reads_max *= 2
        if waiting:
            yield _filter(waiting, where)
            waiting, rows, size_bytes = [], 0, 0
        if not isinstance(one, Unfiltered):
            yield one
    if waiting:
        yield _filter(waiting, where)


def _filter(waiting: list[pa.RecordBatch], where: Predicate | None) -> pa.RecordBatch:
    from lakebed.engine.predicate import keep

    assert where is not None
    return keep(pa.concat_batches(waiting), where)


def exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns, types and field ids of the schema: an engine has its own types for some."""
    if rows.schema == schema:
        return rows
    columns = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else as_stored(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


STREAM_BYTES = 8 * 1024 * 1024
"""The size limit of a returned batch, unless a single row is larger."""


def bounded(rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """Return the rows in batches of at most STREAM_BYTES, unless a single row is larger."""
    if rows.nbytes <= STREAM_BYTES:
        return (rows,)
    # Importing Arrow's kernels takes as long as a whole lookup.
    from lakebed.files.parquet.sizes import slice_rows

    return slice_rows(rows, STREAM_BYTES)


def timed_batches(
    batches: Generator[pa.RecordBatch],
    kind: str,
    table: str,
    statistics: ReadStatistics | None = None,
    *,
    before_s: float = 0.0,
) -> Generator[pa.RecordBatch]:
    """Return the same batches; if there is a sink, the time that it takes to make the first and all of them is
    measured.

    The time that their reader takes between two batches does not count. ``before_s`` was taken already; ``statistics``
    are reported at the end.
    """
    return batches if telemetry.sink is None else _timed(batches, kind, table, statistics, before_s)


def _timed(
    batches: Generator[pa.RecordBatch], kind: str, table: str, statistics: ReadStatistics | None, spent_s: float
) -> Generator[pa.RecordBatch]:
    labels = {"kind": kind, "table": table}
    sink = telemetry.sink
    ended = None if sink is None else sink.begun("read", labels, nests=False)
    failure: Exception | None = None
    first = True
    try:
        with closing(batches):
            while True:
                began_s = clock.monotonic_s()
                batch = next(batches, None)
                spent_s += clock.monotonic_s() - began_s
                if first:
                    telemetry.measure("read_seconds", spent_s, kind=f"{kind}_first_batch", table=table)
                    first = False
                if batch is None:
                    break
                yield batch
    except Exception as error:
        failure = error
        telemetry.measure("read_errors_total", 1, **labels)
        raise
    finally:
        telemetry.measure("read_seconds", spent_s, **labels)
        if statistics is not None:
            statistics.report(kind, table)
        if ended is not None:
            ended(failure)


def returned_stream(stream: RowStream, schema: Schema) -> RowStream:
    """Return a stream of stored rows of a schema as reads return it: dictionary columns have one in each batch."""
    if schema.dictionaries.isdisjoint(stream.schema.names):
        return stream

    def batches() -> Generator[pa.RecordBatch]:
        with closing(stream):
            for rows in stream:
                yield returned(rows, schema)

    return RowStream(returned_schema(stream.schema, schema), batches())


class RowStream(Frames, AbstractContextManager["RowStream"]):
    """Record batches of one schema, to be read once. Read it to its end or close it; it is a context manager as well.

    Consumers of Arrow streams accept it (``__arrow_c_stream__``), and it has the reading methods of PyArrow's
    RecordBatchReader. For one thread at a time.
    """

    def __init__(self, schema: pa.Schema, batches: Generator[pa.RecordBatch], *, again: str = "scan again") -> None:
        """``again`` is what to do after it was closed, for the message."""
        self.schema: pa.Schema = schema
        self._batches = batches
        self._again = again
        self._begun = False
        self._reader: pa.RecordBatchReader | None = pa.RecordBatchReader.from_batches(schema, batches)

    def __iter__(self) -> RowStream:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self.read_next_batch()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the remaining rows, by Arrow's C stream interface, which passes errors on as text only."""
        return self._open().__arrow_c_stream__(requested_schema)

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next rows. Raises StopIteration after the last."""
        return self._open().read_next_batch()

    def read_all(self) -> pa.Table:
        """Return the remaining rows. Columns that are dictionaries have one for all of them."""
        return self._open().read_all().unify_dictionaries()

    def close(self) -> None:
        """Stop reading, and release files and memory. May be called again."""
        self._reader = None
        self._batches.close()

    def _open(self) -> pa.RecordBatchReader:
        if self._reader is None:
            raise Code.ALREADY_CLOSED(f"the stream is closed; {self._again}")
        self._begun = True
        return self._reader

    def _reading(self) -> str:
        if self._reader is None:
            return f"closed ({self._again})"
        return "read from, each once" if self._begun else "not read yet"
