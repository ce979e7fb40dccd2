"""The rows of a scan for other libraries: declared once for tables, snapshots, and the parts and copies of them.

Core type: :class:`RowConversions`; streams convert themselves (:class:`lakebed.model.frames.Frames`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from lakebed.model.shared_handle import SharedHandle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakebed.model.keys import KeyRange


class RowConversions(SharedHandle, ABC):
    """What has rows that can be scanned."""

    __slots__ = ()

    @abstractmethod
    def scan(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> Any:
        """The rows of some ranges as a stream, which a ``with`` block closes."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows in key order, for readers of Arrow streams: ``pa.table(snapshot)``, ``pl.DataFrame(snapshot)``."""
        stream: object = self.scan().__arrow_c_stream__(requested_schema)
        return stream

    def to_arrow(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of some ranges (all if none is given) in key order, in memory; raises as ``scan``."""
        with self.scan(*ranges, columns=columns) as rows:
            found: pa.Table = rows.to_arrow()
        return found

    def to_pandas(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The same as a pandas frame. Raises UsageError where pandas is missing."""
        with self.scan(*ranges, columns=columns) as rows:
            return rows.to_pandas()

    def to_polars(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The same as a Polars frame. Raises UsageError where Polars is missing."""
        with self.scan(*ranges, columns=columns) as rows:
            found: pl.DataFrame = rows.to_polars()
        return found
