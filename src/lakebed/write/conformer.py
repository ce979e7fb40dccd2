"""Makes rows of any source fit the schema of a table. Rows enter a table only through it.

A :class:`Conformer` by itself allows what loses nothing: another order of columns, another layout of the same type,
another kind of number and another unit of time if each value is kept (:func:`lakebed.model.types.exact`). A field may
be read from a column of another name. If a *cast* is requested, text is parsed, and values become text
(:func:`lakebed.model.types.castable`). A generated field is computed; a source that has its column must agree with it.

Core types: :class:`Conformer`.

Rules. A nullable field may be missing, and is null then. A column that is not a field is refused, so that a misspelt
column is an error and not a null; if the table accepts new columns, :mod:`lakebed.write.growth` adds fields before. A
value that its own type does not allow, such as text that is not UTF-8, does not fit (:mod:`lakebed.model.validity`). No
I/O here.

Errors: SchemaMismatchError and BadKeyError name source, column and value; or rows that do not fit are returned
separately, with the reason.

*Casts a column to the type of a field, value by value: values that cannot be converted are null in the result.*

Rules. Only for types that a conformer has accepted. Arrow's own cast is used where it raises for
each value that it does not keep, because it is much faster; text is converted by :mod:`lakebed.model.text_values`; for
others, DataFusion's cast is used (:func:`lakebed.engine.computed_columns.try_cast`), whose result is cast back and
compared. Pure: no I/O.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code
from lakebed.files.formats.text_types import usual_values
from lakebed.files.parquet.sizes import decoded, decoded_rows, has_dictionary, row_ends, size_of, value_ends
from lakebed.model import types, validity
from lakebed.model.checks import near_names, repeated_names
from lakebed.model.extension_values import json_of, texts_of_uuids, uuids_of
from lakebed.model.iso_times import has_expanded_years, iso_texts
from lakebed.model.key_type import KEY_BYTES_MAX
from lakebed.model.keys import comparable, same_key
from lakebed.model.row_kinds import KIND, RowKind, without_hidden
from lakebed.model.schema import Field, Schema
from lakebed.model.settings import Settings
from lakebed.model.text_values import is_parsed, values_of_texts
from lakebed.model.type_names import JSON, UUID, name_of
from lakebed.model.wording import did_you_mean


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the column in another type that the conformer accepts; null where a value cannot be kept."""
    found = column.type
    if wanted == JSON:
        return json_of(column)
    if found == wanted:
        return column
    if found == UUID and pa.types.is_binary(wanted):
        return column.storage.cast(wanted)
    if UUID in (found, wanted) and not pa.types.is_fixed_size_binary(wanted):
        return texts_of_uuids(column) if found == UUID else uuids_of(column)
    if "list_view" in str(found):
        column = validity.canonical(column)
    if types.widens(found, wanted) or pa.types.is_nested(wanted) or _refuses_loss(found, wanted):
        with contextlib.suppress(pa.ArrowInvalid):
            return column.cast(wanted)
    if pa.types.is_nested(wanted):
        bad = validity.uncastable(column, wanted)
        return without(column, np.asarray(bad)).cast(wanted)

    return _tried(column, wanted)


def remedy(found: pa.DataType, wanted: Field, *, key: bool) -> str:
    """Return the remedy for a value that does not fit a field. A key field keeps its type."""
    if not key and types.can_become(wanted.type, types.canonical(found)):
        return f"widen field {wanted.name} to {types.canonical(found)} with `lakebed table alter`, or correct the value"
    if not key and pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted.type):
        return f"correct the value, leave the row out, or store it in a field of {found}, which holds it"
    return "correct the value, or leave the row out"


