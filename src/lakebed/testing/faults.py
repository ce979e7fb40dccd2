"""Stores that fail on purpose, a store that counts, and one between whose calls something else happens.

A :class:`FaultyStorage` wraps any store and makes calls fail according to a plan::

    plan = FaultPlan(
        [
            Rule(Fault.FAIL_AFTER, operation="create", name="*/log/*", calls={1}),
            Rule(Fault.FLIPPED, operation="get", probability=0.05),
        ],
        seed=7,
    )
    storage = FaultyStorage(connect("memory://t"), plan)

What each fault does to a call:

=============  ===================================================  ====================================================
fault          create, replace_if                                   any other operation
=============  ===================================================  ====================================================
FAIL_BEFORE    UNCLEAR, nothing stored                              transient StorageError, nothing done
FAIL_AFTER     UNCLEAR, stored: the answer was lost                 transient StorageError, done
LATE           UNCLEAR; takes effect just before a later call       replace, delete: the same, with a transient error
CONFLICT       UNCLEAR, nothing stored: a 409                       does not fire
FULL           StorageError, nothing stored                         replace, send: the same
SHORT          does not fire                                        get, fetch: the second half of the bytes is missing
FLIPPED        does not fire                                        get, fetch: one bit is wrong
=============  ===================================================  ====================================================

If several rules match a call, the first one that fires counts. Whether a rule with a probability fires is a function of
the seed, the rule and how often the rule has matched, so a seed gives the same run however threads interleave other
calls. :attr:`FaultyStorage.fired` counts the faults: a test should check that some have fired.

Damage to ``fetch`` is done to a copy before the digest is verified, so a fetch with a digest must raise.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

import xxhash

from lakebed.errors import Code, Error
from lakebed.storage.contract import Listed, Locality, PutOutcome, Storage, Stored, Version, Versioned
from lakebed.storage.digests import digest_file
from lakebed.storage.disk_cache import DiskCache
from lakebed.storage.disk_space import scratch_folder

__all__ = ["CountingStorage", "Fault", "FaultPlan", "FaultyStorage", "Meanwhile", "Operation", "Rule"]


Operation = Literal[
    "create",
    "replace",
    "replace_if",
    "get",
    "last_modified",
    "now",
    "send",
    "fetch",
    "delete",
    "list",
    "delete_temporaries",
]
"""A ``get_versioned`` is a ``get``."""

_OPERATIONS: frozenset[Operation] = frozenset(get_args(Operation))
_CONDITIONAL: frozenset[Operation] = frozenset({"create", "replace_if"})


class Fault(Enum):
    """A way to fail; see the table above."""

    FAIL_BEFORE = "fail_before"
    FAIL_AFTER = "fail_after"
    LATE = "late"
    CONFLICT = "conflict"
    FULL = "full"
    SHORT = "short"
    FLIPPED = "flipped"


_FIRES_ON: dict[Fault, frozenset[Operation]] = {
    Fault.FAIL_BEFORE: _OPERATIONS,
    Fault.FAIL_AFTER: _CONDITIONAL | {"replace", "send", "delete"},
    Fault.LATE: _CONDITIONAL | {"replace", "delete"},
    Fault.CONFLICT: _CONDITIONAL,
    Fault.FULL: _CONDITIONAL | {"replace", "send"},
    Fault.SHORT: frozenset({"get", "fetch"}),
    Fault.FLIPPED: frozenset({"get", "fetch"}),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault and its trigger: the operation, the names (a shell pattern), and which of the matching calls."""

    fault: Fault
    operation: Operation | Literal["*"] = "*"
    name: str = "*"
    calls: Collection[int] | None = None
    """The matching calls that fail, counted from 1; None: all of them."""
    probability: float = 1.0
    later_calls: int = 1
    """LATE only: the number of calls of any kind before it takes effect."""

    def matches(self, operation: Operation, name: str) -> bool:
        """Return whether a call matches the rule."""
        return (
            self.operation in ("*", operation) and operation in _FIRES_ON[self.fault] and fnmatchcase(name, self.name)
        )


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Rules in order of precedence, and the seed of their probabilities."""

    rules: Sequence[Rule]
    seed: int = 0

    def fires(self, index: int, call: int) -> bool:
        """Return whether rule ``index`` fires on its ``call``-th matching call."""
        rule = self.rules[index]
        if rule.calls is not None and call not in rule.calls:
            return False
        drawn = xxhash.xxh3_64_intdigest(f"{self.seed}/{index}/{call}".encode()) / 2**64
        return drawn < rule.probability


@dataclass(slots=True)
class _Delayed:
    calls_left: int
    effect: Callable[[], object]


class FaultyStorage:
    """A store whose calls fail according to a plan."""

    def __init__(self, inner: Storage, plan: FaultPlan) -> None:
        self.inner = inner
        self.plan = plan
        self.fired: Counter[Fault] = Counter()
        self._matched: Counter[int] = Counter()
        self._delayed: list[_Delayed] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The inner store's root."""
        return self.inner.url

    @property
    def locality(self) -> Locality:
        """As the inner store."""
        return self.inner.locality

    @property
    def folder(self) -> Path | None:
        """As the inner store: files in place are read without a call."""
        return self.inner.folder

    @property
    def cache(self) -> DiskCache | None:
        """As the inner store: what is in it is read without a call."""
        return self.inner.cache

    def settle(self) -> None:
        """Apply all late effects now."""
        with self._lock:
            due, self._delayed = self._delayed, []
        for delayed in due:
            delayed.effect()

    def create(self, name: str, data: bytes) -> PutOutcome:
        """As the contract says, or by the plan."""
        return self._put("create", name, lambda: self.inner.create(name, data))

    def replace(self, name: str, data: bytes) -> None:
        """As the contract says, or by the plan."""
        self._change("replace", name, lambda: self.inner.replace(name, data))

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        """As the contract says, or by the plan."""
        return self._put("replace_if", name, lambda: self.inner.replace_if(name, version, data))

    def get(self, name: str) -> bytes | None:
        """As the contract says, or by the plan."""
        fault = self._next_read(name)
        data = self.inner.get(name)
        return data if data is None or fault is None else _damaged(data, fault)

    def get_versioned(self, name: str) -> Versioned | None:
        """As the contract says, or by the plan for ``get``."""
        fault = self._next_read(name)
        found = self.inner.get_versioned(name)
        return found if found is None or fault is None else Versioned(_damaged(found.data, fault), found.version)

    def read_ranges(self, name: str, byte_ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As the contract says, or by the plan for ``fetch``."""
        fault = self._next("fetch", name)
        if fault is Fault.FAIL_BEFORE:
            raise _lost("read", self.object_url(name))
        parts = self.inner.read_ranges(name, byte_ranges)
        return parts if fault is None else [_damaged(part, fault) for part in parts]

    def last_modified(self, name: str) -> datetime | None:
        """As the contract says, or by the plan."""
        if self._next("last_modified", name) is not None:
            raise _lost("stat", self.object_url(name))
        return self.inner.last_modified(name)

    def now(self) -> datetime:
        """As the contract says, or by the plan (the name to match is "")."""
        if self._next("now", "") is not None:
            raise _lost("read the clock of", self.url)
        return self.inner.now()

    def send(self, name: str, path: Path) -> Stored:
        """As the contract says, or by the plan."""
        fault = self._next("send", name)
        if fault is Fault.FULL:
            raise _full("send to", self.object_url(name))
        if fault is Fault.FAIL_BEFORE:
            raise _lost("send to", self.object_url(name))
        stored = self.inner.send(name, path)
        if fault is Fault.FAIL_AFTER:
            raise _lost("send to", self.object_url(name))
        return stored

    @contextmanager
    def fetch(self, name: str, *, digest: str | None = None) -> Iterator[Path]:
        """As the contract says, or by the plan."""
        fault = self._next("fetch", name)
        if fault is Fault.FAIL_BEFORE:
            raise _lost("fetch", self.object_url(name))
        if fault is None:
            with self.inner.fetch(name, digest=digest) as path:
                yield path
            return
        with self._damaged_copy(name, fault) as path:
            found = digest_file(path).digest
            if digest is not None and found != digest:
                raise Code.OBJECT_DAMAGED(
                    f"{self.object_url(name)} is damaged: its digest is {found}, {digest} was written",
                    name=name,
                    expected=digest,
                    found=found,
                )
            yield path

    def delete(self, names: Iterable[str]) -> None:
        """As the contract says, or by the plan, which is matched with the first name."""
        doomed = list(names)
        if doomed:
            self._change("delete", doomed[0], lambda: self.inner.delete(doomed))

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the contract says, or by the plan (the name to match is the prefix)."""
        if self._next("list", prefix) is not None:
            raise _lost("list", f"{self.url}/{prefix}")
        return self.inner.list(prefix, after)

    def temporaries(self, prefix: str) -> Iterator[Listed]:
        """As the contract says, or by the plan for ``list``."""
        if self._next("list", prefix) is not None:
            raise _lost("list", f"{self.url}/{prefix}")
        return self.inner.temporaries(prefix)

    def delete_temporaries(self, prefix: str, before: datetime) -> int:
        """As the contract says, or by the plan (the name to match is the prefix)."""
        if self._next("delete_temporaries", prefix) is not None:
            raise _lost("sweep", f"{self.url}/{prefix}")
        return self.inner.delete_temporaries(prefix, before)

    def object_url(self, name: str) -> str:
        """Return the URL of the inner store."""
        return self.inner.object_url(name)

    def _next_read(self, name: str) -> Fault | None:
        fault = self._next("get", name)
        if fault is Fault.FAIL_BEFORE:
            raise _lost("read", self.object_url(name))
        return fault

    def _put(self, operation: Operation, name: str, put: Callable[[], PutOutcome]) -> PutOutcome:
        fault = self._next(operation, name)
        if fault is None:
            return put()
        if fault is Fault.FULL:
            raise _full(operation, self.object_url(name))
        if fault is Fault.FAIL_AFTER:
            put()
        elif fault is Fault.LATE:
            self._delay(operation, name, put)
        return PutOutcome.UNCLEAR

    def _change(self, operation: Literal["replace", "delete"], name: str, effect: Callable[[], object]) -> None:
        fault = self._next(operation, name)
        if fault is Fault.FULL:
            raise _full(operation, self.object_url(name))
        if fault is Fault.LATE:
            self._delay(operation, name, effect)
        elif fault is not Fault.FAIL_BEFORE:
            effect()
        if fault is not None:
            raise _lost(operation, self.object_url(name))

    def _next(self, operation: Operation, name: str) -> Fault | None:
        """Count the call, apply late effects that are due, and return the fault that fires."""
        with self._lock:
            for delayed in self._delayed:
                delayed.calls_left -= 1
            due = [delayed for delayed in self._delayed if delayed.calls_left < 0]
            self._delayed = [delayed for delayed in self._delayed if delayed.calls_left >= 0]
        for delayed in due:
            delayed.effect()
        with self._lock:
            chosen: Fault | None = None
            for index, rule in enumerate(self.plan.rules):
                if not rule.matches(operation, name):
                    continue
                self._matched[index] += 1
                if chosen is None and self.plan.fires(index, self._matched[index]):
                    chosen = rule.fault
            if chosen is not None:
                self.fired[chosen] += 1
            return chosen

    def _delay(self, operation: Operation, name: str, effect: Callable[[], object]) -> None:
        """Delay an effect: the count falls with each later call, and the effect precedes the call that finds 0."""
        rules = (rule for rule in self.plan.rules if rule.fault is Fault.LATE and rule.matches(operation, name))
        with self._lock:
            self._delayed.append(_Delayed(next(rules).later_calls - 1, effect))

    @contextmanager
    def _damaged_copy(self, name: str, fault: Fault) -> Iterator[Path]:
        with self.inner.fetch(name) as path, scratch_folder("damaged") as folder:
            copy = folder / path.name
            copy.write_bytes(_damaged(path.read_bytes(), fault))
            yield copy


class CountingStorage(FaultyStorage):
    """A store that counts the calls made to it, and fails none: ``storage.calls["get"]``, ``storage.names["get"]``.

    A ``get_versioned`` counts as a ``get``, and ``delete`` once a name.
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, FaultPlan(()))
        self.names: dict[Operation, list[str]] = {}

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each operation."""
        return Counter({operation: len(names) for operation, names in self.names.items()})

    def clear(self) -> None:
        """Reset all counts to zero."""
        with self._lock:
            self.names = {}

    def delete(self, names: Iterable[str]) -> None:
        """As the contract says."""
        doomed = list(names)
        for name in doomed:
            self._next("delete", name)
        self.inner.delete(doomed)

    def _next(self, operation: Operation, name: str) -> Fault | None:
        self._count(operation, name)
        return None

    def _count(self, operation: Operation, name: str) -> None:
        """Count a call before it is made; tests override this to inject other events."""
        with self._lock:
            self.names.setdefault(operation, []).append(name)


class Meanwhile(CountingStorage):
    """A store before whose matching calls something else happens, such as the commit of another process.

    ``happening`` is called once, before the ``call``-th call of ``operation`` whose name matches the shell pattern
    ``name``; with ``again``, before each later one as well. It may block, to hold the call up, or raise in its place.
    Its own calls to a store must go past this one.
    """

    def __init__(  # noqa: PLR0913 - which calls, and what happens
        self,
        inner: Storage,
        operation: Operation,
        name: str,
        happening: Callable[[], object],
        call: int = 1,
        *,
        again: bool = False,
    ) -> None:
        super().__init__(inner)
        self._operation, self._pattern, self._happening = operation, name, happening
        self._calls_left, self._again = call, again

    @property
    def happened(self) -> bool:
        """Whether such a call was made."""
        return self._calls_left <= 0

    def _count(self, operation: Operation, name: str) -> None:
        super()._count(operation, name)
        if operation != self._operation or not fnmatchcase(name, self._pattern):
            return
        with self._lock:
            self._calls_left -= 1
            happens = self._calls_left == 0 or (self._again and self._calls_left < 0)
        if happens:
            self._happening()


def _damaged(data: bytes, fault: Fault) -> bytes:
    if fault is Fault.SHORT:
        return data[: len(data) // 2]
    if not data:
        return data
    # The position depends on the bytes alone, so that a damaged object is damaged alike on each read.
    bit = xxhash.xxh3_64_intdigest(data) % (8 * len(data))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


def _lost(action: str, url: str) -> Error:
    return Code.STORE_UNAVAILABLE(f"cannot {action} {url}: no answer (an injected fault)", url=url, transient=True)


def _full(action: str, url: str) -> Error:
    return Code.STORE_FULL(f"cannot {action} {url}: the disk is full (an injected fault)", url=url, transient=False)
