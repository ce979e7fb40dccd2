"""Where the bars of a funnel go: how many partitions, files, pages and rows were left after each step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

WIDTH = 600

Counted = tuple[str, str, int, int | None]
"""The name of a step, the unit of its count, the count, and how many were left out to get there."""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A bar, in the middle of :data:`WIDTH`. ``left_out`` were left out to get here; None if that says nothing."""

    name: str
    unit: str
    count: int
    left_out: int | None
    x: float
    width: float


def bars_of(counts: Sequence[Counted]) -> tuple[FunnelStep, ...]:
    """The bars from top to bottom, as wide as the logarithms of their counts."""
    most = max(1.0, *(log1p(count) for _, _, count, _ in counts))
    bars = []
    for name, unit, count, left_out in counts:
        width = round(max(2.0, log1p(count) / most * WIDTH) if count else 0, 1)
        bars.append(FunnelStep(name, unit, count, left_out, round((WIDTH - width) / 2, 1), width))
    return tuple(bars)
