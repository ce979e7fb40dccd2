"""Adding rows to a table in the caller's process: sorted into files, then committed as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from lakebed import clock
from lakebed.errors import SchemaMismatchError
from lakebed.ingest.intake import Intake
from lakebed.ingest.run import conformed, open_stream, write_files
from lakebed.ingest.send import commit_files
from lakebed.log.outcomes import number_of
from lakebed.state.transactions import OfferFiles
from lakebed.travel import based_on, committed_at

if TYPE_CHECKING:
    from lakebed.kernels.layout import Layout
    from lakebed.log.committer import Log
    from lakebed.log.outcomes import Outcome
    from lakebed.schema import Schema
    from lakebed.settings import Settings
    from lakebed.state.table import TableState
    from lakebed.state.transactions import Offer, Transaction
    from lakebed.storage.contract import Storage

BASE_AGE_S = 60.0
"""A write without a commit id looks for newer entries if the last look is older: its base number is to be of now."""


class Target(Protocol):
    """What rows are added to: a :class:`~lakebed.table.Table`, which does the adding by this module."""

    id: str
    name: str
    storage: Storage
    log: Log[TableState, Offer, Transaction]

    @property
    def number(self) -> int:
        """The newest log number known."""
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

    def try_commit(self, offer: Offer) -> Outcome:
        """What became of the offer."""
        ...


def add(table: Target, data: Any, commit_id: str | None, base_number: int | None) -> int:
    """As :meth:`lakebed.table.Table.write`."""
    reader = open_stream(data)
    # Without an id, a look now and then will do: it only tells how long ago the call began.
    state = table.state(BASE_AGE_S if commit_id is None else None)
    first = committed_at(state, "commit_id", commit_id)
    if first is not None:
        return first
    base = based_on(state, commit_id, base_number)
    if not Intake(table.schema).fits(reader.schema):
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
            cuts=table.log.head.state.leaves.boundaries,
        )
    except SchemaMismatchError:
        # Nulls may be allowed by now, and the rows are consumed: the next try then knows.
        table.state()
        raise
    if not files and commit_id is None:
        return table.number
    return number_of(commit_files(table, OfferFiles(files, commit_id, base)), f"table {table.name}")
