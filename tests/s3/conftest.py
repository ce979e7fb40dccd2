"""An S3 server in this process: real HTTP on a loopback port, every request on record, answers spoilt on demand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

import moto.backends
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from lakebed.clock import random_token

# moto tells the service by the signature's scope when a request names none.
_UNSIGNED = "AWS4-HMAC-SHA256 Credential=test/20300101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


# moto lists its folder for each request.
MODULES = tuple(moto.backends.list_of_moto_modules())
moto.backends.list_of_moto_modules = lambda: MODULES


@dataclass(frozen=True, slots=True)
class S3Request:
    """One HTTP request: `PUT`, `t/log/1`, `partNumber=1&…`. The key is "" for a request to the bucket."""

    method: str
    bucket: str
    key: str
    query: str
    if_none_match: str | None
    if_match: str | None = None
    call: str = ""
    """The operation of DynamoDB."""


@dataclass(frozen=True, slots=True)
class Spoilt:
    """An answer other than the server's own. `status` None drops the connection."""

    status: str | None
    body: bytes = b""
    after_effect: bool = False


@dataclass(slots=True)
class S3Server:
    """What a test may ask of the server.

    `requests` is the record: clear it, do something, and look. `spoil`, if set, is asked for each request whether to
    answer otherwise.
    """

    requests: list[S3Request] = field(default_factory=list)
    spoil: Callable[[S3Request], Spoilt | None] | None = None
    honours_conditions: bool = True
    endpoint: str = ""
    _one_condition_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    @property
    def storage_options(self) -> dict[str, str]:
        """For `connect`."""
        return {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
            "endpoint_url": self.endpoint,
        }

    def new_bucket(self) -> str:
        """The URL of an empty bucket, `s3://…`."""
        name = f"test-{random_token()[:12]}"
        request = Request(f"{self.endpoint}/{name}", method="PUT", headers={"Authorization": _UNSIGNED})
        with urlopen(request, timeout=120):
            return f"s3://{name}"

    def count(self, method: str | None = None, key: str | None = None) -> int:
        """How many requests on record have this method and this key."""
        return sum(method in (None, seen.method) and key in (None, seen.key) for seen in self.requests)

    def answer(self, inner: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """The WSGI application."""
        bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        seen = S3Request(
            environ["REQUEST_METHOD"],
            bucket,
            key,
            environ.get("QUERY_STRING", ""),
            environ.get("HTTP_IF_NONE_MATCH"),
            environ.get("HTTP_IF_MATCH"),
            environ.get("HTTP_X_AMZ_TARGET", "").partition(".")[2],
        )
        self.requests.append(seen)
        if not self.honours_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
            environ.pop("HTTP_IF_MATCH", None)
        spoilt = self.spoil(seen) if self.spoil else None
        of_dynamodb = environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB")
        if spoilt is None and (of_dynamodb or seen.if_none_match or seen.if_match) and self.honours_conditions:
            # S3 and DynamoDB decide between racing conditions; moto looks first and puts afterwards.
            with self._one_condition_at_a_time:
                return list(inner(environ, start))
        if spoilt is None:
            return inner(environ, start)
        if spoilt.after_effect:
            list(inner(environ, lambda *_, **__: None))
        else:
            # What is not read would be taken for the next request on this connection.
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if spoilt.status is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        start(spoilt.status, [("Content-Type", "application/xml"), ("Content-Length", str(len(spoilt.body)))])
        return [spoilt.body]


class _Quiet(WSGIRequestHandler):
    """Keeps connections open as S3 does, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        pass


@contextmanager
def served() -> Iterator[S3Server]:
    """A server that listens in a thread of its own while the block runs."""
    server = S3Server()
    inner = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        return server.answer(inner, environ, start)

    listening = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    server.endpoint = f"http://127.0.0.1:{listening.server_port}"
    threading.Thread(target=listening.serve_forever, name="s3", daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture(scope="session")
def _s3_session() -> Iterator[S3Server]:
    with served() as server:
        yield server


@pytest.fixture
def s3_server(_s3_session: S3Server) -> Iterator[S3Server]:
    """One server for all tests, each with an empty record and honest answers."""
    _s3_session.requests.clear()
    yield _s3_session
    _s3_session.spoil = None
    _s3_session.honours_conditions = True


@pytest.fixture
def spoilt() -> type[Spoilt]:
    """For `s3_server.spoil = lambda request: spoilt(...)`."""
    return Spoilt
