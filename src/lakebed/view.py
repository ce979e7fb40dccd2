"""A table as it was after one log number: what is read from it never changes.

The newest view is made for each read of a :class:`~lakebed.table.Table`; older ones are given by ``Table.at``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import UsageError
from lakebed.keys import ALL_KEYS, EncodedRange, KeyRange, successor
from lakebed.query.plan import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakebed.query.explain import Explanation
    from lakebed.query.run import Reader
    from lakebed.query.tally import Tally
    from lakebed.schema import Schema
    from lakebed.state.table import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class View:
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

    def get(self, *key: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of one key; see :meth:`lakebed.table.Table.get`."""
        encoded = self.schema.codec.encode_key(key)
        names = self.schema.project(columns)
        return self.reader.get(plan(self.state, [EncodedRange(encoded, successor(encoded))]), names)

    def scan(
        self, *ranges: KeyRange, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """All rows of some ranges; see :meth:`lakebed.table.Table.scan`."""
        if limit is not None and limit < 0:
            raise UsageError(f"limit = {limit}: must be 0 or more")
        for key_range in ranges:
            if not isinstance(key_range, KeyRange):
                raise UsageError(f"scan takes KeyRange values, not {key_range!r}; KeyRange.prefix({key_range!r})?")
        names = self.schema.project(columns)
        encoded = [self.schema.codec.encode_range(r) for r in ranges] or [ALL_KEYS]
        return self.reader.scan(plan(self.state, encoded), names, limit)

    def explain(
        self,
        *asked: Any,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        tally: Tally | None = None,
    ) -> Explanation:
        """Read what :meth:`get` or :meth:`scan` would, and say what that took.

        ``asked`` are the values of a key, or ranges, or nothing for all rows. The read is a real one, to its end, and
        its rows are dropped. ``tally`` may have steps that went before.

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
        with seen.step("plan"):
            if are_ranges == {False}:
                encoded = self.schema.codec.encode_key(asked)
                ranges = [EncodedRange(encoded, successor(encoded))]
            else:
                ranges = [self.schema.codec.encode_range(one) for one in asked] or [ALL_KEYS]
            planned = plan(self.state, ranges)
        for _ in self.reader.scan(planned, self.schema.project(columns), limit, seen):
            pass
        return Explanation.of(self.number, planned, seen)

    def files(self) -> pa.Table:
        """One row a reference, in key order: the file, the leaf, rows there, and the file's facts."""
        from lakebed.report import files_table

        return files_table(self.state, self.state.table, self.storage.object_url)

    def partitions(self) -> pa.Table:
        """One row a leaf, in key order: its range, rows, bytes, files and runs."""
        from lakebed.report import partitions_table

        return partitions_table(self.state)
