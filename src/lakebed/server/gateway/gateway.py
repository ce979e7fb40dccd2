"""The ASGI application of the object gateway: S3's requests for one bucket, read-only.

Core type: :class:`Gateway`. It verifies the signature of a request before it looks at anything else, reads tables
through the roles of the access key alone, and sends the bytes of data files as the store has them, in parts: a request
holds a few megabytes, however large its object is. Logs and stores are read in threads, copies of rows are written by
a few at a time, in turns of the principals that wait for them.

Errors: all are answered as documents of S3. One that comes after the answer has begun cuts the connection, which
clients notice by Content-Length. Source: docs/open.md, docs/decisions/0076.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from lakebed import clock
from lakebed.errors import Error, NotFoundError
from lakebed.model.files import INSTANCE_NAME, data_name
from lakebed.server.gateway.bucket import Bucket, KeyHolder
from lakebed.server.gateway.copies import CACHE_BYTES, Copies
from lakebed.server.gateway.preconditions import Representation, asked_range, is_unmodified
from lakebed.server.gateway.s3_documents import (
    ListedObject,
    buckets_answer,
    check_parameters,
    is_version_2,
    list_answer,
    list_request,
    location_answer,
)
from lakebed.server.gateway.s3_errors import S3Error, s3_error
from lakebed.server.gateway.signatures import SignedRequest, signer_of
from lakebed.server.security.access_keys import AccessKeys
from lakebed.server.service.room import Room
from lakebed.server.web.access import OpenTables
from lakebed.server.web.connections import CONNECTION
from lakebed.server.web.middleware import AuditedRequests, MeasuredRequests
from lakebed.server.web.request_authentication import PRINCIPAL
from lakebed.server.web.waiting import wait_for_place

if TYPE_CHECKING:
    from lakebed.server.gateway.copies import Copy
    from lakebed.server.gateway.version_objects import TableObject, VersionObjects, ViewKey
    from lakebed.server.monitoring.monitor import Monitor
    from lakebed.server.security.audit import AuditLog
    from lakebed.server.service.service import Service
    from lakebed.server.web.waiting import RequestLimits

_LOG = logging.getLogger("lakebed.gateway")

BUCKET = "lakebed"
REGION = "us-east-1"
NEAR_BYTES, REMOTE_BYTES = 1024 * 1024, 8 * 1024 * 1024
"""What is read of an object at once: each read of a store is a round trip."""
AHEAD = 3
"""Parts that are read while one is sent."""
SHORT_BYTES = 256 * 1024
"""An answer of this size needs no room."""
WRITERS = 3
"""Copies that are written at once, of which one principal has all but one."""
WAITING_MAX = 1000
"""Copies that wait for a writer, of one principal: not fewer than the connections that it may have."""
_SWEEP_S = 60.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Read = Callable[[int, int], bytes]
"""Reads ``(offset, length)``."""


class App(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""


def make_gateway(  # noqa: PLR0913 - as make_app
    service: Service,
    keys: AccessKeys,
    limits: RequestLimits,
    monitor: Monitor,
    audit: AuditLog | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
) -> App:
    """Return the gateway to the instance of a service, measured and audited as the service's own requests are."""
    gateway = Gateway(service, keys, limits, Copies(cache_bytes))
    monitor.watch(gateway.room)
    measured: Any = AuditedRequests(MeasuredRequests(gateway, monitor), audit, "s3")  # type: ignore[arg-type]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (gateway.live(receive, send) if scope["type"] == "lifespan" else measured(scope, receive, send))

    return app


@dataclass(frozen=True, slots=True)
class _Content:
    """An object that is sent: how its bytes are read, and in parts of which size."""

    representation: Representation
    read: Read
    part_bytes: int


