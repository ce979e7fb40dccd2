"""Random terms: columns, literals, casts and functions, each as SQL and as a function of a row.

The meaning of a cast is that of a projection over all rows, from exact arithmetic: a number loses its fraction when it
becomes an integer, a decimal of a smaller scale is rounded half away from zero, a time loses what its unit does not
hold, and a date its time of day. What does not fit is null for TRY_CAST; for CAST it is :class:`UndefinedError`, and no
way to evaluate the predicate is compared.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

from tests.adversarial.random_predicates.kinds import DAY_NS, EPOCH, NS, Kind, instant_text, single

Row = dict[str, Any]


class UndefinedError(Exception):
    """The engine may refuse to evaluate it for this row."""


@dataclass(frozen=True)
class Term:
    """A value of a row: SQL, the family of its values, and its meaning. ``column`` is set for a plain column."""

    sql: str
    family: str
    of: Callable[[Row], Any]
    column: Kind | None = None
    unit_ns: int = 1


def column(kind: Kind) -> Term:
    """Return a plain column; columns have the names of their kinds."""
    return Term(kind.name, kind.family, lambda row: row[kind.name], kind, kind.unit_ns)


def literal(kind: Kind, value: Any) -> Term:
    """Return a literal of the kind."""
    return Term(kind.literal(value), kind.family, lambda _: value, unit_ns=kind.unit_ns)


def known(operand: Term, meaning: Callable[[Any], Any]) -> Callable[[Row], Any]:
    """Return the meaning of a function that is null for null."""

    def of(row: Row) -> Any:
        value = operand.of(row)
        return None if value is None else meaning(value)

    return of


def term(chance: Random, kinds: list[Kind]) -> Term:
    """Return a random term that names one of the columns."""
    base = column(chance.choice(kinds))
    steps = chance.choices((0, 1, 2), (5, 6, 1))[0]
    for _ in range(steps):
        base = (cast if chance.random() < 0.6 else applied)(chance, base)
    return base


# -- casts ------------------------------------------------------------------------------------------------------

_INT_TYPES = {
    "TINYINT": (-(2**7), 2**7 - 1, "Int8"), "SMALLINT": (-(2**15), 2**15 - 1, "Int16"),
    "INT": (-(2**31), 2**31 - 1, "Int32"), "BIGINT": (-(2**63), 2**63 - 1, "Int64"),
    "BIGINT UNSIGNED": (0, 2**64 - 1, "UInt64"),
}  # fmt: skip


def cast(chance: Random, operand: Term) -> Term:
    """Return a cast of the term to another type; the term itself if there is none."""
    found = _CASTS.get(operand.family)
    if found is None:
        return operand
    sql, family, unit_ns, meaning = chance.choice(found)(chance, operand)
    form = chance.choice(("CAST", "TRY_CAST", "TRY_CAST", "::"))
    text = f"({operand.sql})::{sql}" if form == "::" else f"{form}({operand.sql} AS {sql})"
    if sql in ("Timestamp(Second, None)", "Timestamp(Millisecond, None)"):
        text = f"arrow_cast({operand.sql}, '{sql}')"
        form = "CAST"

    def tried(value: Any) -> Any:
        made = meaning(value)
        if made is None and form != "TRY_CAST":
            raise UndefinedError
        return made

    return Term(text, family, known(operand, tried), unit_ns=unit_ns)


Cast = tuple[str, str, int, Callable[[Any], Any]]
"""The type in SQL, its family and unit, and the meaning: None for a value that does not fit."""


def _to_int(chance: Random, operand: Term) -> Cast:
    name = chance.choice(tuple(_INT_TYPES))
    least, greatest, _ = _INT_TYPES[name]

    def meaning(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        whole = math.trunc(value) if not isinstance(value, bool) else int(value)
        return whole if least <= whole <= greatest else None

    return name, "int", 1, meaning


def _to_decimal(chance: Random, operand: Term) -> Cast:
    precision, scale = chance.choice(((10, 0), (10, 1), (12, 2), (3, 0), (20, 4)))

    def meaning(value: Any) -> Any:
        scaled = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        return scaled if abs(scaled) < 10 ** (precision - scale) else None

    return f"DECIMAL({precision},{scale})", "decimal", 1, meaning


def _to_double(chance: Random, operand: Term) -> Cast:
    return "DOUBLE", "float", 1, float


def _to_real(chance: Random, operand: Term) -> Cast:
    return "REAL", "float", 1, single


def _to_bool(chance: Random, operand: Term) -> Cast:
    return "BOOLEAN", "bool", 1, bool


def _text_to_int(chance: Random, operand: Term) -> Cast:
    name = chance.choice(("TINYINT", "INT", "BIGINT"))
    least, greatest, _ = _INT_TYPES[name]

    def meaning(text: str) -> Any:
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and least <= int(text) <= greatest else None

    return name, "int", 1, meaning


def _to_text(chance: Random, operand: Term) -> Cast:
    said: dict[str, Callable[[Any], str]] = {
        "bool": lambda value: str(value).lower(),
        "date": lambda value: str(EPOCH.date() + dt.timedelta(value)),
        "int": str,
        "decimal": str,
        "text": str,
    }
    return "VARCHAR", "text", 1, said[operand.family]


def _to_date(chance: Random, operand: Term) -> Cast:
    return "DATE", "date", 1, lambda value: value // DAY_NS


def _to_time(chance: Random, operand: Term) -> Cast:
    return "TIME", "time", 1, lambda value: value % DAY_NS


def _to_coarser(chance: Random, operand: Term) -> Cast:
    """Return a cast to whole seconds; it drops the rest, toward 1970, as the engine does in a projection."""
    return "Timestamp(Second, None)", "instant", NS, lambda value: math.trunc(Decimal(value) / NS) * NS


def _to_instant(chance: Random, operand: Term) -> Cast:
    return "TIMESTAMP", "instant", 1, lambda value: value * DAY_NS


_CASTS: dict[str, tuple[Callable[[Random, Term], Cast], ...]] = {
    "int": (_to_int, _to_int, _to_decimal, _to_double, _to_bool, _to_text),
    "decimal": (_to_int, _to_int, _to_decimal, _to_decimal, _to_double),
    "float": (_to_int, _to_bool, _to_double, _to_real),
    "text": (_text_to_int,),
    "bool": (_to_int, _to_text),
    "date": (_to_text, _to_instant),
    "instant": (_to_date, _to_date, _to_time, _to_time, _to_coarser),
}

# -- functions --------------------------------------------------------------------------------------------------


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def applied(chance: Random, operand: Term) -> Term:
    """Return a function of the term; the term itself if there is none for its family."""
    found = _FUNCTIONS.get(operand.family)
    return operand if found is None else chance.choice(found)(chance, operand)


def _arithmetic(chance: Random, operand: Term) -> Term:
    if "u64" in operand.sql or "UNSIGNED" in operand.sql:
        # Their sums are of several types.
        return operand
    number = chance.choice((1, 2, 3, 7))
    meanings: dict[str, Callable[[int], int]] = {
        "+": lambda value: _wrapped(value + number),
        "-": lambda value: _wrapped(value - number),
        "*": lambda value: _wrapped(value * number),
        "/": lambda value: abs(value) // number * (1 if value > 0 else -1),
        "%": lambda value: int(math.fmod(value, number)) if abs(value) < 2**53 else _rest(value, number),
    }
    sign = chance.choice(tuple(meanings))
    return Term(f"({operand.sql} {sign} {number})", "int", known(operand, meanings[sign]))


def _rest(value: int, number: int) -> int:
    return abs(value) % number * (1 if value > 0 else -1)


def _absolute(chance: Random, operand: Term) -> Term:
    return Term(f"abs({operand.sql})", operand.family, known(operand, abs))


def _floor(chance: Random, operand: Term) -> Term:
    def floor(value: Any) -> Any:
        if isinstance(value, float):
            return value if not math.isfinite(value) else float(math.floor(value))
        if abs(math.floor(value)) >= 10**8:
            # It does not fit the type, which is the operand's.
            raise UndefinedError
        return Decimal(math.floor(value))

    return Term(f"floor({operand.sql})", operand.family, known(operand, floor))


def _case(chance: Random, operand: Term) -> Term:
    name = chance.choice(("upper", "lower"))
    return Term(f"{name}({operand.sql})", "text", known(operand, str.upper if name == "upper" else str.lower))


def _length(chance: Random, operand: Term) -> Term:
    return Term(f"length({operand.sql})", "int", known(operand, len))


def _joined(chance: Random, operand: Term) -> Term:
    return Term(f"({operand.sql} || 'a')", "text", known(operand, lambda text: text + "a"))


def _calendar(value: int, family: str) -> dt.datetime:
    return EPOCH + (dt.timedelta(value) if family == "date" else dt.timedelta(microseconds=value // 1000))


def _part(chance: Random, operand: Term) -> Term:
    name = chance.choice(("year", "month", "day", *(() if operand.family == "date" else ("hour",))))

    def part(value: int) -> int:
        return int(getattr(_calendar(value, operand.family), name))

    return Term(f"date_part('{name}', {operand.sql})", "int", known(operand, part))


def _truncated(chance: Random, operand: Term) -> Term:
    unit = chance.choice(("day", "month", "year", "hour"))

    def truncated(value: int) -> int:
        at = _calendar(value, "instant").replace(minute=0, second=0, microsecond=0)
        if unit != "hour":
            at = at.replace(hour=0, day=at.day if unit == "day" else 1, month=1 if unit == "year" else at.month)
        return (at - EPOCH) // dt.timedelta(microseconds=1) * 1000

    return Term(f"date_trunc('{unit}', {operand.sql})", "instant", known(operand, truncated), unit_ns=operand.unit_ns)


def _or_else(chance: Random, operand: Term) -> Term:
    kind = operand.column
    if kind is None or kind.name == "u64":
        # The engine makes a decimal of unsigned and other numbers.
        return operand
    value = chance.choice(kind.contents)

    def of(row: Row) -> Any:
        found = operand.of(row)
        return value if found is None else found

    return Term(f"coalesce({operand.sql}, {_exact(kind, value)})", operand.family, of, unit_ns=operand.unit_ns)


def _null_if(chance: Random, operand: Term) -> Term:
    kind = operand.column
    if kind is None or kind.family == "float" or kind.name == "u64":
        return operand
    value = chance.choice(kind.contents)
    return Term(
        f"nullif({operand.sql}, {_exact(kind, value)})",
        operand.family,
        known(operand, lambda found: None if found == value else found),
        unit_ns=operand.unit_ns,
    )


def _exact(kind: Kind, value: Any) -> str:
    """Return a literal of exactly the type of the kind's column."""
    if kind.family == "decimal":
        return f"CAST('{value}' AS DECIMAL(10,2))"
    if kind.family in ("instant", "time"):
        text = instant_text(value) if kind.family == "instant" else kind.literal(value).partition(" ")[2].strip("'")
        return f"arrow_cast('{text}', '{_arrow_name(kind)}')"
    return kind.literal(value)


def _arrow_name(kind: Kind) -> str:
    if kind.family == "time":
        return "Time64(Microsecond)"
    unit = {1: "Nanosecond", 1000: "Microsecond", 1_000_000: "Millisecond", NS: "Second"}[kind.unit_ns]
    zone = "None" if kind.arrow.tz is None else 'Some("UTC")'
    return f"Timestamp({unit}, {zone})"


_FUNCTIONS: dict[str, tuple[Callable[[Random, Term], Term], ...]] = {
    "int": (_arithmetic, _arithmetic, _or_else, _null_if),
    "decimal": (_absolute, _floor, _or_else, _null_if),
    "float": (_absolute, _floor, _or_else),
    "text": (_case, _length, _joined, _or_else, _null_if),
    "bool": (_or_else, _null_if),
    "date": (_part, _or_else, _null_if),
    "instant": (_part, _truncated, _or_else, _null_if),
    "bytes": (_or_else,),
}
