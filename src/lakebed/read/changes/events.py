"""Events for hooks: the transactions of each version of a table, read from its log in ascending order.

An event has the version, and for each transaction of the entry its kind, its counts and the key ranges that it wrote or
removed. Ranges of files are those of their keys, so no other row was added; they may hold keys without a row.

Core type: :class:`Event`, whose JSON docs/hooks.md describes. Source: docs/hooks.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lakebed.log.entry import entry_missing, log_went_back, naming
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from lakebed.model.state.codec import outline
from lakebed.model.state.transactions import AddFiles, RemoveRange, Replace, RestoreVersion
from lakebed.read.changes.plan import may_change_rows, range_document
from lakebed.read.inspect.history import described

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.log.entry import StoredEntry
    from lakebed.log.log import Log
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal, Transaction

RANGES_MAX = 100
"""Ranges of one transaction in an event; of more, one that covers all of them."""


class EventChange(Struct, frozen=True):
    """One transaction. A count is None if the log does not say it. ``changes_rows``: readers see other rows since."""

    kind: str
    changes_rows: bool
    rows_added: int
    rows_removed: int | None
    files_added: int
    bytes_added: int
    request_key: str | None
    detail: str
    ranges: list[dict[str, Any]]


class Event(Struct, frozen=True):
    """The changes of one version. ``missed_from``: the entries from that version to this one are no longer retained."""

    version: int
    time: str | None
    writer: str | None
    changes: list[EventChange]
    missed_from: int | None = None


def read_events(
    log: Log[TableState, Proposal, Transaction], since: int, until: int, digest: str = ""
) -> Iterator[tuple[Event, str]]:
    """Return the events of the versions after ``since`` up to ``until``, each entry read when it is its turn, with the
    digest of the entry; it is empty for missed entries. ``digest`` is that of entry ``since``; empty: not known.

    Raises StorageError, DamagedError; also if the log went back, and entry ``since`` is another than it was.
    """
    version = since + 1
    while version <= until:
        stored = log.read(version)
        if stored is not None:
            if digest not in ("", stored.entry.previous):
                raise log_went_back(log.identity, version - 1)
            digest = stored.entry.digest
            yield _event(stored, log.identity, log.head.state.created), digest
        elif (start := log.log_start()) >= version:
            yield Event(start, None, None, [], missed_from=version), ""
            version, digest = start, ""
        else:
            raise entry_missing(log.identity, version)
        version += 1


def _event(stored: StoredEntry, table_id: str, schema: Schema) -> Event:
    changes = []
    for document in stored.entry.documents:
        with naming(table_id, stored.entry.version):
            found = outline(document)
            about = described(found)
            ranges = [range_document(one, schema) for one in _ranges(found.transaction)]
        changes.append(
            EventChange(
                found.type,
                may_change_rows(found.transaction),
                about.rows_added,
                about.rows_removed,
                about.files_added,
                about.bytes_added,
                about.request_key,
                about.detail,
                ranges,
            )
        )
    return Event(stored.entry.version, stored.stored_at.isoformat(), stored.entry.writer, changes)


def _ranges(transaction: Transaction) -> Sequence[EncodedRange]:
    match transaction:
        case AddFiles(files=files) | Replace(files=files):
            return _few([EncodedRange(file.min_key, successor(file.max_key)) for file in files])
        case RemoveRange(ranges=ranges):
            return _few(list(ranges))
        case RestoreVersion():
            return [ALL_KEYS]
        case _:
            return []


def _few(ranges: list[EncodedRange]) -> Sequence[EncodedRange]:
    if len(ranges) <= RANGES_MAX:
        return ranges
    ends = [one.max for one in ranges]
    high = None if None in ends else max(end for end in ends if end is not None)
    return [EncodedRange(min(one.min for one in ranges), high)]
