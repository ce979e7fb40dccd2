"""Translate the errors of an object store's client.

obstore reports most failures as one class and gives the details only as text, so this module reads the HTTP status and
a few phrases from the text; no other module does. Callers retry transient failures: a failure is transient unless the
answer proves that the same request would fail again.

Texts may contain signed URLs, and endpoints with a password. Query strings and user names are cut from the message, and
then the original error is not chained.

*Counts the requests that this process sent to object stores in the last hour, to estimate their cost.*

Core type: :class:`RequestCounts`; :data:`SENT` is the one of this process. A request is counted when it is sent,
whether it succeeds or not; retries by the client are not counted. A local disk takes no requests.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTES = 60

_WRITES = {"create", "replace", "send", "list"}
"""The first words of actions whose requests cost as much as a put; deletes are free."""


@dataclass(frozen=True, slots=True)
class SentRequests:
    """``puts`` are requests at the price of a put, including lists; ``gets`` read an object or its metadata."""

    puts: int
    gets: int


class RequestCounts:
    """Counts requests by the minute. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._puts: dict[int, int] = {}
        self._gets: dict[int, int] = {}

    def add(self, action: str, requests: int = 1) -> None:
        """Count requests; ``action`` is their kind, such as ``list``."""
        if action == "delete":
            return
        counts = self._puts if action in _WRITES else self._gets
        minute = int(clock.monotonic_s() // 60)
        with self._lock:
            counts[minute] = counts.get(minute, 0) + requests
            if len(counts) > MINUTES:
                del counts[min(counts)]

    def last_hour(self) -> SentRequests:
        """Return the requests of the last hour, to the minute."""
        first = int(clock.monotonic_s() // 60) - MINUTES
        with self._lock:
            puts, gets = (
                sum(count for minute, count in counts.items() if minute > first) for counts in (self._puts, self._gets)
            )
        return SentRequests(puts, gets)


SENT = RequestCounts()
"""The counts of this process."""


_STATUS = re.compile(r"status code: (\d{3})")
_QUERY = re.compile(r"\?[^\s\"'>]+")
_USER = re.compile(r"(?<=://)[^/\s\"'@?#]*@(?=[^\s@]*)")
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507, 509, 529})
_MESSAGE_CHARS_MAX = 400

_NO_CREDENTIALS = (Code.STORE_CREDENTIALS, "no credentials found: set them in the environment or storage options")
_UNKNOWN_CREDENTIALS = (Code.STORE_CREDENTIALS, "the credentials were not accepted: check them")
_NO_PERMISSION = (
    Code.STORE_PERMISSION,
    "permission denied: allow these credentials to get, put, delete and list below the root",
)
_BOTH_KEYS = (
    "give both, as storage options aws_access_key_id and aws_secret_access_key or in the environment, or neither"
)
# Phrase in the text -> the code and the remedy. The first match is used; none of these is transient.
_REMEDIES = {
    "NoSuchBucket": (Code.STORE_NOT_FOUND, "the bucket does not exist: create it, or correct the URL"),
    "ContainerNotFound": (Code.STORE_NOT_FOUND, "the container does not exist: create it, or correct the URL"),
    "/latest/api/token": _NO_CREDENTIALS,
    "/latest/meta-data/": _NO_CREDENTIALS,
    "metadata.google.internal": _NO_CREDENTIALS,
    "/metadata/identity": _NO_CREDENTIALS,
    "ExpiredToken": (Code.STORE_CREDENTIALS, "the credentials have expired: renew them"),
    "InvalidAccessKeyId": _UNKNOWN_CREDENTIALS,
    "SignatureDoesNotMatch": _UNKNOWN_CREDENTIALS,
    "RequestTimeTooSkewed": (
        Code.STORE_REFUSED,
        "this machine's clock differs too much from the store's: synchronise it by NTP",
    ),
    "AuthorizationHeaderMalformed": (Code.STORE_CREDENTIALS, "the region or the credentials do not fit the bucket"),
    "redirect without LOCATION": (Code.STORE_REFUSED, "the bucket is in another region: set it in storage options"),
    "builder error": (Code.STORE_REFUSED, "for plain http set allow_http=true in storage options"),
    "Unable to open service account": (Code.STORE_CREDENTIALS, "the service account file cannot be read"),
    "Missing AccessKeyId": (Code.STORE_CREDENTIALS, f"a secret is given without an access key id: {_BOTH_KEYS}"),
    "Missing SecretAccessKey": (
        Code.STORE_CREDENTIALS,
        f"an access key id is given without a secret access key: {_BOTH_KEYS}",
    ),
    "PermissionDenied": _NO_PERMISSION,
    "Unauthenticated": _UNKNOWN_CREDENTIALS,
}
# The client raises no specific classes of errors for a listing.
_BY_STATUS = {401: _UNKNOWN_CREDENTIALS, 403: _NO_PERMISSION}


