"""Explains to its author why the engine refuses a statement or a predicate. Pure.

The engine's parser reports what it expected and where. :func:`statement_reason` adds the words before that place and
the likely mistake, such as a misspelt keyword, a quote that is not closed, or a clause of another dialect.
:func:`plain_reason` translates messages about types that cannot be compared: the engine calls a UUID
``FixedSizeBinary(16)``, and reports a range over values that it cannot compare as an internal bug.
"""

from __future__ import annotations

import re
from itertools import pairwise, takewhile

from lakebed.engine.tokens import Token, tokens_of
from lakebed.model.wording import did_you_mean, nearest, printable

_REPORT = re.compile(r"\.?\s*This issue was likely caused by a bug in DataFusion's code\..*", re.DOTALL)
_RULE = re.compile(r"^type_coercion caused by ")
_TYPE_KIND = re.compile(
    r"(?:Internal error|Error during planning): (?=Failed to coerce|Cannot infer|Can not find|There isn't)"
)
_BYTES = "FixedSizeBinary("
_ADVICE = (
    "; write bytes as X'…' with two hex digits each, and a uuid as text such as '6f9619ff-8b86-d011-b42d-00c04fc964ff'"
)

_SYNTAX = re.compile(r'SQL error: (?:ParserError|TokenizerError)\("(.*)"\)', re.DOTALL)
_PLACE = re.compile(r" at Line: (\d+), Column: (\d+)$")
_EXPECTED = re.compile(r"Expected: (.*), found: ", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_KIND = re.compile(
    r"^(?:(?:type_coercion|Optimizer rule '\w+' failed) caused by )?"
    r"(?:Arrow error: |Cast error: |Schema error: |Error during planning: |Internal error: )*"
)
_NO_SIGNATURE = re.compile(r"Function '(\w+)' failed to match any signature.*? but received (\w+)", re.DOTALL)
_NOT_GROUPED = re.compile(r'Column in .* must be in GROUP BY.*column "([^"]+)" must appear', re.DOTALL)
_UNKNOWN_COLUMN = re.compile(r'No field named "?([^"\s]+?)"?\.?(?:\s|$)')

_BEGINNINGS = ("SELECT", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "SUMMARIZE", "VALUES")
_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "JOIN", "UNION", "BETWEEN")
_TWO_WORDS = {"group": "GROUP BY", "order": "ORDER BY", "partition": "PARTITION BY"}
_ORDER = "the clauses stand in the order SELECT, FROM, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT"
_OTHER_DIALECTS = (
    ("not implemented: TOP", "TOP is not supported: write LIMIT and the number at the end"),
    ("FETCH clause is not supported", "FETCH is not supported: write LIMIT and the number at the end"),
    ("operator: PGOverlap", "the operator && is not supported: write AND"),
    ("No SQL statements were provided", "No SQL statements: the text is empty"),
)
_NEAR_CHARACTERS = 40


def statement_reason(text: str, message: str) -> str:
    """Return the engine's message on one line, with the place of a syntax error and a likely correction."""
    syntax = _SYNTAX.search(message)
    if syntax is not None:
        return _syntax_error(text, _ESCAPED.sub(r"\1", syntax[1]))
    plain = plain_reason(_KIND.sub("", message))
    for mark, instead in _OTHER_DIALECTS:
        if mark in plain:
            return instead
    if (column := _NOT_GROUPED.search(plain)) is not None:
        return f"column {column[1]} must be in GROUP BY, or inside an aggregate such as max({column[1]})"
    if (function := _NO_SIGNATURE.search(plain)) is not None:
        return f"function {function[1]} does not take {function[2]}: give another column, or cast it"
    unknown = _UNKNOWN_COLUMN.search(plain)
    if unknown is None:
        return plain
    tokens = list(tokens_of(text))
    if any(one.kind == "quoted" and one.text[1:-1] == unknown[1] for one in tokens):
        return f"{plain.rstrip('.')}. Double quotes are for names: a text is written '{unknown[1]}'"
    if "Did you mean" not in plain and any(
        before.text in ("=", ">", "<") and after.kind == "word" and after.text == unknown[1]
        for before, after in pairwise(tokens)
    ):
        return f"{plain.rstrip('.')}. A text is written in quotes: '{unknown[1]}'"
    return plain


