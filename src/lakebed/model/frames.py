"""Streams of rows as frames of other libraries, which are imported by the method that needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Frames:
    """What reads a stream to its end, and gives all its rows at once."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read_all(self) -> pa.Table:
            """The remaining rows."""

    def to_arrow(self) -> pa.Table:
        """The remaining rows as an Arrow table, in memory."""
        return self.read_all()

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas frame. Raises UsageError where pandas is missing."""
        rows = self.read_all()
        with optional_imports():
            return rows.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The same as a Polars frame. Raises UsageError where Polars is missing."""
        return polars_frame(self.read_all())


def polars_frame(rows: Any) -> pl.DataFrame:
    """Arrow rows as a Polars frame. Raises UsageError where Polars is missing."""
    with optional_imports():
        import polars as pl
    found: pl.DataFrame = pl.from_arrow(rows)  # type: ignore[assignment]
    return found
