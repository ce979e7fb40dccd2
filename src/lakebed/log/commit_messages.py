"""The request and the response of a commit through a service.

A request has proposals for one table, the answer an outcome for each, in the same order: the values of
:mod:`lakebed.log.outcomes`, or a :class:`Failed` with the error for a proposal that was not made. Both sides name the
protocol and the instance, so that a wrong service or version is detected. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from lakebed.errors import Code, Error, decode_error, encode_error
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, Outcome, Unknown
from lakebed.model.documents import UNREADABLE
from lakebed.model.state.transactions import TooManyRuns, TooOld

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL = 3
"""Raised by every change that the other side of an earlier version would misread."""

MSGPACK = "application/msgpack"

INSTANCE_HEADER = "Lakebed-Instance"
"""In each answer of the service to such a request, also where it is an error."""

REQUEST_BYTES_MAX = 32 * 2**20
"""The body of a request. What a client sends is at most half as large, unless one proposal is."""

PROPOSALS_MAX = 1024
"""In one request: four entries."""


class CommitRequest(Struct, frozen=True):
    """Proposals for one table. Each is checked by itself, so that one that is invalid affects no other."""

    protocol: int
    instance: str
    proposals: list[Raw]


class Failed(Struct, frozen=True, tag="failed"):
    """The proposal is not in the log, and never will be, because of an error."""

    error: dict[str, Any]


class CommitAnswer(Struct, frozen=True):
    """An outcome for each proposal; ``version`` is the newest of the service, up to which the client should read."""

    version: int
    outcomes: list[Committed | NotCommitted | Contended | Crowded | Unknown | TooOld | TooManyRuns | Failed]


class _Preamble(Struct, frozen=True):
    protocol: int
    instance: str


_ANSWERS = msgspec.msgpack.Decoder(CommitAnswer)


def encode_request(instance: str, proposals: Sequence[bytes]) -> bytes:
    """Return the body of a request with proposals that are encoded."""
    return msgspec.msgpack.encode(CommitRequest(PROTOCOL, instance, [Raw(one) for one in proposals]))


def decode_request(body: bytes, instance: str, format: str) -> CommitRequest:
    """Return the request of these bytes, ``msgpack`` or ``json``.

    Raises UsageError if it is invalid, or not for here.
    """
    decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
    try:
        preamble = decode(body, type=_Preamble)
        if preamble.protocol != PROTOCOL:
            raise Code.COMMIT_SERVICE_MISMATCH(
                f"this service takes commits by protocol {PROTOCOL}, not {preamble.protocol}: "
                "use the same version of Lakebed on both sides"
            )
        if preamble.instance != instance:
            raise Code.COMMIT_SERVICE_MISMATCH(
                f"this service serves instance {instance}, not {preamble.instance}: correct commit_via"
            )
        request = decode(body, type=CommitRequest)
    except msgspec.MsgspecError as error:
        raise Code.REQUEST_INVALID(f"not a request to commit: {error}") from error
    if len(request.proposals) > PROPOSALS_MAX:
        raise Code.REQUEST_INVALID(f"{len(request.proposals)} proposals in one request, at most {PROPOSALS_MAX}")
    return request


def encode_answer(version: int, outcomes: Sequence[Outcome | Error], format: str) -> bytes:
    """Return the body of an answer."""
    made = [Failed(encode_error(one)) if isinstance(one, Error) else one for one in outcomes]
    answer = CommitAnswer(version, made)
    return msgspec.json.encode(answer) if format == "json" else msgspec.msgpack.encode(answer)


def decode_answer(body: bytes) -> tuple[int, list[Outcome | Error]]:
    """Return the version and the outcomes of an answer. Raises ValueError if it is none."""
    try:
        answer = _ANSWERS.decode(body)
        outcomes = [decode_error(one.error) if isinstance(one, Failed) else one for one in answer.outcomes]
    except UNREADABLE as error:
        raise ValueError(f"not an answer to a commit: {error}") from error
    return answer.version, outcomes
