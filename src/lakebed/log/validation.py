"""Judging a group: what each proposal would become as part of the next entry, and what that entry would hold.

Each is resolved against the state as the ones before it leave it. An entry has a size: whoever comes when it is full is
not validated, and has to be in the next. One transaction that alone is far too large is refused. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import Code, UsageError
from lakebed.log.outcomes import Committed, NotCommitted
from lakebed.state.machine import State
from lakebed.state.transactions import Rejected, Repeated, TooManyRuns, TooOld

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.log.checkpoint import Head
    from lakebed.log.outcomes import Outcome
    from lakebed.log.queue import Ticket
    from lakebed.state.machine import Machine
    from lakebed.state.reference_lists import Sidecar

ENTRY_BYTES_MAX = 4 * 2**20
"""The lines of one entry, if they are several: sent in one request, and held in memory by whoever reads it."""

ASIDE_MAX = 250_000
"""References in the sidecars of one entry, if it is more than one transaction: a second's work to apply."""

LINE_BYTES_MAX = 16 * 2**20
"""One transaction: some forty thousand files. Its references are beside it."""


@dataclass(frozen=True, slots=True)
class Validated(Generic[State]):
    """The proposals that the next entry has room for, what becomes of them if it is written, and what it holds."""

    outcomes: Mapping[Ticket[Any], Outcome]
    documents: Sequence[bytes]
    body: bytes
    sidecars: Mapping[str, Sidecar]
    state: State

    def tell(self) -> None:
        """Tell everyone: it is written, or there was nothing to write."""
        for ticket, outcome in self.outcomes.items():
            ticket.outcome = outcome


def validate(group: Sequence[Ticket[Any]], head: Head[State], machine: Machine[State, Any, Any]) -> Validated[State]:
    """Validate the proposals of a group in order, for the entry after the head, as many as it has room for."""
    version, state = head.version + 1, head.state
    outcomes: dict[Ticket[Any], Outcome] = {}
    documents: list[bytes] = []
    body = bytearray()
    sidecars: dict[str, Sidecar] = {}
    for ticket in group:
        resolved = machine.resolve(ticket.proposal, state)
        if isinstance(resolved, Rejected):
            outcomes[ticket] = NotCommitted(resolved.code, resolved.reason, resolved.facts)
            continue
        if isinstance(resolved, Repeated):
            outcomes[ticket] = Committed(resolved.version, repeated=True)
            continue
        if isinstance(resolved, TooOld | TooManyRuns):
            outcomes[ticket] = resolved
            continue
        try:
            encoded = machine.encode(resolved)
        except UsageError as error:
            # A value that the format does not have: its maker's fault alone, and not that of the others in the group.
            outcomes[ticket] = NotCommitted(Code.PROPOSAL_INVALID, error.message)
            continue
        line = encoded.document + b"\n"
        if len(line) > LINE_BYTES_MAX:
            text = f"it is {len(line):,} bytes of JSON, more than {LINE_BYTES_MAX:,}: proposal less at a time"
            outcomes[ticket] = NotCommitted(Code.LIMIT_REACHED, text)
            continue
        beside = sidecars | encoded.sidecars
        aside = sum([sidecar.references for sidecar in beside.values()])
        if documents and (len(body) + len(line) > ENTRY_BYTES_MAX or aside > ASIDE_MAX):
            break
        state = machine.apply(state, resolved, version)
        documents.append(encoded.document)
        body += line
        sidecars = beside
        outcomes[ticket] = Committed(version)
    return Validated(outcomes, documents, bytes(body), sidecars, state)
