"""A table as it was after one log number: what is read from it never changes.

The newest view is made for each read of a :class:`~lakebed.table.Table`; older ones are given by ``Table.at``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.checks import INT64_MAX, check_flag, check_whole_number, is_whole, shown
from lakebed.errors import UsageError
from lakebed.exchange import Exchange, encoded
from lakebed.keys import EncodedRange, KeyRange, successor
from lakebed.query.plan import ROWS_A_RANGE, coarser, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakebed.kernels.predicate import Predicate
    from lakebed.query.counting import Count
    from lakebed.query.explain import Explanation
    from lakebed.query.plan import QueryPlan
    from lakebed.query.run import Reader
    from lakebed.query.stream import RowStream
    from lakebed.query.tally import Tally
    from lakebed.schema import Schema
    from lakebed.state.table import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class View(Exchange):
    """The rows, files and leaves of a table at ``state.number``. Safe to use from many threads."""

    state: TableState
    reader: Reader
    storage: Storage

    def __repr__(self) -> str:
        return f"<lakebed table {self.state.table} at number {self.number}>"

    @property
    def number(self) -> int:
        """The log number that this is the table after."""
        return self.state.number

    @property
    def schema(self) -> Schema:
        """The table's schema at that number."""
        return self.state.created

    def newest(self) -> View:
        """This view: what is taken from it is of its number."""
        return self

    def get(self, *key: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one key; see :meth:`lakebed.table.Table.get`."""
        names = self.schema.project(columns)
        return self.reader.get(plan(self.state, [self._point(key)]), names)

    def get_many(self, keys: Any, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of many keys; see :meth:`lakebed.table.Table.get_many`."""
        from lakebed.query.many import encoded_keys

        names = self.schema.project(columns)
        return self.reader.get_many(self.state, encoded_keys(keys, self.schema), names)

    def scan(
        self,
        *ranges: KeyRange,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> RowStream:
        """All rows of some ranges; see :meth:`lakebed.table.Table.scan`."""
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        names = self.schema.project(columns)
        planned, predicate = self.planned(encoded(self, ranges), where)
        return self.reader.scan(planned, names, limit, where=predicate, reverse=reverse)

    def count(self, *ranges: KeyRange, exact: bool = False) -> Count:
        """How many rows some ranges have; see :meth:`lakebed.table.Table.count`."""
        from lakebed.query.counting import count

        check_flag("exact", exact)
        return count(self.state, encoded(self, ranges), self.reader, None if exact else self.storage)

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """So many rows by chance; see :meth:`lakebed.table.Table.sample`."""
        from lakebed.query.sampling import sample

        if not is_whole(rows) or not (seed is None or is_whole(seed, -INT64_MAX)):
            raise UsageError(f"rows = {shown(rows)}, seed = {shown(seed)}: must be whole numbers; rows 0 or more")
        names = self.schema.project(columns)
        found = sample(self.state, rows, names, self.reader, clock.chance(seed))
        return self.scan(columns=columns).read_all() if found is None else found

    def explain(
        self,
        *asked: Any,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        tally: Tally | None = None,
    ) -> Explanation:
        """Read what :meth:`get` or :meth:`scan` would, and say what that took.

        ``asked`` are the values of a key, or ranges, or nothing for all rows; the options are those of :meth:`scan`.
        The read is a real one, to its end, and its rows are dropped. ``tally`` may have steps that went before.

        Raises:
            UsageError: some of what is asked for are ranges and some are not; or as :meth:`get` and :meth:`scan`.
            BadKeyError: as these.
        """
        from lakebed.query.explain import Explanation
        from lakebed.query.tally import Tally

        seen = tally or Tally()
        are_ranges = {isinstance(one, KeyRange) for one in asked}
        if len(are_ranges) > 1:
            raise UsageError("explain takes the values of one key, or KeyRange values, not both")
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        with seen.step("plan"):
            ranges = [self._point(asked)] if are_ranges == {False} else encoded(self, asked)
            planned, predicate = self.planned(ranges, where)
        names = self.schema.project(columns)
        for _ in self.reader.scan(planned, names, limit, where=predicate, reverse=reverse, tally=seen):
            pass
        return Explanation.of(self.number, planned, seen)

    def planned(
        self, ranges: Sequence[EncodedRange], where: str | None, *, rows_a_range: int = ROWS_A_RANGE
    ) -> tuple[QueryPlan, Predicate | None]:
        """What to read of the ranges, without keys and files of which the predicate cannot be true; and the predicate.

        To begin another range costs as much as ``rows_a_range`` rows. Raises UsageError: the predicate means nothing.
        """
        if where is None:
            return plan(self.state, ranges), None
        from lakebed.kernels.predicate import check_where
        from lakebed.query.expressions import narrowed

        predicate = check_where(where, self.schema.arrow)
        narrower, keys = narrowed(ranges, predicate.parts, self.schema)
        return coarser(plan(self.state, narrower, keys), ranges, rows_a_range), predicate

    def _point(self, key: Sequence[Any]) -> EncodedRange:
        key_bytes = self.schema.codec.encode_key(key)
        return EncodedRange(key_bytes, successor(key_bytes))
