"""Summaries: how the rows of one sorted file lie along its keys, exactly, at up to a thousand places.

A sorted file needs no streaming sketch: while it is written, keys at even ranks are noted together with their exact
*lower rank*, the number of rows with a smaller key. Between two noted keys a rank is interpolated, and is off by at
most the rows between them. Summaries of several files merge by weight, which is what a split point is found from:
the error of a merged rank is at most the sum of rows / (samples - 1) over the files (a quantile sketch's promise,
without its randomness). A summary also holds the rank of each leaf boundary known to the writer, which makes the
row counts of new references exact.

Pure: no I/O. A summary is stored beside its file as Arrow IPC (docs/format.md).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES_MAX = 1025
"""1,024 even steps: a rank is then known to within 0.1% of the file's rows."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Noted keys of one sorted file in ascending order, the exact lower rank of each, and the file's rows.

    ``max_key`` is the file's greatest key: above it every rank is ``rows``.
    """

    keys: tuple[bytes, ...]
    ranks: tuple[int, ...]
    rows: int
    max_key: bytes

    def rank(self, key: bytes) -> tuple[int, bool]:
        """How many rows have a smaller key, and whether that is exact."""
        if key > self.max_key:
            return self.rows, True
        position = bisect_left(self.keys, key)
        if position < len(self.keys) and self.keys[position] == key:
            return self.ranks[position], True
        low = self.ranks[position - 1] if position else 0
        high = self.ranks[position] if position < len(self.ranks) else self.rows
        # Nothing lies below the first noted key, which is the least of the file: exact as well. Between two, upwards:
        # the lower one is a row itself, as a rule.
        return (low + high + 1) // 2, low == high or position == 0

    def to_ipc(self) -> bytes:
        """The stored form: Arrow IPC file, columns ``key`` (binary) and ``rank`` (int64), rows in the metadata."""
        import pyarrow as pa

        schema = pa.schema(
            [("key", pa.binary()), ("rank", pa.int64())],
            metadata={"lakebed.rows": str(self.rows), "lakebed.max_key": self.max_key.hex()},
        )
        table = pa.table([pa.array(self.keys, pa.binary()), pa.array(self.ranks, pa.int64())], schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    @classmethod
    def from_ipc(cls, data: bytes, name: str) -> Summary:
        """Read the stored form. Raises DamagedError naming the object if it is none, or its ranks do not ascend."""
        import pyarrow as pa

        try:
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
            metadata = table.schema.metadata or {}
            found = cls(
                tuple(table.column("key").to_pylist()),
                tuple(table.column("rank").to_pylist()),
                int(metadata[b"lakebed.rows"]),
                bytes.fromhex(metadata[b"lakebed.max_key"].decode()),
            )
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise DamagedError(f"{name} is not a summary; delete it to have it made again", name=name) from error
        steps = zip(found.ranks, (*found.ranks[1:], found.rows), strict=True)
        if any(a > b for a, b in steps) or list(found.keys) != sorted(set(found.keys)):
            raise DamagedError(f"{name}: keys and ranks do not ascend; delete it to have it made again", name=name)
        return found


def shares(summary: Summary, boundaries: Sequence[bytes]) -> list[tuple[int, bool]]:
    """Rows of the file in each interval that the ascending boundaries cut, and whether each count is exact.

    One more interval than boundaries; the counts sum to the file's rows.
    """
    ranks = [(0, True), *(summary.rank(boundary) for boundary in boundaries), (summary.rows, True)]
    return [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]


def merged_rank(summaries: Sequence[Summary], key: bytes) -> int:
    """Rows with a smaller key over all the files, as near as their summaries tell."""
    return sum(summary.rank(key)[0] for summary in summaries)


def candidates(summaries: Sequence[Summary], low: bytes, high: bytes | None) -> list[bytes]:
    """Noted keys in ``(low, high)``, ascending, each once, without the least key present.

    A cut at the least key would leave nothing below it.
    """
    noted = sorted({key for s in summaries for key in s.keys if key > low and (high is None or key < high)})
    first = min((s.keys[bisect_left(s.keys, low)] for s in summaries if s.keys and s.keys[-1] >= low), default=b"")
    return [key for key in noted if key > first]


def even_cuts(summaries: Sequence[Summary], count: int, low: bytes = b"", high: bytes | None = None) -> list[bytes]:
    """At most ``count - 1`` ascending keys that cut the rows in ``[low, high)`` into about equal parts."""
    noted = candidates(summaries, low, high)
    if count < 2 or not noted:
        return []
    base = merged_rank(summaries, low)
    total = (sum(s.rows for s in summaries) if high is None else merged_rank(summaries, high)) - base
    cuts: list[bytes] = []
    for part in range(1, count):
        wanted = base + total * part / count
        # Few of the noted keys are asked for their rank, which each costs a search in every summary.
        position = bisect_left(noted, wanted, key=lambda key: merged_rank(summaries, key))
        position = min(position, len(noted) - 1)
        if position:
            below, at = (merged_rank(summaries, noted[p]) for p in (position - 1, position))
            position -= wanted - below < at - wanted
        key = noted[position]
        if not cuts or key > cuts[-1]:
            cuts.append(key)
    return cuts


def error_rows(summaries: Sequence[Summary]) -> int:
    """The most that a merged rank can be off, in rows."""
    steps = 0
    for summary in summaries:
        ends = (*summary.ranks[1:], summary.rows)
        steps += max((b - a for a, b in zip(summary.ranks, ends, strict=True)), default=0)
    return steps
