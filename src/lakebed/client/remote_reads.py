"""Reads through a service: of the latest version of a table, or of one version.

The methods are those of :class:`lakebed.snapshot.snapshot.Readable`, with the same arguments, results and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.client.connection import ARROW, JSON, path_with, segment
from lakebed.client.missing import missing, refused
from lakebed.client.remote_rows import RemoteRows, encoded, table_in
from lakebed.client.request_values import key_document, keys_document, ranges_document
from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_seconds, check_whole_number
from lakebed.model.documents import dump
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.keys import KeyRange
from lakebed.read.counting import Count
from lakebed.read.explain import Explanation, Step

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from lakebed.client.connection import Connection
    from lakebed.model.schema import Schema

_HERE = "read the rows, and apply it to them here"


class RemoteReads:
    """What can be read of a table through a service. ``at`` is the version; None: the latest at each read."""

    def __init__(self, connection: Connection, name: str, at: str | None) -> None:
        self.name = name
        self._connection = connection
        self._path = f"/v1/tables/{segment(name)}"
        self._at = at

    @property
    def schema(self) -> Schema:
        """The fields of the table; of its latest version."""
        from lakebed.model.schema import Schema

        if self._at is not None:
            raise refused("schema of an older version", "take that of the table, or of rows that are read")
        return Schema.from_json(self._connection.ask("GET", f"{self._path}/schema", reads=True)["schema"])

    # -- rows ---------------------------------------------------------------------------------------------------

    def get(
        self,
        *key: Any,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """All rows of one key, ordered by sort key; an empty table if there are none."""
        _refuse_views(apply, raw=raw)
        document = {"key": key_document(key), "columns": _names(columns), **_fresh(max_staleness, at_least)}
        return self._table("get", document)

    def get_many(  # noqa: PLR0913 - as Readable.get_many
        self,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """All rows of many keys, in key order; a key that is given twice counts once."""
        _refuse_views(apply, raw=raw)
        fresh = {"columns": _names(columns), **_fresh(max_staleness, at_least)}
        if not (hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")):
            return self._table("get_many", {"keys": keys_document(keys), **fresh})
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            keys = pa.table([keys], names=list(self.schema.row_key_names[:1]))
        body = b"".join(encoded(pa.table(keys).to_reader()))
        # A URL has column names with commas between, in quotes where they have one.
        quoted = None if columns is None else ",".join('"' + name.replace('"', '""') + '"' for name in columns)
        path = path_with(f"{self._path}/get_many", {**fresh, "columns": quoted, "at": self._at})
        return table_in(self._connection.send("POST", path, body, ARROW, ARROW, reads=True, streamed=False))

    def scan(  # noqa: PLR0913 - as Readable.scan
        self,
        *ranges: KeyRange,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> RemoteRows:
        """All rows with a key in any of the ranges (all rows if none is given), in key order; a stream."""
        _refuse_views(apply, raw=False)
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        document = {
            "ranges": ranges_document(ranges),
            "columns": _names(columns),
            "where": where,
            "limit": limit,
            "reverse": reverse,
            "raw": raw,
            **_fresh(max_staleness, at_least),
        }
        return rows_of(self._connection, f"{self._path}/scan", self._told(document))

    def count(self, *ranges: KeyRange, exact: bool = False) -> Count:
        """How many rows have a key in any of the ranges; an estimate between two bounds unless ``exact``."""
        check_flag("exact", exact)
        found = self._ask("count", {"ranges": ranges_document(ranges), "exact": exact})
        return Count(found["rows"], found["exact"], found["rows_max"] - found["rows"])

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """Random rows, in key order: ``rows`` of them, or all if there are fewer."""
        return self._table("sample", {"rows": rows, "columns": _names(columns), "seed": seed})

    def prefixes(self, depth: int, *ranges: KeyRange, limit: int | None = None) -> pa.Table:
        """The distinct values of the first ``depth`` row key fields, in key order."""
        check_whole_number("limit", limit)
        return self._table("prefixes", {"depth": depth, "ranges": ranges_document(ranges), "limit": limit})

    def explain(
        self,
        *selection: Any,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Explanation:
        """Read what :meth:`get` or :meth:`scan` would, and return what that took in the service."""
        are_ranges = {isinstance(one, KeyRange) for one in selection}
        if len(are_ranges) > 1:
            raise Code.ARGUMENTS_CONFLICT("explain takes the values of one key, or KeyRange values, not both")
        which = {"key": key_document(selection)} if are_ranges == {False} else {"ranges": ranges_document(selection)}
        how = {"columns": _names(columns), "where": where, "limit": limit, "reverse": reverse}
        found = self._ask("explain", {**which, **how})
        found.pop("table")
        return Explanation(**{**found, "steps": tuple(Step(**step) for step in found["steps"])})

    # -- for other libraries ------------------------------------------------------------------------------------

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows in key order, for readers of Arrow streams."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of some ranges (all if none is given) in key order, in memory."""
        with self.scan(*ranges, columns=columns) as rows:
            return rows.read_all()

    def to_pandas(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The same as a pandas frame. Raises UsageError where pandas is missing."""
        rows = self.to_arrow(*ranges, columns=columns)
        with optional_imports():
            return rows.to_pandas()

    def to_polars(self, *ranges: KeyRange, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The same as a Polars frame. Raises UsageError where Polars is missing."""
        from lakebed.adapters.polars import frame

        return frame(self.to_arrow(*ranges, columns=columns))

    lazy_polars = missing("lazy_polars", "use to_polars with key ranges")
    to_duckdb = missing("to_duckdb", "give DuckDB the rows: duckdb.from_arrow(table.scan(…))")
    register = missing("register", "use sql of the instance, or to_arrow")
    files = missing("files")
    partitions = missing("partitions")

    # -- within -------------------------------------------------------------------------------------------------

    def _told(self, document: dict[str, Any]) -> dict[str, Any]:
        """What a request says: the members that have a value."""
        return {name: value for name, value in {**document, "at": self._at}.items() if value is not None}

    def _ask(self, what: str, document: dict[str, Any]) -> Any:
        return self._connection.ask("POST", f"{self._path}/{what}", self._told(document), reads=True)

    def _table(self, what: str, document: dict[str, Any]) -> pa.Table:
        body = dump(self._told(document))
        path = f"{self._path}/{what}"
        return table_in(self._connection.send("POST", path, body, JSON, ARROW, reads=True, streamed=False))


def rows_of(connection: Connection, path: str, document: Any) -> RemoteRows:
    """The rows of an answer as a stream."""
    return RemoteRows(connection.send("POST", path, dump(document), JSON, ARROW, reads=True, streamed=True))


def _names(columns: Sequence[str] | None) -> list[str] | None:
    if isinstance(columns, str):
        raise Code.ARGUMENT_INVALID(f"columns = {columns!r}: give a list of names")
    return None if columns is None else list(columns)


def _fresh(max_staleness: float | None, at_least: int | None) -> dict[str, Any]:
    check_seconds("max_staleness", max_staleness)
    check_whole_number("at_least", at_least)
    return {"max_staleness": max_staleness, "at_least": at_least}


def _refuse_views(apply: Any, *, raw: bool) -> None:
    if apply is not None:
        raise refused("apply", _HERE)
    if raw:
        raise refused("raw of get and get_many", "use scan(raw=True) over the range of the key")
