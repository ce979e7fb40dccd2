"""Sending the files of a run: from sorted local Parquet to committed-to-be objects, and committing them.

The data object goes first, then its summary. Both names are fresh, so a lost attempt overwrites nothing. An attempt
that fails deletes what it has sent, so that a full disk does not stay full. What it cannot delete, or has sent to a
store that does not answer any more, is an orphan, which the sweep deletes.

Once files are proposed to the log they are deleted only if it is certain that no entry has them, nor ever will: never
after an unknown outcome.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from lakebed import clock
from lakebed.errors import Error, StorageError
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import Contended, Crowded, NotCommitted
from lakebed.model.files import DataFile, NewFile, data_object, object_names, summary_name, summary_object
from lakebed.state.transactions import TooManyRuns
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.log.committer import Log
    from lakebed.log.outcomes import Outcome
    from lakebed.parquet.layout import SortedFile
    from lakebed.state.table_state import TableState
    from lakebed.state.transactions import Proposal, ProposeFiles, ProposeOutput, Transaction
    from lakebed.storage.contract import Storage


class Committer(Protocol):
    """Where files are committed: a :class:`~lakebed.table.table.Table`."""

    id: str
    storage: Storage
    log: Log[TableState, Proposal, Transaction]

    def try_commit(self, proposal: Proposal) -> Outcome:
        """What became of the proposal; raises StorageError if the store refused it."""
        ...


def send_run(storage: Storage, table_id: str, run: Iterable[SortedFile], *, job: str) -> tuple[NewFile, ...]:
    """Send every file of one run and say what was sent. The local files are used up. ``job`` also names the run."""
    sent: list[NewFile] = []
    names: list[str] = []
    try:
        for sorted_file in run:
            file_id = clock.new_id()
            names += [data_object(table_id, job, file_id), summary_object(table_id, job, file_id)]
            sent.append(_send(storage, table_id, sorted_file, (job, file_id)))
    except BaseException as error:
        if not _is_silent(error):
            _delete(storage, names)
        raise
    return tuple(sent)


def commit_files(table: Committer, proposal: ProposeFiles | ProposeOutput) -> Outcome:
    """Commit files that are proposed this once; delete them if it is certain that they are not in the log.

    Raises StorageError as :meth:`lakebed.log.committer.Log.commit` does: then, too, nothing of them is in the log.
    """
    try:
        outcome = table.try_commit(proposal)
    except StorageError as error:
        if not _is_silent(error):
            _discard_unknown(table, proposal.files)
        raise
    if isinstance(outcome, NotCommitted | Contended | Crowded | TooManyRuns):
        _discard_unknown(table, proposal.files)
    return outcome


def _discard_unknown(table: Committer, files: Iterable[NewFile]) -> None:
    """As :func:`discard`, but for files that the table has: proposed twice, they are rejected for that."""
    with suppress(Error):
        known = table.log.head.state.files
        discard(table.storage, table.id, [new for new in files if new.file.id not in known])


def discard(storage: Storage, table_id: str, files: Iterable[NewFile]) -> None:
    """Delete files that were sent and will never be committed. A best effort: what stays is an orphan."""
    _delete(storage, [name for new in files for name in object_names(table_id, new.file)])


def _is_silent(error: BaseException) -> bool:
    """Whether the store does not answer: then a deletion would only keep the caller waiting as long again."""
    return isinstance(error, StorageError) and bool(error.facts.get("transient"))


def _delete(storage: Storage, names: Iterable[str]) -> None:
    # What failed before is what the caller is to see.
    with suppress(Error):
        storage.delete(names)


def _send(storage: Storage, table_id: str, sorted_file: SortedFile, at: tuple[str, str]) -> NewFile:
    job, file_id = at
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
    )
    if file.summarised:
        _put_summary(storage, summary_name(table_id, file), sorted_file.summary.to_ipc())
    return NewFile(file, sorted_file.summary, job)


def _put_summary(storage: Storage, name: str, data: bytes) -> None:
    # The name is fresh, so that "exists" can only be about an earlier put of ours.
    put_until_clear(lambda: storage.create(name, data), name)
