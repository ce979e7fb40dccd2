"""Makes a table of text fit the width of a terminal.

Long cells are cut, the longest first, and end with an ellipsis; if that is not enough, columns in the middle are left
out. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

GAP = 2
CUT = "…"
NARROWEST = 12
"""A cell that is cut has at least this many characters; a column that is narrower by itself is never cut."""


def fit(widths: Sequence[int], width: int) -> list[int | None]:
    """Return the width of each column in a table of at most ``width`` characters; None for those that are left out.

    The first and the last column stay, whatever the width.
    """
    shown = list(range(len(widths)))
    while len(shown) > 2 and _least(widths, shown) > width:
        del shown[len(shown) // 2]
    dropped = len(shown) < len(widths)
    room = width - GAP * (len(shown) - 1) - dropped * (GAP + len(CUT))
    found = {column: widths[column] for column in shown}
    while sum(found.values()) > room:
        longest = max(found.values())
        if longest <= NARROWEST:
            break
        wide = [column for column, length in found.items() if length == longest]
        next_longest = max([NARROWEST, *(length for length in found.values() if length < longest)])
        excess = sum(found.values()) - room
        cut = min(longest - next_longest, -(-excess // len(wide)))
        for column in wide:
            found[column] -= cut
    return [found.get(column) for column in range(len(widths))]


def _least(widths: Sequence[int], shown: Sequence[int]) -> int:
    """Return the width of these columns, cut as far as they may be."""
    dropped = len(shown) < len(widths)
    return sum(min(widths[column], NARROWEST) for column in shown) + GAP * (len(shown) - 1) + dropped * (GAP + len(CUT))


def cells(text: str) -> int:
    """Return how many columns of a terminal the text takes; East Asian characters and emoji take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis."""
    if cells(text) <= width:
        return text
    while cells(text) >= width:
        text = text[: min(width - 1, len(text) - 1)]
    return text + CUT


def padded(text: str, width: int, *, right: bool) -> str:
    """Return the text with blanks up to the width, to the right of it or to the left."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks
