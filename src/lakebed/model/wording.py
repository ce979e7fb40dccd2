"""Formats messages: amounts with their units, and suggestions of names similar to a mistyped one. Pure.

Source: difflib's ratio of matching characters (Ratcliff and Obershelp); case is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NAMES_SEARCHED_MAX = 5_000
"""Maximum names to search, about 50 ms of an error message."""
_ALIKE = 0.6
_NEARLY_AS_ALIKE = 0.1
_SHOWN_MAX = 3

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: float) -> str:
    """Return bytes in the largest unit of which there is at least one."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def count_text(count: int, noun: str, plural: str = "", *, exact: bool = True) -> str:
    """Return a number with its noun: ``1 partition``, ``2,000 rows``, ``3 entries``, ``about 7 files``."""
    return f"{'' if exact else 'about '}{count:,} {noun if count == 1 else plural or noun + 's'}"


def duration_text(seconds: int) -> str:
    """Return a duration in the largest unit that divides it: ``30 days``."""
    unit_s, noun = next(one for one in ((86_400, "day"), (3_600, "hour"), (1, "second")) if seconds % one[0] == 0)
    return count_text(seconds // unit_s, noun)


def printable(text: str) -> str:
    """Return the text with an escape for each character that is not printable, including line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def nearest(name: Any, names: Iterable[str]) -> list[str]:
    """Return up to three names most similar to ``name``, best first, without those much less similar than the best."""
    from difflib import SequenceMatcher
    from itertools import islice

    if not isinstance(name, str):
        # A member of a dict made by a caller.
        return []
    matcher = SequenceMatcher(None, b=name.casefold())
    found = []
    for other in islice(names, NAMES_SEARCHED_MAX):
        matcher.set_seq1(other.casefold())
        if matcher.real_quick_ratio() >= _ALIKE and (alike := matcher.ratio()) >= _ALIKE:
            found.append((-alike, other))
    found.sort()
    return [other for alike, other in found[:_SHOWN_MAX] if alike <= found[0][0] + _NEARLY_AS_ALIKE]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: ``; did you mean 'readings'?``, or nothing."""
    found = nearest(name, names)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
