"""Opens Python objects as rows: Arrow data, frames of other libraries, rows as objects, columns as lists, and files.

:func:`open_stream` takes anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, datasets of PyArrow, frames of
pandas and Polars (lazy ones too), relations of DuckDB, dicts of lists, lists and generators of dicts, of dataclasses,
of Pydantic models or of batches, and paths of files.

Rules. A column of values without a type holds each of them exactly (:mod:`lakebed.write.kept_values`), or the value is
refused. Names of columns count and their order does not. A library is not imported to recognise its objects: if it is
not imported, no object is one of them. A generator is read row by row, and never collected.

Errors: UsageError for an object that has no rows; SchemaMismatchError for values of one column that no type holds.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.members import UnknownMemberError, check_members
from lakebed.model.moments import PER_SECOND, moment_of
from lakebed.model.type_names import name_of
from lakebed.write.kept_values import lost_row, times_of
from lakebed.write.source_rows import WRITE, RowInput, unread

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage

CHUNK_ROWS = 10_000
"""Rows of a generator that become one batch."""

_UNCONVERTIBLE = (pa.ArrowException, TypeError, ValueError, OverflowError)
_KINDS = (
    "give Arrow data, a pandas or Polars frame, a DuckDB relation, a list or generator of dicts, dataclasses or "
    "Pydantic models, a dict of lists, or the path of a file"
)


def open_stream(
    data: Any, schema: Callable[[], Schema], home: Storage | None = None, casts: Collection[str] = ()
) -> RowInput:
    """Return the rows of an object. ``schema`` gives that of the table, which rows without types are read by; ``home``
    is the store of the instance, and ``casts`` the fields that may be cast, for files.

    Raises UsageError for an object that has no rows.
    """
    if isinstance(data, RowInput):
        return data
    if isinstance(data, pa.RecordBatchReader):
        return RowInput.of(data)
    if isinstance(data, str | Path) or _are_paths(data):
        from lakebed.write.input_files import open_files

        return open_files(data, schema(), home, casts=casts)
    wanted = _Wanted(schema, casts)
    with translate_errors(partial(unread, type(data).__name__)):
        reader = _reader(data, wanted)
    if reader is not None:
        return RowInput.of(reader)
    if isinstance(data, Mapping):
        return _rows_of_dict(data, wanted)
    if isinstance(data, Iterable) and not isinstance(data, bytes | bytearray):
        return _items(data, wanted)
    raise _no_rows(data)


def _no_rows(data: Any) -> Error:
    return Code.SOURCE_UNSUPPORTED(f"cannot read rows from {type(data).__name__}: {_KINDS}")


def _are_paths(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(one, str | Path) for one in data)


# -- Arrow data and frames ------------------------------------------------------------------------------------------


def _reader(data: Any, wanted: _Wanted) -> pa.RecordBatchReader | None:
    """Return an Arrow stream over a table or frame of any library; None for other objects."""
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if _is_a(data, "pyarrow.dataset", "Dataset"):
        return data.scanner().to_reader()
    if _is_a(data, "pyarrow.dataset", "Scanner"):
        return data.to_reader()
    if _is_a(data, "pandas", "DataFrame"):
        return _pandas_rows(data, wanted).to_reader()
    if _is_a(data, "polars", "LazyFrame"):
        return _lazy_rows(data)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    return None


def _is_a(data: Any, module: str, name: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and isinstance(data, getattr(found, name, ()))


def _pandas_rows(frame: Any, wanted: _Wanted) -> pa.Table:
    """Return the columns of a pandas frame, in which NaN is null; columns of objects are values of Python. Raises
    UsageError for an index with a name.
    """
    names = [str(name) for name in frame.index.names if name is not None]
    if names:
        raise Code.SOURCE_UNSUPPORTED(
            f"{WRITE}: the frame has {', '.join(names)} as its index, which is no column: give frame.reset_index() to "
            "write it too, or frame.reset_index(drop=True) to leave it out"
        )
    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise Code.COLUMN_UNEXPECTED(
            f"{WRITE}: the frame has a column named {shown(odd[0])}; names of columns are texts: rename it",
            columns=[str(name) for name in odd],
        )
    twice = sorted(set(frame.columns[frame.columns.duplicated()]))
    if twice:
        raise Code.COLUMN_DUPLICATE(f"{WRITE}: the frame has two columns named {twice[0]}; rename one", columns=twice)
    of_objects = [name for name in frame.columns if str(frame[name].dtype) == "object"]
    typed = pa.Table.from_pandas(frame.drop(columns=of_objects), preserve_index=False)
    columns = {name: typed.column(name) for name in typed.column_names}
    columns |= {name: wanted.column(name, frame[name], 0) for name in of_objects}
    return pa.table({name: columns[name] for name in frame.columns})


def _lazy_rows(frame: Any) -> pa.RecordBatchReader:
    """Return the rows of a lazy frame, computed as they are read."""
    batches = iter(frame.collect_batches())
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_stream(frame.collect())
    head = first.to_arrow()
    rows = chain([head], (batch.to_arrow() for batch in batches))
    return pa.RecordBatchReader.from_batches(head.schema, (part for table in rows for part in table.to_batches()))


# -- rows and columns of Python values ------------------------------------------------------------------------------


def _rows_of_dict(data: Mapping[Any, Any], wanted: _Wanted) -> RowInput:
    """Open a dict of columns."""
    _check_column_names(data)
    single = [
        name for name, values in data.items() if isinstance(values, str | bytes) or not hasattr(values, "__len__")
    ]
    if single:
        raise Code.SOURCE_UNSUPPORTED(
            f"{WRITE}: column {single[0]} is {shown(data[single[0]])}, not a list of values; one row is a list of one "
            "dict: [{…}]"
        )
    lengths = {name: len(values) for name, values in data.items()}
    if len(set(lengths.values())) > 1:
        short, long = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise Code.SOURCE_UNSUPPORTED(
            f"{WRITE}: column {short} has {lengths[short]:,} values, and {long} has {lengths[long]:,}"
        )
    arrays = {name: wanted.column(name, values, 0) for name, values in data.items()}
    return RowInput.of(pa.table(arrays).to_reader())


def _items(data: Iterable[Any], wanted: _Wanted) -> RowInput:
    """Open a list or generator, of batches or of rows."""
    items = iter(data)
    with translate_errors(partial(unread, "their source")):
        head = list(islice(items, 1))
    if not head:
        return RowInput.of_batches(wanted.schema().arrow, iter(()))
    everything = chain(head, _guarded(items))
    reader = _reader(head[0], wanted)
    if reader is not None:
        others = (_checked_reader(item, wanted) for item in islice(everything, 1, None))
        return RowInput.of_batches(reader.schema, _batches(chain([reader], others)))
    rows = map(_row, everything)
    batches = _row_batches(rows, wanted, len(data) if isinstance(data, Sequence) else CHUNK_ROWS)
    first = next(batches)
    return RowInput.of_batches(first.schema, chain([first], batches))


def _guarded(items: Iterator[Any]) -> Iterator[Any]:
    """Return the items of a generator, which may raise anything."""
    while True:
        with translate_errors(partial(unread, "their source")):
            found = list(islice(items, 1))
        if not found:
            return
        yield found[0]


def _batches(readers: Iterable[pa.RecordBatchReader]) -> Iterator[pa.RecordBatch]:
    for reader in readers:
        with translate_errors(partial(unread, "their source")):
            yield from reader


def _checked_reader(item: Any, wanted: _Wanted) -> pa.RecordBatchReader:
    reader = _reader(item, wanted)
    if reader is None:
        raise _no_rows(item)
    return reader


def _row(item: Any) -> Mapping[str, Any]:
    """Return a row by the names of its columns."""
    if isinstance(item, Mapping):
        return item
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if hasattr(item, "model_dump"):
        return dict(item.model_dump())
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    raise Code.SOURCE_UNSUPPORTED(f"{WRITE}: a row is {shown(item)}; give dicts, dataclasses or Pydantic models")


def _row_batches(rows: Iterator[Mapping[str, Any]], wanted: _Wanted, size: int) -> Iterator[pa.RecordBatch]:
    before = 0
    while chunk := list(islice(rows, size)):
        names = dict.fromkeys(name for row in chunk for name in row)
        _check_column_names(names)
        arrays = [wanted.column(name, [row.get(name) for row in chunk], before) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))
        before += len(chunk)


def _check_column_names(names: Iterable[Any]) -> None:
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise Code.COLUMN_UNEXPECTED(
            f"{WRITE}: a column is named {shown(odd[0])}; names of columns are texts", columns=[str(odd[0])]
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """What gives the schema of a table, and the fields that may be cast."""

    schema: Callable[[], Schema]
    casts: Collection[str]

    def column(self, name: str, values: Any, before: int) -> pa.Array | pa.ChunkedArray:
        """Return the values of a column as :func:`_column_of`, of their own type if they may be cast."""
        field = self.schema().by_name.get(name)
        return _column_of(name, values, before, None if field is None or name in self.casts else field.stored_type)


def _column_of(name: str, values: Any, before: int, wanted: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    """Return values as a column that holds each of them exactly: of their own type, or of the field's if that is no
    form of it, such as a map.

    Raises SchemaMismatchError for the first value that no such column holds.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if getattr(values, "ndim", 1) > 1:
        # An array of NumPy whose rows are values.
        values = list(values)
    found = _kept(values, None)
    if isinstance(found, pa.Array | pa.ChunkedArray) and (
        wanted is None or types.widens(found.type, wanted) or types.exact(found.type, wanted)
    ):
        return found
    if wanted is not None:
        _check_members(name, values, wanted, before)
    made = None if wanted is None else _kept(values, wanted)
    if isinstance(made, pa.Array | pa.ChunkedArray):
        return made
    if isinstance(found, pa.Array | pa.ChunkedArray) and made is None:
        # The conformer says why the type does not fit.
        return found
    lost = made if made is not None else found
    if lost is None:
        return _inferred(name, values, before)
    raise _lost_value(name, list(values)[lost], before + lost, wanted)


