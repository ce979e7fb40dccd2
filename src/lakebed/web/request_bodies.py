"""The JSON documents of requests, which the OpenAPI document describes. Unknown members are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from lakebed.errors import Code
from lakebed.web.selections import Columns, Count, Key, RangeSelection, Seconds, Version, When, Where


class GetBody(Struct, forbid_unknown_fields=True):
    """One key, and what of its rows."""

    key: Key
    columns: Columns | None = None
    at: When | None = None
    max_staleness: Seconds | None = None
    at_least: Version | None = None


class GetManyBody(Struct, forbid_unknown_fields=True):
    """Many keys."""

    keys: list[Key]
    columns: Columns | None = None
    at: When | None = None
    max_staleness: Seconds | None = None
    at_least: Version | None = None


class ScanBody(Struct, forbid_unknown_fields=True):
    """Key ranges, all rows without one, and which of their rows."""

    ranges: list[RangeSelection] = []
    columns: Columns | None = None
    where: Where | None = None
    limit: Count | None = None
    reverse: bool = False
    raw: bool = False
    at: When | None = None
    max_staleness: Seconds | None = None
    at_least: Version | None = None


class CountBody(Struct, forbid_unknown_fields=True):
    """Key ranges to count the rows of."""

    ranges: list[RangeSelection] = []
    exact: bool = False
    at: When | None = None


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
    merge: (
        Annotated[dict[str, Any], Meta(description='What rows with equal keys become, such as {"mode": "latest"}.')]
        | None
    ) = None


class ChangeTableBody(Struct, forbid_unknown_fields=True):
    """What of a table is changed."""

    name: str | None = None
    online: bool | None = None


class TagBody(Struct, forbid_unknown_fields=True):
    """The version that a tag stands at; by default the latest."""

    version: Version | None = None


class DeleteBody(Struct, forbid_unknown_fields=True):
    """Keys, or a predicate, of rows to delete."""

    keys: list[Key] | None = None
    where: Where | None = None
    commit_id: str | None = None
    base_version: Version | None = None


class SubmitBody(Struct, forbid_unknown_fields=True):
    """Parquet files to be ingested later."""

    files: Annotated[list[str], Meta(min_length=1)]
    again: bool = False


class SubmitQueryBody(Struct, forbid_unknown_fields=True):
    """A scan of a table, or a statement; and where its rows go."""

    table: str | None = None
    scan: ScanBody | None = None
    statement: Annotated[str, Meta(min_length=1)] | None = None
    url: Annotated[str, Meta(description="Write the rows below this URL, in place of keeping them.")] | None = None
    format: Annotated[Literal["parquet", "csv", "json"], Meta(description="Of the files below the URL.")] | None = None


Body = TypeVar("Body")


def json_body(data: bytes, kind: type[Body]) -> Body:
    """The document of a request that may also be of another content type. Raises UsageError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Code.REQUEST_INVALID(f"the body is not the JSON document that is described: {error}") from error


def arrow_table(data: bytes) -> pa.Table:
    """The rows of an Arrow stream, checked as far as memory safety needs. Raises UsageError."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Code.REQUEST_INVALID(f"the body is not an Arrow stream: {error}") from error
    return table
