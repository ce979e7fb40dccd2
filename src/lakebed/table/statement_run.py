"""Runs statements of SQL that change something (:mod:`lakebed.engine.change_statements`), onto what tables can do.

Each statement is one call that there is without SQL: INSERT and UPDATE are writes, DELETE writes tombstones, TRUNCATE
removes a range, CREATE, DROP and ALTER are those of the instance. The rows are those of a query, which the engine that
reads evaluates: of an UPDATE, the keys and the new values of the rows for which the condition is true.

A statement that decides by reading is a guarded write (:mod:`lakebed.table.guarded_writes`): it reads its table at one
version, and is done again if its keys were written since. If it names its table once more, in a subquery, any change
of the table counts. Other tables are read as they are when the statement is run. CREATE TABLE AS writes the rows before
the name is registered, so the table is there with all of them or not at all.

Core. :func:`execute`, :class:`ChangeReport`. Errors. Those of reads, writes and of the instance.

Source: docs/decisions/0084.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import pyarrow as pa

from lakebed import clock
from lakebed.engine import change_statements as statements
from lakebed.engine.assignments import assignable, kept_names
from lakebed.engine.change_statements import parse
from lakebed.engine.tokens import Token, quoted_name, tokens_of
from lakebed.errors import Code, ExistsError, NotFoundError
from lakebed.model.documents import UNREADABLE, load
from lakebed.model.html_tables import FactsView
from lakebed.model.keys import KeyRange
from lakebed.model.merge_modes import First, Latest, mode_of
from lakebed.model.row_filters import ages_by_sort_key
from lakebed.model.schema import Schema
from lakebed.model.state.time_travel import committed_at
from lakebed.table.creation import check_name, new_table
from lakebed.table.deletion import named
from lakebed.table.guarded_writes import add_found
from lakebed.table.merge_rows import MergeRows, exactly, is_numeric, kind_column, text_of
from lakebed.write.row_encoder import DELETE, UPSERT, Action, Operation
from lakebed.write.run import LOSSLESS, TEXT, Added, Write, add
from lakebed.write.source_rows import RowInput

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.state.transactions.key_guard import KeyGuards
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.read.sql.limited import LimitedRows
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

Query: TypeAlias = "Callable[[str], RowStream | LimitedRows]"
"""Runs a query, and returns its rows: as the caller may see the tables, and under its limits."""


@dataclass(frozen=True, slots=True)
class ChangeReport(FactsView):
    """The result of a statement: its first words, the table or index that it names, and what it changed.

    ``version`` is that of the table after it; None if there is no such table any more. ``rows`` is the number of rows
    that were inserted, updated or deleted, and None where rows are not counted: for CREATE without a query, DROP, ALTER
    and TRUNCATE. A row that replaces another counts as inserted. ``repeated``: the commit id was committed before,
    and nothing was changed now.
    """

    statement: str
    table: str
    version: int | None
    rows: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    repeated: bool = False

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if self.repeated:
            return f"{self.statement} {self.table}: done before, at version {self.version}"
        version = "" if self.version is None else f", version {self.version}"
        rows = "done" if self.rows is None else f"{self.rows:,} row{'s' if self.rows != 1 else ''}"
        return f"{self.statement} {self.table}: {rows}{version}"


def execute(instance: Instance, text: str, query: Query, *, commit_id: str | None = None) -> ChangeReport:
    """As :meth:`lakebed.table.instance.Instance.execute`, for a statement whose parameters have values."""
    statement = parse(text)
    match statement:
        case statements.InsertStatement():
            return _insert(instance.table(statement.table), statement, query, commit_id)
        case statements.DeleteStatement():
            return _delete_rows(instance.table(statement.table), statement, query, commit_id)
        case statements.UpdateStatement():
            return _update(instance.table(statement.table), statement, query, commit_id)
        case statements.CreateTableStatement():
            if statement.query is not None:
                return _create_table_as(instance, statement, statement.query, query, commit_id)
            _check_no_commit_id(commit_id, "CREATE TABLE", "write CREATE TABLE IF NOT EXISTS")
            return _create_table(instance, statement)
        case statements.CreateIndexStatement():
            _check_no_commit_id(commit_id, "CREATE INDEX", "write CREATE INDEX IF NOT EXISTS")
            return _create_index(instance, statement)
        case statements.DropStatement():
            _check_no_commit_id(commit_id, "DROP", "write DROP … IF EXISTS")
            return _drop(instance, statement)
        case statements.MergeStatement():
            return _merge_rows(instance.table(statement.table), statement, query, commit_id)
        case statements.AlterStatement():
            _check_no_commit_id(commit_id, "ALTER TABLE", "look at the schema first")
            return _alter_table(instance, statement)
        case statements.TruncateStatement():
            _check_no_commit_id(commit_id, "TRUNCATE", "write DELETE FROM")
            return _remove_all(instance.table(statement.table), "TRUNCATE")
        case _:
            assert_never(statement)


def _check_no_commit_id(commit_id: str | None, words: str, instead: str) -> None:
    if commit_id is not None:
        raise Code.ARGUMENT_INVALID(f"commit_id = {commit_id!r}: {words} takes none; to repeat it safely, {instead}")


# -- INSERT -----------------------------------------------------------------------------------------------------------


def _insert(table: Table, statement: statements.InsertStatement, query: Query, commit_id: str | None) -> ChangeReport:
    rows = _InsertedRows(statement, query)
    write = Write(commit_id, operation=UPSERT, casts=TEXT if statement.is_values else LOSSLESS)
    if _names(statement.query, statement.table):
        added = add_found(table, rows.found, write)
    else:
        with rows.of(table.state().created) as found:
            added = add(table, found, write)
    return _report_of_rows("INSERT", table.name, added, inserted=rows.counted)


class _InsertedRows:
    """The rows of the query of an INSERT, under the names of the columns that they fill."""

    def __init__(self, statement: statements.InsertStatement, query: Query) -> None:
        self._statement, self._query = statement, query
        self.counted = 0

    @contextmanager
    def found(self, snapshot: Snapshot, guards: KeyGuards) -> Iterator[RowInput]:
        """Return the rows of a query that reads the table itself: any change of the table since counts."""
        guards.add_all()
        with self.of(snapshot.schema) as rows:
            yield rows

    @contextmanager
    def of(self, schema: Schema) -> Iterator[RowInput]:
        """Return the rows for a table of this schema."""
        self.counted = 0
        names = self._statement.columns or tuple(one.name for one in schema.fields if not one.expression)
        schema.project(names)
        text = self._statement.query
        with self._query(_with_texts(text, names, schema) if self._statement.is_values else text) as rows:
            _check_columns(rows.schema, names, self._statement)
            yield RowInput.of_batches(renamed(rows.schema, names), self._batches(rows, names))

    def _batches(self, rows: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self.counted += batch.num_rows
            yield batch.rename_columns(names)


def _check_columns(found: pa.Schema, names: Sequence[str], statement: statements.InsertStatement) -> None:
    """Raise UsageError unless the query has a column for each name, and none that is that of another place."""
    if len(found.names) != len(names):
        raise Code.SQL_INVALID(
            f"INSERT INTO {statement.table}: the query has {len(found.names)} columns, and there are {len(names)} to "
            f"fill: {', '.join(names)}"
        )
    if statement.columns or statement.is_values or list(found.names) == list(names):
        return
    moved = [one for one, name in zip(found.names, names, strict=True) if one != name and one in names]
    if moved:
        raise Code.SQL_INVALID(
            f"INSERT INTO {statement.table}: column {moved[0]} of the query is not in its place; name the columns in "
            f"the order of the query, as in INSERT INTO {statement.table} (…) SELECT …. The table has "
            f"{', '.join(names)}"
        )


def _with_texts(query: str, names: Sequence[str], schema: Schema) -> str:
    """Return VALUES with numbers as texts where their column is a decimal: of those with a point, the engine makes
    doubles.
    """
    decimals = {place for place, name in enumerate(names) if pa.types.is_decimal(schema.by_name[name].type)}
    if not decimals:
        return query
    parts, end, depth, place = [], 0, 0, 0
    before: list[Token] = []
    for token in tokens_of(query):
        if token.kind == "sign" and token.text in "([":
            depth += 1
            place = 0 if depth == 1 else place
        elif token.kind == "sign" and token.text in ")],":
            item = before if depth == 1 and place in decimals else []
            if is_numeric(item):
                parts += [query[end : item[0].start], text_of(item)]
                end = item[-1].end
            depth -= token.text != ","
            place += token.text == "," and depth == 1
        else:
            before.append(token)
            continue
        before = []
    return "".join([*parts, query[end:]])


def renamed(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the columns under other names."""
    return pa.schema([column.with_name(name) for column, name in zip(columns, names, strict=True)])


