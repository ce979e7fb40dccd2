"""The history of a table, transaction by transaction, read from its log alone.

Newest first, with one entry in memory at a time, so the last few transactions cost as many reads. Counts are those of
the resolved transactions. A count that a transaction does not contain (the rows of a replaced reference) is None,
because it would need the earlier state, and so the whole log. Sidecars are not read: their references have the counts.

*Records of copies: folders to which rows of a table were written by exports, quarantines or submitted queries.*

A record is an object of its own beside the table's log, written once, before the first row is copied. So a report on
erased rows knows each place where they may be. Records are kept for as long as the table: whether a copy was deleted is
known only by looking.

Core type: :class:`CopyRecord`. Errors: StorageError; DamagedError for a record that cannot be read.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.entry import StoredEntry, naming
from lakebed.model.checks import check_whole_number
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.model.files import copy_folder, copy_name, is_copy_name
from lakebed.model.state.codec import Outline, outline
from lakebed.model.state.transactions.resolution import Description
from lakebed.model.version import this_writer
from lakebed.model.wording import count_text
from lakebed.storage.retries import is_stored

if TYPE_CHECKING:
    from lakebed.log.log import Log
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage


class CopyKind(StrEnum):
    """The origin of a copy; the values are stored."""

    EXPORT = "export"
    QUARANTINE = "quarantine"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A folder that rows of a table were written to. ``version`` is that of the table when it was begun, ``time`` the
    store's last-modified time of the record.
    """

    kind: CopyKind
    url: str
    version: int
    time: datetime


def record_copy(storage: Storage, table_id: str, kind: CopyKind, url: str, version: int) -> None:
    """Record a folder, before anything is written there. Raises StorageError."""
    name = copy_name(table_id, clock.new_id())
    document = {"table": table_id, "kind": kind, "url": url, "version": version}
    if not is_stored(storage, name, encode_document(document)):
        raise Code.INTERNAL_ERROR(f"{storage.object_url(name)} has another record; its name is new and was taken")


def read_copies(storage: Storage, table_id: str, *, newest_first: bool = False) -> Iterator[CopyRecord]:
    """Return the records, oldest first or newest first, each read when it is taken from the iterator."""
    # Ids begin with the time of their creation.
    for found in sorted(storage.list(copy_folder(table_id)), key=lambda one: one.name, reverse=newest_first):
        data = storage.get(found.name) if is_copy_name(table_id, found.name) else None
        if data is None:
            continue
        with reading(f"{storage.object_url(found.name)} is no record of a copy", name=found.name):
            document = decode_document(data, storage.object_url(found.name))
            kind, url = CopyKind(document["kind"]), str(document["url"])
            yield CopyRecord(kind, url, int(document["version"]), found.last_modified)


BATCH_ROWS = 10_000

DETAIL_CHARS_MAX = 200
"""A reason or a setting may have any length; in the history it is cut."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One transaction. ``time`` is the store's last-modified time of its entry; None: not in the transaction."""

    version: int
    time: datetime
    writer: str
    type: str
    rows_added: int
    rows_removed: int | None
    files_added: int
    references_dropped: int | None
    bytes_added: int
    request_key: str | None
    job: str | None
    detail: str

    @property
    def rewrites(self) -> bool:
        """Whether the rows were in the table before, in other files: those of a compaction or of a rewrite."""
        return self.rows_added > 0 and self.rows_removed is None


SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("writer", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("rows_added", pa.int64(), nullable=False),
        pa.field("rows_removed", pa.int64()),
        pa.field("files_added", pa.int64(), nullable=False),
        pa.field("references_dropped", pa.int64()),
        pa.field("bytes_added", pa.int64(), nullable=False),
        pa.field("request_key", pa.string()),
        pa.field("job", pa.string()),
        pa.field("detail", pa.string(), nullable=False),
    ]
)


def history_rows(
    log: Log[TableState, Proposal, Transaction], table_id: str, limit: int | None = None
) -> Iterator[HistoryRow]:
    """Return the transactions, newest first, at most ``limit`` of them; each entry is read when the iterator reaches
    it.

    Raises UsageError for an invalid limit; the iterator raises DamagedError or UnsupportedFormatError at an entry that
    cannot be read.
    """
    check_whole_number("limit", limit)
    return islice((row for stored in log.newest_first() for row in rows_of(stored, table_id)), limit)


def rows_of(stored: StoredEntry, table_id: str) -> Iterator[HistoryRow]:
    """Return the transactions of one entry, the last one first. Raises as :func:`history_rows`."""
    entry = stored.entry
    for document in reversed(entry.documents):
        with naming(table_id, entry.version):
            outlined = outline(document)
        about = described(outlined)
        yield HistoryRow(
            version=entry.version,
            time=stored.stored_at,
            writer=entry.writer,
            type=outlined.type,
            **structs.asdict(about),
        )


def history_table(rows: Iterable[HistoryRow]) -> pa.Table:
    """Return the rows as Arrow, ten thousand at a time."""
    left = iter(rows)
    batches = []
    while batch := [asdict(row) for row in islice(left, BATCH_ROWS)]:
        batches.append(pa.RecordBatch.from_pylist(batch, schema=SCHEMA))
    return pa.Table.from_batches(batches, SCHEMA)


@contextlib.contextmanager
def committed_on_interrupt(log: Log[TableState, Proposal, Transaction]) -> Iterator[None]:
    """Add a note to a KeyboardInterrupt that ends the block: what this process committed to the log in the block.

    The note is read from the log, so it also counts what other threads of this process committed meanwhile.
    """
    since = log.head.version or log.follow().version
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(_committed(log, since))
        raise


def _committed(log: Log[TableState, Proposal, Transaction], since: int) -> str:
    try:
        rows = list(takewhile(lambda row: row.version > since, history_rows(log, log.identity)))
    except Error as error:
        return f"what was committed could not be read ({error.message}); see `lakebed history`"
    return _summary([row for row in rows if row.writer == this_writer()])


_NOUNS = {
    "concatenate_runs": "concatenation of runs",
    "split_partitions": "split",
    "join_partitions": "join",
    "remove_range": "removal",
    "restore_version": "restore",
    "purge_files": "deletion of garbage",
    "submit_requests": "submission",
    "reject_request": "rejected request",
}
"""Other transactions of a long call that matter to its user; the rest is bookkeeping."""


def _summary(rows: Sequence[HistoryRow]) -> str:
    """Return the transactions of a call that was interrupted, newest first, in one line."""
    kinds = Counter(row.type for row in rows)
    said = []
    if kinds["add_files"]:
        said.append(f"{count_text(sum(row.rows_added for row in rows if row.type == 'add_files'), 'row')} added")
    if kinds["replace"]:
        said.append(f"{kinds['replace']} of {count_text(max(kinds['open_job'], kinds['replace']), 'compaction job')}")
    said += [count_text(kinds[kind], noun) for kind, noun in _NOUNS.items() if kinds[kind]]
    if not said:
        return "nothing was committed"
    named = {"add_files", "replace", *_NOUNS}
    version = next(row.version for row in rows if row.type in named)
    return f"committed, up to version {version}: {', '.join(said)}; nothing else was changed"


def described(outlined: Outline) -> Description:
    """Return the description of a transaction, with its detail cut to a short line."""
    found = outlined.transaction.describe(outlined.added, outlined.dropped)
    text = found.detail
    return found if len(text) <= DETAIL_CHARS_MAX else structs.replace(found, detail=text[: DETAIL_CHARS_MAX - 1] + "…")
