"""Converts the rows of a source to stored rows: in the form of the schema, with the hidden columns of an operation.

The conformer makes the values fit. Before, a :class:`RowEncoder` gives each row its kind: rows of a partial write get
the kind and, for each value field, whether the source has it; deletes keep their keys and lose their values. Every kind
of ingest therefore supports every operation, with the same errors. Rows are not merged here; they keep their order.

In a table that aggregates, a column with the function ``count`` may be missing: each row then counts 1.

Core types: :class:`RowEncoder`, which is used like the conformer that it holds.

Rules. No I/O here. A delete names the row key and, if the table merges by sort key, the sort key up to which it hides
rows; its other columns have null or, where that is not allowed, a default value.

Errors: those of the conformer; SchemaMismatchError for an unknown row kind, with the row; UsageError for an operation
that the table's mode does not allow.

*The operation of a write: add rows, add partial rows, or delete keys.*

Core types: :class:`Operation`, :class:`Action`; :data:`LETTERS`, the row kinds of change data capture.

Rules. Only a table that merges by ``Latest`` takes partial rows and deletes: in any other table they would be kept
beside the rows that they are meant to change. Pure: no I/O.

Errors: UsageError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, SchemaMismatchError, UsageError
from lakebed.model import types, validity
from lakebed.model.checks import check_flag, is_text, shown
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.row_kinds import KIND, RowKind, is_hidden, presence_name, with_hidden, without_hidden
from lakebed.model.schema import Field, Schema
from lakebed.write.conformer import REASON, SOURCE, Conformer, malformed, without

if TYPE_CHECKING:
    from collections.abc import Collection


class Action(StrEnum):
    """The action of rows without a row kind. An upsert adds whole rows, which the merge mode combines."""

    UPSERT = "upsert"
    PARTIAL = "partial"
    DELETE = "delete"
    STORED = "stored"
    """The rows were stored before, with their hidden columns."""


LETTERS: Mapping[str, RowKind | None] = {
    "c": RowKind.WHOLE, "r": RowKind.WHOLE, "u": RowKind.WHOLE, "d": RowKind.DELETE,
    "+I": RowKind.WHOLE, "+U": RowKind.WHOLE, "-U": None, "-D": RowKind.DELETE,
}  # fmt: skip
"""The row kinds of Debezium (create, read, update, delete) and of Paimon and Flink. None: the row is left out, as the
row before an update is."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An action, and the column of row kinds, if the rows have one: a row that it says is a delete is one."""

    action: Action = Action.UPSERT
    row_kind: str | None = None

    @classmethod
    def of(cls, partial: Any, row_kind: Any) -> Operation:
        """Return the operation of a write. Raises UsageError for values that are none."""
        check_flag("partial", partial)
        if row_kind is not None and (not is_text(row_kind) or not row_kind):
            raise Code.ARGUMENT_INVALID(f"row_kind = {shown(row_kind)}: must be the name of a column")
        return cls(Action.PARTIAL if partial else Action.UPSERT, row_kind)

    @property
    def marks(self) -> bool:
        """Whether its rows may be markers: partial rows or deletes."""
        return self.action is not Action.UPSERT or self.row_kind is not None

    def check(self, mode: MergeMode) -> None:
        """Raise UsageError unless a table of this mode takes it."""
        if self.action is Action.PARTIAL and mode.by_sort_key:
            # Decision 0012: merging two files already would lose what one with a sort key between theirs has to say.
            raise Code.MERGE_MODE_MISMATCH(
                "partial rows need a table that merges by arrival, and this one merges by sort key: a partial row that "
                "arrives late may belong between two rows that are merged already; write whole rows"
            )
        if not self.marks or mode.takes_markers:
            return
        what, remedy = _WORDS["row_kind" if self.row_kind is not None else self.action]
        raise Code.MERGE_MODE_MISMATCH(
            f"{what} need a table that merges by Latest, and this one merges by {mode}; {remedy}, or make a table with "
            "merge=Latest() and import the rows into it"
        )


UPSERT = Operation()
DELETE = Operation(Action.DELETE)

