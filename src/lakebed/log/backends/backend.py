"""What a log asks of the place that keeps its entries.

Entries are numbered 1, 2, 3 … and immutable. Everything above rests on these promises, which the conformance suite in
:mod:`lakebed.testing.logs` checks:

* Of any number of racing creates of one version at most one takes effect, and none overwrites.
* What was acknowledged is durable, and is seen by every later read of that version.
* An entry is there whole or not at all.
* The log start only rises, and of any number of racing raises from one log start at most one takes effect.
* A log start that is told with a create was read behind it.
* An entry's last-modified time is the place's own clock, the same that :meth:`LogBackend.now` reads.

Outcomes are those of :class:`~lakebed.storage.contract.PutOutcome`, settled the same way: UNCLEAR says that the entry
may be there, or may yet come; put the same bytes to the same number again. EXISTS says "look whose it is".
Failures are StorageError with a ``transient`` fact; a create that raises has stored nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from lakebed.storage.contract import PutOutcome


class LogBackend(Protocol):
    """The entries of one log. Safe to use from many threads."""

    def create(self, version: int, data: bytes) -> PutOutcome:
        """Put entry ``version`` if there is none, in one request: nothing below this call retries silently."""

    def get(self, version: int) -> bytes | None:
        """The bytes of an entry; None: there is none."""

    def last_modified(self, version: int) -> datetime | None:
        """When the entry was stored, aware UTC; None: there is none."""

    def known_last_modified(self, version: int) -> datetime | None:
        """The same where it costs no request: the place told it with the create, or is a local disk. None: ask."""

    def now(self) -> datetime:
        """The clock that last-modified times the entries."""

    def versions(self) -> Iterator[int]:
        """The numbers of all entries, in any order. For recovery and verification only: it may take many requests."""

    def log_start(self) -> int:
        """The version up to which entries may be deleted, in one request; 0: it was never raised."""

    def known_log_start(self, version: int) -> int | None:
        """The log start as it was once entry ``version`` was stored, where the place told it with the create. None:
        ask.

        Of the newest entry that this process created. A log start read any earlier would not be the same: the log may
        have been truncated between, and the version be one that was deleted.
        """

    def supports_truncation(self) -> bool:
        """Whether the place has the compare-and-set that a log start needs; False: its logs are kept whole.

        Takes some requests where it has to be tried out.
        """

    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start if it is the expected one, durably; False: it is another one, look again.

        Raises:
            UsageError: ``to`` is not above ``expected``.
            UnsafeStoreError: the place has no compare-and-set, so its logs are kept whole.
            StorageError: no clear answer. It may be raised, or may yet be.
        """

    def remove(self, versions: Iterable[int]) -> None:
        """Delete entries; one that is not there is fine.

        Only for numbers up to a log start whose raise this process was told of, or that it found before: nothing checks
        it.
        """

    def foreign(self) -> Iterator[str]:
        """The names of what lies among the entries and is none; nothing reads it. For verification only."""


class LogLocation(Protocol):
    """Where the logs of an instance are kept: one for each table, and the catalog's."""

    def open(self, prefix: str) -> LogBackend:
        """The log of that prefix (``catalog``, ``tables/<id>``); it need not exist yet."""

    def prefixes(self) -> Iterator[str]:
        """The prefixes of all logs of the instance, each once, in any order. For collection only: it may list much."""

    def check(self) -> None:
        """Raise UnsafeStoreError if the place cannot keep a log, StorageError if it cannot be reached or written."""
