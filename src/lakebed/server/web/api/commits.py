"""``POST /v1/tables/{id}/commits``: proposals of other processes, which this one commits in as few entries as possible.

A request has proposals for one table (:mod:`lakebed.log.commit_messages`), as MessagePack or JSON, or changes of the
catalog (``POST /v1/catalog/commits``). They join the queue of the log, behind those of all other requests, and the
answer is sent when each has its outcome. A request that waits holds no thread: those of :class:`Committers` make the
entries.

The answer says 200 whatever the outcomes are. Any other status means that nothing of the request was committed, or ever
will be; except 500 and 504, which say nothing about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from litestar import Response, post
from litestar.di import NamedDependency
from msgspec import Raw

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.batch_commit import commit_batch
from lakebed.log.commit_messages import (
    INSTANCE_HEADER,
    MSGPACK,
    REQUEST_BYTES_MAX,
    decode_request,
    encode_answer,
)
from lakebed.log.outcomes import Outcome
from lakebed.model.state.catalog import (
    CatalogProposal,
    FenceCreations,
    PauseOperations,
    PurgeTable,
    RegisterTable,
    RenameTable,
    ReplaceTable,
    SetDefaults,
    SetOnline,
    decode_proposed,
)
from lakebed.model.state.proposal_codec import decode_proposal
from lakebed.model.state.transactions import (
    AddIndex,
    AlterSettings,
    DropIndex,
    Proposal,
    ProposeFilter,
    ProposeSchema,
    RequireFeatures,
    SetMerge,
)
from lakebed.server.security.principal import Permission
from lakebed.server.service.service import Service
from lakebed.server.web.access import AnyRequest, PathText, ThePrincipal, TheService
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.table.table import Table

if TYPE_CHECKING:
    from lakebed.log.log import Log

ADMINISTRATION = (AddIndex, AlterSettings, DropIndex, ProposeFilter, ProposeSchema, RequireFeatures, SetMerge)
"""What an admin proposes; anything else of a table needs the permission to write."""

THREADS_MAX = 64
"""Entries under way, of all tables together; two or three of one table are at a time."""

NAMED_S = 5.0
"""How long the name of a table is taken for the one that it had: the permission of a principal is for a name."""

INLINE_BYTES_MAX = 256 * 1024
"""A larger request is decoded in a thread, so that the others need not wait for it."""


_post_commits = partial(
    post, status_code=200, request_max_body_size=REQUEST_BYTES_MAX, tags=["commits"], responses=ERRORS
)


class Committers:
    """The threads that make entries, and the tables that requests were for."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS_MAX, "lakebed-commit")
        self._tables: dict[str, tuple[Table, float]] = {}

    def close(self) -> None:
        """Wait for the entries under way."""
        self.threads.shutdown()

    async def table(self, service: Service, table_id: str) -> Table:
        """Return the table with this id. Raises NotFoundError."""
        known = self._tables.get(table_id)
        if known is not None and clock.monotonic_s() - known[1] < NAMED_S:
            return known[0]
        table = await asyncio.to_thread(service.instance.named, table_id)
        self._tables[table_id] = table, clock.monotonic_s()
        return table


@_post_commits("/v1/tables/{table_id:str}/commits")
async def commit(
    request: AnyRequest,
    table_id: PathText,
    service: TheService,
    principal: ThePrincipal,
    committers: NamedDependency[Committers],
) -> Response[bytes]:
    """Commit proposals for a table, each by itself."""
    sent = await _received(request, service)
    table = await committers.table(service, table_id)
    principal.require(Permission.WRITE, table.name)

    def proposal(document: Raw) -> Proposal:
        found = decode_proposal(document, sent.format)
        if isinstance(found, ADMINISTRATION):
            principal.require(Permission.ADMIN, table.name)
        return found

    return await _answered(sent, table.log, proposal, committers)


@_post_commits("/v1/catalog/commits")
async def commit_catalog(
    request: AnyRequest, service: TheService, principal: ThePrincipal, committers: NamedDependency[Committers]
) -> Response[bytes]:
    """Commit changes of the catalog, each by itself: names of tables, pauses, defaults of settings."""
    sent = await _received(request, service)
    # The names that tables have now decide what the principal may change.
    await asyncio.to_thread(service.instance.catalog)

    def change(document: Raw) -> CatalogProposal:
        found = decode_proposed(document, sent.format)
        for name in _changed_tables(found, service.instance.known_tables()):
            principal.require(Permission.ADMIN, name)
        return found

    return await _answered(sent, service.instance.catalog_log(), change, committers)


def _changed_tables(change: CatalogProposal, tables: Mapping[str, str]) -> list[str | None]:
    """Return the names of tables that a change is about; None: of all."""
    match change:
        case SetDefaults() | FenceCreations() | RequireFeatures():
            return [None]
        case RegisterTable() | RenameTable():
            return [change.name, *([tables[change.table]] if change.table in tables else [])]
        case ReplaceTable():
            ids = (change.table, change.replaced)
            return [change.name, *(tables[one] for one in ids if one in tables)]
        case PurgeTable() | SetOnline() | PauseOperations():
            return [tables.get(change.table)]
        case _:
            assert_never(change)


@dataclass(frozen=True, slots=True)
class _Received:
    """A request that is for this instance, in its format."""

    instance: str
    format: str
    size_bytes: int
    proposals: list[Raw]


async def _received(request: AnyRequest, service: Service) -> _Received:
    """Return the request. Raises UsageError."""
    format = _format(request.headers.get("content-type", ""))
    body = await request.body()
    sent = decode_request(body, service.instance.id, format)
    return _Received(service.instance.id, format, len(body), sent.proposals)


async def _answered(
    sent: _Received, log: Log[Any, Any, Any], decode: Callable[[Raw], Any], committers: Committers
) -> Response[bytes]:
    """Return the answer with the outcomes of the proposals that were sent for a log."""
    if sent.size_bytes > INLINE_BYTES_MAX:
        decoded = await asyncio.to_thread(_decoded, sent.proposals, decode)
    else:
        decoded = _decoded(sent.proposals, decode)
    proposals = [one for one in decoded if not isinstance(one, Error)]
    found = await asyncio.wrap_future(commit_batch(log, proposals, committers.threads))
    made = iter(found)
    outcomes: list[Outcome | Error] = [one if isinstance(one, Error) else next(made) for one in decoded]
    answer = encode_answer(log.head.version, outcomes, sent.format)
    media_type = "application/json" if sent.format == "json" else MSGPACK
    return Response(answer, media_type=media_type, headers={INSTANCE_HEADER: sent.instance})


def _format(content_type: str) -> str:
    """Return ``msgpack`` or ``json``. Raises UsageError."""
    found = {MSGPACK: "msgpack", "application/json": "json"}.get(content_type.partition(";")[0].strip().lower())
    if found is None:
        raise Code.REQUEST_INVALID(f"commits are sent as {MSGPACK} or application/json, not {content_type!r}")
    return found


def _decoded(documents: list[Raw], decode: Callable[[Raw], Any]) -> list[Any]:
    """Return the proposals, or the error of each that is none, or is not allowed."""
    found: list[Any] = []
    for one in documents:
        try:
            found.append(decode(one))
        except Error as error:
            found.append(error)
    return found
