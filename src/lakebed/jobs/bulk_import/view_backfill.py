"""Feeds a view with all rows of a large source, by tasks.

Each task reads a share of the source's partitions with Lakebed's own reader, applies the query of the view to it part
by part, and stages what comes out as a sorted run; the runs are then shuffled as those of a bulk import. One entry
commits them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.shares import PARTITION_BYTES, sampled, share_out, weights
from lakebed.model.keys import ALL_KEYS
from lakebed.read.rows.plan import QueryPlan, plan
from lakebed.upkeep.ingest_jobs import Ingested
from lakebed.upkeep.view_feed import parts_of, with_keys
from lakebed.write.source_rows import SourceRows

if TYPE_CHECKING:
    from lakebed.jobs.executor import Root
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import ViewSource
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """When tasks feed a view, and about how much of its source each reads."""

    bytes_min: int = 512 * 1024 * 1024
    """A smaller source is read in the process that refreshes: about a minute, beside which the start of Spark or of
    workers does not pay."""

    share_bytes: int = PARTITION_BYTES


LIMITS = BackfillLimits()


@dataclass(frozen=True, slots=True)
class _Share:
    """What one task reads of the source, and the query that it applies."""

    place: Root
    table_id: str
    planned: QueryPlan
    select: str
    columns: tuple[tuple[str, str], ...]
    view: Schema
    memory_limit_bytes: int


def backfill(
    importer: Importer, source: Table, snapshot: Snapshot, fed: ViewSource, limits: BackfillLimits = LIMITS
) -> Ingested | None:
    """Return the files with what the query makes of all rows of the snapshot, sent and not committed.

    None if the source is too small to be worth it. Raises as a bulk import.
    """
    planned = plan(snapshot.state, (ALL_KEYS,))
    held = weights(snapshot.state, planned.partitions)
    if sum(held.values()) < limits.bytes_min:
        return None
    shares = share_out(planned.partitions, held, limits.share_bytes, lambda files: sampled(source, files))
    memory_limit_bytes = importer.table.settings_in_force().memory_limit_bytes
    query = (fed.select, fed.columns(snapshot.state), importer.table.schema)
    tasks = [
        _Share(importer.call.place, source.id, structs.replace(planned, partitions=share), *query, memory_limit_bytes)
        for share in shares
    ]
    made = importer.staged(tasks, partial(_query_results, name=f"the query of view {importer.table.name}"))
    return replace(made, rows_read=snapshot.count().rows)


def _query_results(share: _Share, name: str) -> Iterator[SourceRows]:
    """Return what the query makes of the rows of a share."""
    from lakebed.engine.row_query import RowQuery
    from lakebed.read.rows.reader import Reader

    query = RowQuery(share.select, share.planned.schema.arrow, share.columns)
    # The snapshot is pinned, so no file of it is deleted.
    reader = Reader(share.place.connect(), share.table_id, lambda _: True)
    with reader.scan(share.planned, share.planned.schema.names, None) as rows:
        for made in query.rows(parts_of(rows, share.memory_limit_bytes)):
            yield SourceRows(with_keys(made, share.view), name)
