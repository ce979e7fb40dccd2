"""SQL as people write it, made into what the engine reads: ``FROM flights AT (VERSION => 12)``. Pure.

A table as it was is asked for right behind its name: ``AT (VERSION => 12)``, ``AT (TAG => 'audited')`` or
``AT (TIMESTAMP => '2026-01-31T12:00:00Z')``. The engine knows no such clause, but it knows tables in schemas: so the
clause becomes one, ``"version 12".flights``, whose columns are still those of ``flights``. Only whole tokens are looked
at: what stands in a text, a quoted name or a comment is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from lakebed.errors import UsageError

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>'(?:[^']|'')*')
    |(?P<other>[eE]'(?:[^'\\]|\\.|'')*'|\$(?P<mark>\w*)\$.*?\$(?P=mark)\$)
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\d+)
    |(?P<sign>=>|.)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")

_KINDS: dict[str, tuple[str, Literal["number", "tag", "time"]]] = {
    "version": ("number", "number"),
    "tag": ("text", "tag"),
    "timestamp": ("text", "time"),
}
_FORMS = "AT (VERSION => 12), AT (TAG => 'name') and AT (TIMESTAMP => '2026-01-31T12:00:00Z')"


@dataclass(frozen=True, slots=True)
class At:
    """A table as it was: after a log number, at a tag, or at a time in ISO 8601."""

    kind: Literal["number", "tag", "time"]
    value: int | str


@dataclass(frozen=True, slots=True)
class Statement:
    """``text`` is for the engine; ``moments`` says what the schemas stand for that it names."""

    text: str
    moments: dict[str, At] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    def says(self, text: str) -> bool:
        return self.text.lower() == text


def read_statement(text: str) -> Statement:
    """The statement without clauses that the engine does not know.

    Raises UsageError for an ``AT`` that cannot be meant, and for ``TABLESAMPLE``, which the engine would overlook.
    """
    tokens = list(_tokens(text))
    pieces: list[str] = []
    moments: dict[str, At] = {}
    position = done = 0
    while position < len(tokens):
        token = tokens[position]
        if token.kind == "word" and token.says("tablesample"):
            raise UsageError("TABLESAMPLE is not supported; use LIMIT, or Table.scan with key ranges")
        if not _is_clause(tokens, position):
            position += 1
            continue
        moment = _moment(tokens, position)
        name, end = tokens[position - 1], tokens[position + 5]
        schema = f"{tokens[position + 2].text.lower()} {moment.value}"
        moments[schema] = moment
        pieces += [text[done : name.start], '"' + schema.replace('"', '""') + '".' + name.text]
        done = end.start + 1
        position += 6
    return Statement("".join([*pieces, text[done:]]), moments)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements in a text that end with a semicolon, without it, and what is left behind the last."""
    whole = []
    begin = 0
    for token in _tokens(text):
        if token.text in ("'", '"'):
            # Not closed yet: what follows is inside.
            break
        if token.text == ";":
            whole.append(text[begin : token.start])
            begin = token.start + 1
    return [statement for statement in whole if statement.strip()], text[begin:]


def _is_clause(tokens: list[_Token], position: int) -> bool:
    """Whether ``name AT ( word =>`` stands there, the AT at ``position``."""
    if not (tokens[position].kind == "word" and tokens[position].says("at") and 0 < position < len(tokens) - 3):
        return False
    before, bracket, word, arrow = tokens[position - 1], *tokens[position + 1 : position + 4]
    return before.kind in ("word", "quoted") and bracket.text == "(" and word.kind == "word" and arrow.text == "=>"


def _moment(tokens: list[_Token], position: int) -> At:
    found = tokens[position + 2 : position + 6]
    kind, value, end = found[0], *([*found[2:], None, None][:2])
    wanted = _KINDS.get(kind.text.lower())
    if wanted is None or value is None or value.kind != wanted[0] or end is None or end.text != ")":
        raise UsageError(f"not a moment: AT ({' '.join(token.text for token in found)}; there are {_FORMS}")
    if position > 1 and tokens[position - 2].text == ".":
        raise UsageError(f"tables have plain names: {tokens[position - 1].text} cannot stand behind a dot")
    return At(wanted[1], int(value.text) if wanted[0] == "number" else value.text[1:-1].replace("''", "'"))


def _tokens(text: str) -> Iterator[_Token]:
    """What the statement is made of, without blanks and comments."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None
        kind = found.lastgroup or ""
        if found["other"] is not None:
            kind = "other"
        if kind == "comment":
            position = _comment_end(text, found.end())
            continue
        if kind != "blank":
            yield _Token(kind, found[0], position)
        position = found.end()


def _comment_end(text: str, position: int) -> int:
    """Where the comment ends that was begun; comments nest."""
    depth = 1
    while depth:
        found = _COMMENT_MARK.search(text, position)
        if found is None:
            return len(text)
        depth += 1 if found[0] == "/*" else -1
        position = found.end()
    return position