def without(column: pa.Array, left_out: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Array:
    """Return the column with null in place of some values."""
    places = np.arange(len(column))
    return column.take(pa.array(places, mask=left_out)) if left_out.any() else column


def _tried(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values of text as :mod:`lakebed.model.text_values` has them, and the engine's cast of others."""
    from lakebed.engine.computed_columns import try_cast

    if types.is_text(types.canonical(column.type)) and is_parsed(wanted):
        return _values_of_texts(column.cast(pa.string()), wanted)
    if pa.types.is_string(wanted) and has_expanded_years(column):
        return pa.array(iso_texts(column), wanted)
    return try_cast(column, wanted)


def _values_of_texts(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the values; times without an offset are in the zone of their type."""
    values = values_of_texts(texts, wanted)
    if values.null_count == texts.null_count or not (pa.types.is_timestamp(wanted) and wanted.tz):
        return values
    others = pc.if_else(pc.is_null(values), texts, pa.scalar(None, texts.type))
    local = values_of_texts(others, pa.timestamp(wanted.unit))
    try:
        return pc.coalesce(values, pc.assume_timezone(local, wanted.tz).cast(wanted))
    except pa.ArrowInvalid:
        # A clock that is put forward or back skips or repeats these times.
        parts = [_in_zone(local.slice(place, 1), wanted) for place in range(len(local))]
        return pc.coalesce(values, pa.concat_arrays(parts))


def _in_zone(local: pa.Array, wanted: pa.DataType) -> pa.Array:
    with contextlib.suppress(pa.ArrowInvalid):
        return pc.assume_timezone(local, wanted.tz).cast(wanted)
    return pa.nulls(1, wanted)


def _refuses_loss(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Arrow's own cast, much faster than the engine's, raises for each value that it does not keep."""
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found))
    times = pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted)
    return bool(times or (pa.types.is_time(found) and pa.types.is_time(wanted)))


REASON = "_lakebed_reason"
SOURCE = "_lakebed_source"
"""The columns that a rejected row has in addition: the reason, and its source."""


_REMEDIES = {
    Code.COLUMN_UNEXPECTED: "; set schema_growth=add to add new columns as fields, or leave them out (--ignore-extra)",
    Code.COLUMN_DUPLICATE: "; rename one of them, or leave it out",
}


@dataclass(frozen=True, slots=True)
class _Fault:
    """Rows that do not fit, for one reason. ``bad`` marks them among the rows without a fault so far."""

    field: Field
    bad: pa.Array
    code: Code
    reason: str
    remedy: str = ""


_Report = Callable[[pa.RecordBatch, _Fault], None]
"""Called with rows, as the source has them, and what is wrong with some of them."""


@dataclass(slots=True)
class _Sieve:
    """The rows without a fault so far: as the source has them, and the columns made of them."""

    given: pa.RecordBatch
    report: _Report
    source: str
    lacking: frozenset[str] = frozenset()
    keys: Collection[str] = ()
    columns: dict[str, pa.Array] = field(default_factory=dict)

    def drop(self, field: Field, bad: pa.Array, code: Code, reason: str, *, remedy: str = "") -> None:
        """Report bad rows, if there are any, and drop them."""
        if not pc.any(bad).as_py():
            return
        self.report(self.given, _Fault(field, bad, code, reason, remedy))
        good = pc.invert(bad)
        self.given = self.given.filter(good)
        self.columns = {name: column.filter(good) for name, column in self.columns.items()}


