"""The columns that texts take on a terminal: measured, cut and padded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CUT = "…"
"""Stands for what is left out of a text."""
GAP = 2
"""The columns of a terminal between two cells."""


def cells(text: str) -> int:
    """Return how many columns of a terminal the text takes; East Asian characters and emoji take two."""
    if text.isascii():
        return len(text)
    # It knows the sequences of characters that are shown as one.
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis; of one word, as names, paths and ids are, both ends."""
    if cells(text) <= width:
        return text
    tail = "" if " " in text else text[len(text) - (width - 1) // 2 :]
    while cells(text) + cells(tail) >= width and text:
        text = text[: max(0, min(width - 1 - len(tail), len(text) - 1))]
    return text + CUT + tail


def text_line(texts: Sequence[str], right: Sequence[bool], widths: Sequence[int]) -> str:
    """Return the cells of a row of a table as a line, each to the left or to the right of its width."""
    row = zip(texts, right, widths, strict=True)
    return (" " * GAP).join(_padded(text, width, right=side) for text, side, width in row).rstrip()


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks
