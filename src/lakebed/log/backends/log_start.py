"""The stored form of a log start, and raising it by compare-and-set.

Entries up to the log start may be deleted, so their absence proves nothing (docs/decisions/0011). It is a stored
document with the version. If nothing is stored, the log start is 0: it was never raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.stored_documents import decode_document, encode_document
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Callable


def encode_log_start(version: int) -> bytes:
    """Return the bytes of a log start."""
    return encode_document({"log_start": version})


def decode_log_start(data: bytes | None, log: str) -> int:
    """Return the log start of these bytes; 0 for none.

    Raises:
        UnsupportedFormatError: a newer Lakebed wrote it.
        DamagedError: the bytes were changed after they were written.
    """
    if data is None:
        return 0
    name = f"the log start of {log}"
    log_start = decode_document(data, name, "restore it from a copy as new", log=log).get("log_start")
    if type(log_start) is not int or log_start < 1:
        raise Code.LOG_START_DAMAGED(f"{name} has an invalid log start {log_start!r}", log=log)
    return log_start


class Rise(Struct, frozen=True):
    """A raise of the log start of ``log``. Raises UsageError unless ``to`` is above ``expected``."""

    log: str
    expected: int
    to: int

    def __post_init__(self) -> None:
        if not 0 <= self.expected < self.to:
            raise Code.ARGUMENT_INVALID(f"a log start can only rise, not go from {self.expected} to {self.to}")

    def carry_out(self, found: bytes | None, put: Callable[[bytes], PutOutcome], read: Callable[[], int]) -> bool:
        """Raise the log start if ``found``, its bytes, is the expected one; return whether it is raised.

        ``put`` replaces the bytes that were found in one request, if they are unchanged. ``read`` reads the log start
        again if they are not: an earlier unclear put may have raised it, or another process to the same version.

        Raises:
            StorageError: no clear answer; the log start may be raised, or may yet be.
        """
        if decode_log_start(found, self.log) != self.expected:
            return False
        data = encode_log_start(self.to)
        outcome = put_until_clear(lambda: put(data), f"the log start of {self.log}")
        return outcome is PutOutcome.CREATED or read() == self.to
