"""Which column a value in SQL is compared with, from the tokens around it. Pure.

By a sign on either side (``id = v``, ``v < id``), in a list (``id IN (v, …)``) or in a range (``id BETWEEN v AND v``).
A name may be quoted and qualified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.engine.tokens import Token

PLACE = "place"
"""The kind of a token that stands for a parameter."""

_SIGNS = frozenset("=<>!")
_VALUES = frozenset({PLACE, "number", "text"})


def compared_column(tokens: Sequence[Token], at: int) -> str | None:
    """The name of the column that the value at this index is compared with; None if none can be said."""
    before = _before_signs(tokens, at - 1)
    if before < at - 1:
        return _name(tokens, before)
    after = at + 1
    while after < len(tokens) and tokens[after].text in _SIGNS:
        after += 1
    if after > at + 1:
        while after + 2 < len(tokens) and tokens[after + 1].text == ".":
            after += 2
        return _name(tokens, after)
    if before >= 2 and tokens[before].says("and") and tokens[before - 2].says("between"):
        before -= 2
    if before >= 0 and tokens[before].says("between"):
        return _name(tokens, _before_not(tokens, before - 1))
    start = _list_start(tokens, before)
    return None if start is None else _name(tokens, _before_not(tokens, start - 1))


def name_of_token(token: Token) -> str:
    """What a word or a quoted name names."""
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text


def _before_signs(tokens: Sequence[Token], at: int) -> int:
    while at >= 0 and tokens[at].text in _SIGNS:
        at -= 1
    return at


def _before_not(tokens: Sequence[Token], at: int) -> int:
    return at - 1 if at >= 0 and tokens[at].says("not") else at


def _list_start(tokens: Sequence[Token], at: int) -> int | None:
    """Where ``IN (`` begins, if only values stand between it and this index."""
    while at >= 0 and (tokens[at].text == "," or tokens[at].kind in _VALUES):
        at -= 1
    return at - 1 if at >= 1 and tokens[at].text == "(" and tokens[at - 1].says("in") else None


def _name(tokens: Sequence[Token], at: int) -> str | None:
    return name_of_token(tokens[at]) if 0 <= at < len(tokens) and tokens[at].kind in ("quoted", "word") else None