# -- DELETE and UPDATE ------------------------------------------------------------------------------------------------


def _delete_rows(
    table: Table, statement: statements.DeleteStatement, query: Query, commit_id: str | None
) -> ChangeReport:
    merge = table.state().merge
    if statement.where is None and not merge.takes_markers:
        # Rows that are not deleted by their keys can still be removed all at once.
        _check_no_commit_id(commit_id, f"DELETE of all rows of a table that merges by {merge}", "leave it out")
        return _remove_all(table, "DELETE")
    DELETE.check(merge)
    find = _FoundRows(statement, query, lambda snapshot: [(name, quoted_name(name)) for name in named(snapshot)])
    added = add_found(table, find.rows, Write(commit_id, operation=DELETE))
    return _report_of_rows("DELETE", table.name, added, deleted=find.counted)


def _remove_all(table: Table, words: str) -> ChangeReport:
    return ChangeReport(words, table.name, table.remove(KeyRange()))


def _update(table: Table, statement: statements.UpdateStatement, query: Query, commit_id: str | None) -> ChangeReport:
    state = table.state()
    operation = Operation(Action.PARTIAL)
    if not state.merge.takes_markers:
        operation.check(state.merge)
    for column, _ in statement.assignments:
        assignable(column, state.created)
    if state.merge.by_sort_key or ages_by_sort_key(state.row_filter, state.merge, state.created):
        # Such a table takes whole rows alone.
        operation = UPSERT

    find = _FoundRows(statement, query, lambda snapshot: _new_columns(snapshot, statement, whole=operation is UPSERT))
    texts = [name for name, text in statement.assignments if _is_text(text)]
    added = add_found(table, find.rows, Write(commit_id, operation=operation, casts=texts))
    return _report_of_rows("UPDATE", table.name, added, updated=find.counted)


