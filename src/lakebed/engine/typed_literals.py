"""Writes the constants that SQL compares with UUID and decimal columns as values of these types. Pure.

The engine represents UUIDs as 16 bytes, and cannot compare text with them: ``id = '6f9619ff-…'`` becomes ``id =
X'6f9619ff…'``.

It reads a number with a point as a double, and compares a decimal with a double as doubles, whose last bits differ:
``price = 7228510.96`` would find no row. It becomes ``price = CAST('7228510.96' AS DECIMAL(9, 2))``, which is exact.
(An option makes all such numbers decimals, but then ``coalesce(x, 0.0)`` turns doubles into decimals and loses digits.)

Constants of ``IN (…)`` and ``BETWEEN … AND …`` are rewritten too. Only a text in the form of a UUID and a number with a
point and without an exponent are, and only beside the bare or qualified name of such a column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.compared_columns import compared_column, openings
from lakebed.engine.tokens import Token, tokens_of
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UUID = re.compile(r"'([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})'")
_NUMBER = re.compile(r"(\d*)\.(\d+)")
_DIGITS_MAX = {128: 38, 256: 76}
"""The maximum digits of a decimal, by its width in bits."""


def with_typed_literals(text: str, schemas: Iterable[pa.Schema]) -> str:
    """Return the statement or the expression over tables of these columns, with such constants in their column's
    type.
    """
    columns = _typed_columns(schemas)
    if not columns or not (_UUID.search(text) or _NUMBER.search(text)):
        return text
    tokens = _without_minus(list(tokens_of(text)))
    pieces, done = [], 0
    for at, (token, opening) in enumerate(zip(tokens, openings(tokens), strict=True)):
        found = (_UUID if token.kind == "text" else _NUMBER).fullmatch(token.text)
        types = columns.get(compared_column(tokens, opening, at) or "", ()) if found else ()
        literals = {_typed_literal(found, kind) for kind in types} if found else set()
        if len(literals) == 1 and (literal := literals.pop()) is not None:
            pieces += [text[done : token.start], literal]
            done = token.end
    return "".join([*pieces, text[done:]])


def _typed_columns(schemas: Iterable[pa.Schema]) -> dict[str, set[pa.DataType]]:
    """Return the types of each name that is a UUID or a decimal in some table."""
    columns: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            columns.setdefault(field.name, set()).add(field.type)
    return {name: kinds for name, kinds in columns.items() if any(map(_is_rewritten, kinds))}


def _is_rewritten(kind: pa.DataType) -> bool:
    return bool(kind == UUID or pa.types.is_decimal(kind))


def _typed_literal(found: re.Match[str], kind: pa.DataType) -> str | None:
    """Return the constant as a value of a column's type; None if it is unchanged."""
    if found.re is _UUID:
        return f"X'{''.join(found.groups())}'" if kind == UUID else None
    if not pa.types.is_decimal(kind):
        return None
    whole, fraction = found.groups()
    # The engine compares both as decimals with the digits of either, and fails if these are too many.
    digits = max(kind.precision - kind.scale, len(whole)) + max(kind.scale, len(fraction))
    if digits > _DIGITS_MAX[kind.bit_width]:
        return None
    return f"CAST('{whole or 0}.{fraction}' AS DECIMAL({len(whole) + len(fraction)}, {len(fraction)}))"


def _without_minus(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens without the signs of negative numbers, which are between a constant and its comparison."""
    return [token for at, token in enumerate(tokens) if not (token.text == "-" and _is_sign(tokens, at))]


def _is_sign(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the minus at this index is the sign of a number: no operand before it could be subtracted from."""
    before = tokens[at - 1] if at else None
    return before is None or before.text in "=<>!(," or any(map(before.says, ("between", "and", "or", "from")))
