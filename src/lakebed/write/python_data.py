"""Opens Python objects as rows: Arrow data, frames of other libraries, rows as objects, columns as lists, and files.

:func:`open_stream` takes anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, datasets of PyArrow, frames of
pandas and Polars (lazy ones too), relations of DuckDB, dicts of lists, lists and generators of dicts, of dataclasses,
of Pydantic models or of batches, and paths of files.

Rules. A column of values without a type holds each of them exactly, or the value is
refused. Names of columns count and their order does not. A library is not imported to recognise its objects: if it is
not imported, no object is one of them. A generator is read row by row, and never collected.

Errors: UsageError for an object that has no rows; SchemaMismatchError for values of one column that no type holds.

*Whether an Arrow column holds the Python values that it was made of, exactly.*

Arrow converts many values to what they are not: it cuts nanoseconds of a Timestamp of pandas, stores the UTC of an
aware datetime in a column without a zone, drops the offset of a time and the members of a dict that a struct lacks,
rounds 1.5 to the integer, and makes -1 of the largest ``numpy.uint64``. So each column is compared with its values:
:func:`lost_row` finds the first that is not the same in the column.

Rules. A value is *kept* if it is the same number, text, bytes, instant or clock time, and null only if it was missing.
A text is no list. Whole numbers are also accepted for times, in the unit of the column, bytes for text and text for
bytes as UTF-8. A boolean is no number. Exact arithmetic of Python, and nothing of Arrow's conversions. Types of which
Arrow keeps each value, or raises, are not compared. Pure: no I/O.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import sys
import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import error_text, translate_errors
from lakebed.model.members import UnknownMemberError, check_members
from lakebed.model.moments import PER_SECOND, is_missing, moment_of
from lakebed.model.type_names import UUID, name_of
from lakebed.write.source_rows import WRITE, RowInput, unread

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage

_DAY_S = 86_400
_EPOCH_DAY = dt.date(1970, 1, 1)
_NONE = type(None)

_SURE: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (pa.types.is_integer, frozenset({int, _NONE})),
    (pa.types.is_float64, frozenset({float, int, _NONE})),
    (pa.types.is_boolean, frozenset({bool, _NONE})),
    (pa.types.is_string, frozenset({str, _NONE})),
    (pa.types.is_binary, frozenset({bytes, _NONE})),
    (pa.types.is_decimal, frozenset({Decimal, int, _NONE})),
    (pa.types.is_date32, frozenset({int, _NONE})),
    (pa.types.is_time, frozenset({int, _NONE})),
    (pa.types.is_timestamp, frozenset({int, _NONE})),
)
"""The types of Python of which Arrow keeps each value in a type, raises, or makes null what is no number."""


def lost_row(values: Any, made: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the position of the first value that is another one in the column that Arrow made of the values; None if
    it holds all.

    Values of an array or series with a type are kept by Arrow. NaN may be null in a series of pandas.
    """
    kind = getattr(values, "dtype", None)
    if kind is not None and str(kind) != "object":
        return None
    is_series = type(values).__module__.startswith("pandas.")
    given = values if isinstance(values, list) else list(values)
    if is_series:
        given = [None if isinstance(one, float | np.floating) and np.isnan(one) else one for one in given]
        made = pc.if_else(pc.is_nan(made), None, made) if pa.types.is_floating(made.type) else made
    before = 0
    for chunk in made.chunks if isinstance(made, pa.ChunkedArray) else [made]:
        lost = first_lost(given[before : before + len(chunk)], chunk)
        if lost is not None:
            return before + lost
        before += len(chunk)
    return None


def times_of(values: Iterable[Any], kind: pa.DataType) -> pa.Array | int | None:
    """Return datetimes as a column of timestamps, exactly; the position of the first that the type does not hold; None
    if there are other values.
    """
    numbers: list[int | None] = []
    for row, value in enumerate(values):
        moment = moment_of(value)
        if moment is None and not is_missing(value):
            return None
        number = None if moment is None else moment.in_units(PER_SECOND[kind.unit])
        if moment is not None and (
            number is None or moment.zoned == (kind.tz is None) or not -(2**63) <= number < 2**63
        ):
            return row
        numbers.append(number)
    return pa.array(numbers, pa.int64()).view(kind)


def first_lost(values: Sequence[Any], column: pa.Array) -> int | None:
    """Return the position of the first value that is another one in the column; None if there is none."""
    kinds = set(map(type, values))
    nulls = values.count(None) if _NONE in kinds else 0
    if nulls == column.null_count and any(kinds <= sure for is_kind, sure in _SURE if is_kind(column.type)):
        return None
    if kinds <= _PYTHON_TIMES and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        zoned = column.type.tz is not None
        if not zoned and {one.tzinfo for one in values if one is not None} <= {None}:
            return None
        wrong = (row for row, one in enumerate(values) if one is not None and (one.utcoffset() is not None) != zoned)
        return next(wrong, None)
    given = [one.as_py() if isinstance(one, pa.Scalar) else one for one in values] if _has_scalars(kinds) else values
    null = [is_missing(one) for one in given]
    stored = column.is_null().to_pylist()
    lost = next((row for row, (a, b) in enumerate(zip(null, stored, strict=True)) if a != b), None)
    # The rows before are compared all the same.
    there = [row for row, missing in enumerate(null[:lost]) if not missing]
    inside = _first_lost_inside([given[row] for row in there], column.slice(0, len(null[:lost])).drop_null())
    return lost if inside is None else there[inside]


_PYTHON_TIMES = frozenset({dt.datetime, _NONE})

_SPELT = (str, bytes, bytearray, memoryview)
"""Values that Arrow makes lists of characters or of numbers."""


