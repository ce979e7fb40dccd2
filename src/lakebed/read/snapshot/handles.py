"""What every handle of a table has, opened here or through a service, of all its rows or of a part of them.

Core types: :class:`TableHandle`, the protocol of a table and of a snapshot; :class:`TableNames`, an instance as a
container of tables; :class:`TableAddress`. The suite
:class:`lakebed.testing.table_handles.TableHandleConformance` checks each implementation.

Rules of a handle:

* A table reads its latest version, a snapshot always its own. The same call gives the same rows, of the same types and
  in the same order, through every handle that shows these rows.
* Arguments are checked before any row is read. The same mistake has the same ``code`` everywhere.
* What a handle cannot do raises an error with the code that says why; it is never left out.
* Conversions are those of a scan: a handle implements ``scan``, and converts nothing itself.
* Safe to use from many threads, with caches that copies would not share: ``copy`` and ``deepcopy`` return the handle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lakebed.errors import Code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakebed.model.first_rows import FirstRows
    from lakebed.model.keys import KeyRange
    from lakebed.model.schema import Schema
    from lakebed.read.rows.counting import Count
    from lakebed.read.rows.explain import Explanation
    from lakebed.read.snapshot.splits import Split

Rows_co = TypeVar("Rows_co", covariant=True)
Table_co = TypeVar("Table_co", covariant=True)


class Address(Protocol):
    """Where an instance can be opened again, in this process or in another."""

    def instance(self) -> Any:
        """Return the instance, which a process opens once."""

    def table(self, table_id: str) -> Any:
        """Return the table with an id. Raises NotFoundError if it was dropped."""

    def snapshot(self, table_id: str, version: int) -> Any:
        """Return a table at a version. Raises NotRetainedError if the version is gone."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table can be opened again: the address of its instance, and its id."""

    instance: Address
    table_id: str


def _itself(handle: Any, _: dict[int, Any] | None = None) -> Any:
    """Return the handle, as its copy."""
    return handle


class TableHandle(ABC, Generic[Rows_co]):
    """The rows of a table at its latest version, or at one: as streams of ``Rows_co``.

    The methods are documented at :class:`~lakebed.table.table.Table`.
    """

    __slots__ = ()

    __copy__ = __deepcopy__ = _itself

    @property
    @abstractmethod
    def version(self) -> int:
        """The version that is read, or the latest known."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The fields at that version."""

    @abstractmethod
    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> TableHandle[Rows_co]:
        """Return the handle of one version. A snapshot returns itself, and refuses a later version than its own."""

    @abstractmethod
    def get(  # noqa: PLR0913 - as scan
        self,
        *key: Any,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """Return all rows of one key, by sort key; or those with values of indexed fields."""

    @abstractmethod
    def get_many(  # noqa: PLR0913 - as scan
        self,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """Return all rows of many keys, in key order."""

    @abstractmethod
    def scan(  # noqa: PLR0913 - which rows, what of them, which way, how fresh: each is the caller's choice
        self,
        *ranges: KeyRange,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> Rows_co:
        """Return the rows of some ranges as a stream, in key order; a ``with`` block closes it."""

    @abstractmethod
    def count(self, *ranges: KeyRange, by: Mapping[str, Any] | None = None, exact: bool = False) -> Count:
        """Return the number of rows of some ranges, as an estimate between bounds unless ``exact``."""

    @abstractmethod
    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """Return random rows, in key order."""

    @abstractmethod
    def prefixes(self, depth: int, *ranges: KeyRange, limit: int | None = None) -> pa.Table:
        """Return the distinct values of the first ``depth`` row key fields, in key order."""

    @abstractmethod
    def explain(
        self,
        *selection: Any,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Explanation:
        """Run a read, and return its statistics. A handle of a part of the rows refuses it."""

    @abstractmethod
    def partitions(self) -> pa.Table:
        """Return one row per partition, in key order. A handle of a part of the rows refuses it."""

    @abstractmethod
    def files(self, *ranges: KeyRange) -> pa.Table:
        """Return the files that hold the rows of some ranges. A handle of a part of the rows refuses it."""

    def splits(self) -> list[Split]:
        """Return the parts of the rows of one version, for readers at work at the same time: in key order, a part for
        each partition. A handle of a part of the rows refuses it.
        """
        from lakebed.read.snapshot.splits import splits_of

        return splits_of(self.snapshot())

    # -- at a glance --------------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The names of the fields, in order, as in a frame."""
        return list(self.schema.names)

    def head(self, rows: int = 5) -> FirstRows:
        """Return the first rows in key order, at most ``rows`` of them, as a table that shows itself.

        Raises UsageError for a negative number.
        """
        from lakebed.model.first_rows import FirstRows

        scanned: Any = self.scan(limit=rows)
        with scanned as found:
            return FirstRows(found.read_all())

    def __len__(self) -> int:
        """Return the number of rows, where :meth:`count` knows it exactly without a merge. Raises UsageError."""
        count = self.count()
        if not count.exact:
            raise Code.ARGUMENT_INVALID(
                f"len() is exact, and the count is an estimate, {count.rows_min:,} to {count.rows_max:,}: use "
                "count() for it, or count(exact=True), which reads and merges keys"
            )
        return count.rows

    def __bool__(self) -> bool:
        # As of an instance: `table or default` must not count rows.
        return True

    # -- conversions --------------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return all rows in key order, for readers of Arrow streams: ``pa.table(snapshot)``,
        ``pl.DataFrame(snapshot)``.
        """
        rows: Any = self.scan()
        stream: object = rows.__arrow_c_stream__(requested_schema)
        return stream

    def to_arrow(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some ranges (all if none is given) in key order, in memory; raises as ``scan``."""
        scanned: Any = self.scan(*ranges, columns=columns)
        with scanned as rows:
            table: pa.Table = rows.to_arrow()
        return table

    def to_pandas(
        self, *ranges: KeyRange, columns: Sequence[str] | None = None, dtype_backend: str | None = None
    ) -> pd.DataFrame:
        """Return the same as a pandas frame. ``dtype_backend`` and errors are those of
        :meth:`lakebed.model.frames.Frames.to_pandas`.
        """
        scanned: Any = self.scan(*ranges, columns=columns)
        with scanned as rows:
            frame: pd.DataFrame = rows.to_pandas(dtype_backend=dtype_backend)
        return frame

    def to_polars(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the same as a Polars frame. Raises UsageError where Polars is missing."""
        scanned: Any = self.scan(*ranges, columns=columns)
        with scanned as rows:
            frame: pl.DataFrame = rows.to_polars()
        return frame


class TableNames(ABC, Generic[Table_co]):
    """``lake["flights"]``, ``"flights" in lake``, ``for name in lake`` and ``len(lake)``; each reads the names
    again.
    """

    __copy__ = __deepcopy__ = _itself

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
