"""Amounts in words, for people. Pure."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(size_bytes: float) -> str:
    """Bytes in the largest unit of which there is one."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def count_text(count: int, noun: str, *, exact: bool = True) -> str:
    """A number with its noun: ``1 partition``, ``2,000 rows``, ``about 7 files``."""
    return f"{'' if exact else 'about '}{count:,} {noun}{'' if count == 1 else 's'}"
