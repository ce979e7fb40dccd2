"""Descriptions of operations for the OpenAPI document beyond their signatures: formats of rows and errors.

Litestar finds the rest in types. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    OpenAPIFormat,
    OpenAPIMediaType,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    RequestBody,
    Schema,
)
from msgspec import Struct

from lakebed.server.web.row_answers import FORMATS


class ErrorFacts(Struct):
    """An error: the kind determines how to react, the code is the cause; docs/errors.md lists both."""

    kind: str
    code: str
    message: str


class ErrorDocument(Struct):
    """The body of every answer that is an error."""

    error: ErrorFacts


_MEANINGS = {
    400: "The request is invalid.",
    401: "The request has no valid token.",
    403: "The principal may not do this.",
    404: "There is no such table, version, tag or query.",
    406: "None of the formats that the request accepts is one of the answer.",
    408: "The request took too long to arrive.",
    409: "The table does not allow this now, or the name is taken.",
    410: "The version is no longer retained.",
    413: "The request is too large.",
    415: "The request's content type is not known here.",
    422: "Keys or rows do not fit the schema.",
    429: "Too many requests with a wrong token came from this address.",
    500: "The service failed.",
    503: "The storage cannot be reached, or the commit lost too many races; try again.",
    504: "It is unknown whether the change was made; repeat it with the same commit id.",
}

ERRORS = {
    status: ResponseSpec(ErrorDocument, generate_examples=False, description=meaning)
    for status, meaning in _MEANINGS.items()
}
"""The answers of every operation that are errors."""

_ANY_BYTES = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
_TEXT = Schema(type=OpenAPIType.STRING)
_NAMES = Schema(type=OpenAPIType.ARRAY, items=_TEXT)


@dataclass
class RowsOperation(Operation):
    """An operation whose answer has rows, in the format that the request accepts."""

    def __post_init__(self) -> None:
        assert self.responses is not None
        content = {one.media_type: OpenAPIMediaType(schema=_ANY_BYTES) for one in FORMATS}
        self.responses["200"] = OpenAPIResponse("Rows, in the format that the Accept header asks for.", content=content)


get_rows = partial(get, operation_class=RowsOperation, responses=ERRORS)
post_rows = partial(post, operation_class=RowsOperation, responses=ERRORS, status_code=200)
"""Routes whose answers have rows."""


@dataclass
class KeysOperation(RowsOperation):
    """An operation whose answer has rows, and whose request has keys in JSON or as an Arrow stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        key = Schema(type=OpenAPIType.ARRAY, items=Schema(type=[OpenAPIType.INTEGER, OpenAPIType.STRING]))
        document = Schema(
            type=OpenAPIType.OBJECT,
            required=["keys"],
            properties={"keys": Schema(type=OpenAPIType.ARRAY, items=key), "columns": _NAMES, "at": _TEXT},
        )
        content = {"application/json": OpenAPIMediaType(schema=document)}
        content["application/vnd.apache.arrow.stream"] = OpenAPIMediaType(schema=_ANY_BYTES)
        self.request_body = RequestBody(content, description="Keys.", required=True)


@dataclass
class BodyOperation(Operation):
    """An operation whose request has rows."""

    accepted: ClassVar[tuple[str, ...]] = (
        "application/vnd.apache.arrow.stream",
        "application/vnd.apache.parquet",
        "application/x-ndjson",
        "application/json",
        "text/csv",
    )

    def __post_init__(self) -> None:
        content = {name: OpenAPIMediaType(schema=_ANY_BYTES) for name in self.accepted}
        self.request_body = RequestBody(content, description="Rows.", required=True)
