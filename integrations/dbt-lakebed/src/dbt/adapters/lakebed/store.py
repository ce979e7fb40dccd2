"""What the adapter does in an instance: queries over tables and views, and tables made, replaced and added to.

Core type: :class:`Store`, over an instance that was opened directly or through a service. It knows nothing of dbt.

*Views* are texts in a table of the instance, found by name, so that every process that uses dbt sees them. Where a
statement names a view, :meth:`Store.expanded` puts its query there: a view is resolved when it is read.

*Tables* are built beside the one that they replace, and take its name in one commit when they are complete. A failure
leaves the table that was there before.

Errors: those of Lakebed, and :class:`BuildError` for what only a build can find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from dbt.adapters.lakebed.relation import PLAIN_SCHEMA, VIEWS_TABLE

import lakebed
from lakebed.engine.tokens import Token, quoted_name, tokens_of

TEMPORARY = "__dbt_tmp"
"""Ends the name of a table that is being built."""

_VIEWS = lakebed.Schema(row_key={"name": "string"}, values={"query": pa.field("query", pa.string(), nullable=False)})

# What may follow a table in FROM that is not its alias.
_NOT_ALIASES = """
    anti asof cross except fetch for from full group having inner intersect into join lateral left limit natural offset
    on order outer qualify returning right semi set tablesample union using values when where window
"""
_AFTER_TABLE = frozenset(_NOT_ALIASES.split())


class BuildError(Exception):
    """A table that cannot be built; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a new table: the names of its columns, in order, and whether each key has one row.

    ``unique`` tables merge by :class:`lakebed.Latest`, so that rows can be replaced by key; the others keep all rows.
    """

    columns: tuple[str, ...]
    unique: bool
    sort: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """The tables and views of one instance."""

    def __init__(self, instance: Any) -> None:
        self.instance = instance

    # -- reading ------------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted, without the one with the views."""
        return [name for name in self.instance.tables() if name != VIEWS_TABLE]

    def views(self) -> dict[str, str]:
        """Return the queries of all views by their names."""
        if VIEWS_TABLE not in self.instance.tables():
            return {}
        rows = self.instance.table(VIEWS_TABLE).to_arrow()
        return dict(zip(*(rows.column(name).to_pylist() for name in ("name", "query")), strict=True))

    def query(self, statement: str) -> Any:
        """Return the rows of a query over tables and views, as a stream of record batches."""
        return self.instance.sql(self.expanded(statement))

    def change(self, statement: str, parameters: Any = None) -> Any:
        """Run a statement that writes; views in it are resolved. Returns a report with the number of rows."""
        if not hasattr(self.instance, "execute"):
            raise BuildError("statements that write run in an instance that is opened directly, not through a service")
        return self.instance.execute(self.expanded(statement), parameters=parameters)

    def columns(self, name: str) -> pa.Schema | None:
        """Return the columns of a table or view; None if there is neither."""
        if name in self.views():
            with self.query(f"SELECT * FROM {_named(name)} LIMIT 0") as rows:
                return rows.schema
        return self.instance.table(name).schema.returned if name in self.tables() else None

    def expanded(self, statement: str) -> str:
        """Return a statement with the queries of the views in place of their names. Raises BuildError for a cycle."""
        if "." not in statement:
            return statement
        views = self.views()
        return _expanded(_with_stored_names(statement, {*self.tables(), *views}), views, ())

    # -- views --------------------------------------------------------------------------------------------------

    def create_view(self, name: str, query: str) -> None:
        """Make or replace a view, which may take the name of a table. Raises if the query is invalid."""
        views = self.views()
        _expanded(query, {**views, name: query}, (name,))
        with self.query(f"SELECT * FROM ({query}) LIMIT 0"):
            pass
        known = self.instance.create_table(VIEWS_TABLE, _VIEWS, merge=lakebed.Latest(), if_not_exists=True)
        known.write({"name": [name], "query": [query]})
        if name in self.tables():
            self.instance.drop_table(name)

    def drop(self, name: str) -> None:
        """Drop the table or view of a name, if there is one."""
        if name in self.views():
            self.instance.table(VIEWS_TABLE).delete([name])
        if name in self.tables():
            self.instance.drop_table(name)

    # -- tables -------------------------------------------------------------------------------------------------

    def build(self, name: str, key: Key, rows: Any) -> int:
        """Make or replace a table by rows (anything with Arrow batches); returns their number.

        Raises BuildError if the key is not among the columns, or a unique key has two rows.
        """
        temporary = name + TEMPORARY
        count = self.stage(temporary, key, rows)
        self.rename(temporary, name)
        return count

    def stage(self, name: str, key: Key, rows: Any) -> int:
        """Make a table by rows, in place of one that a run before left; returns the number of rows. Raises as
        :meth:`build`.
        """
        reader = pa.RecordBatchReader.from_stream(rows)
        named = [*key.columns, *key.sort]
        missing = [column for column in named if column not in reader.schema.names]
        if missing:
            raise BuildError(
                f"the key column {', '.join(missing)} is not a column of the result, which has "
                f"{', '.join(reader.schema.names)}; names are case-sensitive"
            )
        # A key is never null, and other columns may be, whatever the first rows are like.
        fields = [pa.field(one.name, one.type, one.name not in named) for one in reader.schema]
        schema = lakebed.Schema.from_arrow(pa.schema(fields), list(key.columns), list(key.sort))
        self.drop(name)
        merge = lakebed.Latest() if key.unique else lakebed.KeepAll()
        table = self.instance.create_table(name, schema, merge=merge, settings=dict(key.settings))
        try:
            count = _written(table, reader)
            if key.unique:
                self._check_unique(name, named, count)
        except BaseException:
            self.instance.drop_table(name)
            raise
        return count

    def add(self, name: str, rows: Any, *, replace: bool) -> int:
        """Add rows to a table in one commit; returns their number. Columns that the table lacks are left out.

        With ``replace`` they take the place of rows with the same key. Raises BuildError if the table keeps all rows.
        """
        if replace and not self.is_unique(name):
            raise BuildError(
                "the table was not built with a unique key, so rows cannot be replaced in it: run with --full-refresh, "
                "or set incremental_strategy='append'"
            )
        table = self.instance.table(name)
        return _written(table, pa.RecordBatchReader.from_stream(rows), ignore_extra=True)

    def rename(self, name: str, new_name: str) -> None:
        """Give a table or view another name, in place of what has it."""
        views = self.views()
        if name in views:
            self.create_view(new_name, views[name])
            self.drop(name)
            return
        self.instance.rename_table(name, new_name, replace=True)
        if new_name in views:
            self.instance.table(VIEWS_TABLE).delete([new_name])

    def key_of(self, name: str) -> Key:
        """Return the key of a table."""
        schema = self.instance.table(name).schema
        sort = tuple(one.name for one in schema.sort_key)
        return Key(schema.row_key_names, self.is_unique(name), sort)

    def is_unique(self, name: str) -> bool:
        """Return whether a table has one row for each key, and newer rows replace older ones."""
        described = getattr(self.instance, "described", None)
        if described is not None:
            merge = described(name)["merge"]
        else:
            merge = self.instance.table(name).state().merge.document()
        return bool(merge == lakebed.Latest().document())

    def alter(self, name: str, changes: Sequence[Any]) -> None:
        """Change the columns of a table."""
        if changes:
            self.instance.table(name).alter(*changes)

    def sql_types(self, names: Iterable[str]) -> list[pa.DataType]:
        """Return the Arrow types of types in SQL."""
        nulls = ", ".join(f"CAST(NULL AS {name}) AS c{index}" for index, name in enumerate(names))
        with self.instance.sql(f"SELECT {nulls} LIMIT 0") as rows:
            return list(rows.schema.types)

    def _check_unique(self, name: str, key: Sequence[str], written: int) -> None:
        with self.instance.sql(f"SELECT count(*) FROM {_named(name)}") as rows:
            kept = rows.read_all().column(0)[0].as_py()
        if kept != written:
            columns = ", ".join(key)
            raise BuildError(
                f"the {written:,} rows have {kept:,} different keys ({columns}), and a unique key has one row: find "
                f"those that repeat with GROUP BY {columns} HAVING count(*) > 1, and select one of them; or declare "
                "the columns as `key`, which may repeat"
            )


