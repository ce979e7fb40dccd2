"""Feeds views: applies the query of a view to rows added to its source, and commits the result to the view.

A view records the version of its source up to which it has the rows. A feed reads the rows that the source added since,
or all of its rows the first time, and commits the result together with the new version. Queries are applied to the rows
in parts of bounded size, and the results of several parts are merged by the view's merge mode.

A view is correct only while rows are added to its source. If rows were removed or changed meanwhile, or the source no
longer retains the view's version, a feed is refused; feeding it anew replaces all rows of the view in one commit.

Errors: RejectedError (``view_not_fed``), and those of writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.engine.row_query import RowQuery
from lakebed.errors import Code, Error, NotRetainedError, SchemaMismatchError, UsageError
from lakebed.files.parquet.sizes import gather
from lakebed.log.outcomes import version_of
from lakebed.model.reports import WorkReport
from lakebed.model.state.transactions import ProposeFeed
from lakebed.model.wording import count_text
from lakebed.read.changes.plan import CHANGE, FEED_COLUMNS, VERSION, ChangeKind
from lakebed.read.rows.row_stream import exactly
from lakebed.upkeep.ingest_jobs import Ingested
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import FileTarget, commit_files, write_files
from lakebed.write.source_rows import RowInput, conformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakebed.model.state.table_state import ViewSource
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table

PART_ROWS = 250_000
PART_SHARE = 8
"""A query gets parts of at most this many rows, and of this fraction of the memory limit: it keeps a part several
times."""

_INSERT = ChangeKind.INSERT.name.lower()


@dataclass(frozen=True, slots=True)
class RefreshReport(WorkReport):
    """The result of a refresh: the old and new version of the source, the number of rows read, and the view's version;
    ``anew``: the rows replaced all others.
    """

    view: str
    source: str
    since: int
    until: int
    rows_read: int
    version: int
    anew: bool

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if not self.rows_read and not self.anew and self.since == self.until:
            return f"nothing to do; it has version {self.until} of {self.source}"
        return f"{count_text(self.rows_read, 'row')} of {self.source} read; it has version {self.until}"

    @property
    def idle(self) -> bool:
        """Whether the view had all of its source."""
        return self.until == self.since and not self.anew

    @property
    def done(self) -> tuple[int, None]:
        """The rows that were read."""
        return self.rows_read, None


def view_source(view: Table) -> ViewSource:
    """Return the source of a view. Raises UsageError for a table that is not a view."""
    fed = view.state().view
    if fed is None:
        raise Code.ARGUMENT_INVALID(f"table {view.name} is no view; make one with create_view_table", table=view.name)
    return fed


Backfill = Callable[["Snapshot", "ViewSource"], "Ingested | None"]
"""Makes files of a query's result over all rows of a snapshot; None if this process has to do it."""


def refresh(view: Table, source: Table, *, anew: bool = False, backfill: Backfill | None = None) -> RefreshReport:
    """Add to a view what its source added since the view was last fed; see :meth:`lakebed.Pipeline.refresh`."""
    fed = view_source(view)
    base_version = view.version
    with source.pin() as snapshot:
        until = snapshot.version
        if until < fed.version and not anew:
            raise Code.LOG_WENT_BACK(
                f"view {view.name} has version {fed.version} of {source.name}, which is at version {until}: the log of "
                "the source went back (docs/operations.md). Refresh the view anew",
                log=source.id,
                version=fed.version,
            )
        if until == fed.version and not anew:
            return RefreshReport(view.name, source.name, until, until, 0, view.version, anew=False)
        whole = anew or not fed.version
        reading = _Reading(view, source, snapshot, fed)
        with _null_keys(view):
            ingested = backfill(snapshot, fed) if whole and backfill is not None else None
            if ingested is None:
                ingested = reading.written(reading.all_rows() if whole else reading.new_rows())
        proposal = ProposeFeed(ingested.files, base_version, fed.version, until, anew=anew)
        version = version_of(commit_files(view, proposal), f"view {view.name}")
    return RefreshReport(view.name, source.name, fed.version, until, ingested.rows_read, version, anew)


