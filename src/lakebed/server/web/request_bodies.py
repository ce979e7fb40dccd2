"""The JSON documents of requests, which the OpenAPI document describes: keys, ranges, columns, versions, files.

msgspec decodes and checks them, so a route sees types and bounds that hold; unknown members are refused. Key values
have the types of the schema: whole numbers as numbers or text, dates and times in ISO 8601, binary in hex digits. Words
of a URL become the same values. Errors: UsageError, which says where in the document; BadKeyError. Source:
docs/http.md.

Files and folders that requests name lie below a place that the operator of the service allows. A URL and a place are
compared by the names of their paths, never as text: ``/in/allowed`` does not allow ``/in/allowed-too``. Schemes and
hosts are equal in any case, and paths of this machine are compared after their links. Errors: AccessError.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from litestar import Request
from litestar.exceptions import SerializationException
from msgspec import Meta, Struct

from lakebed.errors import Code, Error
from lakebed.model.checks import shown
from lakebed.model.ipc import table_within
from lakebed.model.keys import KeyRange
from lakebed.model.state.change_documents import ChangeDocument
from lakebed.storage.external import kind_of, open_external

if TYPE_CHECKING:
    from lakebed.model.schema import Schema


KeyValue = Annotated[
    bool | int | float | str,
    Meta(
        description="A value of a key field: a number, a boolean, text (also of a date, a time, a UUID) or hex digits."
    ),
]
Key = Annotated[list[KeyValue], Meta(description="A value for each row key field, in order.")]
By = Annotated[
    dict[str, KeyValue], Meta(description="Values of indexed fields, by their names; only rows that have them.")
]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Version = Annotated[int, Meta(ge=0, le=2**62)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
When = Annotated[
    str,
    Meta(
        description="A version, a tag, a date (UTC), or a time such as 2026-01-31T12:00:00Z. "
        "Default: the latest version."
    ),
]
Columns = Annotated[list[str], Meta(description="Only these columns, in this order.")]
Where = Annotated[str, Meta(description="A predicate in SQL over the columns, such as n > 3 AND s IS NULL.")]


class RangeSelection(Struct, forbid_unknown_fields=True):
    """Keys from one bound up to another, those that begin with some values, or those that begin with a text."""

    from_: Key | None = msgspec.field(default=None, name="from")
    to: Key | None = None
    to_inclusive: bool = False
    prefix: Key | None = None
    starts_with: Key | None = None

    def of(self, schema: Schema) -> KeyRange:
        """Return the range in a table of this schema."""
        given = [name for name in ("prefix", "starts_with") if getattr(self, name) is not None]
        if len(given) + (self.from_ is not None or self.to is not None or self.to_inclusive) > 1:
            raise Code.ARGUMENTS_CONFLICT("a range has from and to, or prefix, or starts_with")
        if self.prefix is not None:
            return KeyRange.prefix(*schema.codec.parse(self.prefix))
        if self.starts_with is not None:
            return KeyRange.starts_with(*_stem_values(schema, self.starts_with))
        low, high = (None if b is None else schema.codec.parse(b) for b in (self.from_, self.to))
        return KeyRange(low, high, max_inclusive=self.to_inclusive)


def key_ranges(schema: Schema, ranges: Sequence[RangeSelection]) -> list[KeyRange]:
    """Return the ranges in a table of this schema."""
    return [one.of(schema) for one in ranges]


def values_by(schema: Schema, by: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return values of fields of a table of this schema, by their names."""
    if by is None:
        return None
    schema.project(tuple(by))
    fields = schema.by_name
    return {name: fields[name].parse(one) if isinstance(one, str) else one for name, one in by.items()}


def _stem_values(schema: Schema, values: Sequence[Any]) -> tuple[Any, ...]:
    if values and len(values) <= len(schema.row_key):
        last = schema.row_key[len(values) - 1]
        if last.width:
            raise Code.KEY_RANGE_INVALID(
                f"starts_with ends with a value of a text or binary field, and {last.name} is {last.type}; use prefix"
            )
    return schema.codec.parse(values)


def column_names(texts: Sequence[str] | None) -> list[str] | None:
    """Return column names of a URL, with commas between them; one that has a comma stands in double quotes."""
    if not texts:
        return None
    try:
        return [name for row in csv.reader(texts, skipinitialspace=True) for name in row if name]
    except csv.Error as error:
        raise Code.ARGUMENT_INVALID(f"columns = {shown(list(texts))}: not names with commas between them") from error


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
    """One key, or values of indexed fields, and what of their rows."""

    key: Key = []
    by: By | None = None


class GetManyBody(RowsBody):
    """Many keys."""

    keys: list[Key]


class ScanBody(RowsBody):
    """Key ranges, all rows without one, and which of their rows."""

    ranges: list[RangeSelection] = []
    where: Where | None = None
    limit: Count | None = None
    reverse: bool = False
    by: By | None = None


class CountBody(Struct, forbid_unknown_fields=True):
    """Key ranges to count the rows of, or of those with values of indexed fields."""

    ranges: list[RangeSelection] = []
    by: By | None = None
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


class ExecuteBody(SqlBody):
    """A statement in SQL that changes something. A repeat with the same commit id changes nothing."""

    commit_id: str | None = None


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


class CreateIndexBody(Struct, forbid_unknown_fields=True):
    """An index of fields of a table."""

    name: str
    table: str
    on: Annotated[list[str], Meta(min_length=1)]
    settings: dict[str, Any] = {}


class RefreshBody(Struct, forbid_unknown_fields=True):
    """Whether a view or an index is made from all rows of its source."""

    anew: bool = False


Operations = Annotated[list[str], Meta(min_length=1, description="Such as compaction, splitting or gc.")]


class ChangeTableBody(Struct, forbid_unknown_fields=True):
    """What of a table is changed. With ``replace`` it takes the name of a table that has it, which is dropped."""

    name: str | None = None
    replace: bool = False
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


Place = tuple[str, str, tuple[str, ...]]
"""The kind of store, the bucket or host, and the names of the path."""


def check_source(url: str, allowed: tuple[str, ...]) -> None:
    """Raise AccessError unless the URL is one of the places that this service allows, or below one."""
    if not _climbs(url) and any(_lies_in(_place_of(url), _place_of(place)) for place in allowed):
        return
    allows = f"what lies in {', '.join(allowed)}" if allowed else "no URLs"
    raise Code.SOURCE_NOT_ALLOWED(
        f"{url[:500]!r} may not be used: this service allows {allows}; its operator can allow more with "
        "--allow-sources",
        url=url[:500],
    )


def _climbs(url: str) -> bool:
    """Return whether a reader that decodes the URL, even more than once, could find a way out of a folder in it."""
    decoded = url
    while (again := unquote(decoded)) != decoded:
        decoded = again
    return any(part in ("..", ".") for part in decoded.replace("\\", "/").split("/"))


def _place_of(url: str) -> Place | None:
    """Return the place of a URL, read as the readers of files do; None if it is malformed."""
    kind = kind_of(url).lower()
    if kind == "file":
        try:
            _, path = open_external(url)
        except Error:
            return None
        return kind, "", PurePosixPath(os.path.realpath(path)).parts
    host, _, path = url.partition("://")[2].partition("/")
    return kind, host.lower(), tuple(path.split("/"))


def _lies_in(place: Place | None, folder: Place | None) -> bool:
    if place is None or folder is None or place[:2] != folder[:2]:
        return False
    names = folder[2][:-1] if folder[2][-1:] == ("",) else folder[2]
    return place[2][: len(names)] == names
