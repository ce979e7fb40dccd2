"""The port of a source of changes, and what it gets from the follower.

A follower (:mod:`lakebed.upkeep.follow.run`) opens a source, has it read for a while, commits what it read, and
confirms it. A source adds changes to what is pending for its targets, and stops between two transactions.

Core types: :class:`ChangeSource`, which PostgreSQL and Kafka implement; :class:`Following`, the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.upkeep.follow.positions import Positions

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.upkeep.follow.target import ChangeTarget, SourceColumns


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """What is recorded of a source: the positions that were confirmed. ``anew``: all tables get new snapshots.

    ``targets`` are the names of the tables that it had, ``identities`` those of :class:`SourceProgress`.
    """

    confirmed: Positions
    anew: bool = False
    targets: frozenset[str] = frozenset()
    identities: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lag:
    """What a source has beyond the position of its follower, in ``unit``; the oldest of it ``seconds`` old."""

    behind: int
    unit: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A position in the terms of the source, and the lag.

    ``identities`` are ids of the parts of the source by their names: a topic that was made again has another.
    """

    place: Mapping[str, str]
    lag: Lag
    identities: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A change that cannot be applied to its target, with the reason; ``key`` and ``value`` are as they came."""

    target: str
    stream: int
    position: int
    reason: str
    key: bytes | None
    value: bytes | None


class Following(Protocol):
    """What a source asks of its follower."""

    targets: dict[str, ChangeTarget]
    snapshot: bool
    """Whether tables without a position get a snapshot; if not, they get the changes from now on."""

    def prepared(self, source: str) -> RecordedSource:
        """Return what is recorded of the source with this id. Call it first."""

    def target(self, name: str, columns: SourceColumns) -> ChangeTarget:
        """Return the table of that name, with its positions; creates it if there is none."""

    def existing(self, name: str) -> ChangeTarget | None:
        """Return the table of that name, with its positions, if there is one."""

    def load(
        self, target: ChangeTarget, positions: Positions, batches: Iterator[pa.RecordBatch], columns: pa.Schema
    ) -> None:
        """Put the rows of a snapshot into a table, in place of those that it has."""

    def record(self, positions: Positions) -> None:
        """Record that all targets have all changes up to these positions."""

    def reject(self, letter: DeadLetter) -> None:
        """Take a change that cannot be applied; it is committed to the dead letters with the others."""


class ChangeSource(Protocol):
    """A source of changes."""

    url: str
    id: str
    """What its commit ids name; known when it is open."""

    def open(self, following: Following) -> None:
        """Connect, take snapshots, and begin to receive changes behind the positions of the targets."""

    def read(self, deadline_s: float, full: Callable[[], bool]) -> bool:
        """Receive changes until that time of the monotonic clock, or until ``full``, to the end of a transaction.

        Returns whether more may be there already.
        """

    def positions(self) -> dict[int, int]:
        """Return the positions up to which changes were received."""

    def confirm(self, positions: dict[int, int]) -> None:
        """Let the source forget what comes before these positions, which is committed and recorded."""

    def beat(self) -> None:
        """Keep the connection alive."""

    def progress(self, positions: dict[int, int]) -> SourceProgress:
        """Return how far a follower is that has committed up to these positions."""

    def target_end(self) -> dict[int, int]:
        """Return the positions after the changes that are there now."""

    def close(self) -> None:
        """End the connections."""

    def forget(self) -> tuple[str, ...]:
        """Delete at the source what is kept there for its follower; returns what that was. It is not open."""


def shown_row(row: Mapping[str, Any]) -> bytes:
    """Return a row as JSON, for the dead letters."""
    from lakebed.model.documents import dump

    return dump(row)