_WORDS = {
    Action.PARTIAL: ("partial rows", "write whole rows"),
    Action.DELETE: ("deletes", "take away all rows of key ranges with remove()"),
    "row_kind": ("rows with a kind", "write the rows without row_kind"),
}


_LEFT_OUT = -1


@dataclass(frozen=True, slots=True)
class _Form:
    """How rows with certain columns are prepared for the conformer: columns that are not read, and those that every row
    gets, by name; and the columns that a delete keeps.
    """

    conformer: Conformer
    dropped: frozenset[str] = frozenset()
    given: tuple[tuple[str, pa.Scalar], ...] = ()
    kept: frozenset[str] = frozenset()

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of prepared rows."""
        fields = [column for column in schema if column.name not in self.dropped]
        return pa.schema([*fields, *((name, value.type) for name, value in self.given)])


@dataclass(frozen=True)
class RowEncoder:
    """Encodes the rows of a conformer for an operation, in a table of that mode.

    Raises UsageError for an operation that the mode does not allow.
    """

    conformer: Conformer
    mode: MergeMode = KEEP_ALL
    operation: Operation = UPSERT

    def __post_init__(self) -> None:
        self.operation.check(self.mode)

    @cached_property
    def schema(self) -> Schema:
        """The schema of the stored rows: with hidden columns, if there may be markers among them."""
        return with_hidden(self.conformer.schema) if self.operation.marks else self.conformer.schema

    def check(self, found: pa.Schema, source: str) -> None:
        """Raise as :meth:`Conformer.check` unless rows with these columns can be stored. Reads no row."""
        form = self._form(found, source)
        form.conformer.check(form.columns(found), source)

    def fits(self, found: pa.Schema) -> bool:
        """Return whether :meth:`check` accepts the columns."""
        try:
            self.check(found, "")
        except (SchemaMismatchError, UsageError):
            return False
        return True

    def conform(self, batch: pa.RecordBatch, source: str, *, rows_before: int = 0) -> pa.RecordBatch:
        """Return the rows as they are stored, in their order; raises as :meth:`Conformer.conform`."""
        form = self._form(batch.schema, source)
        prepared, unknown = self._prepared(batch, form, source)
        if unknown is not None and pc.any(unknown).as_py():
            first, count = pc.index(unknown, pa.scalar(value=True)).as_py(), pc.sum(unknown).as_py()
            raise Code.VALUE_INVALID(
                f"{source}: {self._said_of_kind(batch, first)}; {count} of {batch.num_rows} rows in a batch, first row "
                f"{rows_before + first}",
                column=self.operation.row_kind or "",
                source=source,
                row=rows_before + first,
            )
        return form.conformer.conform(prepared, source, rows_before=rows_before)

    def separate(self, batch: pa.RecordBatch, source: str) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """Return the stored rows, and the rows that do not fit; as :meth:`Conformer.separate`."""
        form = self._form(batch.schema, source)
        prepared, unknown = self._prepared(batch, form, source)
        kept, rejected = form.conformer.separate(prepared, source)
        parts = [part.select([*without_hidden(part.schema.names)]) for part in rejected]
        if unknown is not None and pc.any(unknown).as_py():
            rows = validity.mended_rows(batch.filter(unknown))
            first = pc.index(unknown, pa.scalar(value=True)).as_py()
            for name, text in ((REASON, self._said_of_kind(batch, first)), (SOURCE, source)):
                rows = rows.append_column(name, pa.repeat(text, rows.num_rows))
            parts.append(rows)
        return kept, parts

    # -- within ----------------------------------------------------------------------------------------------------

    @cached_property
    def _forms(self) -> dict[tuple[str, ...], _Form]:
        return {}

    @property
    def _counted(self) -> list[Field]:
        functions = self.mode.functions_by_field
        return [field for field in self.conformer.schema.values if functions.get(field.name) == "count"]

    def _form(self, columns: pa.Schema, source: str) -> _Form:
        """Return how rows with these columns are prepared. Raises SchemaMismatchError."""
        names = tuple(columns.names)
        if names not in self._forms:
            self._forms[names] = self._new_form(names, source)
        row_kind = self.operation.row_kind
        if row_kind is not None and not _is_text(columns.field(row_kind).type):
            raise Code.COLUMN_TYPE_MISMATCH(
                f"{source}: column {row_kind} is {columns.field(row_kind).type}; row kinds are text",
                column=row_kind,
                source=source,
                found=str(columns.field(row_kind).type),
                expected="string",
            )
        return self._forms[names]

    def _new_form(self, names: tuple[str, ...], source: str) -> _Form:
        if not self.operation.marks:
            constants = [
                (f.name, pa.scalar(1, f.type)) for f in self._counted if self.conformer.column(f.name) not in names
            ]
            return _Form(self.conformer, given=tuple(constants))
        if self.operation.action is Action.STORED:
            return _Form(self._marking(self.conformer.schema))
        self._check_names(names, source)
        if self.operation.action is Action.DELETE:
            return self._form_of_deletes(names, source)
        conformer = self._marking(self.conformer.schema)
        constants = []
        if self.operation.action is Action.PARTIAL:
            self._check_inputs(names, source)
            for field in self.conformer.schema.values:
                present = self.conformer.column(field.name) in names
                constants.append((presence_name(field), pa.scalar(present, pa.bool_())))
            if self.operation.row_kind is None:
                constants.append((KIND, pa.scalar(int(RowKind.PARTIAL), pa.int8())))
        return _Form(conformer, given=tuple(constants), kept=frozenset(self._read_by(self._named)))

    @property
    def _named(self) -> tuple[Field, ...]:
        """The fields that a delete must have."""
        schema = self.conformer.schema
        return (*schema.row_key, *schema.sort_key) if self.mode.by_sort_key else schema.row_key

    def _read_by(self, fields: Collection[Field]) -> set[str]:
        """Return the columns that these fields are read from, and their own if they are generated."""
        names = {f.name for f in fields} | {name for f in fields for name in f.inputs}
        return {self.conformer.column(name) for name in names}

    def _marking(self, schema: Schema) -> Conformer:
        """Return the conformer of rows with hidden columns."""
        named = [schema.by_name[field.name] for field in self._named]
        needed = {f.name for f in named} | {name for f in named for name in f.inputs}
        row_kind = self.operation.row_kind
        # Without row kinds, partial rows have no deletes among them.
        deletes = row_kind is not None or self.operation.action is not Action.PARTIAL
        lacking = frozenset(schema.names) - needed if deletes else frozenset()
        named_columns = frozenset([row_kind] if row_kind is not None and row_kind not in schema.names else [])
        return replace(self.conformer, schema=with_hidden(schema), lacking=lacking, named=named_columns)

    def _check_names(self, names: tuple[str, ...], source: str) -> None:
        hidden = [name for name in names if is_hidden(name)]
        if hidden:
            raise Code.COLUMN_UNEXPECTED(
                f"{source}: column {hidden[0]} has a reserved name; rename it", columns=hidden, source=source
            )
        row_kind = self.operation.row_kind
        if row_kind is not None and names.count(row_kind) != 1:
            raise Code.COLUMN_MISSING(
                f"{source}: there must be one column {row_kind}, which was named as that of row kinds; the columns: "
                f"{', '.join(names)}",
                columns=[row_kind],
                source=source,
            )

    def _check_inputs(self, names: tuple[str, ...], source: str) -> None:
        """Raise SchemaMismatchError if a key would be generated from a column that partial rows leave out."""
        for field in self.conformer.schema.generated:
            missing = [name for name in field.inputs if self.conformer.column(name) not in names]
            if missing:
                raise Code.COLUMN_MISSING(
                    f"{source}: missing column {', '.join(missing)}, of which {field.name} is generated; a partial row "
                    "needs it as well",
                    columns=missing,
                    source=source,
                )

    def _form_of_deletes(self, names: tuple[str, ...], source: str) -> _Form:
        """Return rows that have keys: other columns of the table may be there, and are not read."""
        schema = self._with_given_keys(names)
        keys = [schema.by_name[field.name] for field in self._named]
        read = self._read_by(keys)
        needed = [name for f in keys for name in (f.inputs or (f.name,))]
        missing = [name for name in needed if self.conformer.column(name) not in names]
        if missing:
            sort_key = [name for name in missing if name in {f.name for f in schema.sort_key}]
            said = ""
            if sort_key:
                said = (
                    '; in a table that merges by Latest(by="sort_key") a delete hides the rows of a key up to a sort '
                    "key: give a table with the sort key columns too, or delete(where=…)"
                )
            raise Code.COLUMN_MISSING(
                f"{source}: deletes need the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}{said}",
                columns=missing,
                source=source,
            )
        own = {self.conformer.column(name) for name in schema.names}
        constants: dict[str, pa.Scalar] = {KIND: pa.scalar(int(RowKind.DELETE), pa.int8())}
        for field in schema.fields:
            if not field.expression and self.conformer.column(field.name) not in read:
                constants[self.conformer.column(field.name)] = pa.scalar(None, field.stored_type)
        return _Form(self._marking(schema), frozenset(names) & (own - read), tuple(constants.items()))

    def _with_given_keys(self, names: tuple[str, ...]) -> Schema:
        """Return the schema, in which generated keys that are given without their inputs are plain fields."""

        def plain(field: Field) -> Field:
            is_given = field.name in names and any(self.conformer.column(name) not in names for name in field.inputs)
            return replace(field, expression="", inputs=()) if is_given else field

        schema = self.conformer.schema
        row_key, sort_key = tuple(map(plain, schema.row_key)), tuple(map(plain, schema.sort_key))
        return Schema(row_key, sort_key, schema.values, version=schema.version)

    def _prepared(self, batch: pa.RecordBatch, form: _Form, source: str) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Return the rows for the conformer, without those of an unknown kind, which the second value marks."""
        form.conformer.check(form.columns(batch.schema), source)
        rows, unknown = batch, None
        row_kind = self.operation.row_kind
        if row_kind is not None:
            rows = batch = _whole_arrays(batch, source)
            letters, known = _letters()
            kinds = known.take(pc.index_in(_as_text(batch.column(row_kind)), letters))
            unknown = pc.is_null(kinds)
            taken = pc.fill_null(pc.not_equal(kinds, _LEFT_OUT), fill_value=False)
            rows, kinds = batch.filter(taken), kinds.filter(taken)
            deletes = pc.equal(kinds, int(RowKind.DELETE))
            rows = _blanked(rows, deletes, form.kept | {row_kind})
            other = RowKind.PARTIAL if self.operation.action is Action.PARTIAL else RowKind.WHOLE
            kinds = pc.if_else(deletes, pa.scalar(int(RowKind.DELETE), pa.int8()), pa.scalar(int(other), pa.int8()))
            rows = rows.append_column(KIND, kinds)
        if form.dropped:
            rows = rows.drop_columns(sorted(form.dropped))
        for name, value in form.given:
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows, unknown

    def _said_of_kind(self, batch: pa.RecordBatch, row: int) -> str:
        name = self.operation.row_kind
        value = validity.shown(batch.column(name), row)[:40]
        return f"column {name} has {value!r}, which is no row kind; row kinds are {', '.join(LETTERS)}"


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(types.canonical(kind)))


def _whole_arrays(batch: pa.RecordBatch, source: str) -> pa.RecordBatch:
    """Return the batch in layouts that can be filtered. Raises SchemaMismatchError for arrays that are malformed."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        with malformed(source, name, column):
            validity.check_layout(column)
            columns.append(column.cast(types.canonical(column.type)) if "view" in str(column.type) else column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@cache
def _letters() -> tuple[pa.Array, pa.Array]:
    """Return the letters of row kinds, and the kind of each. Made at first use: Arrow imports pandas for a list."""
    kinds = [_LEFT_OUT if kind is None else int(kind) for kind in LETTERS.values()]
    return pa.array(list(LETTERS)), pa.array(kinds, pa.int8())


def _as_text(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _blanked(rows: pa.RecordBatch, deletes: pa.Array, kept: Collection[str]) -> pa.RecordBatch:
    """Return the rows, with null in the columns of deletes that are not kept."""
    flags: Any = deletes.to_numpy(zero_copy_only=False)
    if not flags.any():
        return rows
    columns = [
        column if name in kept else without(column, flags)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
