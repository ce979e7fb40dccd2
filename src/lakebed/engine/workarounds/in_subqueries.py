"""Writes ``IN`` over a subquery as a comparison where DataFusion 55 would take null for false.

``x NOT IN (SELECT y …)`` is null if no ``y`` equals ``x`` and one is null. The engine computes that right for a plain
condition of WHERE, by a null-aware join. It loses the nulls if ``x`` is a constant, if the subquery is correlated, and
wherever the result is part of another expression (its issues 25340, 25347 and 25336). It computes ``x <> ALL (SELECT
…)`` and ``x = ANY (SELECT …)``, which mean the same, right in all of these places, but compares every two rows.

*Kept* are those whose null may be taken for false: conditions of WHERE, HAVING or ON, combined by AND and OR only; and
of the negated ones those that become null-aware joins by one column, outside of OR, of subqueries that can be planned
by themselves. Any other becomes a comparison. Rule: too many may, never too few.

*Comparisons* with a subquery have a fault of their own: the engine takes ``a.k = ANY (SELECT a.k FROM a)`` as a
comparison of ``a.k`` with itself. So the subquery becomes one over itself under another name; one that is correlated
must not name a table of the queries around it again.

Core: :func:`with_comparisons`. Errors: UsageError for a statement that the engine cannot evaluate with comparisons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code, Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from datafusion import DataFrame
    from datafusion.plan import LogicalPlan

    from lakebed.engine.tokens import Token

_QUERY_WORDS = frozenset({"select", "with", "from"})
_CONDITIONS = frozenset({"where", "having", "on", "qualify"})
_AFTER = frozenset(
    {"and", "or", "group", "order", "having", "limit", "offset", "fetch", "union", "except", "intersect", "qualify",
     "window", "where", "join", "left", "right", "inner", "full", "cross", "natural", "on"}
)  # fmt: skip
"""Words that end a condition."""

_OTHER_CLAUSES = frozenset(
    {"select", "from", "by", "values", "limit", "using", "case", "when", "then", "else", "end", "filter"}
)
"""Words in whose clause null is not false."""

_NO_OPERAND = frozenset({"not", "is", "between", "like", "ilike", "similar", "any", "all", "some"})
_NOT_IN = "NOT IN (<subquery>)"
_NULL_AWARE = re.compile(r"Anti Join:(.*) null_aware$", re.MULTILINE)


class Plans(NamedTuple):
    """The plan of a statement, before and after the optimizer."""

    logical: LogicalPlan
    optimized: LogicalPlan

    @classmethod
    def of(cls, frame: DataFrame) -> Plans:
        """Return those of a frame. Raises the engine's exceptions."""
        return cls(frame.logical_plan(), frame.optimized_logical_plan())


@dataclass(frozen=True, slots=True)
class _Membership:
    """A comparison with a subquery: the tokens of its operator, and the parentheses of the subquery. ``comparison`` is
    what an IN or NOT IN becomes; empty for ANY and ALL.
    """

    first: int
    last: int
    opening: int
    closing: int
    comparison: str

    @property
    def is_negated(self) -> bool:
        return self.comparison == "<> ALL"


def with_comparisons(text: str, tables: Collection[str], planned: Callable[[str], Plans]) -> str:
    """Return the statement over tables of these names, with each IN over a subquery that the engine would evaluate
    wrongly as a comparison.

    ``planned`` plans and optimizes a statement over tables with the columns of its own, and raises an Error; it is
    called again for the same text.
    """
    lowered = text.lower()
    if lowered.count("select") < 2 and lowered.count("from") < 2:
        return text
    statement = _Statement(text, tables, planned)
    if not statement.memberships:
        return text
    mistaken = [one for one in statement.memberships if not one.comparison or not statement.is_kept(one)]
    found = statement.written(mistaken)
    if any(one.is_negated and one not in mistaken for one in statement.memberships) and not _joins_by_columns(
        planned(found)
    ):
        mistaken = [one for one in statement.memberships if one in mistaken or one.is_negated]
        found = statement.written(mistaken)
    if mistaken:
        statement.check(found)
    return found


