"""SQL as people write it, made into what the engine reads: ``FROM flights AT (VERSION => 12)``. Pure.

A table as it was is asked for right behind its name: ``AT (VERSION => 12)``, ``AT (TAG => 'audited')`` or
``AT (TIMESTAMP => '2026-01-31T12:00:00Z')``. The engine knows no such clause, but it knows tables in schemas: so the
clause becomes one, ``"version 12".flights``, whose columns are still those of ``flights``. Only whole tokens are looked
at: what stands in a text, a quoted name or a comment is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import UsageError

_KINDS: dict[str, tuple[str, Literal["version", "tag", "time"]]] = {
    "version": ("number", "version"),
    "tag": ("text", "tag"),
    "timestamp": ("text", "time"),
}
_FORMS = "AT (VERSION => 12), AT (TAG => 'name') and AT (TIMESTAMP => '2026-01-31T12:00:00Z')"


@dataclass(frozen=True, slots=True)
class At:
    """A table as it was: after a log version, at a tag, or at a time in ISO 8601."""

    kind: Literal["version", "tag", "time"]
    value: int | str


@dataclass(frozen=True, slots=True)
class Statement:
    """``text`` is for the engine; ``moments`` says what the schemas stand for that it names."""

    text: str
    moments: dict[str, At] = field(default_factory=dict)


def read_statement(text: str) -> Statement:
    """The statement without clauses that the engine does not know.

    Raises UsageError for an ``AT`` that cannot be meant, and for ``TABLESAMPLE``, which the engine would overlook.
    """
    tokens = list(tokens_of(text))
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
    for token in tokens_of(text):
        if token.text in ("'", '"'):
            # Not closed yet: what follows is inside.
            break
        if token.text == ";":
            whole.append(text[begin : token.start])
            begin = token.start + 1
    return [statement for statement in whole if statement.strip()], text[begin:]


def _is_clause(tokens: list[Token], position: int) -> bool:
    """Whether ``name AT ( word =>`` stands there, the AT at ``position``."""
    if not (tokens[position].kind == "word" and tokens[position].says("at") and 0 < position < len(tokens) - 3):
        return False
    before, bracket, word, arrow = tokens[position - 1], *tokens[position + 1 : position + 4]
    return before.kind in ("word", "quoted") and bracket.text == "(" and word.kind == "word" and arrow.text == "=>"


def _moment(tokens: list[Token], position: int) -> At:
    found = tokens[position + 2 : position + 6]
    kind, value, end = found[0], *([*found[2:], None, None][:2])
    wanted = _KINDS.get(kind.text.lower())
    if wanted is None or value is None or value.kind != wanted[0] or end is None or end.text != ")":
        raise UsageError(f"not a moment: AT ({' '.join(token.text for token in found)}; there are {_FORMS}")
    if position > 1 and tokens[position - 2].text == ".":
        raise UsageError(f"tables have plain names: {tokens[position - 1].text} cannot stand behind a dot")
    return At(wanted[1], int(value.text) if wanted[0] == "number" else value.text[1:-1].replace("''", "'"))