_Columns: TypeAlias = "Sequence[tuple[str, str]]"
"""The names of columns, and the expression of each."""


def _new_columns(snapshot: Snapshot, statement: statements.UpdateStatement, *, whole: bool) -> _Columns:
    """Return the columns of changed rows."""
    schema = snapshot.schema
    kept = schema.names if whole else kept_names(schema)
    columns = {name: f"{quoted_name(statement.alias)}.{quoted_name(name)}" for name in kept}
    for name, text in statement.assignments:
        columns[name] = f"({exactly(text, assignable(name, schema).type)}\n)"
    return list(columns.items())


def _is_text(text: str) -> bool:
    """Return whether an expression is a text, which is read as a value of its column, or a number with a point."""
    tokens = list(tokens_of(text)) if len(text) < _LITERAL_MAX else []
    return (len(tokens) == 1 and tokens[0].kind == "text") or is_numeric(tokens)


_LITERAL_MAX = 100_000


class _FoundRows:
    """The rows of a table for which a condition is true, in new columns; adds their keys to the guards."""

    def __init__(
        self,
        statement: statements.DeleteStatement | statements.UpdateStatement,
        query: Query,
        columns: Callable[[Snapshot], _Columns],
    ) -> None:
        self._statement, self._query, self._columns = statement, query, columns
        texts = [statement.where or ""]
        if isinstance(statement, statements.UpdateStatement):
            texts += [text for _, text in statement.assignments]
        self._reads_itself = any(_names(text, statement.table) for text in texts)
        self.counted = 0

    @contextmanager
    def rows(self, snapshot: Snapshot, guards: KeyGuards) -> Iterator[RowInput]:
        """Return the rows of a version."""
        self.counted = 0
        if self._reads_itself:
            guards.add_all()
        statement, columns = self._statement, self._columns(snapshot)
        selected = ", ".join(f"{text} AS {quoted_name(name)}" for name, text in columns)
        source = f"{quoted_name(f'{statement.table}@{snapshot.version}')} AS {quoted_name(statement.alias)}"
        condition = "" if statement.where is None else f" WHERE ({statement.where}\n)"
        text = f"SELECT {selected} FROM {source}{condition}"  # noqa: S608 - a statement of the same caller
        names = [name for name, _ in columns]
        with self._query(text) as found:
            yield RowInput.of_batches(renamed(found.schema, names), self._batches(found, names, snapshot, guards))

    def _batches(self, found: Any, names: Sequence[str], snapshot: Snapshot, guards: KeyGuards) -> Any:
        codec, keys = snapshot.schema.codec, list(snapshot.schema.row_key_names)
        for batch in found:
            self.counted += batch.num_rows
            rows = batch.rename_columns(names)
            if not self._reads_itself:
                guards.add(codec.encode_columns(rows.select(keys)).to_pylist())
            yield rows


