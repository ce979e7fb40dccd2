"""Drawings as SVG text: the partitions of a table, and the funnel of a read. Pure.

They need no library, are displayed in notebooks, and can be saved as files. Colours follow the page's theme. Core type.
:class:`Picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log1p
from pathlib import Path

from lakebed.model.wording import count_text
from lakebed.read.drawing.key_space import WIDTH, KeyCell, KeySpace, layout

FUNNEL_WIDTH = 600

_COLOURS = (
    ("#b4d2ea", "#1e4467"), ("#8fbbe0", "#235683"), ("#66a3d5", "#2a6ba1"), ("#3b85c2", "#4690cc"),
    ("#1f66a6", "#6fb3e8"), ("#0b4478", "#a3d2f6"),
)  # fmt: skip
"""The colours of the six steps of a scale, in light and dark; the same as in style.css of the pages of a service."""

_STYLE = (
    ".lakebed-picture{color-scheme:light dark}"
    "[data-jp-theme-light=true] .lakebed-picture{color-scheme:light}"
    "[data-jp-theme-light=false] .lakebed-picture{color-scheme:dark}"
    ".lakebed-picture text{font:12px system-ui,sans-serif;fill:light-dark(#1b2128,#e4e8ed)}"
    ".lakebed-picture .muted{fill:light-dark(#5a6470,#9aa5b1)}"
    ".lakebed-picture .bar{fill:light-dark(#3d84c6,#4a92d4)}"
    ".lakebed-picture .cells rect{stroke:light-dark(#ffffff,#0e1116);stroke-width:.5}"
    + "".join(
        f".lakebed-picture .c{step}{{fill:light-dark({light},{dark})}}" for step, (light, dark) in enumerate(_COLOURS)
    )
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing; ``svg`` is its text. Notebooks display it, and :meth:`save` writes it."""

    svg: str

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<lakebed picture, {len(self.svg):,} characters of SVG>"

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the picture as an SVG file. Raises OSError if it cannot be written."""
        Path(path).write_text(self.svg + "\n", "utf-8")


def partitions_picture(space: KeySpace) -> Picture:
    """Draw every partition in key order: its width is its share of the rows, its colour the number of files.

    Many neighbours are drawn as one. A cell shows its figures on hover.
    """
    drawn = layout(space, range(len(space.partitions)), "rows", "files")
    cells = "".join(_cell(cell) for cell in drawn.cells)
    least, most = drawn.scale.least, drawn.scale.most
    legend = "".join(f'<rect class="c{step}" x="{16 * step}" y="70" width="16" height="10"/>' for step in range(6))
    return _picture(
        WIDTH,
        84,
        "Partitions in key order: width by rows, colour by files",
        f'<g class="cells">{cells}</g>{legend}<text class="muted" x="102" y="80">{least:,.0f} to {most:,.0f} files a '
        f"partition; {count_text(drawn.whole.partitions, 'partition')}, {count_text(drawn.whole.rows, 'row')}</text>",
    )


def _cell(cell: KeyCell) -> str:
    numbers = (
        f"partition {cell.first + 1:,}" if cell.partitions == 1 else f"partitions {cell.first + 1:,}-{cell.last:,}"
    )
    about = f"{numbers}: {cell.rows:,} rows, {cell.size_bytes:,} bytes, {cell.files:,g} files a partition"
    where = f'x="{cell.x}" y="0" width="{cell.width}" height="60"'
    return f'<rect class="c{cell.colour}" {where}><title>{about}</title></rect>'


Counted = tuple[str, str, int, int | None]
"""The name of a step, the unit of its count, the count, and the number left out by the step."""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """A bar, centred in :data:`FUNNEL_WIDTH`. ``left_out``: the number left out before it; None if unknown."""

    name: str
    unit: str
    count: int
    left_out: int | None
    x: float
    width: float


def bars_of(counts: Sequence[Counted]) -> tuple[FunnelStep, ...]:
    """Return the bars from top to bottom, as wide as the logarithms of their counts."""
    most = max(1.0, *(log1p(count) for _, _, count, _ in counts))
    bars = []
    for name, unit, count, left_out in counts:
        width = round(max(2.0, log1p(count) / most * FUNNEL_WIDTH) if count else 0, 1)
        bars.append(FunnelStep(name, unit, count, left_out, round((FUNNEL_WIDTH - width) / 2, 1), width))
    return tuple(bars)


def funnel_picture(steps: Sequence[FunnelStep]) -> Picture:
    """Draw the steps of a read from top to bottom, each as wide as the logarithm of what remained after it."""
    rows = []
    for index, step in enumerate(steps):
        y = 26 * index
        count = count_text(step.count, step.unit.removesuffix("s"))
        left_out = f", {step.left_out:,} left out" if step.left_out else ""
        rows.append(
            f'<text x="190" y="{y + 15}" text-anchor="end">{escape(step.name)}</text>'
            f'<rect class="bar" x="{200 + step.x}" y="{y + 2}" width="{step.width}" height="18"/>'
            f'<text class="muted" x="{210 + FUNNEL_WIDTH}" y="{y + 15}">{count}{left_out}</text>'
        )
    return _picture(FUNNEL_WIDTH + 400, 26 * len(steps), "What the read left out, step by step", "".join(rows))


def _picture(width: int, height: int, title: str, content: str) -> Picture:
    # Its styles select only its own class: styles of an SVG inside a page apply to the whole page.
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" role="img" '
        f'class="lakebed-picture" aria-label="{escape(title)}" style="max-width:{width}px">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>{content}</svg>"
    )
