"""Descriptions as JSON values: of a table, with its schema, size, merge mode and filter, and of its indexes.

What the command line prints, and the service answers. Errors: NotFoundError for a table that was dropped meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from lakebed.model.row_filters import age_field
from lakebed.model.state.sums import file_sizes, table_rows, unreferenced_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.model.state.table_state import TableState
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table


def table_document(table: Table, *, online: bool, paused: Iterable[str]) -> dict[str, Any]:
    """Return the latest version, as JSON values; rows are an estimate between two bounds unless ``exact``."""
    state = table.state()
    rows, error_rows = table_rows(state)
    if not state.is_index and (state.filter_version or not state.merge.keeps_all):
        # The files have other rows than the table.
        counted = table.at(version=state.version).count()
        rows, error_rows = counted.rows, counted.error_rows
    used, unreferenced = file_sizes(state).values(), unreferenced_files(state)
    return {
        "table": table.name,
        "id": table.id,
        "online": online,
        "paused": sorted(paused),
        "version": state.version,
        "rows": rows,
        "exact": not error_rows,
        "rows_min": max(0, rows - error_rows),
        "rows_max": rows + error_rows,
        "partitions": len(state.partitions.ids),
        "files": len(used),
        "bytes": sum(used),
        "unreferenced_files": unreferenced.files,
        "unreferenced_bytes": unreferenced.size_bytes,
        "schema": state.created.to_json(),
        "merge": state.merge.document(),
        **filter_document(state),
        "view": None if state.view is None else to_builtins(state.view),
    }


def index_document(instance: Instance, table: Table) -> dict[str, Any]:
    """Return the latest version of a table, and of each of its indexes the fields, and the version that it has."""
    version, found = table.state().version, []
    for name, fields in instance.indexes(table.name).items():
        fed = instance.table(name).state().view
        found.append({"index": name, "on": fields, "version": 0 if fed is None else fed.version})
    return {"table": table.name, "version": version, "indexes": found}


def filter_document(state: TableState) -> dict[str, Any]:
    """Return the filter and the age-off as JSON values; null if there is none."""
    field = age_field(state.row_filter, state.created)
    cut = datetime.fromtimestamp(state.age_off_cut_us // 1_000_000, UTC)
    aged = None if field is None else {"field": field.name, "age_s": state.row_filter.age_s, "cut": cut.isoformat()}
    return {"filter": state.row_filter.predicate or None, "age_off": aged}
