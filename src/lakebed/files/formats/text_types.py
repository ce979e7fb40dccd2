"""Detects the types of text columns from values of the first rows.

A column has the first of these types that fits all of its values: boolean, int64, double, date, time, timestamp with a
time zone, timestamp without; or else text. Numbers with leading zeros, such as postal codes, remain text, and so do
whole numbers with more digits than int64. Words such as NULL and NA mean null if the other values of the column have a
type.

A detected type has a narrower form than a type that a table or a user gives, which accepts each text of
:mod:`lakebed.model.text_values`: ``007`` is an integer if the column is known to have integers. :func:`atypical` finds
later values of a column whose type would not have been detected with them.

Core types: :class:`ColumnType`. Pure.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.text_values import are_within, matches, numbers_of, padded_numbers, values_of_texts

NULL_WORDS = frozenset(
    ["NULL", "null", "Null", "NA", "N/A", "n/a", "#N/A", "NaT", "None", "none", "nil", "\\N", "-", "?", "(null)"]
)
"""Words that may mean null in a column of another type than text."""

_TIME = r"\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?"
_DATE = r"(\d{4}|[+-]\d{4,12})-\d{2}-\d{2}"
_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)"
_WHOLE = r"-?(0|[1-9]\d*)"
_FLOAT = r"-?((0|[1-9]\d*)(POINT\d*)?|POINT\d+)([eE][+-]?\d+)?|-?inf|-?Infinity|nan|NaN"
"""A number with POINT in place of its decimal point."""

_PATTERNS: tuple[tuple[str, pa.DataType], ...] = (
    (r"(?i:true|false)", pa.bool_()),
    (_WHOLE, pa.int64()),
    (_FLOAT, pa.float64()),
    (_DATE, pa.date32()),
    (r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?", pa.time64("us")),
    (f"{_DATE}[ T]{_TIME}{_ZONE}", pa.timestamp("us", "UTC")),
    (f"{_DATE}([ T]{_TIME})?", pa.timestamp("us")),
)
_FINE = r"\.\d{7,9}"
_LONG = r"-?\d{17,}"
"""A whole number of more digits than a double keeps."""

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
    kind = type_of_texts(rest, date_format, decimal_point)
    nulls = frozenset(distinct.filter(words).to_pylist()) if kind is not None else frozenset()
    return ColumnType(kind or pa.string(), nulls, examples)


def words_for_null(values: pa.Array) -> frozenset[str]:
    """Return the words in a column of another type than text that mean null."""
    distinct = pc.unique(values.drop_null())
    return frozenset(distinct.filter(pc.is_in(distinct, pa.array(sorted(NULL_WORDS)))).to_pylist())


def type_of_texts(values: pa.Array, date_format: str | None = None, decimal_point: str = ".") -> pa.DataType | None:
    """Return the type that fits all of the values, of which none stands for null; None if it is text."""
    if not len(values):
        return None
    if date_format is not None and not times_of_format(values, date_format).null_count:
        return pa.timestamp("us") if _TIMES.search(date_format) else pa.date32()
    for general, kind in _PATTERNS:
        if not pc.all(matches(values, _with_point(general, decimal_point))).as_py():
            continue
        if pa.types.is_floating(kind) and pc.any(matches(values, _LONG)).as_py():
            return None
        if pa.types.is_timestamp(kind) and pc.any(pc.match_substring_regex(values, _FINE)).as_py():
            kind = pa.timestamp("ns", kind.tz)  # noqa: PLW2901
        texts = values if decimal_point == "." else pc.replace_substring(values, decimal_point, ".")
        if not values_of_texts(texts, kind).null_count:
            return kind
    return None


def usual_values(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Return the values of a column of text as :func:`lakebed.model.text_values.values_of_texts` does, and a mask of
    texts in another form than the one by which the type is detected, as :func:`atypical` does.
    """
    if pa.types.is_integer(kind):
        # Nearly every column of integers needs only these two.
        with contextlib.suppress(pa.ArrowInvalid):
            values = texts.cast(kind)
            if padded_numbers(texts) is None:
                return values, None
    values = values_of_texts(texts, kind)
    return values, atypical(texts, values)


