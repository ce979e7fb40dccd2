"""Writes rows in the caller's process: any stream of rows becomes one sorted run, and one commit.

:func:`add` is the body of :meth:`lakebed.table.table.Table.write`. Rows are made to fit the schema batch by batch,
sorted in chunks of a bounded size and merged, so that memory does not grow with the input. A write makes as few files
as their size allows, each with a reference from every partition that it reaches.

A table with a merge mode gets one row for each merge key, of the rows of the write alone: older rows of the key are in
other files, and are merged with it by reads and compactions.

Rules. Nothing is sent before all rows were read and fit; nothing is visible before the commit.

Errors: SchemaMismatchError and BadKeyError for rows, UsageError for a stream that cannot be read, StorageError for a
full disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, Error, SchemaMismatchError
from lakebed.files.parquet.sizes import decoded_rows, pages_bytes_max
from lakebed.log.outcomes import Committed, version_of
from lakebed.model.checks import are_texts, check_flag, shown
from lakebed.model.files import data_name
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.row_filters import ages_by_sort_key
from lakebed.model.row_kinds import hidden_of, without_hidden
from lakebed.model.state.time_travel import based_on, committed_at
from lakebed.model.state.transactions import ProposeFiles
from lakebed.storage import telemetry
from lakebed.write.conformer import Conformer
from lakebed.write.growth import Growth
from lakebed.write.python_data import open_stream
from lakebed.write.row_encoder import UPSERT, Action, Operation, RowEncoder
from lakebed.write.send import WriteTarget, commit_files, send_run
from lakebed.write.source_rows import WRITE, RowInput, conformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakebed.files.parquet.layout import Layout
    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions.key_guard import KeyGuard
    from lakebed.storage.contract import Storage


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
    ``guard`` is called after the rows were read; the write is refused if the
    keys that they were derived from were written since. Raises UsageError for other casts.
    """

    commit_id: str | None = None
    base_version: int | None = None
    operation: Operation = UPSERT
    guard: Callable[[], KeyGuard] | None = None
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
    guard = None if write.guard is None else write.guard()
    proposal = ProposeFiles(files, write.commit_id, base, merged_at=target.state.version, guard=guard)
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
