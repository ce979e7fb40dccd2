"""Rows of submitted queries that the instance keeps: which objects may hold rows of a table, and when they are deleted.

A scan names its table. A statement may read a table if its text has the table's name; its rows are then searched, if
they have the necessary columns.

Core type: :class:`KeptRows`. Errors: StorageError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed.errors import DamagedError, NotFoundError
from lakebed.model.files import query_object
from lakebed.table.tracker.submitted_queries import ROWS, QueryObjects, may_read
from lakebed.upkeep.retention.erasure.plan import Going

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.storage.contract import Storage
    from lakebed.table.tracker.submitted_queries import FoundQuery, SubmittedQuery


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a query keeps: ``objects`` with rows, in the ``folder``; ``unclear`` is why there may be more, or come.

    ``version`` is that of the table which a scan reads.
    """

    folder: str
    objects: tuple[str, ...]
    unclear: str | None
    version: int | None
    going: Going


def kept_rows(storage: Storage, table_id: str, table: str) -> Iterator[KeptRows]:
    """Return the queries that may have read the table and keep their rows in the instance."""
    queries = QueryObjects(storage)
    for found in queries.found():
        try:
            query = queries.query(found.id)
        except NotFoundError:
            # Deleted since it was listed, or the remains of a deleted query: the table of its rows is unknown.
            yield _kept_rows(storage, found, None, None)
        except DamagedError as error:
            yield _kept_rows(storage, found, None, error.message)
        else:
            if query.url is None and may_read(query, table_id, table):
                unclear = None if found.ended else "the query has not ended: it may still write such rows"
                yield _kept_rows(storage, found, query, unclear)


def _kept_rows(storage: Storage, found: FoundQuery, query: SubmittedQuery | None, unclear: str | None) -> KeptRows:
    folder = query_object(found.id, ROWS)
    # Objects that begin with an underscore are manifests, which have no rows.
    names = [one.name for one in storage.list(folder)]
    objects = tuple(name for name in names if not name.rpartition("/")[2].startswith("_"))
    version = None if query is None or query.scan is None else query.scan.version
    return KeptRows(folder, objects, unclear, version, _going(found, query))


def _going(found: FoundQuery, query: SubmittedQuery | None) -> Going:
    due: datetime | None = None
    if query is not None and found.ended is not None:
        due = found.ended + timedelta(seconds=query.kept_s)
    return Going(f"lakebed gc, or a service, after it expires; now: lakebed query cancel {found.id}", due)
