"""Bulk ingest of ADBC: adds the rows of a stream to a table, in one commit.

A missing table is created if the metadata of the stream's schema names its key columns: ``lakebed.row_key`` and
``lakebed.sort_key``, names separated by commas. A repeat with the same ``lakebed.commit_id`` adds nothing.

The stream of a disconnected caller ends like a complete one: in gRPC only the state of the call differs. So a call that
was cancelled by then adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from lakebed.errors import Code
from lakebed.model.schema import Schema
from lakebed.server.flight.catalog_answers import CATALOG, SCHEMA
from lakebed.server.flight.messages import TableExists
from lakebed.server.security.principal import Permission

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.server.security.principal import Principal
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

_ROW_KEY, _SORT_KEY, _COMMIT_ID = "lakebed.row_key", "lakebed.sort_key", "lakebed.commit_id"


def ingest(instance: Instance, principal: Principal, command: Any, rows: Any, is_cancelled: Callable[[], bool]) -> int:
    """Add the rows, and return their number.

    Raises as :meth:`Table.write` and :meth:`Instance.create_table`; FlightCancelledError if the call was cancelled
    before the end of the rows.
    """
    _check_place(command)
    metadata = {key.decode(): value.decode() for key, value in (rows.schema.metadata or {}).items()}
    metadata |= {option.key: option.value for option in command.options}
    counted = _Counted(rows, is_cancelled)
    reader = counted.begun()
    table = _target_table(instance, principal, command, rows.schema, metadata)
    table.write(reader, commit_id=metadata.get(_COMMIT_ID))
    return counted.rows


def _check_place(command: Any) -> None:
    if command.temporary:
        raise Code.ARGUMENT_INVALID("there are no temporary tables; ingest into a table")
    if (command.HasField("catalog") and command.catalog not in ("", CATALOG)) or (
        command.HasField("schema") and command.schema not in ("", SCHEMA)
    ):
        raise Code.TABLE_NOT_FOUND(f"all tables are in {CATALOG}.{SCHEMA}; leave catalog and schema out")


def _target_table(
    instance: Instance, principal: Principal, command: Any, arrow: pa.Schema, metadata: dict[str, str]
) -> Table:
    """Return the table to write to, created if the command allows it."""
    options, name = command.table_definition_options, command.table
    if name in instance.tables():
        principal.require(Permission.WRITE, name)
        if options.if_exists == TableExists.REPLACE:
            raise Code.ARGUMENT_INVALID("a table cannot be replaced; drop it first, or append to it", table=name)
        if options.if_exists == TableExists.FAIL:
            raise Code.TABLE_EXISTS(f"a table named {name!r} exists already; append to it (mode='append')", table=name)
        return instance.table(name)
    if options.if_not_exist != TableExists.CREATE_IF_ABSENT:
        principal.require(Permission.WRITE, name)
        return instance.table(name)
    principal.require(Permission.ADMIN, name)
    row_key = _listed_names(metadata, _ROW_KEY)
    if not row_key:
        raise Code.ARGUMENT_MISSING(
            f"table {name!r} is created by its first rows, and needs a row key: put {_ROW_KEY}, column names with "
            f"commas between, into the metadata of the rows' schema; or create the table first, and append to it",
            table=name,
        )
    return instance.create_table(name, Schema.from_arrow(arrow, row_key, _listed_names(metadata, _SORT_KEY)))


def _listed_names(metadata: dict[str, str], key: str) -> list[str]:
    return [name.strip() for name in metadata.get(key, "").split(",") if name.strip()]


class _Counted:
    """Counts the batches of a stream. Raises FlightCancelledError at the end of a stream that was cut off."""

    def __init__(self, given: Any, is_cancelled: Callable[[], bool]) -> None:
        self.rows = 0
        self._given = given
        self._is_cancelled = is_cancelled

    def begun(self) -> pa.RecordBatchReader:
        """Return the stream once its first batch has arrived: a caller that disconnects earlier creates no table."""
        batches = self._batches()
        first = list(islice(batches, 1))
        return pa.RecordBatchReader.from_batches(self._given.schema, chain(first, batches))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for chunk in self._given:
            if chunk.data is not None:
                self.rows += chunk.data.num_rows
                yield chunk.data
        if self._is_cancelled():
            raise flight.FlightCancelledError("the caller went away before the end of the rows; nothing was added")
