"""A guard over keys that were read: a write based on a read is refused if the keys were written since. Pure.

A delete by a predicate finds keys at one version, and its files are committed at a later one. They would hide rows of
those keys that were added in between and that the predicate never evaluated. So its proposal has a guard, and is
rejected if the table has a file with such rows at the commit; the writer then reads again.

Core types: :class:`KeyGuard`, made by :class:`KeyGuards` from keys in ascending order.

Rules. A guard may refuse needlessly: it compares files by their key bounds, and many keys by the spans of neighbouring
keys. The output of a compaction of older files alone is not a new file. A file brought back by a restore is. A restore
may also uncover older rows of a key by removing later ones: a file that is gone and has no successor breaks the guard.

Source: docs/decisions/0053.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.model.state.fields import Whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.model.files import CommittedFile, DataFile
    from lakebed.model.state.table_state import TableState

SPANS_MAX = 16_384
"""Maximum number of spans. Beyond it, neighbouring keys share a span, so the size of a guard stays below some MB."""


class KeyGuard(Struct, frozen=True):
    """Keys that were read at ``version``: each lies in a span from its first to its last key; spans ascend.

    ``sequence`` was the table's next sequence number at that version, and ``files`` are those that reached a span.
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
        """Return the id of a file that may have added or, when removed, uncovered rows of the keys; or None."""
        if state.version == self.version:
            return None
        newer: list[CommittedFile] = []
        unseen = set(self.files)
        for file in reaching(self.lows, self.highs, state):
            known = state.files[file.id]
            arrived = known.sequence_hi >= self.sequence
            restored = known.added <= self.version and file.id not in self.files
            if arrived or restored:
                return file.id
            unseen.discard(file.id)
            if known.added > self.version:
                newer.append(known)
        return next((name for name in sorted(unseen) if not _has_successor(state.files.get(name), newer)), None)


def _has_successor(earlier: CommittedFile | None, files: Sequence[CommittedFile]) -> bool:
    """Return whether a compaction or rewrite made one of these files from an earlier one."""
    return earlier is not None and any(
        one.sequence_lo <= earlier.sequence_lo and earlier.sequence_hi <= one.sequence_hi for one in files
    )


class KeyGuards:
    """Collects ascending encoded keys, in bounded memory."""

    def __init__(self, spans_max: int = SPANS_MAX) -> None:
        self._spans_max = spans_max
        self._lows: list[bytes] = []
        self._highs: list[bytes] = []
        self._step = 1
        self._in_last = 0

    def add(self, keys: Sequence[bytes]) -> None:
        """Add keys, none below earlier ones."""
        for key in keys:
            if self._lows and self._in_last < self._step:
                self._highs[-1] = key
                self._in_last += 1
                continue
            if len(self._lows) >= self._spans_max:
                self._lows, self._highs = self._lows[::2], self._highs[1::2]
                self._step *= 2
            self._lows.append(key)
            self._highs.append(key)
            self._in_last = 1

    def guard(self, state: TableState) -> KeyGuard:
        """Return the guard of the keys, which were read in this state."""
        lows, highs = tuple(self._lows), tuple(self._highs)
        files = frozenset(file.id for file in reaching(lows, highs, state))
        return KeyGuard(state.version, state.next_sequence, lows, highs, files)


def reaching(lows: Sequence[bytes], highs: Sequence[bytes], state: TableState) -> Iterator[DataFile]:
    """Return the files whose bounds share a key with a span; a file may occur several times."""
    position, partitions = -1, state.partitions
    for low, high in zip(lows, highs, strict=True):
        for reached in range(max(position + 1, partitions.position(low)), partitions.position(high) + 1):
            position = reached
            for file in state.files_of(partitions.ids[reached]):
                first = bisect_left(highs, file.min_key)
                if first < len(lows) and lows[first] <= file.max_key:
                    yield file
