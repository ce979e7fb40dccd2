"""Feeds indexes: adds entries of the stored rows of files that an index does not cover yet.

A feed reads the indexed fields and the keys of whole files, sorts them, and commits them to the index together with
what it covers from then on (:class:`~lakebed.model.state.table_state.IndexCoverage`). Rows are read as they are stored:
which of them count is not asked, so no change of a table's other rows, filter or merge mode makes an entry wrong. Rows
with a null in an indexed field have none.

The files are divided into parts. One part is read in the calling process; several are the tasks of an executor, and
each is committed when its task has ended. So a feed that is killed has done its parts for good: the next one reads the
other files.

Entries of rows that are gone stay until the index is built anew, from the files that have references then. A feed does
so if there are many. The index answers from its old entries until the new ones take their place, in one commit.

A partial row may have some of several indexed fields. No entry can be made of it, so a feed stops before its file,
until a compaction has made it whole.

Core types: :class:`EntriesTask`. Errors: RejectedError if another process fed the index meanwhile, and those of reads
and writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.errors import Code, Error, NotRetainedError
from lakebed.files.parquet.layout import Layout
from lakebed.log.outcomes import version_of
from lakebed.model.files import NewFile
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.keys import ALL_KEYS
from lakebed.model.merge_modes import MergeMode
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.schema import Schema
from lakebed.model.state.transactions import ProposeEntries, ProposeFeed
from lakebed.read.rows.plan import PartitionQuery, QueryPlan
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.second_key import cut, uncovered
from lakebed.read.rows.visible_rows import raw_state
from lakebed.storage.disk_space import scratch_folder
from lakebed.upkeep.view_feed import RefreshReport, nothing_new
from lakebed.write import batches as runner
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import commit_files, discard, send_run
from lakebed.write.source_rows import RowInput, conformed

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import IndexCoverage, TableState, ViewSource
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table
    from lakebed.write.run import TaskResult

STALE_SHARE = 0.5
STALE_ROWS = 1_000_000
"""An index is built anew when it has more entries than its table has rows, by this share and this number."""

PART_ROWS = 2_000_000
"""A part has as many rows, or one file: some seconds of work, and a run of the index whose merge is worth it."""

BATCHES = 2
"""Batches at once, each of a part for every core: one has work for the cores that another leaves idle."""


def source_of(name: str, state: TableState) -> tuple[ViewSource, IndexCoverage]:
    """Return what an index of this name is of, and what it covers. Raises UsageError for a table that is no index."""
    fed = state.view
    if fed is None or fed.index is None:
        raise Code.ARGUMENT_INVALID(f"table {name} is no index; make one with create_index", table=name)
    return fed, fed.index


@dataclass(frozen=True, slots=True)
class EntriesTask:
    """Make the entries of all stored rows of some files of a source: a run of the index.

    ``schema`` is the form in which the rows are read. An entry has the columns ``names``, of which the first
    ``indexed`` ones are the indexed fields.
    """

    source_id: str
    files: tuple[DataFile, ...]
    schema: Schema
    names: tuple[str, ...]
    indexed: int
    index_id: str
    layout: Layout
    cuts: tuple[bytes, ...]
    merge: MergeMode
    memory_limit_bytes: int

    @property
    def rows(self) -> int:
        """The number of rows to read."""
        return sum(file.rows for file in self.files)

    @property
    def tasks(self) -> tuple[EntriesTask]:
        """Itself: a part is a job of one task."""
        return (self,)

    @property
    def task_count(self) -> int:
        """One."""
        return 1


Execute = runner.Execute[EntriesTask, tuple[NewFile, ...]]
"""Runs the tasks of a feed. Called from several threads."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What runs the tasks of a feed, and how many of them at once; that is asked for only if there are several."""

    execute: Execute
    cores: Callable[[], int]


