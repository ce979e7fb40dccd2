"""Deletes keys: by a list of them, or by a predicate over the rows.

A delete is a write of tombstones, one for each key. They hide older rows through every read at once, and compaction
drops both.

By a predicate, the keys are found in one version, and the tombstones arrive later: they would also hide a row that was
written in between. The write therefore has a guard over the keys (:mod:`lakebed.model.state.transactions.key_guard`).
If a file that may have such rows has arrived, nothing is committed, and the search is repeated in the newest version,
at most :data:`TRIES_MAX` times.

Core types: :class:`DeleteReport`. Errors: those of reads and writes. Source: docs/decisions/0053.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakebed.errors import Code, RejectedError
from lakebed.model.html_tables import FactsView
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions.key_guard import KeyGuards
from lakebed.write.row_encoder import DELETE
from lakebed.write.run import Write, WriteTarget, add

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.read.snapshot.snapshot import Snapshot

TRIES_MAX = 10
"""How often the keys of a predicate are looked for; each time rows that may be theirs have arrived meanwhile."""


@dataclass(frozen=True, slots=True)
class DeleteReport(FactsView):
    """The result of a delete: ``keys`` were deleted at ``version``, which is the latest known if there were none.

    Given keys are counted whether they had rows or not. ``repeated``: the commit id was committed before, at
    that version, and nothing was deleted now.
    """

    table: str
    version: int
    keys: int
    repeated: bool = False


class DeleteTarget(WriteTarget, Protocol):
    """The target of deletes: a :class:`~lakebed.table.table.Table`."""

    def snapshot(self, max_staleness: float | None = None) -> Snapshot:
        """Return the latest version, or one that was the latest at most ``max_staleness`` seconds ago."""


def delete(table: DeleteTarget, keys: Any, where: str | None, write: Write) -> DeleteReport:
    """As :meth:`lakebed.table.table.Table.delete`."""
    if (keys is None) == (where is None):
        raise Code.ARGUMENTS_CONFLICT("delete takes keys or where, one of them; for all rows use remove(KeyRange())")
    state = table.state()
    DELETE.check(state.merge)
    write = replace(write, operation=DELETE)
    if (first := committed_at(state, "commit_id", write.commit_id)) is not None:
        return DeleteReport(table.name, first, 0, repeated=True)
    if where is None:
        return _write_tombstones(table, key_rows(keys, table.snapshot(0.0)), write)
    if write.base_version is None and write.commit_id is not None:
        # The base version of the first attempt, by which a repeat is recognised.
        write = replace(write, base_version=state.version)
    for _ in range(TRIES_MAX):
        try:
            return _delete_where(table, where, write)
        except RejectedError as error:
            if error.code is not Code.KEYS_CHANGED:
                raise
    raise Code.COMMIT_CONTENDED(
        f"table {table.name}: rows that may be those of the predicate arrived {TRIES_MAX} times while they were looked "
        "for; nothing was deleted. Delete again, or delete by keys",
        attempts=TRIES_MAX,
    )


def _delete_where(table: DeleteTarget, where: str, write: Write) -> DeleteReport:
    snapshot = table.snapshot()
    names, guards = named(snapshot), KeyGuards()
    rows = snapshot.scan(columns=names, where=where)

    def keys() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            guards.add(snapshot.schema.codec.encode_columns(batch).to_pylist())
            yield batch

    with contextlib.closing(rows):
        found = pa.RecordBatchReader.from_batches(snapshot.schema.arrow_of(names), keys())
        return _write_tombstones(table, found, replace(write, guard=lambda: guards.guard(snapshot.state)))


def _write_tombstones(table: DeleteTarget, keys: pa.Table | pa.RecordBatchReader, write: Write) -> DeleteReport:
    added = add(table, keys, write)
    return DeleteReport(table.name, added.version, added.rows, added.repeated)


def named(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the key columns of a delete."""
    mode, schema = snapshot.state.merge, snapshot.schema
    return schema.sort_names if mode.by_sort_key else schema.row_key_names


def key_rows(keys: Any, snapshot: Snapshot) -> pa.Table:
    """Return keys as columns: those of Arrow data as they are, with the sort key if deletes need it."""
    from lakebed.read.rows.multi_get import encoded_keys, is_arrow

    schema: Schema = snapshot.schema
    if len(named(snapshot)) > len(schema.row_key) and is_arrow(keys) and not isinstance(keys, pa.Array):
        rows = pa.table(keys)
        return rows.select([name for name in schema.sort_names if name in rows.column_names])
    return pa.Table.from_batches([schema.codec.decode_columns(encoded_keys(keys, schema))])
