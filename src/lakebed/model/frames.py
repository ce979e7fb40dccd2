"""Streams of rows as frames of other libraries, each imported by the method that needs it.

Core type: :class:`Frames`, the base of streams, whose conversions read a stream to its end.

A column that pandas cannot hold as it is becomes Python values. Errors: UsageError if a library is not installed, or
cannot hold a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Frames:
    """Reads a stream to its end, and returns all its rows at once."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read_all(self) -> pa.Table:
            """Return the remaining rows."""

    def to_arrow(self) -> pa.Table:
        """Return the remaining rows as an Arrow table, in memory."""
        return self.read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Return the remaining rows as a pandas frame. Raises UsageError if pandas is not installed."""
        rows = self.read_all()
        with optional_imports():
            return _pandas_frame(rows)

    def to_polars(self) -> pl.DataFrame:
        """Return the remaining rows as a Polars frame. Raises UsageError if Polars is not installed."""
        return polars_frame(self.read_all())


def _pandas_frame(rows: pa.Table) -> pd.DataFrame:
    """Return Arrow rows as a pandas frame. Raises UsageError for a value that Python's types cannot represent."""
    import pyarrow as pa

    try:
        return rows.to_pandas()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, ValueError):
        import pandas as pd

    # PyArrow 26 cannot convert lists of UUIDs or of fixed-size bytes: these columns become Python values.
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(column.to_pandas().rename(name))
        except pa.ArrowNotImplementedError:
            columns.append(pd.Series(column.to_pylist(), dtype=object, name=name))
        except (pa.ArrowInvalid, ValueError) as error:
            raise Code.TYPE_UNSUPPORTED(
                f"column {name} is {column.type}, and pandas cannot hold a value of it ({error}); read the other "
                "columns (columns=…), or to_arrow()",
                column=name,
            ) from error
    return pd.concat(columns, axis="columns")


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
    for field in rows.schema:
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
