"""What a read did, as a funnel: how many partitions, files, pages and rows were left after each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.drawing.funnel import FunnelStep, bars_of
from lakebed.read.explain import Explanation, Step


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
    return Funnel(
        version=found.version,
        bars=bars_of(found.counts(partitions)),
        engine="DataFusion" if found.engine else "pages",
        size_bytes=found.size_bytes,
        rows_merged=found.rows_merged,
        merge=found.merge,
        seconds=found.seconds,
        steps=found.steps,
    )
