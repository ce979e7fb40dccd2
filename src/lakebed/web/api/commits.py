"""``POST /v1/tables/{id}/commits``: proposals of other processes, which this one commits in as few entries as possible.

A request has proposals for one table (:mod:`lakebed.log.commit_messages`), as MessagePack or JSON. They join the queue
of the table's log, behind those of all other requests, and the answer is sent when each has its outcome. A request that
waits holds no thread: those of :class:`Committers` make the entries.

The answer says 200 whatever the outcomes are. Any other status means that nothing of the request was committed, or ever
will be; except 500 and 504, which say nothing about it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from litestar import Request, Response, post
from litestar.di import NamedDependency
from litestar.params import FromPath

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
from lakebed.security.principal import Permission, Principal
from lakebed.service.service import Service
from lakebed.state.proposal_codec import decode_proposal
from lakebed.state.transactions import Proposal
from lakebed.table.table import Table

THREADS_MAX = 64
"""Entries under way, of all tables together; two or three of one table are at a time."""

NAMED_S = 5.0
"""How long the name of a table is taken for the one that it had: the permission of a principal is for a name."""

INLINE_BYTES_MAX = 256 * 1024
"""A larger request is decoded in a thread, so that the others need not wait for it."""


class Committers:
    """The threads that make entries, and the tables that requests were for."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS_MAX, "lakebed-commit")
        self._tables: dict[str, tuple[Table, float]] = {}

    def close(self) -> None:
        """Wait for the entries under way."""
        self.threads.shutdown()

    async def table(self, service: Service, table_id: str) -> Table:
        """The table with this id. Raises NotFoundError."""
        known = self._tables.get(table_id)
        if known is not None and clock.monotonic_s() - known[1] < NAMED_S:
            return known[0]
        table = await asyncio.to_thread(service.instance.named, table_id)
        self._tables[table_id] = table, clock.monotonic_s()
        return table


@post(
    "/v1/tables/{table_id:str}/commits",
    status_code=200,
    request_max_body_size=REQUEST_BYTES_MAX,
    tags=["commits"],
)
async def commit(
    request: Request[Any, Any, Any],
    table_id: FromPath[str],
    service: NamedDependency[Service],
    principal: NamedDependency[Principal],
    committers: NamedDependency[Committers],
) -> Response[bytes]:
    """Commit proposals for a table, each by itself."""
    format = _format(request.headers.get("content-type", ""))
    body = await request.body()
    sent = decode_request(body, service.instance.id, format)
    table = await committers.table(service, table_id)
    principal.require(Permission.WRITE, table.name)
    if len(body) > INLINE_BYTES_MAX:
        decoded = await asyncio.to_thread(_decoded, sent.proposals, format)
    else:
        decoded = _decoded(sent.proposals, format)
    proposals = [one for one in decoded if not isinstance(one, Error)]
    found = await asyncio.wrap_future(commit_batch(table.log, proposals, committers.threads))
    made = iter(found)
    outcomes: list[Outcome | Error] = [one if isinstance(one, Error) else next(made) for one in decoded]
    answer = encode_answer(table.log.head.version, outcomes, format)
    media_type = "application/json" if format == "json" else MSGPACK
    return Response(answer, media_type=media_type, headers={INSTANCE_HEADER: service.instance.id})


def _format(content_type: str) -> str:
    """``msgpack`` or ``json``. Raises UsageError."""
    found = {MSGPACK: "msgpack", "application/json": "json"}.get(content_type.partition(";")[0].strip().lower())
    if found is None:
        raise Code.REQUEST_INVALID(f"commits are sent as {MSGPACK} or application/json, not {content_type!r}")
    return found


def _decoded(documents: list[Any], format: str) -> list[Proposal | Error]:
    """The proposals, or what is wrong with each."""
    return [_decoded_one(one, format) for one in documents]


def _decoded_one(document: Any, format: str) -> Proposal | Error:
    try:
        return decode_proposal(document, format)
    except Error as error:
        return error


ROUTES = (commit,)
