"""Writes the constants that SQL compares with UUID and decimal columns as values of these types. Pure.

DataFusion 55 represents UUIDs as 16 bytes, and cannot compare text with them: ``id = '6f9619ff-…'`` becomes ``id =
X'6f9619ff…'``.

It reads a number with a point as a double, and compares a decimal with a double as doubles, whose last bits differ:
``price = 7228510.96`` would find no row. It becomes ``price = CAST('7228510.96' AS DECIMAL(9, 2))``, which is exact.
(An option makes all such numbers decimals, but then ``coalesce(x, 0.0)`` turns doubles into decimals and loses digits.)

It reads ``TIME '…'`` in nanoseconds, and compares no times of different units.

A time that is finer than the unit of a timestamp column would be cut to this unit (its issue 22142): ``at >= TIMESTAMP
'….0005'`` would find a row at ``….000`` in milliseconds. The column is compared in nanoseconds instead.

It finds a float in a list, also one that it makes of several ``x = …`` joined by OR, by its bits, and those of the two
zeros differ. There, ``x = 0`` becomes ``(x + 0.0) = 0 + 0.0``, in which no zero is negative.

Constants of ``IN (…)`` and ``BETWEEN … AND …`` are rewritten too. Only a text in the form of a UUID or of a time with a
fraction, a number with a point and without an exponent, zero, and ``TIME '…'`` and ``TIMESTAMP '…'`` are, and only
beside a name.

*What a name means* decides. In an expression over one row it is a column, or a member of a struct
(:func:`with_typed_literals`). In a statement one name may be a column of several tables, of a subquery, or an alias, so
the engine says its type (:func:`with_resolved_literals`): the constant is replaced by a comparison of the name with
bytes of a length that no column has, and the engine's message has the types that it cannot compare. Constants beside
one name in one clause of one query are asked for once; in a statement of one SELECT over tables, a name in WHERE is a
column without asking.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lakebed.engine.compared_columns import compared_name, openings
from lakebed.engine.tokens import Token, tokens_of
from lakebed.engine.workarounds.opaque_casts import HIDING
from lakebed.model.moments import PER_SECOND
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_UUID = re.compile(r"'([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})'")
_NUMBER = re.compile(r"(\d*)\.(\d+)")
_ZERO = re.compile(r"0+(?:\.0*)?|\.0+")
_TIME = re.compile(r"time\s*'(\d\d?:\d\d(?::\d\d)?(?:\.(\d+))?)'", re.IGNORECASE)
_INSTANT = re.compile(r"(?:timestamp\s*)?'[^']*\d:\d\d:\d\d\.(\d+)[^']*'", re.IGNORECASE)
_JOINED = re.compile(r"\b(?:or|in)\b", re.IGNORECASE)
"""Words without which the engine makes no list."""

_DIGITS_MAX = {128: 38, 256: 76}
"""The maximum digits of a decimal, by its width in bits."""

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}

_PROBE_BYTES = 2**31 - 1
_PROBE = f"CASE WHEN {{}} = arrow_cast(NULL, 'FixedSizeBinary({_PROBE_BYTES})') THEN NULL END"
"""An expression that is compared with any type, but contains a comparison that the engine refuses."""

_REFUSED = re.compile(rf"comparison operation (.+) = FixedSizeBinary\({_PROBE_BYTES}\)")
_ENGINE_DECIMAL = re.compile(r"Decimal(128|256)\((\d+), (-?\d+)\)")
_ENGINE_UUID = "FixedSizeBinary(16)"
_ENGINE_TIME = re.compile(r'(Time32|Time64|Timestamp)\((s|ms|µs|ns)(?:, "([^"]*)")?\)')
_ENGINE_NUMBERS = {
    "Float32": pa.float32(), "Float64": pa.float64(),
    **{f"{sign}Int{bits}": pa.int64() for sign in ("", "U") for bits in (8, 16, 32, 64)},
}  # fmt: skip

_CLAUSES = frozenset(
    {"select", "from", "where", "group", "having", "qualify", "window", "order", "on", "union", "except", "intersect"}
)


_NOT_ALONE = frozenset(
    {"with", "values", "union", "except", "intersect", "lateral", "unnest", "pivot", "information_schema"}
)
"""Words without which a statement of one SELECT has only columns of its tables in WHERE and ON."""


class _Constant(NamedTuple):
    """A constant beside a name: what it matches, its place in the text, the name, and the clause of the name."""

    found: re.Match[str]
    start: int
    end: int
    name: tuple[Token, ...]
    clause: tuple[int, int]
    keyword: str
    """The first word of the clause."""

    @property
    def range(self) -> tuple[int, int]:
        """Return its place as a range."""
        return self.start, self.end

    def written(self, text: str) -> str:
        """Return its name as the text has it."""
        return text[self.name[0].start : self.name[-1].end]


def with_typed_literals(text: str, schema: pa.Schema) -> str:
    """Return an expression over one row of these columns, with such constants in the types that they are compared
    with.
    """
    changes: dict[tuple[int, int], str] = {}
    for constant in _constants(text, [schema]):
        changes |= _changes(text, constant, _type_in(schema, constant.name))
    return _replaced(text, changes)


def with_resolved_literals(text: str, schemas: Sequence[pa.Schema], refusal: Callable[[str], str]) -> str:
    """Return a statement over tables of these columns, with such constants in the types that they are compared with.

    ``refusal`` plans a statement, and returns the engine's message if it refuses it; empty if it does not.
    """
    constants = list(_constants(text, schemas))
    columns = _columns_alone(text, schemas) if constants else {}
    changes: dict[tuple[int, int], str] = {}

    def place(one: _Constant) -> tuple[str, tuple[int, int]]:
        return one.written(text), one.clause

    for _, group in groupby(sorted(constants, key=place), place):
        same = list(group)
        if (known := columns.get(_column_of(same[0]) or "")) is not None:
            for one in same:
                changes |= _changes(text, one, known)
            continue
        asked = {one.range: "NULL" for one in constants} | {same[0].range: _PROBE.format(same[0].written(text))}
        refused = _REFUSED.search(refusal(_replaced(text, asked)))
        kind = None if refused is None else _type_of_engine(refused[1])
        for one in same:
            changes |= _changes(text, one, kind)
    return _replaced(text, changes)


def _columns_alone(text: str, schemas: Sequence[pa.Schema]) -> dict[str, pa.DataType]:
    """Return the types of the names that are a column in WHERE and ON, whatever else the statement has: those of one
    query over tables, in which they have one type.
    """
    tokens = list(tokens_of(text))
    words = [token.text.lower() for token in tokens if token.kind == "word"]
    clauses = _clauses(tokens, openings(tokens))
    derived = any(
        token.text == "(" and at >= 0 and tokens[at].says("from")
        for token, (_, at) in zip(tokens, clauses, strict=True)
    )
    if words.count("select") != 1 or derived or not _NOT_ALONE.isdisjoint(words):
        return {}
    kinds: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            kinds.setdefault(field.name, set()).add(field.type)
    return {name: one.pop() for name, one in kinds.items() if len(one) == 1}


def _column_of(constant: _Constant) -> str | None:
    """Return the column that a name without a qualifier means in WHERE or ON, if no query is around."""
    if constant.keyword not in ("where", "on") or len(constant.name) > 1:
        return None
    return constant.name[0].name


def _constants(text: str, schemas: Iterable[pa.Schema]) -> Iterator[_Constant]:
    """Return the constants beside names that a column of these schemas may require to be rewritten."""
    patterns = [pattern for pattern in _KINDS if pattern.search(text)]
    if not patterns:
        return
    kinds = [kind for schema in schemas for field in schema for kind in _inside(field.type)]
    patterns = [pattern for pattern in patterns if any(map(_KINDS[pattern], kinds))]
    if _ZERO in patterns and not _JOINED.search(text):
        patterns.remove(_ZERO)
    if not patterns:
        return
    tokens = _joined(text, _without_minus(list(tokens_of(text))))
    opened = openings(tokens)
    clauses = _clauses(tokens, opened)
    for at, token in enumerate(tokens):
        if token.kind not in ("text", "number", "decimal"):
            continue
        found = next((found for pattern in patterns if (found := pattern.fullmatch(token.text))), None)
        name = None if found is None else compared_name(tokens, opened[at], at)
        if found is not None and name is not None:
            clause = clauses[name[0]]
            keyword = tokens[clause[1]].text.lower() if clause[1] >= 0 else ""
            yield _Constant(found, token.start, token.end, tuple(tokens[i] for i in name), clause, keyword)


def _joined(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with ``TIME '…'`` and ``TIMESTAMP '…'`` as one of the kind text."""
    found: list[Token] = []
    for token in tokens:
        before = found[-1] if token.kind == "text" and found and found[-1].kind == "word" else None
        if before is not None and (before.says("time") or before.says("timestamp")) and _is_alone(found):
            found[-1] = Token("text", text[before.start : token.end], before.start)
        else:
            found.append(token)
    return found


