"""The rows of a MERGE: a row of the source is joined with the row of its key, and becomes what the first clause says.

One query joins the source with the target at one version, and has a column for the number of the clause that a row
meets, and columns for the values of each clause. Nothing is computed of two clauses in one column, so that no value
takes the type of another. Batch by batch, the rows of each clause become rows to write: changed columns, whole rows, or
deletes. Two rows with one key are refused when the files are written, which have one row for each key.

Core. :class:`MergeRows`. Errors. UsageError for a statement that does not join by the key. Source: docs/decisions/0084.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.assignments import assignable, kept_names
from lakebed.engine.change_statements import MergeClause, MergeStatement
from lakebed.engine.tokens import Token, quoted_name, tokens_of
from lakebed.errors import Code
from lakebed.model.types import canonical
from lakebed.write.conformer import Conformer
from lakebed.write.source_rows import RowInput, SourceRows

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.transactions.key_guard import KeyGuards
    from lakebed.read.snapshot.snapshot import Snapshot

_KINDS = {"update": "u", "delete": "d", "insert": "c"}


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the rows of a clause, which is the ``number``-th: the place in the query, by name."""

    number: int
    clause: MergeClause
    source: str
    places: dict[str, int]


class MergeRows:
    """The rows of a statement in one version; counts those of each action, and adds their keys to the guards."""

    def __init__(
        self, statement: MergeStatement, query: Callable[[str], Any], *, whole: bool, reads_itself: bool
    ) -> None:
        """With ``whole``, updated rows have all columns; ``reads_itself``: any change of the table counts."""
        self._statement, self._query = statement, query
        self._whole, self._reads_itself = whole, reads_itself
        self.counts = dict.fromkeys(_KINDS, 0)
        self.duplicates = ""

    @contextmanager
    def found(self, snapshot: Snapshot, guards: KeyGuards) -> Iterator[RowInput]:
        """Return the rows to write, with the column of their kinds (:func:`kind_column`)."""
        self.counts = dict.fromkeys(_KINDS, 0)
        if self._reads_itself:
            guards.add_all()
        schema = snapshot.schema
        joined = joined_keys(self._statement, schema)
        keys = ", ".join(f"({text}\n)" for text in joined.values())
        self.duplicates = (
            f"SELECT {keys} FROM {self._statement.source} AS {quoted_name(self._statement.source_alias)} "  # noqa: S608
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )
        text, clauses = self._text(snapshot, joined)
        with self._query(text) as rows:
            for place, name in enumerate(joined):
                _check_type(rows.schema.field(1 + place).type, name, schema)
            kind = kind_column(schema)
            columns = tuple((one.source, _schema_of(rows.schema, one, kind)) for one in clauses)
            yield RowInput(columns, self._batches(rows, clauses, kind, (schema, guards)))

    def _text(self, snapshot: Snapshot, joined: dict[str, str]) -> tuple[str, list[_Columns]]:
        """Return the query, and where the columns of each clause are."""
        one, schema = self._statement, snapshot.schema
        target = f"{quoted_name(f'{one.table}@{snapshot.version}')} AS {quoted_name(one.alias)}"
        own = {name: f"{quoted_name(one.alias)}.{quoted_name(name)}" for name in schema.names}
        is_matched = f"{own[schema.row_key_names[0]]} IS NOT NULL"
        tests, selected, clauses = [], [f"({text}\n)" for text in joined.values()], []
        for number, clause in enumerate(one.clauses):
            test = is_matched if clause.matched else f"NOT ({is_matched})"
            test = test if clause.condition is None else f"{test} AND ({clause.condition}\n)"
            tests.append(f"WHEN {test} THEN {'NULL' if clause.action == 'nothing' else number}")
            if clause.action == "nothing":
                continue
            columns = {name: (text, False) for name, text in _kept(clause, snapshot, own, whole=self._whole).items()}
            for name, text in _values(clause, joined, self._statement, schema).items():
                columns[name] = (exactly(text, schema.by_name[name].type), True)
            places = {}
            for name, (text, computed) in columns.items():
                places[name] = 1 + len(selected)
                selected.append(f"CASE WHEN {test} THEN ({text}\n) END" if computed and not _is_name(text) else text)
            clauses.append(_Columns(number, clause, f"MERGE, {clause.action}", places))
        action = f"CAST(CASE {' '.join(tests)} END AS INT)"
        kind = "LEFT" if not all(clause.matched for clause in one.clauses) else "INNER"
        columns_text = ", ".join(f"{text} AS c{place}" for place, text in enumerate((action, *selected)))
        source = f"{one.source} AS {quoted_name(one.source_alias)}"

        return f"SELECT {columns_text} FROM {source} {kind} JOIN {target} ON ({one.on}\n)", clauses  # noqa: S608

    def _batches(
        self, rows: Any, clauses: Sequence[_Columns], kind: str, decided: tuple[Schema, KeyGuards]
    ) -> Iterator[SourceRows]:
        schema, guards = decided
        conformer = Conformer(schema, casts=frozenset(schema.names)).keys
        for batch in rows:
            for columns in clauses:
                chosen = batch.filter(pc.fill_null(pc.equal(batch.column(0), columns.number), fill_value=False))
                if not chosen.num_rows:
                    continue
                self.counts[columns.clause.action] += chosen.num_rows
                letters = pa.repeat(_KINDS[columns.clause.action], chosen.num_rows)
                arrays = [chosen.column(place) for place in columns.places.values()]
                made = pa.RecordBatch.from_arrays([*arrays, letters], schema=_schema_of(batch.schema, columns, kind))
                if not self._reads_itself:
                    keys = made.select([name for name in made.schema.names if name in conformer.schema.by_name])
                    if columns.clause.action == "insert":
                        # The others have the keys of the table itself.
                        keys = conformer.conform(keys, columns.source)
                    guards.add(schema.codec.encode_columns(keys.select(list(schema.row_key_names))).to_pylist())
                yield SourceRows(made, columns.source)


