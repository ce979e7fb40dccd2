"""Hides ``IN (…)`` from the engine's optimizer where it would join lists wrongly. Pure.

DataFusion 55 makes one list of two of one operand, and loses nulls: ``k IN (1, 5) AND k NOT IN (5, NULL)`` finds the
row 1, for which it is unknown (its pull request 24258), and ``k IN (1) AND k IN (2)`` is false where ``k`` is null, so
its negation is true. A list with a null, and each of several lists of one operand, therefore becomes ``greatest(k IN
(…))``, as in :mod:`lakebed.engine.workarounds.opaque_casts`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from lakebed.engine.tokens import tokens_of
from lakebed.engine.workarounds.opaque_casts import HIDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.engine.tokens import Token

_BEFORE = frozenset(
    {"and", "or", "not", "xor", "where", "on", "having", "qualify", "when", "then", "else", "case", "select", "by",
     "set", "distinct", "all", "filter", "return", "between", "from"}
)  # fmt: skip
"""Words before which an operand of IN does not begin."""

_SIGNS = frozenset(",=<>!;")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_QUERIES = frozenset({"select", "with", "values", "table"})


class _List(NamedTuple):
    """A list: its first and its last token, its operand, and whether an element is null."""

    start: int
    end: int
    operand: tuple[str, ...]
    has_null: bool


def with_opaque_lists(text: str) -> str:
    """Return the statement or expression with these lists hidden."""
    lowered = text.lower()
    if lowered.count("in") < 2 and "null" not in lowered:
        return text
    tokens = list(tokens_of(text))
    lists = [found for at in range(len(tokens)) if (found := _list_at(tokens, at)) is not None]
    operands = Counter(one.operand for one in lists)
    hidden = [one for one in lists if one.has_null or operands[one.operand] > 1]
    # At one place, the end of a list comes before the start of the next.
    added = [(tokens[one.start].start, 1, f"{HIDING}(") for one in hidden]
    added += [(tokens[one.end].end, 0, ")") for one in hidden]
    pieces, done = [], 0
    for place, _, piece in sorted(added):
        pieces += [text[done:place], piece]
        done = place
    return "".join([*pieces, text[done:]])


def _list_at(tokens: Sequence[Token], at: int) -> _List | None:
    """Return the list whose IN is at this index; None if there is none."""
    if not _is_word(tokens, at, "in") or at + 2 >= len(tokens) or tokens[at + 1].text != "(":
        return None
    end = _closing(tokens, at + 1)
    last = at - 1 - _is_word(tokens, at - 1, "not")
    start = _start(tokens, last)
    if tokens[at + 2].text.lower() in _QUERIES or end is None or start is None:
        return None
    operand = tuple(token.text for token in tokens[start : last + 1])
    return _List(start, end, operand, any(_is_word(tokens, place, "null") for place in range(at + 2, end)))


def _closing(tokens: Sequence[Token], opened: int) -> int | None:
    depth = 0
    for at in range(opened, len(tokens)):
        depth += (tokens[at].text in _OPENING) - (tokens[at].text in _CLOSING)
        if not depth:
            return at
    return None


def _start(tokens: Sequence[Token], at: int) -> int | None:
    """Return the first token of the operand that ends at this index; None if there is none."""
    depth = 0
    for place in range(at, -1, -1):
        sign = tokens[place].text
        if sign in _CLOSING or _is_word(tokens, place, "end"):
            depth += 1
        elif sign in _OPENING or _is_word(tokens, place, "case"):
            if not depth:
                return place + 1 if place < at else None
            depth -= 1
        elif not depth and (sign in _SIGNS or any(_is_word(tokens, place, word) for word in _BEFORE & {sign.lower()})):
            return place + 1 if place < at else None
    return 0 if at >= 0 else None


def _is_word(tokens: Sequence[Token], at: int, word: str) -> bool:
    if not 0 <= at < len(tokens) or tokens[at].kind != "word" or not tokens[at].says(word):
        return False
    return not (at and tokens[at - 1].text == ".")
