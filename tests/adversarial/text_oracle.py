"""What a text means as a value of a type: by exact arithmetic of Python, without Arrow, DataFusion or Lakebed.

:func:`meaning` reads every form that a cast accepts; :func:`is_usual` says which of them need no cast. Values are
integers, fractions, booleans and, for times, the integer that a column stores.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
FLOATS = {"halffloat": (11, -24, 65504), "float": (24, -149, None), "double": (53, -1074, None)}
"""The digits of the fraction, the exponent of the smallest number, and the largest number if it is short to write."""

_DIGITS = "0123456789"
_TRUE, _FALSE = {"true", "t", "yes", "y", "on", "1"}, {"false", "f", "no", "n", "off", "0"}


@dataclass(frozen=True)
class Number:
    """The sign and the exact value of a number, and whether it is written without a point and an exponent."""

    value: Fraction
    whole: bool


def number(text: str) -> Number | None:
    """Read a number of ASCII digits."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    mantissa, mark, exponent = rest.replace("E", "e").partition("e")
    before, point, after = mantissa.partition(".")
    if not (before + after) or any(c not in _DIGITS for c in before + after):
        return None
    power = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if mark and (not power or any(c not in _DIGITS for c in power)):
        return None
    scale = (-int(power) if exponent.startswith("-") else int(power)) if mark else 0
    digits = int(before + after)
    if abs(scale) > 5_000:
        value = Fraction(0) if digits == 0 else Fraction(digits) * Fraction(10) ** (5_000 if scale > 0 else -5_000)
    else:
        value = Fraction(digits, 10 ** len(after)) * Fraction(10) ** scale
    return Number(-value if text.startswith("-") else value, not point and not mark)


def nearest(value: Fraction, kind: str) -> Fraction | None:
    """Return the nearest number of a float type, ties to even; None beyond its range."""
    digits, least, _ = FLOATS[kind]
    if value == 0:
        return Fraction(0)
    size = abs(value)
    power = max(math.floor(math.log2(size.numerator) - math.log2(size.denominator)) - digits - 1, least)
    while size >= Fraction(2) ** (power + digits):
        power += 1
    units = size / Fraction(2) ** power
    lower = math.floor(units)
    rest = units - lower
    chosen = lower + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and lower % 2 == 1))
    found = chosen * Fraction(2) ** power
    largest = {"halffloat": 15, "float": 127, "double": 1023}[kind]
    if found >= Fraction(2) ** (largest + 1):
        return None
    return -found if value < 0 else found


def shortest(value: Fraction, kind: str) -> int:
    """Return the whole number of the fewest digits, followed by zeros, that becomes this whole number as a float."""
    size = int(abs(value))
    for zeros in range(len(str(size)), -1, -1):
        below = size - size % 10**zeros
        found = [one for one in (below, below + 10**zeros) if nearest(Fraction(one), kind) == size]
        if found:
            return min(found, key=lambda one: abs(one - size)) * (-1 if value < 0 else 1)
    raise AssertionError(value)


def meaning(text: str, kind: str) -> object:
    """Return the value of a text as a type; None if it has none, or not exactly."""
    if kind == "bool":
        word = text.lower() if text.isascii() else text
        return True if word in _TRUE else False if word in _FALSE else None
    if kind in BITS or kind.startswith("uint"):
        return _integer(text, kind)
    if kind in FLOATS:
        return _float(text, kind)
    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", kind)[-2:])
        found = number(text)
        fits = found and (found.value * 10**scale).denominator == 1 and abs(found.value) * 10**scale < 10**precision
        return found.value if found and fits else None
    if kind == "date32":
        found = _days(text)
        return found if found is not None and -(2**31) <= found < 2**31 else None
    if kind.startswith("time"):
        return _timestamp(text, kind) if kind.startswith("timestamp") else _time_of_type(text, kind)
    raise AssertionError(kind)


def _integer(text: str, kind: str) -> int | None:
    found = number(text)
    if found is None or not found.whole:
        return None
    least, most = (0, 2 ** int(kind[4:]) - 1) if kind.startswith("u") else (-(2 ** BITS[kind]), 2 ** BITS[kind] - 1)
    return int(found.value) if least <= found.value <= most else None


def _float(text: str, kind: str) -> object:
    word = text.lower().lstrip("+-") if text.isascii() and text[:2] not in ("++", "--", "+-", "-+") else ""
    if word in ("inf", "infinity"):
        return -math.inf if text.startswith("-") else math.inf
    if word == "nan":
        return "nan"
    found = number(text)
    if found is None:
        return None
    near = nearest(found.value, kind)
    if near is None or (near == 0) != (found.value == 0):
        return None
    return None if found.whole and found.value not in (near, shortest(near, kind)) else near


def _days(text: str) -> int | None:
    """Return the days since 1970-01-01, by the algorithm of H. Hinnant for the Gregorian calendar."""
    found = re.fullmatch(r"([0-9]{4}|[+-][0-9]{4,12})-([0-9]{2})-([0-9]{2})", text)
    if not found:
        return None
    year, month, day = map(int, found.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]:
        return None
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _seconds(text: str) -> Fraction | None:
    """Return the seconds since midnight of hours, with minutes, seconds and a fraction of nine digits if it has any."""
    found = re.fullmatch(r"([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?", text)
    if not found:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    fraction = found[4] or "0"
    return hours * 3600 + minutes * 60 + seconds + Fraction(int(fraction), 10 ** len(fraction))


def _units(seconds: Fraction, unit: str, digits: str) -> int | None:
    """Return whole units; None for a fraction that is written with more digits than the unit has."""
    if len(digits) > {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]:
        return None
    return int(seconds * PER_SECOND[unit])


def _fraction(text: str) -> str:
    found = re.search(r"\.([0-9]+)", text)
    return found[1] if found else ""


def _time_of_type(text: str, kind: str) -> int | None:
    seconds = _seconds(text) if ":" in text else None
    exact = None if seconds is None else seconds * PER_SECOND[kind.partition("[")[2][:-1]]
    return int(exact) if exact is not None and exact.denominator == 1 else None


def _timestamp(text: str, kind: str) -> int | None:
    unit, _, zone = kind[len("timestamp[") : -1].partition(", tz=")
    found = re.fullmatch(r"([^ T]*)(?:[ T]([0-9:.]+))?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?", text)
    if not found or (found[3] is not None) != bool(zone) or (zone and found[2] is None):
        return None
    days, seconds = _days(found[1]), Fraction(0) if found[2] is None else _seconds(found[2])
    if days is None or seconds is None:
        return None
    offset = 0
    if found[3] not in (None, "Z"):
        hours, minutes = int(found[3][1:3]), int(found[3][-2:]) if len(found[3]) > 3 else 0
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 60 + minutes) * 60 * (-1 if found[3].startswith("-") else 1)
    at = _units(days * 86_400 + seconds - offset, unit, _fraction(text))
    return at if at is not None and -(2**63) <= at < 2**63 else None


_USUAL_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def is_usual(text: str, kind: str) -> bool:
    """Return whether a text that has a meaning has the form by which its type is detected."""
    if kind == "bool":
        return text.lower() in ("true", "false")
    if kind in FLOATS and text in ("inf", "-inf", "Infinity", "-Infinity", "nan", "NaN"):
        return True
    if kind in FLOATS and re.fullmatch(r"-?[0-9]{17,}", text):
        return False
    if kind in FLOATS or kind in BITS or kind.startswith(("uint", "decimal")):
        return _USUAL_NUMBER.fullmatch(text) is not None
    return text.count(":") == 2 if kind.startswith(("time32", "time64")) else True
