"""Writes rows in the caller's process: any stream of rows becomes one sorted run, and one commit.

:func:`add` is the body of :meth:`lakebed.table.table.Table.write`. Rows are made to fit the schema batch by batch,
sorted in chunks of a bounded size and merged, so that memory does not grow with the input. A write makes as few files
as their size allows, each with a reference from every partition that it reaches.

A table with a merge mode gets one row for each merge key, of the rows of the write alone: older rows of the key are in
other files, and are merged with it by reads and compactions.

Rules. Nothing is sent before all rows were read and fit; nothing is visible before the commit.

Errors: SchemaMismatchError and BadKeyError for rows, UsageError for a stream that cannot be read, StorageError for a
full disk.

*Sends the files of sorted runs to the store, and commits them.*

:func:`send_run` puts each data file, then its summary, under new names, so that no attempt overwrites another's.
:func:`commit_files` proposes files to the log. :func:`try_commit` adds backpressure: files are refused with a
ContentionError for a partition with more runs than the setting ``runs_max``. If a job is open over the partition, it is
being compacted; the commit is then proposed again, for at most :data:`STALL_S` seconds, as RocksDB stalls its writers.
Without such a job the error comes at once.

Rules. An attempt that fails deletes what it has sent, so that a full disk does not stay full; files that it cannot
delete are orphans. Files that were proposed are deleted only if it is certain that no entry has them, or ever will:
never after an unknown outcome.

Source: docs/decisions/0032.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, Error, SchemaMismatchError, StorageError
from lakebed.files.parquet.sizes import decoded_rows, pages_bytes_max
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, version_of
from lakebed.model.checks import are_texts, check_flag, shown
from lakebed.model.files import DataFile, NewFile, data_name, data_object, object_names, summary_name, summary_object
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.row_filters import ages_by_sort_key
from lakebed.model.row_kinds import hidden_of, without_hidden
from lakebed.model.state.time_travel import based_on, committed_at
from lakebed.model.state.transactions import ProposeFiles, TooManyRuns
from lakebed.storage import telemetry
from lakebed.storage.retries import put_until_clear
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.python_data import open_stream
from lakebed.write.row_encoder import UPSERT, Action, Operation, RowEncoder
from lakebed.write.source_rows import WRITE, RowInput, conformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakebed.files.parquet.layout import Layout, SortedFile
    from lakebed.log.log import Log
    from lakebed.log.outcomes import Outcome
    from lakebed.model.schema import Schema
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import (
        Proposal,
        ProposeEntries,
        ProposeFeed,
        ProposeOutput,
        ProposeRewrite,
        Transaction,
    )
    from lakebed.model.state.transactions.key_guard import KeyGuard
    from lakebed.storage.contract import Storage

STALL_S = 60.0
"""A running compaction commits the jobs of a batch within seconds; a caller should not wait longer without an error."""

PAUSE_S, PAUSE_MAX_S = 0.1, 2.0

REWRITES_MAX = 5
"""How often rows are written again for a schema that was changed meanwhile; each time another change has won."""

Rewrite = Callable[[tuple[NewFile, ...]], tuple[NewFile, ...]]
"""Writes the rows of files that were sent as files of the newest schema."""


FilesProposal: TypeAlias = "ProposeFiles | ProposeFeed | ProposeEntries | ProposeOutput | ProposeRewrite"
"""A proposal with files that were sent."""

TaskResult = tuple[NewFile, ...] | Error
"""The files that a task sent, or why it could not."""


class WriteTarget(Protocol):
    """The target of commits: a :class:`~lakebed.table.table.Table`."""

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
        """Return the latest state, or one that was the latest at most ``max_staleness`` seconds ago."""
        ...

    def base_state(self) -> TableState:
        """Return a recent state, for a write to begin at."""
        ...

    def settings_in_force(self) -> Settings:
        """Return the settings."""
        ...

    def layout(self) -> Layout:
        """Return the layout of data files."""
        ...

    def try_commit(self, proposal: Proposal) -> Outcome:
        """Commit the proposal; raises StorageError if the store refused it."""
        ...


def send_run(storage: Storage, table_id: str, run: Iterable[SortedFile], *, job: str) -> tuple[NewFile, ...]:
    """Send every file of one run; deletes the local files. ``job`` is also the id of the run."""
    sent: list[NewFile] = []
    names: list[str] = []
    try:
        for sorted_file in run:
            file_id = clock.new_id()
            names += [data_object(table_id, job, file_id), summary_object(table_id, job, file_id)]
            sent.append(_send(storage, table_id, sorted_file, job=job, file_id=file_id))
            telemetry.measure("written_bytes_total", sent[-1].file.size_bytes, table=table_id)
    except BaseException as error:
        if not _is_unavailable(error):
            _delete(storage, names)
        raise
    return tuple(sent)


def check_rows(read: int, written: int, mode: MergeMode) -> None:
    """Raise Error unless the rows that were written can be what the mode makes of as many as were read."""
    if mode.keeps_all:
        plausible = written == read
    else:
        plausible = written <= read and (mode.may_drop_rows or bool(written) == bool(read))
    if not plausible:
        raise Code.ROWS_LOST(f"{read} rows were read and {written} written; nothing was added")


def commit_files(table: WriteTarget, proposal: FilesProposal, again: Rewrite | None = None) -> Outcome:
    """Commit files; delete them if it is certain that they are not in the log.

    If the schema was changed while files with new fields were written, ``again`` writes their rows anew, for at most
    :data:`REWRITES_MAX` times.

    Raises StorageError as :meth:`lakebed.log.log.Log.commit` does, and what ``again`` raises; the files are not
    in the log then.
    """
    outcome = _commit_files(table, proposal, keep=again is not None)
    for tries_left in reversed(range(REWRITES_MAX)):
        if again is None or not _schema_changed(outcome):
            break
        try:
            files = again(proposal.files)
        finally:
            _discard_unknown(table, proposal.files)
        proposal = structs.replace(proposal, files=files)
        outcome = _commit_files(table, proposal, keep=tries_left > 0)
    return outcome


def _schema_changed(outcome: Outcome) -> bool:
    return isinstance(outcome, NotCommitted) and outcome.code is Code.SCHEMA_CHANGED


def _commit_files(table: WriteTarget, proposal: FilesProposal, *, keep: bool) -> Outcome:
    """Commit the files, once; ``keep`` leaves files that are rejected because the schema was changed."""
    try:
        outcome = table.try_commit(proposal)
    except StorageError as error:
        if not _is_unavailable(error):
            _discard_unknown(table, proposal.files)
        raise
    if isinstance(outcome, NotCommitted | Contended | Crowded | TooManyRuns) and not (
        keep and _schema_changed(outcome)
    ):
        _discard_unknown(table, proposal.files)
    return outcome


def _discard_unknown(table: WriteTarget, files: Iterable[NewFile]) -> None:
    """As :func:`discard`, except for files that the table has: files proposed twice are rejected for that reason."""
    with suppress(Error):
        known = table.log.head.state.files
        discard(table.storage, table.id, [new for new in files if new.file.id not in known])


def discard(storage: Storage, table_id: str, files: Iterable[NewFile]) -> None:
    """Delete files that were sent and will never be committed. Files that cannot be deleted are orphans."""
    _delete(storage, [name for new in files for name in object_names(table_id, new.file)])


def _is_unavailable(error: BaseException) -> bool:
    """Return whether the store does not answer; a deletion would only make the caller wait again."""
    return isinstance(error, StorageError) and bool(error.facts.get("transient"))


def _delete(storage: Storage, names: Iterable[str]) -> None:
    # The caller gets the error that came before.
    with suppress(Error):
        storage.delete(names)


def _send(storage: Storage, table_id: str, sorted_file: SortedFile, *, job: str, file_id: str) -> NewFile:
    stored = storage.send(data_object(table_id, job, file_id), sorted_file.path)
    sorted_file.path.unlink(missing_ok=True)
    file = DataFile(
        id=file_id,
        job=job,
        rows=sorted_file.rows,
        size_bytes=stored.size_bytes,
        min_key=sorted_file.min_key,
        max_key=sorted_file.max_key,
        schema_version=sorted_file.schema_version,
        last_modified_us=to_us(stored.last_modified),
        digest=stored.digest,
        footer_bytes=stored.footer_bytes,
        footer_digest=stored.footer_digest,
        bounds=sorted_file.bounds,
        markers=sorted_file.markers,
    )
    if file.summarised:
        _put_summary(storage, summary_name(table_id, file), sorted_file.summary.to_ipc())
    return NewFile(file, sorted_file.summary, job, sorted_file.added)


def _put_summary(storage: Storage, name: str, data: bytes) -> None:
    # The name is new, so EXISTS can only be due to an earlier attempt of this put.
    put_until_clear(lambda: storage.create(name, data), name)


# -- backpressure --------------------------------------------------------------------------------------------------


def try_commit(table: WriteTarget, proposal: Proposal) -> Outcome:
    """Commit a proposal; with files, wait while a partition has too many runs and is being compacted."""
    if not isinstance(proposal, ProposeFiles):
        return table.log.commit(proposal)
    proposal = structs.replace(proposal, runs_max=table.settings_in_force().runs_max)
    end, pause = clock.monotonic_s() + STALL_S, PAUSE_S
    while True:
        outcome = table.log.commit(proposal)
        left_s = end - clock.monotonic_s()
        if not isinstance(outcome, TooManyRuns) or not outcome.job_open or left_s <= 0:
            return outcome
        clock.sleep(min(pause, left_s))
        pause = min(2 * pause, PAUSE_MAX_S)


def check_runs(table: WriteTarget) -> None:
    """Raise ContentionError if a partition has too many runs now. For use before long work."""
    state, runs_max = table.log.head.state, table.settings_in_force().runs_max
    for partition in state.partitions.ids if runs_max else ():
        if state.references.exceeds(partition, runs_max):
            runs = len({one.run for one in state.held_by(partition)})
            if runs > runs_max:
                version_of(TooManyRuns(partition, runs, runs_max, job_open=False), f"table {state.table}")


Casts = str | Sequence[str]
"""LOSSLESS, TEXT, or the fields that may also be read from text and turned into text."""
LOSSLESS = "lossless"
TEXT = "text"

Columns = Sequence[tuple[str, pa.Schema]]
"""The columns of each source, after its name."""


@dataclass(frozen=True, slots=True)
class Write:
    """The options of a write.

    ``commit_id``, ``base_version``, ``casts`` and ``ignore_extra`` are those of
    :meth:`lakebed.table.table.Table.write`; ``columns`` has the column of a field where it is not its own name.
    ``guard`` is called after the rows were read, with the number of those in the files, and may raise; the write is
    refused if the keys that they were derived from were written since; with a ``sequence``, the next one of a state,
    if any rows were added since that state. Raises UsageError for other casts.
    """

    commit_id: str | None = None
    base_version: int | None = None
    operation: Operation = UPSERT
    guard: Callable[[int], KeyGuard] | None = None
    sequence: int | None = None
    casts: Casts = LOSSLESS
    ignore_extra: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_flag("ignore_extra", self.ignore_extra)
        if self.casts not in (LOSSLESS, TEXT) if isinstance(self.casts, str) else not are_texts(self.casts):
            raise Code.ARGUMENT_INVALID(
                f"casts = {shown(self.casts)}: must be 'lossless', 'text' (for all fields), or a list of fields"
            )

    def casts_in(self, schema: Schema) -> Collection[str]:
        """Return the fields of a schema that may be cast."""
        return schema.names if self.casts == TEXT else () if self.casts == LOSSLESS else self.casts

    def conformer(self, schema: Schema, columns: Columns, *, untyped: bool = False) -> Conformer:
        """Return how rows with these columns become rows of a schema."""
        cast = schema.names if untyped else self.casts_in(schema)
        extra = {name for _, schema in columns for name in schema.names} if self.ignore_extra else set()
        conformer = Conformer(schema, self.columns, frozenset(cast))
        return replace(conformer, ignored=frozenset(extra - set(conformer.read)))


@dataclass(frozen=True, slots=True)
class Added:
    """The result of a write: its version, and the rows of its files. ``repeated``: nothing was added,
    because an earlier write with the same commit id was committed at that version.
    """

    version: int
    rows: int
    repeated: bool = False


def add(table: WriteTarget, data: Any, write: Write) -> Added:
    """Add the rows of a stream in one commit; raises as :meth:`lakebed.table.table.Table.write`."""
    with telemetry.span("write", table=table.id):
        added = _add_rows(table, data, write)
    telemetry.measure("write_rows_total", added.rows, table=table.id)
    return added


def _add_rows(table: WriteTarget, data: Any, write: Write) -> Added:
    stream = open_stream(data, lambda: table.schema, table.storage, write.casts_in(table.schema))
    # Without an id the version only says when the call began; a recent state is enough.
    any_will_do = write.commit_id is None and not write.operation.marks
    state = table.base_state() if any_will_do else table.state()
    first = committed_at(state, "commit_id", write.commit_id)
    if first is not None:
        return Added(first, 0, repeated=True)
    base = based_on(state, write.commit_id, write.base_version)
    conformer = write.conformer(table.schema, stream.columns, untyped=stream.untyped)
    encoder = RowEncoder(conformer, table.log.head.state.merge, write.operation)
    if not all(encoder.fits(columns) for _, columns in stream.columns):
        # Another process may have altered the table meanwhile.
        table.state()
    try:
        target = _Target.of(table, stream.columns, write, untyped=stream.untyped)
        files = target.written(table, stream)
    except SchemaMismatchError:
        # Nulls may be allowed by now. The rows are consumed, so only the next call can succeed.
        table.state()
        raise
    if not files and write.commit_id is None:
        return Added(table.version, 0)
    try:
        guard = None if write.guard is None else write.guard(sum(new.file.rows for new in files))
    except BaseException:
        discard(table.storage, table.id, files)
        raise
    merged_at = target.state.version
    proposal = ProposeFiles(files, write.commit_id, base, merged_at=merged_at, guard=guard, sequence=write.sequence)
    outcome = commit_files(table, proposal, partial(_written_again, table, marked=write.operation.marks))
    version = version_of(outcome, f"table {table.name}")
    repeated = isinstance(outcome, Committed) and outcome.repeated
    return Added(version, 0 if repeated else sum(new.file.rows for new in files), repeated)


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of a write: a state, the encoding of its rows, and the layout of its files."""

    state: TableState
    encoder: RowEncoder
    layout: Layout

    @classmethod
    def of(cls, table: WriteTarget, columns: Columns, write: Write, *, untyped: bool = False) -> _Target:
        """Return the newest state known, with fields for other columns if the table takes them."""
        state, layout, settings = table.log.head.state, table.layout(), table.settings_in_force()
        operation = write.operation
        if operation.action is Action.PARTIAL and ages_by_sort_key(state.row_filter, state.merge, state.created):
            raise Code.MERGE_MODE_MISMATCH(
                "a table whose rows age off by the sort key takes no partial rows, whose other values would age off "
                "before them; write whole rows"
            )
        growth = None if write.ignore_extra else Growth.of(state, settings)
        if growth is not None:
            read = [*write.columns.values(), *([] if operation.row_kind is None else [operation.row_kind])]
            if operation.action is Action.STORED:
                columns = [(name, _without_hidden(schema)) for name, schema in columns]
            layout = growth.layout(layout, columns, read)
        conformer = write.conformer(layout.schema, columns, untyped=untyped)
        conformer = replace(conformer, value_bytes_max=settings.value_bytes_max, grows=growth is not None)
        encoder = RowEncoder(conformer, state.merge, operation)
        return cls(state, encoder, replace(layout, schema=encoder.schema))

    def written(self, table: WriteTarget, stream: RowInput) -> tuple[NewFile, ...]:
        """Return the rows as files, sent and not committed."""
        return write_files(
            conformed(stream, self.encoder),
            self.layout,
            FileTarget(table.storage, table.id, clock.new_id()),
            memory_limit_bytes=table.settings_in_force().memory_limit_bytes,
            cuts=self.state.partitions.boundaries,
            merge=self.state.merge,
        )


