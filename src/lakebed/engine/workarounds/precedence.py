"""Adds brackets around ``IS [NOT] DISTINCT FROM`` if AND or OR follows it. Pure.

DataFusion 55 parses ``a IS DISTINCT FROM b AND c`` as ``a IS DISTINCT FROM (b AND c)`` (sqlparser's pull request 2436):
boolean columns then give wrong rows, all others an error about types. In standard SQL, IS binds tighter than NOT, AND
and OR.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.engine.tokens import Token, tokens_of

_BEGINNINGS = frozenset({"select", "where", "on", "having", "qualify", "by", "when", "then", "else"})
"""Words after which an expression begins."""


@dataclass(slots=True)
class _Term:
    """The current operand of AND or OR: its first token, and whether it is such a comparison."""

    first: int
    is_distinct: bool = False
    betweens: int = 0


def with_brackets(text: str) -> str:
    """Return the statement or expression with these brackets."""
    if "distinct" not in text.lower():
        return text
    tokens = list(tokens_of(text))
    added: list[tuple[int, str]] = []
    operands = [_Term(0)]
    for index, token in enumerate(tokens):
        word = _word(tokens, index)
        operand = operands[-1]
        if token.text in ("(", "[", "{") or word == "case":
            operands.append(_Term(index + 1))
        elif token.text in (")", "]", "}") or word == "end":
            del operands[max(1, len(operands) - 1) :]
        elif word == "and" and operand.betweens:
            operand.betweens -= 1
        elif word in ("and", "or"):
            if operand.is_distinct:
                added += [(tokens[operand.first].start, "("), (tokens[index - 1].end, ")")]
            operands[-1] = _Term(index + 1)
        elif token.text in (",", ";") or word in _BEGINNINGS:
            operands[-1] = _Term(index + 1)
        elif word in ("not", "distinct", "all") and operand.first == index:
            operand.first = index + 1
        elif word == "from" and _word(tokens, index - 1) == "distinct" and _word(tokens, index - 2) in ("is", "not"):
            operand.is_distinct = True
        operand.betweens += word == "between"
    for position, bracket in sorted(added, reverse=True):
        text = text[:position] + bracket + text[position:]
    return text


def _word(tokens: list[Token], place: int) -> str:
    """Return the word at a position, in lower case; empty if it is not a word, or is the name of a field."""
    if place < 0 or tokens[place].kind != "word" or (place and tokens[place - 1].text == "."):
        return ""
    return tokens[place].text.lower()
