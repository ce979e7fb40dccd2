"""The JSON documents of requests, which the OpenAPI document describes. Unknown members are refused.

msgspec decodes and checks them, so a route sees types and bounds that hold. Errors: UsageError, which says where in the
document. Source: docs/http.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
import pyarrow as pa
from litestar import Request
from litestar.exceptions import SerializationException
from msgspec import Meta, Struct

from lakebed.errors import Code, Error
from lakebed.model.ipc import table_within
from lakebed.model.state.change_documents import ChangeDocument
from lakebed.server.web.selections import Columns, Count, Key, RangeSelection, Seconds, Version, When, Where

Apply = Annotated[str, Meta(min_length=1, description="The name of an installed merge function.")]
Merge = Annotated[dict[str, Any], Meta(description='What rows with equal keys become, such as {"mode": "latest"}.')]


class RowsBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is read of the rows that a request selects: which columns, of which version, merged or as they are."""

    columns: Columns | None = None
    at: When | None = None
    max_staleness: Seconds | None = None
    at_least: Version | None = None
    raw: bool = False
    apply: Apply | None = None


class GetBody(RowsBody):
    """One key, and what of its rows."""

    key: Key


class GetManyBody(RowsBody):
    """Many keys."""

    keys: list[Key]


class ScanBody(RowsBody):
    """Key ranges, all rows without one, and which of their rows."""

    ranges: list[RangeSelection] = []
    where: Where | None = None
    limit: Count | None = None
    reverse: bool = False


class CountBody(Struct, forbid_unknown_fields=True):
    """Key ranges to count the rows of."""

    ranges: list[RangeSelection] = []
    exact: bool = False
    at: When | None = None


class FilesBody(Struct, forbid_unknown_fields=True):
    """Key ranges of which the files are listed; all without one."""

    ranges: list[RangeSelection] = []
    at: When | None = None


class ChangesBody(Struct, forbid_unknown_fields=True):
    """The versions after ``since``, up to ``until``, by default the latest; and what of their changes."""

    since: Version | When
    until: Version | When | None = None
    ranges: list[RangeSelection] = []
    columns: Columns | None = None
    where: Where | None = None


class SampleBody(Struct, forbid_unknown_fields=True):
    """How many random rows."""

    rows: Annotated[int, Meta(ge=0, le=100_000)]
    columns: Columns | None = None
    seed: Annotated[int, Meta(ge=-(2**62), le=2**62)] | None = None
    at: When | None = None


class PrefixesBody(Struct, forbid_unknown_fields=True):
    """How many row key fields, of which ranges."""

    depth: Annotated[int, Meta(ge=1, le=1_000)]
    ranges: list[RangeSelection] = []
    limit: Count | None = None
    at: When | None = None


class ExplainBody(Struct, forbid_unknown_fields=True):
    """A key, or a scan."""

    key: Key | None = None
    ranges: list[RangeSelection] = []
    columns: Columns | None = None
    where: Where | None = None
    limit: Count | None = None
    reverse: bool = False
    at: When | None = None


