"""``%load_ext lakebed``: notebooks show Arrow tables, which reads return, as tables instead of as Arrow's chunks.

PyArrow's tables cannot be given a view of their own, so the notebook gets one, and only when its user asks. The
view has the first rows; the table itself is unchanged. IPython calls both functions with its shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.model.html_tables import grid, view

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 20
"""The most rows that a view shows."""


def load_ipython_extension(shell: Any) -> None:
    """Show Arrow tables as tables from now on."""
    import pyarrow as pa

    shell.display_formatter.formatters["text/html"].for_type(pa.Table, rows_view)


def unload_ipython_extension(shell: Any) -> None:
    """Show them as PyArrow does again."""
    import pyarrow as pa

    shell.display_formatter.formatters["text/html"].pop(pa.Table, None)


def rows_view(rows: pa.Table) -> str:
    """Return the first rows as HTML, and how many there are."""
    shown = rows.slice(0, ROWS_MAX)
    first = f", the first {ROWS_MAX}" if rows.num_rows > ROWS_MAX else ""
    title = f"Rows: {rows.num_rows:,}{first}"
    return view(title, grid(rows.column_names, list(zip(*cell_values(shown), strict=True))))


def cell_values(rows: pa.Table) -> list[list[Any]]:
    """Return the values of each column as a person reads them."""
    return [[_python_value(one) for one in column] for column in rows.columns]


def _python_value(scalar: pa.Scalar) -> Any:
    """Return a value for a cell. What Python's types cannot hold is a text of Arrow."""
    import pyarrow as pa

    try:
        value = scalar.as_py()
    except (ValueError, OverflowError):
        return pa.array([scalar], scalar.type).to_string(indent=0, skip_new_lines=True)[1:-1]
    if isinstance(value, dict):
        # A key of one field is its value.
        return next(iter(value.values())) if len(value) == 1 else ", ".join(map(str, value.values()))
    return value
