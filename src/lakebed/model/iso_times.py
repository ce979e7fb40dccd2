"""Converts dates and timestamps to text in ISO 8601 and back, for every year that their types hold. Pure.

A year from 0 to 9999 has four digits. Any other has a sign and at least four digits, as an expanded year of ISO 8601:
``+10000-01-01``, ``-0001-12-31T23:59:59``. Year 0 is the year before year 1. This is also the form of DataFusion and
of Java. Times of zones are in UTC.

Rules. Arrow reads and writes only years of four digits. The Gregorian calendar repeats after 400 years, so Arrow
converts other values as one of years 1970 to 2369, and the year is corrected. :func:`iso_texts` makes no Arrow array of
Python values, because that imports pandas.

Errors: ArrowInvalid for text of another form, and for a value that the type does not hold.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lakebed.model.arrays import integers, of_integers
from lakebed.model.moments import PER_SECOND

_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896
"""0000-01-01 and 9999-12-31, in days since 1970-01-01."""

_SIGNED = re.compile(r"([+-][0-9]{4,12})(-.*)", re.ASCII | re.DOTALL)
_FIRST_YEAR = 1970


def has_expanded_years(column: pa.Array) -> bool:
    """Return whether a column has a date or timestamp outside of the years 0 to 9999, at any depth."""
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_map(kind):
        return has_expanded_years(column.keys) or has_expanded_years(column.items)
    if pa.types.is_struct(kind):
        return any(map(has_expanded_years, column.flatten()))
    if pa.types.is_nested(kind):
        return has_expanded_years(column.flatten())
    if not may_expand(kind):
        return False
    ends = pc.min_max(_stored(column)).as_py()
    per_day = _per_day(kind)
    first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1
    return ends["min"] is not None and not first <= ends["min"] <= ends["max"] <= last


def may_expand(kind: pa.DataType) -> bool:
    """Return whether values of the type have years."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def is_expanded(text: str) -> bool:
    """Return whether a text begins with a year with a sign."""
    return _SIGNED.fullmatch(text.strip()) is not None


def iso_texts(column: pa.Array) -> list[str | None]:
    """Return the texts of a column of dates, times or timestamps."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if not has_expanded_years(column):
        return [None if text is None else text.replace(" ", "T", 1) for text in column.cast(pa.string()).to_pylist()]
    cycles, rest = np.divmod(integers(_stored(column).fill_null(0)), _CYCLE_DAYS * _per_day(kind))
    moved = iso_texts(_of_numbers(of_integers(rest), column.type))
    valid = column.is_valid().to_pylist()
    found = zip(valid, moved, cycles.tolist(), strict=True)
    return [_with_year(text, count) if ok and text is not None else None for ok, text, count in found]


def iso_text(kind: pa.DataType, number: int) -> str:
    """Return the text of one value, given as the number that a column of the type stores."""
    text = iso_texts(_of_numbers(of_integers(np.array([number], np.int64)), kind))[0]
    assert text is not None
    return text


def times_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the dates or timestamps of a column of texts."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        values = texts.to_pylist()
        if not any(value is not None and _SIGNED.fullmatch(value) for value in values):
            raise
    moved = [(None, 0) if value is None else _without_year(value) for value in values]
    read = _stored(pa.array([text for text, _ in moved], pa.string()).cast(kind)).to_pylist()
    per_cycle = _CYCLE_DAYS * _per_day(kind)
    numbers = [n if n is None else n + cycles * per_cycle for n, (_, cycles) in zip(read, moved, strict=True)]
    bits = kind.bit_width - 1
    for number, value in zip(numbers, values, strict=True):
        if number is not None and not -(2**bits) <= number < 2**bits:
            raise pa.ArrowInvalid(f"{value} is outside of {kind}")
    return _of_numbers(pa.array(numbers, pa.int64()), kind)


def _with_year(text: str, cycles: int) -> str:
    year = int(text[:4]) + cycles * _CYCLE_YEARS
    return (f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}") + text[4:]


def _without_year(text: str) -> tuple[str, int]:
    """Return the text with a year of four digits, and the number of cycles by which its year was moved."""
    found = _SIGNED.fullmatch(text)
    if found is None:
        return text, 0
    year = int(found[1])
    cycles = 0 if 0 <= year <= 9999 else (year - _FIRST_YEAR) // _CYCLE_YEARS
    return f"{year - cycles * _CYCLE_YEARS:04d}{found[2]}", cycles


def _per_day(kind: pa.DataType) -> int:
    if pa.types.is_date32(kind):
        return 1
    return 86_400 * PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]


def _stored(column: pa.Array) -> pa.Array:
    """Return the stored numbers, as 64-bit integers."""
    return column.view(pa.int32()).cast(pa.int64()) if column.type.bit_width == 32 else column.view(pa.int64())


def _of_numbers(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    return (numbers.cast(pa.int32()) if kind.bit_width == 32 else numbers).view(kind)
