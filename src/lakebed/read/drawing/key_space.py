"""The key space of a table as a drawing: each partition has a share of the width; many neighbours are drawn as one.

:class:`KeySpace` has the figures of all partitions as arrays, in key order. :func:`layout` lays out a part of it as an
icicle: the whole part, below it a row of a few groups, and below them a row of single partitions, or of at most
:data:`CELLS_MAX` groups of neighbours. Positions are those of :class:`~lakebed.model.partitions.Partitions`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lakebed.model.partitions import Partitions
from lakebed.model.state.sums import newest_files, partition_sums

if TYPE_CHECKING:
    from lakebed.model.keys import EncodedRange
    from lakebed.model.state.table_state import TableState

Share = Literal["rows", "bytes", "partitions"]

Colour = Literal["files", "bytes", "age"]

WIDTH = 1000
"""Width of the drawing; cells are drawn in these units."""

GROUPS_MAX = 16

CELLS_MAX = 240

COLOURS = 6

MANY_FILES = 8
"""The strongest colour is for at least this many files in a partition."""

LEAST_SHARE = 0.1
"""A partition without rows is drawn with this share of the average width."""


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The figures of every partition, in key order. ``newest_us`` is the time of its newest file; 0 without files."""

    version: int
    partitions: Partitions
    rows: Any
    size_bytes: Any
    files: Any
    runs: Any
    newest_us: Any

    @classmethod
    def of(cls, state: TableState) -> KeySpace:
        """Return the key space of a state. Linear in the partitions."""
        sums, newest = partition_sums(state), newest_files(state)
        ids = state.partitions.ids
        table = np.zeros((len(ids), 5), np.int64)
        for index, partition in enumerate(ids):
            one = sums.get(partition)
            if one is not None:
                table[index] = one.rows, one.size_bytes, one.files, one.runs, newest[partition]
        return cls(state.version, state.partitions, *np.ascontiguousarray(table.T))

    @classmethod
    def of_rows(cls, version: int, rows: Any) -> KeySpace:
        """Return the key space of the Arrow table that :meth:`lakebed.Table.partitions` returns. Its boundaries are
        numbers instead of keys, which a drawing does not show, and it has no times.
        """
        numbers = tuple(n.to_bytes(8, "big") for n in range(1, max(1, len(rows))))
        counts, size_bytes, files, runs = (rows.column(name).to_numpy() for name in ("rows", "bytes", "files", "runs"))
        return cls(version, Partitions.at(numbers), counts, size_bytes, files, runs, np.zeros(len(rows), np.int64))


@dataclass(frozen=True, slots=True)
class KeyCell:
    """Neighbouring partitions from position ``first`` up to ``last`` (exclusive), and their place in the drawing.

    ``files`` is the mean per partition. ``colour`` is a step from 0 (few, old) to 5 (many, new).
    """

    first: int
    last: int
    x: float
    width: float
    rows: int
    size_bytes: int
    files: float
    files_max: int
    newest_us: int
    colour: int

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Scale:
    """The values of the weakest and the strongest colour; ages as microseconds since 1970."""

    colour: Colour
    least: float
    most: float

    def step(self, value: float) -> int:
        """Return the colour of a value."""
        if self.most <= self.least:
            return 1
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return min(COLOURS - 1, int(COLOURS * share))


@dataclass(frozen=True, slots=True)
class Icicle:
    """A part of the key space: itself, its groups (none if there are few partitions), and its cells."""

    whole: KeyCell
    groups: tuple[KeyCell, ...]
    cells: tuple[KeyCell, ...]
    scale: Scale


def part_of(space: KeySpace, keys: EncodedRange) -> range:
    """Return the positions of the partitions that overlap the range; never empty."""
    found = space.partitions.overlapping(keys)
    return found or range(min(space.partitions.position(keys.min), len(space.partitions) - 1))[-1:] or range(1)


def layout(space: KeySpace, part: range, share: Share, colour: Colour) -> Icicle:
    """Lay out the partitions at these positions."""
    edges = _edges_of(space, part, share)
    scale = _scale_of(space, part, colour)

    def drawn(first: int, last: int) -> KeyCell:
        return _cell(space, part, edges, scale, first, last)

    groups = _divided(edges, GROUPS_MAX) if len(part) > 2 * GROUPS_MAX else []
    cells = _divided(edges, CELLS_MAX)
    return Icicle(
        drawn(0, len(part)),
        tuple(drawn(first, last) for first, last in groups),
        tuple(drawn(first, last) for first, last in cells),
        scale,
    )


def _edges_of(space: KeySpace, part: range, share: Share) -> Any:
    """Return the edges of the partitions of the part, from 0 to :data:`WIDTH`."""
    if share == "partitions":
        weights = np.ones(len(part))
    else:
        weights = (space.rows if share == "rows" else space.size_bytes)[part.start : part.stop].astype(float)
        weights = weights + max(LEAST_SHARE * float(weights.mean()), 1e-9)
    edges = np.concatenate([[0.0], np.cumsum(weights)])
    return edges / edges[-1] * WIDTH


def _divided(edges: Any, parts: int) -> list[tuple[int, int]]:
    """Group neighbours into at most ``parts`` parts of about even width; each has a partition."""
    count = len(edges) - 1
    if count <= parts:
        return [(place, place + 1) for place in range(count)]
    middles = (edges[:-1] + edges[1:]) / 2
    numbers = np.minimum((middles / WIDTH * parts).astype(np.int64), parts - 1)
    begins = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    return list(zip(begins, [*begins[1:], count], strict=True))


def _scale_of(space: KeySpace, part: range, colour: Colour) -> Scale:
    inside = slice(part.start, part.stop)
    match colour:
        case "files":
            return Scale(colour, 0.0, float(max(MANY_FILES, space.files[inside].max())))
        case "bytes":
            return Scale(colour, 0.0, float(space.size_bytes[inside].max()))
        case "age":
            # Partitions without files have no age.
            times = space.newest_us[inside]
            times = times[times > 0] if times.any() else times
            return Scale(colour, float(times.min()), float(times.max()))


def _cell(space: KeySpace, part: range, edges: Any, scale: Scale, first: int, last: int) -> KeyCell:  # noqa: PLR0913, PLR0917
    inside = slice(part.start + first, part.start + last)
    files, size_bytes = space.files[inside], space.size_bytes[inside]
    newest = int(space.newest_us[inside].max())
    values = {"files": float(files.mean()), "bytes": float(size_bytes.mean()), "age": float(newest)}
    return KeyCell(
        first=inside.start,
        last=inside.stop,
        x=round(float(edges[first]), 3),
        width=round(float(edges[last] - edges[first]), 3),
        rows=int(space.rows[inside].sum()),
        size_bytes=int(size_bytes.sum()),
        files=round(float(files.mean()), 2),
        files_max=int(files.max()),
        newest_us=newest,
        colour=scale.step(values[scale.colour]),
    )
