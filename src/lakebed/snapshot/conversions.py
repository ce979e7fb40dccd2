"""How tables and snapshots hand their rows to other libraries: pandas, Polars, DuckDB, DataFusion, whatever takes
Arrow.

What is handed over lazily (a Polars frame, a relation, a registered table) reads one version, that of the call. None of
the libraries is required, nor imported before it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.model.foreign_errors import extras
from lakebed.model.keys import ALL_KEYS
from lakebed.read.plan import QueryPlan, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from datafusion import SessionContext

    from lakebed.model.keys import EncodedRange, KeyRange
    from lakebed.model.schema import Schema
    from lakebed.read.reader import Reader
    from lakebed.read.row_stream import RowStream
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage

SHOWN_ROWS = 10
"""Rows that a notebook shows: of a narrow read, so that looking at a table costs next to nothing."""

_SHOWN_CHARACTERS = 80


class Fixed(Protocol):
    """A table at one version, as :class:`~lakebed.snapshot.snapshot.Snapshot` is."""

    @property
    def state(self) -> TableState:
        """What the table is at that version."""

    @property
    def reader(self) -> Reader:
        """Reads plans of that state."""

    @property
    def storage(self) -> Storage:
        """Where the files are."""

    @property
    def schema(self) -> Schema:
        """The fields at that version."""

    def scan(self, *ranges: KeyRange, columns: Sequence[str] | None = None, limit: int | None = None) -> RowStream:
        """Rows in key order."""


class Exchange(ABC):
    """What tables and snapshots have in common with frames of other libraries."""

    __slots__ = ()

    @abstractmethod
    def snapshot(self) -> Fixed:
        """The newest version as a value; a snapshot is its own."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows in key order, for readers of Arrow streams: ``pa.table(snapshot)``, ``pl.DataFrame(snapshot)``."""
        return self.snapshot().scan().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of some ranges (all if none is given) in key order, in memory; raises as ``scan``."""
        return self.snapshot().scan(*ranges, columns=columns).read_all()

    def to_pandas(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The same as a pandas frame. Raises UsageError where pandas is missing."""
        rows = self.to_arrow(*ranges, columns=columns)
        with extras():
            return rows.to_pandas()

    def to_polars(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The same as a Polars frame. Raises UsageError where Polars is missing."""
        from lakebed.adapters.polars import frame

        return frame(self.to_arrow(*ranges, columns=columns))

    def lazy_polars(self) -> pl.LazyFrame:
        """A Polars lazy frame: columns and limits go down to the table, and what predicates say of the key.

        Polars applies every predicate itself, to the rows of the keys that can pass. Raises UsageError where Polars is
        missing.
        """
        from lakebed.adapters.polars import lazy_frame

        now = self.snapshot()

        def rows(asked: tuple[Any, ...], columns: Sequence[str], limit: int | None) -> RowStream:
            return now.reader.scan(plan(now.state, *asked), columns, limit)

        return lazy_frame(now.schema, rows, f"table {now.state.table} at version {now.state.version}")

    def to_duckdb(
        self, *ranges: KeyRange, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """A relation of the rows of some ranges, by default of DuckDB's own connection; it reads the files itself.

        DuckDB checks no digests, so the files are verified here: a process reads each of them once, whole. Damage
        that happens later is not found. Large files on a store are read through PyArrow when rows are asked for, and
        verified then; the connection needs no access of its own.

        Rows come in no order. Raises UsageError where DuckDB is missing, and as ``scan``.
        """
        from lakebed.adapters.duckdb import relation

        now = self.snapshot()
        return relation(_planned(now, ranges), now.reader, connection)

    def files(self, *ranges: KeyRange) -> pa.Table:
        """The files that hold the rows of some ranges (all if none is given), for engines that read Parquet themselves.

        A row for each reference, in key order: the file, its URL, the partition, and which keys of it count there. Only
        where ``whole`` is true do all rows of a file count, and its URL alone will do; see
        :func:`lakebed.inspect.report.files_table`.

        Nothing is verified: an engine that reads the files by itself checks no digests, so a damaged byte may change
        its answer without an error. ``to_arrow``, ``register`` and ``to_duckdb`` hand over verified rows.
        """
        from lakebed.inspect.report import files_table

        now = self.snapshot()
        return files_table(now.state, now.state.table, now.storage.object_url, encoded(now, ranges))

    def partitions(self) -> pa.Table:
        """One row a partition, in key order: its range, rows, bytes, files and runs."""
        from lakebed.inspect.report import partitions_table

        return partitions_table(self.snapshot().state)

    def register(self, context: SessionContext, name: str, *ranges: KeyRange) -> None:
        """Let a DataFusion context read the rows of some ranges as a table of that name; rows come in no order.

        The engine checks no digests, so the files are verified here: a process reads each of them once, whole. Large
        files on a store are read through PyArrow when rows are asked for, and verified then.
        Raises as ``scan``.
        """
        from lakebed.read.datafusion_frames import register

        now = self.snapshot()
        register(context, name, _planned(now, ranges), now.reader)

    def _repr_html_(self) -> str:
        """The fields and the first rows, for notebooks."""
        now = self.snapshot()
        keys = {f.name: "row key" for f in now.schema.row_key} | {f.name: "sort key" for f in now.schema.sort_key}
        rows = now.scan(limit=SHOWN_ROWS).read_all()
        heads = [f"<b>{_shown(f.name)}</b><br>{_shown(f.type)}<br>{keys.get(f.name, '')}" for f in now.schema.fields]
        columns = [[_shown(value) for value in column.to_pylist()] for column in rows.columns]
        body = [_row("td", cells) for cells in zip(*columns, strict=True)]
        if rows.num_rows == SHOWN_ROWS:
            body.append(_row("td", ["…"] * len(heads)))
        return f"<p>{_shown(repr(self))}</p><table>{_row('th', heads)}{''.join(body)}</table>"


def _planned(now: Fixed, ranges: Sequence[KeyRange]) -> QueryPlan:
    return plan(now.state, encoded(now, ranges))


def encoded(now: Fixed, ranges: Sequence[KeyRange]) -> list[EncodedRange]:
    """The ranges as a plan takes them: all keys if none is given. Raises UsageError, BadKeyError."""
    return [now.schema.codec.encode_range(one) for one in ranges] or [ALL_KEYS]


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def _shown(value: Any) -> str:
    from html import escape

    text = "" if value is None else str(value)
    return escape(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
