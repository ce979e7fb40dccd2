"""Records of copies: folders to which rows of a table were written by exports, quarantines or submitted queries.

A record is an object of its own beside the table's log, written once, before the first row is copied. So a report on
erased rows knows each place where they may be. Records are kept for as long as the table: whether a copy was deleted is
known only by looking.

Core type: :class:`CopyRecord`. Errors: StorageError; DamagedError for a record that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.documents import reading
from lakebed.model.files import copy_folder, copy_name, is_copy_name
from lakebed.model.stored_documents import decode_document, encode_document
from lakebed.storage.retries import is_stored

if TYPE_CHECKING:
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


def read_copies(storage: Storage, table_id: str) -> Iterator[CopyRecord]:
    """Return the records, oldest first, each read when it is taken from the iterator."""
    # Ids begin with the time of their creation.
    for found in sorted(storage.list(copy_folder(table_id)), key=lambda one: one.name):
        data = storage.get(found.name) if is_copy_name(table_id, found.name) else None
        if data is None:
            continue
        with reading(f"{storage.object_url(found.name)} is no record of a copy", name=found.name):
            document = decode_document(data, storage.object_url(found.name))
            kind, url = CopyKind(document["kind"]), str(document["url"])
            yield CopyRecord(kind, url, int(document["version"]), found.last_modified)
