"""Prepared statements as their own handles: the SQL and the values bound to its parameters. Pure.

A handle holds all that the statement is, so a service keeps nothing between two calls: a handle survives its restart,
and any service of the instance can take it. It grants nothing: it runs as the principal that sends it.

Parameters (``?``, or ``$1`` for the first value) are written into the SQL as literals before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.engine.statement_parameters import filled, literal, places
from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, dump, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


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
        found = [place.value for place in places(self.query)]
        if names := [name for name in found if isinstance(name, str)]:
            raise Code.SQL_INVALID(f"${names[0]} has a name, and values are bound by position; write ? or $1")
        return max((number for number in found if isinstance(number, int)), default=0)

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
        return filled(self.query, places(self.query), dict(enumerate(values, 1)))
