"""Putting one entry into its log position until it is certain whose the log position is.

Three answers to a create:

* created: ours.
* exists: look whose it is. Clients retry silently and report "exists" for our own write. Another's bytes are handed
  back: they are the next entry, and whoever lost must read it anyway.
* unclear (time-out, reset, 5xx, 409): the request may still be under way, so "not there" proves nothing. The same
  bytes go to the same number again until the log position is seen filled. If that takes too long the outcome is
  *unknown*.

Source: docs/decisions/0004, the model in tests/model/protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import StorageError
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import attempts

if TYPE_CHECKING:
    from lakebed.log.backends.backend import LogBackend

SETTLE_MAX = 12
"""Puts of the same bytes before an unclear outcome is called unknown: about ten seconds with the pauses between."""


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry on its way to a number."""

    version: int
    data: bytes


def append(backend: LogBackend, pending: PendingEntry) -> bytes | None:
    """The bytes that fill the log position: these very ones, or another's. None: not settled within the bound.

    Raises StorageError if the first put was refused outright: then nothing is under way.
    """
    for attempt in attempts(SETTLE_MAX):
        try:
            outcome = backend.create(pending.version, pending.data)
        except StorageError:
            # A later refusal leaves the first put unclear.
            if attempt == 0:
                raise
            continue
        if outcome is PutOutcome.CREATED:
            return pending.data
        if outcome is PutOutcome.EXISTS and (found := _read_back(backend, pending.version)) is not None:
            return found
    return None


def _read_back(backend: LogBackend, version: int) -> bytes | None:
    """What fills the log position; None if it cannot be read just now, or "exists" was about a racing delete."""
    try:
        return backend.get(version)
    except StorageError:
        return None