@dataclass(frozen=True)
class Conformer:
    """How rows of a source become rows of a table. ``columns`` has the source column of a field where it is not its
    own name; ``casts`` are the fields that may be cast; ``value_bytes_max`` is the table's setting. If the table
    ``grows``, columns of type null that it has no field for are left out; so are those in ``ignored``. Rows that the
    hidden column KIND says are deletes may be null in the fields ``lacking``. Text in the fields ``usual`` has the
    usual form of their types. Columns that are ``named`` for another use are left out. A field is cast if it is
    ``asked_by`` this, in which ``{0}`` is its name.

    Raises UsageError for names of no field.
    """

    schema: Schema
    columns: Mapping[str, str] = field(default_factory=dict)
    casts: frozenset[str] = frozenset()
    value_bytes_max: int = Settings().value_bytes_max
    grows: bool = False
    ignored: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    usual: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    asked_by: str = "casts=[{0!r}] (--cast {0})"

    def __post_init__(self) -> None:
        unknown = sorted({*self.columns, *self.casts} - set(self.schema.names))
        if unknown:
            raise Code.COLUMN_UNKNOWN(
                f"no field {', '.join(map(repr, unknown))}; the table has {', '.join(self.schema.names)}",
                fields=unknown,
            )
        computed = [f.name for f in self.schema.generated if f.name in self.columns]
        if computed:
            raise Code.COLUMN_UNKNOWN(
                f"field {computed[0]} is generated, and so is not read from a column", fields=computed
            )

    @cached_property
    def _brought(self) -> tuple[Field, ...]:
        return tuple(f for f in self.schema.fields if not f.expression)

    def column(self, name: str) -> str:
        """Return the source's column for a field."""
        return self.columns.get(name, name)

    @cached_property
    def keys(self) -> Conformer:
        """A conformer of the key fields, and of the fields that they are generated from, if a source has them."""
        used = {name for f in self.schema.generated for name in f.inputs}
        values = tuple(f for f in self.schema.values if f.name in used)
        keys = Schema(self.schema.row_key, self.schema.sort_key, values)
        kept = {name: column for name, column in self.columns.items() if name in keys.by_name}
        return replace(self, schema=keys, columns=kept, casts=self.casts & set(keys.names))

    @property
    def read(self) -> list[str]:
        """The columns that fields are read from."""
        return list(dict.fromkeys(self.column(f.name) for f in self._brought))

    @cached_property
    def _required(self) -> list[str]:
        """The columns that a source must have: those of fields that may not be null, and those given in ``columns``."""
        required = (
            f.name for f in self._brought if f.name in self.columns or not (f.nullable or f.name in self.lacking)
        )
        return list(dict.fromkeys(map(self.column, required)))

    # -- columns ------------------------------------------------------------------------------------------------

    def check(self, found: pa.Schema, source: str) -> None:
        """Raise SchemaMismatchError unless the columns can be made to fit; UsageError if one is there twice. Reads no
        row.
        """
        names_given = dict.fromkeys(found.names)
        known = {*self.read, *(f.name for f in self.schema.generated)}
        check_case(set(names_given) - self.named, known, source)
        missing = [name for name in self._required if name not in names_given]
        ignored = {*self.ignored, *self.named}
        ignored |= {column.name for column in found if self.grows and pa.types.is_null(column.type)}
        extra = [name for name in names_given if name not in known and name not in ignored]
        for code, fault, names in (
            (Code.COLUMN_MISSING, "missing", missing),
            (Code.COLUMN_UNEXPECTED, "extra", extra),
            (Code.COLUMN_DUPLICATE, "duplicate", repeated_names(found.names)),
        ):
            if names:
                remedy = _REMEDIES.get(code, "")
                absent = [f.name for f in self._brought if self.column(f.name) not in names_given]
                if code == Code.COLUMN_UNEXPECTED and (meant := did_you_mean(names[0], absent)):
                    remedy = f"{meant} Or{remedy.removeprefix(';')}"
                raise code(
                    f"{source}: {fault} column{'s' if len(names) > 1 else ''} {', '.join(names)}; "
                    f"the table has {self._said_of_columns()}{remedy}",
                    columns=names,
                    source=source,
                )
        if not names_given:
            raise Code.COLUMN_MISSING(
                f"{source}: no columns found; the table has {self._said_of_columns()}", columns=[], source=source
            )
        for wanted in self.schema.fields:
            if self.column(wanted.name) in names_given:
                self._check_type(found.field(self.column(wanted.name)), wanted, source)

    def _said_of_columns(self) -> str:
        read = (f", {name} from column {column}" for name, column in self.columns.items())
        return ", ".join(without_hidden(self.schema.names)) + "".join(read)

    def _check_type(self, column: pa.Field, wanted: Field, source: str) -> None:
        kind = column.type
        if types.widens(kind, wanted.type) or types.exact(kind, wanted.type):
            return
        castable = types.castable(kind, wanted.type)
        if castable and wanted.name in self.casts:
            return
        if wanted.name in self.casts:
            why = "and no cast makes it one"
        else:
            why = types.member_fault(kind, wanted.type) or "which is no form of it without loss"
            if castable:
                why = f"and values are cast only if asked: {self.asked_by.format(wanted.name)}"
        raise Code.COLUMN_TYPE_MISMATCH(
            f"{source}: column {column.name} is {name_of(kind)}; the table has {name_of(wanted.type)}, {why}",
            column=wanted.name,
            source=source,
            found=str(kind),
            expected=str(wanted.type),
        )

    # -- rows ---------------------------------------------------------------------------------------------------

    def conform(self, batch: pa.RecordBatch, source: str, *, rows_before: int = 0) -> pa.RecordBatch:
        """Return the same rows as the schema has them; ``source`` names where they came from in errors, which count
        rows from 0 and from the first of the ``rows_before`` that came before the batch.

        Raises SchemaMismatchError for columns that do not fit, a value that a cast cannot keep, a null where none is
        allowed, or a generated field that is given otherwise; BadKeyError for a key that is too long.
        """

        def refuse(rows: pa.RecordBatch, fault: _Fault) -> None:
            count, first = pc.sum(fault.bad).as_py(), pc.index(fault.bad, pa.scalar(value=True)).as_py()
            name = self.column(fault.field.name)
            known = name in rows.schema.names and rows.column(name)[first].is_valid
            value = f": {validity.shown(rows.column(name), first)[:40]!r}" if known else ""
            advice = f"; {fault.remedy}" if fault.remedy else ""
            raise fault.code(
                f"{source}: {fault.reason}; {count} of {rows.num_rows} rows in a batch, first row "
                f"{rows_before + first}{value}{advice}",
                column=fault.field.name,
                source=source,
                row=rows_before + first,
            )

        return self._fitted(batch, source, refuse)

    def separate(self, batch: pa.RecordBatch, source: str) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """Return the rows that fit, as the schema has them, and the others as the source has them, with REASON and
        SOURCE.

        Rejected rows can be stored: a value that its type does not allow is replaced (:func:`validity.mended`).

        Raises SchemaMismatchError for columns that do not fit, and arrays that are malformed: then no row does.
        """
        rejected: list[pa.RecordBatch] = []

        def put_aside(batch: pa.RecordBatch, fault: _Fault) -> None:
            rows = validity.mended_rows(batch.filter(fault.bad))
            reason, origin = (pa.repeat(text, rows.num_rows) for text in (fault.reason, source))
            rejected.append(rows.append_column(REASON, reason).append_column(SOURCE, origin))

        return self._fitted(batch, source, put_aside), rejected

    def _small(self, batch: pa.RecordBatch, source: str, report: _Report) -> pa.RecordBatch:
        """Return the rows of at most ``value_bytes_max``, without dictionaries. Nothing else is computed from rows
        before.

        In the report of a larger row, values above their share of ``value_bytes_max`` are left out.
        """
        plain = not any(map(has_dictionary, batch.schema.types))
        if plain and batch.nbytes <= self.value_bytes_max:
            return batch
        # Offsets and sizes are read below, and a malformed array may have any.
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            with malformed(source, name, column):
                validity.check_layout(column)
        if size_of(batch) > self.value_bytes_max:
            sizes = [np.diff(value_ends(column)) for column in batch.columns]
            total = np.diff(row_ends(batch))
            large = total > self.value_bytes_max
            if large.any():
                first = int(np.argmax(large))
                name = batch.schema.names[max(range(len(sizes)), key=lambda index: sizes[index][first])]
                share = self.value_bytes_max // len(sizes)
                columns = [without(c, large & (size > share)) for c, size in zip(batch.columns, sizes, strict=True)]
                shown = pa.RecordBatch.from_arrays([decoded(c) for c in columns], names=batch.schema.names)
                fields = self.schema.fields
                wanted = next((f for f in fields if name in (self.column(f.name), f.name)), fields[0])
                said = self._said_of_size(name, int(total[first]))
                report(shown, _Fault(wanted, pa.array(large), Code.ROW_TOO_LARGE, said))
                batch = batch.filter(pa.array(~large))
        return decoded_rows(batch)

    def _said_of_size(self, name: str, size: int) -> str:
        return (
            f"the row takes {size} bytes, most of them in column {name}, and {self.value_bytes_max} are allowed: split "
            "the value, or raise the table's setting value_bytes_max"
        )

    def _fitted(self, batch: pa.RecordBatch, source: str, report: _Report) -> pa.RecordBatch:
        """Return the rows without a fault; each other row is reported once."""
        self.check(batch.schema, source)
        batch = self._small(batch, source, report)
        sieve = _Sieve(batch, report, source, self.lacking, self.schema.sort_names)
        for wanted in self._brought:
            name = self.column(wanted.name)
            if name in batch.schema.names:
                if wanted.name in self.usual:
                    _drop_unusual(sieve, wanted, name)
                _take(sieve, wanted, name)
            else:
                sieve.columns[wanted.name] = pa.nulls(sieve.given.num_rows, wanted.stored_type)
                _drop_nulls(sieve, wanted, f"column {name}")
        for wanted in self.schema.generated:
            _generate(sieve, wanted)
        _drop_long_keys(sieve, self.schema)
        columns = sieve.columns | {name: same_key(sieve.columns[name]) for name in self.schema.sort_names}
        return pa.RecordBatch.from_arrays([columns[n] for n in self.schema.names], schema=self.schema.arrow)


