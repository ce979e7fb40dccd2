"""Bounds what an expression over rows can make of them, before the engine sees it. Pure.

The engine evaluates a batch of rows at once, in this process, and computes constants while it plans. ``repeat(k,
2000000000)`` would take all memory of a service, and the engine has no limit on values. So the size of every value is
estimated from the text, as a number of bytes and a multiple of the columns of its row:

* A text has its bytes, a column one time itself; ``||`` and functions of several arguments add up.
* Functions whose result can be larger than their arguments (:data:`_GROWING`) multiply by arguments that have to be
  written out: a number of repetitions, a replacement.
* A query over a query multiplies what both make. Recursive queries are refused.

:func:`fit_bounded` checks predicates, assignments, generated fields, constants and stored queries. A statement in SQL
needs none of this: it runs in a process with a limit on memory. Rule: the estimate may be too high, never too low; a
test measures every function of the engine against it. Errors: UsageError. Measured on DataFusion 55.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

from lakebed.engine.complexity import Fitted, fit
from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import Code

BYTES_MAX = 16 * 1024
"""Bytes that an expression may add to a row: 128 MiB for the 8,192 rows that are evaluated at once."""

TIMES_MAX = 16
"""How many times a column may occur in a value: docs/costs.md allows sixteen times the largest row."""

CONSTANT_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a value that depends on no column: it exists once, not in each row. Twice the longest text of SQL."""

_CACHED_CHARACTERS_MAX = 4096
_ITEM_BYTES = 16

_NARROW = frozenset((
    "length", "char_length", "character_length", "octet_length", "bit_length", "strpos", "position", "instr",
    "starts_with", "ends_with", "contains", "regexp_like", "regexp_count", "regexp_instr", "ascii", "levenshtein",
    "array_has", "list_has", "array_contains", "list_contains", "array_has_any", "list_has_any", "array_has_all",
    "list_has_all", "array_position", "list_position", "array_length", "list_length", "cardinality", "empty",
    "array_empty", "list_empty", "count", "md5", "sha224", "sha256", "sha384", "sha512", "date_part", "datepart",
    "extract", "date_trunc", "datetrunc", "exists",
))  # fmt: skip
"""Functions whose results are numbers, truth values or digests, so that what they are computed from is all there is."""

_WIDEST = frozenset({"coalesce", "greatest", "least", "nvl", "ifnull", "nullif", "nvl2", "max", "min", "first_value"})
"""Functions whose result is one of their arguments."""

_CONDITIONS = frozenset((
    "and", "or", "not", "is", "isnull", "notnull", "like", "ilike", "in", "between", "similar", "rlike", "regexp",
    "exists", "xor", "overlaps",
))  # fmt: skip
"""Words of conditions, whose value is a truth value."""

_COMPARING = frozenset("=<>!~")

_ENDING = frozenset((
    "select", "from", "where", "group", "order", "having", "qualify", "window", "limit", "offset", "fetch", "on",
    "using", "join", "union", "intersect", "except", "as", "values", "with", "by", "over", "partition", "filter",
))  # fmt: skip
"""Words after which another value begins."""

_NO_CALLS = _CONDITIONS | _ENDING | {"then", "else", "when", "case", "distinct", "all", "any", "some", "array"}
"""Words before a bracket that call no function."""

_GATHERING = frozenset({"array_agg", "string_agg", "listagg", "group_concat"})


class ValueSize(NamedTuple):
    """The bytes of a value that do not depend on its row, and how often it has each column."""

    size_bytes: float = 0
    times: Mapping[str, float] = {}

    def __mul__(self, factor: object) -> ValueSize:
        assert isinstance(factor, int | float)
        return ValueSize(self.size_bytes * factor, {name: count * factor for name, count in self.times.items()})

    @property
    def most(self) -> float:
        """How often it has the column that it has most often."""
        return max(self.times.values(), default=0)


NOTHING = ValueSize()


def total(values: Iterable[ValueSize]) -> ValueSize:
    """Return the size of values side by side."""
    size_bytes, times = 0.0, dict[str, float]()
    for one in values:
        size_bytes += one.size_bytes
        for name, count in one.times.items():
            times[name] = times.get(name, 0) + count
    return ValueSize(size_bytes, times)


def widest(values: Iterable[ValueSize]) -> ValueSize:
    """Return the size of a value that may be any of these."""
    size_bytes, times = 0.0, dict[str, float]()
    for one in values:
        size_bytes = max(size_bytes, one.size_bytes)
        for name, count in one.times.items():
            times[name] = max(times.get(name, 0), count)
    return ValueSize(size_bytes, times)


