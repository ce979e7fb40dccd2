"""Limits the complexity of SQL text before the engine parses it, and rewrites long chains of OR. Pure.

The engine parses ``a OR b OR c OR …`` into a tree as deep as the chain is long. It walks, copies and drops the tree by
recursion, and a stack overflow ends the process. So the depth of the tree is estimated from the marks of the text
(:mod:`lakebed.engine.sql_marks`):

* Long chains of OR become lists of values and balanced trees, see below. The engine evaluates every remaining operand
  for every row, so their number is limited.
* Other chains (``+``, ``||``, ``::``, ``IS NULL``) cannot be rewritten, so their length is limited.
* The engine rebuilds conditions joined by AND, however nested, as one chain, and those joined by OR inside NOT, so
  their number is limited.
* Constructs that take the engine quadratic or exponential time are limited as well: queries in one statement, joins,
  expressions, grouping sets. A WITH query counts as often as it is used.

*Chains of OR.* Equalities of a column and a literal become one list: ``… OR a = 1 OR a = 2 OR …`` is ``… OR a IN (1, 2)
OR …``. IN is defined as that OR, nulls included. The literals of a list are of one kind, because the engine casts a
column once for all items of a list, but for each literal where it is compared with one. What remains is a balanced
tree: its depth is the logarithm of its length. OR is associative. Only operands between two ORs are rewritten, so that
nothing else can bind to them, and so that equal expressions stay equal (in SELECT and in GROUP BY). Text that cannot be
parsed is unchanged, and refused by the engine.

Core: :func:`fit`. Rule: the estimate may be too high, never too low. Errors: UsageError. Measured on DataFusion 55.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple, assert_never

from lakebed.engine.sql_marks import Kind, Mark, marks_of
from lakebed.engine.tokens import Token, tokens_of
from lakebed.engine.workarounds.ignored_clauses import check_clauses
from lakebed.engine.workarounds.opaque_casts import with_opaque_casts
from lakebed.engine.workarounds.opaque_lists import with_opaque_lists
from lakebed.engine.workarounds.precedence import with_brackets
from lakebed.errors import Code

TEXT_MAX = 8 * 1024 * 1024
"""Maximum characters of a statement: 100,000 values of 80 characters each."""

DEPTH_MAX = 500
"""Maximum operators between an expression and its deepest operand. The engine's threads have stacks of 2 MiB, enough
for 3,000 of the most expensive kind; a chain of 500 is planned in 0.3 s, and time grows with the square."""

CONDITIONS_MAX = 500
"""Maximum conditions joined by AND, or by OR inside NOT."""

ALTERNATIVES_MAX = 10_000
"""Maximum conditions joined by OR in one statement, without equalities that became a list. This many ranges of a key
take 10 s, and time grows with the square, since more conditions are evaluated for more rows."""

QUERIES_MAX = 500
"""Maximum SELECTs of one statement, WITH queries counted as often as they are used."""

JOINS_MAX = 100
"""Maximum tables joined in one statement: 100 are planned in 0.2 s, 300 in 8 s."""

EXPRESSIONS_MAX = 4_000
"""Maximum expressions in lists, except for IN and VALUES."""

VALUES_MAX = 200_000
"""Maximum items of all IN lists and VALUES of one statement: 0.8 KiB each in the engine."""

GROUPING_SETS_MAX = 4_096
"""Maximum grouping sets of CUBE, ROLLUP and GROUPING SETS: a CUBE of 12 columns."""

EXPLAIN_MAX = 10
"""Maximum nesting of EXPLAIN, which the parser does not limit."""

NESTING_MAX = 100
"""Maximum nesting of brackets and CASE. The engine's parser accepts half as many of most kinds."""

FLAT_MAX = 12
"""The depth that is safe on any stack on which Python runs."""

CHAIN_MIN = 32
"""Shorter chains of OR are unchanged."""

_DIGITS_MAX = 18
"""Longer integers may not be of 64 bits, and then have another type."""

_OR = re.compile(r"\bor\b", re.IGNORECASE)
_TYPED = frozenset({"date", "timestamp"})
"""Words before a text that give its type."""

