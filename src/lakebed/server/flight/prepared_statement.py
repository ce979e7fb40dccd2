"""Prepared statements as their own handles: the SQL and the values bound to its parameters. Pure.

A handle contains the whole statement, so a service keeps nothing between two calls: a handle survives a restart, and
any service of the instance accepts it. It grants no rights: it runs as the principal that sends it.

Parameters (``?``, or ``$1`` for the first value) are written into the SQL as literals before it runs. Drivers need
their types before they bind values: JDBC's ``setInt`` refuses a parameter that is declared as text, and ``setString``
one that is a number. The engine does not report the types that it expects, so they are derived from the tokens of the
statement (:func:`parameter_types`). They only affect what a driver accepts: a value is bound in its own type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.compared_columns import PLACE, compared_name, name_of_token, openings
from lakebed.engine.statement_parameters import filled, literal, places
from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, dump, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with parameters, and the values as SQL literals; empty if none are bound."""

    query: str
    values: tuple[str, ...] = ()
    run_id: str = ""
    """Identifies one run of the statement; a prepared statement has none."""

    @property
    def handle(self) -> bytes:
        """Return the statement as bytes; :meth:`of` is the inverse."""
        return dump({"query": self.query, "values": self.values, "run": self.run_id})

    @classmethod
    def of(cls, handle: bytes) -> Statement:
        """Return the statement of a handle. Raises UsageError for invalid bytes."""
        try:
            document = load(handle)
            query, values, run_id = document["query"], document["values"], document["run"]
        except UNREADABLE:
            query, values, run_id = None, None, None
        if not isinstance(values, list) or not all(isinstance(text, str) for text in (query, run_id, *values)):
            raise Code.REQUEST_INVALID("not a handle of this service; prepare the statement again")
        return cls(str(query), tuple(values), str(run_id))

    def run(self, run_id: str) -> Statement:
        """Return one run of the statement."""
        return replace(self, run_id=run_id)

    @property
    def parameters(self) -> int:
        """The number of values that it needs."""
        found = [place.value for place in places(self.query)]
        if names := [name for name in found if isinstance(name, str)]:
            raise Code.SQL_INVALID(f"${names[0]} has a name, and values are bound by position; write ? or $1")
        return max((number for number in found if isinstance(number, int)), default=0)

    def bound(self, rows: pa.Table) -> Statement:
        """Return the statement with the values of a row. Raises UsageError for a wrong number of rows or values."""
        if rows.num_rows != 1:
            raise Code.ARGUMENT_INVALID(
                f"a query takes one row of parameters, and {rows.num_rows:,} were bound; run it once for each row, or "
                "write many rows with bulk ingest"
            )
        return replace(self, values=tuple(literal(column[0]) for column in rows.columns))

    @property
    def sql(self) -> str:
        """The SQL with its values. Raises UsageError unless every parameter has a value."""
        needed = self.parameters
        if needed != len(self.values):
            raise Code.ARGUMENT_INVALID(
                f"the statement has {needed} parameters, and {len(self.values)} values were bound; bind as many"
            )
        return self._filled(self.values)

    @property
    def sql_for_columns(self) -> str:
        """The SQL with NULL for each unbound value, to find the columns of its result."""
        return self._filled(self.values or ("NULL",) * self.parameters)

    def _filled(self, values: Sequence[str]) -> str:
        return filled(self.query, places(self.query), dict(enumerate(values, 1)))


def parameter_types(query: str, schemas: Mapping[str, Schema]) -> list[pa.DataType]:
    """Return the type of each parameter, by its number. ``schemas`` are those of the tables that the caller may read.

    A parameter that is compared with a column (``n = ?``, ``n BETWEEN ? AND ?``, ``n IN (?, ?)``) has the type of the
    column, one of LIMIT and OFFSET is a whole number, and any other is text.
    """
    found = places(query)
    numbers = {place.start: place.value for place in found if isinstance(place.value, int)}
    tokens = list(_with_places(tokens_of(query), numbers, {place.end for place in found}))
    columns = _types_by_name(schemas[name] for name in {name_of_token(one) for one in tokens} & schemas.keys())
    types: dict[int, set[pa.DataType]] = {number: set() for number in numbers.values()}
    for index, opening in enumerate(openings(tokens)):
        if tokens[index].kind == PLACE:
            types[numbers[tokens[index].start]].add(_type_at(tokens, opening, index, columns))
    last = max(types, default=0)
    return [_only(types.get(number, set())) for number in range(1, last + 1)]


def _with_places(tokens: Iterable[Token], numbers: Mapping[int, int], ends: set[int]) -> Iterable[Token]:
    """Return the tokens with each parameter as one: ``$`` and ``1`` are two."""
    for token in tokens:
        if token.start in numbers:
            yield Token(PLACE, "?", token.start)
        elif not (token.kind == "number" and token.end in ends):
            yield token


def _types_by_name(schemas: Iterable[Schema]) -> dict[str, pa.DataType]:
    """Return the types of the columns whose name has the same type in all the tables."""
    types: dict[str, set[pa.DataType]] = {}
    for schema in schemas:
        for field in schema.fields:
            types.setdefault(field.name, set()).add(field.type)
    return {name: _only(some) for name, some in types.items() if len(some) == 1}


def _only(types: set[pa.DataType]) -> pa.DataType:
    return next(iter(types)) if len(types) == 1 else pa.string()


def _type_at(tokens: Sequence[Token], opening: int, index: int, columns: Mapping[str, pa.DataType]) -> pa.DataType:
    """Return the type of the parameter at this index; text if it cannot be derived."""
    before = tokens[index - 1] if index else None
    if before is not None and (before.says("limit") or before.says("offset")):
        return pa.int64()
    name = compared_name(tokens, opening, index)
    return pa.string() if name is None else columns.get(name_of_token(tokens[name[-1]]), pa.string())
