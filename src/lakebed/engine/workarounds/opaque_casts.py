"""Hides casts of columns from the engine's optimizer, which treats them as exact and as keeping the order. Pure.

DataFusion 55 moves the cast of a comparison to the constant (its issues 23095 and 22142): ``CAST(p AS BIGINT) = 1``
becomes ``p = 1.00``, and the row with 1.50 is lost; ``TRY_CAST(k AS TINYINT) > 5`` becomes ``k > 5``, and rows come in
excess. It also prunes files by the casts of their bounds (15764), although ``CAST(at AS TIME)`` of all times between
two is not between the casts of the two. Both happen in every plan, also in projections, whenever a condition reaches a
cast: from another subquery, through an alias, or as a filter that a join or a sort makes while it runs.

``greatest`` with a single argument returns it, and the optimizer knows nothing of it. So each cast whose operand names
a column becomes ``greatest(CAST(…))``; :mod:`lakebed.read.rows.expressions` knows the form, and derives key ranges
from the casts that keep the order.

*Forms.* ``CAST``, ``TRY_CAST`` and ``arrow_cast``, ``…::type``, and ``… AT TIME ZONE '…'``; and ``date_part`` and
``EXTRACT``, of which the optimizer makes a range of times: one beyond the times of the column becomes null.

*Constants on the left.* Of conditions on one column the optimizer keeps the strictest, and takes a constant on the left
for one on the right if it has yet to be computed: it drops the second of ``d <= DATE '2026-01-01' AND DATE '2026-01-01'
> d``. Such a column of a statement is hidden as well.

Errors: UsageError for a postfix cast whose operand is not found; its remedy is ``CAST``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.engine.tokens import Token

HIDING = "greatest"
"""The function that hides its only argument."""

_CASTS = frozenset(
    {"cast", "try_cast", "safe_cast", "arrow_cast", "arrow_try_cast", "cast_to_type", "try_cast_to_type"}
)
_ANY = re.compile(r"cast|::|zone|date_?part|extract")
_ANY_CONSTANT = re.compile(r"['\d)]\s*[<=>!]|'\s*between")
_SIGNS = frozenset("=<>!")
_PARTS = frozenset({"date_part", "datepart", "extract"})
_YEAR = re.compile(r"1[789]\d\d|20\d\d|21\d\d")
"""Years for which every unit of time has a range."""

_TYPE_WORDS = frozenset({"precision", "varying", "unsigned", "signed", "with", "without", "time", "zone"})
"""Words that continue the name of a type."""

_NO_COLUMNS = frozenset({"as", "null", "true", "false", "interval", "case", "when", "then", "else", "end", "and", "or"})
_CLAUSES = frozenset({"over", "filter"})
"""Words between a function and a parenthesis that belongs to it."""

_BEFORE_OPERAND = frozenset(
    {"and", "or", "not", "in", "any", "all", "some", "between", "like", "ilike", "is", "from", "select", "where", "on",
     "by", "having", "when", "then", "else", "case", "as", "distinct", "values", "exists", "qualify", "limit", "offset",
     "using", "similar", "to", "regexp", "rlike", "div", "escape", "union", "except", "intersect", "join"}
)  # fmt: skip
"""Words before a parenthesis that are not the name of a function."""


def with_opaque_casts(text: str) -> str:
    """Return the statement or expression with each cast of a column hidden."""
    if not _ANY.search(text.lower()):
        return text
    tokens = list(tokens_of(text))
    return _hidden(text, tokens, _Casts(text, tokens).found())


def with_opaque_columns(text: str) -> str:
    """Return the statement with each column hidden that is on the right of a constant that has yet to be computed."""
    if not _ANY_CONSTANT.search(text.lower()):
        return text
    tokens = list(tokens_of(text))
    return _hidden(text, tokens, _Casts(text, tokens).columns_after_constants())


def _hidden(text: str, tokens: Sequence[Token], places: Iterable[tuple[int, int]]) -> str:
    """Return the text with these tokens hidden, each from a first to a last one."""
    # At one place, the end of a cast comes before the start of the next.
    added: list[tuple[int, int, str]] = []
    for start, end in places:
        added += [(tokens[start].start, 1, f"{HIDING}("), (tokens[end].end, 0, ")")]
    pieces, done = [], 0
    for place, _, piece in sorted(added):
        pieces += [text[done:place], piece]
        done = place
    return "".join([*pieces, text[done:]])


class _Casts:
    """The casts in a text, each as the places of its first and its last token."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._opened = self._opened_by()
        self._closings = {opened: at for at, opened in self._opened.items()}
        self._ended: dict[int, int] = {}

    def found(self) -> list[tuple[int, int]]:
        """Return the casts of operands that name a column, in the order of their operators."""
        found: dict[int, int] = {}
        for at, token in enumerate(self._tokens):
            name = token.text.lower() if token.kind == "word" and self._is(at + 1, "(") else ""
            if name in _CASTS or (name in _PARTS and not self._is_year(at + 1)):
                end = self._closings.get(at + 1)
                start, first, last = at, at + 2, end
            elif self._is_postfix(at):
                end = self._end_of_postfix(at)
                start = first = self._start_of_operand(at - 1)
                last = at
            else:
                continue
            if end is None or last is None:
                # Not closed: the engine refuses the text.
                continue
            if self._names_column(first, last):
                if self._is_postfix(at):
                    # Of a chain of casts, only the outermost is compared with something.
                    found.pop(at - 1, None)
                found[end] = start
            self._ended[end] = start
        return [(start, end) for end, start in found.items()]

    def columns_after_constants(self) -> Iterator[tuple[int, int]]:
        """Return the names with which constants that have yet to be computed are compared, on their right."""
        tokens = self._tokens
        for at, token in enumerate(tokens):
            is_between = self._is(at, "between") and token.kind == "word"
            if (
                not (is_between or token.text in _SIGNS)
                or tokens[at - 1].text in _SIGNS
                or not self._is_computed(at - 1)
            ):
                continue
            start = at + 1
            while start < len(tokens) and tokens[start].text in _SIGNS:
                start += 1
            end = self._end_of_name(start)
            if end is not None:
                yield start, end
                upper = self._end_of_name(end + 2) if is_between and self._is(end + 1, "and") else None
                if upper is not None:
                    yield end + 2, upper

    def _is_computed(self, at: int) -> bool:
        """Return whether a constant ends here that is no plain number."""
        if at < 0:
            return False
        token = self._tokens[at]
        if token.text == ")":
            return at in self._opened and not self._names_column(self._opened[at], at)
        is_number = token.kind in ("number", "decimal")
        return token.kind in ("text", "other") or (is_number and at >= 2 and self._tokens[at - 1].text in "+-*/%")

    def _end_of_name(self, at: int) -> int | None:
        """Return the last token of the column whose name begins here; None if it is something else."""
        tokens = self._tokens
        while at < len(tokens) and tokens[at].kind in ("word", "quoted"):
            if not self._is(at + 1, "."):
                is_value = at + 1 < len(tokens) and (
                    tokens[at + 1].text == "(" or tokens[at + 1].kind in ("text", "other")
                )
                is_word = (
                    tokens[at].kind == "word" and tokens[at].text.lower() in _NO_COLUMNS | _BEFORE_OPERAND | _CASTS
                )
                return None if is_value or is_word or self._is(at + 1, ":") else at
            at += 2
        return None

    def _is_year(self, opened: int) -> bool:
        """Return whether the brackets are compared with a year that times of every unit have."""
        following = iter(self._tokens[self._closings.get(opened, len(self._tokens)) + 1 :][:4])
        token = next(following, None)
        while token is not None and token.text in _SIGNS:
            token = next(following, None)
        return token is not None and _YEAR.fullmatch(token.text) is not None

    def _opened_by(self) -> dict[int, int]:
        """Return the opening bracket of each closing one."""
        found: dict[int, int] = {}
        stack: list[int] = []
        for at, token in enumerate(self._tokens):
            if token.text in ("(", "["):
                stack.append(at)
            elif token.text in (")", "]") and stack:
                found[at] = stack.pop()
        return found

    def _is(self, at: int, *words: str) -> bool:
        """Return whether the tokens from this place on are these words or signs."""
        tokens = self._tokens
        return 0 <= at <= len(tokens) - len(words) and all(
            tokens[at + step].says(word) for step, word in enumerate(words)
        )

    def _is_postfix(self, at: int) -> bool:
        if self._is(at, "at", "time", "zone"):
            return at > 0 and self._tokens[at - 1].text not in (".", ",", "(")
        return self._is(at, ":", ":") and self._tokens[at + 1].start == self._tokens[at].end

    def _end_of_postfix(self, at: int) -> int | None:
        tokens = self._tokens
        if self._is(at, "at"):
            end = at + 3
            if end < len(tokens) and self._is(end + 1, "("):
                end = self._closings.get(end + 1, -1)
            return end if 0 <= end < len(tokens) else None
        end = at + 2
        if end >= len(tokens):
            return None
        while end + 1 < len(tokens):
            following = tokens[end + 1]
            if following.text in ("(", "[") and end + 1 in self._closings:
                end = self._closings[end + 1]
            elif following.kind == "word" and following.text.lower() in _TYPE_WORDS:
                end += 1
            else:
                break
        return end

    def _start_of_operand(self, at: int) -> int:
        """Return the first token of the operand that ends here: a value, a name, a call, brackets, or CASE … END."""
        tokens = self._tokens
        while at >= 0:
            if at in self._ended:
                return self._ended[at]
            token = tokens[at]
            if token.text in (")", "]"):
                opened = self._opened.get(at, at)
                before = opened - 1
                if token.text == "]" or (before >= 0 and tokens[before].says("over")) or self._is(before, "filter"):
                    at = before - (token.text == ")")
                    continue
                return self._start_of_name(before) if self._calls(before) else opened
            if token.says("end") and token.kind == "word":
                return self._start_of_case(at)
            if token.kind in ("word", "quoted"):
                return self._start_of_name(at)
            if token.kind in ("text", "other", "number", "decimal"):
                typed = at >= 1 and tokens[at - 1].kind == "word" and tokens[at - 1].text.lower() not in _BEFORE_OPERAND
                return at - 1 if typed and token.kind == "text" else at
            break
        raise Code.SQL_INVALID(
            f"the operand of :: or AT TIME ZONE is not clear at character {tokens[max(at, 0)].start + 1} of "
            f"{self._text[:200]!r}: write CAST(… AS …), or put the operand in parentheses"
        )

    def _calls(self, at: int) -> bool:
        """Return whether the token before a parenthesis is the name of a function."""
        token = self._tokens[at] if at >= 0 else None
        if token is None or token.kind not in ("word", "quoted"):
            return False
        return token.kind == "quoted" or token.text.lower() not in _BEFORE_OPERAND

    def _start_of_name(self, at: int) -> int:
        while at >= 2 and self._tokens[at - 1].text == "." and self._tokens[at - 2].kind in ("word", "quoted"):
            at -= 2
        return at

    def _start_of_case(self, at: int) -> int:
        depth = 0
        for start in range(at, -1, -1):
            depth += self._is(start, "end") - self._is(start, "case")
            if not depth:
                return start
        return at

    def _names_column(self, start: int, end: int) -> bool:
        """Return whether the tokens of an operand name a column: too often rather than too seldom."""
        tokens = self._tokens
        for at in range(start, end):
            token = tokens[at]
            if token.kind == "quoted":
                return True
            if token.kind != "word" or token.text.lower() in _NO_COLUMNS or self._is(at + 1, "("):
                continue
            if at + 1 < len(tokens) and tokens[at + 1].kind in ("text", "other"):
                # DATE '…', X'…'.
                continue
            if at > start and (self._is(at - 1, "as") or self._is(at - 1, ":")):
                # The name of a type.
                continue
            return True
        return False
