"""Compiles SQLAlchemy's expressions, table definitions and types to Lakebed's SQL.

What Lakebed does not have is refused with an error that says so, unless it has no effect on any result: foreign keys
are left out, since relations of the ORM need them. Core. :class:`LakebedCompiler`, :class:`LakebedDDLCompiler`,
:class:`LakebedTypeCompiler`, :class:`LakebedPreparer`. Errors. CompileError.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import exc, schema, types
from sqlalchemy.sql import compiler

from lakebed import sql_literal
from sqlalchemy_lakebed.types import NAMED, VECTOR, Uuid

OWN_OPTIONS = ("key", "sort_key", "merge")
"""The options of a table that are no settings: ``lakebed_key`` and so on."""


class LakebedPreparer(compiler.IdentifierPreparer):
    """Quotes every name: a quoted name is the same name, and the words that the engine reserves change with it."""

    def _requires_quotes(self, value: str) -> bool:
        return True


class LakebedCompiler(compiler.SQLCompiler):
    """Queries, and statements that change rows."""

    # -- clauses ----------------------------------------------------------------------------------------------------

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """Return LIMIT and OFFSET, each of which may be missing."""
        text = ""
        if select._limit_clause is not None:
            text += "\n LIMIT " + self.process(select._limit_clause, **kw)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **kw)
        return text

    def fetch_clause(self, select: Any, fetch_clause: Any = None, **kw: Any) -> str:
        """Return FETCH FIRST as LIMIT. Raises CompileError for a share of the rows, and for rows beyond the count."""
        options = select._fetch_clause_options
        if options["percent"] or options["with_ties"]:
            raise exc.CompileError("fetch with percent or with_ties: only a number of rows is supported")
        text = "\n LIMIT " + self.process(select._fetch_clause, **kw)
        return (
            text if select._offset_clause is None else text + "\n OFFSET " + self.process(select._offset_clause, **kw)
        )

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Refuse FOR UPDATE: rows are never locked."""
        raise exc.CompileError(
            "with_for_update: there are no locks. UPDATE and DELETE check by themselves that their rows did not change"
        )

    def update_from_clause(self, *args: Any, **kw: Any) -> str:
        """Refuse UPDATE of a table by others."""
        raise exc.CompileError(
            "UPDATE … FROM other tables: write the statement MERGE INTO … USING … as text(), or a subquery in SET"
        )

    def delete_extra_from_clause(self, *args: Any, **kw: Any) -> str:
        """Refuse DELETE by other tables."""
        raise exc.CompileError("DELETE … USING other tables: write a condition with IN (SELECT …) or EXISTS (SELECT …)")

    def default_from(self) -> str:
        """Return no FROM for a query without tables."""
        return ""

    def visit_empty_set_expr(self, element_types: Sequence[types.TypeEngine[Any]], **kw: Any) -> str:
        """Return a query without rows."""
        columns = ", ".join(
            f"CAST(NULL AS {self.dialect.type_compiler.process(_castable(kind))})"
            for kind in element_types or [types.INTEGER()]
        )
        return f"SELECT {columns} WHERE 1 != 1"

    # -- functions and operators --------------------------------------------------------------------------------------

    def visit_now_func(self, fn: Any, **kw: Any) -> str:
        """Return the time in microseconds: the engine's has nanoseconds, which Python has not."""
        return "date_trunc('microsecond', now())"

    def visit_current_timestamp_func(self, fn: Any, **kw: Any) -> str:
        """Return the same as now()."""
        return self.visit_now_func(fn)

    def visit_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return LIKE."""
        return self._like(binary, "LIKE", **kw)

    def visit_not_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return NOT LIKE."""
        return self._like(binary, "NOT LIKE", **kw)

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return ILIKE."""
        return self._like(binary, "ILIKE", **kw)

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return NOT ILIKE."""
        return self._like(binary, "NOT ILIKE", **kw)

    def _like(self, binary: Any, operator: str, **kw: Any) -> str:
        # In this order: SQLAlchemy 1.4 numbers parameters as they are compiled.
        left, pattern = self.process(binary.left, **kw), self.process(binary.right, **kw)
        escape = binary.modifiers.get("escape")
        # The engine escapes by a backslash alone, and by it in any case, which SQL does not.
        pattern = f"replace({pattern}, '\\', '\\\\')" if escape != "\\" else pattern
        if escape is not None and escape != "\\":
            # A private character stands for the doubled escape, which is the character itself.
            for found, new in ((escape * 2, "\ue000"), (escape, "\\"), ("\ue000", escape)):
                pattern = f"replace({pattern}, {self._text(found)}, {self._text(new)})"
        return f"{left} {operator} {pattern}"

    def _text(self, value: str) -> str:
        return self.render_literal_value(value, types.String())

    def visit_ilike_case_insensitive_operand(self, element: Any, **kw: Any) -> str:
        """Return the operand of ILIKE as it is."""
        return str(self.process(element.element, **kw))

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return ``~``."""
        return self._regexp_match("~", binary, **kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return ``!~``."""
        return self._regexp_match("!~", binary, **kw)

    def _regexp_match(self, operator: str, binary: Any, **kw: Any) -> str:
        flags = binary.modifiers["flags"]
        left, pattern = self.process(binary.left, **kw), self.process(binary.right, **kw)
        if flags is not None:
            pattern = f"concat('(?', {self._text(flags)}, ')', {pattern})"
        return f"{left} {operator} {pattern}"

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return regexp_replace, of the first match unless the flags have ``g``."""
        parts = [self.process(binary.left, **kw), self.process(binary.right, **kw)]
        if binary.modifiers["flags"] is not None:
            parts.append(self._text(binary.modifiers["flags"]))
        return f"regexp_replace({', '.join(parts)})"

    def visit_bitwise_not_op_unary_operator(self, element: Any, operator: Any, **kw: Any) -> str:
        """Return the complement, which the engine has for no operand."""
        return f"(-1 - {self.process(element.element, **kw)})"

    def visit_truediv_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return a division with a fraction: that of two whole numbers has none in the engine."""
        left, right = self.process(binary.left, **kw), self.process(binary.right, **kw)
        whole = all(isinstance(side.type, types.Integer) for side in (binary.left, binary.right))
        return f"CAST({left} AS DOUBLE) / {right}" if whole else f"{left} / {right}"

    def visit_getitem_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """Return the item of a list; the first one is 1."""
        return f"{self.process(binary.left, **kw)}[{self.process(binary.right, **kw)}]"

    def visit_cast(self, cast: Any, **kw: Any) -> str:
        """Return a cast; to the type of the values where the engine does not know the type."""
        kind = _castable(cast.typeclause.type)
        return f"CAST({cast.clause._compiler_dispatch(self, **kw)} AS {self.dialect.type_compiler.process(kind)})"

    def render_literal_value(self, value: Any, type_: Any) -> str:
        """Return a value as a literal of exactly its value and type."""
        if isinstance(value, _EXACT) and not isinstance(type_, types.TypeDecorator):
            return sql_literal(value)
        return str(super().render_literal_value(value, type_))


