"""Rows on their way to who asked for them: an Arrow stream that lets everything go when it is closed.

Arrow's own reader over a Python generator goes on holding it when it is closed, and with it the open files: this one
ends the generator first, so that no more is read, and what it held is free.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import TracebackType


STREAM_BYTES = 8 * 1024 * 1024
"""Of a batch that is given out, unless a row alone is larger."""


def bounded(rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """The rows in batches of at most STREAM_BYTES, unless a row alone is larger."""
    if rows.nbytes <= STREAM_BYTES:
        return (rows,)
    # Arrow's kernels take as long to import as a lookup in all.
    from lakebed.parquet.sizes import cut

    return cut(rows, STREAM_BYTES)


class RowStream(AbstractContextManager["RowStream"]):
    """Record batches of one schema, once. Read it to its end, or close it; it is a ``with`` block, too.

    What takes an Arrow stream takes it (``__arrow_c_stream__``), and it has the methods of ``pyarrow``'s
    RecordBatchReader that read. For one thread at a time.
    """

    def __init__(self, schema: pa.Schema, batches: Generator[pa.RecordBatch]) -> None:
        self.schema: pa.Schema = schema
        self._batches = batches
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
        """The rest of the rows, for whoever speaks Arrow's stream interface; errors reach him as text only."""
        return self._open().__arrow_c_stream__(requested_schema)

    def read_next_batch(self) -> pa.RecordBatch:
        """The next rows. Raises StopIteration after the last."""
        return self._open().read_next_batch()

    def read_all(self) -> pa.Table:
        """The rest of the rows."""
        return self._open().read_all()

    def close(self) -> None:
        """Stop reading, and let go of files and memory. May be called again."""
        self._reader = None
        self._batches.close()

    def _open(self) -> pa.RecordBatchReader:
        if self._reader is None:
            raise Code.ALREADY_CLOSED("the stream is closed; scan again")
        return self._reader