def exactly(text: str, kind: pa.DataType) -> str:
    """Return an expression for a column of this type: a number for a decimal as a text."""
    tokens = list(tokens_of(text)) if pa.types.is_decimal(kind) and len(text) < _NAME_MAX else []
    return text_of(tokens) if is_numeric(tokens) else text


def is_numeric(tokens: Sequence[Token]) -> bool:
    """Return whether tokens are one number, with or without a sign."""
    return bool(tokens) and tokens[-1].kind in ("decimal", "number") and [t.text for t in tokens[:-1]] in ([], ["-"])


def text_of(number: Sequence[Token]) -> str:
    """Return a number as a text in SQL."""
    return f"'{''.join(one.text for one in number)}'"


def kind_column(schema: Schema) -> str:
    """Return the name of the column of row kinds: one that the table does not have."""
    name = "row kind"
    while name in schema.by_name:
        name += "'"
    return name


def joined_keys(statement: MergeStatement, schema: Schema) -> dict[str, str]:
    """Return the expression over the source that each field of the row key is joined with. Raises UsageError."""
    found: dict[str, str] = {}
    for condition in _conjuncts(list(tokens_of(statement.on))):
        equal = [place for place, token in _at_top(condition) if token.text == "="]
        if len(equal) != 1:
            raise _not_by_key(statement, schema)
        one, other = condition[: equal[0]], condition[equal[0] + 1 :]
        if _joined_key(one, statement, schema) is None:
            one, other = other, one
        name = _joined_key(one, statement, schema)
        if name is None or name in found or not other:
            raise _not_by_key(statement, schema)
        found[name] = statement.on[other[0].start : other[-1].end]
    if found.keys() != set(schema.row_key_names):
        raise _not_by_key(statement, schema)
    if any(pa.types.is_floating(schema.by_name[name].type) for name in found):
        raise Code.SQL_INVALID(
            f"MERGE INTO {statement.table}: its key has a floating-point number, which SQL compares by other rules: "
            "use UPDATE, DELETE and INSERT"
        )
    return {name: found[name] for name in schema.row_key_names}


def _not_by_key(statement: MergeStatement, schema: Schema) -> Exception:
    equalities = " AND ".join(f"{statement.alias}.{name} = …" for name in schema.row_key_names)
    return Code.SQL_INVALID(
        f"MERGE INTO {statement.table}: ON must be equalities of all fields of the row key, each with an expression "
        f"over the source: ON {equalities}; write other conditions after WHEN MATCHED AND"
    )


