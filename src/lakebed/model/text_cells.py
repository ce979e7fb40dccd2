"""The columns that texts take on a terminal: measured, cut and padded. Pure."""

from __future__ import annotations

CUT = "…"
"""Stands for what is left out of a text."""


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


def padded(text: str, width: int, *, right: bool) -> str:
    """Return the text with blanks up to the width, to the right of it or to the left."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks
