"""A guard over keys that were read: a write based on a read is refused if the keys were written since. Pure.

A delete by a predicate finds keys at one version, and its files are committed at a later one. They would hide rows of
those keys that were added in between and that the predicate never evaluated. So its proposal has a guard, and is
rejected if the table has a file with such rows at the commit; the writer then reads again.

Core types: :class:`KeyGuard`, made by :class:`KeyGuards` from keys.

Rules. A guard may refuse needlessly: it compares files by their key bounds, and many keys by the spans of neighbouring
keys. The output of a compaction of older files alone is not a new file. A file brought back by a restore is. A restore
may also uncover older rows of a key by removing later ones: a file that is gone and has no successor breaks the guard.

Source: docs/decisions/0053.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.model.key_type import KEY_BYTES_MAX
from lakebed.model.state.fields import Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """Collects encoded keys, in any order and in bounded memory."""

    def __init__(self, spans_max: int = SPANS_MAX) -> None:
        self._spans_max = spans_max
        self._spans: list[_Span] = []
        self._new: list[bytes] = []
        self._step = 1

    def add(self, keys: Sequence[bytes]) -> None:
        """Add keys."""
        self._new.extend(keys)
        if len(self._new) > 4 * self._spans_max:
            self._settle()

    def add_all(self) -> None:
        """Add every key that there may be."""
        self._spans, self._new = [(b"", _LAST_KEY, 1)], []

    def _settle(self) -> None:
        """Put the new keys into spans. Too many spans are joined with their neighbours, to equal numbers of keys."""
        spans = _joined(sorted([*self._spans, *((key, key, 1) for key in self._new)]), 0)
        while len(spans) > self._spans_max:
            self._step *= 2
            spans = _joined(spans, self._step)
        self._spans, self._new = spans, []

    def guard(self, state: TableState) -> KeyGuard:
        """Return the guard of the keys, which were read in this state."""
        self._settle()
        lows, highs = tuple(low for low, _, _ in self._spans), tuple(high for _, high, _ in self._spans)
        files = frozenset(file.id for file in reaching(lows, highs, state))
        return KeyGuard(state.version, state.next_sequence, lows, highs, files)


_Span = tuple[bytes, bytes, int]
"""The first and the last key, and the number of keys that were added."""

_LAST_KEY = b"\xff" * (KEY_BYTES_MAX + 1)


def _joined(spans: Iterable[_Span], count: int) -> list[_Span]:
    """Return ascending spans, joined where they overlap, or have at most ``count`` keys together."""
    joined: list[_Span] = []
    for low, high, keys in spans:
        if joined and (low <= joined[-1][1] or joined[-1][2] + keys <= count):
            first, last, others = joined[-1]
            joined[-1] = (first, max(last, high), others + keys)
        else:
            joined.append((low, high, keys))
    return joined


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
