"""Answers with rows: sent as they are read, with limits on rows, bytes and time, and ended when the client is gone.

Core types: :class:`RowFormat` is a media type and what makes its bytes; :func:`chosen_format` finds the one that an
``Accept`` header wants. :class:`RowSource` opens the rows and makes the chunks of an answer in a thread, one when the
one before it was sent; so a slow client holds one batch, and the read waits. :class:`OpenAnswers` bounds the memory of
all answers that are open. The first chunk is made before the answer begins, so that an error of the read has its
status.

An error after that cuts the connection without the end of the answer, which every client notices: chunked encoding has
no last chunk, an Arrow stream no end, a Parquet file no footer. JSON lines have the error as their last line before.

Whatever ends an answer, its rows are closed: a scan frees its files, and the process of a statement is killed. Errors:
an HTTPException with 406 for formats that are not those of rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
import msgspec
import pyarrow as pa
from litestar.exceptions import HTTPException
from litestar.response import Response
from litestar.response.base import ASGIResponse

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.files.formats.row_chunks import Chunks, arrow_stream, csv_lines, json_array, json_lines, parquet_file
from lakebed.server.web.error_answers import document_of
from lakebed.server.web.waiting import place_in

if TYPE_CHECKING:
    from litestar import Request
    from litestar.types import Receive, Send

    from lakebed.server.security.principal import Principal
    from lakebed.server.service.room import Room
    from lakebed.server.web.waiting import RequestLimits


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How rows are sent. ``chunks`` makes the bytes of a schema and its batches."""

    media_type: str
    chunks: Chunks


JSON_LINES = RowFormat("application/x-ndjson", json_lines)
JSON_ARRAY = RowFormat("application/json", json_array)
ARROW = RowFormat("application/vnd.apache.arrow.stream", arrow_stream)
CSV = RowFormat("text/csv", csv_lines)
PARQUET = RowFormat("application/vnd.apache.parquet", parquet_file)

FORMATS = (JSON_LINES, JSON_ARRAY, ARROW, CSV, PARQUET)
_BY_NAME = {one.media_type: one for one in FORMATS} | {"application/jsonl": JSON_LINES}


def chosen_format(accept: str | None) -> RowFormat:
    """Return the format that the header prefers; JSON lines without one, and where it accepts anything.

    Raises HTTPException with status 406 if it accepts none.
    """
    if accept is None or accept == "*/*":
        return JSON_LINES
    ranked = sorted(_accepted(accept), key=lambda one: -one[1])
    for name, quality in ranked:
        if quality > 0 and (found := _matching(name)) is not None:
            return found
    known = ", ".join(one.media_type for one in FORMATS)
    raise HTTPException(detail=f"cannot answer as {accept[:200]}; rows are sent as {known}", status_code=406)


def _accepted(accept: str) -> Iterator[tuple[str, float]]:
    """Return the media types of the header, each with its quality."""
    for part in accept.split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        yield name, quality


def _matching(name: str) -> RowFormat | None:
    if name in ("*/*", "application/*"):
        return JSON_LINES
    return CSV if name == "text/*" else _BY_NAME.get(name)


_LOG = logging.getLogger("lakebed.web")

OPEN_BYTES = 64 * 1024 * 1024
"""What an open answer counts for: a slice being sent and the next one, as stored and decoded, and as text. A merge of
many files holds more, up to the table's setting memory_limit_bytes."""

SHORT_BYTES = 256 * 1024
"""An answer of one or two chunks of this size in all is sent as one text, of known length."""


class RowReader(Protocol):
    """A stream of rows, such as a RowStream or PyArrow's RecordBatchReader."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return the batches."""

    def close(self) -> None:
        """End the read."""


