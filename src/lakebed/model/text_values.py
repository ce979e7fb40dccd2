"""Converts text to values of plain types: the one definition of which text is a value of a type. Pure.

CSV, text in JSON, and casts of text all use :func:`values_of_texts`, so that a text means the same whichever way it
comes. A text is a value of a type if it has the form below, and the type holds the value:

* boolean: true, false, t, f, yes, no, y, n, on, off, 1 or 0, in any case;
* integer: digits, with or without a sign;
* decimal: a number with a decimal point and an exponent, if it has them; every digit is kept;
* float: the same, or inf, infinity or nan, in any case and with or without a sign. A whole number is kept exactly, or
  is what the float is written as. Another number becomes the nearest float, but never infinity, and never zero unless
  it is zero;
* date and timestamp: ISO 8601, as in :mod:`lakebed.model.iso_times`; a time of a zone has an offset or Z;
* time of day: hours and minutes, with or without seconds and their fraction.

Nothing else is accepted: no blanks, underscores, separators of thousands, hexadecimal digits, or digits of other
scripts.

Rules. Arrow's casts are faster than a check of the form, and accept more: hexadecimal digits, nan(1), infinity for a
number that is too large. So a column is cast first, and only values that may be such ones are compared with the form,
or all if the cast fails. Source: docs/import.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.model.iso_times import times_of_texts

_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_WORDS_OF_FLOATS = r"[+-]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])"
_WHOLE = r"[+-]?[0-9]+"
_NOT_ZERO = r"^[^eE]*[1-9]"
_DATE = r"([0-9]{4}|[+-][0-9]{4,12})-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_TIMESTAMP = rf"{_DATE}([ T]([0-9]{{2}}|{_TIME})(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?)?"

_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")

_DIGITS_OF_FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
"""The binary digits of a float: every whole number up to this power of two is exact."""

_ZERO, _ONE, _NINE, _PLUS, _MINUS = (ord(character) for character in "019+-")
_X = (ord("x"), ord("X"))


def is_parsed(kind: pa.DataType) -> bool:
    """Return whether :func:`values_of_texts` makes values of a type."""
    return _form(kind) is not None


def has_form(text: str, kind: pa.DataType) -> bool:
    """Return whether a text has the form of the values of a type, which may still not hold it."""
    return re.fullmatch(_form(kind) or "", text) is not None


def values_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of a column of text; null for text that is no value of the type."""
    try:
        values = _converted(texts, kind)
        doubtful = _doubtful(texts, values)
    except pa.ArrowInvalid:
        return _values_of_some(texts, kind)
    return values if doubtful is None else _without(values, doubtful)


def _form(kind: pa.DataType) -> str | None:
    """Return the pattern of the texts that may be values of a type; None if the type is none of those here."""
    if pa.types.is_boolean(kind):
        return "|".join(f"(?i:{word})" for word in (*_TRUE, *_FALSE))
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_floating(kind):
        return f"{_NUMBER}|{_WORDS_OF_FLOATS}"
    if pa.types.is_decimal(kind):
        return _NUMBER
    if pa.types.is_date(kind):
        return _DATE
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP
    return _TIME if pa.types.is_time(kind) else None


