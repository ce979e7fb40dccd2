"""Rewrites long chains of OR as lists of values and balanced trees, which the engine plans fast. Pure.

* Equalities of a column and a literal become one list: ``… OR a = 1 OR a = 2 OR …`` is ``… OR a IN (1, 2) OR …``. IN is
  defined as that OR, nulls included. The literals of a list are of one kind, because the engine casts a column once for
  all items of a list, but for each literal where it is compared with one.
* What remains is a balanced tree: its depth is the logarithm of its length. OR is associative.

Rules: only operands between two ORs are rewritten, so that nothing else can bind to them, and so that equal expressions
stay equal (in SELECT and in GROUP BY). The first and the last operand are unchanged. Text that cannot be parsed is
unchanged too, and refused by the engine. Core: :func:`listed`, :func:`halves`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from lakebed.engine.tokens import Token, tokens_of

CHAIN_MIN = 32
"""Shorter chains are unchanged."""

_DIGITS_MAX = 18
"""Longer integers may not be of 64 bits, and then have another type."""

_OR = re.compile(r"\bor\b", re.IGNORECASE)
_TYPED = frozenset({"date", "timestamp"})
"""Words before a text that give its type."""


class _Operand(NamedTuple):
    """The operand between two ORs; ``list_key``: its column and the kind of its literal; None if not an equality."""

    start: int
    end: int
    list_key: tuple[str, str] | None
    literal: str


def listed(text: str) -> str:
    """Return the text with long runs of equalities as lists, with the same meaning."""
    if len(_OR.findall(text)) <= CHAIN_MIN:
        return text
    pieces, done = [], 0
    for are_equalities, operands in groupby(_operands(list(tokens_of(text))), lambda one: one.list_key is not None):
        run = list(operands)
        if are_equalities and len(run) >= CHAIN_MIN:
            pieces += [text[done : run[0].start], " ", _as_lists(run), " "]
            done = run[-1].end
    return "".join([*pieces, text[done:]])


def halves(operands: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return the begin and end of each pair of parentheses that makes a balanced tree of the operands."""
    pending = [range(len(operands))]
    while pending:
        some = pending.pop()
        if len(some) > 1:
            yield operands[some[0]][0], operands[some[-1]][1]
            middle = len(some) // 2
            pending += [some[:middle], some[middle:]]


def _as_lists(run: list[_Operand]) -> str:
    lists: dict[tuple[str, str] | None, list[str]] = {}
    for one in run:
        lists.setdefault(one.list_key, []).append(one.literal)
    return " OR ".join(f"{key[0]} IN ({', '.join(literals)})" for key, literals in lists.items() if key)


def _operands(tokens: list[Token]) -> Iterator[_Operand]:
    ors = [
        position
        for position, token in enumerate(tokens)
        if token.kind == "word" and token.says("or") and tokens[position - 1].text != "."
    ]
    for before, after in pairwise(ors):
        between = tokens[before + 1 : after]
        list_key, literal = _equality(between) or (None, "")
        yield _Operand(tokens[before].end, tokens[after].start, list_key, literal)


def _equality(tokens: list[Token]) -> tuple[tuple[str, str], str] | None:
    """Return the column, the kind of the literal, and the literal of an equality, with or without brackets."""
    begin, end = 0, len(tokens)
    while end - begin > 2 and tokens[begin].text == "(" and tokens[end - 1].text == ")":
        begin, end = begin + 1, end - 1
    sign = begin + 1
    while sign < end and tokens[sign].text == ".":
        sign += 2
    if sign >= end or tokens[sign].text != "=":
        return None
    names = tokens[begin:sign:2]
    if any(name.kind not in ("word", "quoted") for name in names):
        return None
    literal = _literal_of(tokens[sign + 1 : end])
    return literal and ((".".join(name.text for name in names), literal[0]), literal[1])


def _literal_of(tokens: list[Token]) -> tuple[str, str] | None:
    """Return the kind and the text of a literal; None for other tokens, or a literal that may be of several types."""
    match [token.kind for token in tokens]:
        case ["text"]:
            return "text", tokens[0].text
        case ["word", "text"] if tokens[0].text.lower() in _TYPED:
            return tokens[0].text.lower(), f"{tokens[0].text} {tokens[1].text}"
        case ["number"] if len(tokens[0].text) <= _DIGITS_MAX:
            return "integer", tokens[0].text
        case ["sign", "number"] if tokens[0].text == "-" and len(tokens[1].text) <= _DIGITS_MAX:
            return "integer", f"-{tokens[1].text}"
    return None
