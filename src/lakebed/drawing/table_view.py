"""A table, and the tables of an instance, as HTML for notebooks, from their states alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakebed.drawing.key_space import KeySpace
from lakebed.drawing.pictures import partitions_picture
from lakebed.model.html_tables import facts, grid, view
from lakebed.state.sums import table_rows

if TYPE_CHECKING:
    from lakebed.state.table_state import TableState


def table_view(title: str, state: TableState) -> str:
    """The table at the version of its state."""
    space = KeySpace.of(state)
    (_, rows), (_, size), *others = _figures(state, space)
    shown = facts([("version", state.version), ("rows", rows), ("stored bytes", size), *others, ("merge", state.merge)])
    return view(title, shown, partitions_picture(space).svg, state.created.html())


def instance_view(title: str, states: Mapping[str, TableState], others: int) -> str:
    """Some tables by name, of which ``others`` are left out."""
    rows = [[name, *(value for _, value in _figures(state, KeySpace.of(state)))] for name, state in states.items()]
    note = f"<div>and {others:,} more</div>" if others else ""
    return view(title, grid(("table", "rows", "bytes", "partitions", "files"), rows), note)


def _figures(state: TableState, space: KeySpace) -> list[tuple[str, int | str]]:
    rows, error = table_rows(state)
    return [
        ("rows", rows if not error else f"about {rows:,}"),
        ("bytes", int(space.size_bytes.sum())),
        ("partitions", len(state.partitions)),
        ("files", len(state.referenced())),
    ]
