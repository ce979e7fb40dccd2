"""One entry for a group of proposals: validate them, then append the entry until the outcome is clear.

Validation. Each proposal is resolved against the state as those before it leave it. It is refused if the state that it
leads to breaks an invariant (:mod:`lakebed.model.state.invariants`), which only a bug can cause. An entry has a
maximum size; what does not fit is left for the next entry. One transaction that alone is too large is refused. Pure.

Appending. A create has one of three answers:

* created: the entry is in the log.
* unlinked: nothing was stored, because the entry before is not the one that this process knows. The log has to be read.
* exists: the stored bytes are read. Clients retry silently and report "exists" for their own write. Bytes of another
  writer are returned: they are the next entry, which the loser has to read anyway.
* unclear (time-out, reset, 5xx, 409): the request may still be under way, so "not there" proves nothing. The same
  bytes are put to the same version again until that version is seen filled. If that takes too long, the outcome is
  *unknown*.

Core types. :class:`Validated`, :class:`PendingEntry`. Source: docs/decisions/0004, the model in tests/model/protocol.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

from lakebed.errors import Code, StorageError, UsageError
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed, NotCommitted
from lakebed.model.features import COLLECTORS, WRITERS, missing_features
from lakebed.model.state.machine import State
from lakebed.model.state.transactions import Rejected, Repeated, TooManyRuns, TooOld
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.log.backends.backend import LogBackend
    from lakebed.log.checkpoint import Head
    from lakebed.log.outcomes import Outcome
    from lakebed.log.queue import Ticket
    from lakebed.model.state.machine import Machine
    from lakebed.model.state.reference_lists import Sidecar


class Validated(Struct, Generic[State], frozen=True):
    """The proposals that fit into the next entry, their outcomes if it is written, and its contents."""

    outcomes: Mapping[Ticket[Any], Outcome]
    documents: Sequence[bytes]
    body: bytes
    sidecars: Mapping[str, Sidecar]
    features: Sequence[str]
    state: State

    def report(self) -> None:
        """Set the outcomes: the entry is written, or there was nothing to write."""
        for ticket, outcome in self.outcomes.items():
            ticket.outcome = outcome


def validate(
    group: Sequence[Ticket[Any]], head: Head[State], machine: Machine[State, Any, Any], limits: LogLimits
) -> Validated[State]:
    """Validate the proposals of a group in order, for the entry after the head, as many as it has room for."""
    version, state = head.version + 1, head.state
    outcomes: dict[Ticket[Any], Outcome] = {}
    documents: list[bytes] = []
    body = bytearray()
    sidecars: dict[str, Sidecar] = {}
    features: list[str] = []
    for ticket in group:
        program = COLLECTORS if isinstance(ticket.proposal, machine.collecting) else WRITERS
        if missing := missing_features(state.features, program):
            outcomes[ticket] = NotCommitted(Code.FORMAT_TOO_NEW, missing)
            continue
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
        changes = resolved if isinstance(resolved, tuple) else (resolved,)
        try:
            encoded = [machine.encode(change, limits.inline_references) for change in changes]
        except UsageError as error:
            # A value that the format does not allow; the others in the group are not affected.
            outcomes[ticket] = NotCommitted(Code.PROPOSAL_INVALID, error.message)
            continue
        lines = b"".join([one.document + b"\n" for one in encoded])
        if len(lines) > limits.line_bytes:
            text = f"it is {len(lines):,} bytes of JSON, more than {limits.line_bytes:,}: change less at a time"
            outcomes[ticket] = NotCommitted(Code.LIMIT_REACHED, text)
            continue
        all_sidecars = sidecars.copy()
        for one in encoded:
            all_sidecars |= one.sidecars
        references = sum([sidecar.references for sidecar in all_sidecars.values()])
        if documents and (len(body) + len(lines) > limits.entry_bytes or references > limits.entry_references):
            break
        after = state
        for change in changes:
            after = machine.apply(after, change, version)
        if broken := next(machine.violations(state, after, changes), None):
            outcomes[ticket] = NotCommitted(Code.INVARIANT_VIOLATED, f"{broken}; this is a bug, please report it")
            continue
        state = after
        documents += [one.document for one in encoded]
        body += lines
        sidecars = all_sidecars
        features = list(dict.fromkeys([*features, *(feature for one in encoded for feature in one.features)]))
        outcomes[ticket] = Committed(version)
    return Validated(outcomes, documents, bytes(body), sidecars, features, state)


class NotAppended(Enum):
    """Why it is not known which entry has the version."""

    UNCLEAR = "no put had a clear answer within the bound"
    UNLINKED = "nothing is stored or under way, because the entry before is not in the log"
    OVERTAKEN = "after an unclear put the entry before is not in the log any more: the state may know what became of it"


class PendingEntry(Struct, frozen=True):
    """An entry on its way to a number, behind the entry of the digest ``previous``."""

    version: int
    data: bytes
    previous: str


def append(backend: LogBackend, pending: PendingEntry, puts: int) -> bytes | NotAppended:
    """Return the bytes of the entry at that version: these, or those of another writer.

    Raises StorageError if the first put was refused outright: then nothing is under way.
    """
    for attempt in attempts(puts):
        try:
            outcome = backend.create(pending.version, pending.data, pending.previous)
        except StorageError:
            # A later refusal leaves the first put unclear.
            if attempt == 0:
                raise
            continue
        if outcome is PutOutcome.CREATED:
            return pending.data
        if outcome is PutOutcome.UNLINKED:
            return NotAppended.OVERTAKEN if attempt else NotAppended.UNLINKED
        if outcome is PutOutcome.EXISTS and (stored := _read_back(backend, pending.version)) is not None:
            return stored
    return NotAppended.UNCLEAR


def _read_back(backend: LogBackend, version: int) -> bytes | None:
    """Return the entry at that version; None if it cannot be read now, or "exists" was about a racing delete."""
    try:
        return backend.get(version)
    except StorageError:
        return None
