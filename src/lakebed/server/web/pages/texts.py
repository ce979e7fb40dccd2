"""How values look on a page: numbers, sizes, times and keys as short text. Pure.

Keys and cells may hold anything. Bytes become hex digits, and characters that do not print become escapes, so that the
text shows what there is; templates escape it for HTML.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from lakebed.model.wording import printable

NONE = "\N{EN DASH}"
"""Stands for what there is not."""

_SHORT = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PERIODS = ((86_400, "d"), (3_600, "h"), (60, "min"))

CELL_CHARACTERS_MAX = 80
"""Of a value in a grid; its title has :data:`TITLE_CHARACTERS_MAX`."""

TITLE_CHARACTERS_MAX = 1_000


def count(number: int | None) -> str:
    """Return a whole number with separators."""
    return NONE if number is None else f"{number:,}"


def short(number: float | None) -> str:
    """Return a number in three digits or so: 1,234 is 1.23k."""
    if number is None:
        return NONE
    for unit, letter in _SHORT:
        if abs(number) >= unit:
            return f"{number / unit:.3g}{letter}" if abs(number) < 999.5 * unit else f"{number / unit:,.0f}{letter}"
    return f"{number:.3g}" if number != int(number) else f"{int(number)}"


def size(size_bytes: float | None) -> str:
    """Return bytes in the unit that suits."""
    if size_bytes is None:
        return NONE
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 999.5 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def period(seconds: float) -> str:
    """Return a length of time: 850 ms, 12 s, 5 min, 3 h, 2 d."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, name in _PERIODS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def ago(moment: dt.datetime | None, now: dt.datetime) -> str:
    """Return how long ago a moment was."""
    if moment is None:
        return NONE
    seconds = (now - moment).total_seconds()
    return "now" if seconds < 1 else f"{period(seconds)} ago"


def moment(since_us: float) -> dt.datetime | None:
    """Return a time in microseconds since 1970; None for 0."""
    return dt.datetime.fromtimestamp(since_us / 1e6, dt.UTC) if since_us else None


def change(added: int, removed: int | None) -> str:
    """Return what came and what went: ``+12 -3``; a question mark stands for a number that is not known."""
    parts = [f"+{added:,}"] if added else []
    if removed is None:
        parts.append("-?")
    elif removed:
        parts.append(f"-{removed:,}")
    return " ".join(parts)


def value(given: Any) -> str:
    """Return one value in a line: bytes as hex digits, times in ISO 8601, null as ``null``."""
    match given:
        case None:
            return "null"
        case bool():
            return "true" if given else "false"
        case str():
            return printable(given)
        case bytes():
            return given.hex()
        case dt.datetime() | dt.date() | dt.time():
            return given.isoformat().replace("+00:00", "Z")
        case Mapping():
            return "{" + ", ".join(f"{name}: {value(one)}" for name, one in given.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(value, given)) + "]"
        case _:
            return printable(str(given))


def cut(text: str, characters: int = CELL_CHARACTERS_MAX) -> str:
    """Return the beginning of a long text, with an ellipsis."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def key(values: Mapping[str, Any]) -> str:
    """Return the values of a key, or those of a bound: ``N14228, 2013-01-01``; an empty text is ``''``."""
    parts = [value(one) for one in values.values() if one is not None]
    return ", ".join(part or "''" for part in parts)