_EXACT = (bytes, dt.date, dt.time, Decimal)
"""Values whose literal is not their text in quotes."""


def _castable(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    if isinstance(kind, types.JSON | Uuid):
        return types.VARCHAR()
    return kind


class LakebedDDLCompiler(compiler.DDLCompiler):
    """CREATE TABLE, CREATE INDEX and their opposites."""

    def visit_create_table(self, create: Any, **kw: Any) -> str:
        """Return CREATE TABLE, with the columns of the key first."""
        table = create.element
        key = _TableKey.of(table)
        columns = {one.element.name: one for one in create.columns}
        unknown = [name for name in (*key.row_key, *key.sort_key) if name not in columns]
        if unknown:
            raise exc.CompileError(f"table {table.name}: key column {unknown[0]!r} is not a column of it")
        if not self.dialect.omit_constraints:
            _check_constraints(table)
        ordered = dict.fromkeys((*key.row_key, *key.sort_key, *columns))
        parts = [self.process(columns[name]) for name in ordered]
        parts.append(f"PRIMARY KEY ({', '.join(map(self.preparer.quote, key.row_key))})")
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        options = {name: value for name, value in table.dialect_options["lakebed"].items() if value is not None}
        options |= {"merge": key.merge, "sort_key": ", ".join(key.sort_key)}
        given = ", ".join(f"{name} = {_option(value)}" for name, value in options.items() if name != "key" and value)
        text = f"\nCREATE TABLE {exists}{self.preparer.format_table(table)} (\n\t{', '.join(parts)}\n)"
        return f"{text} WITH ({given})" if given else text

    def visit_create_column(self, create: Any, first_pk: bool = False, **kw: Any) -> str:
        """Return a column, its type, and whether it may be null."""
        column = create.element
        for value, what in (
            (column.computed, "a computed value"),
            (column.identity, "an identity"),
            (column.server_default, "a server default"),
        ):
            if value is not None:
                raise exc.CompileError(
                    f"column {column.table.name}.{column.name} has {what}, which is not supported: use default=, whose "
                    "value SQLAlchemy puts into each row"
                )
        kind = self.dialect.type_compiler.process(column.type, type_expression=column)
        return f"{self.preparer.format_column(column)} {kind}{'' if column.nullable else ' NOT NULL'}"

    def visit_create_index(self, create: Any, include_schema: bool = False, **kw: Any) -> str:
        """Return CREATE INDEX."""
        index = create.element
        if index.unique and not self.dialect.omit_constraints:
            raise exc.CompileError(
                f"index {index.name} is unique, and only the primary key can be: leave it out, or give create_engine "
                "omit_constraints=True"
            )
        names = [getattr(one, "name", None) for one in index.expressions]
        if not all(isinstance(one, schema.Column) for one in index.expressions):
            raise exc.CompileError(f"index {index.name}: an index is of columns, and not of expressions or directions")
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        columns = ", ".join(map(self.preparer.quote, names))
        name, table = self.preparer.format_index(index), self.preparer.format_table(index.table)
        return f"CREATE INDEX {exists}{name} ON {table} ({columns})"

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        """Return DROP INDEX."""
        exists = "IF EXISTS " if drop.if_exists else ""
        return f"DROP INDEX {exists}{self.preparer.format_index(drop.element)}"


def _check_constraints(table: schema.Table) -> None:
    for constraint in table.constraints:
        if isinstance(constraint, schema.UniqueConstraint | schema.CheckConstraint):
            what = "UNIQUE" if isinstance(constraint, schema.UniqueConstraint) else "CHECK"
            raise exc.CompileError(
                f"table {table.name} has {what}, which nothing would check: the only constraints are NOT NULL and the "
                "primary key. Leave it out, or give create_engine omit_constraints=True"
            )


class _TableKey:
    """The key of a new table: its columns, those of the sort key, and the merge mode if it is not the default."""

    def __init__(self, row_key: Sequence[str], sort_key: Sequence[str], merge: Any) -> None:
        self.row_key, self.sort_key, self.merge = row_key, sort_key, merge

    @classmethod
    def of(cls, table: schema.Table) -> _TableKey:
        """Return the key that the table's definition means."""
        options = table.dialect_options["lakebed"]
        sort_key, merge = _names(options["sort_key"]), options["merge"]
        primary = [one.name for one in table.primary_key.columns]
        repeated = _names(options["key"])
        if repeated and primary:
            raise exc.CompileError(f"table {table.name} has a primary key and lakebed_key, which is for one without it")
        if primary:
            row_key = [name for name in primary if name not in sort_key]
            return cls(row_key, sort_key, merge)
        # Without a primary key rows are not unique, and the key is what they are sorted by.
        row_key = repeated or [one.name for one in table.columns if one.index] or _first_sortable(table)
        return cls(row_key, sort_key, merge or "keep_all")


def _first_sortable(table: schema.Table) -> list[str]:
    found = [one.name for one in table.columns if not isinstance(one.type, types.JSON | types.ARRAY | VECTOR | NAMED)]
    if not found:
        raise exc.CompileError(f"table {table.name} has no key, and no column that can be one: give primary_key=True")
    return found[:1]


def _names(value: Any) -> list[str]:
    """Return names of columns: of a list, or of a text with commas."""
    if value is None:
        return []
    return [one.strip() for one in value.split(",")] if isinstance(value, str) else [str(one) for one in value]


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("'", "''")
    return f"'{text}'"


class LakebedTypeCompiler(compiler.GenericTypeCompiler):
    """Names of types, as CREATE TABLE has them; most are also those of a cast."""

    def visit_lakebed_named(self, type_: Any, **kw: Any) -> str:
        """Return the name that the type has."""
        return str(type_.lakebed_name)

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's name
        """Return a float with the digits: as in Python unless there are few."""
        return "REAL" if type_.precision is not None and type_.precision <= _DIGITS_OF_REAL else "DOUBLE"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return DOUBLE, without digits."""
        return "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return DOUBLE, without digits."""
        return "DOUBLE"

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return TIMESTAMP, with a zone or without."""
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return TIMESTAMP, with a zone or without."""
        return self.visit_TIMESTAMP(type_)

    def visit_TIME(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return TIME."""
        if type_.timezone:
            raise exc.CompileError("TIME WITH TIME ZONE: a time of day has no zone; store a timestamp, or the zone")
        return "TIME"

    def visit_NVARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR: all texts are Unicode."""
        return "VARCHAR"

    def visit_NCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR."""
        return "VARCHAR"

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR without a length, which is not checked."""
        return "VARCHAR"

    def visit_CHAR(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR."""
        return "VARCHAR"

    def visit_TEXT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR."""
        return "VARCHAR"

    def visit_CLOB(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return VARCHAR."""
        return "VARCHAR"

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return BYTEA."""
        return "BYTEA"

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return BYTEA."""
        return "BYTEA"

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return BYTEA."""
        return "BYTEA"

    def visit_large_binary(self, type_: Any, **kw: Any) -> str:
        """Return BYTEA."""
        return "BYTEA"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return a list of items, or of lists."""
        return f"{self.process(type_.item_type, **kw)}{'[]' * (type_.dimensions or 1)}"

    def visit_JSON(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return the type of JSON texts."""
        return "json"

    def visit_UUID(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Return the type of UUIDs."""
        return "uuid"


_DIGITS_OF_REAL = 24
"""Binary digits of a float of 32 bits, as in PostgreSQL's FLOAT(p)."""