def explain(error: BaseException, action: str, url: str) -> Error:
    """Return the error for a failed request: action, URL, remedy, and whether it is ``transient``."""
    text = str(error)
    status = _status(text)
    transient = status is None or status in _TRANSIENT_STATUS
    code, remedy = Code.STORE_UNAVAILABLE, "try again later"
    if "error sending request" in text:
        remedy = "the store cannot be reached: check its endpoint and the network, or try again later"
    if not transient:
        code, remedy = _BY_STATUS.get(status or 0, (Code.STORE_REFUSED, "the store refused the request"))
    for phrase, known in _REMEDIES.items():
        if phrase in text or phrase in type(error).__name__:
            (code, remedy), transient = known, False
            break
    # On one line: stores answer in XML with line breaks.
    said = " ".join(scrubbed(text.partition("\n\nDebug source")[0]).split())[:_MESSAGE_CHARS_MAX]
    return code(f"cannot {action} {url}: {remedy} ({said})", url=url, status=status, transient=transient)


def scrubbed(text: str) -> str:
    """Remove the parts of URLs that may be secret: query strings, and users with their passwords."""
    return _QUERY.sub("?...", _USER.sub("...@", text))


@contextmanager
def explained(action: str, url: str, requests: int = 1) -> Iterator[None]:
    """Convert errors of a client in the block into a :class:`~lakebed.errors.StorageError`.

    ``requests`` is the number of requests that the block makes.
    """
    from obstore.exceptions import BaseError

    operation = action.partition(" ")[0]
    SENT.add(operation, requests)
    with telemetry.span("storage_request", operation=operation, outcome="error") as span:
        try:
            yield
            span.labels["outcome"] = "ok"
        except Error:
            raise
        except (BaseError, OSError, NotImplementedError) as error:
            failure = explain(error, action, url)
            if scrubbed(str(error)) != str(error):
                raise failure from None  # the chained text would show the secret
            raise failure from error


def is_conflict(error: BaseException) -> bool:
    """Return whether an "already exists" means that the create collided with another request, and nothing was stored.

    S3 answers 409 if a delete races with the create, and the client reports it like a taken name. Azure answers 409 for
    a taken name, so the status alone is ambiguous.
    """
    text = str(error)
    return _status(text) == 409 and "BlobAlreadyExists" not in text


def is_unsupported(error: BaseException) -> bool:
    """Return whether the client or the server does not support this kind of request."""
    from obstore.exceptions import NotSupportedError

    return isinstance(error, NotImplementedError | NotSupportedError) or _status(str(error)) == 501


def is_missing_root(error: BaseException) -> bool:
    """Return whether a "not found" is about the bucket or container, not about the object."""
    text = str(error)
    return "NoSuchBucket" in text or "ContainerNotFound" in text


def half_of_keys(error: BaseException) -> bool:
    """Return whether an S3 client has an access key id without its secret, or the reverse."""
    return "Missing AccessKeyId" in str(error) or "Missing SecretAccessKey" in str(error)


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found.group(1)) if found else None