def _merge_rows(
    table: Table, statement: statements.MergeStatement, query: Query, commit_id: str | None
) -> ChangeReport:
    state = table.state()
    whole = state.merge.by_sort_key or ages_by_sort_key(state.row_filter, state.merge, state.created)
    operation = Operation(Action.UPSERT if whole else Action.PARTIAL, kind_column(state.created))
    operation.check(state.merge)
    reads_itself = any(_names(text, statement.table) for text in statement.texts)
    find = MergeRows(statement, query, whole=whole, reads_itself=reads_itself)
    texts = {name for clause in statement.clauses for name, text in clause.values if _is_text(text)}

    def check(rows: int) -> None:
        if rows == sum(find.counts.values()):
            return
        with query(find.duplicates) as found:
            keys = [tuple(row.values()) for row in found.read_all().to_pylist()]
        raise Code.SQL_INVALID(
            f"MERGE INTO {table.name}: two rows of the source have the key {keys[0] if keys else ''}, and nothing was "
            "changed: leave one of them, with GROUP BY or row_number() in a query after USING"
        )

    write = Write(commit_id, operation=operation, casts=sorted(texts & state.created.by_name.keys()))
    added = add_found(table, find.found, write, check)
    counts = find.counts
    return _report_of_rows(
        "MERGE", table.name, added, inserted=counts["insert"], updated=counts["update"], deleted=counts["delete"]
    )


# -- CREATE, ALTER and DROP --------------------------------------------------------------------------------------------

_MODES: Mapping[str, MergeMode] = {
    "keep_all": mode_of(None),
    "latest": Latest(),
    "latest_by_sort_key": Latest(by="sort_key"),
    "first": First(),
}


def _create_table(instance: Instance, statement: statements.CreateTableStatement) -> ChangeReport:
    options = _TableOptions.of(statement)
    names = [one.name for one in statement.columns]
    keys = (*statement.primary_key, *options.sort_key)
    _check_keys(statement.table, keys, names)
    if tuple(names[: len(keys)]) != keys:
        raise Code.SQL_INVALID(
            f"CREATE TABLE {statement.table}: a table has its key columns first, and an INSERT without column names "
            f"fills them in this order: write the columns {', '.join(keys)} first, in the order of the key"
        )
    arrow = pa.schema([(one.name, one.type) for one in statement.columns])
    nullable = {one.name: one.nullable and one.name not in keys for one in statement.columns}
    made = instance.create_table(
        statement.table,
        _schema(arrow, nullable, statement.primary_key, options.sort_key),
        settings=options.settings,
        merge=options.merge,
        if_not_exists=statement.if_not_exists,
    )
    return ChangeReport("CREATE TABLE", made.name, made.version)


def _create_table_as(
    instance: Instance, statement: statements.CreateTableStatement, text: str, query: Query, commit_id: str | None
) -> ChangeReport:
    check_name(statement.table)
    options = _TableOptions.of(statement)
    counted = 0
    if (found := _made_before(instance, statement, commit_id)) is not None:
        return found
    with query(text) as rows:
        names = list(rows.schema.names)
        keys = (*statement.primary_key, *options.sort_key)
        _check_keys(statement.table, keys, names)
        nullable = {name: name not in keys for name in names}
        schema = _schema(rows.schema, nullable, statement.primary_key, options.sort_key)
        created = new_table(clock.new_id(), schema, (), options.settings, options.merge)

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal counted
            for batch in rows:
                counted += batch.num_rows
                yield batch

        def fill(table: Table) -> None:
            add(table, RowInput.of_batches(rows.schema, batches()), Write(commit_id))

        try:
            table = instance.register_new(statement.table, created, fill=fill)
        except ExistsError:
            # Another process was quicker, perhaps with the same commit id.
            if (found := _made_before(instance, statement, commit_id)) is not None:
                return found
            raise
    return ChangeReport("CREATE TABLE", table.name, table.version, counted, inserted=counted)


def _made_before(
    instance: Instance, statement: statements.CreateTableStatement, commit_id: str | None
) -> ChangeReport | None:
    """Return the report for a table that is there already, by this statement or allowed to be. Raises ExistsError."""
    found = instance.catalog().named(statement.table)
    if found is None:
        return None
    table = instance.opened(found)
    state = table.state()
    if (first := committed_at(state, "commit_id", commit_id)) is not None:
        return ChangeReport("CREATE TABLE", table.name, first, 0, repeated=True)
    if statement.if_not_exists:
        return ChangeReport("CREATE TABLE", table.name, state.version, 0)
    raise Code.TABLE_EXISTS(
        f"a table named {table.name!r} exists already; choose another name, DROP TABLE it first, or write CREATE TABLE "
        "IF NOT EXISTS",
        table=table.name,
    )


