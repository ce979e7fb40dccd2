"""Errors as HTTP responses: the class determines the status; the body has the code, the message and the facts.

The body is JSON, or a page where a browser asked for a page. Below ``/iceberg`` it is as Iceberg's REST catalog has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, SerializationException

from lakebed import errors
from lakebed.errors import Code, Error
from lakebed.server.web.pages import rendering
from lakebed.server.web.request_bodies import BAD_BODY, NO_BODY

_LOG = logging.getLogger("lakebed.web")

_STATUS: tuple[tuple[type[Error], int], ...] = (
    (errors.AccessError, 403),
    (errors.NotRetainedError, 410),
    (errors.NotFoundError, 404),
    (errors.ExistsError, 409),
    (errors.RejectedError, 409),
    (errors.SchemaMismatchError, 422),
    (errors.BadKeyError, 422),
    (errors.UsageError, 400),
    (errors.ContentionError, 503),
    (errors.UnknownOutcomeError, 504),
    (errors.StorageError, 503),
    (errors.Error, 500),
)
"""The first class of which the error is an instance decides."""

_ABSENT = "'data'"
"""What Litestar says of a body that is empty: its KeyError."""


def status_of(error: Error) -> int:
    """Return the status of the answer to a request that failed so."""
    if error.code is Code.NOT_AUTHENTICATED:
        return 401
    if error.code is Code.ATTEMPTS_EXCEEDED:
        return 429
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def document_of(error: Error) -> dict[str, Any]:
    """Return the body of the answer."""
    return {"error": {"kind": error.kind, "code": error.code.value, "message": error.message}}


_RETRY_AFTER_S = {Code.SERVICE_BUSY: 5, Code.ATTEMPTS_EXCEEDED: 60}
"""When a request that was refused for lack of room may have more luck."""


def retry_headers(error: Error) -> dict[str, str]:
    """Return the header that says when to try again, for an error that passes."""
    seconds = _RETRY_AFTER_S.get(error.code)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def answer_error(request: Request[Any, Any, Any], error: Error) -> Response[Any]:
    """Answer an error of Lakebed."""
    status = status_of(error)
    headers = {"WWW-Authenticate": 'Bearer realm="lakebed"'} if status == 401 else retry_headers(error)
    if status == 401 and rendering.wants_page(request):
        return rendering.login(request)
    # Only a table that is seen in part is named by such an error: others may be none of the principal's business.
    seen = error.facts.get("table") if error.code is Code.PERMISSION_MISSING else None
    return _answer(request, status, document_of(error), headers, seen)


def answer_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Answer a request that the framework refused, such as an unknown path or an argument of the wrong type."""
    message = _what_is_wrong(request, error)
    document = document_of(Code.REQUEST_INVALID(message))
    return _answer(request, error.status_code, document, error.headers)


def _what_is_wrong(request: Request[Any, Any, Any], error: HTTPException) -> str:
    """Return the message for a request that the framework refused."""
    if error.status_code == 404:
        return (
            f"there is no {request.url.path[:200]} here; GET /v1/openapi.json describes all paths, and the Iceberg "
            "catalog is at /iceberg"
        )
    if error.status_code == 405:
        return f"{request.method} is no method of {request.url.path[:200]}; GET /v1/openapi.json describes all methods"
    if isinstance(error.__cause__, SerializationException):
        return f"the body is not JSON: {error.detail}"
    extra = error.extra if isinstance(error.extra, list) else []
    found = [_argument(one["key"], one["message"]) for one in extra if "key" in one and "message" in one]
    return "; ".join(found) or error.detail


def _argument(name: str, message: str) -> str:
    """Return what is wrong with one argument of a handler; ``data`` is the body of the request."""
    if name != "data":
        return f"parameter {name}: {message}"
    if message == _ABSENT:
        return NO_BODY
    return f"{BAD_BODY}: {message}"


def answer_bug(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Answer a bug: log it with its traceback, which the response does not include."""
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    document = {"error": {"kind": "bug", "code": "bug", "message": "the service failed; its log says why"}}
    return _answer(request, 500, document)


_ICEBERG_TYPES = {
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchTableException",
    405: "UnsupportedOperationException",
    406: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}
"""The names of the exceptions that clients of Iceberg raise, which are Java's, by status."""


def _iceberg_document(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an answer of the Iceberg catalog."""
    default = "BadRequestException" if status < 500 else "InternalServerError"
    kind = _ICEBERG_TYPES.get(status, default)
    if error["code"] == Code.NAMESPACE_NOT_FOUND:
        kind = "NoSuchNamespaceException"
    return {"error": {"message": error["message"], "type": kind, "code": status}}


def _answer(
    request: Request[Any, Any, Any],
    status: int,
    document: dict[str, Any],
    headers: Mapping[str, str] | None = None,
    seen: str | None = None,
) -> Response[Any]:
    """Return the document as JSON, or as a page where a browser asked for one; ``seen`` as for such a page."""
    if request.url.path.startswith("/iceberg/"):
        document = _iceberg_document(status, document["error"])
    if rendering.wants_page(request):
        return rendering.error_page(request, status, document["error"], headers or {}, seen)
    return Response(document, status_code=status, media_type="application/json", headers=headers)
