"""Where the marks of small charts go, in the units of their SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH, HEIGHT = 600, 72


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from the bottom up, and what it stands for."""

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
    """A bar for each value that is not 0, at least a unit high."""
    top = max(values, default=0)
    step = WIDTH / max(1, len(values))
    marks = []
    for place, one in enumerate(values):
        if one > 0:
            height = max(1.5, one / top * HEIGHT)
            begin = datetime.fromtimestamp(begin_s + place * period_s, UTC)
            x, y = round(place * step, 2), round(HEIGHT - height, 2)
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
    """A line through points in the order of time, over their time; None for fewer than two."""
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
