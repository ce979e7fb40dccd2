"""Finds the column with which a value in SQL is compared, from the tokens around it. Pure.

Comparisons are by an operator on either side (``id = v``, ``v < id``, ``id IS DISTINCT FROM v``), in a list (``id IN
(v, …)``) or in a range (``id BETWEEN v AND v``). A name may be quoted and qualified. What a name means, its tokens do
not tell: it may be an alias, or a column of any table of the statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.engine.tokens import Token

PLACE = "place"
"""The kind of a token that stands for a parameter."""

_SIGNS = frozenset("=<>!")
_DISTINCT = (["is", "distinct", "from"], ["is", "not", "distinct", "from"])


def openings(tokens: Sequence[Token]) -> list[int]:
    """Return for each token the index of its innermost open parenthesis; -1 if none is open."""
    found, stack = [], [-1]
    for at, token in enumerate(tokens):
        if token.text == ")" and len(stack) > 1:
            stack.pop()
        found.append(stack[-1])
        if token.text == "(":
            stack.append(at)
    return found


def compared_name(tokens: Sequence[Token], opening: int, at: int) -> range | None:
    """Return the indices of the name with which the value at this index is compared, with its qualifiers; None if it is
    not compared with a name.

    ``opening`` is the value's element of :func:`openings`.
    """
    before = _before_operator(tokens, at - 1)
    if before < at - 1:
        return _name_at(tokens, before)
    after = _after_operator(tokens, at + 1)
    if after > at + 1:
        while after + 2 < len(tokens) and tokens[after + 1].text == ".":
            after += 2
        return _name_at(tokens, after)
    if before >= 2 and tokens[before].says("and"):
        # The lower bound is one token, or two if it is bytes: X'00'.
        lower = before - 3 if tokens[before - 2].says("x") and tokens[before - 1].kind == "text" else before - 2
        before = lower if lower >= 0 and tokens[lower].says("between") else before
    if before >= 0 and tokens[before].says("between"):
        return _name_at(tokens, _before_not(tokens, before - 1))
    start = _list_start(tokens, opening, at)
    return None if start is None else _name_at(tokens, _before_not(tokens, start - 1))


def _before_operator(tokens: Sequence[Token], at: int) -> int:
    """Return the index before the comparison that ends at this index; this index if there is none."""
    if at >= 2 and tokens[at].says("from") and tokens[at - 1].says("distinct"):
        start = _before_not(tokens, at - 2)
        return start - 1 if start >= 0 and tokens[start].says("is") else at
    while at >= 0 and tokens[at].text in _SIGNS:
        at -= 1
    return at


def _after_operator(tokens: Sequence[Token], at: int) -> int:
    """Return the index after the comparison that begins at this index; this index if there is none."""
    words = [token.text.lower() for token in tokens[at : at + 4]]
    for operator in _DISTINCT:
        if words[: len(operator)] == operator:
            return at + len(operator)
    while at < len(tokens) and tokens[at].text in _SIGNS:
        at += 1
    return at


def _before_not(tokens: Sequence[Token], at: int) -> int:
    return at - 1 if at >= 0 and tokens[at].says("not") else at


def _list_start(tokens: Sequence[Token], opening: int, at: int) -> int | None:
    """Return the position of ``IN (``, if the value at this index is an element of such a list."""
    is_element = 0 < at < len(tokens) - 1 and tokens[at - 1].text in "(," and tokens[at + 1].text in "),"
    if not is_element or opening < 1 or not tokens[opening - 1].says("in"):
        return None
    is_query = tokens[opening + 1].says("select") or tokens[opening + 1].says("with")
    return None if is_query else opening - 1


def _name_at(tokens: Sequence[Token], at: int) -> range | None:
    """Return the name that ends at an index, from its first qualifier on."""
    if not (0 <= at < len(tokens) and tokens[at].kind in ("quoted", "word")):
        return None
    start = at
    while start >= 2 and tokens[start - 1].text == "." and tokens[start - 2].kind in ("quoted", "word"):
        start -= 2
    return range(start, at + 1)