def feed_index(
    index: Table,
    source: Table,
    *,
    anew: bool = False,
    workers: Workers | None = None,
    part_rows: int = PART_ROWS,
) -> RefreshReport:
    """Add to an index what it lacks of its table; ``anew`` builds it from all rows, and drops what is outdated.

    Several parts are run by the workers; without them, and a single one, in this process.
    """
    state = index.state()
    fed, coverage = source_of(index.name, state)
    with source.pin() as snapshot:
        until = snapshot.version
        if not anew and (idle := nothing_new(f"index {index.name}", index, source, fed.version, until)):
            return idle
        anew = anew or _is_stale(state, snapshot.state)
        files = None if anew else _missing(source, snapshot.state, fed)
        if files is None:
            anew, files = True, list(snapshot.state.referenced().values())
        planning = _Planning(index, snapshot, coverage)
        covered, sequence = planning.coverable(files)
        tasks = planning.tasks(covered, part_rows)
        if workers is None or len(tasks) < 2:
            workers = Workers(partial(_execute_here, index.storage), lambda: 1)
        parts = _Parts(index, fed, state.version, added_at_once=anew or len(tasks) == 1)
        parts.run(tasks, workers)
        proposal = ProposeFeed(
            tuple(parts.files),
            state.version,
            fed.version,
            until,
            anew=anew,
            sequence=sequence,
            covered=() if anew else (*parts.covered, *_relied_on(coverage, snapshot.state)),
        )
        version = version_of(commit_files(index, proposal), f"index {index.name}")
    rows_read = sum(task.rows for task in tasks)
    return RefreshReport(index.name, source.name, fed.version, until, rows_read, version, anew or not coverage.built)


def _is_stale(index: TableState, source: TableState) -> bool:
    entries, rows = (sum(file.rows for file in state.referenced().values()) for state in (index, source))
    return entries > rows * (1 + STALE_SHARE) + STALE_ROWS


def _missing(source: Table, state: TableState, fed: ViewSource) -> list[DataFile] | None:
    """Return the files of which the index lacks entries; None if that is not known."""
    assert fed.index is not None
    files = {file.id: file for file in uncovered(state, fed)}
    if fed.index.built and state.restored_version > fed.version:
        # Of files that had no reference when the index was built, it may have no entries.
        try:
            then = source.log.at(fed.version).state.referenced()
        except NotRetainedError:
            return None
        held = {*then, *fed.index.files}
        files |= {name: file for name, file in state.referenced().items() if name not in held}
    return list(files.values())


def _relied_on(coverage: IndexCoverage, state: TableState) -> list[str]:
    """Return the files whose entries earlier parts added, and that still count."""
    referenced = state.referenced() if coverage.files else {}
    return [name for name in coverage.files if name in referenced]


class _Planning:
    """Divides the files of a table at one version among tasks."""

    def __init__(self, index: Table, snapshot: Snapshot, coverage: IndexCoverage) -> None:
        self._index = index
        self._snapshot = snapshot
        self._raw = raw_state(snapshot.state).created
        known = {field.id: field.name for field in snapshot.schema.fields}
        self._names = tuple(known[one] for one in (*coverage.fields, *coverage.key_fields))
        self._indexed = len(coverage.fields)

    def coverable(self, files: Sequence[DataFile]) -> tuple[Sequence[DataFile], int]:
        """Return the files of which entries can be made, and the sequence number below which all are."""
        state = self._snapshot.state
        if self._indexed == 1 or KIND not in self._raw.by_name:
            return files, state.next_sequence
        partial = [file for file in files if file.markers and self._has_partial_rows(file)]
        sequence = min((state.files[file.id].sequence_lo for file in partial), default=state.next_sequence)
        return [file for file in files if state.files[file.id].sequence_hi < sequence], sequence

    def _has_partial_rows(self, file: DataFile) -> bool:
        with closing(_stored(self._snapshot.reader, self._raw, [file], [KIND])) as batches:
            return any(pc.any(pc.equal(batch.column(KIND), int(RowKind.PARTIAL))).as_py() for batch in batches)

    def tasks(self, files: Sequence[DataFile], part_rows: int) -> list[EntriesTask]:
        """Return the tasks for these files, oldest first: each has at most ``part_rows`` rows, or one file."""
        index, committed, rows = self._index, self._snapshot.state.files, part_rows
        parts: list[list[DataFile]] = []
        for file in sorted(files, key=lambda one: (committed[one.id].sequence_lo, one.id)):
            if rows + file.rows > part_rows:
                parts.append([])
                rows = 0
            parts[-1].append(file)
            rows += file.rows
        state, settings = index.log.head.state, index.settings_in_force()
        return [
            EntriesTask(
                source_id=self._snapshot.state.table,
                files=tuple(part),
                schema=self._raw,
                names=self._names,
                indexed=self._indexed,
                index_id=index.id,
                layout=index.layout(),
                cuts=state.partitions.boundaries,
                merge=state.merge,
                memory_limit_bytes=settings.memory_limit_bytes,
            )
            for part in parts
        ]


