"""Adding rows to a table in the caller's process: sorted into files, then committed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lakebed import clock
from lakebed.errors import SchemaMismatchError
from lakebed.ingest.conformer import Conformer
from lakebed.ingest.run import conformed, open_stream, write_files
from lakebed.ingest.send import commit_files
from lakebed.log.outcomes import version_of
from lakebed.state.time_travel import based_on, committed_at
from lakebed.state.transactions import ProposeFiles

if TYPE_CHECKING:
    from lakebed.log.committer import Log
    from lakebed.log.outcomes import Outcome
    from lakebed.model.schema import Schema
    from lakebed.parquet.layout import Layout
    from lakebed.settings import Settings
    from lakebed.state.table_state import TableState
    from lakebed.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage

BASE_AGE_S = 60.0
"""A write without a commit id looks for newer entries if the last look is older: its base version is to be of now."""


class AddTarget(Protocol):
    """What rows are added to: a :class:`~lakebed.table.table.Table`, which does the adding by this module."""

    id: str
    name: str
    storage: Storage
    log: Log[TableState, Proposal, Transaction]

    @property
    def version(self) -> int:
        """The newest version known."""
        ...

    @property
    def schema(self) -> Schema:
        """The newest schema known."""
        ...

    def state(self, max_staleness: float | None = None) -> TableState:
        """The newest state, or one that was it so many seconds ago."""
        ...

    def settings_in_force(self) -> Settings:
        """The settings."""
        ...

    def layout(self) -> Layout:
        """How data files are written."""
        ...

    def try_commit(self, proposal: Proposal) -> Outcome:
        """What became of the proposal."""
        ...


def add(table: AddTarget, data: Any, commit_id: str | None, base_version: int | None) -> int:
    """As :meth:`lakebed.table.table.Table.write`."""
    reader = open_stream(data)
    # Without an id, a look now and then will do: it only tells how long ago the call began.
    state = table.state(BASE_AGE_S if commit_id is None else None)
    first = committed_at(state, "commit_id", commit_id)
    if first is not None:
        return first
    base = based_on(state, commit_id, base_version)
    if not Conformer(table.schema).fits(reader.schema):
        # Another process may have altered the table since this one looked.
        table.state()
    layout = table.layout()
    settings = table.settings_in_force()
    batches = conformed(reader, layout.schema, "write", value_bytes_max=settings.value_bytes_max)
    try:
        files = write_files(
            batches,
            layout,
            (table.storage, table.id, clock.new_id()),
            memory_limit_bytes=settings.memory_limit_bytes,
            cuts=table.log.head.state.partitions.boundaries,
        )
    except SchemaMismatchError:
        # Nulls may be allowed by now, and the rows are consumed: the next try then knows.
        table.state()
        raise
    if not files and commit_id is None:
        return table.version
    return version_of(commit_files(table, ProposeFiles(files, commit_id, base)), f"table {table.name}")
