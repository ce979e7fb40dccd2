"""The log backend interface, which stores the entries of logs.

Entries are numbered 1, 2, 3 … and immutable. The log depends on these guarantees, which the conformance suite in
:mod:`lakebed.testing.logs` checks:

* At most one of any number of racing creates of a version takes effect, and none overwrites.
* An acknowledged entry is durable. Every later read of that version returns it.
* An entry exists whole or not at all.
* A create with the digest of the entry before is refused if the database can see, in the same request, that this entry
  is not in the log. A database that forgot commits does not get an entry above the gap.
* The log start only rises. At most one of any number of racing raises from one log start takes effect.
* A log start that a create returns was read after the entry was stored.
* The last-modified time of an entry comes from the clock that :meth:`LogBackend.now` reads.

A backend of another package is found by the scheme of its URL (:class:`OpenLogs`), and passes the same suite.

Outcomes are those of :class:`~lakebed.storage.contract.PutOutcome`. UNCLEAR: the entry may exist, or may yet; put the
same bytes to the same version again. EXISTS: read the entry, which may be the caller's own. UNLINKED: look at the log.

Errors. StorageError with a ``transient`` fact; a create that raises has stored nothing.

*The stored form of a log start, and raising it by compare-and-set.*

Entries up to the log start may be deleted, so their absence proves nothing (docs/decisions/0011). It is a stored
document with the version. If nothing is stored, the log start is 0: it was never raised.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, StorageError
from lakebed.model.documents import decode_document, encode_document
from lakebed.storage.contract import PROBE, PutOutcome
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path


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


class Around(Struct, frozen=True):
    """What there is at an entry that should be the last one, and after it.

    ``digest`` is that of the entry; empty: there is no such entry; None: there is one, and its digest was not read.
    ``beyond`` is a version above the next one whose entry exists; 0: none was seen.
    """

    digest: str | None
    beyond: int = 0


class End(Struct, frozen=True):
    """The log start; and ``around`` the last entry, if the same request shows it."""

    log_start: int
    around: Around | None = None


class LogBackend(Protocol):
    """The entries of one log. Safe to use from many threads.

    Of a class that derives from this one, the abstract methods suffice. The others are right for any backend as they
    are here, and are overridden by one that can do better.
    """

    @property
    def folder(self) -> Path | None:
        """The folder on this machine in which each entry is a file, with the times of its device; None if there is
        none.
        """
        return None

    @abstractmethod
    def create(self, version: int, data: bytes, previous: str = "") -> PutOutcome:
        """Put entry ``version`` if there is none, in one request, without a retry.

        ``previous`` is the digest of the entry before; UNLINKED if the backend sees that this is not in the log. Empty:
        not checked.
        """

    @abstractmethod
    def get(self, version: int) -> bytes | None:
        """Return the bytes of an entry; None if there is none."""

    def turn(self, wait_s: float, pause_s: float) -> AbstractContextManager[bool]:  # noqa: ARG002 - there are none
        """Hold the turn of this writer during the block, if the backend has turns; False if it has none, or none was
        free within ``wait_s`` (checked about every ``pause_s``). Only avoids races; correctness does not depend on it.
        """
        return nullcontext(enter_result=False)

    @abstractmethod
    def last_modified(self, version: int) -> datetime | None:
        """Return when the entry was stored, aware UTC; None if there is none."""

    def known_last_modified(self, version: int) -> datetime | None:  # noqa: ARG002 - nothing is known
        """As :meth:`last_modified`, without a request: from the answer to a create, or a local disk. None: unknown."""
        return None

    @abstractmethod
    def now(self) -> datetime:
        """Return the time by the clock of the backend, from which last-modified times come."""

    @abstractmethod
    def versions(self) -> Iterator[int]:
        """Return the versions of all entries, in any order. For recovery and verification: may take many requests."""

    @abstractmethod
    def log_start(self) -> int:
        """Return the version up to which entries may be deleted, in one request; 0 if it was never raised."""

    def end(self, version: int) -> End:  # noqa: ARG002 - nothing more is shown
        """Return the log start in one request; what is around entry ``version`` if that takes no further one."""
        return End(self.log_start())

    def whole_end(self, version: int) -> End:
        """Return the log start and what is around entry ``version``; in one round trip, if the backend can."""
        end = self.end(version)
        return end if end.around is not None else End(end.log_start, self.around(version))

    def around(self, version: int) -> Around:
        """Return what is around entry ``version``; in one request, if the backend can."""
        return self.end(version).around or look_around(self, version)

    def entries_from(self, version: int) -> Sequence[int] | None:  # noqa: ARG002 - nothing shows them
        """Return the versions of all entries from this one on, ascending, in one request; None: none shows them all.

        Entries are visited in order, each as it is at that moment. So an entry that is not returned, because it was
        deleted before the request came to it, shows that a later one is returned.
        """
        return None

    def known_log_start(self, version: int) -> int | None:  # noqa: ARG002 - nothing is known
        """Return the log start after entry ``version`` was stored, if the create returned it; None: unknown.

        Known for the latest entry that this process created. A log start that was read before is not sufficient: the
        log may have been truncated in between, and the version deleted.
        """
        return None

    def supports_truncation(self) -> bool:
        """Return whether the backend has the compare-and-set that a log start needs; False: its logs are kept whole.

        Takes some requests if it has to be tested.
        """
        return True

    @abstractmethod
    def advance_log_start(self, expected: int, to: int) -> bool:
        """Raise the log start durably if it is the expected one; False if it is another.

        Raises:
            UsageError: ``to`` is not above ``expected``.
            UnsafeStoreError: the backend has no compare-and-set, so its logs are kept whole.
            StorageError: no clear answer. The log start may be raised, or may yet be.
        """

    @abstractmethod
    def remove(self, versions: Iterable[int]) -> None:
        """Delete entries; versions that do not exist are skipped.

        Requires versions up to a log start that this process has raised or read; the backend does not check it.
        """

    def foreign(self) -> Iterator[str]:
        """Return the names of objects beside the entries that are no entries and are never read. For verification."""
        return iter(())


class LogLocation(Protocol):
    """The logs of an instance: one for each table, and the catalog's."""

    def open(self, prefix: str) -> LogBackend:
        """Return the log with that prefix (``catalog``, ``tables/<id>``); it need not exist yet."""

    def prefixes(self) -> Iterator[str]:
        """Return the prefixes of all logs of the instance, in any order. For garbage collection; may be slow."""

    def check(self) -> None:
        """Raise UnsafeStoreError if logs are not safe here, StorageError if it cannot be reached or written."""