def _conjuncts(tokens: list[Token]) -> list[list[Token]]:
    while tokens and tokens[0].text == "(" and _closing(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    ands = [place for place, token in _at_top(tokens) if token.kind == "word" and token.says("and")]
    if not ands:
        return [tokens]
    bounds = zip((-1, *ands), (*ands, len(tokens)), strict=True)
    return [part for low, high in bounds for part in _conjuncts(tokens[low + 1 : high])]


def _at_top(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    depth = 0
    for place, token in enumerate(tokens):
        if token.kind == "sign":
            depth -= token.text in (")", "]")
        if not depth:
            yield place, token
        if token.kind == "sign":
            depth += token.text in ("(", "[")


def _closing(tokens: Sequence[Token]) -> int:
    """Return the place of the bracket that closes the first one."""
    return next((place for place, token in _at_top(tokens) if place and token.text == ")"), -1)


def _joined_key(side: Sequence[Token], statement: MergeStatement, schema: Schema) -> str | None:
    """Return the key field that an expression is, of the target; None if it is another."""
    match [one.name for one in side]:
        case [table, ".", name] if table == statement.alias and name in schema.row_key_names:
            return name
        case _:
            return None


def _is_name(text: str) -> bool:
    """Return whether an expression is the name of a column, which can always be evaluated."""
    tokens = list(tokens_of(text)) if len(text) < _NAME_MAX else []
    names, signs = tokens[::2], tokens[1::2]
    return (
        0 < len(names) == len(signs) + 1
        and all(one.kind in ("word", "quoted") for one in names)
        and all(one.text == "." for one in signs)
    )


_NAME_MAX = 1000


def _kept(clause: MergeClause, snapshot: Snapshot, own: dict[str, str], *, whole: bool) -> dict[str, str]:
    """Return the columns of the target that a changed or deleted row keeps."""
    schema, mode = snapshot.schema, snapshot.state.merge
    match clause.action:
        case "update":
            names = schema.names if whole else kept_names(schema)
        case "delete":
            names = schema.sort_names if mode.by_sort_key else schema.row_key_names
        case _:
            names = ()
    return {name: own[name] for name in names}


def _values(clause: MergeClause, joined: dict[str, str], statement: MergeStatement, schema: Schema) -> dict[str, str]:
    """Return the columns that a clause computes. Raises UsageError for keys that it may not set."""
    if clause.action != "insert":
        for name, _ in clause.values:
            assignable(name, schema)
        return dict(clause.values)
    all_names = tuple(one.name for one in schema.fields if not one.expression)
    names = tuple(name for name, _ in clause.values if name) or all_names
    if len(names) != len(clause.values):
        raise Code.SQL_INVALID(
            f"MERGE INTO {statement.table}: INSERT has {len(clause.values)} values, and the table has {len(all_names)} "
            f"columns: {', '.join(all_names)}"
        )
    schema.project(names)
    values = dict(zip(names, (text for _, text in clause.values), strict=True))
    for key, text in joined.items():
        if not schema.by_name[key].expression and not _are_same(values.get(key, ""), text, statement.source_alias):
            raise Code.SQL_INVALID(
                f"MERGE INTO {statement.table}: INSERT must give key column {key} the value that ON compares it with, "
                f"{text}: a row with another key may be there already"
            )
    # Columns that are not given are null, and not those of an older row.
    return values | {one.name: "NULL" for one in schema.values if one.name not in values}


def _are_same(text: str, other: str, alias: str) -> bool:
    def plain(expression: str) -> list[str]:
        names = [token.name for token in tokens_of(expression)]
        return names[2:] if names[:2] == [alias, "."] else names

    return plain(text) == plain(other)


def _check_type(found: pa.DataType, name: str, schema: Schema) -> None:
    wanted = schema.by_name[name].type
    found = canonical(found.value_type if pa.types.is_dictionary(found) else found)
    if found != canonical(wanted) and not (pa.types.is_integer(found) and pa.types.is_integer(wanted)):
        raise Code.COLUMN_TYPE_MISMATCH(
            f"MERGE: key column {name} is {wanted}, and ON compares it with {found}: cast that in the source",
            column=name,
            found=str(found),
            expected=str(wanted),
        )


def _schema_of(found: pa.Schema, columns: _Columns, kind: str) -> pa.Schema:
    fields = [found.field(place).with_name(name) for name, place in columns.places.items()]
    return pa.schema([*fields, pa.field(kind, pa.string())])
