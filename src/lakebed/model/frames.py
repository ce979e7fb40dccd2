"""Streams of rows as frames of other libraries, each imported by the method that needs it.

Core type: :class:`Frames`, the base of streams, whose conversions read a stream to its end. A stream that is shown says
what it has and how to read it, and reads nothing.

A column that pandas cannot hold as it is becomes Python values; no whole number becomes another one. Errors:
UsageError if a library is not installed, or cannot hold a value.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.checks import check_whole_number, shown
from lakebed.model.first_rows import FirstRows
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa


_BACKENDS = (None, "numpy_nullable", "pyarrow")

_HOW = "read them: to_pandas(), to_polars(), read_all(), head(5)"

_FLOAT_EXACT = 2**53
"""Floats of 64 bits hold each whole number up to this one."""


class Frames:
    """Reads a stream to its end, and returns all its rows at once."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def schema(self) -> pa.Schema:
            """The columns of all rows."""

        def read_all(self) -> pa.Table:
            """Return the remaining rows."""

        def read_next_batch(self) -> pa.RecordBatch:
            """Return the next rows. Raises StopIteration after the last."""

        def close(self) -> None:
            """Stop reading."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.schema.names)

    def head(self, rows: int = 5) -> FirstRows:
        """Return the next rows, at most ``rows`` of them, as a table that shows itself, and close the stream: no other
        row is read.

        Raises UsageError for a negative number.
        """
        import pyarrow as pa

        check_whole_number("rows", rows)
        batches: list[pa.RecordBatch] = []
        missing = rows
        try:
            while missing:
                batches.append(self.read_next_batch()[:missing])
                missing -= batches[-1].num_rows
        except StopIteration:
            pass
        finally:
            self.close()
        return FirstRows(pa.Table.from_batches(batches, self.schema))

    def __repr__(self) -> str:
        named = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"<rows, {self._reading()}: {named}; {_HOW}>"

    def _repr_html_(self) -> str:
        from lakebed.model.html_tables import grid, text, view

        fields = [(field.name, str(field.type)) for field in self.schema]
        return view(f"Rows, {self._reading()}", grid(("column", "type"), fields), f"<div>{text(_HOW)}</div>")

    def _reading(self) -> str:
        """Return how far a stream was read, as far as it knows."""
        return "each read once"

    def to_arrow(self) -> pa.Table:
        """Return the remaining rows as an Arrow table, in memory."""
        return self.read_all()

    def to_pandas(self, *, dtype_backend: str | None = None) -> pd.DataFrame:
        """Return the remaining rows as a pandas frame.

        Columns have pandas' own types: whole numbers beside nulls are floats, but never another number. Where a float
        does not hold one, the column has a nullable type, and a list or struct the values of Python. With
        ``dtype_backend`` "numpy_nullable" or "pyarrow", as in pandas, all columns have nullable types, or those of
        Arrow.

        Raises UsageError for another backend, and if pandas is not installed.
        """
        if dtype_backend not in _BACKENDS:
            raise Code.ARGUMENT_INVALID(
                f"dtype_backend = {shown(dtype_backend)}: must be None, 'numpy_nullable' or 'pyarrow'"
            )
        rows = self.read_all()
        with optional_imports():
            return pandas_frame(rows, dtype_backend)

    def to_polars(self) -> pl.DataFrame:
        """Return the remaining rows as a Polars frame. Raises UsageError if Polars is not installed."""
        return polars_frame(self.read_all())


def pandas_frame(rows: pa.Table, dtype_backend: str | None) -> pd.DataFrame:
    """Return Arrow rows as a pandas frame. Raises UsageError for a value that Python's types cannot represent."""
    import pandas as pd
    import pyarrow as pa

    mapper = _types_mapper(dtype_backend)
    if dtype_backend == "pyarrow" or not any(map(_has_inexact_floats, rows.columns)):
        with suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid, ValueError):
            return rows.to_pandas(types_mapper=mapper)
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(_pandas_column(column, mapper).rename(name))
        except pa.ArrowNotImplementedError:
            # PyArrow 26 cannot convert lists of UUIDs or of fixed-size bytes: these columns become Python values.
            columns.append(pd.Series(column.to_pylist(), dtype=object, name=name))
        except (pa.ArrowInvalid, ValueError) as error:
            raise Code.TYPE_UNSUPPORTED(
                f"column {name} is {column.type}, and pandas cannot hold a value of it ({error}); read the other "
                "columns (columns=…), or to_arrow()",
                column=name,
            ) from error
    return pd.concat(columns, axis="columns")


