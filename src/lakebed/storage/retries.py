"""Repeats a request with growing random pauses: a put until its outcome is clear, a read until it is answered.

Rules. The number of attempts is bounded, and each attempt but the first follows a pause, so that writers do not add to
the load of a failing store. An unclear put (time-out, reset, 5xx, 409) may have taken effect, or may still do so: the
same bytes are put to the same name again until the answer is CREATED or EXISTS. A put that raises has stored nothing
and is not repeated; an earlier unclear put of the same bytes may still have taken effect.

Errors. A transient StorageError after the last attempt. Source: :mod:`lakebed.storage.contract`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lakebed import clock
from lakebed.errors import Code, StorageError
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.storage.contract import Storage

ATTEMPTS_MAX = 8
"""Attempts before a request fails: about five seconds with the pauses between, enough for a server to restart."""

PAUSE_S = 0.05
PAUSE_MAX_S = 3.0

Answer = TypeVar("Answer")


def attempts(attempts_max: int) -> Iterator[int]:
    """Count attempts from 0, with a pause before each but the first."""
    for attempt in range(attempts_max):
        if attempt:
            clock.sleep(clock.jitter_s(min(PAUSE_MAX_S, PAUSE_S * 2**attempt)))
        yield attempt


def put_until_clear(put: Callable[[], PutOutcome], what: str) -> PutOutcome:
    """Repeat one conditional put until its outcome is clear: CREATED or EXISTS.

    EXISTS may be the caller's own earlier put. ``what`` names the object for the error.

    Raises:
        StorageError: no put had a clear answer; or a put was refused, as it says.
    """
    for _ in attempts(ATTEMPTS_MAX):
        outcome = put()
        if outcome is not PutOutcome.UNCLEAR:
            return outcome
    raise Code.PUT_UNCLEAR(
        f"no clear answer to {ATTEMPTS_MAX} puts of {what}: it may be stored, or not; try again later",
        name=what,
        transient=True,
    )


def create_until_clear(storage: Storage, name: str, data: bytes) -> PutOutcome:
    """Create an object as :func:`put_until_clear`: CREATED, or EXISTS, which may be by the caller's own earlier put."""
    return put_until_clear(lambda: storage.create(name, data), name)


def is_stored(storage: Storage, name: str, data: bytes) -> bool:
    """Create an object; return whether the object of that name has these bytes. Raises as :func:`put_until_clear`."""
    return create_until_clear(storage, name, data) is PutOutcome.CREATED or storage.get(name) == data


def read_until_answered(read: Callable[[], Answer]) -> Answer:
    """Repeat a read while its error is transient. Raises the last StorageError."""
    for attempt in attempts(ATTEMPTS_MAX):
        try:
            return read()
        except StorageError as failure:
            if attempt == ATTEMPTS_MAX - 1 or not failure.transient:
                raise
    raise AssertionError