def atypical(texts: pa.Array, values: pa.Array) -> pa.Array | None:
    """Return a mask of the texts of these values that are not in the form by which the type of the values is detected;
    None if there are none. Numbers have a decimal point.
    """
    kind = values.type
    if pa.types.is_integer(kind):
        return _not_of(_WHOLE, texts, padded_numbers(texts))
    if pa.types.is_floating(kind):
        flags, numbers = padded_numbers(texts), numbers_of(values)
        if not are_within(numbers, _LONG_FROM):
            # Not less: NaN is compared as well.
            long = ~(np.abs(numbers) < _LONG_FROM)
            flags = long if flags is None else flags | long
        return _not_of(_with_point(_FLOAT, "."), texts, flags, _LONG)
    if pa.types.is_decimal(kind):
        return _not_of(_with_point(_FLOAT, "."), texts, padded_numbers(texts))
    shortest = len("true") if pa.types.is_boolean(kind) else len("00:00:00") if pa.types.is_time(kind) else 0
    if not shortest or (pc.min(pc.binary_length(texts)).as_py() or shortest) >= shortest:
        return None
    return pc.less(pc.binary_length(texts), shortest)


_LONG_FROM = np.float64(1e16)
"""The least whole number of 17 digits."""


def _not_of(pattern: str, texts: pa.Array, flags: Any, refused: str | None = None) -> pa.Array | None:
    """Return a mask of the flagged texts that have not the form of a pattern, or that of the ``refused`` one."""
    if flags is None or not flags.any():
        return None
    some = texts.filter(pa.array(flags))
    wrong = pc.invert(matches(some, pattern))
    wrong = wrong if refused is None else pc.or_(wrong, matches(some, refused))
    if not pc.any(wrong).as_py():
        return None
    mask = np.zeros(len(texts), bool)
    mask[np.flatnonzero(flags)[np.asarray(wrong)]] = True
    return pa.array(mask)


# -- dates of a format ----------------------------------------------------------------------------------------------

_TIMES = re.compile("%[^%YymdbBhjaAeuwUWDFCGgVx]")
"""A directive of ``strptime`` that is not part of a date."""

_SHORT_FORMS = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%e": "%d", "%h": "%b"}
"""Directives that Python's ``strptime`` lacks."""


def times_of_format(texts: pa.Array, date_format: str, unit: str = "s") -> pa.Array:
    """Return timestamps of texts in a format of ``strptime``, in UTC if they have an offset; null for other texts."""
    found = pc.strptime(texts, format=date_format, unit=unit, error_is_null=True)
    # Arrow reads 31.02. as 02.03., and 10:00:60 as 10:01:00.
    moved = pc.and_(pc.less_equal(pc.day(found), 3), pc.match_substring_regex(texts, "29|30|31"))
    moved = pc.or_(moved, pc.and_(pc.equal(pc.second(found), 0), pc.match_substring(texts, "60"))).fill_null(
        fill_value=False
    )
    if not pc.any(moved).as_py():
        return found
    wrong = [text for text in pc.unique(texts.filter(moved)).to_pylist() if not _is_of_format(text, date_format)]
    is_wrong = pc.and_(moved, pc.is_in(texts, pa.array(wrong, texts.type)))
    return pc.if_else(is_wrong, pa.scalar(None, found.type), found)


def _is_of_format(text: str, date_format: str) -> bool:
    for short, long in _SHORT_FORMS.items():
        date_format = date_format.replace(short, long)
    try:
        dt.datetime.strptime(text.strip(), date_format)  # noqa: DTZ007
    except ValueError:
        return False
    return True
