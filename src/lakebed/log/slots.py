"""Putting one entry into its slot until it is certain whose the slot is.

Three answers to a create:

* created: ours.
* exists: look whose it is. Clients retry silently and report "exists" for our own write. Another's bytes are handed
  back: they are the next entry, and whoever lost must read it anyway.
* unclear (time-out, reset, 5xx, 409): the request may still be under way, so "not there" proves nothing. The same
  bytes go to the same number again until the slot is seen filled. If that takes too long the outcome is *unknown*.

Source: docs/decisions/0004, the model in tests/model/protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import StorageError
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from lakebed.log.backend import LogBackend

SETTLE_MAX = 12
"""Puts of the same bytes before an unclear outcome is called unknown: about 15 seconds with the waits between."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry on its way to a number."""

    number: int
    data: bytes


def fill(backend: LogBackend, slot: Slot) -> bytes | None:
    """The bytes that fill the slot: these very ones, or another's. None: not settled within the bound.

    Raises StorageError if the first put was refused outright: then nothing is under way.
    """
    for attempt in range(SETTLE_MAX):
        if attempt:
            clock.sleep(clock.jitter_s(min(3.0, 0.02 * 2**attempt)))
        try:
            outcome = backend.create(slot.number, slot.data)
        except StorageError:
            # A later refusal leaves the first put unclear.
            if attempt == 0:
                raise
            continue
        if outcome is PutOutcome.CREATED:
            return slot.data
        if outcome is PutOutcome.EXISTS and (found := _read_back(backend, slot.number)) is not None:
            return found
    return None


def _read_back(backend: LogBackend, number: int) -> bytes | None:
    """What fills the slot; None if it cannot be read just now, or "exists" was about a racing delete."""
    try:
        return backend.get(number)
    except StorageError:
        return None