def _without_hidden(columns: pa.Schema) -> pa.Schema:
    return pa.schema([columns.field(name) for name in without_hidden(columns.names)])


def _written_again(table: WriteTarget, files: Sequence[NewFile], *, marked: bool) -> tuple[NewFile, ...]:
    """Return the rows of files that were sent, as files of the newest schema: it was changed while they were written.

    Fields that the table had keep their ids, and so follow a change of their names; new ones go by their names. Files
    with ``marked`` rows keep their hidden columns, whose names have ids.
    """
    state, memory_limit_bytes = table.state(), table.settings_in_force().memory_limit_bytes
    names = {field.id: field.name for field in (*state.created.fields, *files[0].added)}
    before = state.schemas[files[0].file.schema_version - 2]
    kept = [field for field in (*before.fields, *files[0].added) if field.id in names]
    columns = pa.schema([(names[field.id], field.stored_type) for field in kept])
    again = Write(operation=Operation(Action.STORED) if marked else UPSERT)
    target = _Target.of(table, [(WRITE, columns)], again)
    stored = [(field.name, columns.field(index)) for index, field in enumerate(kept)]
    if marked:
        values = {field.name: field for field in target.encoder.conformer.schema.values}
        pairs = [(field, values[names[field.id]]) for field in kept if names[field.id] in values]
        hidden = zip(*(hidden_of(side) for side in zip(*pairs, strict=True)), strict=True)
        stored += [(old.name, pa.field(new.name, new.type)) for old, new in hidden]
    schema = pa.schema([column for _, column in stored])

    def rows() -> Iterator[pa.RecordBatch]:
        for new in files:
            for batch in sent_rows(table.storage, table.id, new.file, memory_limit_bytes):
                arrays = [batch.column(name).cast(column.type) for name, column in stored]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return target.written(table, RowInput.of_batches(schema, rows()))


