"""Statements about tables rather than rows: SHOW TABLES, SHOW COLUMNS, DESCRIBE, SUMMARIZE, and information_schema.

The engine does not plan them in the form of DuckDB or PostgreSQL. :func:`catalog_statement` recognizes them by
their first words; any other statement goes to the engine. Statements that write are refused here, with the command that
writes. :class:`InformationSchema` has the tables ``tables`` and ``columns`` of the schema of that name.

Core. :func:`catalog_statement`, :func:`check_reads`. Errors. UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
from datafusion.catalog import SchemaProvider, Table

from lakebed.engine.change_statements import BEGINNINGS, REFUSED
from lakebed.engine.tokens import Token, quoted_name, tokens_of
from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.iso_times import iso_texts, may_expand
from lakebed.model.type_names import name_of

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

INFORMATION_SCHEMA = "information_schema"


@dataclass(frozen=True, slots=True)
class TableList:
    """SHOW TABLES."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """DESCRIBE of a table, by its name as in any statement."""

    name: str


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """SUMMARIZE of a table or of a query, as what may stand after FROM."""

    source: str


_AS_OF = re.compile(r"\bas\s+of\b", re.IGNORECASE)


def check_reads(text: str) -> None:
    """Raise UsageError for a statement that writes, or that reads a version in the syntax of other systems."""
    if _AS_OF.search(text):
        tokens = list(tokens_of(text))
        for word, of, value in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if word.says("as") and of.says("of") and (value.kind in ("text", "number") or value.says("timestamp")):
                raise Code.SQL_INVALID(
                    "a table at a version, a tag or a time is named with an @, in place of AS OF: FROM flights@12, "
                    'FROM flights@audited, FROM "flights@2026-01-31T12:00:00Z"'
                )
    first = next(tokens_of(text), None)
    beginning = first.text.lower() if first is not None and first.kind == "word" else ""
    if beginning in BEGINNINGS:
        raise Code.SQL_READ_ONLY(
            f"only queries are run here, and {beginning.upper()} changes tables: run it with Instance.execute "
            "(`lakebed docs sql-writes`)"
        )
    if beginning in REFUSED:
        raise Code.SQL_READ_ONLY(f"only SQL that reads is supported, not {beginning.upper()}: {REFUSED[beginning]}")


def catalog_statement(text: str) -> TableList | TableColumns | ColumnSummary | None:
    """Return the parsed statement about tables; None for one that the engine plans."""
    tokens = list(islice(tokens_of(text), 3))
    words = [token.text.lower() if token.kind == "word" else "" for token in tokens]
    rest = text.rstrip().rstrip(";").rstrip()
    match words:
        case ["show", "tables"] | ["show", "tables", _] if rest.lower().endswith("tables"):
            return TableList()
        case ["show", "columns", "from" | "in"]:
            return _described(rest[tokens[2].end :])
        case ["describe" | "desc", "table", _]:
            return _described(rest[tokens[1].end :])
        case ["describe" | "desc", "history", _]:
            raise Code.SQL_INVALID("the versions of a table are not read in SQL: use Table.history (`lakebed history`)")
        case ["describe" | "desc", *_]:
            return _described(rest[tokens[0].end :])
        case ["summarize", following, *_]:
            what = rest[tokens[0].end :].strip()
            return ColumnSummary(
                f"({what})" if following in ("select", "with", "values") or what[:1] == "(" else _quoted(what)
            )
        case ["show", *_]:
            raise Code.SQL_INVALID(
                "of SHOW there are SHOW TABLES and SHOW COLUMNS FROM; for more, query information_schema.tables and "
                "information_schema.columns"
            )
        case _:
            return None


def _described(text: str) -> TableColumns | None:
    """Return the description of a name; None for a query, which the engine describes."""
    tokens = list(islice(tokens_of(text), 2))
    if not tokens or tokens[0].says("select") or tokens[0].says("with") or tokens[0].text == "(":
        return None
    return TableColumns(_unquoted(tokens, text))


def _unquoted(tokens: Sequence[Token], text: str) -> str:
    return tokens[0].name if len(tokens) == 1 and tokens[0].kind == "quoted" else text.strip()


def _quoted(text: str) -> str:
    """Return a name as a statement quotes it."""
    return quoted_name(_unquoted(list(islice(tokens_of(text), 2)), text))


# -- answers ------------------------------------------------------------------------------------------------------


def listing(names: Sequence[str]) -> pa.Table:
    """Return one row per table: ``table_name``."""
    return pa.table({"table_name": pa.array(names, pa.string())})


def description(schema: Schema) -> pa.Table:
    """Return a row per column, in order: ``column_name``, ``data_type``, ``is_nullable``, ``key`` (its key part)."""
    roles = {field.name: "row key" for field in schema.row_key} | {field.name: "sort key" for field in schema.sort_key}
    rows = [
        {
            "column_name": field.name,
            "data_type": name_of(field.returned_type),
            "is_nullable": "YES" if field.nullable else "NO",
            "key": roles.get(field.name),
        }
        for field in schema.fields
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in rows[0]]))


_SUMMARY = pa.schema(
    [
        ("column_name", pa.string()),
        ("column_type", pa.string()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("approx_unique", pa.uint64()),
        ("avg", pa.float64()),
        ("std", pa.float64()),
        ("count", pa.int64()),
        ("null_percentage", pa.float64()),
    ]
)


def summary_query(source: str, columns: pa.Schema) -> str:
    """Return the query that reads what :func:`summary` shows: one row, of five or so values for each column."""
    # Not count(*): the engine takes a column that is named as its own results for the same.
    found = ["sum(1)"]
    for field in columns:
        name = quoted_name(field.name)
        number = types.is_number(field.type)
        nested = pa.types.is_nested(field.type)
        text = f"CAST({name} AS VARCHAR)" if pa.types.is_floating(field.type) else name
        found += [
            f"count({name})",
            "NULL" if nested else f"min({name})",
            "NULL" if nested else f"max({name})",
            "NULL" if nested else f"approx_distinct({text})",
            f"avg(CAST({name} AS DOUBLE))" if number else "NULL",
            f"stddev(CAST({name} AS DOUBLE))" if number else "NULL",
        ]
    selected = ", ".join(f"{one} AS c{index}" for index, one in enumerate(found))
    return f"SELECT {selected} FROM {source}"  # noqa: S608 - the source is a statement of the same caller


def summary(columns: pa.Schema, found: pa.Table) -> pa.Table:
    """Return one row a column: its least and greatest value as text, about how many values differ, and its nulls in
    percent.

    ``avg`` and ``std`` are those of numbers.
    """
    total = found.column(0)[0].as_py() or 0
    rows = []
    for index, field in enumerate(columns):
        count, least, most, *rest = found.columns[6 * index + 1 : 6 * index + 7]
        nulls = round(100 * (total - count[0].as_py()) / total, 2) if total else None
        numbers = [one[0].as_py() for one in rest]
        one = (field.name, name_of(field.type), _extreme_text(least), _extreme_text(most), *numbers, total, nulls)
        rows.append(dict(zip(_SUMMARY.names, one, strict=True)))
    return pa.Table.from_pylist(rows, schema=_SUMMARY)


def _extreme_text(column: pa.ChunkedArray) -> str | None:
    """Return the only value of a column as text. Python has no times of nanoseconds, and no years beyond 9999."""
    kind = column.type
    if may_expand(kind) or pa.types.is_time(kind):
        text = iso_texts(column.combine_chunks())[0]
        return None if text is None else _NO_FRACTION.sub("", text.replace("T", " ", 1))
    try:
        value = column[0].as_py()
    except (OverflowError, ValueError):
        # A duration of nanoseconds, or of more than Python's days.
        return f"{column.cast(pa.int64())[0]} {kind.unit}"
    return value if value is None else value.hex() if isinstance(value, bytes) else str(value)


_NO_FRACTION = re.compile(r"\.0+(?!\d)")
"""A fraction of a second that is zero."""


class DescribedTable(NamedTuple):
    """A table in ``information_schema``: its type, as the standard has it, and its schema.

    None: it was dropped meanwhile, or is an index that the caller may not read.
    """

    type: str
    schema: Schema | None


BASE_TABLE, VIEW, INDEX = "BASE TABLE", "VIEW", "INDEX"


class InformationSchema(SchemaProvider):
    """``information_schema.tables`` and ``.columns``, of the tables that there are when a statement names it.

    The engine asks for a table while it plans, and cannot evaluate anything meanwhile, such as the mask of a column. So
    the rows are made before, by :meth:`prepare`.
    """

    def __init__(
        self, catalog: tuple[str, str], names: Callable[[], list[str]], described: Callable[[str], DescribedTable]
    ) -> None:
        self._catalog = catalog
        self._names = names
        self._described = described
        self._tables: dict[str, pa.Table] = {}

    def prepare(self, statement: str) -> None:
        """Make the rows of both tables, if a statement may read one."""
        if INFORMATION_SCHEMA in statement:
            described = {name: self._described(name) for name in self._names()}
            self._tables = {
                "tables": self._rows("tables", [{"table_name": n, "table_type": t.type} for n, t in described.items()]),
                "columns": self._rows("columns", [row for n, t in described.items() for row in _columns(n, t.schema)]),
            }

    def table_names(self) -> set[str]:
        """Return those of the two tables."""
        return {"tables", "columns"}

    def table_exist(self, name: str) -> bool:
        """Return whether there is one of that name."""
        return name in self.table_names()

    def table(self, name: str) -> Table | None:
        """Return the table of that name, as it was prepared."""
        found = self._tables.get(name)
        return None if found is None else Table(pads.dataset(found))

    def _rows(self, name: str, rows: list[dict[str, Any]]) -> pa.Table:
        where = dict(zip(("table_catalog", "table_schema"), self._catalog, strict=True))
        return pa.Table.from_pylist([where | row for row in rows], schema=_INFORMATION[name])


def _columns(table: str, schema: Schema | None) -> list[dict[str, Any]]:
    rows = [] if schema is None else description(schema).to_pylist()
    return [{"table_name": table, "ordinal_position": index, **row} for index, row in enumerate(rows, 1)]


_WHERE = [("table_catalog", pa.string()), ("table_schema", pa.string()), ("table_name", pa.string())]
_INFORMATION = {
    "tables": pa.schema([*_WHERE, ("table_type", pa.string())]),
    "columns": pa.schema(
        [
            *_WHERE,
            ("column_name", pa.string()),
            ("ordinal_position", pa.int64()),
            ("data_type", pa.string()),
            ("is_nullable", pa.string()),
            ("key", pa.string()),
        ]
    ),
}
