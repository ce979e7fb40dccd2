"""Plans of :mod:`lakebed.testing.faults`: which calls to a store fail, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Literal, get_args

import xxhash

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
    """A way to fail; see the table in :mod:`lakebed.testing.faults`."""

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
    """When a fault fires: on which operation, which names (a shell pattern), and which of the matching calls."""

    fault: Fault
    operation: Operation | Literal["*"] = "*"
    name: str = "*"
    calls: Collection[int] | None = None
    """Counted from 1 over the calls that match; None: any of them."""
    probability: float = 1.0
    later_calls: int = 1
    """LATE only: how many calls of any kind pass before it takes effect."""

    def matches(self, operation: Operation, name: str) -> bool:
        """Whether the rule counts a call."""
        return (
            self.operation in ("*", operation) and operation in _FIRES_ON[self.fault] and fnmatchcase(name, self.name)
        )


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Rules in order of precedence, and the seed of their probabilities."""

    rules: Sequence[Rule]
    seed: int = 0

    def fires(self, index: int, call: int) -> bool:
        """Whether rule ``index`` fires on its ``call``-th matching call."""
        rule = self.rules[index]
        if rule.calls is not None and call not in rule.calls:
            return False
        drawn = xxhash.xxh3_64_intdigest(f"{self.seed}/{index}/{call}".encode()) / 2**64
        return drawn < rule.probability