def _is_alone(tokens: Sequence[Token]) -> bool:
    """Return whether the last token is no name with a qualifier."""
    return len(tokens) < 2 or tokens[-2].text != "."


def _clauses(tokens: Sequence[Token], opened: Sequence[int]) -> list[tuple[int, int]]:
    """Return for each token its innermost open parenthesis and the last keyword of a clause inside it: a name means the
    same throughout a clause of a query.
    """
    found, last = [], dict.fromkeys(opened, -1)
    for at, (token, opening) in enumerate(zip(tokens, opened, strict=True)):
        if token.kind == "word" and token.text.lower() in _CLAUSES:
            last[opening] = at
        found.append((opening, last[opening]))
    return found


def _inside(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Return a type and those inside it."""
    yield kind
    for index in range(kind.num_fields):
        yield from _inside(kind.field(index).type)


def _type_in(schema: pa.Schema, name: Sequence[Token]) -> pa.DataType | None:
    """Return the type of a column, or of a member of a struct; None if there is none of that name."""
    fields: Iterable[pa.Field] = schema
    kind = None
    for token in name:
        if token.text == ".":
            continue
        kind = next((field.type for field in fields if field.name == token.name), None)
        if kind is None:
            return None
        fields = kind if pa.types.is_struct(kind) else ()
    return kind


def _type_of_engine(text: str) -> pa.DataType | None:
    """Return the type of the engine's name for it, if it is one that constants are rewritten for."""
    if text == _ENGINE_UUID:
        return UUID
    found = _ENGINE_TIME.fullmatch(text)
    if found is not None:
        unit = found[2].replace("µ", "u")
        kinds = {"Time32": pa.time32, "Time64": pa.time64}
        return kinds[found[1]](unit) if found[1] in kinds else pa.timestamp(unit, found[3])
    found = _ENGINE_DECIMAL.fullmatch(text)
    if found is None:
        return _ENGINE_NUMBERS.get(text)
    return (pa.decimal128 if found[1] == "128" else pa.decimal256)(int(found[2]), int(found[3]))


def _changes(text: str, constant: _Constant, kind: pa.DataType | None) -> dict[tuple[int, int], str]:
    """Return what takes the place of a constant, and of the name, for a column of a type."""
    if kind is None:
        return {}
    found, name = constant.found, (constant.name[0].start, constant.name[-1].end)
    if found.re is _UUID:
        return {constant.range: f"X'{''.join(found.groups())}'"} if kind == UUID else {}
    if found.re is _TIME:
        if not pa.types.is_time(kind) or _is_finer(found[2], kind):
            return {}
        return {constant.range: f"arrow_cast('{found[1]}', 'Time{kind.bit_width}({_UNITS[kind.unit]})')"}
    if found.re is _INSTANT:
        if not pa.types.is_timestamp(kind) or not _is_finer(found[1], kind):
            return {}
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return {name: f"{HIDING}(arrow_cast({constant.written(text)}, 'Timestamp(Nanosecond, {zone})'))"}
    if pa.types.is_decimal(kind):
        number = _NUMBER.fullmatch(found[0])
        literal = None if number is None else _decimal_literal(number[1], number[2], kind)
        return {} if literal is None else {constant.range: literal}
    if found.re is not _ZERO or not (pa.types.is_floating(kind) or "." in found[0]):
        return {}
    # Not negative with a minus before it, either.
    positive = {constant.range: "0 + 0.0"}
    return positive | ({name: f"({constant.written(text)} + 0.0)"} if pa.types.is_floating(kind) else {})


def _is_finer(fraction: str | None, kind: pa.DataType) -> bool:
    """Return whether a fraction of a second is finer than the unit of a type."""
    return bool(10 ** len((fraction or "").rstrip("0")) > PER_SECOND[kind.unit])


def _decimal_literal(whole: str, fraction: str, kind: pa.DataType) -> str | None:
    """Return a number as a decimal; None if it is unchanged."""
    # The engine compares both as decimals with the digits of either, and fails if these are too many.
    digits = max(kind.precision - kind.scale, len(whole)) + max(kind.scale, len(fraction))
    if digits > _DIGITS_MAX[kind.bit_width]:
        return None
    return f"CAST('{whole or 0}.{fraction}' AS DECIMAL({len(whole) + len(fraction)}, {len(fraction)}))"


def _replaced(text: str, changes: Mapping[tuple[int, int], str]) -> str:
    """Return the text with others in place of some ranges."""
    pieces, done = [], 0
    for (start, end), piece in sorted(changes.items()):
        pieces += [text[done:start], piece]
        done = end
    return "".join([*pieces, text[done:]])


_KINDS: dict[re.Pattern[str], Callable[[pa.DataType], bool]] = {
    _UUID: lambda kind: kind == UUID,
    _TIME: pa.types.is_time,
    _INSTANT: lambda kind: pa.types.is_timestamp(kind) and kind.unit != "ns",
    _ZERO: pa.types.is_floating,
    _NUMBER: pa.types.is_decimal,
}
"""The constants that are rewritten, each with whether a type may require it. The first that matches counts."""


def _without_minus(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens without the signs of negative numbers, which are between a constant and its comparison."""
    return [token for at, token in enumerate(tokens) if not (token.text == "-" and _is_sign(tokens, at))]


def _is_sign(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the minus at this index is the sign of a number: no operand before it could be subtracted from."""
    before = tokens[at - 1] if at else None
    return before is None or before.text in "=<>!(," or any(map(before.says, ("between", "and", "or", "from")))
