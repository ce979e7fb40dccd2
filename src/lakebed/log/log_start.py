"""The log start of a log as bytes, and how a raise of it is settled.

Entries up to the log start may be deleted, and prove nothing (docs/decisions/0011). It is NDJSON: a header, and a line
with the version. Where nothing is stored the log start is 0: it was never raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import DamagedError, StorageError, UsageError
from lakebed.log.entry import FORMAT, digest_of, parse_header
from lakebed.model.documents import dump, load, reading
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

PUTS_MAX = 8
"""Tries of one raise before it fails: about five seconds with the waits between; a server restarts meanwhile."""


def check_rise(expected: int, to: int) -> None:
    """Raise UsageError unless the log start would rise."""
    if not 0 <= expected < to:
        raise UsageError(f"a log start only rises: it cannot go from {expected} to {to}", expected=expected, to=to)


def encode_log_start(version: int) -> bytes:
    """The bytes of a log start."""
    body = dump({"log_start": version}) + b"\n"
    return dump({"format": FORMAT, "features": [], "digest": digest_of(body)}) + b"\n" + body


def decode_log_start(data: bytes | None, log: str) -> int:
    """The log start of these bytes; 0 for none.

    Raises:
        UnsupportedFormatError: a newer Lakebed wrote it.
        DamagedError: it is not what was written.
    """
    if data is None:
        return 0
    head, _, body = data.partition(b"\n")
    name = f"the log start of {log}"
    if parse_header(head, name).get("digest") != digest_of(body):
        raise DamagedError(f"{name} was changed after it was written; restore it from a copy as new", log=log)
    with reading(f"{name} makes no sense", log=log):
        log_start = load(body).get("log_start")
    if type(log_start) is not int or log_start < 1:
        raise DamagedError(f"{name} makes no sense: {log_start!r}", log=log)
    return log_start


def settled(raise_once: Callable[[], PutOutcome], raised: Callable[[], bool], log: str) -> bool:
    """Repeat one conditional put until its outcome is clear; whether the log start is where it was to go.

    After an unclear put another may be the one who raised it to the same number, which is as good.

    Raises:
        StorageError: no clear answer; it may be raised, or not yet.
    """
    for attempt in range(PUTS_MAX):
        outcome = raise_once()
        if outcome is PutOutcome.CREATED:
            return True
        if outcome is PutOutcome.EXISTS:
            return attempt > 0 and raised()
        clock.sleep(clock.jitter_s(min(3.0, 0.05 * 2**attempt)))
    raise StorageError(
        f"the log start of {log} may be raised, or not: no clear answer to {PUTS_MAX} puts; try again later",
        log=log,
        transient=True,
    )
