"""Feeds indexes: adds entries of the stored rows of files that an index does not cover yet.

A feed reads the indexed fields and the keys of whole files, sorts them, and commits them to the index in one entry,
together with what it covers from then on (:class:`~lakebed.model.state.table_state.IndexCoverage`). Rows are read as
they are stored: which of them count is not asked, so no change of a table's other rows, filter or merge mode makes an
entry wrong. Rows with a null in an indexed field have none.

Entries of rows that are gone stay until the index is built anew, from the files that have references then. A feed does
so if there are many.

A partial row may have some of several indexed fields. No entry can be made of it, so a feed stops before its file,
until a compaction has made it whole.

Errors: RejectedError if another process fed the index meanwhile, and those of reads and writes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.errors import Code, NotRetainedError
from lakebed.log.outcomes import version_of
from lakebed.model.keys import ALL_KEYS
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.state.transactions import ProposeFeed
from lakebed.read.rows.plan import PartitionQuery, QueryPlan
from lakebed.read.rows.second_key import cut, uncovered
from lakebed.read.rows.visible_rows import raw_state
from lakebed.upkeep.view_feed import RefreshReport, nothing_new
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import FileTarget, commit_files, write_files
from lakebed.write.source_rows import RowInput, conformed

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.state.table_state import IndexCoverage, TableState, ViewSource
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table

STALE_SHARE = 0.5
STALE_ROWS = 1_000_000
"""An index is built anew when it has more entries than its table has rows, by this share and this number."""


def source_of(name: str, state: TableState) -> tuple[ViewSource, IndexCoverage]:
    """Return what an index of this name is of, and what it covers. Raises UsageError for a table that is no index."""
    fed = state.view
    if fed is None or fed.index is None:
        raise Code.ARGUMENT_INVALID(f"table {name} is no index; make one with create_index", table=name)
    return fed, fed.index


def feed_index(index: Table, source: Table, *, anew: bool = False) -> RefreshReport:
    """Add to an index what it lacks of its table; ``anew`` builds it from all rows, and drops what is outdated."""
    state = index.state()
    fed, coverage = source_of(index.name, state)
    with source.pin() as snapshot:
        until = snapshot.version
        if not anew and (idle := nothing_new(f"index {index.name}", index, source, fed.version, until)):
            return idle
        anew = anew or not coverage.built or _is_stale(state, snapshot.state)
        files = None if anew else _missing(source, snapshot.state, fed)
        if files is None:
            anew, files = True, list(snapshot.state.referenced().values())
        reading = _Entries(index, snapshot, coverage)
        covered, sequence = reading.coverable(files)
        made = reading.written(covered) if covered else ()
        proposal = ProposeFeed(made, state.version, fed.version, until, anew=anew, sequence=sequence)
        version = version_of(commit_files(index, proposal), f"index {index.name}")
    return RefreshReport(index.name, source.name, fed.version, until, reading.rows_read, version, anew)


def _is_stale(index: TableState, source: TableState) -> bool:
    entries, rows = (sum(file.rows for file in state.referenced().values()) for state in (index, source))
    return entries > rows * (1 + STALE_SHARE) + STALE_ROWS


def _missing(source: Table, state: TableState, fed: ViewSource) -> list[DataFile] | None:
    """Return the files of which the index lacks entries; None if that is not known."""
    files = {file.id: file for file in uncovered(state, fed)}
    if state.restored_version > fed.version:
        # Of files that had no reference when the index was built, it may have no entries.
        try:
            then = source.log.at(fed.version).state.referenced()
        except NotRetainedError:
            return None
        files |= {name: file for name, file in state.referenced().items() if name not in then}
    return list(files.values())


class _Entries:
    """The entries of stored rows of a table at one version."""

    def __init__(self, index: Table, snapshot: Snapshot, coverage: IndexCoverage) -> None:
        self._index = index
        self._snapshot = snapshot
        self._raw = raw_state(snapshot.state).created
        known = {field.id: field.name for field in snapshot.schema.fields}
        self._on = [known[one] for one in coverage.fields]
        self._names = [*self._on, *(known[one] for one in coverage.key_fields)]
        self.rows_read = 0

    def coverable(self, files: Sequence[DataFile]) -> tuple[Sequence[DataFile], int]:
        """Return the files of which entries can be made, and the sequence number below which all are."""
        state = self._snapshot.state
        if len(self._on) == 1 or KIND not in self._raw.by_name:
            return files, state.next_sequence
        partial = [file for file in files if file.markers and self._has_partial_rows(file)]
        sequence = min((state.files[file.id].sequence_lo for file in partial), default=state.next_sequence)
        return [file for file in files if state.files[file.id].sequence_hi < sequence], sequence

    def _has_partial_rows(self, file: DataFile) -> bool:
        with closing(self._stored([file], [KIND])) as batches:
            return any(pc.any(pc.equal(batch.column(KIND), int(RowKind.PARTIAL))).as_py() for batch in batches)

    def written(self, files: Sequence[DataFile]) -> tuple[NewFile, ...]:
        """Write the entries of files to new files of the index."""
        index, settings = self._index, self._index.settings_in_force()
        rows = RowInput.of_batches(index.schema.arrow, self._entries(files), f"the rows of {self._snapshot!r}")
        state = index.log.head.state
        return write_files(
            conformed(rows, RowEncoder(Conformer(index.schema), state.merge)),
            index.layout(),
            FileTarget(index.storage, index.id, clock.new_id()),
            memory_limit_bytes=settings.memory_limit_bytes,
            cuts=state.partitions.boundaries,
            merge=state.merge,
        )

    def _entries(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        schema = self._index.schema.arrow
        kinds = [KIND] if KIND in self._raw.by_name and any(file.markers for file in files) else []
        with closing(self._stored(files, [*self._names, *kinds])) as batches:
            for batch in batches:
                self.rows_read += batch.num_rows
                rows = batch
                if kinds:
                    deleted = pc.equal(pc.fill_null(rows.column(KIND), 0), int(RowKind.DELETE))
                    rows = rows.filter(pc.invert(deleted))
                for name in self._on:
                    if rows.column(name).null_count:
                        rows = rows.filter(rows.column(name).is_valid())
                columns = [rows.column(name) for name in self._names]
                columns[: len(self._on)] = map(cut, columns[: len(self._on)])
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _stored(self, files: Sequence[DataFile], names: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Return all stored rows of whole files, one file after another."""
        for file in files:
            whole = QueryPlan((PartitionQuery(0, (ALL_KEYS,), (file,)),), self._raw)
            with closing(self._snapshot.reader.scan(whole, list(dict.fromkeys(names)), None)) as batches:
                yield from batches
