"""Line plots of benchmarks as SVG, without a library: some curves over one axis, shaded spans and marked moments.

Core types: :class:`Curve`, :class:`Plot`. A legend names the curves. Times and amounts are plain numbers; their units
are in the titles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 28, 44
COLOURS = ("#1c5fb5", "#b5541c", "#3a8f3a", "#7d4ea8", "#6b6b6b")


@dataclass(frozen=True, slots=True)
class Curve:
    """Points ``(x, y)`` in order of x, drawn as one line."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """``x`` and ``title`` say what the axes mean, with units. ``log``: y has a logarithmic axis, and points that are
    not positive are left out. ``shaded`` are spans of x, ``marked`` moments.
    """

    title: str
    x: str
    curves: Sequence[Curve]
    log: bool = False
    shaded: Sequence[tuple[float, float]] = ()
    marked: Sequence[float] = ()

    def svg(self) -> str:
        """Return the picture."""
        curves = [Curve(one.name, [p for p in one.points if not self.log or p[1] > 0]) for one in self.curves]
        points = [point for one in curves for point in one.points] or [(0.0, 1.0)]
        left_x, right_x = min(x for x, _ in points), max(x for x, _ in points)
        ticks = _powers(points) if self.log else _steps(0.0, max(y for _, y in points))
        low, high = self._height(ticks[0]), self._height(ticks[-1])

        def at_x(x: float) -> float:
            return LEFT + (WIDTH - LEFT - RIGHT) * (x - left_x) / ((right_x - left_x) or 1)

        def at_y(y: float) -> float:
            return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (self._height(y) - low) / ((high - low) or 1))

        bottom, tall = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
        across = [x for x in _steps(left_x, right_x) if left_x <= x <= right_x]
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
            f'<title>{escape(self.title)}</title><g font-size="11">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<text x="{LEFT}" y="16" font-size="12">{escape(self.title)}</text>',
            *(
                f'<rect x="{at_x(a):.1f}" y="{TOP}" width="{max(1.0, at_x(b) - at_x(a)):.1f}" height="{tall}" '
                f'fill="#f3d9d9"/>'
                for a, b in self.shaded
            ),
            *(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
                f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
                for y in ticks
            ),
            *(f'<text x="{at_x(x):.1f}" y="{bottom + 15}" text-anchor="middle">{_number(x)}</text>' for x in across),
            *(
                f'<line x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{TOP}" y2="{bottom}" stroke="#c33" '
                f'stroke-dasharray="3 3"/>'
                for x in self.marked
            ),
        ]
        legend = LEFT
        for colour, one in zip(COLOURS, curves, strict=False):
            line = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in one.points)
            parts += [
                f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>',
                f'<line x1="{legend}" x2="{legend + 16}" y1="248" y2="248" stroke="{colour}" stroke-width="3"/>',
                f'<text x="{legend + 20}" y="252">{escape(one.name)}</text>',
            ]
            legend += 36 + 6 * len(one.name)
        parts.append(f'<text x="{WIDTH - RIGHT}" y="252" text-anchor="end">{escape(self.x)}</text></g></svg>')
        return "\n".join(parts) + "\n"

    def _height(self, y: float) -> float:
        return math.log10(y) if self.log else y


def _steps(low: float, high: float) -> list[float]:
    """Return about five round numbers that reach from the one to the other."""
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.floor(low / step)
    return [step * number for number in range(first, math.ceil(high / step) + 1)]


def _powers(points: Sequence[tuple[float, float]]) -> list[float]:
    least, most = min(y for _, y in points), max(y for _, y in points)
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:g}"