@dataclass(slots=True)
class _Exchange:
    """A request and the way of its answer. ``began``: the head of the answer was sent."""

    request: SignedRequest
    receive: Receive
    send: Send
    id: str
    began: bool = False

    async def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send an answer whole; none of the body to HEAD."""
        if status != HTTPStatus.NOT_MODIFIED:
            headers = {"Content-Length": str(len(body)), **headers}
        await self.begin(status, headers)
        await self.send({"type": "http.response.body", "body": b"" if self.request.method == "HEAD" else body})

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        """Send the head of an answer."""
        self.began = True
        every = {**headers, "x-amz-request-id": self.id}
        encoded = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in every.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})


class Gateway:
    """Answers requests; for one event loop."""

    def __init__(self, service: Service, keys: AccessKeys, limits: RequestLimits, copies: Copies) -> None:
        self.room = Room("objects", limits.answer_memory_bytes)
        self._storage = service.instance.storage
        self._bucket = Bucket(OpenTables(service))
        self._keys = keys
        self._limits = limits
        self._copies = copies
        self._writers = Room("copies of rows", WRITERS, queue_max=WAITING_MAX)
        self._threads = anyio.CapacityLimiter(WRITERS)
        self._writing: dict[tuple[ViewKey, str], asyncio.Future[Copy]] = {}

    async def live(self, receive: Receive, send: Send) -> None:
        """Delete copies that nothing uses, as long as the server runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep)
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    tasks.cancel_scope.cancel()
                    return

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(_SWEEP_S)
            await anyio.to_thread.run_sync(self._copies.delete_unused)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        exchange = _Exchange(
            SignedRequest(scope["method"], path, query, headers), receive, send, clock.random_token()[:16].upper()
        )
        scope["path_template"] = "s3"
        try:
            await self._answer(scope, exchange)
        except S3Error as error:
            await self._refuse(exchange, error)
        except Error as error:
            await self._refuse(exchange, s3_error(error))
        except Exception as error:  # noqa: BLE001 - a bug is answered, and its traceback logged
            _LOG.error("%s %s failed", scope["method"], path, exc_info=error)
            await self._refuse(exchange, S3Error("InternalError", "the gateway failed; its log says why"))

    @staticmethod
    async def _refuse(exchange: _Exchange, error: S3Error) -> None:
        if exchange.began:
            # Cuts the connection.
            raise error
        body = error.document(exchange.request.path, exchange.id)
        await exchange.answer(error.status, {"Content-Type": "application/xml", **error.headers}, body)

    # -- what is asked ---------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, exchange: _Exchange) -> None:
        request = exchange.request
        holder = self._holder(request)
        scope[PRINCIPAL] = holder.principal
        if CONNECTION in scope:
            scope[CONNECTION].belongs_to(holder.principal.name)
        if request.method not in ("GET", "HEAD"):
            raise S3Error("MethodNotAllowed", "tables are read here and not written", {"Allow": "GET, HEAD"})
        bucket, _, key = request.decoded_path[1:].partition("/")
        if bucket not in ("", BUCKET) or (key and not bucket):
            raise S3Error("NoSuchBucket", f"there is one bucket, {BUCKET}, named in the path: /{BUCKET}/TABLE/…")
        given = request.by_name
        if key:
            scope["path_template"] = f"s3 {request.method.title()}Object"
            scope["path_params"] = {"table": key.partition("/")[0].partition("@")[0]}
            check_parameters(given)
            await self._object(exchange, holder, key)
        elif not bucket:
            scope["path_template"] = "s3 ListBuckets"
            check_parameters(given)
            created = await anyio.to_thread.run_sync(self._storage.last_modified, INSTANCE_NAME)
            document = buckets_answer(BUCKET, created or clock.now(), holder.principal.name)
            await exchange.answer(200, _XML, document)
        elif request.method == "HEAD":
            scope["path_template"] = "s3 HeadBucket"
            check_parameters(given)
            await exchange.answer(200, {"x-amz-bucket-region": REGION})
        elif "location" in given:
            scope["path_template"] = "s3 GetBucketLocation"
            check_parameters(given, ("location",))
            await exchange.answer(200, _XML, location_answer())
        else:
            scope["path_template"] = "s3 ListObjectsV2" if is_version_2(given) else "s3 ListObjects"
            await self._list(exchange, holder)

    def _holder(self, request: SignedRequest) -> KeyHolder:
        """Return who signed the request. Raises S3Error, AccessError."""

        def secret_of(key_id: str) -> str:
            found = self._keys.find(key_id)
            if found is None:
                raise S3Error(
                    "InvalidAccessKeyId",
                    "there is no such access key, or it was dropped; a new one is accepted after 30 seconds at most",
                )
            return found[1]

        key_id = signer_of(request, secret_of, clock.now())
        found = self._keys.find(key_id)
        if found is None:
            raise S3Error("InvalidAccessKeyId", "the access key was dropped")
        return KeyHolder(self._keys.principal_of(found[0]), found[0].share)

    async def _list(self, exchange: _Exchange, holder: KeyHolder) -> None:
        given = exchange.request.by_name
        asked = list_request(given)
        page = await anyio.to_thread.run_sync(self._bucket.page, holder, asked)
        listed = [
            ListedObject(key, (await self._content(holder, view, one)).representation)
            for key, view, one in page.objects
        ]
        await exchange.answer(200, _XML, list_answer(BUCKET, given, asked, page, listed))

    # -- objects -----------------------------------------------------------------------------------------------------

    async def _object(self, exchange: _Exchange, holder: KeyHolder, key: str) -> None:
        view, found = await anyio.to_thread.run_sync(self._bucket.find, holder, key)
        content = await self._content(holder, view, found)
        representation, header = content.representation, exchange.request.header
        headers = representation.headers()
        if is_unmodified(header, representation):
            await exchange.answer(HTTPStatus.NOT_MODIFIED, headers)
            return
        part = asked_range(header, representation)
        begin, end = part or (0, representation.size_bytes)
        headers |= {"Content-Type": "application/vnd.apache.parquet", "Content-Length": str(end - begin)}
        if part is not None:
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{representation.size_bytes}"
        status = HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT
        if exchange.request.method == "HEAD":
            await exchange.answer(status, headers)
        else:
            await self._send(exchange, holder, content, (begin, end), (status, headers))

    async def _content(self, holder: KeyHolder, view: VersionObjects, one: TableObject) -> _Content:
        """Return the content of an object, written now if it has to be. Raises as :meth:`Copies.write`."""
        if one.file is not None:
            # Clients take 32 hex digits alone for the MD5 of the content.
            representation = Representation(one.file.size_bytes, f"{one.file.digest}-1", one.last_modified)
            name = data_name(view.key.table, one.file)
            part_bytes = NEAR_BYTES if self._storage.locality.near else REMOTE_BYTES
            return _Content(representation, partial(_read_stored, view, name), part_bytes)
        copy = self._copies.known(view, one) or await self._written(holder, view, one)
        representation = Representation(copy.size_bytes, f"{copy.digest}-1", one.last_modified)
        return _Content(representation, copy.read, NEAR_BYTES)

    async def _written(self, holder: KeyHolder, view: VersionObjects, one: TableObject) -> Copy:
        """Return the copy of an object. The requests that need it at the same time wait for one writer."""
        name = view.key, one.name
        writing = self._writing.get(name)
        if writing is None:
            writing = asyncio.ensure_future(self._write(holder, view, one))
            self._writing[name] = writing
            writing.add_done_callback(lambda _: self._writing.pop(name))
        # A request that ends leaves it to the others.
        return await asyncio.shield(writing)

    async def _write(self, holder: KeyHolder, view: VersionObjects, one: TableObject) -> Copy:
        place = await asyncio.wrap_future(self._writers.ask(holder.principal.name))
        try:
            return await anyio.to_thread.run_sync(self._copies.write, view, one, limiter=self._threads)
        finally:
            place.free()

    async def _send(
        self,
        exchange: _Exchange,
        holder: KeyHolder,
        content: _Content,
        part: tuple[int, int],
        head: tuple[int, dict[str, str]],
    ) -> None:
        """Send a part of an object, in an answer with this status and these headers."""
        begin, end = part
        place = None
        if end - begin > SHORT_BYTES:
            size = min(end - begin, (AHEAD + 1) * content.part_bytes)
            place = await wait_for_place(self.room, holder.principal.name, size, self._limits.wait_s)
        gone = asyncio.ensure_future(_disconnected(exchange.receive))
        try:
            parts = _parts(content.read, begin, end, content.part_bytes)
            # An error of the first part has its status.
            first = await anext(parts)
            await exchange.begin(*head)
            await exchange.send({"type": "http.response.body", "body": first, "more_body": True})
            async for data in parts:
                if gone.done():
                    await parts.aclose()
                    return
                await exchange.send({"type": "http.response.body", "body": data, "more_body": True})
            await exchange.send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            if place is not None:
                place.free()


