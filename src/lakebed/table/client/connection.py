"""Requests to a service: connections, retries, proxies, TLS, and errors as the library raises them.

A read request is repeated if the service was not reached, closed the connection, or is temporarily unavailable; a write
request only if it certainly was not begun. Otherwise the outcome of a write is unknown, and UnknownOutcomeError is
raised: a repeat with the same commit id settles it.

Core types: :class:`Connection`, safe to use from many threads. Errors: those of the service, with their classes;
StorageError if it does not respond, or is not a Lakebed service.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions

from lakebed import clock
from lakebed.errors import Code, Error, error_of_kind
from lakebed.model.checks import check_seconds, check_text
from lakebed.model.documents import dump, load

ATTEMPTS = 3
"""Of a request that only reads."""

WAIT_S = 0.5
"""The longest wait before the second attempt; twice as long before the third."""

CONNECT_S = 10.0

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"

Body = bytes | Iterable[bytes]

_NOT_BEGUN = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.LocationValueError)


class Connection:
    """The service at a URL, as one caller."""

    def __init__(self, url: str, token: str | None, timeout_s: float, ca_file: str | Path | None) -> None:
        self.url = _checked_url(url)
        self._given = (url, token, timeout_s, ca_file)
        check_seconds("timeout_s", timeout_s)
        self._headers = {"User-Agent": "lakebed"}
        if token is not None:
            check_text("token", token)
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = _pool(self.url, ca_file, urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the URL, the token and the options that were given."""
        return Connection, self._given

    def close(self) -> None:
        """Close the connections that are idle."""
        self._pool.clear()

    def ask(self, method: str, path: str, document: Any = None, *, reads: bool, **parameters: Any) -> Any:
        """Return the JSON answer to a request. ``reads``: it may be repeated, because it changes nothing."""
        body = None if document is None else dump(document)
        answer = self.send(method, path_with(path, parameters), body, JSON, JSON, reads=reads, streamed=False)
        try:
            return load(answer.data)
        except ValueError as error:
            raise self._not_ours(f"its answer is not JSON: {error}") from None

    def send(  # noqa: PLR0913 - what a request is made of
        self,
        method: str,
        path: str,
        body: Body | None,
        content_type: str,
        accept: str,
        *,
        reads: bool,
        streamed: bool,
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer to a request, if it is not an error. A ``streamed`` answer has yet to be read."""
        headers = self._headers | {"Content-Type": content_type, "Accept": accept}
        attempts_left = ATTEMPTS if reads else 1
        while True:
            attempts_left -= 1
            try:
                answer = self._pool.request(
                    method,
                    self.url + path,
                    body=body,
                    headers=headers,
                    redirect=False,
                    retries=False,
                    preload_content=not streamed,
                )
            except exceptions.HTTPError as error:
                if not attempts_left or isinstance(error, exceptions.SSLError):
                    self._raise_unanswered(error, reads=reads)
            else:
                if answer.status < 300:
                    return answer
                if answer.status != 503 or not attempts_left:
                    raise self._error_in(answer)
                answer.release_conn()
            clock.sleep(clock.jitter_s(WAIT_S * (ATTEMPTS - attempts_left)))

    def _raise_unanswered(self, error: exceptions.HTTPError, *, reads: bool) -> NoReturn:
        reason = _reason(error)
        if reads or isinstance(error, (*_NOT_BEGUN, exceptions.SSLError, exceptions.ProxyError)):
            raise Code.SERVICE_UNREACHABLE(
                f"the service at {self.url} does not answer: {reason}. Start it, or correct the URL",
                url=self.url,
                transient=True,
            ) from error
        raise Code.COMMIT_UNKNOWN(
            f"the service at {self.url} did not answer: {reason}. The change may have been made; repeat it, rows with "
            "the same commit_id",
            url=self.url,
        ) from error

    def _error_in(self, answer: urllib3.BaseHTTPResponse) -> Error:
        """Return the error in a response. It has no facts, because they may reveal more than the caller may see."""
        try:
            document = load(answer.data)["error"]
            kind, code, message = (str(document[name]) for name in ("kind", "code", "message"))
        except (ValueError, KeyError, TypeError, exceptions.HTTPError):
            return self._not_ours(f"it answered with status {answer.status}")
        try:
            return Code(code)(message)
        except ValueError:
            # A code of a newer service; the class determines how to react.
            return error_of_kind(kind, message)

    def _not_ours(self, why: str) -> Error:
        return Code.SERVICE_UNREACHABLE(
            f"what answers at {self.url} is no service of Lakebed, or something between refused: {why}", url=self.url
        )


def path_with(path: str, parameters: Mapping[str, Any]) -> str:
    """Return the path with those parameters that have a value."""
    given = {name: _word(value) for name, value in parameters.items() if value is not None and value is not False}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _word(value: Any) -> Any:
    return "true" if value is True else value


def segment(name: str) -> str:
    """Return a name as a part of a path."""
    check_text("name", name)
    return quote(name, safe="")


def _checked_url(url: Any) -> str:
    check_text("url", url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise Code.ARGUMENT_INVALID(
            f"not the URL of a service: {url!r}; give one such as http://host:8017, and the token by itself"
        )
    return str(url).rstrip("/")


def _pool(url: str, ca_file: str | Path | None, timeout: urllib3.Timeout) -> urllib3.PoolManager:
    """Connections through the proxy of the environment for the URL, if there is one."""
    parts = urlsplit(url)
    options: dict[str, Any] = {"timeout": timeout, "maxsize": 16}
    if ca_file is not None:
        try:
            options["ssl_context"] = ssl.create_default_context(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise Code.ARGUMENT_INVALID(f"ca_file = {str(ca_file)!r} has no certificates: {error}") from None
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return urllib3.PoolManager(**options)
    return urllib3.ProxyManager(proxy, **options)


def _reason(error: BaseException) -> str:
    """Return the message without the objects that the library names."""
    said = str(error).rpartition(">: ")[2] or type(error).__name__
    return said.rpartition("): ")[2] or said


# -- what a service does not offer -----------------------------------------------------------------------------------

_OPEN = "open the instance itself, lakebed.open(url)"


def missing(name: str, remedy: str = _OPEN) -> Callable[..., NoReturn]:
    """Return a method that raises an error with the alternative."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise refused(name, remedy)

    refuse.__name__ = name
    refuse.__doc__ = f"Raise UsageError: a service does not offer it; {remedy}."
    return refuse


def refused(name: str, remedy: str = _OPEN) -> Exception:
    """Return the error for an unsupported method."""
    return Code.REMOTE_UNSUPPORTED(f"{name} is not there through a service; {remedy}", name=name)