class SqlBody(Struct, forbid_unknown_fields=True):
    """A query in SQL."""

    statement: Annotated[str, Meta(min_length=1)]
    memory_limit_bytes: Annotated[int, Meta(ge=1024 * 1024, le=2**50)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None


class CreateTableBody(Struct, forbid_unknown_fields=True):
    """A table to make."""

    name: str
    schema: Annotated[
        dict[str, Any], Meta(description='Fields by name: {"row_key": {"k": "string"}, "values": {"v": "double"}}.')
    ]
    split_points: list[Key] = []
    settings: dict[str, Any] = {}
    online: bool = True
    merge: Merge | None = None


class CreateViewBody(Struct, forbid_unknown_fields=True):
    """A table that is fed from the rows of another, by a query over it."""

    name: str
    source: str
    select: Annotated[str, Meta(min_length=1)]
    row_key: Annotated[list[str], Meta(min_length=1)]
    sort_key: list[str] = []
    split_points: list[Key] = []
    settings: dict[str, Any] = {}
    merge: Merge | None = None


Operations = Annotated[list[str], Meta(min_length=1, description="Such as compaction, splitting or gc.")]


class ChangeTableBody(Struct, forbid_unknown_fields=True):
    """What of a table is changed."""

    name: str | None = None
    online: bool | None = None
    pause: Operations | None = None
    resume: Operations | None = None


class AlterBody(Struct, forbid_unknown_fields=True):
    """Changes of the schema, of the merge mode, or of the filter; those of one kind at a time."""

    changes: Annotated[list[ChangeDocument], Meta(max_length=1_000)]


class RestoreBody(Struct, forbid_unknown_fields=True):
    """The version, tag or time whose rows a table is given."""

    at: When


class VerifyBody(Struct, forbid_unknown_fields=True):
    """How far a table is verified."""

    files: bool = False


class TagBody(Struct, forbid_unknown_fields=True):
    """The version that a tag stands at; by default the latest."""

    version: Version | None = None


class DeleteBody(Struct, forbid_unknown_fields=True):
    """Keys, or a predicate, of rows to delete."""

    keys: list[Key] | None = None
    where: Where | None = None
    commit_id: str | None = None
    base_version: Version | None = None


class RemoveBody(Struct, forbid_unknown_fields=True):
    """Key ranges whose rows go, or prefixes of keys: the values of the first key fields."""

    ranges: list[RangeSelection] = []
    prefixes: list[Key] | None = None
    fence: bool = False


class WithdrawBody(Struct, forbid_unknown_fields=True):
    """Requests to take back, by their ids or the URLs of their files."""

    requests: list[str]


class SubmitBody(Struct, forbid_unknown_fields=True):
    """Parquet files to be ingested later."""

    files: Annotated[list[str], Meta(min_length=1)]
    again: bool = False


QueryId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        description="A UUID that the caller makes, best of version 7: a repeat with the same one is the same query.",
    ),
]


class SubmitQueryBody(Struct, forbid_unknown_fields=True):
    """A scan of a table, or a statement; where its rows go, and its id."""

    table: str | None = None
    scan: ScanBody | None = None
    statement: Annotated[str, Meta(min_length=1)] | None = None
    url: Annotated[str, Meta(description="Write the rows below this URL, in place of keeping them.")] | None = None
    format: Annotated[Literal["parquet", "csv", "json"], Meta(description="Of the files below the URL.")] | None = None
    id: QueryId | None = None


NO_BODY = "the request has no body; send the JSON document that GET /v1/openapi.json describes"
BAD_BODY = "the body is not the JSON document that GET /v1/openapi.json describes"

Body = TypeVar("Body")


class DocumentRequest(Request[Any, Any, Any]):
    """A request with a JSON body. One that is nested too deeply for the parser is invalid, and no bug."""

    async def json(self) -> Any:
        """Return the document. Raises SerializationException."""
        try:
            return await super().json()
        except RecursionError as error:
            raise SerializationException(f"it is nested too deeply ({error})") from error


def json_body(data: bytes, kind: type[Body]) -> Body:
    """Return the document of a request that may also be of another content type. Raises UsageError."""
    if not data:
        raise Code.REQUEST_INVALID(NO_BODY)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Code.REQUEST_INVALID(f"{BAD_BODY}: {error}") from error


def arrow_table(data: bytes, bytes_max: int) -> pa.Table:
    """Return the rows of an Arrow stream, checked as far as memory safety needs.

    Raises UsageError, before anything is decompressed, for a stream that decodes to more than ``bytes_max``.
    """

    def too_large(size_bytes: int) -> Error:
        return Code.REQUEST_INVALID(
            f"the body decodes to {size_bytes} bytes, and {bytes_max} are allowed: send fewer keys at a time"
        )

    try:
        table = table_within(data, bytes_max, too_large)
        table.validate(full=True)
    except Error:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Code.REQUEST_INVALID(f"the body is not an Arrow stream: {error}") from error
    return table