def _joins_by_columns(plans: Plans) -> bool:
    """Return whether each NOT IN of a plan became a join by a column alone: others are not aware of nulls."""
    negated = plans.logical.display_indent().count(_NOT_IN)
    joins = _NULL_AWARE.findall(plans.optimized.display_indent())
    return len(joins) == negated and all(join.strip() and " Filter: " not in join for join in joins)


class _Statement:
    """The tokens of a statement, and the subqueries that something is compared with."""

    def __init__(self, text: str, tables: Collection[str], planned: Callable[[str], Plans]) -> None:
        self._text = text
        self._tables = tables
        self._planned = planned
        self._tokens: Sequence[Token] = list(tokens_of(text))
        self._opened, self._closings = self._parentheses()
        self._openings = {closing: opening for opening, closing in self._closings.items()}
        self.memberships = list(self._memberships())

    def _parentheses(self) -> tuple[list[int], dict[int, int]]:
        """Return the innermost open parenthesis of each token, -1 if none is open; and where each is closed."""
        opened, closings, stack = [], {}, [-1]
        for at, token in enumerate(self._tokens):
            if token.text == ")" and len(stack) > 1:
                closings[stack.pop()] = at
            opened.append(stack[-1])
            if token.text == "(":
                stack.append(at)
        return opened, closings

    def _memberships(self) -> Iterator[_Membership]:
        tokens = self._tokens
        for at, token in enumerate(tokens):
            if token.kind != "word" or not any(map(token.says, ("in", "any", "all", "some"))):
                continue
            inside = at + 1
            while inside < len(tokens) and tokens[inside].text == "(":
                inside += 1
            if not (at + 1 in self._closings and inside < len(tokens) and tokens[inside].text.lower() in _QUERY_WORDS):
                continue
            negated = token.says("in") and at > 0 and tokens[at - 1].says("not")
            comparison = "" if not token.says("in") else "<> ALL" if negated else "= ANY"
            if comparison or (at > 0 and tokens[at - 1].text in "=<>!"):
                yield _Membership(at - negated, at, at + 1, self._closings[at + 1], comparison)

    def is_kept(self, one: _Membership) -> bool:
        """Return whether the engine evaluates an IN right, if a NOT IN becomes a null-aware join."""
        if not self._is_operand(one.first - 1, self._opened[one.first]):
            return False
        start, end, is_alternative = one.first, one.closing, False
        while True:
            level = self._opened[start]
            if not self._ends(end + 1):
                return False
            begin, alternatives = self._region(start, end, level)
            is_alternative = is_alternative or alternatives
            if begin is None:
                return False
            if begin != level:
                break
            if level < 0 or not self._groups(level):
                return False
            start, end = level, self._closings.get(level, level)
        return not one.is_negated or not (is_alternative or self.is_correlated(one))

    def _is_operand(self, at: int, level: int) -> bool:
        """Return whether the tokens that end here, back to AND or OR, are a plain value."""
        while at > level:
            token = self._tokens[at]
            if token.text == ")":
                at = self._openings.get(at, at)
            elif token.kind == "word" and (token.says("and") or token.says("or") or token.text.lower() in _CONDITIONS):
                return True
            elif (token.kind == "word" and token.text.lower() in _NO_OPERAND | _OTHER_CLAUSES) or token.text in "=<>!,":
                return False
            at -= 1
        return True

    def _region(self, start: int, end: int, level: int) -> tuple[int | None, bool]:
        """Return where the condition around these tokens begins, None if it is none, and whether it has OR."""
        alternatives = False
        at = start - 1
        while at > level:
            token = self._tokens[at]
            if token.text == ")":
                at = self._openings.get(at, at)
            elif token.kind == "word":
                word = token.text.lower()
                if word in _CONDITIONS:
                    break
                if word in _OTHER_CLAUSES:
                    return None, alternatives
                alternatives = alternatives or word == "or"
            elif token.text == ",":
                return None, alternatives
            at -= 1
        after = end + 1
        while after < len(self._tokens) and self._tokens[after].text != ")":
            alternatives = alternatives or self._tokens[after].says("or")
            after = self._closings.get(after, after) + 1
        return at, alternatives

    def _groups(self, opening: int) -> bool:
        """Return whether a parenthesis groups a condition, and is no argument of a function or of NOT."""
        before = self._tokens[opening - 1] if opening else None
        words = _CONDITIONS | {"and", "or", "("}
        return before is not None and before.text.lower() in words and before.kind in ("word", "sign")

    def _ends(self, at: int) -> bool:
        token = self._tokens[at] if at < len(self._tokens) else None
        return token is None or token.text in ");" or (token.kind == "word" and token.text.lower() in _AFTER)

    def is_correlated(self, one: _Membership) -> bool:
        """Return whether a subquery may name columns of the queries around it: also if it names a query of WITH, which
        may hide a table.
        """
        if "outer_ref(" not in self._planned(self._text).logical.display_indent():
            return False
        named = self._names(one.opening + 1, one.closing)
        if named & set(self._queries_of_with()):
            return True
        tokens = self._tokens
        try:
            self._planned(self._text[tokens[one.opening].end : tokens[one.closing].start])
        except Error:
            return True
        return False

    def _names(self, start: int, end: int) -> set[str]:
        return {token.name for token in self._tokens[start:end] if token.kind in ("word", "quoted")}

    def _queries_of_with(self) -> Iterator[str]:
        """Return the names before AS and a parenthesis: ``q AS (SELECT …)``, ``q (a, b) AS (SELECT …)``."""
        tokens = self._tokens
        for at in range(1, len(tokens) - 1):
            if tokens[at].says("as") and tokens[at + 1].text == "(":
                name = self._openings.get(at - 1, at - 1) - 1 if tokens[at - 1].text == ")" else at - 1
                yield tokens[name].name

    def written(self, memberships: Sequence[_Membership]) -> str:
        """Return the text with these as comparisons."""
        tokens = self._tokens
        edits: list[tuple[int, int, str]] = []
        for number, one in enumerate(memberships):
            if one.comparison:
                edits.append((tokens[one.first].start, tokens[one.last].end, one.comparison))
            if not self.is_correlated(one):
                edits.append((tokens[one.opening].end, tokens[one.opening].end, "SELECT * FROM ("))
                edits.append((tokens[one.closing].start, tokens[one.closing].start, f') AS "__lakebed_{number}"'))
            else:
                self._check_names(one)
        pieces, done = [], 0
        for start, end, piece in sorted(edits):
            pieces += [self._text[done:start], piece]
            done = end
        return "".join([*pieces, self._text[done:]])

    def _check_names(self, one: _Membership) -> None:
        """Raise UsageError if a correlated subquery names a table of the queries around it again, without an alias."""
        tokens = self._tokens
        around = self._names_around(one)
        for at in range(one.opening + 1, one.closing):
            name = tokens[at].name
            of_from = any(map(tokens[at - 1].says, ("from", "join", ",")))
            if of_from and name in self._tables and name in around and not self._has_alias(at):
                raise Code.SQL_INVALID(
                    f"the engine cannot compare a value with a subquery over {name} that names columns of the query "
                    f"around it, which reads {name} too: give it an alias in the subquery, as in FROM {name} AS x"
                )

    def _names_around(self, one: _Membership) -> set[str]:
        """Return the names outside of a subquery, and outside of other subqueries that do not have it inside."""
        found: set[str] = set()
        at = 0
        while at < len(self._tokens):
            closing = self._closings.get(at, at)
            is_query = at + 1 < len(self._tokens) and self._tokens[at + 1].text.lower() in _QUERY_WORDS
            if closing > at and is_query and not at < one.opening < closing:
                at = closing
            found |= self._names(at, at + 1)
            at += 1
        return found

    def _has_alias(self, at: int) -> bool:
        token = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        return token is not None and (
            token.kind == "quoted" or token.says("as") or (token.kind == "word" and token.text.lower() not in _AFTER)
        )

    def check(self, compared: str) -> None:
        """Raise UsageError if the engine cannot plan the statement with comparisons, but could without."""
        try:
            self._planned(compared)
        except Error as error:
            self._planned(self._text)
            raise Code.SQL_INVALID(
                "the engine would take null for false in an IN or a comparison with a subquery, and cannot evaluate it "
                f"in another form: make it a condition of WHERE, or EXISTS with a condition ({error.message})"
            ) from error