class _Parts:
    """The parts of a feed: each is committed when it is done, or the files of all are kept to be added at once."""

    def __init__(self, index: Table, fed: ViewSource, base_version: int, *, added_at_once: bool) -> None:
        self._index = index
        self._fed = fed
        self._base_version = base_version
        self._added_at_once = added_at_once
        self._lock = threading.Lock()
        self.files: list[NewFile] = []
        self.covered: list[str] = []

    def run(self, tasks: Sequence[EntriesTask], workers: Workers) -> None:
        """Run the tasks. Raises the error of the first that failed, after the others of its batch were added."""
        cores = workers.cores()
        limits = runner.BatchLimits(cores, min(cores, BATCHES))
        try:
            runner.run(tasks, lambda jobs: jobs, workers.execute, self._done, limits)
        except BaseException:
            discard(self._index.storage, self._index.id, self.files)
            raise

    def _done(self, task: EntriesTask, results: Sequence[TaskResult]) -> tuple[EntriesTask, ...]:
        (made,) = results
        if isinstance(made, Error):
            raise made
        with self._lock:
            if self._added_at_once:
                self.files += made
                return ()
        ids = tuple(file.id for file in task.files)
        proposal = ProposeEntries(made, self._base_version, self._fed.version, ids)
        version_of(commit_files(self._index, proposal), f"index {self._index.name}")
        with self._lock:
            self.covered += ids
        return ()


def _execute_here(storage: Storage, tasks: Sequence[EntriesTask]) -> list[TaskResult]:
    results: list[TaskResult] = []
    for task in tasks:
        try:
            with scratch_folder("index") as scratch:
                results.append(run_entries_task(task, storage, scratch))
        except Error as error:
            results.append(error)
    return results


def run_entries_task(task: EntriesTask, storage: Storage, scratch: Path) -> tuple[NewFile, ...]:
    """Read, sort and send the entries of one part.

    Raises BadKeyError for entries that are too long for a key, DamagedError for a file, StorageError if ``scratch`` has
    no room for sorting.
    """
    from lakebed.files.sorting.sort import sort_runs

    def failed(error: BaseException) -> Error:
        if isinstance(error, OSError):
            return Code.TEMPORARY_STORAGE_FAILED(f"sorting needs room in {scratch}: {error}; free some")
        return Code.MERGE_FAILED(f"the entries cannot be sorted: {type(error).__name__}: {error_text(error)}")

    # The snapshot is pinned, so no file of it is deleted.
    reader = Reader(storage, task.source_id, lambda _: True, lambda: task.memory_limit_bytes)
    rows = RowInput.of_batches(
        task.layout.schema.arrow, _entry_rows(task, reader), f"the rows of table {task.source_id}"
    )
    with translate_errors(failed):
        run = sort_runs(
            conformed(rows, RowEncoder(Conformer(task.layout.schema), task.merge)),
            task.layout,
            scratch,
            memory_limit_bytes=task.memory_limit_bytes,
            cuts=task.cuts,
            mode=task.merge,
        )
    return send_run(storage, task.index_id, run, job=clock.new_id())


def _entry_rows(task: EntriesTask, reader: Reader) -> Iterator[pa.RecordBatch]:
    schema, indexed = task.layout.schema.arrow, task.names[: task.indexed]
    kinds = [KIND] if KIND in task.schema.by_name and any(file.markers for file in task.files) else []
    with closing(_stored(reader, task.schema, task.files, [*task.names, *kinds])) as batches:
        for batch in batches:
            rows = batch
            if kinds:
                deleted = pc.equal(pc.fill_null(rows.column(KIND), 0), int(RowKind.DELETE))
                rows = rows.filter(pc.invert(deleted))
            for name in indexed:
                if rows.column(name).null_count:
                    rows = rows.filter(rows.column(name).is_valid())
            columns = [cut(rows.column(name)) if name in indexed else rows.column(name) for name in task.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _stored(
    reader: Reader, schema: Schema, files: Sequence[DataFile], names: Sequence[str]
) -> Generator[pa.RecordBatch]:
    """Return all stored rows of whole files, one file after another."""
    for file in files:
        whole = QueryPlan((PartitionQuery(0, (ALL_KEYS,), (file,)),), schema)
        with closing(reader.scan(whole, list(dict.fromkeys(names)), None)) as batches:
            yield from batches
