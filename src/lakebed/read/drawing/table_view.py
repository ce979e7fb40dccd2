"""A table, or the tables of an instance, as HTML for notebooks, made only from their states or figures. Pure.

A view has figures, the picture of the key space, and the fields. No data file is read, so showing a handle at the end
of a cell is cheap. A remote table has the same view, from the figures that its service sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.model.html_tables import facts, grid, view
from lakebed.model.state.sums import table_rows
from lakebed.read.drawing.key_space import KeySpace
from lakebed.read.drawing.pictures import partitions_picture

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState


SHOWN_TABLES = 20
"""Maximum tables of an instance that a notebook shows, each of which takes a request."""

Figure = tuple[str, Any]
"""A name and a value."""


def table_view(title: str, state: TableState) -> str:
    """Return the view of the table at the version of its state."""
    space = KeySpace.of(state)
    figures = [("version", state.version), *_figures(state, space), ("merge", state.merge)]
    return described_view(title, figures, space, state.created)


def described_view(title: str, figures: Sequence[Figure], space: KeySpace | None, schema: Schema) -> str:
    """Return the view of a table with the given figures, partitions (None: unknown) and fields."""
    picture = "" if space is None else partitions_picture(space).svg
    return view(title, facts(figures), picture, schema.html())


def instance_view(title: str, tables: Mapping[str, Sequence[Figure]], others: int) -> str:
    """Return the figures of some tables by name; ``others`` are left out."""
    rows = [[name, *(value for _, value in figures)] for name, figures in tables.items()]
    note = f"<div>and {others:,} more</div>" if others else ""
    return view(title, grid(("table", "rows", "bytes", "partitions", "files"), rows), note)


def figures_of(state: TableState) -> list[Figure]:
    """Return the rows, bytes, partitions and files of a table."""
    return _figures(state, KeySpace.of(state))


def rows_text(rows: int, *, exact: bool) -> int | str:
    """Return a number of rows, which may be an estimate."""
    return rows if exact else f"about {rows:,}"


def _figures(state: TableState, space: KeySpace) -> list[Figure]:
    estimate = table_rows(state)
    return [
        ("rows", rows_text(estimate.rows, exact=not estimate.error_rows)),
        ("stored bytes", int(space.size_bytes.sum())),
        ("partitions", len(state.partitions)),
        ("files", len(state.referenced())),
    ]