def fit_bounded(text: str, what: str, *, once: bool = False) -> Fitted:
    """As :func:`~lakebed.engine.complexity.fit`, for text that the engine evaluates in this process.

    Raises UsageError as well if a value of it could be too large for its row; ``once``: it has a value, not one a row.
    """
    found = fit(text, what)
    check = _checked if len(text) <= _CACHED_CHARACTERS_MAX else _checked.__wrapped__
    check(text, what, once=once)
    return found


@lru_cache(maxsize=256)
def _checked(text: str, what: str, *, once: bool) -> None:
    _SizePass(what).read(text, once=once)


@dataclass(slots=True)
class _Argument:
    """One argument of a call: its size, and its text if it is a single number or text, written out."""

    size: ValueSize
    token: Token | None

    @property
    def number(self) -> float | None:
        """Its number, if it is one that is written out."""
        if self.token is None or self.token.kind not in ("number", "decimal"):
            return None
        return float(self.token.text)

    @property
    def content(self) -> str | None:
        """Its text, if it is one that is written out, without escapes, which would hide what it is."""
        if self.token is None or self.token.kind != "text":
            return None
        return self.token.content


@dataclass(slots=True)
class _OpenBracket:
    """The content of one bracket, one CASE, or the whole text so far."""

    call: str
    closing: str
    query: int
    arguments: list[_Argument] = field(default_factory=list)
    values: list[ValueSize] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    joined: bool = False
    condition: bool = False
    names: int = 0
    is_result: bool = True

    @property
    def of_row(self) -> bool:
        """Whether it names a column."""
        return self.names > 0

    def value(self) -> ValueSize:
        """Return the size of the value that ends here: of one of its operands, unless ``||`` joins them."""
        return (total if self.joined else widest)(self.values)


class _NotWrittenOut(Exception):  # noqa: N818 - a reason, which becomes an error
    """An argument that the size of a result depends on is not a number or a text that is written out."""


def _written_number(arguments: Sequence[_Argument], position: int, what: str) -> float:
    if position >= len(arguments):
        return 0
    found = arguments[position].number
    if found is None:
        raise _NotWrittenOut(what)
    return found


def _written_text(arguments: Sequence[_Argument], position: int, what: str) -> str:
    if position >= len(arguments):
        return ""
    found = arguments[position].content
    if found is None:
        raise _NotWrittenOut(what)
    return found


def _first(arguments: Sequence[_Argument]) -> ValueSize:
    return arguments[0].size if arguments else NOTHING


def _repeated(arguments: Sequence[_Argument]) -> ValueSize:
    return _first(arguments) * _written_number(arguments, 1, "the number")


def _repeated_items(arguments: Sequence[_Argument]) -> ValueSize:
    return total([_first(arguments), ValueSize(_ITEM_BYTES)]) * _written_number(arguments, 1, "the number")


def _resized(arguments: Sequence[_Argument]) -> ValueSize:
    filler = total([*(one.size for one in arguments[2:3]), ValueSize(_ITEM_BYTES)])
    return total([_first(arguments), filler * _written_number(arguments, 1, "the size")])


def _padded(arguments: Sequence[_Argument]) -> ValueSize:
    filler = total([*(one.size for one in arguments[2:3]), ValueSize(4)])
    return total([_first(arguments), filler * _written_number(arguments, 1, "the length")])


def _series(arguments: Sequence[_Argument]) -> ValueSize:
    ends = [_written_number(arguments, position, "the numbers") for position in range(min(len(arguments), 2))]
    return ValueSize(_ITEM_BYTES * (max(ends, default=0) + 1))


def _replaced(arguments: Sequence[_Argument]) -> ValueSize:
    """Each occurrence grows by the ratio of both texts; an empty one is at every place."""
    new = len(_written_text(arguments, 2, "the replacement").encode())
    old = len((arguments[1].content or "").encode()) if len(arguments) > 1 else 0
    if old:
        return _first(arguments) * max(1, new / old)
    return total([_first(arguments) * (1 + new), ValueSize(new)])


def _replaced_by_pattern(arguments: Sequence[_Argument]) -> ValueSize:
    """A replacement may contain the match, and with the flag g every place may match."""
    new = _written_text(arguments, 2, "the replacement")
    every = "g" in _written_text(arguments, 3, "the flags")
    groups = new.count("\\") + new.count("$")
    size = len(new.encode())
    return total([_first(arguments) * (1 + groups + (size if every else 0)), ValueSize(size)])


