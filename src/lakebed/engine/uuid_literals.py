"""Writes the texts that SQL compares with UUID columns as bytes. Pure.

The engine has UUIDs as 16 bytes, and compares no text with them: ``id = '6f9619ff-…'`` becomes ``id = X'6f9619ff…'``.
So do the texts of ``IN (…)`` and ``BETWEEN … AND …``. Only a text in the form of a UUID is rewritten, and only beside
the bare or qualified name of such a column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebed.engine.tokens import Token, tokens_of
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

_UUID = re.compile(r"'([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})'")
_SIGNS = frozenset("=<>!")


def uuid_columns(schemas: Iterable[pa.Schema]) -> frozenset[str]:
    """The names of the UUID columns of some tables."""
    return frozenset(field.name for schema in schemas for field in schema if field.type == UUID)


def with_bytes(text: str, columns: Collection[str]) -> str:
    """The statement or the expression with bytes in place of texts that are compared with these columns."""
    if not columns or not _UUID.search(text):
        return text
    tokens = list(tokens_of(text))
    pieces, done = [], 0
    for at, token in enumerate(tokens):
        match = _UUID.fullmatch(token.text) if token.kind == "text" else None
        if match and _is_compared(tokens, at, columns):
            pieces += [text[done : token.start], f"X'{''.join(match.groups())}'"]
            done = token.end
    return "".join([*pieces, text[done:]])


def _is_compared(tokens: Sequence[Token], at: int, columns: Collection[str]) -> bool:
    """Whether the text at this position is compared with one of the columns."""
    before = at - 1
    if before >= 0 and tokens[before].text in _SIGNS:
        return _names(tokens, _before_signs(tokens, before), columns)
    after = at + 1
    while after < len(tokens) and tokens[after].text in _SIGNS:
        after += 1
    if after > at + 1:
        while after + 2 < len(tokens) and tokens[after + 1].text == ".":
            after += 2
        return _names(tokens, after, columns)
    # The other values of a list, or the lower bound of BETWEEN.
    while before >= 0 and (tokens[before].kind == "text" or tokens[before].text == ","):
        before -= 1
    if before > 0 and tokens[before].text == "(" and tokens[before - 1].says("in"):
        return _names(tokens, _before_not(tokens, before - 2), columns)
    if before > 1 and tokens[before].says("and") and tokens[before - 1].kind == "text":
        before -= 2
    if before > 0 and tokens[before].says("between"):
        return _names(tokens, _before_not(tokens, before - 1), columns)
    return False


def _before_signs(tokens: Sequence[Token], at: int) -> int:
    while at >= 0 and tokens[at].text in _SIGNS:
        at -= 1
    return at


def _before_not(tokens: Sequence[Token], at: int) -> int:
    return at - 1 if at >= 0 and tokens[at].says("not") else at


def _names(tokens: Sequence[Token], at: int, columns: Collection[str]) -> bool:
    """Whether the token is the name of one of the columns."""
    if not 0 <= at < len(tokens):
        return False
    token = tokens[at]
    name = token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
    return token.kind in ("quoted", "word") and name in columns
