"""Reads through a service: of the latest version of a table, or of one version.

The methods are those of :class:`lakebed.read.snapshot.snapshot.Readable`, with the same arguments, results and errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_sample, check_seconds, check_whole_number
from lakebed.model.documents import dump
from lakebed.model.keys import KeyRange
from lakebed.read.rows.counting import Count
from lakebed.read.rows.explain import Explanation
from lakebed.read.rows.second_key import check_alone
from lakebed.read.snapshot.handles import TableHandle
from lakebed.table.client.connection import ARROW, JSON, missing, path_with, refused, segment
from lakebed.table.client.remote_rows import RemoteRows, encoded, table_in
from lakebed.table.client.request_values import by_document, given, key_document, keys_document, ranges_document

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.table.client.connection import Connection


class RemoteReads(TableHandle[RemoteRows]):
    """The reads of a table through a service. ``at`` is the version; None: the latest at each read."""

    def __init__(self, connection: Connection, name: str, at: str | None) -> None:
        self.name = name
        self._connection = connection
        self._path = f"/v1/tables/{segment(name)}"
        self._at = at

    @property
    def schema(self) -> Schema:
        """The fields of the table, at this version of it; a request."""
        from lakebed.model.schema import Schema

        found = self._connection.ask("GET", path_with(f"{self._path}/schema", {"at": self._at}), reads=True)
        return Schema.from_json(found["schema"])

    # -- rows ---------------------------------------------------------------------------------------------------

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
        """Return all rows of one key, ordered by sort key; an empty table if there are none."""
        how = {"columns": names_document(columns), **_view(apply, raw=raw), **_fresh(max_staleness, at_least)}
        if by is not None:
            check_alone(raw=raw, apply=apply, key=key)
            return self._table("get", {"by": by_document(by), **how})
        return self._table("get", {"key": key_document(key), **how})

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
        """Return all rows of many keys, in key order; a key that is given twice counts once."""
        how = {"columns": names_document(columns), **_view(apply, raw=raw), **_fresh(max_staleness, at_least)}
        if hasattr(keys, "iloc"):
            from lakebed.read.rows.multi_get import objects_of_frame

            keys = objects_of_frame(keys, self.schema)
        if not (hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")):
            return self._table("get_many", {"keys": keys_document(keys), **how})
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            keys = pa.table([keys], names=list(self.schema.row_key_names[:1]))
        body = b"".join(encoded(pa.table(keys).to_reader()))
        # A URL has column names with commas between, in quotes where they have one.
        quoted = None if columns is None else ",".join('"' + name.replace('"', '""') + '"' for name in columns)
        path = path_with(f"{self._path}/get_many", {**how, "columns": quoted, "at": self._at})
        return table_in(self._connection.send("POST", path, body, ARROW, ARROW, reads=True, streamed=False))

    def scan(  # noqa: PLR0913 - as Readable.scan
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
    ) -> RemoteRows:
        """Return all rows with a key in any of the ranges (all rows if none is given), in key order; a stream."""
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        document = {
            "ranges": ranges_document(ranges),
            "by": by_document(by),
            "columns": names_document(columns),
            "where": where,
            "limit": limit,
            "reverse": reverse,
            **_view(apply, raw=raw),
            **_fresh(max_staleness, at_least),
        }
        return rows_of(self._connection, f"{self._path}/scan", self._request(document))

    def count(self, *ranges: KeyRange, by: Mapping[str, Any] | None = None, exact: bool = False) -> Count:
        """Return the number of rows with a key in the ranges; an estimate between two bounds unless ``exact``."""
        check_flag("exact", exact)
        found = self._ask("count", {"ranges": ranges_document(ranges), "by": by_document(by), "exact": exact})
        return Count(found["rows"], found["exact"], found["rows_max"] - found["rows"])

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """Return random rows, in key order: ``rows`` of them, or all if there are fewer."""
        check_sample(rows, seed)
        return self._table("sample", {"rows": rows, "columns": names_document(columns), "seed": seed})

    def prefixes(self, depth: int, *ranges: KeyRange, limit: int | None = None) -> pa.Table:
        """Return the distinct values of the first ``depth`` row key fields, in key order."""
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
        """Run the read of :meth:`get` or :meth:`scan` in the service, and return its statistics."""
        are_ranges = {isinstance(one, KeyRange) for one in selection}
        if len(are_ranges) > 1:
            raise Code.ARGUMENTS_CONFLICT("explain takes the values of one key, or KeyRange values, not both")
        which = {"key": key_document(selection)} if are_ranges == {False} else {"ranges": ranges_document(selection)}
        how = {"columns": names_document(columns), "where": where, "limit": limit, "reverse": reverse}
        return msgspec.convert(self._ask("explain", {**which, **how}), Explanation)

    # -- what it is made of -------------------------------------------------------------------------------------

    def partitions(self) -> pa.Table:
        """Return one row per partition, in key order, as :meth:`lakebed.Table.partitions`."""
        return self._listed("partitions", at=self._at)

    def files(self, *ranges: KeyRange) -> pa.Table:
        """Return the files that hold the rows of some ranges (all if none is given), by their URLs in the store."""
        return self._table("files", {"ranges": ranges_document(ranges)})

    lazy_polars = missing("lazy_polars", "use to_polars with key ranges")
    to_duckdb = missing("to_duckdb", "give DuckDB the rows: duckdb.from_arrow(table.scan(…))")
    register = missing("register", "use sql of the instance, or to_arrow")

    # -- within -------------------------------------------------------------------------------------------------

    def _request(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a request: the members that have a value."""
        return given({"at": self._at, **document})

    def _ask(self, what: str, document: dict[str, Any]) -> Any:
        return self._connection.ask("POST", f"{self._path}/{what}", self._request(document), reads=True)

    def _listed(self, what: str, **parameters: Any) -> pa.Table:
        path = path_with(f"{self._path}/{what}", parameters)
        return table_in(self._connection.send("GET", path, None, JSON, ARROW, reads=True, streamed=False))

    def _table(self, what: str, document: dict[str, Any]) -> pa.Table:
        body = dump(self._request(document))
        path = f"{self._path}/{what}"
        return table_in(self._connection.send("POST", path, body, JSON, ARROW, reads=True, streamed=False))


def rows_of(connection: Connection, path: str, document: Any) -> RemoteRows:
    """Return the rows of an answer as a stream."""
    return RemoteRows(connection.send("POST", path, dump(document), JSON, ARROW, reads=True, streamed=True))


def names_document(columns: Sequence[str] | None) -> list[str] | None:
    """Return names of columns."""
    if isinstance(columns, str):
        raise Code.ARGUMENT_INVALID(f"columns = {columns!r}: give a list of names")
    return None if columns is None else list(columns)


def _fresh(max_staleness: float | None, at_least: int | None) -> dict[str, Any]:
    check_seconds("max_staleness", max_staleness)
    check_whole_number("at_least", at_least)
    return {"max_staleness": max_staleness, "at_least": at_least}


def _view(apply: Any, *, raw: bool) -> dict[str, Any]:
    if not (apply is None or isinstance(apply, str)):
        raise refused("a function as apply", "give the name of one that the service has installed")
    check_flag("raw", raw)
    if raw and apply is not None:
        raise Code.ARGUMENTS_CONFLICT("apply calls a function over merged rows in key order: leave out raw")
    return {"raw": raw, "apply": apply}
