"""The catalog of published tables for other engines: the read-only part of Iceberg's REST catalog, below ``/iceberg``.

The tables of the instance form one namespace, :data:`NAMESPACE`. A published table is loaded by its metadata, which are
returned byte by byte as they are stored; engines then read the files themselves. So a principal that sees only a part
of a table cannot load it, nor one that has no storage credentials: the catalog hands out none by default
(:attr:`~lakebed.server.web.request_authentication.Exposure.iceberg_properties`).

Rules: nothing here writes, and nothing imports pyiceberg. Parameters that are unknown here are ignored, since clients
of later versions send them. Errors have Iceberg's form (:mod:`lakebed.server.web.error_answers`). Source: Iceberg's
open-api/rest-catalog-open-api.yaml; docs/open.md; decision 0075.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import xxhash
from litestar import Response, get, head, post, route
from litestar.di import NamedDependency
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException
from litestar.params import FromQuery, HeaderParameter, JSONBody, QueryParameter

from lakebed.errors import Code, DamagedError
from lakebed.model.checks import TABLE_NAME, shown
from lakebed.model.files import data_folder, iceberg_folder
from lakebed.server.security.principal import Permission
from lakebed.server.web.access import PathText, RequestedTable, ThePrincipal, TheService, TheTable
from lakebed.server.web.waiting import threaded
from lakebed.upkeep.publish.catalogs import NAMESPACE
from lakebed.upkeep.publish.run import Published, current
from lakebed.write.batches import in_threads

if TYPE_CHECKING:
    from lakebed.table.table import Table

_SEPARATOR = "\x1f"
"""Stands between the levels of a namespace in a URL."""

PAGE_TABLES_MAX = 1_000
REPORT_BYTES_MAX = 1024 * 1024
"""Of a report of a client on its scan."""

_ROOT = "/iceberg/v1"
_ALL = f"{_ROOT}/namespaces"
_ONE = f"{_ALL}/{{namespace:str}}"
_TABLE = f"{_ONE}/tables/{{table:str}}"
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
)
"""What clients may ask for; without this list they would assume writes as well. There is no prefix."""

PageToken = Annotated[str | None, QueryParameter(name="pageToken")]
PageSize = Annotated[int | None, QueryParameter(name="pageSize", ge=1)]
TheProperties = NamedDependency[Mapping[str, str]]


@get(f"{_ROOT}/config", include_in_schema=False, sync_to_thread=False)
def iceberg_config() -> dict[str, Any]:
    """What a client asks first: the operations that there are. All warehouses are this instance."""
    return {"defaults": {}, "overrides": {}, "endpoints": ENDPOINTS}


@post(f"{_ROOT}/oauth/tokens", include_in_schema=False, sync_to_thread=False)
def refuse_oauth() -> Response[dict[str, str]]:
    """Refuse the token exchange, which Iceberg has deprecated; its errors have the form of OAuth."""
    reason = "this service exchanges no credentials: set the property token to what `lakebed token create` printed"
    return Response({"error": "unsupported_grant_type", "error_description": reason}, status_code=400)


@get(_ALL, include_in_schema=False, sync_to_thread=False)
def list_namespaces(parent: FromQuery[str] = "") -> dict[str, Any]:
    """The namespace, which has no others below it."""
    if parent:
        _check_namespace(parent)
    return {"namespaces": [] if parent else [[NAMESPACE]], "next-page-token": None}


@get(_ONE, include_in_schema=False, sync_to_thread=False)
def load_namespace(namespace: PathText) -> dict[str, Any]:
    """The namespace, which has no properties."""
    _check_namespace(namespace)
    return {"namespace": [NAMESPACE], "properties": None}


@head(_ONE, include_in_schema=False, sync_to_thread=False, status_code=204)
def has_namespace(namespace: PathText) -> None:
    """Whether there is such a namespace."""
    _check_namespace(namespace)


@get(f"{_ONE}/tables", include_in_schema=False)
@threaded
def list_published(
    service: TheService,
    principal: ThePrincipal,
    namespace: PathText,
    token: PageToken = None,
    size: PageSize = None,
) -> dict[str, Any]:
    """The published tables of which the principal may read all rows, sorted by name."""
    _check_namespace(namespace)
    known = service.published()
    tables = {
        one.name: one
        for one in service.instance.catalog().tables.values()
        if one.id in known and principal.reads_whole(one.name)
    }
    names, next_token = page_of(sorted(tables), token, size)
    # It is a request for each table of the page of which the service does not know it.
    positions = service.publications.status()
    unknown = [name for name in names if (one := positions.get(tables[name].id)) is None or not one.version]
    there = in_threads(lambda name: _may_be_loaded(service.instance.opened(tables[name])), unknown)
    absent = {name for name, is_there in zip(unknown, there, strict=True) if not is_there}
    found = [{"namespace": [NAMESPACE], "name": name} for name in names if name not in absent]
    return {"identifiers": found, "next-page-token": next_token}


@get(f"{_ONE}/views", include_in_schema=False, sync_to_thread=False)
def list_views(namespace: PathText) -> dict[str, Any]:
    """No views: those of Lakebed are tables, and published as such."""
    _check_namespace(namespace)
    return {"identifiers": [], "next-page-token": None}


@get(_TABLE, include_in_schema=False)
@threaded
def load_published(
    *,
    service: TheService,
    requested: TheTable,
    namespace: PathText,
    iceberg_properties: TheProperties,
    snapshots: FromQuery[Literal["all", "refs"]] = "all",
    known: Annotated[str | None, HeaderParameter(name="If-None-Match")] = None,
) -> Response[bytes]:
    """The metadata of a table, with all snapshots or those that branches and tags refer to."""
    found = _published(requested, namespace)
    # They may have keys that open all tables.
    config = dict(iceberg_properties) if requested.principal.permission() is not None else {}
    tag = _entity_tag(found.metadata_location, snapshots, config)
    if known is not None and _matches(known, tag):
        return Response(b"", status_code=304, headers={"ETag": tag})
    metadata = found.metadata if snapshots == "all" else referenced_only(found.metadata)
    document = {"metadata-location": found.metadata_location, "metadata": msgspec.Raw(metadata), "config": config}
    if config:
        # Data files are not below the location of the Iceberg table, where some clients use the properties otherwise.
        # DuckDB takes no notice of the prefix if there is one alone.
        root = f"{service.instance.url}/"
        folders = (data_folder(found.table), iceberg_folder(found.table))
        document["storage-credentials"] = [{"prefix": root + folder, "config": config} for folder in folders]
    return Response(msgspec.json.encode(document), media_type="application/json", headers={"ETag": tag})


@head(_TABLE, include_in_schema=False, status_code=204)
@threaded
def has_published(requested: TheTable, namespace: PathText) -> None:
    """Whether the table can be loaded."""
    _published(requested, namespace)


@post(f"{_TABLE}/metrics", include_in_schema=False, status_code=204, request_max_body_size=REPORT_BYTES_MAX)
@threaded
def take_report(requested: TheTable, namespace: PathText, data: JSONBody[dict[str, Any]]) -> None:  # noqa: ARG001
    """Take a client's report on a scan, of which nothing is kept."""
    _published(requested, namespace)


