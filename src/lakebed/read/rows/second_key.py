"""Rows found by the values of indexed fields, through an index that is a table of entries.

An entry has the values of the indexed fields of a stored row, and its key. A read by values takes the keys of the
entries that begin with these values, reads the rows of these keys, and returns those that have the values. So an entry
that is outdated costs a lookup, and never gives a row.

No row is missed either: :class:`~lakebed.model.state.table_state.IndexCoverage` says of which files an index has the
entries. Keys in files that it does not have are found by reading the indexed fields of these files. If it cannot say,
because it was built after the version that is read, or references were brought back since, all rows are read.

Core types: :class:`SecondKey`, :class:`Values`. Errors: UsageError for fields without an index, BadKeyError for a
value that a field cannot have. Source: docs/decisions/0078.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code, NotRetainedError
from lakebed.model.checks import shown
from lakebed.model.keys import EncodedRange, KeyCodec, encode_scalar, iter_ranges, successor
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.schema import Field, Schema
from lakebed.model.state.table_state import TableIndex, TableState
from lakebed.read.rows.conditions import keys_of
from lakebed.read.rows.key_ranges import is_value
from lakebed.read.rows.plan import plan
from lakebed.read.rows.visible_rows import both, raw_state

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import ViewSource
    from lakebed.read.rows.conditions import Condition
    from lakebed.read.rows.reader import Reader

TEXT_BYTES_MAX = 256
"""The bytes of a text or of bytes that an entry has: a key has at most 8 KiB, and a value may have any size."""

FEW_ROWS = 8
"""Up to as many rows are compared and encoded value by value: a kernel of Arrow takes as long for one as for a
thousand."""

FEW_KEYS = 256
"""The most keys of which the rows are looked up for a predicate: more may cost as much as to read all rows."""

VALUES_MAX = 16
"""The most values of indexed fields that are looked up for a predicate."""

KEYS_MAX = 100_000
"""The most keys that are looked up. The rows of more are found by reading all rows, in bounded memory."""


# -- entries -----------------------------------------------------------------------------------------------------------


def entry_schema(schema: Schema, on: Sequence[Field]) -> Schema:
    """Return the schema of the entries of an index: the indexed fields, then the other row key fields."""
    others = [field for field in schema.row_key if field not in on]
    return Schema({field.name: field.type for field in (*on, *others)})


def cut(column: pa.Array) -> pa.Array:
    """Return the column with texts and bytes that are as long as an entry's at most."""
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)):
        return column
    if (pc.max(pc.binary_length(column)).as_py() or 0) <= TEXT_BYTES_MAX:
        return column
    return pa.array([None if one is None else cut_value(one) for one in column.to_pylist()], kind)


def cut_value(value: Any) -> Any:
    """Return the beginning of a text or of bytes that an entry has; other values as they are."""
    if isinstance(value, bytes):
        return value[:TEXT_BYTES_MAX]
    if isinstance(value, str) and len(value) * 4 > TEXT_BYTES_MAX:
        return value.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
    return value


def as_of(fed: ViewSource, version: int) -> ViewSource:
    """Return what an index covered when it had this version of its source at most.

    What it covers now says nothing of files that later feeds did not find any more.
    """
    coverage = fed.index
    if fed.version <= version or coverage is None:
        return fed
    then, sequence = next((one for one in reversed(coverage.earlier) if one[0] <= version), (0, 1))
    return replace(fed, version=then, index=replace(coverage, sequence=sequence, built=coverage.built if then else 0))


def uncovered(state: TableState, fed: ViewSource) -> tuple[DataFile, ...]:
    """Return the files with rows of a state of which an index has no entries. Linear, unless there are none."""
    coverage = fed.index
    assert coverage is not None
    rewritten = state.rewritten_version > fed.version
    if state.next_sequence <= coverage.sequence and not rewritten:
        return ()
    found: dict[str, DataFile] = {}
    others = frozenset(coverage.files)
    for held in state.references.values():
        for one in held:
            if one.file.id in others:
                continue
            committed = state.files[one.file.id]
            if committed.sequence_hi >= coverage.sequence or (rewritten and committed.added > fed.version):
                found[one.file.id] = one.file
    return tuple(found.values())


