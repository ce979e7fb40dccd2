"""Errors of S3: the codes that its clients know, each with its status, and the document that has them.

Core type: :class:`S3Error`. Source: the table of error responses in the API reference of Amazon S3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from lakebed import errors
from lakebed.errors import Code, Error

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_TEXT = re.compile("[\x00-\x1f\ufffe\uffff]")

STATUS = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidToken": 400,
    "InvalidURI": 400,
    "MethodNotAllowed": 405,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
}


class S3Error(Exception):
    """A request that is refused. ``code`` is one of :data:`STATUS`."""

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = STATUS[code]
        self.headers = headers or {}

    def document(self, resource: str, request_id: str) -> bytes:
        """Return the body of the answer."""
        parts = {"Code": self.code, "Message": self.message, "Resource": resource, "RequestId": request_id}
        inner = "".join(f"<{name}>{text_of(value)}</{name}>" for name, value in parts.items())
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inner}</Error>'.encode()


def text_of(value: str) -> str:
    """Return a value as text in XML, which has no control characters."""
    return escape(_NO_TEXT.sub("\ufffd", value), {'"': "&quot;"})


_CODES: tuple[tuple[type[Error], str], ...] = (
    (errors.AccessError, "AccessDenied"),
    (errors.NotFoundError, "NoSuchKey"),
    (errors.NotRetainedError, "NoSuchKey"),
    (errors.UsageError, "InvalidRequest"),
    (errors.ContentionError, "SlowDown"),
    (errors.StorageError, "SlowDown"),
)
"""The first class of which the error is an instance decides."""


def s3_error(error: Error) -> S3Error:
    """Return an error of Lakebed as S3 would say it."""
    if error.code is Code.ATTEMPTS_EXCEEDED:
        return S3Error("SlowDown", error.message)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "InternalError")
    return S3Error(code, error.message, {"Retry-After": "5"} if code == "SlowDown" else None)
