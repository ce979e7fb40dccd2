"""Sends the files of sorted runs to the store, and commits them.

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

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, Error, StorageError
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import Contended, Crowded, NotCommitted, version_of
from lakebed.model.files import DataFile, NewFile, data_object, object_names, summary_name, summary_object
from lakebed.model.merge_modes import MergeMode
from lakebed.model.state.transactions import ProposeFiles, TooManyRuns
from lakebed.storage import telemetry
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.files.parquet.layout import Layout, SortedFile
    from lakebed.log.committer import Log
    from lakebed.log.outcomes import Outcome
    from lakebed.model.schema import Schema
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal, ProposeFeed, ProposeOutput, ProposeRewrite, Transaction
    from lakebed.storage.contract import Storage

STALL_S = 60.0
"""A running compaction commits the jobs of a batch within seconds; a caller should not wait longer without an error."""

PAUSE_S, PAUSE_MAX_S = 0.1, 2.0

REWRITES_MAX = 5
"""How often rows are written again for a schema that was changed meanwhile; each time another change has won."""

Rewrite = Callable[[tuple[NewFile, ...]], tuple[NewFile, ...]]
"""Writes the rows of files that were sent as files of the newest schema."""


FilesProposal: TypeAlias = "ProposeFiles | ProposeFeed | ProposeOutput | ProposeRewrite"
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

    Raises StorageError as :meth:`lakebed.log.committer.Log.commit` does, and what ``again`` raises; the files are not
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
