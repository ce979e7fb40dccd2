"""Tables of Lakebed as data frames of Dask, with a partition of the frame for each partition of the table.

Core function: :func:`read_table`. The version is chosen when the frame is made: every task reads that version, while it
is retained. A task reads its key range as a stream, only the columns that are asked for, and only the pages whose rows
can pass the predicate.
"""

from collections.abc import Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

import lakebed

__all__ = ["read_table"]


def read_table(
    table: Any, *, columns: Sequence[str] | None = None, where: str | None = None, at: str | int | None = None
) -> dd.DataFrame:
    """Return a frame of the rows of a table, in key order. Its columns have Arrow's types, as pandas has them.

    ``where`` is a predicate as of ``scan``; ``at`` is a version, a tag or a time. Dask narrows ``columns`` to those
    that an expression needs. Tasks of other processes open the instance again, so it must not be ``memory://``.

    Raises UsageError for an unknown column or an invalid predicate, NotFoundError and NotRetainedError for a version.
    """
    snapshot = table.snapshot() if at is None else table.at(at)
    names = list(snapshot.schema.arrow.names if columns is None else columns)
    # Checks the columns and the predicate before any task runs, and has the types of the frame.
    with snapshot.scan(columns=names, where=where, limit=0) as rows:
        meta = _frame(rows.read_all(), names)
    # Key ranges, not splits: Dask makes names of what it gets, and it cannot make one of a handle in a dataclass.
    ranges = [split.keys for split in snapshot.splits()]
    return dd.from_map(_Read(snapshot, where, tuple(names)), ranges, meta=meta)


class _Read:
    """Reads a key range of a snapshot; Dask gives the columns."""

    def __init__(self, snapshot: Any, where: str | None, names: tuple[str, ...]) -> None:
        self.snapshot, self.where, self.names = snapshot, where, names

    def __call__(self, of: lakebed.KeyRange, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
        names = list(self.names if columns is None else columns)
        # A frame without columns still has rows.
        with self.snapshot.scan(of, columns=names or self.names[:1], where=self.where) as rows:
            return _frame(rows.read_all(), names)


def _frame(rows: pa.Table, names: Sequence[str]) -> pd.DataFrame:
    return rows.to_pandas(types_mapper=pd.ArrowDtype)[list(names)]
