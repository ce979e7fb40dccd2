"""A table as it was after one version: what is read from it never changes.

The newest snapshot is made for each read of a :class:`~lakebed.table.table.Table`; older ones are given by
``Table.at``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import UsageError
from lakebed.model.checks import INT64_MAX, check_flag, check_whole_number, is_whole, shown
from lakebed.model.keys import EncodedRange, KeyRange, successor
from lakebed.read.plan import ROWS_A_RANGE, coarser, plan
from lakebed.snapshot.conversions import Exchange, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakebed.engine.predicate import Predicate
    from lakebed.model.schema import Schema
    from lakebed.parquet.read_statistics import ReadStatistics
    from lakebed.read.counting import Count
    from lakebed.read.explain import Explanation
    from lakebed.read.plan import QueryPlan
    from lakebed.read.reader import Reader
    from lakebed.read.row_stream import RowStream
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Snapshot(Exchange):
    """The rows, files and partitions of a table at ``state.version``. Safe to use from many threads."""

    state: TableState
    reader: Reader
    storage: Storage

    def __repr__(self) -> str:
        return f"<lakebed table {self.state.table} at version {self.version}>"

    @property
    def version(self) -> int:
        """The version that this is the table after."""
        return self.state.version

    @property
    def schema(self) -> Schema:
        """The table's schema at that version."""
        return self.state.created

    def snapshot(self) -> Snapshot:
        """This snapshot: what is taken from it is of its version."""
        return self

    def get(self, *key: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one key; see :meth:`lakebed.table.table.Table.get`."""
        return self.reader.points.get(self.state, key, columns)

    def get_many(self, keys: Any, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of many keys; see :meth:`lakebed.table.table.Table.get_many`."""
        from lakebed.read.multi_get import encoded_keys

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
        """All rows of some ranges; see :meth:`lakebed.table.table.Table.scan`."""
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        names = self.schema.project(columns)
        planned, predicate = self.planned(encoded(self, ranges), where)
        return self.reader.scan(planned, names, limit, where=predicate, reverse=reverse)

    def count(self, *ranges: KeyRange, exact: bool = False) -> Count:
        """How many rows some ranges have; see :meth:`lakebed.table.table.Table.count`."""
        from lakebed.read.counting import count

        check_flag("exact", exact)
        return count(self.state, encoded(self, ranges), self.reader, None if exact else self.storage)

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """Random rows; see :meth:`lakebed.table.table.Table.sample`."""
        from lakebed.read.sampling import sample

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
        statistics: ReadStatistics | None = None,
    ) -> Explanation:
        """Read what :meth:`get` or :meth:`scan` would, and say what that took.

        ``asked`` are the values of a key, or ranges, or nothing for all rows; the options are those of :meth:`scan`.
        The read is a real one, to its end, and its rows are dropped. ``statistics`` may have steps that went before.

        Raises:
            UsageError: some of what is asked for are ranges and some are not; or as :meth:`get` and :meth:`scan`.
            BadKeyError: as these.
        """
        from lakebed.parquet.read_statistics import ReadStatistics
        from lakebed.read.explain import Explanation

        seen = statistics or ReadStatistics()
        are_ranges = {isinstance(one, KeyRange) for one in asked}
        if len(are_ranges) > 1:
            raise UsageError("explain takes the values of one key, or KeyRange values, not both")
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        with seen.step("plan"):
            ranges = [self._point(asked)] if are_ranges == {False} else encoded(self, asked)
            planned, predicate = self.planned(ranges, where)
        names = self.schema.project(columns)
        for _ in self.reader.scan(planned, names, limit, where=predicate, reverse=reverse, statistics=seen):
            pass
        return Explanation.of(self.version, planned, seen)

    def planned(
        self, ranges: Sequence[EncodedRange], where: str | None, *, rows_a_range: int = ROWS_A_RANGE
    ) -> tuple[QueryPlan, Predicate | None]:
        """What to read of the ranges, without keys and files of which the predicate cannot be true; and the predicate.

        To begin another range costs as much as ``rows_a_range`` rows. Raises UsageError: the predicate means nothing.
        """
        if where is None:
            return plan(self.state, ranges), None
        from lakebed.engine.predicate import check_where
        from lakebed.read.expressions import narrowed

        predicate = check_where(where, self.schema.arrow)
        narrower, keys = narrowed(ranges, predicate.parts, self.schema)
        return coarser(plan(self.state, narrower, keys), ranges, rows_a_range), predicate

    def _point(self, key: Sequence[Any]) -> EncodedRange:
        key_bytes = self.schema.codec.encode_key(key)
        return EncodedRange(key_bytes, successor(key_bytes))
