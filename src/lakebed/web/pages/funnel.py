"""What a read did, as a funnel: how many partitions, files, pages and rows were left after each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

from lakebed.read.explain import Explanation, Step

WIDTH = 600


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A bar, in the middle of :data:`WIDTH`. ``left_out`` were left out to get here; None if that says nothing."""

    name: str
    unit: str
    count: int
    left_out: int | None
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Funnel:
    """The bars from top to bottom, as wide as the logarithms of their counts, and the times of the steps."""

    version: int
    bars: tuple[FunnelStep, ...]
    engine: str
    size_bytes: int
    rows_merged: int
    merge: str
    seconds: float
    steps: tuple[Step, ...]


def funnel_of(found: Explanation, partitions: int) -> Funnel:
    """The funnel of a read in a table of so many partitions."""
    by_bounds = found.files_considered - found.files_out_by_bounds
    counts: list[tuple[str, str, int, int | None]] = [
        ("Partitions of the table", "partitions", partitions, None),
        ("with these keys", "partitions", found.partitions, partitions - found.partitions),
        ("Files of these partitions", "files", found.files_considered, None),
        ("by the bounds of their keys", "files", by_bounds, found.files_out_by_bounds),
        ("by their filters", "files", by_bounds - found.files_out_by_filter, found.files_out_by_filter),
        ("Pages read", "pages", found.pages, None),
        ("Rows returned", "rows", found.rows, None),
    ]
    most = max(1.0, *(log1p(count) for _, _, count, _ in counts))
    bars = []
    for name, unit, count, left_out in counts:
        width = round(max(2.0, log1p(count) / most * WIDTH) if count else 0, 1)
        bars.append(FunnelStep(name, unit, count, left_out, round((WIDTH - width) / 2, 1), width))
    return Funnel(
        version=found.version,
        bars=tuple(bars),
        engine="DataFusion" if found.engine else "pages",
        size_bytes=found.size_bytes,
        rows_merged=found.rows_merged,
        merge=found.merge,
        seconds=found.seconds,
        steps=found.steps,
    )
