"""Parses the statements of SQL that change something, such as INSERT, MERGE or ALTER TABLE. Pure.

Only the head of a statement is parsed here: its words, names, and where its expressions and queries begin and end.
These are returned as text, and evaluated as parts of queries by the engine that reads (:mod:`lakebed.read.sql`), so
that an expression has one meaning in all of SQL. Tokens are read one by one and not kept.

Core. :func:`parse`, :data:`ChangeStatement`, :func:`changes`. Errors. UsageError with the token and its place.

Source: docs/decisions/0084.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lakebed.engine.complexity import TEXT_MAX
from lakebed.engine.statement_parser import OTHER_WORDS, QUERIES, ColumnDefinition, StatementParser
from lakebed.engine.tokens import tokens_of
from lakebed.errors import Code
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, RenameField, WidenField

if TYPE_CHECKING:
    from lakebed.model.state.transactions.schema_changes import SchemaChange


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """INSERT INTO: the columns (none: all, in order), and the query, with blanks in place of what is before it."""

    table: str
    columns: tuple[str, ...]
    query: str
    is_values: bool


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """DELETE FROM: the name of the table in the condition, and the condition; None: all rows."""

    table: str
    alias: str
    where: str | None


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """UPDATE: the expressions by column, and the condition; None: all rows."""

    table: str
    alias: str
    assignments: tuple[tuple[str, str], ...]
    where: str | None


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN [NOT] MATCHED: its condition and its action, ``update``, ``delete``, ``insert`` or ``nothing``.

    ``values`` are the expressions by column. Those of an INSERT without columns have no names.
    """

    matched: bool
    condition: str | None
    action: str
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """MERGE INTO: the target, the source as it stands after FROM, the condition that joins them, and the clauses."""

    table: str
    alias: str
    source: str
    source_alias: str
    on: str
    clauses: tuple[MergeClause, ...]

    @property
    def texts(self) -> list[str]:
        """All expressions."""
        values = [text for clause in self.clauses for _, text in clause.values]
        return [self.source, self.on, *(clause.condition or "" for clause in self.clauses), *values]