def _check_keys(table: str, keys: Sequence[str], names: Sequence[str]) -> None:
    missing = [one for one in keys if one not in names]
    if missing:
        raise Code.COLUMN_UNKNOWN(
            f"CREATE TABLE {table}: key column {missing[0]} is not a column; there are {', '.join(names)}",
            fields=missing,
        )


def _schema(arrow: pa.Schema, nullable: Mapping[str, bool], row_key: Sequence[str], sort_key: Sequence[str]) -> Schema:
    fields = [column.with_nullable(nullable[column.name]).with_metadata(None) for column in arrow]
    untyped = [column.name for column in fields if pa.types.is_null(column.type)]
    if untyped:
        raise Code.TYPE_UNSUPPORTED(f"column {untyped[0]} of the query has nulls and no type: cast it")
    return Schema.from_arrow(pa.schema(fields), list(row_key), list(sort_key))


@dataclass(frozen=True, slots=True)
class _TableOptions:
    """What stands in WITH: the merge mode, the sort key, and settings."""

    merge: MergeMode
    sort_key: tuple[str, ...]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, statement: statements.CreateTableStatement) -> _TableOptions:
        """Return the options, checked as far as they are not settings."""
        own = dict(statement.options)
        merge = own.pop("merge", "latest")
        sort_key = own.pop("sort_key", "")
        return cls(_mode(merge), tuple(one.strip() for one in str(sort_key).split(",") if one.strip()), own)


def _mode(text: Any) -> MergeMode:
    """Return the mode of a word, or of its JSON document."""
    if (found := _MODES.get(str(text))) is not None:
        return found
    try:
        document = load(str(text))
    except UNREADABLE:
        document = None
    if not isinstance(document, dict):
        raise Code.MERGE_MODE_INVALID(
            f"merge = {str(text)!r}: must be {', '.join(map(repr, _MODES))}, or a document (`lakebed docs merging`) "
            'such as \'{"mode": "aggregate", "functions": {"n": "sum"}}\''
        )
    return mode_of(document)


def _create_index(instance: Instance, statement: statements.CreateIndexStatement) -> ChangeReport:
    there = instance.indexes(statement.table).get(statement.index)
    if statement.if_not_exists and there is not None:
        if there != list(statement.columns):
            raise Code.TABLE_EXISTS(
                f"index {statement.index} exists already, of {', '.join(there)}; choose another name, or DROP INDEX it",
                table=statement.index,
            )
        return ChangeReport("CREATE INDEX", statement.index, instance.table(statement.index).state().version)
    made = instance.create_index(statement.index, table=statement.table, on=list(statement.columns))
    return ChangeReport("CREATE INDEX", made.name, made.version)


def _alter_table(instance: Instance, statement: statements.AlterStatement) -> ChangeReport:
    if statement.new_name is not None:
        instance.rename_table(statement.table, statement.new_name)
        return ChangeReport("ALTER TABLE", statement.new_name, instance.table(statement.new_name).state().version)
    table = instance.table(statement.table)
    version = table.set(**statement.settings) if statement.settings else table.alter(*statement.changes)
    return ChangeReport("ALTER TABLE", table.name, version)


def _drop(instance: Instance, statement: statements.DropStatement) -> ChangeReport:
    drop = instance.drop_index if statement.what == "index" else instance.drop_table
    try:
        drop(statement.name)
    except NotFoundError as error:
        if not (statement.if_exists and error.code is Code.TABLE_NOT_FOUND):
            raise
    return ChangeReport(f"DROP {statement.what.upper()}", statement.name, None)


# -- within -----------------------------------------------------------------------------------------------------------


def _report_of_rows(words: str, table: str, added: Added, **counts: int) -> ChangeReport:
    """Return the report of rows; ``counts`` are inserted, updated or deleted ones."""
    if added.repeated:
        return ChangeReport(words, table, added.version, 0, repeated=True)
    return replace(ChangeReport(words, table, added.version, sum(counts.values())), **counts)  # type: ignore[arg-type]


def _names(text: str, table: str) -> bool:
    """Return whether a text may read a table: has its name, or that of one of its versions, but not before a column."""
    if table not in text:
        return False
    before = ""
    for token in tokens_of(text):
        if before == table and token.text != ".":
            return True
        before = token.name.partition("@")[0].removesuffix("$raw")
    return before == table