@route(
    [
        _ALL,
        _ONE,
        f"{_ONE}/properties",
        f"{_ONE}/register",
        f"{_ONE}/tables",
        _TABLE,
        f"{_ROOT}/tables/rename",
        f"{_ROOT}/transactions/commit",
        f"{_ONE}/views",
        f"{_ONE}/views/{{view:str}}",
    ],
    http_method=[HttpMethod.POST, HttpMethod.DELETE],
    include_in_schema=False,
    sync_to_thread=False,
    status_code=200,
)
def refuse_write() -> None:
    """Refuse what would write."""
    raise HTTPException(
        detail="this catalog is read-only: write tables by Lakebed, which publishes each version", status_code=406
    )


def page_of(names: Sequence[str], token: str | None, size: int | None) -> tuple[Sequence[str], str | None]:
    """Return the next names of a sorted list, and the token of the page after them; None at the end.

    A token is the last name before its page: tables that come, go or are renamed while a client pages change no place
    in the list of the others. Without a token all names are returned, as Iceberg requires. Raises UsageError.
    """
    if token is None:
        return names, None
    if token and not TABLE_NAME.fullmatch(token):
        raise Code.REQUEST_INVALID(f"pageToken {shown(token)} is not from this catalog; begin again with an empty one")
    rest = [name for name in names if name > token]
    page = rest[: min(size or PAGE_TABLES_MAX, PAGE_TABLES_MAX)]
    return page, page[-1] if len(page) < len(rest) else None


