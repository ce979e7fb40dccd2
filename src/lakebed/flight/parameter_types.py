"""The types of a statement's parameters, which drivers want to know before they bind values. Pure.

JDBC's ``setInt`` refuses a parameter that is announced as text, and ``setString`` one that is a number. The engine does
not tell the types that it expects, so they are found in the tokens of the statement: a parameter that is compared with
a column (``n = ?``, ``n BETWEEN ? AND ?``, ``n IN (?, ?)``) has the type of the column, one of LIMIT and OFFSET is a
whole number, and any other is text. That decides what a driver accepts, and not what a value means: it is bound in the
type that it comes in.

Core: :func:`parameter_types`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.compared_columns import PLACE, compared_column, name_of_token, openings
from lakebed.engine.statement_parameters import places
from lakebed.engine.tokens import Token, tokens_of

if TYPE_CHECKING:
    from lakebed.model.schema import Schema


def parameter_types(query: str, schemas: Mapping[str, Schema]) -> list[pa.DataType]:
    """The type of each parameter, by its number. ``schemas`` are those of the tables that the caller may read."""
    found = places(query)
    numbers = {place.start: place.value for place in found if isinstance(place.value, int)}
    tokens = list(_with_places(tokens_of(query), numbers, {place.end for place in found}))
    columns = _types_by_name(schemas[name] for name in {name_of_token(one) for one in tokens} & schemas.keys())
    types: dict[int, set[pa.DataType]] = {number: set() for number in numbers.values()}
    for index, opening in enumerate(openings(tokens)):
        if tokens[index].kind == PLACE:
            types[numbers[tokens[index].start]].add(_type_at(tokens, opening, index, columns))
    last = max(types, default=0)
    return [_only(types.get(number, set())) for number in range(1, last + 1)]


def _with_places(tokens: Iterable[Token], numbers: Mapping[int, int], ends: set[int]) -> Iterable[Token]:
    """The tokens, of which a parameter is one: ``$`` and ``1`` are two."""
    for token in tokens:
        if token.start in numbers:
            yield Token(PLACE, "?", token.start)
        elif not (token.kind == "number" and token.end in ends):
            yield token


def _types_by_name(schemas: Iterable[Schema]) -> dict[str, pa.DataType]:
    """The types of the columns, by names that mean one type in all the tables."""
    types: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema.fields:
            types.setdefault(field.name, set()).add(field.type)
    return {name: _only(some) for name, some in types.items() if len(some) == 1}


def _only(types: set[pa.DataType]) -> pa.DataType:
    return next(iter(types)) if len(types) == 1 else pa.string()


def _type_at(tokens: Sequence[Token], opening: int, index: int, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """That of the parameter at this index; text if nothing says more."""
    before = tokens[index - 1] if index else None
    if before is not None and (before.says("limit") or before.says("offset")):
        return pa.int64()
    name = compared_column(tokens, opening, index)
    return columns.get(name or "", pa.string())