def _has_scalars(kinds: Iterable[type]) -> bool:
    return any(issubclass(kind, pa.Scalar) for kind in kinds)


def _first_lost_inside(values: Sequence[Any], column: pa.Array) -> int | None:
    """As :func:`first_lost`, without nulls."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _first_lost_member(values, column)
    if pa.types.is_map(kind):
        pairs = [list(one.items() if isinstance(one, Mapping) else one) for one in values]
        items = list(chain.from_iterable(pairs))
        found = [
            first_lost([pair[place] for pair in items], side)
            for place, side in enumerate((_entries(column, column.keys), _entries(column, column.items)))
        ]
        return _row_of_item(found, pairs)
    if types.is_list(kind):
        spelt = next((row for row, one in enumerate(values) if isinstance(one, _SPELT)), None)
        lists = [_items_of(one) for one in values[:spelt]]
        items = column.slice(0, len(lists)).flatten()
        inside = _row_of_item([first_lost(list(chain.from_iterable(lists)), items)], lists)
        return spelt if inside is None else inside
    same = _comparison(kind)
    return next((row for row, pair in enumerate(zip(values, _stored(column), strict=True)) if not same(*pair)), None)


def _first_lost_member(values: Sequence[Any], column: pa.Array) -> int | None:
    names = {member.name for member in column.type}
    rows = [_members_of(one) for one in values]
    found = [row for row, members in enumerate(rows) if members is None or not names.issuperset(members)][:1]
    rows = rows[: found[0]] if found else rows
    for place, name in enumerate(member.name for member in column.type):
        lost = first_lost([row.get(name) for row in rows if row is not None], column.field(place).slice(0, len(rows)))
        found += [] if lost is None else [lost]
    return min(found, default=None)


def _members_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a struct by name; None for values without names, which Arrow takes in their order, and for
    pairs of which two have one name.
    """
    if isinstance(value, Mapping):
        return value
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return None
    members = dict(value)
    return members if len(members) == len(value) else None


def _entries(column: pa.Array, side: pa.Array) -> pa.Array:
    """Return the keys or items of a map column without those before its first row and after its last."""
    offsets = column.offsets
    return side.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()) if len(column) else side.slice(0, 0)


def _items_of(values: Any) -> Sequence[Any]:
    is_plain = isinstance(values, np.ndarray) and values.dtype.kind in "biufSU"
    return values.tolist() if is_plain else values if isinstance(values, list | tuple) else list(values)


def _row_of_item(found: Iterable[int | None], lists: Sequence[Sequence[Any]]) -> int | None:
    """Return the list that has the first of some items, by their positions among the items of all lists."""
    first = min((one for one in found if one is not None), default=None)
    return None if first is None else bisect_right(list(accumulate(map(len, lists))), first)


# -- single values ----------------------------------------------------------------------------------------------------


def _stored(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python has them: times as their numbers, UUIDs as their bytes."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return list(column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    if pa.types.is_string(kind):
        # Arrow takes bytes for text, and does not check them here.
        return list(column.view(pa.binary()).to_pylist())
    return list((column.storage if isinstance(column, pa.ExtensionArray) else column).to_pylist())


def _comparison(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    """Return the function that tells whether a value is the same as one of a column of the type."""
    if types.is_number(kind):
        return _is_number
    if pa.types.is_boolean(kind):
        return lambda value, stored: isinstance(value, bool | np.bool_) and bool(value) == stored
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return _dates_of(kind)
    if pa.types.is_time(kind):
        return _clock_of(kind)
    if kind == UUID:
        return lambda value, stored: _uuid_bytes(value) == stored
    if types.is_text(kind) or types.is_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        return lambda value, stored: _as_bytes(value) == _as_bytes(stored)
    # No field has another type, so the conformer refuses the column.
    return lambda *_: True


def _is_number(value: Any, stored: Any) -> bool:
    given = _exact_number(value)
    if isinstance(given, float) and isinstance(stored, float):
        same_sign = math.copysign(1, given) == math.copysign(1, stored)
        return (given == stored and same_sign) or (math.isnan(given) and math.isnan(stored))
    return given is not None and bool(given == stored)


def _exact_number(value: Any) -> int | float | Decimal | None:
    """Return a number of Python that is the same; None for a value that is no number, and a long double."""
    if isinstance(value, bool | np.timedelta64) or (isinstance(value, Decimal) and not value.is_finite()):
        return None
    if isinstance(value, int | float | Decimal):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating) and value.dtype.itemsize <= 8:
        return float(value)
    return None


def _dates_of(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    # A date is the time of its first midnight.
    per_second = 1 if pa.types.is_date32(kind) else PER_SECOND[kind.unit]
    scale = _DAY_S if pa.types.is_date32(kind) else 1
    zoned = getattr(kind, "tz", None) is not None

    def is_date(value: Any, stored: int) -> bool:
        moment = moment_of(value)
        if moment is not None:
            return moment.zoned == zoned and moment.in_units(per_second) == stored * scale
        if isinstance(value, dt.date):
            return not zoned and (value - _EPOCH_DAY).days * _DAY_S * per_second == stored * scale
        return _is_whole(value, stored)

    return is_date


def _clock_of(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    per_second = PER_SECOND[kind.unit]

    def is_clock(value: Any, stored: int) -> bool:
        if not isinstance(value, dt.time):
            return _is_whole(value, stored)
        since = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return value.tzinfo is None and since * per_second == stored * 1_000_000

    return is_clock


def _is_whole(value: Any, stored: int) -> bool:
    return not isinstance(value, float | Decimal) and _is_number(value, stored)


def _uuid_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return uuid.UUID(value).bytes
    return value.bytes if isinstance(value, uuid.UUID) else _as_bytes(value)


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


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