def check_case(given: Iterable[str], known: Iterable[str], source: str) -> None:
    """Raise SchemaMismatchError for a column that is named like a missing field in another case: it is likely to be the
    column of the field, so that it is neither ignored nor a new field.
    """
    for name, meant in near_names(given, known).items():
        raise Code.COLUMN_UNEXPECTED(
            f"{source}: there is a column {name}, and none for {meant}; did you mean {meant}? Rename the column, or "
            f"read the field from it (--column {meant}={name}, or columns= of an import)",
            columns=[name],
            source=source,
        )


@contextlib.contextmanager
def malformed(source: str, name: str, column: pa.Array) -> Iterator[None]:
    """Name the column in Arrow's error about an array with invalid offsets."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise Code.VALUE_INVALID(
            f"{source}: column {name} is not a valid {column.type} array ({error}); its producer is at fault",
            column=name,
            source=source,
        ) from error


def _take(sieve: _Sieve, wanted: Field, name: str) -> None:
    _drop_invalid(sieve, wanted, name)
    column = sieve.given.column(name)
    taken = sieve.columns[wanted.name] = converted(column, wanted.stored_type)
    if taken.null_count > column.null_count:
        lost = pc.and_(pc.is_null(taken), pc.is_valid(column))
        sieve.drop(
            wanted,
            lost,
            Code.VALUE_NOT_REPRESENTABLE,
            f"column {name} is {name_of(column.type)} and holds a value that {name_of(wanted.type)} cannot keep",
            remedy=remedy(column.type, wanted, key=wanted.name in sieve.keys),
        )
    sieve.columns[wanted.name] = validity.masked(sieve.columns[wanted.name])
    if wanted.has_required_members:
        bad = validity.unfilled(sieve.columns[wanted.name], wanted.type)
        if bad is not None:
            sieve.drop(wanted, bad, Code.VALUE_NULL, f"column {name} has a null in a member that is not nullable")
    bad = validity.unstorable(sieve.columns[wanted.name])
    if bad is not None:
        sieve.drop(
            wanted,
            bad,
            Code.VALUE_NOT_REPRESENTABLE,
            f"column {name} holds a value of {name_of(wanted.type)} that Parquet cannot keep",
        )
    _drop_nulls(sieve, wanted, f"column {name}")


def _drop_unusual(sieve: _Sieve, wanted: Field, name: str) -> None:
    """Drop rows with text that is read as a value of the field only if it is cast on request."""
    _drop_invalid(sieve, wanted, name)
    column = sieve.given.column(name)
    if not (types.is_text(types.canonical(column.type)) and is_parsed(wanted.stored_type)):
        return
    texts = column.cast(pa.string())
    values, odd = usual_values(texts, wanted.stored_type)
    bad = pc.and_(pc.is_null(values), pc.is_valid(texts))
    sieve.drop(
        wanted,
        bad if odd is None else pc.or_(bad, odd),
        Code.VALUE_NOT_REPRESENTABLE,
        f"column {name} holds text that is not {name_of(wanted.type)} in its usual form",
        remedy=f"correct the value, or read other forms as well: casts=[{wanted.name!r}] (--cast {wanted.name})",
    )


def _drop_invalid(sieve: _Sieve, wanted: Field, name: str) -> None:
    """Drop rows with a value that the column's own type does not allow, before anything is computed from it."""
    column = sieve.given.column(name)
    with malformed(sieve.source, name, column):
        bad = validity.invalid(column)
    if bad is not None:
        first = pc.index(bad, pa.scalar(value=True)).as_py()
        sieve.drop(
            wanted,
            bad,
            Code.VALUE_INVALID,
            f"column {name} is {name_of(column.type)} and holds {validity.reason(column, first)}",
        )