def _pandas_column(column: pa.ChunkedArray, mapper: Callable[[pa.DataType], Any] | None) -> pd.Series:
    """Return a column with all of its whole numbers as they are."""
    import pandas as pd
    import pyarrow as pa

    if mapper is pd.ArrowDtype or not _has_inexact_floats(column):
        return column.to_pandas(types_mapper=mapper)
    if pa.types.is_integer(column.type):
        return column.to_pandas(types_mapper=_types_mapper("numpy_nullable"))
    return pd.Series(column.to_pylist(), dtype=object)


def _types_mapper(dtype_backend: str | None) -> Callable[[pa.DataType], Any] | None:
    """Return what gives the type of pandas for one of Arrow, or None for its own choice."""
    import pandas as pd
    import pyarrow as pa

    if dtype_backend != "numpy_nullable":
        return pd.ArrowDtype if dtype_backend else None
    bits = (8, 16, 32, 64)
    kinds = {getattr(pa, f"int{n}")(): getattr(pd, f"Int{n}Dtype")() for n in bits}
    kinds |= {getattr(pa, f"uint{n}")(): getattr(pd, f"UInt{n}Dtype")() for n in bits}
    kinds |= {pa.float32(): pd.Float32Dtype(), pa.float64(): pd.Float64Dtype()}
    kinds |= {pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
    return kinds.get


def _has_inexact_floats(column: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether a column has nulls beside whole numbers that no float equals, at any depth: pandas would make
    floats of them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_integer(kind) and kind.bit_width == 64:
        least, most = (pc.min(column).as_py(), pc.max(column).as_py()) if column.null_count else (None, None)
        return least is not None and most is not None and not -_FLOAT_EXACT <= least <= most <= _FLOAT_EXACT
    if not pa.types.is_nested(kind):
        return False
    for part in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_map(kind):
            inside = [part.keys, part.items]
        else:
            inside = part.flatten() if pa.types.is_struct(kind) else [part.flatten()]
        if any(map(_has_inexact_floats, inside)):
            return True
    return False


def _zones(kind: pa.DataType) -> Iterator[str]:
    """Return the time zones in a type, at any depth."""
    if getattr(kind, "tz", None) is not None:
        yield kind.tz
    for index in range(kind.num_fields):
        yield from _zones(kind.field(index).type)


def polars_frame(rows: Any) -> pl.DataFrame:
    """Return Arrow rows as a Polars frame. Raises UsageError if Polars is not installed or lacks a type."""
    with optional_imports():
        import polars as pl
    from lakebed.model.arrays import plain
    from lakebed.model.type_names import JSON

    for place, field in enumerate(rows.schema):
        if field.type == JSON:
            # Polars has an extension type for it, without the methods of text.
            rows = rows.set_column(place, field.name, plain(rows.column(place)))
        if "decimal256" in str(field.type):
            raise Code.TYPE_UNSUPPORTED(
                f"column {field.name} is {field.type}, and Polars has decimals of up to 38 digits; scan the other "
                "columns (columns=…)",
                column=field.name,
            )
        for zone in _zones(field.type):
            try:
                pl.Series([], dtype=pl.Datetime("us", zone))
            except pl.exceptions.ComputeError as error:
                # An empty series is created to test the type, because a frame with the column would panic.
                raise Code.TYPE_UNSUPPORTED(
                    f"column {field.name} is {field.type}, and Polars has no time zone {zone!r}, only those with a "
                    "name; scan the other columns (columns=…)",
                    column=field.name,
                ) from error
    found: pl.DataFrame = pl.from_arrow(rows)  # type: ignore[assignment]
    return found