@dataclass(frozen=True, slots=True)
class AlterStatement:
    """ALTER TABLE: changes of the schema, or a new name, or settings."""

    table: str
    changes: tuple[SchemaChange, ...] = ()
    new_name: str | None = None
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTableStatement:
    """CREATE TABLE: its columns, or the query that gives them, with blanks in place of what is before it.

    ``options`` are those of WITH.
    """

    table: str
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    query: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndexStatement:
    """CREATE INDEX."""

    index: str
    table: str
    columns: tuple[str, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropStatement:
    """DROP TABLE or DROP INDEX, as ``what`` says."""

    what: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateStatement:
    """TRUNCATE."""

    table: str


ChangeStatement: TypeAlias = (
    "InsertStatement | DeleteStatement | UpdateStatement | CreateTableStatement | CreateIndexStatement | DropStatement"
    " | TruncateStatement | MergeStatement | AlterStatement"
)


BEGINNINGS = ("insert", "update", "delete", "merge", "create", "drop", "alter", "truncate")

_NO_TRANSACTIONS = "a statement is a commit of its own, so transactions are not begun or ended: leave it out"

REFUSED = {
    "begin": _NO_TRANSACTIONS,
    "start": _NO_TRANSACTIONS,
    "commit": _NO_TRANSACTIONS,
    "end": _NO_TRANSACTIONS,
    "savepoint": _NO_TRANSACTIONS,
    "rollback": "a statement is a commit of its own; Table.restore (`lakebed restore`) takes a table back to a version",
    "replace": "write INSERT INTO: in a table that merges by latest it replaces the rows of its keys",
    "upsert": "write INSERT INTO: in a table that merges by latest it replaces the rows of its keys",
    "copy": "use `lakebed export` and `lakebed import`, or to_pandas and to_polars of the rows",
    "set": "settings are changed by Instance.set and Table.set (`lakebed settings set`), or ALTER TABLE t SET (…)",
    "grant": "use `lakebed role create` and `lakebed token create`",
    "revoke": "use `lakebed role drop` and `lakebed token drop`",
    "vacuum": "use `lakebed gc`",
    "optimize": "use `lakebed compact`",
    "restore": "use Table.restore (`lakebed restore`)",
    "clone": OTHER_WORDS["clone"],
    "analyze": "statistics are written with the files: leave it out",
    "refresh": "a statement reads the latest version of each table; a view is brought up to date by `lakebed view "
    "refresh`",
    "call": "there are no procedures; `lakebed docs words` names the command for each of other systems",
    "load": "use `lakebed import` or `lakebed write`",
    "convert": "use `lakebed migrate`",
    "msck": "the log of a table names its files: leave it out; `lakebed verify` checks them",
    "fsck": "use `lakebed verify`",
    "undrop": "a table that was dropped is not brought back; copy it from a backup (`lakebed backup restore`)",
    "lock": "nothing is locked: a commit that is too late is done again or refused",
    "use": "an instance has one schema; name the instance when it is opened",
}
"""The first words of statements that are not supported, and what to do instead."""


def changes(text: str) -> bool:
    """Return whether a statement is not a query: whether it is one for :func:`parse`, which may refuse it."""
    first = next(tokens_of(text), None)
    return first is not None and first.kind == "word" and first.text.lower() in (*BEGINNINGS, *REFUSED)


def parse(text: str) -> ChangeStatement:
    """Return the statement. Raises UsageError for one that is not understood, or that has no meaning here."""
    if len(text) > TEXT_MAX:
        raise Code.SQL_TOO_COMPLEX(
            f"the statement has {len(text):,} characters, and at most {TEXT_MAX:,} are allowed: write the rows with "
            "Table.write (`lakebed write`), or put them into a table, and INSERT INTO … SELECT from it"
        )
    parser = StatementParser(text)
    first = parser.next
    word = first.text.lower() if first is not None and first.kind == "word" else ""
    if word in REFUSED and first is not None:
        raise Code.SQL_INVALID(f"{word.upper()} is not supported: {REFUSED[word]}")
    parse_rest = _PARSERS.get(word)
    if parse_rest is None:
        if word in (*QUERIES, "show", "describe", "desc", "summarize", "explain"):
            raise Code.SQL_INVALID(f"{word.upper()} reads, and changes nothing: run it with Instance.sql")
        parser.fail(" or ".join(one.upper() for one in BEGINNINGS))
    parser.take()
    return parse_rest(parser)


def _insertion(parser: StatementParser) -> InsertStatement:
    if parser.is_word("overwrite"):
        parser.refuse("rows are not overwritten: TRUNCATE the table first, or INSERT, which replaces rows of the keys")
    parser.word("into")
    table = parser.table()
    columns: tuple[str, ...] = ()
    if parser.is_sign("(") and not (parser.after is not None and parser.after.text.lower() in (*QUERIES, "(")):
        columns = parser.names()
    if parser.is_word("default"):
        parser.refuse("columns have no defaults: give the values")
    if not (parser.is_sign("(") or parser.is_one_of(QUERIES)):
        parser.fail("VALUES or SELECT")
    is_values = parser.is_word("values")
    return InsertStatement(table, columns, parser.query(), is_values)


def _deletion(parser: StatementParser) -> DeleteStatement:
    parser.word("from")
    table = parser.table()
    alias = parser.alias(table, ("where", "using", "returning"))
    if parser.is_word("using"):
        parser.refuse("DELETE has no USING: write WHERE key IN (SELECT …), or MERGE INTO … WHEN MATCHED THEN DELETE")
    where = parser.where()
    parser.end()
    return DeleteStatement(table, alias, where)


def _assignments(parser: StatementParser) -> UpdateStatement:
    table = parser.table()
    alias = parser.alias(table, ("set",))
    parser.word("set")
    found = [parser.assignment((alias, table))]
    while parser.took_sign(","):
        found.append(parser.assignment((alias, table)))
    if parser.is_word("from"):
        parser.refuse("UPDATE has no FROM: write MERGE INTO … USING … WHEN MATCHED THEN UPDATE SET …")
    where = parser.where()
    parser.end()
    return UpdateStatement(table, alias, parser.once(found), where)


def _creation(parser: StatementParser) -> CreateTableStatement | CreateIndexStatement:
    if parser.is_word("index"):
        return _create_index(parser)
    if parser.is_word("view") or parser.is_word("materialized"):
        parser.refuse("views are made with Instance.create_view_table (`lakebed view create`)")
    if parser.is_word("or"):
        parser.refuse("a table is not replaced: DROP TABLE IF EXISTS it first, in a statement of its own")
    if parser.is_word("unique"):
        parser.refuse("an index does not make values unique: only the row key is, in a table that merges by latest")
    if parser.is_word("temp") or parser.is_word("temporary") or parser.is_word("external"):
        parser.refuse("tables are neither temporary nor external: leave the word out")
    parser.word("table")
    if_not_exists = parser.took_words("if", "not", "exists")
    table = parser.table()
    columns: list[ColumnDefinition] = []
    primary_key: tuple[str, ...] = ()
    if parser.took_sign("("):
        while True:
            if parser.is_word("primary") and parser.after is not None and parser.after.says("key"):
                parser.took_words("primary", "key")
                if primary_key:
                    parser.fail_before("one PRIMARY KEY")
                primary_key = parser.names()
            else:
                columns.append(parser.column())
                if parser.took_words("primary", "key"):
                    if primary_key:
                        parser.fail_before("one PRIMARY KEY; write PRIMARY KEY (a, b) for several columns")
                    primary_key = (columns[-1].name,)
                parser.check_constraints()
            if not parser.took_sign(","):
                break
        parser.sign(")")
    options = parser.options() if parser.took_word("with") else {}
    query = None
    if parser.took_word("as"):
        if not (parser.is_sign("(") or parser.is_one_of(QUERIES)):
            parser.fail("SELECT")
        query = parser.query()
    else:
        parser.end()
    if query is None and not columns:
        raise Code.SQL_INVALID(f"CREATE TABLE {table} has no columns: give them in brackets, or a query after AS")
    if query is not None and columns:
        raise Code.SQL_INVALID(
            f"CREATE TABLE {table} has column {columns[0].name} and a query, which gives all columns: cast them in the "
            "query, and leave only PRIMARY KEY (…) in the brackets"
        )
    if not primary_key:
        raise Code.SQL_INVALID(f"CREATE TABLE {table} has no key: add PRIMARY KEY (…) in the brackets")
    return CreateTableStatement(table, tuple(columns), primary_key, options, query, if_not_exists)


def _create_index(parser: StatementParser) -> CreateIndexStatement:
    parser.word("index")
    if_not_exists = parser.took_words("if", "not", "exists")
    index = parser.table()
    parser.word("on")
    table = parser.table()
    if parser.is_word("using"):
        parser.refuse("there is one kind of index: leave USING out")
    columns = parser.names()
    parser.end()
    return CreateIndexStatement(index, table, columns, if_not_exists)


def _dropping(parser: StatementParser) -> DropStatement:
    if not (parser.is_word("table") or parser.is_word("index")):
        parser.fail("TABLE or INDEX")
    what = parser.take().text.lower()
    if_exists = parser.took_words("if", "exists")
    name = parser.table()
    if parser.is_sign(","):
        parser.refuse("a statement drops one table or index: write one for each")
    parser.end()
    return DropStatement(what, name, if_exists)


def _truncation(parser: StatementParser) -> TruncateStatement:
    parser.took_word("table")
    table = parser.table()
    parser.end()
    return TruncateStatement(table)


def _merging(parser: StatementParser) -> MergeStatement:
    parser.word("into")
    table = parser.table()
    alias = parser.alias(table, ("using",))
    parser.word("using")
    source, name = parser.source()
    source_alias = parser.alias(name, ("on",)) if name else parser.alias("", ("on",))
    if not source_alias:
        parser.fail("another name of the query: USING (SELECT …) AS s")
    parser.word("on")
    on = parser.expression(("when",), "a condition")
    clauses = []
    while parser.took_word("when"):
        clauses.append(_merge_clause(parser, (alias, table)))
    if not clauses:
        parser.fail("WHEN")
    parser.end()
    return MergeStatement(table, alias, source, source_alias, on, tuple(clauses))


def _merge_clause(parser: StatementParser, tables: tuple[str, ...]) -> MergeClause:
    matched = not parser.took_word("not")
    parser.word("matched")
    if parser.took_word("by") and not parser.took_word("target"):
        parser.refuse("rows that only the target has are deleted with DELETE FROM … WHERE NOT EXISTS (…)")
    condition = parser.expression(("then",), "a condition") if parser.took_word("and") else None
    parser.word("then")
    if parser.took_words("do", "nothing"):
        return MergeClause(matched, condition, "nothing")
    if not matched:
        parser.word("insert")
        names = parser.names() if parser.is_sign("(") else ()
        parser.word("values")
        texts = parser.expressions()
        if names and len(names) != len(texts):
            parser.fail_before(f"{len(names)} values, one for each column, and not {len(texts)}")
        return MergeClause(matched, condition, "insert", tuple(zip(names or ("",) * len(texts), texts, strict=True)))
    if parser.took_word("delete"):
        return MergeClause(matched, condition, "delete")
    if not parser.took_words("update", "set"):
        parser.fail("UPDATE SET, DELETE or DO NOTHING")
    found = [parser.assignment(tables)]
    while parser.took_sign(","):
        found.append(parser.assignment(tables))
    return MergeClause(matched, condition, "update", parser.once(found))


def _alteration(parser: StatementParser) -> AlterStatement:
    parser.word("table")
    if parser.is_word("if"):
        parser.refuse("a table that is altered has to be there: leave IF EXISTS out")
    table = parser.table()
    if parser.took_word("set"):
        settings = parser.options()
        parser.end()
        return AlterStatement(table, settings=settings)
    if parser.is_word("rename") and parser.after is not None and parser.after.says("to"):
        parser.took_words("rename", "to")
        new_name = parser.table()
        parser.end()
        return AlterStatement(table, new_name=new_name)
    changes = [_schema_change(parser)]
    while parser.took_sign(","):
        changes.append(_schema_change(parser))
    parser.end()
    return AlterStatement(table, tuple(changes))


def _schema_change(parser: StatementParser) -> SchemaChange:
    if not parser.is_one_of(("add", "drop", "rename", "alter")):
        # ALTER TABLE t CREATE BRANCH b: the second word says what is meant.
        parser.took_word("create")
        parser.fail("ADD, DROP, RENAME, ALTER or SET")
    word = parser.take().text.lower()
    parser.took_word("column")
    if word == "add":
        if parser.is_word("partition") and parser.after is not None and parser.after.says("field"):
            parser.refuse(OTHER_WORDS["partition"])
        column = parser.column()
        if not column.nullable:
            parser.fail_before("a column that may be null, as it is in the rows that are there")
        parser.check_constraints()
        return AddField(column.name, column.type)
    name = parser.name("the name of a column")
    if word == "drop":
        return DropField(name)
    if word == "rename":
        parser.word("to")
        return RenameField(name, parser.name("the name of a column"))
    if parser.took_words("drop", "not", "null"):
        return AllowNulls(name)
    parser.took_words("set", "data")
    parser.word("type")
    return WidenField(name, parser.type())


_PARSERS: Mapping[str, Callable[[StatementParser], ChangeStatement]] = {
    "insert": _insertion,
    "delete": _deletion,
    "update": _assignments,
    "create": _creation,
    "drop": _dropping,
    "truncate": _truncation,
    "merge": _merging,
    "alter": _alteration,
}
