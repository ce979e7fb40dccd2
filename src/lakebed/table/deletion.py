"""Deletes keys: by a list of them, or by a predicate over the rows.

A delete is a write of tombstones, one for each key. They hide older rows through every read at once, and compaction
drops both.

By a predicate, the keys are found in one version, and the tombstones arrive later: they would also hide a row that was
written in between. So they are a guarded write (:mod:`lakebed.table.guarded_writes`).

Core types: :class:`DeleteReport`. Errors: those of reads and writes. Source: docs/decisions/0053.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.html_tables import FactsView
from lakebed.table.guarded_writes import ReadTarget, add_found
from lakebed.write.row_encoder import DELETE
from lakebed.write.run import Added, Write, add
from lakebed.write.source_rows import RowInput

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.transactions.key_guard import KeyGuards
    from lakebed.read.snapshot.snapshot import Snapshot


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


def delete(table: ReadTarget, keys: Any, where: str | None, write: Write) -> DeleteReport:
    """As :meth:`lakebed.table.table.Table.delete`."""
    if (keys is None) == (where is None):
        raise Code.ARGUMENTS_CONFLICT("delete takes keys or where, one of them; for all rows use remove(KeyRange())")
    DELETE.check(table.state().merge)
    write = replace(write, operation=DELETE)
    if where is None:
        return _delete_report(table, add(table, key_rows(keys, table.snapshot(0.0)), write))
    return _delete_report(table, add_found(table, partial(_found_keys, where), write))


@contextmanager
def _found_keys(where: str, snapshot: Snapshot, guards: KeyGuards) -> Iterator[RowInput]:
    names = named(snapshot)
    rows = snapshot.scan(columns=names, where=where)

    def keys() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            guards.add(snapshot.schema.codec.encode_columns(batch).to_pylist())
            yield batch

    with closing(rows):
        yield RowInput.of_batches(snapshot.schema.arrow_of(names), keys())


def _delete_report(table: ReadTarget, added: Added) -> DeleteReport:
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
