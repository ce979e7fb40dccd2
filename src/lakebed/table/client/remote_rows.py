"""Rows that a service sends, as the library returns them: a stream of batches, or a table.

An Arrow stream that fails in the service is cut, without its end; so is one whose connection is lost. Both raise
StorageError. Core types: :class:`RemoteRows`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from urllib3 import exceptions

from lakebed.errors import Code
from lakebed.model.frames import Frames
from lakebed.model.ipc import drained

if TYPE_CHECKING:
    import urllib3


class RemoteRows(Frames, pa.ipc.RecordBatchStreamReader):  # type: ignore[misc]
    """The rows of an answer, read from the connection as they are asked for. Close it, or read it to its end."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._body = _Body(answer)
        super().__init__(self._body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_all(self) -> pa.Table:
        """Return the remaining rows. Columns that are dictionaries have one for all of them."""
        return super().read_all().unify_dictionaries()

    def close(self) -> None:
        """End the read, in the service as well. May be called again."""
        self._body.close()


class _Body(io.RawIOBase):
    """The bytes of a response, which must be complete."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        super().__init__()
        self._answer = answer

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> Any:
        if self.closed:
            raise Code.ALREADY_CLOSED("the stream is closed; read the rows again")
        try:
            data = self._answer.read(size) if size else b""
        except (exceptions.HTTPError, OSError) as error:
            raise _cut_short(str(error)) from error
        if len(data) < size:
            raise _cut_short("it ended before its last row")
        return data

    def close(self) -> None:
        if not self.closed:
            # Not drained: there may be very many rows, which the service then does not send.
            self._answer.close()
        super().close()


def _cut_short(why: str) -> Exception:
    return Code.TRANSFER_INTERRUPTED(
        f"the service's answer was cut: {why}. The read failed there, took longer than it may, or the connection was "
        "lost; read again, fewer rows at a time"
    )


def table_in(answer: urllib3.BaseHTTPResponse) -> pa.Table:
    """Return the rows of an answer that was read."""
    return pa.ipc.open_stream(answer.data).read_all()


def encoded(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """Return the rows as an Arrow stream, batch by batch."""
    return drained(lambda sink: pa.ipc.new_stream(sink, reader.schema), reader)