def _drop_nulls(sieve: _Sieve, wanted: Field, value_name: str) -> None:
    column = sieve.columns[wanted.name]
    if wanted.nullable or not column.null_count:
        return
    if wanted.name in sieve.lacking:
        filled = pc.and_(pc.equal(sieve.given.column(KIND), int(RowKind.DELETE)), pc.is_null(column))
        places = pa.array(np.where(filled.to_numpy(zero_copy_only=False), len(column), np.arange(len(column))))
        default = validity.masked(default_column(wanted.type, 1))
        column = sieve.columns[wanted.name] = pa.concat_arrays([column, default]).take(places)
    advice = (
        "a key is never null: fill it, or leave the row out"
        if wanted.name in sieve.keys
        else "fill it, or allow nulls with `lakebed table alter`"
    )
    reason = f"{value_name} is null, and is not nullable"
    sieve.drop(wanted, pc.is_null(column), Code.VALUE_NULL, reason, remedy=advice)


def _generate(sieve: _Sieve, wanted: Field) -> None:
    from lakebed.engine.computed_columns import generate

    inputs = pa.RecordBatch.from_arrays([sieve.columns[name] for name in wanted.inputs], names=list(wanted.inputs))
    sieve.columns[wanted.name] = generate(wanted, inputs)
    _drop_nulls(sieve, wanted, f"field {wanted.name}, made of {', '.join(wanted.inputs)} as {wanted.expression},")
    if wanted.name in sieve.given.schema.names:
        _drop_invalid(sieve, wanted, wanted.name)
        given_values, computed = converted(sieve.given.column(wanted.name), wanted.type), sieve.columns[wanted.name]
        differs = pc.fill_null(pc.not_equal(*map(comparable, (given_values, computed))), fill_value=True)
        sieve.drop(
            wanted,
            differs,
            Code.GENERATED_VALUE_MISMATCH,
            f"column {wanted.name} is not {wanted.expression}, by which it is generated",
        )


