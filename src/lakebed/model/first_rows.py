"""The first rows of a read, which a person looks at: shown as a table, and otherwise an Arrow table.

Core type: :class:`FirstRows`. PyArrow's tables show themselves column by column, and cannot be given another view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.model.text_cells import cells, shorten, text_line
from lakebed.model.wording import count_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

CELL_WIDTH_MAX = 40
"""The most columns of a terminal that a value takes; longer ones are cut."""


class FirstRows:
    """An Arrow table whose text is a table: ``print(table.head())``. Other libraries read it as a stream of Arrow, and
    it has all attributes of the Arrow table.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._rows

    def to_pandas(self, *, dtype_backend: str | None = None) -> Any:
        """Return the rows as a pandas frame, as :meth:`lakebed.model.frames.Frames.to_pandas`."""
        from lakebed.model.frames import pandas_frame

        return pandas_frame(self._rows, dtype_backend)

    def to_polars(self) -> Any:
        """Return the rows as a Polars frame. Raises UsageError if Polars is not installed."""
        from lakebed.model.frames import polars_frame

        return polars_frame(self._rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)

    def __getattr__(self, name: str) -> Any:
        if name == "_rows":
            # Of an instance that is being unpickled.
            raise AttributeError(name)
        return getattr(self._rows, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstRows, (self._rows,)

    def __getitem__(self, key: Any) -> Any:
        return self._rows[key]

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __eq__(self, other: object) -> bool:
        return bool(self._rows == (other._rows if isinstance(other, FirstRows) else other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        from lakebed.model.html_tables import is_number
        from lakebed.model.notebook_extension import cell_values

        names = [printable(name) for name in self._rows.column_names]
        values = cell_values(self._rows)
        columns = [[_printed_value(value) for value in column] for column in values]
        right = [bool(column) and all(map(is_number, column)) for column in values]
        widths = [max(map(cells, (name, *column))) for name, column in zip(names, columns, strict=True)]
        lines = [text_line(row, right, widths) for row in (names, *zip(*columns, strict=True))]
        return "\n".join([*lines, f"({count_text(len(self), 'row')})"])

    def _repr_html_(self) -> str:
        from lakebed.model.notebook_extension import rows_view

        return rows_view(self._rows)


def _printed_value(value: Any) -> str:
    """Return a value as a text on one line; null is a minus sign, as on the command line."""
    return "-" if value is None else shorten(printable(str(value)), CELL_WIDTH_MAX)
