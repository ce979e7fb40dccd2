"""Rows, and the merge of rows with one key.

Keys are integers in `[0, KEYS)`. A row has two value columns and an age, which is its sort key in a table whose rows
are merged by it. A column that a row lacks is None; a partial row keeps the value of older rows in it.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Literal, NamedTuple

from .rules import Rules

KEYS = 4

Mode = Literal["latest", "by sort key", "first"]


class Kind(IntEnum):
    """The kind of a row."""

    WHOLE = 0
    PARTIAL = 1
    DELETE = 2


class Row(NamedTuple):
    """A row of a key. The columns contain the label of the write from which they come."""

    key: int
    kind: Kind
    a: str | None = None
    b: str | None = None
    age: int = 0


def folded(older: Row | None, newer: Row, rules: Rules) -> Row:
    """Merge two rows of a key by arrival."""
    if older is None or newer.kind is not Kind.PARTIAL:
        return newer
    if older.kind is Kind.DELETE:
        return newer._replace(kind=Kind.WHOLE if rules.revived == "whole" else Kind.PARTIAL)
    return older._replace(
        a=older.a if newer.a is None else newer.a, b=older.b if newer.b is None else newer.b, age=newer.age
    )


def merged(rows: Iterable[Row], mode: Mode, rules: Rules) -> dict[int, Row]:
    """Merge rows in order of arrival; by key."""
    result: dict[int, Row] = {}
    if mode == "first":
        for row in rows:
            result.setdefault(row.key, row)
        return result
    if mode == "by sort key":
        rows = sorted(rows, key=_age)
    for row in rows:
        result[row.key] = folded(result.get(row.key), row, rules)
    return result


def _age(row: Row) -> int:
    return row.age


class Filter(NamedTuple):
    """The rows that a table shows: keys of one parity, or all (None), whose age is not below the cut."""

    parity: int | None = None
    cut: int = 0
    version: int = 0

    def shows(self, row: Row, mode: Mode, rules: Rules) -> bool:
        """Return whether a row is shown. The age of a row is its key, unless rows are merged by their age."""
        age = row.age if mode == "by sort key" or rules.filter_field == "any" else row.key
        return self.parity in (None, row.key % 2) and age >= self.cut
