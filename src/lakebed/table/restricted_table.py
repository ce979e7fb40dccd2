"""The part of a table that a policy shows: reads at any version, and changes. Nothing else is accessible.

Core type: :class:`RestrictedTable`. Errors: those of the methods of :class:`~lakebed.table.table.Table` of the same
names; AccessError for any other, and for a policy that cannot be applied.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.model.schema import Schema
from lakebed.read.changes.feed import changes, version_of
from lakebed.read.changes.plan import FEED_COLUMNS, change_schema
from lakebed.read.rows.row_stream import RowStream, returned_stream
from lakebed.read.snapshot.restricted import RestrictedReads, RestrictedSnapshot, evaluating, refused

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.model.keys import KeyRange
    from lakebed.model.policies import Policy
    from lakebed.table.table import Table


class RestrictedTable(RestrictedReads):
    """The part of a table that a policy shows. Safe to use from many threads."""

    def __init__(self, table: Table, policy: Policy) -> None:
        self._table = table
        self._policy = policy
        self.id = table.id
        self.name = table.name

    def __repr__(self) -> str:
        return f"<part of {self._table!r}>"

    @property
    def version(self) -> int:
        """As :attr:`Table.version`."""
        return self._table.version

    @property
    def schema(self) -> Schema:
        """The visible fields of the latest version."""
        return self.snapshot().schema

    # -- versions ------------------------------------------------------------------------------------------------------

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RestrictedSnapshot:
        """As :meth:`Table.snapshot`."""
        return RestrictedSnapshot(self._table.snapshot(max_staleness, at_least), self._policy)

    def at(self, moment: Any = None, /, **named: Any) -> RestrictedSnapshot:
        """As :meth:`Table.at`. The policy is evaluated on the rows of that version."""
        return RestrictedSnapshot(self._table.at(moment, **named), self._policy)

    @contextmanager
    def pin(self, version: int | None = None) -> Iterator[RestrictedSnapshot]:
        """As :meth:`Table.pin`."""
        with self._table.pin(version) as whole:
            yield RestrictedSnapshot(whole, self._policy)

    # -- changes -------------------------------------------------------------------------------------------------------

    def changes(
        self,
        since: int | datetime | str,
        until: int | datetime | str | None = None,
        *,
        ranges: Sequence[KeyRange] = (),
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> RowStream:
        """As :meth:`Table.changes`, for the visible rows: those that become visible are inserts, others that cease to
        be deletes. A removed range is returned as deletes of its visible rows. ``where`` is refused, since it would be
        evaluated together with the policy; filter the stream instead.
        """
        if where is not None:
            raise refused("where of changes")
        newest = self._table.state()
        last = newest.version if until is None else version_of(self._table.versions, "until", until, newest)
        present = self.at(version=last)
        names = present.schema.project(columns)
        read = present.columns_read(names)
        with evaluating():
            _, stream = changes(
                self._table.versions,
                since,
                last,
                ranges=ranges,
                columns=read,
                where=self._policy.where,
                removed_rows=True,
            )
        arrow = change_schema(present.schema, names)
        return returned_stream(RowStream(arrow, self._masked(present, stream, arrow)), present.schema)

    def _masked(self, shown: RestrictedSnapshot, stream: RowStream, arrow: pa.Schema) -> Generator[pa.RecordBatch]:
        names = arrow.names[len(FEED_COLUMNS) :]
        with closing(stream), evaluating():
            for batch in stream:
                columns = [*batch.columns[: len(FEED_COLUMNS)], *shown.masked(batch, names)]
                yield pa.RecordBatch.from_arrays(columns, schema=arrow)