def sent_rows(storage: Storage, table_id: str, file: DataFile, memory_limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of a data file that is in no log, with its own columns.

    Raises DamagedError if it is not as written.
    """
    from lakebed.files.parquet.row_groups import read_row_groups

    name = data_name(table_id, file)
    with storage.fetch(name, digest=file.digest) as path, pa.OSFile(str(path)) as source:
        yield from map(decoded_rows, read_row_groups(source, file.id, pages_bytes=pages_bytes_max(memory_limit_bytes)))


def _unwritten(error: BaseException) -> Error:
    if isinstance(error, OSError):
        room = f"sorting needs room in {tempfile.gettempdir()}: {error}; free some, or point TMPDIR elsewhere"
        return Code.TEMPORARY_STORAGE_FAILED(room)
    return Code.MERGE_FAILED(
        f"the rows cannot be sorted and written: {type(error).__name__}: {error_text(error)}; nothing was added"
    )


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The destination of new data files: the storage, the table, and the job that makes them."""

    storage: Storage
    table_id: str
    job: str


def write_files(  # noqa: PLR0913 - rows, layout, target, memory, cuts and mode
    batches: Iterator[pa.RecordBatch],
    layout: Layout,
    target: FileTarget,
    *,
    memory_limit_bytes: int,
    cuts: Sequence[bytes],
    merge: MergeMode = KEEP_ALL,
) -> tuple[NewFile, ...]:
    """Sort the rows into one run, merged by the mode, and send its files."""
    from lakebed.files.sorting.sort import sort_runs
    from lakebed.storage.disk_space import scratch_folder

    with translate_errors(_unwritten), scratch_folder("write") as scratch:
        run = sort_runs(batches, layout, scratch, memory_limit_bytes=memory_limit_bytes, cuts=cuts, mode=merge)
        return send_run(target.storage, target.table_id, run, job=target.job)
