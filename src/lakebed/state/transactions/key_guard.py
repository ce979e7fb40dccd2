"""A guard over keys that were read: a write that follows from a read is refused if the keys were written since. Pure.

A delete by a predicate finds keys at one version, and its files arrive at a later one. They would hide rows of those
keys that arrived in between, which the predicate never saw. So its proposal carries a guard, and is rejected if a file
that may have such rows is in the table when it is committed; the writer then looks again.

Core types: :class:`KeyGuard`, made by :class:`KeyGuards` from keys in ascending order.

Rules. A guard errs on the side of refusal: files are judged by their key bounds, and very many keys by the spans of
neighbours. What a compaction wrote from older files alone is no new file. What a restore brought back is, and so are
older rows of a key whose later rows a restore took away: a file that is gone, and whose place no other has taken.

Source: docs/decisions/0053.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.state.fields import Whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.model.files import CommittedFile, DataFile
    from lakebed.state.table_state import TableState

SPANS_MAX = 16_384
"""Of more keys, neighbours share a span, so that a guard stays below some MB however many keys are deleted."""


@dataclass(frozen=True, slots=True)
class KeyGuard:
    """Keys that were read at ``version``: each lies in a span, from its first to its last key; spans ascend.

    ``sequence`` was the table's next sequence number, and ``files`` reached a span, at that version.
    """

    version: Whole
    sequence: Whole
    lows: tuple[bytes, ...]
    highs: tuple[bytes, ...]
    files: frozenset[str]

    def __post_init__(self) -> None:
        if len(self.lows) != len(self.highs):
            raise ValueError("a guard has as many lows as highs")

    def broken_by(self, state: TableState) -> str | None:
        """The id of a file that may have brought rows of the keys since, or uncovered some when it went; or None."""
        if state.version == self.version:
            return None
        made: list[CommittedFile] = []
        left = set(self.files)
        for file in reaching(self.lows, self.highs, state):
            known = state.files[file.id]
            arrived = known.sequence_hi >= self.sequence
            restored = known.added <= self.version and file.id not in self.files
            if arrived or restored:
                return file.id
            left.discard(file.id)
            if known.added > self.version:
                made.append(known)
        return next((name for name in sorted(left) if not _has_successor(state.files.get(name), made)), None)


def _has_successor(gone: CommittedFile | None, made: Sequence[CommittedFile]) -> bool:
    """Whether a compaction or a rewrite made one of these files of one that is gone."""
    return gone is not None and any(
        one.sequence_lo <= gone.sequence_lo and gone.sequence_hi <= one.sequence_hi for one in made
    )


class KeyGuards:
    """Collects ascending encoded keys, in bounded memory."""

    def __init__(self) -> None:
        self._lows: list[bytes] = []
        self._highs: list[bytes] = []
        self._step = 1
        self._in_last = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """More keys, none below those before."""
        for key in keys:
            if self._lows and self._in_last < self._step:
                self._highs[-1] = key
                self._in_last += 1
                continue
            if len(self._lows) >= SPANS_MAX:
                self._lows, self._highs = self._lows[::2], self._highs[1::2]
                self._step *= 2
            self._lows.append(key)
            self._highs.append(key)
            self._in_last = 1

    def guard(self, state: TableState) -> KeyGuard:
        """The guard of the keys, which were read in this state."""
        lows, highs = tuple(self._lows), tuple(self._highs)
        files = frozenset(file.id for file in reaching(lows, highs, state))
        return KeyGuard(state.version, state.next_sequence, lows, highs, files)


def reaching(lows: Sequence[bytes], highs: Sequence[bytes], state: TableState) -> Iterator[DataFile]:
    """The files whose bounds share a key with a span; one may come several times."""
    position, partitions = -1, state.partitions
    for low, high in zip(lows, highs, strict=True):
        for reached in range(max(position + 1, partitions.position(low)), partitions.position(high) + 1):
            position = reached
            for file in state.files_of(partitions.ids[reached]):
                first = bisect_left(highs, file.min_key)
                if first < len(lows) and lows[first] <= file.max_key:
                    yield file
