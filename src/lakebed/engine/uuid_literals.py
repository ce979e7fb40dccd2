"""Writes the texts that SQL compares with UUID columns as bytes. Pure.

The engine has UUIDs as 16 bytes, and compares no text with them: ``id = '6f9619ff-…'`` becomes ``id = X'6f9619ff…'``.
So do the texts of ``IN (…)`` and ``BETWEEN … AND …``. Only a text in the form of a UUID is rewritten, and only beside
the bare or qualified name of such a column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakebed.engine.compared_columns import compared_column, openings
from lakebed.engine.tokens import tokens_of
from lakebed.model.type_names import UUID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import pyarrow as pa

_UUID = re.compile(r"'([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{4})-([0-9a-fA-F]{12})'")


def uuid_columns(schemas: Iterable[pa.Schema]) -> frozenset[str]:
    """The names of the UUID columns of some tables."""
    return frozenset(field.name for schema in schemas for field in schema if field.type == UUID)


def with_bytes(text: str, columns: Collection[str]) -> str:
    """The statement or the expression with bytes in place of texts that are compared with these columns."""
    if not columns or not _UUID.search(text):
        return text
    tokens = list(tokens_of(text))
    pieces, done = [], 0
    for at, (token, opening) in enumerate(zip(tokens, openings(tokens), strict=True)):
        match = _UUID.fullmatch(token.text) if token.kind == "text" else None
        if match and compared_column(tokens, opening, at) in columns:
            pieces += [text[done : token.start], f"X'{''.join(match.groups())}'"]
            done = token.end
    return "".join([*pieces, text[done:]])