def answers(fed: ViewSource, state: TableState) -> bool:
    """Return whether an index has the entries of all files of a state but the uncovered ones.

    It may lack those of files that were brought back since it was fed.
    """
    return fed.index is not None and bool(fed.index.built) and state.restored_version <= fed.version


# -- values ------------------------------------------------------------------------------------------------------------


class Values(Struct, frozen=True):
    """The values that rows shall have in the fields of an index."""

    index: TableIndex
    fields: tuple[Field, ...]
    contents: tuple[Any, ...]

    @classmethod
    def of(cls, state: TableState, by: Any, visible: Collection[str] | None = None) -> Values:
        """Check the argument ``by`` of a read; errors name only ``visible`` fields. Raises UsageError, BadKeyError."""
        schema = state.created
        if not isinstance(by, Mapping) or not by:
            raise Code.ARGUMENT_INVALID(f"by = {shown(by)}: must be values by field, such as {{'tailnum': 'N14228'}}")
        index = _index_of(state, schema.project(tuple(by)), schema.names if visible is None else visible)
        known = {field.id: field for field in schema.fields}
        fields = tuple(known[one] for one in index.fields)
        contents = []
        for field in fields:
            if by[field.name] is None:
                raise Code.KEY_NULL(
                    f"by: an index has no rows with null in {field.name}; use scan(where='{field.name} IS NULL')",
                    column=field.name,
                )
            contents.append(field.key_type.content_of(by[field.name], field.name))
        return cls(index, fields, tuple(contents))

    @property
    def where(self) -> str:
        """The same as a predicate in SQL."""
        parts = []
        for field, content in zip(self.fields, self.contents, strict=True):
            name = field.name.replace('"', '""')
            parts.append(f'"{name}" = {field.key_type.literal(field.key_type.array([content])[0])}')
        return " AND ".join(parts)

    def conjoined(self, where: str | None) -> str:
        """Return the predicate that is true if rows have the values, and ``where`` is."""
        return both(self.where, where)

    @property
    def begin(self) -> bytes:
        """The encoded values with which the keys of entries begin."""
        pairs = zip(self.fields, self.contents, strict=True)
        return b"".join([field.key_type.encode(cut_value(content)) for field, content in pairs])

    def among(self, rows: pa.RecordBatch | pa.Table) -> Any:
        """Return the rows that have the values, in their order."""
        if rows.num_rows <= FEW_ROWS:
            wanted = [kind.key_type.encode(one) for kind, one in zip(self.fields, self.contents, strict=True)]
            columns = [rows.column(field.name) for field in self.fields]
            scalars = ([column[row] for column in columns] for row in range(rows.num_rows))
            same = [
                all(one.is_valid for one in row) and list(map(encode_scalar, self.fields, row)) == wanted
                for row in scalars
            ]
            return rows if all(same) else rows.filter(pa.array(same, pa.bool_()))
        for field, content in zip(self.fields, self.contents, strict=True):
            rows = rows.filter(_equal(rows.column(field.name), field, content))
        return rows

    def possible(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the stored rows of keys that may have the values: of a partial row, some may be those of others."""
        import pyarrow.compute as pc

        if len(self.fields) == 1 or KIND not in rows.schema.names:
            return self.among(rows)
        partial = pc.fill_null(pc.equal(rows.column(KIND), int(RowKind.PARTIAL)), fill_value=False)
        fits = None
        for field, content in zip(self.fields, self.contents, strict=True):
            column = rows.column(field.name)
            here = pc.fill_null(_equal(column, field, content), fill_value=False)
            here = pc.or_(here, pc.and_(partial, column.is_null()))
            fits = here if fits is None else pc.and_(fits, here)
        return rows.filter(fits)


def _index_of(state: TableState, names: Sequence[str], visible: Collection[str]) -> TableIndex:
    """Return the index of the fields of these names. Raises UsageError.

    An index of more fields would not do: rows with a null in one of the others have no entry.
    """
    wanted = {state.created.by_name[name].id for name in names}
    for index in state.indexes:
        if set(index.fields) == wanted:
            return index
    known = {field.id: field.name for field in state.created.fields}
    fields = [[known[one] for one in index.fields] for index in state.indexes]
    there = [f"({', '.join(some)})" for some in fields if set(some) <= set(visible)]
    has = f"its indexes are of {', '.join(there)}" if there else "it has none"
    raise Code.ARGUMENT_INVALID(
        f"by: version {state.version} of the table has no index of {', '.join(names)}; {has}. Make one "
        "with Instance.create_index, or read all rows with scan(where=…)",
        table=state.table,
    )


def values_of(condition: Condition, state: TableState) -> Iterator[list[Values]]:
    """Return for each index that a condition needs the values of: rows with others do not pass it."""
    known = {field.id: field for field in state.created.fields}
    for index in state.indexes:
        fields = tuple(known[one] for one in index.fields)
        boxes = keys_of(condition, KeyCodec(fields)).boxes
        found: list[Values] = []
        for box in boxes:
            sides = [
                [KeyCodec((field,)).decode_bound(keys.min).values[0] for keys in ranges]
                for place, ranges in sorted(box)
                if all(is_value(field := fields[place], keys) for keys in ranges)
            ]
            if len(sides) < len(fields) or math.prod(map(len, sides)) > VALUES_MAX:
                break
            found += [Values(index, fields, contents) for contents in itertools.product(*sides)]
        else:
            if len(found) <= VALUES_MAX:
                yield found


def _equal(column: pa.Array | pa.ChunkedArray, field: Field, content: Any) -> Any:
    """Return whether each value is the one with this content, as keys are equal: null for null."""
    import pyarrow.compute as pc

    kind = field.key_type
    if not kind.has_nan:
        return pc.equal(column, kind.array([content])[0])
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # Codes have no NaN, and one zero.
    valid = column.is_valid()
    same = pc.equal(kind.comparable(kind.one_form(column.filter(valid))), kind.comparable(kind.array([content]))[0])
    return pc.replace_with_mask(pa.nulls(len(column), pa.bool_()), valid, same)


def check_alone(*, raw: Any, apply: Any, key: Sequence[Any] = ()) -> None:
    """Raise UsageError for other ways to choose rows beside ``by``."""
    if key or raw is not False or apply is not None:
        raise Code.ARGUMENTS_CONFLICT("by finds rows by indexed fields: leave out the key, raw and apply")


# -- reads -------------------------------------------------------------------------------------------------------------


class Entries(Protocol):
    """The versions of the table that has the entries of an index."""

    @property
    def log(self) -> Any:
        """Its log, whose head is the latest known state."""

    @property
    def reader(self) -> Reader:
        """The reader of its data files."""

    def state(self) -> TableState:
        """Return the latest state; looks for a newer one."""


class SecondKey(Struct, frozen=True):
    """The rows of a table at a state, by values of indexed fields. ``related`` opens tables by their ids."""

    state: TableState
    reader: Reader
    related: Callable[[str], Entries] | None

    def rows(self, values: Values, names: Sequence[str]) -> pa.Table | None:
        """Return the rows with the values, in key order; None if all rows have to be read."""
        keys = self.candidates(values)
        if keys is None:
            return None
        needed = tuple(dict.fromkeys((*names, *(field.name for field in values.fields))))
        if len(keys) == 1:
            rows = self.reader.get_encoded(self.state, keys[0], needed)
        else:
            rows = self.reader.get_many(self.state, keys, needed)
        found: pa.Table = values.among(rows)
        return found if needed == names else found.select(list(names))

    def narrowed(self, values: Values, ranges: Sequence[EncodedRange]) -> Sequence[EncodedRange]:
        """Return the parts of the ranges in which rows may have the values; the ranges if that is not known."""
        keys = self.candidates(values)
        if keys is None:
            return ranges
        return points_of(keys, ranges)

    def few_keys(self, condition: Condition) -> list[bytes] | None:
        """Return keys, ascending, among which are those of all rows that pass a condition; None if no index has few."""
        for values in values_of(condition, self.state):
            keys: set[bytes] = set()
            for one in values:
                found = self.candidates(one)
                if found is None or len(found) + len(keys) > FEW_KEYS:
                    break
                keys.update(found)
            else:
                return sorted(keys)
        return None

    def candidates(self, values: Values) -> list[bytes] | None:
        """Return keys, ascending, among which are those of all rows with the values; None if they are too many, or not
        known.
        """
        if self.related is None:
            return None
        entries = self.related(values.index.table)
        try:
            return self._candidates(entries, values)
        except NotRetainedError:
            # The known state of the index is old, and its files were collected.
            entries.state()
        return self._candidates(entries, values)

    def _candidates(self, entries: Entries, values: Values) -> list[bytes] | None:
        """Return the keys by the known state of the index, or by the latest if there are files that this lacks."""
        known = entries.log.head.state
        fed, late = self._coverage(known)
        if late or not known.version:
            known = entries.state()
            fed, late = self._coverage(known)
        if fed is None or fed.index is None or known.dropped or not answers(fed, self.state):
            return None
        schema, ids = self.state.created, (*fed.index.fields, *fed.index.key_fields)
        places = [ids.index(field.id) for field in schema.row_key]
        keys: set[bytes] = set()
        for rows in _entries(entries.reader, known, values):
            columns = [rows.column(place) for place in places]
            if rows.num_rows <= FEW_ROWS:
                for scalars in zip(*columns, strict=True):
                    keys.add(b"".join(map(encode_scalar, schema.row_key, scalars)))
            else:
                named = pa.RecordBatch.from_arrays(columns, schema.row_key_names)
                keys.update(schema.codec.encode_columns(named).to_pylist())
            if len(keys) > KEYS_MAX:
                return None
        for rows in self._stored(late, values):
            keys.update(schema.codec.encode_columns(rows).to_pylist())
            if len(keys) > KEYS_MAX:
                return None
        return sorted(keys)

    def _coverage(self, index: TableState) -> tuple[ViewSource | None, Sequence[DataFile]]:
        """Return what a state of an index covers of this version, and the files that it does not cover."""
        if index.view is None:
            return None, ()
        fed = as_of(index.view, self.state.version)
        return fed, uncovered(self.state, fed)

    def _stored(self, files: Sequence[DataFile], values: Values) -> Iterator[pa.RecordBatch]:
        """Return the stored rows of files of keys that may have the values."""
        if not files:
            return
        raw = raw_state(self.state).created
        kinds = [KIND] if KIND in raw.by_name else []
        names = tuple(dict.fromkeys((*raw.row_key_names, *(field.name for field in values.fields), *kinds)))
        for file in files:
            with closing(self.reader.stored(file, raw, names)) as rows:
                for batch in rows:
                    yield values.possible(batch)


def points_of(keys: Sequence[bytes], ranges: Sequence[EncodedRange]) -> tuple[EncodedRange, ...]:
    """Return the ranges of single keys that lie in the ranges."""
    points = [EncodedRange(key, successor(key)) for key in keys]
    return tuple(iter_ranges([point.intersect(one) for one in ranges for point in points]))


def _entries(reader: Reader, known: TableState, values: Values) -> Iterator[pa.RecordBatch]:
    """Return the entries with the values, some of them more than once."""
    begin = values.begin
    few = reader.starting_with(known, begin)
    if few is not None:
        yield from few
        return
    planned = plan(replace(known, merge=KEEP_ALL), [EncodedRange(begin, successor(begin))])
    with closing(reader.scan(planned, known.created.names, None)) as rows:
        yield from rows
