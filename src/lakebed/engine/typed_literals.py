"""Writes the constants that SQL compares with UUID and decimal columns as values of these types. Pure.

The engine represents UUIDs as 16 bytes, and cannot compare text with them: ``id = '6f9619ff-…'`` becomes ``id =
X'6f9619ff…'``.

It reads a number with a point as a double, and compares a decimal with a double as doubles, whose last bits differ:
``price = 7228510.96`` would find no row. It becomes ``price = CAST('7228510.96' AS DECIMAL(9, 2))``, which is exact.
(An option makes all such numbers decimals, but then ``coalesce(x, 0.0)`` turns doubles into decimals and loses digits.)

Constants of ``IN (…)`` and ``BETWEEN … AND …`` are rewritten too. Only a text in the form of a UUID and a number with a
point and without an exponent are, and only beside a name.

*What a name means* decides. In an expression over one row it is a column, or a member of a struct
(:func:`with_typed_literals`). In a statement one name may be a column of several tables, of a subquery, or an alias, so
the engine says its type (:func:`with_resolved_literals`): the constant is replaced by a comparison of the name with
bytes of a length that no column has, and the engine's message has the types that it cannot compare. Constants beside
one name in one clause of one query are asked for once.
"""

from __future__ import annotations

import re
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lakebed.engine.compared_columns import compared_name, name_of_token, openings
from lakebed.engine.tokens import Token, tokens_of
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_UUID = re.compile(r"'([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})'")
_NUMBER = re.compile(r"(\d*)\.(\d+)")
_DIGITS_MAX = {128: 38, 256: 76}
"""The maximum digits of a decimal, by its width in bits."""

_PROBE_BYTES = 2**31 - 1
_PROBE = f"CASE WHEN {{}} = arrow_cast(NULL, 'FixedSizeBinary({_PROBE_BYTES})') THEN NULL END"
"""An expression that is compared with any type, but contains a comparison that the engine refuses."""

_REFUSED = re.compile(rf"comparison operation (.+) = FixedSizeBinary\({_PROBE_BYTES}\)")
_ENGINE_DECIMAL = re.compile(r"Decimal(128|256)\((\d+), (-?\d+)\)")
_ENGINE_UUID = "FixedSizeBinary(16)"

_CLAUSES = frozenset(
    {"select", "from", "where", "group", "having", "qualify", "window", "order", "on", "union", "except", "intersect"}
)


class _Constant(NamedTuple):
    """A constant beside a name: what it matches, its place in the text, the name, and the clause of the name."""

    found: re.Match[str]
    start: int
    end: int
    name: tuple[Token, ...]
    clause: tuple[int, int]

    def written(self, text: str) -> str:
        """Return its name as the text has it."""
        return text[self.name[0].start : self.name[-1].end]


def with_typed_literals(text: str, schema: pa.Schema) -> str:
    """Return an expression over one row of these columns, with such constants in the types that they are compared
    with.
    """
    literals = []
    for constant in _constants(text, [schema]):
        literal = _typed_literal(constant.found, _type_in(schema, constant.name))
        literals += [] if literal is None else [(constant, literal)]
    return _replaced(text, literals)


def with_resolved_literals(text: str, schemas: Sequence[pa.Schema], refusal: Callable[[str], str]) -> str:
    """Return a statement over tables of these columns, with such constants in the types that they are compared with.

    ``refusal`` plans a statement, and returns the engine's message if it refuses it; empty if it does not.
    """
    constants = list(_constants(text, schemas))
    literals: list[tuple[_Constant, str]] = []

    def place(one: _Constant) -> tuple[str, tuple[int, int]]:
        return one.written(text), one.clause

    for _, group in groupby(sorted(constants, key=place), place):
        same = list(group)
        asked = [(same[0], _PROBE.format(same[0].written(text)))]
        rest = [(one, "NULL") for one in constants if one is not same[0]]
        refused = _REFUSED.search(refusal(_replaced(text, [*asked, *rest])))
        kind = None if refused is None else _type_of_engine(refused[1])
        for one in same:
            literal = _typed_literal(one.found, kind)
            literals += [] if literal is None else [(one, literal)]
    return _replaced(text, literals)


def _constants(text: str, schemas: Iterable[pa.Schema]) -> Iterator[_Constant]:
    """Return the constants beside names that a column of these schemas may require to be rewritten."""
    if not (_UUID.search(text) or _NUMBER.search(text)):
        return
    kinds = [kind for schema in schemas for field in schema for kind in _inside(field.type)]
    uuids, decimals = UUID in kinds, any(map(pa.types.is_decimal, kinds))
    if not (uuids or decimals):
        return
    tokens = _without_minus(list(tokens_of(text)))
    opened = openings(tokens)
    clauses = _clauses(tokens, opened)
    for at, token in enumerate(tokens):
        found = (_UUID if token.kind == "text" else _NUMBER).fullmatch(token.text)
        if found is None or not (uuids if found.re is _UUID else decimals):
            continue
        name = compared_name(tokens, opened[at], at)
        if name is not None:
            yield _Constant(found, token.start, token.end, tuple(tokens[i] for i in name), clauses[name[0]])


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
        kind = next((field.type for field in fields if field.name == name_of_token(token)), None)
        if kind is None:
            return None
        fields = kind if pa.types.is_struct(kind) else ()
    return kind


def _type_of_engine(text: str) -> pa.DataType | None:
    """Return the type of the engine's name for it, if it is one that constants are rewritten for."""
    if text == _ENGINE_UUID:
        return UUID
    found = _ENGINE_DECIMAL.fullmatch(text)
    if found is None:
        return None
    return (pa.decimal128 if found[1] == "128" else pa.decimal256)(int(found[2]), int(found[3]))


def _typed_literal(found: re.Match[str], kind: pa.DataType | None) -> str | None:
    """Return the constant as a value of a column's type; None if it is unchanged."""
    if found.re is _UUID:
        return f"X'{''.join(found.groups())}'" if kind == UUID else None
    if kind is None or not pa.types.is_decimal(kind):
        return None
    whole, fraction = found.groups()
    # The engine compares both as decimals with the digits of either, and fails if these are too many.
    digits = max(kind.precision - kind.scale, len(whole)) + max(kind.scale, len(fraction))
    if digits > _DIGITS_MAX[kind.bit_width]:
        return None
    return f"CAST('{whole or 0}.{fraction}' AS DECIMAL({len(whole) + len(fraction)}, {len(fraction)}))"


def _replaced(text: str, literals: Iterable[tuple[_Constant, str]]) -> str:
    """Return the text with other literals in place of some constants."""
    pieces, done = [], 0
    for constant, literal in sorted(literals, key=lambda pair: attrgetter("start")(pair[0])):
        pieces += [text[done : constant.start], literal]
        done = constant.end
    return "".join([*pieces, text[done:]])


def _without_minus(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens without the signs of negative numbers, which are between a constant and its comparison."""
    return [token for at, token in enumerate(tokens) if not (token.text == "-" and _is_sign(tokens, at))]


def _is_sign(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the minus at this index is the sign of a number: no operand before it could be subtracted from."""
    before = tokens[at - 1] if at else None
    return before is None or before.text in "=<>!(," or any(map(before.says, ("between", "and", "or", "from")))
