"""Prepared statements as their own handles: the SQL and the values bound to its parameters. Pure.

A handle holds all that the statement is, so a service keeps nothing between two calls: a handle survives its restart,
and any service of the instance can take it. It grants nothing: it runs as the principal that sends it.

Parameters (``?``, or ``$1`` for the first value) are written into the SQL as literals before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, dump, load

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
PARAMETERS_MAX = 32_767
"""More in one statement is a mistake; PostgreSQL has about this limit as well."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with places for values, and the values as literals of SQL; empty if none are bound."""

    query: str
    values: tuple[str, ...] = ()
    run_id: str = ""
    """Of one run of it; a prepared statement has none."""

    @property
    def handle(self) -> bytes:
        """The statement as bytes, which :meth:`of` reads."""
        return dump({"query": self.query, "values": self.values, "run": self.run_id})

    @classmethod
    def of(cls, handle: bytes) -> Statement:
        """The statement of a handle. Raises UsageError for bytes that are none."""
        try:
            document = load(handle)
            query, values, run_id = document["query"], document["values"], document["run"]
        except UNREADABLE:
            query, values, run_id = None, None, None
        if not isinstance(values, list) or not all(isinstance(text, str) for text in (query, run_id, *values)):
            raise Code.REQUEST_INVALID("not a handle of this service; prepare the statement again")
        return cls(str(query), tuple(values), str(run_id))

    def run(self, run_id: str) -> Statement:
        """One run of the statement."""
        return replace(self, run_id=run_id)

    @property
    def parameters(self) -> int:
        """How many values it needs."""
        return max((number for _, _, number in _places(self.query)), default=0)

    def bound(self, rows: pa.Table) -> Statement:
        """The statement with the values of a row. Raises UsageError for more or fewer rows or values."""
        if rows.num_rows != 1:
            raise Code.ARGUMENT_INVALID(
                f"a query takes one row of parameters, and {rows.num_rows:,} were bound; run it once for each row, or "
                "write many rows with bulk ingest"
            )
        return replace(self, values=tuple(literal(column[0]) for column in rows.columns))

    @property
    def sql(self) -> str:
        """The SQL with its values. Raises UsageError unless there is a value for each place."""
        needed = self.parameters
        if needed != len(self.values):
            raise Code.ARGUMENT_INVALID(
                f"the statement has {needed} parameters, and {len(self.values)} values were bound; bind as many"
            )
        return self._filled(self.values)

    @property
    def sql_for_columns(self) -> str:
        """The SQL with NULL for each value that is not bound, to find the columns of its result."""
        return self._filled(self.values or ("NULL",) * self.parameters)

    def _filled(self, values: Sequence[str]) -> str:
        parts, end = [], 0
        for start, after, number in _places(self.query):
            parts += [self.query[end:start], values[number - 1]]
            end = after
        return "".join([*parts, self.query[end:]])


def _places(query: str) -> list[tuple[int, int, int]]:
    """The places of parameters: start, end, and the number of the value, from 1. Raises UsageError for bad ones."""
    found: list[tuple[int, int, int]] = []
    dollar_end = None
    styles = set()
    for token in tokens_of(query):
        if token.kind == "sign" and token.text == "?":
            found.append((token.start, token.end, len(found) + 1))
            styles.add("?")
        elif token.kind == "number" and token.start == dollar_end:
            found.append((token.start - 1, token.end, min(int(token.text[:9]), PARAMETERS_MAX + 1)))
            styles.add("$")
        dollar_end = token.end if token.kind == "sign" and token.text == "$" else None
    if len(styles) > 1:
        raise Code.SQL_INVALID("the statement has parameters of two kinds, ? and $1; use one of them")
    if any(not 1 <= number <= PARAMETERS_MAX for _, _, number in found):
        raise Code.SQL_INVALID(f"parameters are $1 to ${PARAMETERS_MAX}, and as many at most")
    return found


def literal(value: pa.Scalar) -> str:
    """A value as SQL that means exactly it, in its type. Raises UsageError for a type without literals."""
    kind: pa.DataType = value.type
    if not value.is_valid:
        return "NULL"
    if pa.types.is_dictionary(kind):
        return literal(value.value)
    if pa.types.is_boolean(kind):
        return "TRUE" if value.as_py() else "FALSE"
    if pa.types.is_integer(kind):
        return f"({value.as_py()})"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _quoted(value.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"X'{value.as_py().hex()}'"
    return _cast_literal(value, kind)


def _cast_literal(value: pa.Scalar, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        width = "32" if pa.types.is_float32(kind) else "64"
        return f"arrow_cast('{float(value.as_py())!r}', 'Float{width}')"
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return f"arrow_cast('{value.as_py():f}', 'Decimal{kind.bit_width}({kind.precision}, {kind.scale})')"
    if pa.types.is_date(kind):
        return f"arrow_cast('{value.as_py().isoformat()}', 'Date32')"
    if pa.types.is_timestamp(kind):
        naive = value.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string()).as_py()
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"arrow_cast('{naive}{'Z' if kind.tz else ''}', 'Timestamp({_UNITS[kind.unit]}, {zone})')"
    if pa.types.is_time(kind):
        text = value.cast(pa.string()).as_py()
        return f"arrow_cast('{text}', 'Time{kind.bit_width}({_UNITS[kind.unit]})')"
    raise Code.TYPE_UNSUPPORTED(f"a parameter cannot be of type {kind}; write the value into the statement")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