def _syntax_error(text: str, message: str) -> str:
    """Return the error with its place, the preceding text, and a likely correction."""
    place = _PLACE.search(message)
    tokens = list(tokens_of(text))
    if place is None:
        expected = _EXPECTED.search(message)
        wanted = f": expected {expected[1]}" if expected else f": {message}"
        unclosed = next((one for one in tokens if one.text in ("'", '"')), None)
        hint = "" if unclosed is None else f"; the quote {unclosed.text} is not closed"
        return f"the text ends too early{_after(text, tokens)}{wanted}{hint}" if tokens else "the text is empty"
    line, column = int(place[1]), int(place[2])
    start = _position(text, line, column)
    before = list(takewhile(lambda token: token.start < start, tokens))
    found = tokens[len(before)] if len(before) < len(tokens) else None
    where = f"line {line}, column {column}"
    if "Unterminated" in message or "close delimiter" in message:
        what = "name in double quotes" if "delimiter" in message else "text in quotes"
        return (
            f"the {what} that begins in {where} is not closed: {_excerpt(text[max(0, start - 1) :])!r}; "
            "a quote within quotes is written twice"
        )
    expected = _EXPECTED.search(message)
    wanted = f"expected {expected[1]}" if expected else _PLACE.sub("", message)
    shown = "" if found is None else f" at {_excerpt(found.text)!r}"
    return f"syntax error{shown} in {where}{_after(text, before)}: {wanted}{_hint(before, found, tokens, wanted)}"


def _hint(before: list[Token], found: Token | None, tokens: list[Token], wanted: str) -> str:
    """Return the likely correction, as the end of the message."""
    if found is None:
        return ""
    if not before:
        return did_you_mean(found.text, _BEGINNINGS) or f"; a statement begins with {', '.join(_BEGINNINGS)}"
    if found.text in "\u2018\u2019\u201c\u201d":
        return "; write straight quotes: '…' for a text, \"…\" for a name"
    if "end of statement" not in wanted:
        return ""
    word = found.text.lower()
    following = tokens[len(before) + 1] if len(before) + 1 < len(tokens) else None
    if word in _TWO_WORDS and (following is None or not following.says("by")):
        return f"; did you mean {_TWO_WORDS[word]!r}?"
    if found.text.upper() in _CLAUSES:
        return f"; {_ORDER}"
    if found.text == "-" and before[-1].kind == "word":
        return "; a name that is not a plain word is written in double quotes"
    # A misspelt keyword is parsed as an alias, and the word after it is the error.
    for token in (found, before[-1]):
        close = nearest(token.text, _CLAUSES) if token.kind == "word" and token.text.upper() not in _CLAUSES else []
        if close:
            return f"; did you mean {close[0]!r} in place of {token.text!r}?"
    return ""


def _after(text: str, before: list[Token]) -> str:
    if not before:
        return ""
    # Whole words, from the third token back on.
    near = text[before[max(0, len(before) - 3)].start : before[-1].end]
    return f", after {_excerpt(near, end=True)!r}"


def _excerpt(text: str, *, end: bool = False) -> str:
    plain = printable(" ".join(text.split()))
    if len(plain) <= _NEAR_CHARACTERS:
        return plain
    return f"…{plain[-_NEAR_CHARACTERS:]}" if end else f"{plain[:_NEAR_CHARACTERS]}…"


def _position(text: str, line: int, column: int) -> int:
    """Return the position of a line and a column, which count from 1."""
    lines = text.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + column - 1


def plain_reason(text: str) -> str:
    """Return the message without the request to report a bug, and with how to write values compared with bytes."""
    plain = _TYPE_KIND.sub("", _RULE.sub("", _REPORT.sub("", text)))
    return plain + _ADVICE if _BYTES in plain and "Utf8" in plain else plain