def _drop_long_keys(sieve: _Sieve, schema: Schema) -> None:
    texts = [f for f in schema.row_key if not f.width]
    # Escaping at most doubles a text, so for most batches no key has to be encoded.
    longest = sum((pc.max(pc.binary_length(sieve.columns[f.name])).as_py() or 0) for f in texts)
    if 2 * longest + 12 * len(schema.row_key) <= KEY_BYTES_MAX:
        return
    keys = pa.RecordBatch.from_arrays([sieve.columns[n] for n in schema.row_key_names], names=schema.row_key_names)
    too_long = pc.greater(pc.binary_length(schema.codec.encode_columns(keys)), KEY_BYTES_MAX)
    said = f"the key is too long; at most {KEY_BYTES_MAX} bytes are allowed when encoded"
    sieve.drop(texts[0], too_long, Code.KEY_TOO_LONG, said)


def default_column(kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of ``rows`` default values, zero or empty: of a delete, which has only a key, in columns that are
    not nullable. No reader sees them.
    """
    return pa.array([_default(kind)], kind).take(pa.array(np.zeros(rows, np.int64)))


def _default(kind: pa.DataType) -> Any:
    """Return the default value, as Arrow takes it for the type; nullable members are null."""
    if pa.types.is_struct(kind):
        members = [kind.field(index) for index in range(kind.num_fields)]
        return {member.name: None if member.nullable else _default(member.type) for member in members}
    if pa.types.is_fixed_size_list(kind):
        return [_default(kind.value_type)] * kind.list_size
    if pa.types.is_nested(kind):
        return []
    if kind == UUID:
        return bytes(16)
    if kind == JSON:
        return "null"
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if pa.types.is_float16(kind):
        return np.float16(0)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return 0
    if pa.types.is_null(kind):
        return None
    return b"" if "binary" in str(kind) else ""