def _named(name: str) -> str:
    return f"{quoted_name(PLAIN_SCHEMA)}.{quoted_name(name)}"


def _written(table: Any, reader: pa.RecordBatchReader, **options: Any) -> int:
    """Write all batches in one commit, and return the number of rows."""
    counted = [0]

    def batches() -> Iterable[pa.RecordBatch]:
        for batch in reader:
            counted[0] += batch.num_rows
            yield batch

    table.write(pa.RecordBatchReader.from_batches(reader.schema, batches()), **options)
    return counted[0]


# -- names in statements ---------------------------------------------------------------------------------------------


def _with_stored_names(statement: str, known: Collection[str]) -> str:
    """Return the statement with the stored name of a table for ``FROM schema.table``, as a model may write it."""
    tokens = list(tokens_of(statement))
    parts: list[str] = []
    done = 0
    for before, schema, dot, table in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if not (before.says("from") or before.says("join")) or dot.text != ".":
            continue
        name = f"{_plain(schema)}-{_plain(table)}"
        if name in known:
            parts += [statement[done : schema.start], _named(name)]
            done = table.end
    return "".join([*parts, statement[done:]])


def _plain(token: Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text


# -- views in statements ------------------------------------------------------------------------------------------


def _expanded(statement: str, views: Mapping[str, str], within: tuple[str, ...]) -> str:
    """Return the statement with ``(query) AS "name"`` for each view; ``within`` are the views that it is part of."""
    if not views:
        return statement
    tokens = list(tokens_of(statement))
    parts: list[str] = []
    done = 0
    for index in range(len(tokens) - 2):
        schema, dot, quoted = tokens[index : index + 3]
        if schema.text != quoted_name(PLAIN_SCHEMA) or dot.text != "." or quoted.kind != "quoted":
            continue
        name = _plain(quoted)
        if name not in views:
            continue
        if name in within:
            raise BuildError(f"the view {name} reads itself: {' -> '.join((*within, name))}")
        query = _expanded(views[name], views, (*within, name))
        alias = "" if _has_alias(list(islice(tokens, index + 3, index + 4))) else f" AS {quoted.text}"
        parts += [statement[done : schema.start], f"(\n{query}\n){alias}"]
        done = quoted.end
    return "".join([*parts, statement[done:]])


def _has_alias(following: Sequence[Token]) -> bool:
    """Return whether a table of FROM has an alias, by what follows it."""
    if not following:
        return False
    token = following[0]
    return token.kind == "quoted" or (token.kind == "word" and token.text.lower() not in _AFTER_TABLE)
