"""A table as it was after one log number: what is read from it never changes.

The newest view is made for each read of a :class:`~lakebed.table.Table`; older ones are given by ``Table.at``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import UsageError
from lakebed.exchange import Exchange
from lakebed.keys import ALL_KEYS, EncodedRange, KeyRange, successor
from lakebed.query.plan import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakebed.query.run import Reader
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

    def partitions(self) -> pa.Table:
        """One row a leaf, in key order: its range, rows, bytes, files and runs."""
        from lakebed.report import partitions_table

        return partitions_table(self.state)