def _replaced_items(arguments: Sequence[_Argument]) -> ValueSize:
    size = (
        8
        if len(arguments) > 2 and arguments[2].number is not None
        else len(_written_text(arguments, 2, "the new item"))
    )
    return total([_first(arguments) * (1 + size), ValueSize(size)])


def _joined_items(arguments: Sequence[_Argument]) -> ValueSize:
    between = len(_written_text(arguments, 1, "the separator")) + len(_written_text(arguments, 2, "the text for nulls"))
    return _first(arguments) * (3 + between)


def _separated(arguments: Sequence[_Argument]) -> ValueSize:
    return total([*(one.size for one in arguments[1:]), _first(arguments) * len(arguments)])


def _cast_to_named_type(arguments: Sequence[_Argument]) -> ValueSize:
    """A type of fixed size has its size in its name."""
    name = _written_text(arguments, 1, "the type")
    sizes = [float(number) for number in re.findall(r"[0-9]+", name)] if "fixed" in name.lower() else []
    return total([_first(arguments), ValueSize(_ITEM_BYTES * max(sizes, default=0))])


def _widened(times: int) -> Callable[[Sequence[_Argument]], ValueSize]:
    return lambda arguments: total(one.size for one in arguments) * times


_GROWING: dict[str, Callable[[Sequence[_Argument]], ValueSize]] = {
    "repeat": _repeated,
    **dict.fromkeys(("array_repeat", "list_repeat"), _repeated_items),
    **dict.fromkeys(("array_resize", "list_resize"), _resized),
    **dict.fromkeys(("lpad", "rpad"), _padded),
    **dict.fromkeys(("range", "generate_series"), _series),
    "replace": _replaced,
    "regexp_replace": _replaced_by_pattern,
    **dict.fromkeys(
        [f"{kind}_replace{which}" for kind in ("array", "list") for which in ("", "_n", "_all")], _replaced_items
    ),
    **dict.fromkeys(("array_to_string", "list_to_string", "array_join", "list_join"), _joined_items),
    "concat_ws": _separated,
    **dict.fromkeys(("arrow_cast", "arrow_try_cast"), _cast_to_named_type),
    **dict.fromkeys(("upper", "lower", "initcap", "translate"), _widened(3)),
    "encode": _widened(2),
    **dict.fromkeys(("to_char", "date_format"), _widened(16)),
    **dict.fromkeys(("string_to_array", "string_to_list", "regexp_match", "regexp_split"), _widened(8)),
}
"""Functions whose result may be larger than their arguments together, and by how much."""


def _name_of(token: Token) -> str:
    return token.name.lower()


