"""What the words and signs of SQL text mean for its structure: brackets, clauses, operators, operands. Pure.

The engine's parser is not asked, because a text may be too deep for it. What is no structure for certain counts as
structure. Core: :func:`marks_of`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from lakebed.engine.tokens import Token, tokens_of

_OPENING = {"(": ")", "[": "]", "{": "}", "case": "end"}
_CLOSING = frozenset({")", "]", "}"})

_INFIX = frozenset((
    "is", "isnull", "notnull", "like", "ilike", "in", "between", "similar", "div", "xor", "collate", "at", "rlike",
    "regexp", "glob", "overlaps", "operator", "mod",
))  # fmt: skip
"""Words that make an expression deeper by one. The parser limits NOT as a prefix."""

_CLAUSES = frozenset((
    "select", "from", "where", "group", "order", "having", "qualify", "window", "limit", "offset", "fetch", "on",
    "using", "join", "left", "right", "full", "inner", "outer", "cross", "natural", "lateral", "semi", "anti", "asof",
    "union", "intersect", "except", "minus", "all", "distinct", "as", "values", "table", "with", "when", "then", "else",
    "by", "over", "partition", "rows", "range", "groups", "filter", "within", "asc", "desc", "nulls", "for", "into",
    "set", "returning", "tablesample", "pivot", "unpivot", "match_recognize", "cluster", "distribute", "sort",
    "recursive", "explain", "analyze", "verbose", "describe", "show", "xor",
))  # fmt: skip
"""Words that end one expression and begin another, and so end a chain of OR."""


class Kind(Enum):
    """What a mark is."""

    OPEN = "the begin of a bracket or CASE"
    CLOSE = "its end"
    UNMATCHED = "an end without a begin, or a begin without an end"
    CLAUSE = "a word that begins a clause"
    COMMA = "a comma"
    END = "the end of a statement"
    OPERATOR = "an operator, by which the expression is deeper"
    AND = "an AND that joins conditions"
    OR = "an OR"
    NOT = "a NOT"
    NAME = "a name"


class Mark(NamedTuple):
    """A mark; ``text`` is the name, the word in lower case, or for OPEN the word before the bracket."""

    kind: Kind
    token: Token
    text: str


def marks_of(text: str) -> Iterator[Mark]:
    """Return the marks of a text, in order. Each OPEN has its CLOSE, if need be at the end of the text."""
    scanner = _Scanner()
    for token in tokens_of(text):
        yield from scanner.marks(token)
        scanner.before = token
    yield from scanner.rest()


class _Scanner:
    """The place in a text: the token before, and the brackets around with the BETWEENs that still lack an AND."""

    def __init__(self) -> None:
        self.before = Token("sign", "", -1)
        self._closings = [""]
        self._betweens = [0]
        self._names_in_path = self._adjacent_signs = 0

    def marks(self, token: Token) -> Iterator[Mark]:
        """Return the marks of a token."""
        if token.kind == "word" and self.before.text != ".":
            yield from self._word(token)
        elif token.kind == "quoted":
            yield Mark(Kind.NAME, token, token.name)
        elif token.kind == "sign":
            yield from self._sign(token)
        if token.text != "." and self.before.text != ".":
            self._names_in_path = 0

    def rest(self) -> Iterator[Mark]:
        """Return the marks after the last token."""
        while len(self._closings) > 1:
            yield Mark(Kind.UNMATCHED, self.before, "")
            yield self._close(self.before)
        yield self._end(Kind.END, self.before)

    def _sign(self, token: Token) -> Iterator[Mark]:
        sign, before = token.text, self.before
        touches = before.end == token.start and before.kind == "sign"
        self._adjacent_signs = self._adjacent_signs + 1 if touches else 0
        if sign in _OPENING:
            # An element of a list, or of a list of lists.
            if before.text in _CLOSING or (sign == "[" and before.kind != "sign"):
                yield Mark(Kind.OPERATOR, token, sign)
            yield self._open(token, before.text.lower() if before.kind == "word" else "")
        elif sign in _CLOSING:
            yield from self._close_until(token)
        elif sign == ",":
            yield self._end(Kind.COMMA, token)
        elif sign == ";":
            yield self._end(Kind.END, token)
        elif sign == ".":
            # A name has three parts; further ones are fields of fields.
            self._names_in_path += 1
            if self._names_in_path > 3:
                yield Mark(Kind.OPERATOR, token, sign)
        elif self._adjacent_signs % 3 == 0 or before.text in _CLOSING:
            # An operator has up to three signs.
            yield Mark(Kind.OPERATOR, token, sign)

    def _word(self, token: Token) -> Iterator[Mark]:
        word = token.text.lower()
        # A repeated word may be a prefix operator of a prefix operator.
        is_repeated = self.before.says(word)
        if word == "or":
            yield Mark(Kind.OR, token, word)
        elif word == "and" and self._betweens[-1]:
            self._betweens[-1] -= 1
        elif word == "and":
            yield Mark(Kind.AND, token, word)
        elif word == "case":
            yield self._open(token, self.before.text.lower() if self.before.kind == "word" else "")
        elif word == "end" and self._closings[-1] == "end":
            yield self._close(token)
        elif word in ("distinct", "all") and not self.before.says("select"):
            return
        elif word in _CLAUSES:
            yield self._end(Kind.CLAUSE, token)
            if word == "xor" or is_repeated:
                yield Mark(Kind.OPERATOR, token, word)
        else:
            if word in _INFIX or is_repeated:
                yield Mark(Kind.OPERATOR, token, word)
            self._betweens[-1] += word == "between"
            if word == "not":
                yield Mark(Kind.NOT, token, word)
            yield Mark(Kind.NAME, token, token.text)

    def _end(self, kind: Kind, token: Token) -> Mark:
        self._betweens[-1] = 0
        return Mark(kind, token, token.text.lower())

    def _open(self, token: Token, opener: str) -> Mark:
        self._closings.append(_OPENING[token.text.lower()])
        self._betweens.append(0)
        return Mark(Kind.OPEN, token, opener)

    def _close(self, token: Token) -> Mark:
        self._closings.pop()
        self._betweens.pop()
        return Mark(Kind.CLOSE, token, "")

    def _close_until(self, token: Token) -> Iterator[Mark]:
        if token.text not in self._closings:
            yield Mark(Kind.UNMATCHED, token, "")
            return
        while self._closings[-1] != token.text:
            yield Mark(Kind.UNMATCHED, token, "")
            yield self._close(token)
        yield self._close(token)