class _SnapshotId(msgspec.Struct):
    """What of a snapshot, or of a branch or tag, is looked at."""

    value: int = msgspec.field(name="snapshot-id")


def referenced_only(metadata: bytes) -> bytes:
    """Return the metadata of a table without the snapshots to which no branch and no tag refers."""
    members = msgspec.json.decode(metadata, type=dict[str, msgspec.Raw])
    refs = msgspec.json.decode(members.get("refs", b"{}"), type=dict[str, _SnapshotId])
    kept = {ref.value for ref in refs.values()}
    snapshots = msgspec.json.decode(members.get("snapshots", b"[]"), type=list[msgspec.Raw])
    found = [one for one in snapshots if msgspec.json.decode(one, type=_SnapshotId).value in kept]
    members["snapshots"] = msgspec.Raw(msgspec.json.encode(found))
    return msgspec.json.encode(members)


def _check_namespace(namespace: str, missing: Code = Code.NAMESPACE_NOT_FOUND) -> None:
    """Raise NotFoundError unless the text of a URL is the namespace."""
    if namespace != NAMESPACE:
        named = ".".join(namespace.split(_SEPARATOR))
        raise missing(f"no namespace {shown(named)}; all tables are in the namespace {NAMESPACE}")


def _may_be_loaded(table: Table) -> bool:
    """Return whether a table has metadata; also if they are damaged, which loading it says."""
    try:
        return current(table) is not None
    except DamagedError:
        return True


def _published(requested: RequestedTable, namespace: str) -> Published:
    """Return the latest publication of a table. Raises AccessError, NotFoundError; DamagedError if it is not ours."""
    # Spark looks for the metadata table t.snapshots as a table of the namespace default.t first, and goes on only if it
    # is the table that is missing.
    _check_namespace(namespace, Code.TABLE_NOT_FOUND)
    table, principal = requested.table(Permission.READ), requested.principal
    if not principal.reads_whole(requested.name):
        raise Code.PERMISSION_MISSING(
            f"{principal.name} sees only a part of table {requested.name}, and other engines read whole files; read "
            "it through this service, by /v1/tables or Flight SQL",
            permission="READ",
            table=requested.name,
        )
    found = current(table)
    if found is None:
        raise Code.TABLE_NOT_FOUND(
            f"table {requested.name} is not published; set publish=iceberg (`lakebed settings set {requested.name} "
            f"publish=iceberg`), and publish it by `lakebed publish {requested.name}` or a service",
            table=requested.name,
        )
    return found


def _entity_tag(location: str, snapshots: str, config: Mapping[str, str]) -> str:
    """Return the entity tag of an answer, which has only immutable metadata beside the configuration."""
    return f'"{xxhash.xxh3_128_hexdigest(msgspec.json.encode((location, snapshots, sorted(config.items()))))}"'


def _matches(header: str, tag: str) -> bool:
    """Return whether the value of ``If-None-Match`` has the tag."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in header.split(","))