class _SizePass:
    """One pass over the tokens of a text."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._queries = [1.0]
        self._bytes = 0.0
        self._windows = self._gathers = False
        self._groups = [_OpenBracket("", "", 0)]

    def read(self, text: str, *, once: bool) -> None:
        """Check the text. Raises UsageError."""
        before: Token | None = None
        for token in tokens_of(text):
            self._take(token, before)
            before = token
        while len(self._groups) > 1:
            self._close()
        whole = self._groups[0]
        self._end_argument(whole)
        for one in whole.arguments:
            self._note(one.size, whole, per_row=not once)
        if self._windows and self._gathers:
            raise self._refused("over a window, array_agg and string_agg gather each row many times")
        times = prod(self._queries)
        self._check("it", self._bytes * times, times, BYTES_MAX)

    def _take(self, token: Token, before: Token | None) -> None:
        group = self._groups[-1]
        word = token.text.lower() if token.kind == "word" else ""
        if token.text in ("(", "[", "{") or word == "case":
            self._open(token, before)
        elif token.text in (")", "]", "}") or (word == "end" and group.closing == "end"):
            self._close_until("end" if word else token.text)
        elif token.text == "," or word in _ENDING:
            self._separate(group, word)
        elif group.call == "case" and word in ("when", "then", "else"):
            self._end_argument(group)
            group.is_result = word != "when"
        elif word in _CONDITIONS or (token.kind == "sign" and token.text in _COMPARING):
            self._end_value(group)
            group.condition = True
        else:
            self._operand(group, token, before)

    def _separate(self, group: _OpenBracket, word: str) -> None:
        """End a value at a comma, or at a word that begins another part of a query."""
        self._windows |= word == "over"
        self._end_argument(group)
        if word == "select":
            self._queries.append(1.0)
            group.query = len(self._queries) - 1

    def _operand(self, group: _OpenBracket, token: Token, before: Token | None) -> None:
        group.tokens.append(token)
        if token.kind == "sign":
            group.joined |= token.text == "|" and before is not None and before.text == "|"
        elif token.kind in ("word", "quoted"):
            if before is not None and before.says("with") and token.says("recursive"):
                raise self._refused("it is recursive, so its rows have no bound")
            group.values.append(ValueSize(0, {_name_of(token): 1}))
            group.names += 1
        else:
            group.values.append(ValueSize(len(token.text.strip("'").encode()), {}))

    def _open(self, token: Token, before: Token | None) -> None:
        call = ""
        if token.text == "(" and before is not None and before.kind in ("word", "quoted"):
            name = _name_of(before)
            call = "" if before.kind == "word" and name in _NO_CALLS else name
        elif token.text == "[":
            call = "make_array"
        elif token.kind == "word":
            call = "case"
        around = self._groups[-1]
        if call and call not in ("case", "make_array") and around.values and around.tokens:
            # The name of the function is no column.
            around.values.pop()
            around.names -= 1
        around.tokens.append(token)
        closing = {"(": ")", "[": "]", "{": "}"}.get(token.text, "end")
        self._groups.append(_OpenBracket(call, closing, around.query, is_result=call != "case"))

    def _close_until(self, closing: str) -> None:
        if any(group.closing == closing for group in self._groups[1:]):
            while self._groups[-1].closing != closing:
                self._close()
            self._close()

    def _close(self) -> None:
        group = self._groups.pop()
        self._end_argument(group)
        found = self._result(group)
        around = self._groups[-1]
        around.names += group.of_row
        around.values.append(found)

    def _end_value(self, group: _OpenBracket) -> ValueSize:
        """End one operand of a comparison, or an argument; returns its size."""
        found = group.value()
        if group.joined:
            self._note(found, group)
        group.values, group.joined = [], False
        return found

    def _end_argument(self, group: _OpenBracket) -> None:
        found = self._end_value(group)
        token = group.tokens[0] if len(group.tokens) == 1 else None
        if group.tokens and group.is_result:
            group.arguments.append(_Argument(NOTHING if group.condition else found, token))
        group.tokens, group.condition = [], False

    def _result(self, group: _OpenBracket) -> ValueSize:
        """Return the size of the value of a bracket, and note what it takes while it is computed."""
        arguments = [one.size for one in group.arguments]
        given = total(arguments)
        self._gathers |= group.call in _GATHERING
        if not group.call:
            return widest(arguments)
        if group.call in _NARROW:
            return NOTHING
        if group.call in _WIDEST or group.call == "case":
            found = given = widest(arguments)
        elif group.call in _GROWING:
            try:
                found = _GROWING[group.call](group.arguments)
            except _NotWrittenOut as error:
                raise self._refused(
                    f"{error} of {group.call} must be written out, as its result has no bound"
                ) from error
        else:
            found = given
        self._note(widest([found, given]), group)
        return found

    def _note(self, found: ValueSize, group: _OpenBracket, *, per_row: bool | None = None) -> None:
        """Note a value that the engine computes. Raises UsageError if it alone is too large."""
        in_row = group.of_row if per_row is None else per_row
        self._queries[group.query] = max(self._queries[group.query], found.most)
        if in_row:
            self._bytes = max(self._bytes, found.size_bytes)
        self._check(group.call or "it", found.size_bytes, found.most, BYTES_MAX if in_row else CONSTANT_BYTES_MAX)

    def _check(self, call: str, size_bytes: float, times: float, allowed: int) -> None:
        if size_bytes > allowed:
            where = " in a row" if allowed == BYTES_MAX else ""
            raise self._refused(f"{call} makes up to {size_bytes:,.0f} bytes{where}, and {allowed:,} are allowed")
        if times > TIMES_MAX:
            raise self._refused(f"{call} makes up to {times:,.0f} times a column, and {TIMES_MAX} times are allowed")

    def _refused(self, reason: str) -> Exception:
        return Code.SQL_TOO_COMPLEX(
            f"{self._what} can take too much memory: {reason}. A statement in SQL can, in a process with a limit "
            "(memory_limit_bytes)"
        )
