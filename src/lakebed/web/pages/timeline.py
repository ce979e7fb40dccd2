"""Pieces of work on a line of time, in lanes so that none covers another. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH = 1000

LANE = 14
"""The height of a lane."""

LANES_MAX = 40

LEAST_WIDTH = 2.0

TICKS = 5


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """Work from ``begin`` to ``end`` (None: it goes on), with its outcome, and the address of its page."""

    name: str
    begin: datetime
    end: datetime | None
    outcome: str
    link: str


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A span where it is drawn. ``seconds`` is how long it took, or has taken."""

    span: WorkSpan
    x: float
    y: int
    width: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The bars from ``begin`` to ``end``. ``hidden`` spans had no room in :data:`LANES_MAX` lanes."""

    begin: datetime
    end: datetime
    height: int
    bars: tuple[TimelineBar, ...]
    ticks: tuple[datetime, ...]
    hidden: int


def timeline(spans: Iterable[WorkSpan], begin: datetime, now: datetime) -> Timeline:
    """Draw what overlaps the time from ``begin`` to ``now``; each span in the first lane that is free there."""
    total_s = max(1.0, (now - begin).total_seconds())
    shown = sorted((one for one in spans if (one.end or now) >= begin and one.begin <= now), key=lambda one: one.begin)
    free: list[float] = []
    bars = []
    for one in shown:
        left = max(0.0, (one.begin - begin).total_seconds() / total_s * WIDTH)
        right = min(float(WIDTH), ((one.end or now) - begin).total_seconds() / total_s * WIDTH)
        # A bar of a moment is drawn as wide as can be seen, and inside the picture.
        left = min(left, WIDTH - LEAST_WIDTH)
        right = max(right, left + LEAST_WIDTH)
        lane = next((number for number, end in enumerate(free) if end <= left), len(free))
        if lane == LANES_MAX:
            continue
        free[lane:] = [right + 1, *free[lane + 1 :]]
        seconds = ((one.end or now) - one.begin).total_seconds()
        bars.append(TimelineBar(one, round(left, 2), lane * LANE, round(right - left, 2), seconds))
    ticks = tuple(begin + timedelta(seconds=total_s * number / TICKS) for number in range(TICKS))
    return Timeline(begin, now, max(1, len(free)) * LANE, tuple(bars), ticks, len(shown) - len(bars))