def _values_of_some(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of a column in which some text is no value of the type, or has a form that Arrow lacks."""
    fits = matches(texts, _form(kind) or "")
    kept = _only(texts, fits)
    if pa.types.is_boolean(kind):
        return _booleans(kept)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        import pyarrow.compute as pc

        # Arrow reads no integer with a plus, no unsigned zero with a minus, and counts leading zeros of decimals.
        kept = pc.replace_substring_regex(kept, pattern=r"^(?:\+|(-))?0*([0-9])", replacement=r"\1\2")
        kept = pc.if_else(pc.equal(kept, "-0"), pa.scalar("0", kept.type), kept)
    values = _convertible(kept, kind, lambda part: _converted(part, kind))
    doubtful = _doubtful(kept, values)
    return values if doubtful is None else _without(values, doubtful)


def _converted(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values by Arrow's cast. Raises ArrowInvalid if it refuses a text."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return times_of_texts(texts, kind)
    if pa.types.is_time(kind):
        import pyarrow.compute as pc

        if (pc.min(pc.binary_length(texts)).as_py() or len("00:00")) < len("00:00"):
            raise pa.ArrowInvalid("a time of day has hours and minutes")
        # Arrow cannot cast text to a time of day.
        return pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("ns")).cast(kind)
    if kind == pa.float16():
        # Arrow rounds twice, by way of float.
        return _halves(texts)
    return texts.cast(kind)


def _convertible(texts: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the values; null for each text that ``convert`` refuses, found by halving the column."""
    try:
        return convert(texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
    middle = len(texts) // 2
    return pa.concat_arrays([_convertible(part, kind, convert) for part in (texts[:middle], texts[middle:])])


def _booleans(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    words = pa.array([*_TRUE, *_FALSE], texts.type)
    values = pa.array([True] * len(_TRUE) + [False] * len(_FALSE))
    return values.take(pc.index_in(pc.ascii_lower(texts), words))


def _halves(texts: pa.Array) -> pa.Array:
    """Return the nearest half floats. Halfway between two of them the double has to be compared with the text."""
    doubles = texts.cast(pa.float64())
    found: Any = np.asarray(doubles.fill_null(0))
    with np.errstate(all="ignore"):
        halves = found.astype(np.float16)
        others = (2 * found - halves.astype(np.float64)).astype(np.float16)
        between = np.isfinite(found) & (halves != others) & (np.abs(found - halves) == np.abs(found - others))
        for place in np.flatnonzero(between | (np.abs(found) == _HALF_LIMIT)):
            exact, double = Fraction(texts[int(place)].as_py()), Fraction(found[place])
            if exact != double:
                halves[place] = np.nextafter(found[place], np.inf if exact > double else -np.inf).astype(np.float16)
    return pa.array(halves, mask=np.asarray(doubles.is_null()))


_HALF_LIMIT = 65_520.0
"""Halfway between the largest half float and the one that would follow."""


# -- values that Arrow accepts, and that are none ---------------------------------------------------------------


def _doubtful(texts: pa.Array, values: pa.Array) -> pa.Array | None:
    """Return a mask of texts that Arrow's cast accepts and that are no values of the type; None if there are none."""
    if pa.types.is_integer(values.type):
        padded = padded_numbers(texts)
        return None if padded is None else _refused(texts, padded, lambda some: ~_flags(matches(some, _WHOLE)))
    if pa.types.is_decimal(values.type):
        return _doubtful_decimals(texts, values)
    return _doubtful_floats(texts, values) if pa.types.is_floating(values.type) else None


def _doubtful_floats(texts: pa.Array, values: pa.Array) -> pa.Array | None:
    """Return the mask for floats: infinity of a number, zero of another number, whole numbers that are rounded, and
    other words than inf and nan.
    """
    numbers: Any = numbers_of(values)
    if not len(numbers):
        return None
    limit = 2.0 ** _DIGITS_OF_FLOATS[values.type]
    if are_within(numbers, limit) and (numbers.min() > 0 or numbers.max() < 0):
        return None
    absolute = np.abs(numbers)
    # Not less: NaN is compared as well.
    odd = ~(absolute < limit) | (absolute == 0)
    if values.null_count:
        odd &= np.asarray(values.is_valid())
    # Most zeros are written as 0 or 0.0, which is shorter than any text of a number that becomes zero.
    odd &= (absolute != 0) | (np.diff(layout_of(texts)[0]) > len("0.0"))
    if not odd.any():
        return None
    return _refused(texts, odd, lambda some: _rounded(some, numbers[odd]))


_DIGITS_OF_DECIMALS = 38
"""Arrow reads numbers of at most this many characters, without an exponent, exactly."""

_LOWER_CASE = np.uint8(0x20)


def _doubtful_decimals(texts: pa.Array, values: pa.Array) -> pa.Array | None:
    """Return the mask for decimals: zero of another number, such as 5e-323, and another number of one with more digits
    than the type has, which wraps around.
    """
    import pyarrow.compute as pc

    long = pc.greater(pc.binary_length(texts), _DIGITS_OF_DECIMALS)
    if (layout_of(texts)[1] | _LOWER_CASE == ord("e")).any():
        long = pc.or_(long, pc.match_substring(texts, "e", ignore_case=True))
    suspect = pc.or_(pc.equal(values, pa.scalar(0, values.type)), long)
    if not pc.any(suspect).as_py():
        return None
    lost = pc.and_not(pc.and_(suspect, matches(texts, _NOT_ZERO, whole=False)), long).fill_null(fill_value=False)
    flags = lost.to_numpy(zero_copy_only=False).copy()
    for place in np.flatnonzero(np.asarray(long.fill_null(fill_value=False)) & np.asarray(values.is_valid())):
        flags[place] = Fraction(texts[int(place)].as_py()) != Fraction(values[int(place)].as_py())
    return pa.array(flags) if flags.any() else None


def _rounded(texts: pa.Array, numbers: Any) -> Any:
    """Return flags of the texts that these floats do not keep."""
    is_number = _flags(matches(texts, _NUMBER))
    lost = ~is_number & ~_flags(matches(texts, _WORDS_OF_FLOATS))
    lost |= is_number & ~np.isfinite(numbers)
    lost |= is_number & (numbers == 0) & _flags(matches(texts, _NOT_ZERO, whole=False))
    whole = _flags(matches(texts, _WHOLE)) & np.isfinite(numbers)
    for place in np.flatnonzero(whole):
        # Programs write a float that is a large whole number with zeros after its shortest digits.
        kept = (Fraction(float(numbers[place])), Fraction(str(numbers[place])))
        lost[place] |= Fraction(texts[int(place)].as_py()) not in kept
    return lost


def padded_numbers(texts: pa.Array) -> Any:
    """Return flags of the texts that begin with a plus, or with a zero before a digit or an x; None if there are none.

    Leaves a minus out of account.
    """
    ends, content = layout_of(texts)
    if not len(content):
        return None
    # A null has a length of 0, and may begin where the bytes end.
    places = np.flatnonzero(content.take(ends[:-1], mode="clip") < _ONE)
    if not len(places):
        return None
    begins, lengths = ends[:-1][places], (ends[1:] - ends[:-1])[places]
    signs = content.take(begins, mode="clip")
    is_signed = (signs == _MINUS) & (lengths > 1)
    begins, lengths = begins + is_signed, lengths - is_signed
    is_zero = (content.take(begins, mode="clip") == _ZERO) & (lengths > 1)
    is_padded = is_zero & _is_digit_or_x(content.take(begins + 1, mode="clip"))
    found = places[is_padded | ((signs == _PLUS) & (lengths > 0))]
    if not len(found):
        return None
    flags = np.zeros(len(texts), bool)
    flags[found] = True
    return flags


def _is_digit_or_x(bytes_: Any) -> Any:
    return ((bytes_ >= _ZERO) & (bytes_ <= _NINE)) | (bytes_ == _X[0]) | (bytes_ == _X[1])


def _refused(texts: pa.Array, flags: Any, judge: Callable[[pa.Array], Any]) -> pa.Array | None:
    """Return a mask of the flagged texts that ``judge`` flags as well; None if there are none."""
    found = judge(texts.filter(pa.array(flags)))
    if not found.any():
        return None
    mask = np.zeros(len(texts), bool)
    mask[np.flatnonzero(flags)[found]] = True
    return pa.array(mask)


# -- columns --------------------------------------------------------------------------------------------------------


def matches(texts: pa.Array, pattern: str, *, whole: bool = True) -> pa.Array:
    """Return whether each text has the form of a pattern: the ``whole`` text, or a part of it."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(texts, rf"\A(?:{pattern})\z" if whole else pattern)


def layout_of(texts: pa.Array) -> tuple[Any, Any]:
    """Return where each text begins and the last one ends, and the bytes that they are in."""
    large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    width: Any = np.int64 if large else np.int32
    _, offsets, content = texts.buffers()
    if offsets is None or not len(texts):
        return np.zeros(1, width), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, width, len(texts) + 1, texts.offset * width().itemsize)
    return ends, np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)


def numbers_of(values: pa.Array) -> Any:
    """Return the numbers of a column; nulls have any."""
    return np.frombuffer(
        values.buffers()[1], values.type.to_pandas_dtype(), len(values), values.offset * values.type.bit_width // 8
    )


def are_within(numbers: Any, limit: float) -> bool:
    """Return whether all numbers are less than a limit, and greater than minus the limit; not if one is NaN."""
    return not len(numbers) or bool(numbers.max() < limit and numbers.min() > -limit)


def _flags(mask: pa.Array) -> Any:
    return np.asarray(mask.fill_null(fill_value=False))


def _only(column: pa.Array, kept: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(kept, column, pa.scalar(None, column.type))


def _without(values: pa.Array, left_out: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if values.type == pa.float16():
        numbers = np.asarray(values.fill_null(np.float16(0)))
        return pa.array(numbers, mask=np.asarray(values.is_null()) | np.asarray(left_out))
    return pc.if_else(left_out, pa.scalar(None, values.type), values)
