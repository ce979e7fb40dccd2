"""What the actors of the model ask for, and how a commit can end.

An actor is a generator that yields one call and is sent the answer. Each yield is a scheduling point: between two of
them an actor runs alone, as a process does between two requests to the store.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .state import Entry, TableState, Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """Get entry `number` from the store. Answer: the entry, or None."""

    number: int


@dataclass(frozen=True, slots=True)
class Put:
    """Put an entry at a number if none is there. Answer: a `PutAnswer`, which faults may blur."""

    number: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Take:
    """Wait for transactions and take all that wait. Answer: a tuple of `Offer`."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Offer a transaction to the committer of the process and wait. Answer: an `Outcome`."""

    transaction: Transaction
    planned_on: TableState


@dataclass(frozen=True, slots=True)
class Look:
    """Ask for a state to plan on. Answer: the view of any process, so it may be old, or newer than one's own."""


@dataclass(frozen=True, slots=True)
class Choose:
    """Leave a decision to the schedule. Answer: a number below `options`."""

    options: int


Call = Read | Put | Take | Commit | Look | Choose
PutAnswer = Literal["created", "exists", "unclear"]
Steps = Generator[Call, Any, T]  # the answers differ by call, see there


@dataclass(frozen=True, slots=True)
class Committed:
    """In the log, in the entry of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """Not valid on a state that the log has had since the offer."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """Every attempt lost its race. The transaction is not in the log and never will be."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A put of ours may still be under way. The transaction may be in the log, or come to be."""


Outcome = Committed | Rejected | NotCommitted | Unknown


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A transaction that waits for its outcome. `base` is the head of the log when it was offered."""

    id: str
    transaction: Transaction
    planned_on: TableState
    base: int
