"""Computes the positions of marks in small charts and timelines, in SVG units. Pure.

A chart is a value with marks that a template draws: :func:`bars` of equal periods, a stepped :func:`line`, and a
:func:`timeline` of spans. Each span of a timeline takes the first lane that is free at its begin, so there are as many
lanes as spans that overlap. A mark is never narrower or lower than can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WIDTH, HEIGHT = 600, 72

TIMELINE_WIDTH = 1000
LANE = 14
"""The height of a lane of a timeline."""
LANES_MAX = 40
LEAST_WIDTH = 2.0
TICKS = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from the bottom up, and its value."""

    x: float
    y: float
    width: float
    height: float
    value: float
    begin: datetime


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars of equal periods. ``top`` is the value at the upper edge; 0 if nothing happened."""

    name: str
    unit: str
    top: float
    total: float
    begin: datetime
    end: datetime
    bars: tuple[Bar, ...]


def bars(name: str, unit: str, values: Sequence[float], begin_s: int, period_s: int) -> BarChart:
    """Return a bar for each value that is not 0, at least a unit high."""
    top = max(values, default=0)
    step = WIDTH / max(1, len(values))
    marks = []
    for index, one in enumerate(values):
        if one > 0:
            height = max(1.5, one / top * HEIGHT)
            begin = datetime.fromtimestamp(begin_s + index * period_s, UTC)
            x, y = round(index * step, 2), round(HEIGHT - height, 2)
            marks.append(Bar(x, y, round(step - 1, 2), round(height, 2), one, begin))
    begin = datetime.fromtimestamp(begin_s, UTC)
    end = datetime.fromtimestamp(begin_s + period_s * len(values), UTC)
    return BarChart(name, unit, top, sum(values), begin, end, tuple(marks))


@dataclass(frozen=True, slots=True)
class LineChart:
    """A stepped line: each value holds until the next one. ``path`` and ``area`` are SVG path data."""

    name: str
    unit: str
    top: float
    first: float
    last: float
    begin: datetime
    end: datetime
    path: str
    area: str


def line(name: str, unit: str, points: Sequence[tuple[datetime, float]]) -> LineChart | None:
    """Return a line through points in the order of time, over their time; None for fewer than two."""
    if len(points) < 2 or points[0][0] >= points[-1][0]:
        return None
    begin, end = points[0][0], points[-1][0]
    span = (end - begin).total_seconds()
    top = max(one for _, one in points)
    parts: list[str] = []
    for moment, one in points:
        x = round((moment - begin).total_seconds() / span * WIDTH, 1)
        y = round(HEIGHT - (one / top if top else 0) * (HEIGHT - 2), 1)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    path = "".join(parts)
    return LineChart(name, unit, top, points[0][1], points[-1][1], begin, end, path, f"{path}V{HEIGHT}H0Z")


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
        left = max(0.0, (one.begin - begin).total_seconds() / total_s * TIMELINE_WIDTH)
        right = min(float(TIMELINE_WIDTH), ((one.end or now) - begin).total_seconds() / total_s * TIMELINE_WIDTH)
        # A bar of a moment is drawn as wide as can be seen, and inside the picture.
        left = min(left, TIMELINE_WIDTH - LEAST_WIDTH)
        right = max(right, left + LEAST_WIDTH)
        lane = next((number for number, end in enumerate(free) if end <= left), len(free))
        if lane == LANES_MAX:
            continue
        free[lane:] = [right + 1, *free[lane + 1 :]]
        seconds = ((one.end or now) - one.begin).total_seconds()
        bars.append(TimelineBar(one, round(left, 2), lane * LANE, round(right - left, 2), seconds))
    ticks = tuple(begin + timedelta(seconds=total_s * number / TICKS) for number in range(TICKS))
    return Timeline(begin, now, max(1, len(free)) * LANE, tuple(bars), ticks, len(shown) - len(bars))