class OpenLogs(Protocol):
    """Opens the logs of an instance at a URL. A package declares one as an entry point for the scheme of its URLs.

    In its pyproject.toml::

        [project.entry-points."lakebed.log_backends"]
        etcd = "my_package.logs:open_logs"

    Nothing is read or written yet. The URL is stored, and has no password: secrets come from the storage options or
    the environment. Raises UsageError for a URL that means no location.
    """

    def __call__(self, url: str, instance: str, storage_options: Mapping[str, str]) -> LogLocation:
        """Return the logs of the instance of that id; a location may hold those of other instances."""


def look_around(log: LogBackend, version: int) -> Around:
    """Return what is around an entry, of a backend that only shows single entries: two requests."""
    there = [number for number in (version, version + 2) if number and log.last_modified(number) is not None]
    return Around("" if version and version not in there else None, version + 2 if version + 2 in there else 0)


def check_creates(open_log: Callable[[str], LogBackend], url: str, cause: str) -> None:
    """Create an entry, create it again with other bytes, and read it: in a log of a fresh name, which is deleted.

    Raises UnsafeStoreError, which gives the likely ``cause``, if two racing entries would both be stored; StorageError.
    """
    log, what = open_log(f"{PROBE}/{clock.random_token()}"), f"a probe of {url}"
    try:
        # EXISTS with our own bytes: an earlier unclear put of ours. No other process knows the name.
        put_until_clear(lambda: log.create(1, b"first"), what)
        second = put_until_clear(lambda: log.create(1, b"second"), what)
        if second is not PutOutcome.EXISTS or log.get(1) != b"first":
            raise Code.CREATE_NOT_EXCLUSIVE(
                f"{url} is not safe for commits: an entry was created twice, or changed; {cause}",
                url=url,
                transient=False,
            )
    finally:
        # A user without the right to delete leaves one short entry, which no log reads.
        with suppress(StorageError):
            log.remove([1])
