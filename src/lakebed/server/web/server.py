"""Runs a web application until it is stopped.

uvicorn serves; :class:`BoundedProtocol` bounds what it does not: the time of a TLS handshake and of the head of a
request, the size of a head and of trailers, how long an answer may wait for its client, and what is left of a request
that was answered early. :mod:`lakebed.server.web.connections` decides which connection is closed when there are too
many. Signals are the caller's. Errors: UsageError for an address or a certificate that cannot be used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lakebed.errors import Code
from lakebed.server.web.connections import CONNECTION, ConnectionLimits, Connections
from lakebed.server.web.error_answers import document_of, retry_headers, status_of
from lakebed.server.web.request_authentication import HEALTH

if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.types import ASGIApp

DRAIN_S = 30
"""How long requests that have begun may go on after the service was asked to end."""

Tls = tuple[Path, Path] | None
"""The files of the certificate chain and of its key."""

BACKLOG = 2048
"""Connections that wait to be accepted."""

FILES_MAX = 65_536
"""Connections and open files of the process, if the system allows so many."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one. Raises UsageError if the address cannot be listened on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise Code.ARGUMENT_INVALID(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --host or --port"
        ) from error


def url_of(listening: socket.socket, tls: Tls = None) -> str:
    """Return the URL of the service that answers there."""
    host, port = listening.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """Ends when an event is set. Its caller handles signals."""

    def __init__(self, config: uvicorn.Config, asked: threading.Event, head_s: float) -> None:
        super().__init__(config)
        self._asked = asked
        self._head_s = head_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer. A handshake of TLS has the time of a head; uvicorn would wait a minute for it."""
        await super().startup(sockets=[])
        if self.should_exit:
            return
        config = self.config
        tls: dict[str, Any] = {} if config.ssl is None else {"ssl": config.ssl, "ssl_handshake_timeout": self._head_s}
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            connection: asyncio.Protocol = made(
                config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )
            return connection

        for one in sockets or ():
            self.servers.append(await loop.create_server(protocol, sock=one, backlog=BACKLOG, **tls))

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        return await super().on_tick(counter) or self._asked.is_set()


def serve(
    app: Litestar | ASGIApp,
    listening: socket.socket,
    asked: threading.Event,
    tls: Tls = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Answer requests until the event is set; then end those that have begun. Raises UsageError for a bad ``tls``."""
    bounds = limits or ConnectionLimits()
    config = uvicorn.Config(
        cast("Any", app),
        http=cast("Any", partial(BoundedProtocol, Connections(bounds))),
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=DRAIN_S,
        access_log=False,
        server_header=False,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        # An SSLError is an OSError.
        raise Code.ARGUMENT_INVALID(
            f"--tls-cert, --tls-key: not a certificate chain and its key, in PEM, without a password ({error})"
        ) from error
    _allow_files()
    _Server(config, asked, bounds.head_s).run(sockets=[listening])


def _allow_files() -> None:
    """Let the process have as many connections and files as the system allows it: most systems begin with 1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, FILES_MAX)), hard))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens on an address. Only localhost is known by name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A client that sends the head of a request slowly, or without end, is disconnected.

    uvicorn bounds neither its time nor, with httptools, its size, so that a few slow clients could hold all connections
    (slowloris). The body and the answer have the limits of :class:`~lakebed.server.web.waiting.RequestLimits`.
    """

    def __init__(self, connections: Connections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._all = connections
        self._limits = connections.limits
        # What the protocol waits for, with its end: a head or a further request, and a client that takes no answer.
        self._head_end: asyncio.TimerHandle | None = None
        self._stall_end: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._has_body = False
        self._lingers = False
        self._output: Any = None

    # -- the connection -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of the first request."""
        super().connection_made(transport)
        self._output = _Output(self, transport)
        self._all.add(self)
        self._await_head(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._all.remove(self)
        _stop(self._head_end)
        self._head_end = None
        _stop(self._stall_end)
        self._stall_end = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close it now, whatever was not sent."""
        self.transport.abort()

    def belongs_to(self, principal: str) -> None:
        """Note the principal of its request. Raises ContentionError if it has most of the connections."""
        self._all.belongs_to(self, principal)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that its client has not taken yet."""
        return int(self.transport.get_write_buffer_size())

    def _note_who_waits(self) -> None:
        # There is none before the first request.
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused:
            self._all.waits(self)
        else:
            self._all.works(self)

    # -- requests -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request. Disconnect if its head is too large, or what follows it without being its body.

        The parser keeps trailers of a body in chunks as it keeps headers.
        """
        if self._lingers:
            return
        self._has_body = False
        super().data_received(data)
        cycle: Any = self.cycle
        if self._head_end is not None or (cycle is not None and cycle.more_body and not self._has_body):
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self.abort()

    def on_message_begin(self) -> None:
        """Wait for the head of a request, which has begun."""
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[CONNECTION] = self
        self._await_head(self._limits.head_s)

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is complete."""
        _stop(self._head_end)
        self._head_end = None
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        super().on_body(body)
        self._has_body = True
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        """Note that the client waits now."""
        super().on_message_complete()
        self._note_who_waits()

    def _await_head(self, seconds: float) -> None:
        _stop(self._head_end)
        self._head_bytes = 0
        self._head_end = self.loop.call_later(seconds, self.abort)

    # -- answers ------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        cycle.transport = self._output
        if self._all.is_full and cycle.scope["path"] not in HEALTH:
            app = _answer_busy

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            async def begin(message: Any) -> None:
                if cycle.more_body and message["type"] == "http.response.start":
                    # What else arrives of the request has no use, and may arrive slowly.
                    cycle.keep_alive = False
                await send(message)

            await app(scope, receive, begin)

        super()._start_asgi_task(cycle, answer)

    def on_response_complete(self) -> None:
        """Wait for a further request, for a limited time whatever arrives meanwhile."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self._head_end is None and not self._lingers and self.cycle.response_complete:
            self._await_head(self._limits.keep_alive_s)
        self._note_who_waits()

    def end(self) -> None:
        """Close it after what is ready was sent, and what still arrives of a request was dropped."""
        if not self.cycle.more_body:
            self.transport.close()
            if self.unsent_bytes:
                self._await_taken()
        elif not self._lingers:
            self._lingers = True
            self.flow.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._await_head(self._limits.linger_s)

    def pause_writing(self) -> None:
        """Wait for the client to take what is ready."""
        super().pause_writing()
        self._note_who_waits()
        self._await_taken()
        self._all.stalls(self)

    def resume_writing(self) -> None:
        """Go on: the client has taken most of it."""
        super().resume_writing()
        self._all.takes(self)
        _stop(self._stall_end)
        self._stall_end = None
        self._note_who_waits()

    def _await_taken(self) -> None:
        _stop(self._stall_end)
        left = self.unsent_bytes

        def check() -> None:
            self._stall_end = None
            if left - self.unsent_bytes < min(left, self._limits.stall_bytes):
                self.abort()
            else:
                self._await_taken()

        self._stall_end = self.loop.call_later(self._limits.stall_s, check)


class _Output:
    """The transport of a connection as its answers see it: to close it is :meth:`BoundedProtocol.end`."""

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = protocol.end


def _stop(timer: asyncio.TimerHandle | None) -> None:
    """Stop a timer."""
    if timer is not None:
        timer.cancel()


async def _answer_busy(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - as ASGI calls it
    """Answer that there are too many connections."""
    error = Code.SERVICE_BUSY("this service has as many connections as it allows; try again later")
    body = msgspec.json.encode(document_of(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in retry_headers(error).items()]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})
