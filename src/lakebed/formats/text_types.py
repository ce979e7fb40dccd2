"""Detects the types of text columns from values of the first rows.

A column has the first of these types that fits all of its values: boolean, int64, double, date, time, timestamp with a
time zone, timestamp without; or else text. Numbers with leading zeros, such as postal codes, remain text, and so do
whole numbers with more digits than int64. Words such as NULL and NA mean null if the other values of the column have a
type.

Core types: :class:`ColumnType`. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

NULL_WORDS = frozenset(
    ["NULL", "null", "Null", "NA", "N/A", "n/a", "#N/A", "NaT", "None", "none", "nil", "\\N", "-", "?", "(null)"]
)
"""Words that may mean null in a column of another type than text."""

_TIME = r"\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"
_DATE = r"\d{4}-\d{2}-\d{2}"
_ZONE = r" ?(Z|[+-]\d{2}(:?\d{2})?)"
_FLOAT = r"-?((0|[1-9]\d*)(POINT\d*)?|POINT\d+)([eE][+-]?\d+)?|-?inf|nan|NaN"
"""A number with POINT in place of its decimal point."""

_PATTERNS: tuple[tuple[str, pa.DataType], ...] = (
    (r"true|false|True|False|TRUE|FALSE", pa.bool_()),
    (r"-?(0|[1-9]\d{0,18})", pa.int64()),
    (_FLOAT, pa.float64()),
    (_DATE, pa.date32()),
    (r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?", pa.time64("us")),
    (f"{_DATE}[ T]{_TIME}{_ZONE}", pa.timestamp("us", "UTC")),
    (f"{_DATE}([ T]{_TIME})?", pa.timestamp("us")),
)
_FINE = r"\.\d{7,9}"
_NAIVE = re.compile(f"{_DATE}([ T]{_TIME})?")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column, the words in it that mean null, and some of its values."""

    type: pa.DataType
    nulls: frozenset[str]
    examples: tuple[str, ...]


def is_typed(text: str, decimal_point: str = ".") -> bool:
    """Return whether a value is a number, a boolean, a date or a time."""
    return _typed(decimal_point).fullmatch(text.strip()) is not None


@cache
def _typed(decimal_point: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_with_point(pattern, decimal_point)})" for pattern, _ in _PATTERNS))


def _with_point(pattern: str, decimal_point: str) -> str:
    return pattern.replace("POINT", re.escape(decimal_point))


def is_zoneless(text: str) -> bool:
    """Return whether a value is a date or a time without a zone."""
    return _NAIVE.fullmatch(text.strip()) is not None


def column_type(values: pa.Array, date_format: str | None = None, decimal_point: str = ".") -> ColumnType:
    """Return the type of a column of text; empty values are null in any type."""
    distinct = pc.unique(values.drop_null())
    distinct = distinct.filter(pc.not_equal(distinct, ""))
    examples = tuple(distinct[:3].to_pylist())
    words = pc.is_in(distinct, pa.array(sorted(NULL_WORDS)))
    rest = pc.utf8_trim_whitespace(distinct.filter(pc.invert(words)))
    kind = _type_of(rest, date_format, decimal_point)
    nulls = frozenset(distinct.filter(words).to_pylist()) if kind is not None else frozenset()
    return ColumnType(kind or pa.string(), nulls, examples)


def words_for_null(values: pa.Array) -> frozenset[str]:
    """Return the words in a column of another type than text that mean null."""
    distinct = pc.unique(values.drop_null())
    return frozenset(distinct.filter(pc.is_in(distinct, pa.array(sorted(NULL_WORDS)))).to_pylist())


def _type_of(values: pa.Array, date_format: str | None, decimal_point: str) -> pa.DataType | None:
    if not len(values):
        return None
    if date_format is not None and _all_parse(values, date_format):
        return pa.timestamp("us") if _TIMES.search(date_format) else pa.date32()
    for general, kind in _PATTERNS:
        pattern = _with_point(general, decimal_point)
        if pc.all(pc.match_substring_regex(values, f"^(?:{pattern})$")).as_py() and _all_cast(values, kind):
            if pa.types.is_timestamp(kind) and pc.any(pc.match_substring_regex(values, _FINE)).as_py():
                return pa.timestamp("ns", kind.tz)
            if pa.types.is_floating(kind) and _has_long(values):
                return None
            return kind
    return None


_TIMES = re.compile("%[^%YymdbBhjaAeuwUWDFCGgVx]")
"""A directive of ``strptime`` that is not part of a date."""


def _has_long(values: pa.Array) -> bool:
    """Return whether a whole number has more digits than a double keeps."""
    return bool(pc.any(pc.match_substring_regex(values, r"^-?\d{17,}$")).as_py())


def _all_parse(values: pa.Array, date_format: str) -> bool:
    try:
        pc.strptime(values, format=date_format, unit="s")
    except pa.ArrowInvalid:
        return False
    return True


def _all_cast(values: pa.Array, kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_time(kind):
        return True
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("ns", kind.tz)
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