_FOR_ALTERNATIVES = "Use IN for equalities, or put the values or ranges into a table, and join it"
_COUNT_MAX = 10**9
_CACHED_CHARACTERS_MAX = 4096

_QUERIES = frozenset({"select", "values", "table"})
_JOINS = frozenset({"join", "intersect", "except", "minus", "pivot", "unpivot", "match_recognize"})
_AFTER_FROM = frozenset((
    "select", "where", "group", "order", "having", "limit", "union", "intersect", "except", "minus",
))  # fmt: skip
_GROUPINGS = frozenset({"cube", "rollup", "sets"})


@dataclass(frozen=True, slots=True)
class Fitted:
    """Text for the engine, with the same meaning, and the maximum depth of its expressions and its plan.

    ``naming`` is the same text with its casts in sight: the names of a query's columns are those of this form.
    """

    text: str
    depth: int
    naming: str

    @property
    def flat(self) -> bool:
        """Whether the engine may parse it on any stack."""
        return self.depth <= FLAT_MAX


def fit(text: str, what: str) -> Fitted:
    """Return the statement, predicate or expression in the form for the engine; ``what`` names it in messages.

    Raises UsageError if it is longer, deeper or wider than the limits, or has a clause that the engine would leave out.
    """
    if len(text) > TEXT_MAX:
        raise Code.SQL_TOO_COMPLEX(
            f"{what} has {len(text):,} characters; at most {TEXT_MAX:,} are allowed. Put long lists of values into a "
            "table, and join it"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Code.SQL_TOO_COMPLEX(f"{what} is not valid Unicode: {error.reason} at character {error.start}") from error
    return _cached(text, what) if len(text) <= _CACHED_CHARACTERS_MAX else _read(text, what)


@lru_cache(maxsize=256)
def _cached(text: str, what: str) -> Fitted:
    return _read(text, what)


def _read(text: str, what: str) -> Fitted:
    check_clauses(text)
    shown = use_lists(with_brackets(text))
    hidden = with_opaque_casts(with_opaque_lists(shown))
    found = _Count(hidden, what).result()
    return found if hidden == shown else replace(found, naming=_Count(shown, what).result().text)


@dataclass(slots=True)
class _Operands:
    """The operands of one operator so far: their number, their depth, and the conditions that AND and OR join."""

    count: int = 0
    deepest: int = 0
    joined: int = 0
    marks: list[Token] = field(default_factory=list)

    def add(self, depth: int, conditions: int) -> None:
        """Add one operand."""
        self.count += 1
        self.deepest = max(self.deepest, depth)
        self.joined += conditions


@dataclass(slots=True)
class _Operand:
    """The current operand of AND: its operators, the depth of its brackets, and the conditions that these join."""

    operators: int = 0
    nested: int = 0
    is_negated: bool = False
    conjuncts: int = 0
    disjuncts: int = 0

    @property
    def joined(self) -> tuple[int, int]:
        """The conditions that AND joins in it, and those that OR joins."""
        inside = (self.disjuncts, self.conjuncts) if self.is_negated else (self.conjuncts, self.disjuncts)
        return max(1, inside[0]), max(1, inside[1])


@dataclass(slots=True)
class _Bracket:
    """The content of one bracket, one CASE, or the whole text so far."""

    opener: str = ""
    is_list: bool = False
    in_from: bool = False
    with_query: str | None = None
    """The WITH query that is defined; empty before its name."""
    commas: int = 0
    queries: int = 0
    joins: int = 0
    depth: int = 0
    conjuncts: int = 0
    disjuncts: int = 0
    ors: _Operands = field(default_factory=_Operands)
    ands: _Operands = field(default_factory=_Operands)
    operand: _Operand = field(default_factory=_Operand)
    joined: tuple[int, int] = (1, 1)
    """Of the last operand of OR."""


class _Count:
    """Counts what is limited, from the marks of a text."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._brackets = [_Bracket()]
        self._values = self._expressions = self._explained = self._alternatives = 0
        self._sets = self._conditions = 1
        self._sizes: dict[str, tuple[int, int]] = {}
        self._opens: Counter[int] = Counter()
        self._closes: Counter[int] = Counter()
        self._is_matched = True

    def result(self) -> Fitted:
        """Count, and check what was counted. Raises UsageError."""
        for mark in marks_of(self._text):
            self._add(mark, self._brackets[-1])
        (whole,) = self._brackets
        split = "Split it, or put an intermediate result in a table"
        self._check("queries", whole.queries, QUERIES_MAX, split)
        self._check("joined tables", whole.joins, JOINS_MAX, split)
        self._check("conditions joined by AND", self._conditions, CONDITIONS_MAX, "Use NOT IN, or a table and a join")
        self._check("conditions joined by OR", self._alternatives + 1, ALTERNATIVES_MAX, _FOR_ALTERNATIVES)
        self._check("expressions in lists", self._expressions, EXPRESSIONS_MAX, "Split it into several")
        self._check("EXPLAIN one inside another", self._explained, EXPLAIN_MAX, "One is enough")
        self._check("values in lists", self._values, VALUES_MAX, "Put them into a table, and join it")
        self._check("grouping sets", self._sets, GROUPING_SETS_MAX, "Name the sets that are needed")
        self._check("operators in one chain", whole.depth, DEPTH_MAX, "Use IN for equalities, or a join, or split it")
        if self._opens and not self._is_matched:
            raise Code.SQL_TOO_COMPLEX(f"the brackets of {self._what}, or its CASE and END, do not match")
        # The engine walks plans by recursion as well.
        text = self._balanced() if self._opens else self._text
        return Fitted(text, max(whole.depth, whole.queries, whole.joins), text)

    def _check(self, kind: str, found: int, allowed: int, remedy: str) -> None:
        if found > allowed:
            raise Code.SQL_TOO_COMPLEX(f"{self._what} has {found:,} {kind}; at most {allowed:,} are allowed. {remedy}")

    def _add(self, mark: Mark, inside: _Bracket) -> None:
        match mark.kind:
            case Kind.OPERATOR:
                inside.operand.operators += 1
            case Kind.NOT:
                inside.operand.is_negated = True
            case Kind.NAME:
                self._name(inside, mark.text)
            case Kind.AND:
                self._end_and(inside)
            case Kind.OR:
                self._end_or(inside)
                inside.ors.marks.append(mark.token)
            case Kind.COMMA:
                self._comma(inside)
            case Kind.END:
                self._end(inside)
            case Kind.CLAUSE:
                self._clause(inside, mark.text)
            case Kind.OPEN:
                self._open(mark)
            case Kind.CLOSE:
                self._close()
            case Kind.UNMATCHED:
                self._is_matched = False
            case _:
                assert_never(mark.kind)

    # -- clauses and brackets -----------------------------------------------------------------------------------

    def _clause(self, inside: _Bracket, word: str) -> None:
        self._end(inside)
        self._explained += word == "explain"
        inside.queries += word in _QUERIES
        inside.joins += word in _JOINS
        inside.is_list = word == "values"
        if word == "with":
            inside.with_query = ""
        elif word in _QUERIES:
            inside.with_query = None
        inside.in_from = word == "from" or (inside.in_from and word not in _AFTER_FROM)

    def _name(self, inside: _Bracket, name: str) -> None:
        """Count a WITH query wherever its name occurs, even if it is the name of a column."""
        queries, joins = self._sizes.get(name, (0, 0))
        inside.queries += queries
        inside.joins += joins
        if inside.with_query == "":
            inside.with_query = name

    def _comma(self, inside: _Bracket) -> None:
        self._end(inside)
        self._values += inside.is_list
        self._expressions += not inside.is_list
        inside.commas += 1
        inside.joins += inside.in_from
        if inside.with_query is not None:
            inside.with_query = ""

    def _open(self, mark: Mark) -> None:
        # Rows of VALUES are values as well.
        is_list = mark.token.text == "(" and (mark.text == "in" or self._brackets[-1].is_list)
        self._brackets.append(_Bracket(mark.text, is_list))
        self._check("brackets one inside another", len(self._brackets) - 1, NESTING_MAX, "Name parts of it by WITH")

    def _close(self) -> None:
        closed = self._brackets.pop()
        self._end(closed)
        around = self._brackets[-1]
        around.operand.nested = max(around.operand.nested, closed.depth + 1)
        around.operand.conjuncts += closed.conjuncts
        around.operand.disjuncts += closed.disjuncts
        if around.with_query and closed.queries:
            queries, joins = self._sizes.get(around.with_query, (0, 0))
            sizes = max(closed.queries, queries), max(closed.joins, joins)
            self._sizes[around.with_query] = min(sizes[0], _COUNT_MAX), min(sizes[1], _COUNT_MAX)
            around.queries += 1
        else:
            around.queries += closed.queries
            around.joins += closed.joins
        if closed.opener in _GROUPINGS:
            items = closed.commas + 1
            self._sets *= 2 ** min(items, 64) if closed.opener == "cube" else items + 1

    # -- chains -------------------------------------------------------------------------------------------------

    def _end_and(self, inside: _Bracket) -> None:
        """End an operand of AND."""
        operand, inside.operand = inside.operand, _Operand()
        inside.joined = operand.joined
        inside.ands.add(operand.operators + operand.nested, operand.joined[0])

    def _end_or(self, inside: _Bracket) -> None:
        """End an operand of OR, and the last operand of AND in it."""
        self._end_and(inside)
        ands, inside.ands = inside.ands, _Operands()
        self._conditions = max(self._conditions, ands.joined)
        inside.joined = ands.joined, inside.joined[1] if ands.count == 1 else 1
        inside.ors.add(ands.count - 1 + ands.deepest, inside.joined[1])

    def _end(self, inside: _Bracket) -> None:
        """End an expression, or a possible one."""
        self._end_or(inside)
        ors, inside.ors = inside.ors, _Operands()
        depth = ors.count - 1
        self._alternatives += depth
        if depth >= CHAIN_MIN:
            for begin, end in halves([(one.end, following.start) for one, following in pairwise(ors.marks)]):
                self._opens[begin] += 1
                self._closes[end] += 1
            depth = 2 + depth.bit_length()
        inside.depth = max(inside.depth, depth + ors.deepest)
        inside.conjuncts = max(inside.conjuncts, inside.joined[0] if ors.count == 1 else 1)
        inside.disjuncts = max(inside.disjuncts, ors.joined)

    def _balanced(self) -> str:
        pieces, done = [], 0
        for position in sorted({*self._opens, *self._closes}):
            signs = ")" * self._closes[position] + " " + "(" * self._opens[position]
            pieces += [self._text[done:position], signs]
            done = position
        return "".join([*pieces, self._text[done:]])


# -- long chains of OR ------------------------------------------------------------------------------------------------


class _Alternative(NamedTuple):
    """The operand between two ORs; ``list_key``: its column and the kind of its literal; None if not an equality."""

    start: int
    end: int
    list_key: tuple[str, str] | None
    literal: str


def use_lists(text: str) -> str:
    """Return the text with long runs of equalities as lists, with the same meaning."""
    if len(_OR.findall(text)) <= CHAIN_MIN:
        return text
    pieces, done = [], 0
    for are_equalities, operands in groupby(_alternatives(list(tokens_of(text))), lambda one: one.list_key is not None):
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


def _as_lists(run: list[_Alternative]) -> str:
    lists: dict[tuple[str, str] | None, list[str]] = {}
    for one in run:
        lists.setdefault(one.list_key, []).append(one.literal)
    return " OR ".join(f"{key[0]} IN ({', '.join(literals)})" for key, literals in lists.items() if key)


def _alternatives(tokens: list[Token]) -> Iterator[_Alternative]:
    ors = [
        position
        for position, token in enumerate(tokens)
        if token.kind == "word" and token.says("or") and tokens[position - 1].text != "."
    ]
    for before, after in pairwise(ors):
        between = tokens[before + 1 : after]
        list_key, literal = _equality(between) or (None, "")
        yield _Alternative(tokens[before].end, tokens[after].start, list_key, literal)


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