class RowSource:
    """The chunks of an answer. For one thread at a time, but for :meth:`kill`.

    A read is killed between two batches, and at once if it heeds ``cancelled``, as a statement does. When the rows were
    closed, ``closed`` is called.
    """

    def __init__(
        self,
        open_rows: Callable[[], RowReader],
        form: RowFormat,
        limits: RequestLimits,
        cancelled: threading.Event | None = None,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        self.form = form
        self.limits = limits
        self.ends_at = clock.monotonic_s() + limits.request_s
        self.ended = False
        self.failed: BaseException | None = None
        self._open_rows = open_rows
        self._cancelled = cancelled or threading.Event()
        self._closed = closed
        self._rows: RowReader | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._killed: Error | None = None
        self._sent_bytes = 0

    def begin(self) -> bytes:
        """Return the first chunks, joined; the whole answer if it is :attr:`ended` then."""
        try:
            self._rows = self._open_rows()
            self._chunks = self.form.chunks(self._rows.schema, self._counted(self._rows))
        except Exception as error:  # noqa: BLE001 - the caller answers it
            self._fail(error)
            return b""
        first = self.next()
        return first if self.ended or len(first) > SHORT_BYTES else first + self._more()

    def _more(self) -> bytes:
        chunks = []
        size = 0
        while not self.ended and size < SHORT_BYTES:
            chunks.append(self.next())
            size += len(chunks[-1])
        return b"".join(chunks)

    def next(self) -> bytes:
        """Return the next chunk; empty after the last one. An error ends the chunks, and is :attr:`failed`."""
        try:
            for chunk in self._chunks:
                if chunk:
                    self._sent_bytes += len(chunk)
                    self._check_bytes()
                    return chunk
        except Exception as error:  # noqa: BLE001 - an engine or a filter may raise anything; the answer says it
            self._fail(error)
        self.ended = True
        return b""

    def _fail(self, error: BaseException) -> None:
        self.failed = self._killed or error
        self.ended = True

    def _check_bytes(self) -> None:
        if self._sent_bytes > self.limits.answer_bytes:
            raise Code.ANSWER_LIMIT_EXCEEDED(
                f"the answer has more than {self.limits.answer_bytes:,} bytes, which this service allows; ask for "
                "fewer rows or columns, or submit a query"
            )

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent = 0
        for batch in batches:
            if self._killed is not None:
                raise self._killed
            sent += batch.num_rows
            if sent > self.limits.answer_rows:
                raise Code.ANSWER_LIMIT_EXCEEDED(
                    f"the answer has more than {self.limits.answer_rows:,} rows, which this service allows; give a "
                    "limit, or submit a query"
                )
            yield batch

    def closed_by(self, closed: Callable[[], object]) -> None:
        """Call this, and nothing else, when the rows are closed."""
        self._closed = closed

    def kill(self, reason: Error) -> None:
        """End the read with this error; from any thread."""
        self._killed = reason
        self._cancelled.set()

    def close(self) -> None:
        """End the read. No thread may be in :meth:`next`."""
        self.ended = True
        try:
            if self._rows is not None:
                self._rows.close()
        finally:
            self._closed()

    async def end_with(self, receive: Receive) -> None:
        """Kill the read when the client is gone, or the time is over."""
        reason: Error = Code.ANSWER_LIMIT_EXCEEDED(
            f"the answer took more than {self.limits.request_s:g} s, which this service allows; ask for fewer rows, or "
            "submit a query"
        )
        with anyio.move_on_after(max(0.0, self.ends_at - clock.monotonic_s())):
            while (await receive())["type"] != "http.disconnect":
                pass
            reason = Code.ALREADY_CLOSED("the client closed the connection")
        self.kill(reason)

    def last_words(self) -> bytes:
        """Return what the answer has after an error, before it is cut."""
        if self.form is not JSON_LINES or self.failed is None:
            return b""
        if isinstance(self.failed, Error):
            return msgspec.json.encode(document_of(self.failed)) + b"\n"
        return msgspec.json.encode(_BUG) + b"\n"


_BUG = {"error": {"kind": "bug", "code": "bug", "message": "the service failed; its log says why"}}


async def answer_rows(
    request: Request[Any, Any, Any],
    open_rows: Callable[[], RowReader],
    form: RowFormat,
    limits: RequestLimits,
    cancelled: threading.Event | None = None,
    *,
    closed: Callable[[], object] = lambda: None,
) -> Response[bytes]:
    """Return the answer with the rows that ``open_rows`` opens in a thread. They are closed when it has ended."""
    return _answer(*await _begun(request, RowSource(open_rows, form, limits, cancelled, closed)))


class OpenAnswers:
    """The answers of reads that are open, in bounded memory.

    An answer that is over with its first bytes needs no room. Another one that finds none is closed, waits without
    holding memory, and begins anew.
    """

    def __init__(self, room: Room, limits: RequestLimits) -> None:
        self._room = room
        self._limits = limits

    async def send(
        self,
        request: Request[Any, Any, Any],
        open_rows: Callable[[], RowReader],
        form: RowFormat,
        principal: Principal,
    ) -> Response[bytes]:
        """Return the answer with the rows that ``open_rows`` opens in a thread, perhaps twice.

        Raises ContentionError if there is no room in time.
        """
        limits, room = self._limits, self._room
        source, first = await _begun(request, RowSource(open_rows, form, limits))
        if source.ended:
            return _answer(source, first)
        place = room.take(principal.name, OPEN_BYTES)
        if place is not None:
            source.closed_by(place.free)
            return _answer(source, first)
        await anyio.to_thread.run_sync(source.close)
        async with place_in(room, principal.name, request, limits.wait_s, OPEN_BYTES) as found:
            return await answer_rows(request, open_rows, form, limits, closed=found.free)


async def _begun(request: Request[Any, Any, Any], source: RowSource) -> tuple[RowSource, bytes]:
    """Return an answer that has begun, and its first bytes. Raises what ended it, if that was an error."""
    first = b""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(source.end_with, request.receive)
            # The thread is waited for even if the request is cancelled: close() may not overtake it.
            first = await anyio.to_thread.run_sync(source.begin)
            tasks.cancel_scope.cancel()
    finally:
        if source.ended:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(source.close)
    if source.failed is not None:
        raise source.failed
    return source, first


def _answer(source: RowSource, first: bytes) -> Response[bytes]:
    if source.ended:
        return Response(first, media_type=source.form.media_type)
    return RowAnswer(source, first)


def answer_table(rows: pa.Table, form: RowFormat) -> Response[bytes]:
    """Return the answer with rows in memory."""
    return Response(b"".join(form.chunks(rows.schema, rows.to_batches())), media_type=form.media_type)


class RowAnswer(Response[bytes]):
    """An answer of which the first bytes are known, and the others follow."""

    def __init__(self, source: RowSource, first: bytes) -> None:
        super().__init__(b"", media_type=source.form.media_type)
        self._source = source
        self._first = first

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **options: Any) -> ASGIResponse:  # noqa: ARG002 - Litestar's
        """Return the ASGI application that sends the answer."""
        return _Sending(
            self._source,
            self._first,
            media_type=self._source.form.media_type,
            status_code=options.get("status_code") or 200,
            headers=options.get("headers"),
            is_head_response=options.get("is_head_response", False),
        )


class _Sending(ASGIResponse):
    _should_set_content_length = False

    def __init__(self, source: RowSource, first: bytes, **options: Any) -> None:
        super().__init__(**options)
        self._source = source
        self._first = first

    async def send_body(self, send: Send, receive: Receive) -> None:
        """Send chunks until the last, the limit of time, or until the client is gone."""
        source = self._source
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_with, receive, tasks.cancel_scope)
                await self._send_chunks(send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(source.close)

    async def _end_with(self, receive: Receive, scope: anyio.CancelScope) -> None:
        await self._source.end_with(receive)
        # The client may not read, so that sending would wait for ever.
        scope.cancel()

    async def _send_chunks(self, send: Send) -> None:
        await _send_chunk(send, self._first)
        source = self._source
        while not source.ended:
            await _send_chunk(send, await anyio.to_thread.run_sync(source.next))
        if source.failed is None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if not isinstance(source.failed, Error):
            _LOG.error("an answer failed after it had begun", exc_info=source.failed)
        # Without the last event the server closes the connection, and the client sees an answer that was cut.
        await _send_chunk(send, source.last_words())


async def _send_chunk(send: Send, chunk: bytes) -> None:
    if chunk:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
