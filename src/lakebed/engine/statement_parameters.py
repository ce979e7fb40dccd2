"""Values of the parameters of a statement, written into its SQL as literals. They are ``?``, ``$1`` or ``$name``. Pure.

A literal means exactly its value, in its type, so conditions on keys limit the rows read as if the value were written
there. Core. :func:`with_parameters`, :func:`places`, :func:`literal`. Errors. UsageError.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code
from lakebed.model.checks import is_whole, shown
from lakebed.model.key_types import key_type
from lakebed.model.moments import PER_SECOND, is_missing, moment_of
from lakebed.model.types import canonical

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values in order, or by name: Python values or Arrow scalars."""

PARAMETERS_MAX = 32_767
"""Maximum parameters of a statement, to catch mistakes; PostgreSQL has about this limit as well."""


_PART_OF_WORD = re.compile(r"[\w.]")


class ParameterPlace(NamedTuple):
    """The place of a parameter: the positions in the text, and its number, from 1, or its name."""

    start: int
    end: int
    value: int | str


def places(query: str) -> list[ParameterPlace]:
    """Return the places of parameters, in order. Raises UsageError for malformed ones."""
    found: list[ParameterPlace] = []
    dollar_end = None
    for token in tokens_of(query):
        if token.kind == "sign" and token.text == "?":
            found.append(ParameterPlace(token.start, token.end, len(found) + 1))
        elif token.kind == "number" and token.start == dollar_end:
            found.append(ParameterPlace(token.start - 1, token.end, min(int(token.text[:9]), PARAMETERS_MAX + 1)))
        elif token.kind == "word" and token.start == dollar_end:
            found.append(ParameterPlace(token.start - 1, token.end, token.text))
        dollar_end = token.end if token.kind == "sign" and token.text == "$" else None
    if len({_kind(query, place) for place in found}) > 1:
        raise Code.SQL_INVALID("the statement has parameters of several kinds; use one of ?, $1 and $name")
    if any(isinstance(place.value, int) and not 1 <= place.value <= PARAMETERS_MAX for place in found):
        raise Code.SQL_INVALID(f"parameters are $1 to ${PARAMETERS_MAX}, and as many at most")
    return found


def _kind(query: str, place: ParameterPlace) -> str:
    return "name" if isinstance(place.value, str) else query[place.start]


def with_parameters(query: str, parameters: Parameters | None) -> str:
    """Return the statement with the values of its parameters. Raises UsageError unless each has a value."""
    found = places(query) if "?" in query or "$" in query else []
    if parameters is None:
        if found:
            raise Code.ARGUMENT_INVALID(
                f"the statement has the parameter {query[found[0].start : found[0].end]}; give its value: "
                "parameters=[…], or parameters={name: …} for $name"
            )
        return query
    values = _by_place(parameters)
    needed = {place.value for place in found}
    if needed - values.keys() or values.keys() - needed:
        raise Code.ARGUMENT_INVALID(
            f"the statement has {_named(needed)}, and the values are for {_named(values.keys())}; give a value for each"
        )
    return filled(query, found, {name: sql_literal(value) for name, value in values.items()})


def _by_place(parameters: Any) -> dict[int | str, Any]:
    if isinstance(parameters, Mapping):
        return dict(parameters)
    if isinstance(parameters, list | tuple):
        return dict(enumerate(parameters, 1))
    raise Code.ARGUMENT_INVALID(
        f"parameters = {shown(parameters)}: must be a list of values, or a dict of values by name"
    )


def _named(parameters: Any) -> str:
    if not parameters:
        return "no parameters"
    if all(isinstance(one, int) for one in parameters):
        return "1 parameter" if len(parameters) == 1 else f"{len(parameters):,} parameters"
    return "the parameters " + ", ".join(f"${one}" for one in sorted(map(str, parameters)))


def filled(query: str, found: Sequence[ParameterPlace], literals: Mapping[int | str, str]) -> str:
    """Return the statement with literals in its places."""
    parts, end = [], 0
    for place in found:
        # A number is no part of the word before or behind it.
        before = " " if place.start and _PART_OF_WORD.match(query[place.start - 1]) else ""
        after = " " if place.end < len(query) and _PART_OF_WORD.match(query[place.end]) else ""
        parts += [query[end : place.start], before, literals[place.value], after]
        end = place.end
    return "".join([*parts, query[end:]])


def sql_literal(value: Any) -> str:
    """Return a Python value as an SQL literal of exactly its value and type, to be put into a statement.

    Values are None, bool, int, float, Decimal, str, bytes, dates and times, UUID, and scalars of Arrow. Where a call
    takes parameters, give it those.

    Raises UsageError for a value without a literal.
    """
    try:
        if isinstance(value, dt.time) and value.tzinfo is None:
            # A literal has the unit of the column beside it, which no cast has.
            return f"TIME '{value.isoformat()}'"
        return literal(value if isinstance(value, pa.Scalar) else _scalar_of(value))
    except (pa.ArrowException, ArithmeticError, UnicodeError, TypeError) as error:
        raise Code.TYPE_UNSUPPORTED(
            f"a parameter cannot be {shown(value)}; give text, a number, a date, a time, bytes or None"
        ) from error


def _scalar_of(value: Any) -> pa.Scalar:
    """Return a Python value as one of Arrow, exactly: Arrow itself cuts nanoseconds and drops the offset of a time."""
    if is_missing(value):
        return pa.scalar(None)
    if is_whole(value, 2**63, 2**64 - 1):
        return pa.scalar(value, pa.uint64())
    if isinstance(value, dt.time) and value.tzinfo is not None:
        raise TypeError("a time has no offset")
    moment = moment_of(value)
    # Arrow has zones whose offset is whole minutes.
    offset = value.utcoffset() or dt.timedelta() if isinstance(value, dt.datetime) else dt.timedelta(seconds=1)
    if moment is None or (moment.per_second == PER_SECOND["us"] and not offset.seconds % 60):
        return pa.scalar(value)
    numbers = {unit: moment.in_units(PER_SECOND[unit]) for unit in ("us", "ns")}
    unit, number = next((unit, n) for unit, n in numbers.items() if n is not None or unit == "ns")
    if number is None:
        raise TypeError("finer than nanoseconds")
    return pa.scalar(number, pa.timestamp(unit, "UTC" if moment.zoned else None))


def literal(value: pa.Scalar) -> str:
    """Return a value as an SQL literal of exactly its value and type. Raises UsageError for a type without literals."""
    kind: pa.DataType = value.type
    if not value.is_valid:
        return "NULL"
    if pa.types.is_dictionary(kind):
        return literal(value.value)
    found = key_type(pa.float64() if pa.types.is_float16(kind) else canonical(kind))
    if found is None:
        raise Code.TYPE_UNSUPPORTED(f"a parameter cannot be of type {kind}; write the value into the statement")
    return found.literal(value)
