"""Limits the complexity of SQL text before the engine parses it, and rewrites long chains of OR. Pure.

The engine parses ``a OR b OR c OR …`` into a tree as deep as the chain is long. It walks, copies and drops the tree by
recursion, and a stack overflow ends the process. So the depth of the tree is estimated from the tokens:

* Long chains of OR become lists of values and balanced trees (:mod:`lakebed.engine.alternatives`). The engine evaluates
  every remaining operand for every row, so their number is limited.
* Other chains (``+``, ``||``, ``::``, ``IS NULL``) cannot be rewritten, so their length is limited.
* The engine rebuilds conditions joined by AND, however nested, as one chain, and those joined by OR inside NOT, so
  their number is limited.
* Constructs that take the engine quadratic or exponential time are limited as well: queries in one statement, joins,
  expressions, grouping sets. A WITH query counts as often as it is used.

Core: :func:`fitted`. Rule: the estimate may be too high, never too low. Errors: UsageError. Measured on DataFusion 55.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from lakebed.engine.alternatives import CHAIN_MIN, halves, listed
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

_FOR_ALTERNATIVES = "Use IN for equalities, or put the values or ranges into a table, and join it"
_COUNT_MAX = 10**9
_CACHED_CHARACTERS_MAX = 4096

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


def fitted(text: str, what: str) -> Fitted:
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
    shown = listed(with_brackets(text))
    hidden = with_opaque_casts(with_opaque_lists(shown))
    found = _Pass(hidden, what).read()
    return found if hidden == shown else replace(found, naming=_Pass(shown, what).read().text)


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
class _Bracket:
    """The content of one bracket, one CASE, or the whole text so far."""

    closing: str
    opener: str
    depth: int = 0
    commas: int = 0
    queries: int = 0
    joins: int = 0
    in_from: bool = False
    listed: bool = False
    with_query: str | None = None
    betweens: int = 0
    ors: _Operands = field(default_factory=_Operands)
    ands: _Operands = field(default_factory=_Operands)
    operators: int = 0
    nested: int = 0
    negated: bool = False
    conjuncts: int = 0
    disjuncts: int = 0
    inner_conjuncts: int = 0
    inner_disjuncts: int = 0
    conjuncts_here: int = 1
    disjuncts_here: int = 1


class _Pass:
    """One pass over the tokens of a text, which counts everything that is limited."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._groups = [_Bracket("", "")]
        self._before = Token("sign", "", -1)
        self._path = self._run = 0
        self._values = self._expressions = self._explained = self._alternatives = 0
        self._sets = self._conditions = 1
        self._sizes: dict[str, tuple[int, int]] = {}
        self._opens: dict[int, int] = {}
        self._closes: dict[int, int] = {}
        self._matched = True

    def read(self) -> Fitted:
        """Check the text. Raises UsageError."""
        for token in tokens_of(self._text):
            self._take(token)
            self._before = token
        while len(self._groups) > 1:
            self._matched = False
            self._close()
        whole = self._groups[0]
        self._end_segment(whole)
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
        if self._opens and not self._matched:
            raise Code.SQL_TOO_COMPLEX(f"the brackets of {self._what}, or its CASE and END, do not match")
        # The engine walks plans by recursion as well.
        text = self._balanced() if self._opens else self._text
        return Fitted(text, max(whole.depth, whole.queries, whole.joins), text)

    def _check(self, kind: str, found: int, allowed: int, remedy: str) -> None:
        if found > allowed:
            raise Code.SQL_TOO_COMPLEX(f"{self._what} has {found:,} {kind}; at most {allowed:,} are allowed. {remedy}")

    # -- tokens -------------------------------------------------------------------------------------------------

    def _take(self, token: Token) -> None:
        group = self._groups[-1]
        if token.kind == "word":
            self._word(group, token)
        elif token.kind == "quoted":
            self._name(group, token.text[1:-1].replace('""', '"'))
        elif token.kind == "sign":
            self._sign(group, token)
        if token.text != "." and self._before.text != ".":
            self._path = 0

    def _sign(self, group: _Bracket, token: Token) -> None:
        sign = token.text
        touches = self._before.end == token.start
        self._run = self._run + 1 if touches and self._before.kind == "sign" else 0
        if sign in _OPENING:
            # An element of a list, or of a list of lists.
            group.operators += self._before.text in _CLOSING or (sign == "[" and self._before.kind != "sign")
            self._open(sign)
        elif sign in _CLOSING:
            self._close_until(sign)
        elif sign == ",":
            self._comma(group)
        elif sign == ";":
            self._end_segment(group)
        elif sign == ".":
            # A name has three parts; further ones are fields of fields.
            self._path += 1
            group.operators += self._path > 3
        else:
            # An operator has up to three signs.
            group.operators += self._run % 3 == 0 or self._before.text in _CLOSING

    def _word(self, group: _Bracket, token: Token) -> None:
        word = token.text.lower()
        if self._before.text == ".":
            return
        if word == "or":
            self._end_or(group)
            group.ors.marks.append(token)
        elif word == "and":
            if group.betweens:
                group.betweens -= 1
            else:
                self._end_and(group)
        elif word == "case":
            self._open(word)
        elif word == "end" and group.closing == "end":
            self._close()
        elif word in _CLAUSES:
            self._clause(group, word)
        else:
            # A repeated word may be a prefix operator of a prefix operator.
            group.operators += word in _INFIX or self._before.says(word)
            group.betweens += word == "between"
            group.negated |= word == "not"
            self._name(group, token.text)

    def _clause(self, group: _Bracket, word: str) -> None:
        if word in ("distinct", "all") and not self._before.says("select"):
            return
        self._end_segment(group)
        group.operators += word == "xor" or self._before.says(word)
        self._explained += word == "explain"
        group.queries += word in _QUERIES
        group.joins += word in _JOINS
        group.listed = word == "values"
        if word == "with":
            group.with_query = ""
        elif word in _QUERIES:
            group.with_query = None
        group.in_from = word == "from" or (group.in_from and word not in _AFTER_FROM)

    def _name(self, group: _Bracket, name: str) -> None:
        """Count a WITH query wherever its name occurs, even if it is the name of a column."""
        queries, joins = self._sizes.get(name, (0, 0))
        group.queries += queries
        group.joins += joins
        if group.with_query == "":
            group.with_query = name

    def _comma(self, group: _Bracket) -> None:
        if group.listed:
            self._values += 1
        else:
            self._expressions += 1
        group.commas += 1
        group.joins += group.in_from
        listed, in_from = group.listed, group.in_from
        self._end_segment(group)
        group.listed, group.in_from = listed, in_from
        if group.with_query is not None:
            group.with_query = ""

    # -- groups -------------------------------------------------------------------------------------------------

    def _open(self, sign: str) -> None:
        before = self._before.text.lower() if self._before.kind == "word" else ""
        group = _Bracket(_OPENING[sign], before)
        # Rows of VALUES are values as well.
        group.listed = sign == "(" and (before == "in" or self._groups[-1].listed)
        self._groups.append(group)
        self._check("brackets one inside another", len(self._groups) - 1, NESTING_MAX, "Name parts of it by WITH")

    def _close_until(self, sign: str) -> None:
        if not any(group.closing == sign for group in self._groups):
            self._matched = False
            return
        while self._groups[-1].closing != sign:
            self._matched = False
            self._close()
        self._close()

    def _close(self) -> None:
        group = self._groups.pop()
        self._end_segment(group)
        around = self._groups[-1]
        around.nested = max(around.nested, group.depth + 1)
        around.inner_conjuncts += group.conjuncts
        around.inner_disjuncts += group.disjuncts
        if around.with_query and group.queries:
            queries, joins = self._sizes.get(around.with_query, (0, 0))
            sizes = max(group.queries, queries), max(group.joins, joins)
            self._sizes[around.with_query] = min(sizes[0], _COUNT_MAX), min(sizes[1], _COUNT_MAX)
            around.queries += 1
        else:
            around.queries += group.queries
            around.joins += group.joins
        if group.opener in _GROUPINGS:
            items = group.commas + 1
            self._sets *= 2 ** min(items, 64) if group.opener == "cube" else items + 1

    # -- chains -------------------------------------------------------------------------------------------------

    def _end_and(self, group: _Bracket) -> None:
        """End an operand of AND."""
        inside = (group.inner_conjuncts, group.inner_disjuncts)
        conjuncts, group.disjuncts_here = (max(1, one) for one in (inside[::-1] if group.negated else inside))
        group.ands.add(group.operators + group.nested, conjuncts)
        group.operators = group.nested = group.inner_conjuncts = group.inner_disjuncts = 0
        group.negated = False

    def _end_or(self, group: _Bracket) -> None:
        """End an operand of OR, and the last operand of AND in it."""
        self._end_and(group)
        ands, group.ands = group.ands, _Operands()
        self._conditions = max(self._conditions, ands.joined)
        group.conjuncts_here = ands.joined
        group.ors.add(ands.count - 1 + ands.deepest, group.disjuncts_here if ands.count == 1 else 1)

    def _end_segment(self, group: _Bracket) -> None:
        """End an expression, or a possible one."""
        self._end_or(group)
        ors, group.ors = group.ors, _Operands()
        depth = ors.count - 1
        self._alternatives += depth
        if depth >= CHAIN_MIN:
            for begin, end in halves([(one.end, following.start) for one, following in pairwise(ors.marks)]):
                self._opens[begin] = self._opens.get(begin, 0) + 1
                self._closes[end] = self._closes.get(end, 0) + 1
            depth = 2 + depth.bit_length()
        group.depth = max(group.depth, depth + ors.deepest)
        group.conjuncts = max(group.conjuncts, group.conjuncts_here if ors.count == 1 else 1)
        group.disjuncts = max(group.disjuncts, ors.joined)
        group.betweens = 0

    def _balanced(self) -> str:
        pieces, done = [], 0
        for position in sorted({*self._opens, *self._closes}):
            signs = ")" * self._closes.get(position, 0) + " " + "(" * self._opens.get(position, 0)
            pieces += [self._text[done:position], signs]
            done = position
        return "".join([*pieces, self._text[done:]])