def parts_of(rows: Iterable[pa.RecordBatch], memory_limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows in the parts that a query gets."""
    for part in gather(rows, PART_ROWS, memory_limit_bytes // PART_SHARE):
        yield from part.combine_chunks().to_batches()


@contextmanager
def _null_keys(view: Table) -> Iterator[None]:
    """Say what to do if a row of the query has a null in a key field."""
    try:
        yield
    except SchemaMismatchError as error:
        name = error.facts.get("column")
        if error.code is not Code.VALUE_NULL or name not in view.schema.sort_names:
            raise
        raise error.restated(
            f"{error.message}. The query of a view cannot be changed: drop the view, and create it with a query that "
            f"gives no such row, such as one with WHERE {name} IS NOT NULL"
        ) from None


class _Reading:
    """The rows of a source that are being fed to a view."""

    def __init__(self, view: Table, source: Table, snapshot: Snapshot, fed: ViewSource) -> None:
        self._view = view
        self._source = source
        self._snapshot = snapshot
        self._fed = fed
        self._settings = view.settings_in_force()
        self._query = self._bound()
        self._rows_read = 0

    def _bound(self) -> RowQuery:
        """Return the query over the fields that the source had when the view was declared."""
        state = self._snapshot.state
        gone = self._fed.dropped(state)
        try:
            query = RowQuery(self._fed.select, self._snapshot.schema.arrow, self._fed.columns(state))
        except UsageError:
            if not gone:
                raise
            query = None
        if query is None or {*query.schema.names} != {*self._view.schema.names}:
            raise Code.SQL_INVALID(
                f"view {self._view.name} cannot be fed: its query reads some of {', '.join(gone)}, which were dropped "
                f"from {self._source.name}. Drop the view, and create it without them",
                table=self._view.name,
            )
        return query

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Return all rows of the source."""
        with self._snapshot.scan() as rows:
            yield from (exactly(batch, self._snapshot.schema.arrow) for batch in rows)

    def new_rows(self) -> Iterator[pa.RecordBatch]:
        """Return the rows added after the version of the view. Raises RejectedError if rows were removed or changed."""
        with self._retained(), closing(self._source.changes(self._fed.version, self._snapshot.version)) as changes:
            for batch in changes:
                other = pc.index(pc.not_equal(batch.column(CHANGE), _INSERT), pa.scalar(value=True)).as_py()
                if other >= 0:
                    version = batch.column(VERSION)[other].as_py()
                    raise self._not_fed(f"version {version} of {self._source.name} removed or changed rows")
                rows = batch.drop_columns([field.name for field in FEED_COLUMNS])
                yield exactly(rows, self._snapshot.schema.arrow)

    def written(self, rows: Iterable[pa.RecordBatch]) -> Ingested:
        """Write the query's result over the rows to files."""
        view, settings = self._view, self._settings
        source = f"the query of view {view.name}"
        row_input = RowInput.of_batches(self._query.schema, self._query.rows(self._counted(rows)), source)
        conformer, mode = Conformer(view.schema, value_bytes_max=settings.value_bytes_max), view.log.head.state.merge
        files = write_files(
            conformed(row_input, RowEncoder(conformer, mode)),
            view.layout(),
            FileTarget(view.storage, view.id, clock.new_id()),
            memory_limit_bytes=settings.memory_limit_bytes,
            cuts=view.log.head.state.partitions.boundaries,
            merge=mode,
        )
        return Ingested(files, self._rows_read)

    def _counted(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts_of(rows, self._settings.memory_limit_bytes):
            self._rows_read += part.num_rows
            yield part

    @contextmanager
    def _retained(self) -> Iterator[None]:
        try:
            yield
        except NotRetainedError as error:
            raise self._not_fed(str(error)) from error

    def _not_fed(self, what: str) -> Error:
        return Code.VIEW_NOT_FED(
            f"view {self._view.name} has version {self._fed.version} of {self._source.name}, and cannot be fed from "
            f"there: {what}. Refresh it anew, which replaces all of its rows",
            table=self._view.name,
        )
