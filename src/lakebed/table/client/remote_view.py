"""Tables and instances of a service as HTML for notebooks, from a few requests that read no rows.

A caller whose role shows only some of the rows has no access to partitions and files; they are omitted then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import AccessError
from lakebed.read.drawing.key_space import KeySpace
from lakebed.read.drawing.pictures import Picture, partitions_picture
from lakebed.read.drawing.table_view import SHOWN_TABLES, Figure, described_view, instance_view, rows_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.read.snapshot.handles import TableHandle

_FIGURES = ("rows", "bytes", "partitions", "files")


def remote_table_view(title: str, table: TableHandle[Any]) -> str:
    """Return a table at its latest version, or a snapshot: three requests, and one for the latest version."""
    try:
        snapshot = table.snapshot()
        partitions = snapshot.partitions()
    except AccessError:
        return described_view(title, [_row_figure(table), ("partitions", "not shown to this role")], None, table.schema)
    space = KeySpace.of_rows(snapshot.version, partitions)
    stored = [("stored bytes", int(space.size_bytes.sum())), ("partitions", len(partitions))]
    return described_view(
        title, [("version", snapshot.version), _row_figure(snapshot), *stored], space, snapshot.schema
    )


def _row_figure(table: TableHandle[Any]) -> Figure:
    count = table.count()
    return "rows", rows_text(count.rows, exact=count.exact)


def remote_partitions_picture(snapshot: TableHandle[Any]) -> Picture:
    """Return the key space at one version: one request. Raises AccessError."""
    return partitions_picture(KeySpace.of_rows(snapshot.version, snapshot.partitions()))


def remote_instance_view(title: str, names: Sequence[str], described: Callable[[str], dict[str, Any]]) -> str:
    """Return the tables that the caller may read, with their figures: a request for each of the first ones."""
    shown = {name: _figures(described, name) for name in names[:SHOWN_TABLES]}
    return instance_view(title, shown, len(names) - len(shown))


def _figures(described: Callable[[str], dict[str, Any]], name: str) -> Sequence[Figure]:
    try:
        found = described(name)
    except AccessError:
        return [(figure, None) for figure in _FIGURES]
    rows = rows_text(found["rows"], exact=found["exact"])
    return [("rows", rows), *((figure, found[figure]) for figure in _FIGURES[1:])]
