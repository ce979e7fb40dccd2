"""The common parts of handles of tables, snapshots, parts of them and instances, opened here or through a service.

Core types: :class:`RowConversions`, the rows of a scan for other libraries (streams convert themselves, see
:class:`lakebed.model.frames.Frames`); :class:`TableNames`, an instance as a container of tables; :class:`TableAddress`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakebed.model.keys import KeyRange


Table_co = TypeVar("Table_co", covariant=True)


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table can be opened again: the address of its instance (:mod:`lakebed.table.reopening`), and its id."""

    instance: Any
    table_id: str


class SharedHandle:
    """Safe to use from many threads, with caches that copies would not share: ``copy`` and ``deepcopy`` return it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


class RowConversions(SharedHandle, ABC):
    """A handle with rows that can be scanned."""

    __slots__ = ()

    @abstractmethod
    def scan(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of some ranges as a stream, which a ``with`` block closes."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows in key order, for readers of Arrow streams: ``pa.table(snapshot)``,
        ``pl.DataFrame(snapshot)``.
        """
        stream: object = self.scan().__arrow_c_stream__(requested_schema)
        return stream

    def to_arrow(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some ranges (all if none is given) in key order, in memory; raises as ``scan``."""
        with self.scan(*ranges, columns=columns) as rows:
            table: pa.Table = rows.to_arrow()
        return table

    def to_pandas(
        self, *ranges: KeyRange, columns: Sequence[str] | None = None, dtype_backend: str | None = None
    ) -> pd.DataFrame:
        """Return the same as a pandas frame. ``dtype_backend`` and errors are those of
        :meth:`lakebed.model.frames.Frames.to_pandas`.
        """
        with self.scan(*ranges, columns=columns) as rows:
            frame: pd.DataFrame = rows.to_pandas(dtype_backend=dtype_backend)
        return frame

    def to_polars(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the same as a Polars frame. Raises UsageError where Polars is missing."""
        with self.scan(*ranges, columns=columns) as rows:
            frame: pl.DataFrame = rows.to_polars()
        return frame


class TableNames(SharedHandle, ABC, Generic[Table_co]):
    """``lake["flights"]``, ``"flights" in lake``, ``for name in lake`` and ``len(lake)``; each reads the names
    again.
    """

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""

    @abstractmethod
    def table(self, name: str) -> Table_co:
        """Return the table of that name. Raises NotFoundError if there is none."""

    def __getitem__(self, name: str) -> Table_co:
        """As :meth:`table`. Raises NotFoundError, which is not a KeyError, if there is none."""
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self.tables())

    def __bool__(self) -> bool:
        # An instance without tables is truthy: `lake or default` must not read the names.
        return True

    def _ipython_key_completions_(self) -> list[str]:
        """Return the completions after ``lake["`` in notebooks."""
        return self.tables()