_XML = {"Content-Type": "application/xml"}


def _read_stored(view: VersionObjects, name: str, offset: int, length: int) -> bytes:
    """Return bytes of a data file. Raises as a read of the store, and S3Error if it was deleted, or is too short."""
    try:
        return view.snapshot.storage.read_ranges(name, [(offset, length)])[0]
    except NotFoundError as error:
        raise S3Error(
            "NoSuchKey",
            f"the file was deleted: version {view.key.version} of the table {view.name} is no longer retained, see its "
            "setting history_s; list the table again",
        ) from error
    except OSError as error:
        raise S3Error("InternalError", f"a data file of the table {view.name} is too short: {error}") from error


async def _parts(read: Read, begin: int, end: int, part_bytes: int) -> AsyncGenerator[bytes]:
    """Return the bytes in parts, of which some are read ahead."""
    reads: deque[asyncio.Future[bytes]] = deque()
    at = begin
    try:
        while at < end or reads:
            while at < end and len(reads) <= AHEAD:
                length = min(part_bytes, end - at)
                reads.append(asyncio.ensure_future(anyio.to_thread.run_sync(read, at, length)))
                at += length
            yield await reads.popleft()
    finally:
        for one in reads:
            one.cancel()
        for one in reads:
            with suppress(Exception, asyncio.CancelledError):
                await one


async def _disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
