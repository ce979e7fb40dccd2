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

from lakebed.engine.statement_parameters import places
from lakebed.engine.tokens import Token, tokens_of

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

_PLACE = "place"
_COMPARISONS = frozenset("=<>!")


def parameter_types(query: str, schemas: Mapping[str, Schema]) -> list[pa.DataType]:
    """The type of each parameter, by its number. ``schemas`` are those of the tables that the caller may read."""
    found = places(query)
    numbers = {place.start: place.value for place in found if isinstance(place.value, int)}
    tokens = list(_with_places(tokens_of(query), numbers, {place.end for place in found}))
    columns = _columns(schemas[name] for name in {_name(one) for one in tokens} & schemas.keys())
    types: dict[int, set[pa.DataType]] = {number: set() for number in numbers.values()}
    for index, token in enumerate(tokens):
        if token.kind == _PLACE:
            types[numbers[token.start]].add(_type_at(tokens, index, columns))
    last = max(types, default=0)
    return [_only(types.get(number, set())) for number in range(1, last + 1)]


def _with_places(tokens: Iterable[Token], numbers: Mapping[int, int], ends: set[int]) -> Iterable[Token]:
    """The tokens, of which a parameter is one: ``$`` and ``1`` are two."""
    for token in tokens:
        if token.start in numbers:
            yield Token(_PLACE, "?", token.start)
        elif not (token.kind == "number" and token.end in ends):
            yield token


def _columns(schemas: Iterable[Schema]) -> dict[str, pa.DataType]:
    """The types of the columns, by names that mean one type in all the tables."""
    types: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema.fields:
            types.setdefault(field.name, set()).add(field.type)
    return {name: _only(some) for name, some in types.items() if len(some) == 1}


def _only(types: set[pa.DataType]) -> pa.DataType:
    return next(iter(types)) if len(types) == 1 else pa.string()


def _type_at(tokens: Sequence[Token], index: int, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """That of the parameter at this index; text if nothing says more."""
    before = index - 1
    if before >= 0 and (tokens[before].says("limit") or tokens[before].says("offset")):
        return pa.int64()
    name = _compared_before(tokens, before)
    if name is None:
        after = index + 1
        while after < len(tokens) and tokens[after].text in _COMPARISONS:
            after += 1
        if after > index + 1:
            while after + 2 < len(tokens) and tokens[after + 1].text == ".":
                after += 2
            name = _name(tokens[after]) if after < len(tokens) else None
    return columns.get(name or "", pa.string())


def _compared_before(tokens: Sequence[Token], index: int) -> str | None:
    """The column that stands before the comparison which ends at this index; None if it is none."""
    at = index
    while at >= 0 and tokens[at].text in _COMPARISONS:
        at -= 1
    if at == index:
        if at >= 2 and tokens[at].says("and") and tokens[at - 2].says("between"):
            at -= 2
        if at >= 0 and tokens[at].says("between"):
            at -= 1
        elif (start := _list_start(tokens, at)) is not None:
            at = start - 1
        else:
            return None
        if at >= 0 and tokens[at].says("not"):
            at -= 1
    return _name(tokens[at]) if at >= 0 else None


def _list_start(tokens: Sequence[Token], index: int) -> int | None:
    """Where ``IN (`` begins, if only values stand between it and this index."""
    at = index
    while at >= 0 and (tokens[at].text == "," or tokens[at].kind in (_PLACE, "number", "text")):
        at -= 1
    return at - 1 if at >= 1 and tokens[at].text == "(" and tokens[at - 1].says("in") else None


def _name(token: Token) -> str:
    """What a word or a quoted name names."""
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