def _kept(values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray | int | None:
    """Return values as a column of the type, or of their own; the position of the first value that it would not hold;
    None if there is no such column.
    """
    if kind is not None and pa.types.is_timestamp(kind) and (times := times_of(values, kind)) is not None:
        return times
    found = _made_by_arrow(values, kind)
    if found is None:
        return None
    lost = lost_row(values, found)
    if lost is None:
        return found
    if kind is None and pa.types.is_timestamp(found.type) and found.type.unit != "ns":
        # Arrow chooses microseconds for each datetime, also for a Timestamp of pandas.
        finer = _kept(values, pa.timestamp("ns", found.type.tz))
        return lost if finer is None else finer
    return lost


def _made_by_arrow(values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray | None:
    """Return the column that Arrow makes of values; None if it makes none."""
    for from_pandas in (None, True):
        # Only values of pandas are read with its nulls, NA and NaT. They include NaN, which is compared afterwards.
        with suppress(*_UNCONVERTIBLE):
            return pa.array(values, kind, from_pandas=from_pandas)
    return None


def _check_members(name: str, values: Any, wanted: pa.DataType, before: int) -> None:
    """Raise SchemaMismatchError for a member that the type does not have, with the row of the first one."""
    try:
        check_members(values, wanted)
    except UnknownMemberError:
        for row, value in enumerate(values, before):
            try:
                check_members([value], wanted)
            except UnknownMemberError as error:
                raise Code.VALUE_NOT_REPRESENTABLE(
                    f"{WRITE}: row {row}, column {name} {error}", column=name, row=row
                ) from error
        raise


def _lost_value(name: str, value: Any, row: int, wanted: pa.DataType | None) -> Error:
    """Return the error of a value that the field would hold as another one."""
    held = "a column of one type" if wanted is None else f"the field of {name_of(wanted)}"
    return Code.VALUE_NOT_REPRESENTABLE(
        f"{WRITE}: column {name} has {shown(value)} ({type(value).__name__}) in row {row}, which {held} cannot keep; "
        f"{_remedy(value, wanted)}",
        column=name,
        row=row,
    )


def _remedy(value: Any, wanted: pa.DataType | None) -> str:
    moment = moment_of(value)
    if isinstance(value, dt.time) and value.tzinfo is not None:
        return "a time has no offset there: store a datetime, or leave the offset out by .replace(tzinfo=None)"
    if moment is not None and wanted is not None and pa.types.is_timestamp(wanted):
        if moment.zoned and wanted.tz is None:
            return (
                "the field has no time zone: give its clock time by .replace(tzinfo=None), or make the field "
                f"timestamp[{wanted.unit}, tz=UTC]"
            )
        if not moment.zoned and wanted.tz is not None:
            return "the field has a time zone, and the value has none: give it by .replace(tzinfo=…)"
        if moment.in_units(PER_SECOND[wanted.unit]) is None:
            return "round it, or choose a field of a finer unit"
    return "correct the value, or leave the row out"


def _inferred(name: Any, values: Iterable[Any], before: int) -> pa.Array:
    """Return values as a column.

    Raises SchemaMismatchError that names the first that is of another type than those before.
    """
    from_pandas = _is_a(values, "pandas", "Series")
    try:
        return pa.array(values, from_pandas=from_pandas)
    except _UNCONVERTIBLE as error:
        kept, first = list(values), None
        for row, value in enumerate(kept):
            try:
                pa.array(kept[: row + 1] if first is None else [kept[first], value], from_pandas=from_pandas)
            except _UNCONVERTIBLE:
                why = "which no Arrow type holds"
                if first is not None:
                    why = f"and row {before + first} has {shown(kept[first])}; the values of a column have one type"
                raise Code.VALUE_NOT_REPRESENTABLE(
                    f"{WRITE}: column {name} has {shown(value)} ({type(value).__name__}) in row {before + row}, {why}",
                    column=str(name),
                    row=before + row,
                ) from error
            if first is None and value is not None and value == value:  # noqa: PLR0124 - not NaN, which may be null
                first = row
        raise Code.VALUE_NOT_REPRESENTABLE(
            f"{WRITE}: column {name} cannot be read: {error_text(error)}", column=str(name)
        ) from error
