"""The functions of aggregates: they compute one value for each group of rows, for a whole column at once.

Nulls are ignored; a group of only nulls gives null. Integers are summed and multiplied exactly: a result that overflows
the column's type is an error. Sums and products of floats depend in their last bits on the grouping of rows, and KLL
sketches are randomised.

Errors: :class:`DoesNotFit` and :class:`NotASketch`, with the number of the group.

*Sums and extremes of groups by NumPy, for columns of numbers and times of a fixed width.*

Rows of a group are neighbours, so one pass over the column is enough; Arrow hashes the number of each row's group,
which takes ten times as long. The results are those of Arrow: nulls are ignored, and so is NaN by an extreme.

Core function: :func:`reduced`. Pure.

*Groups of neighbouring rows with equal keys, in sorted rows.*

Core types: :class:`Groups`. Groups are numbered from 0 in the order of their rows; positions count rows of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed import sketches
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrays import Integers, booleans, raw
from lakebed.model.key_types import key_type
from lakebed.model.keys import comparable

Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Groups:
    """The first positions of groups, ascending from 0, and the number of rows."""

    starts: Integers
    rows: int

    @classmethod
    def of(cls, rows: pa.RecordBatch, names: Sequence[str]) -> Groups:
        """Return the groups of sorted rows by these columns, which have no nulls. Requires at least one row."""
        begins = np.zeros(rows.num_rows, np.bool_)
        begins[0] = True
        for name in names:
            begins[1:] |= _differ(rows.column(name))
        return cls(np.flatnonzero(begins), rows.num_rows)

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.starts)

    @property
    def alone(self) -> bool:
        """Whether every group is a single row."""
        return self.count == self.rows

    @property
    def lasts(self) -> Integers:
        """Return the position of each group's last row."""
        return np.append(self.starts[1:], self.rows) - 1

    def numbers(self) -> Integers:
        """Return the group number of each row."""
        return np.repeat(np.arange(self.count), np.diff(np.append(self.starts, self.rows)))

    def last_where(self, flags: Flags) -> Integers:
        """Return the position of the last row of each group that has the flag; -1 if none has."""
        return np.maximum.reduceat(np.where(flags, np.arange(self.rows), -1), self.starts)

    def first_where(self, flags: Flags) -> Integers:
        """Return the position of the first row of each group that has the flag; -1 if none has."""
        positions = np.minimum.reduceat(np.where(flags, np.arange(self.rows), self.rows), self.starts)
        return np.where(positions == self.rows, -1, positions)


def _differ(column: pa.Array) -> Flags:
    """Return for each value but the first whether it differs from the previous one; the column has no nulls."""
    kind = key_type(column.type)
    if kind is not None and kind.width in (4, 8) and not kind.has_nan:
        # Takes a third of the time of Arrow's comparison, whose result is in bits.
        bits = raw(column).view(f"<i{kind.width}").ravel()
        differ: Flags = bits[1:] != bits[:-1]
        return differ
    column = comparable(column)
    return booleans(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))


def take_or_null(column: pa.Array, positions: Integers) -> pa.Array:
    """Return the values at these positions; null for -1."""
    missing = positions < 0
    if not missing.any():
        return column.take(pa.array(positions))
    return column.take(pa.array(np.where(missing, 0, positions), mask=missing))


_INT64_MAX = 2**63 - 1
_DIGITS_OF_128, _DIGITS_OF_256 = 38, 76

Numbers = np.ndarray[Any, np.dtype[Any]]


def reduced(name: str, column: pa.Array, groups: Groups) -> pa.Array | None:
    """Return ``sum``, ``min`` or ``max`` of each group; None if the column, or the size of a sum, is not supported.

    An extreme has the type of the column; a sum is int64 or double.
    """
    numbers = _numbers(column)
    if numbers is None:
        return None
    kind = column.type
    if not column.null_count:
        combined = _reduceat(name, numbers.to_numpy(), groups)
        return None if combined is None else _masked_array(combined, kind)
    if pa.types.is_floating(kind):
        # No float can stand for null, besides NaN and the infinities.
        return None
    filled = pc.fill_null(numbers, pa.scalar(_neutral(name, numbers.type), numbers.type))
    combined = _reduceat(name, filled.to_numpy(), groups)
    if combined is None:
        return None
    present = np.logical_or.reduceat(booleans(column.is_valid()), groups.starts)
    return _masked_array(combined, kind, mask=~present)


def _numbers(column: pa.Array) -> pa.Array | None:
    """Return the column as NumPy numbers, without a copy; None if NumPy has no such type."""
    kind = column.type
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64()):
        return column
    return None


def _neutral(name: str, kind: pa.DataType) -> int:
    if name == "sum":
        return 0
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.max if name == "min" else limits.min)


def _reduceat(name: str, values: Numbers, groups: Groups) -> Numbers | None:
    floating = values.dtype.kind == "f"
    if name == "sum":
        if floating:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.add.reduceat(values, groups.starts, dtype=np.float64)
        largest = max(abs(int(values.min())), abs(int(values.max())))
        if largest * len(values) > _INT64_MAX:
            return None
        return np.add.reduceat(values, groups.starts, dtype=np.int64)
    if floating:
        return (np.fmin if name == "min" else np.fmax).reduceat(values, groups.starts)
    return (np.minimum if name == "min" else np.maximum).reduceat(values, groups.starts)


def _masked_array(values: Numbers, kind: pa.DataType, mask: Any = None) -> pa.Array:
    array = pa.array(values, mask=mask)
    return array.view(kind) if pa.types.is_temporal(kind) else array


JOIN_SEPARATOR = ","


class DoesNotFit(Exception):  # noqa: N818 - it is caught at once, and becomes an error that names the key
    """The result of a group is not a value of the column's type."""

    def __init__(self, group: int, value: Any) -> None:
        super().__init__(f"group {group}: {value}")
        self.group = group
        self.value = value


class NotASketch(Exception):  # noqa: N818 - likewise
    """A group has bytes that are not a sketch of the function's kind."""

    def __init__(self, group: int, reason: str) -> None:
        super().__init__(f"group {group}: {reason}")
        self.group = group
        self.reason = reason


NORMALIZING = frozenset({"set", "map_sum", "map_min", "map_max", "hll", "quantiles"})
"""Functions that may change a single value, or refuse it: a list that is not a set, a map with a repeated key or
unordered keys, bytes that are not a sketch. Otherwise such a row would change when a compaction merges it with
others."""


def combine(function: str, column: pa.Array, groups: Groups) -> pa.Array:
    """Return one value for each group, of the column's type. Raises DoesNotFit and NotASketch."""
    if groups.alone and function not in NORMALIZING:
        return column
    return _as_type(_COMBINE[function](_storage(column), groups), column.type)


def _storage(column: pa.Array) -> pa.Array:
    """Return the column as Arrow stores it, in the same order: Arrow neither compares nor groups UUIDs and JSON."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _as_type(stored: pa.Array, kind: pa.DataType) -> pa.Array:
    """Undo :func:`_storage`."""
    return pa.ExtensionArray.from_storage(kind, stored) if isinstance(kind, pa.BaseExtensionType) else stored


def _by_arrow(name: str, column: pa.Array, groups: Groups) -> pa.Array:
    """Combine by a function of Arrow whose result has the type of its argument."""
    rows = pa.table({"group": pa.array(groups.numbers()), "value": column})
    aggregated = rows.group_by("group", use_threads=False).aggregate([("value", name)])
    return aggregated.column(f"value_{name}").combine_chunks()


def _extreme(name: str, column: pa.Array, groups: Groups) -> pa.Array:
    combined = reduced(name, column, groups)
    if combined is not None:
        return combined
    if pa.types.is_float16(column.type):
        return _by_arrow(name, column.cast(pa.float32()), groups).cast(column.type)
    return _by_arrow(name, column, groups)


def _arithmetic(name: str, column: pa.Array, groups: Groups) -> pa.Array:
    """Combine by a sum or a product."""
    kind = column.type
    combined = reduced(name, column, groups) if name == "sum" else None
    if combined is not None:
        return combined.cast(kind) if pa.types.is_floating(kind) else _narrowed(combined, kind)
    if pa.types.is_floating(kind):
        return _by_arrow(name, column.cast(pa.float64()), groups).cast(kind)
    if pa.types.is_decimal(kind):
        return _narrowed(_sum_of_decimals(column, groups), kind)
    return _combine_exactly(name, column, groups)


def _sum_of_decimals(column: pa.Array, groups: Groups) -> pa.Array:
    """Sum decimals in a type with room for the sum of all of them: Arrow does not notice a sum that overflows."""
    kind, digits = column.type, column.type.precision + len(str(len(column)))
    if digits > _DIGITS_OF_256:
        with localcontext() as context:
            context.prec = digits
            sums = [sum(values) if values else None for values in _values_of_groups(column, groups)]
        most = Decimal(10) ** (kind.precision - kind.scale)
        for group, value in enumerate(sums):
            if value is not None and value.copy_abs() >= most:
                raise DoesNotFit(group, value)
        return pa.array(sums, kind)
    wide = pa.decimal128 if digits <= _DIGITS_OF_128 else pa.decimal256
    return _by_arrow("sum", column.cast(wide(digits, kind.scale)), groups)


def _combine_exactly(name: str, column: pa.Array, groups: Groups) -> pa.Array:
    """Combine with Python's unbounded integers, for large values and for products."""
    low, high = _integer_range(column.type)
    combined: list[int | None] = []
    for group, values in enumerate(_values_of_groups(column, groups)):
        value = None if not values else sum(values) if name == "sum" else _product(values, max(-low, high))
        if value is not None and not low <= value <= high:
            raise DoesNotFit(group, value)
        combined.append(value)
    return pa.array(combined, column.type)


def _product(values: Sequence[int], most: int) -> int:
    """Return the product, or that of the first values if no others can bring it back below ``most``."""
    product = 0 if 0 in values else 1
    for value in values:
        product *= value
        if abs(product) > most:
            break
    return product


def _values_of_groups(column: pa.Array, groups: Groups) -> Iterator[list[Any]]:
    """Return the values of each group that are not null."""
    values, edges = column.to_pylist(), [*groups.starts.tolist(), groups.rows]
    return ([value for value in values[first:end] if value is not None] for first, end in pairwise(edges))


def _integer_range(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def _narrowed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        for group, value in enumerate(values):
            try:
                pa.array([value.as_py()], values.type).cast(kind)
            except pa.ArrowInvalid:
                raise DoesNotFit(group, value.as_py()) from None
        raise


def _mean(column: pa.Array, groups: Groups) -> pa.Array:
    """Sum each member of the structs."""
    parts = [_arithmetic("sum", member, groups) for member in column.flatten()]
    missing = groups.last_where(booleans(column.is_valid())) < 0
    return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=pa.array(missing))


def _sketch(union: Callable[[list[bytes]], bytes], column: pa.Array, groups: Groups) -> pa.Array:
    """Return the union of the sketches of each group; a single sketch is returned unchanged, after a check."""
    sketches: list[bytes | None] = []
    for group, members in enumerate(_values_of_groups(column, groups)):
        try:
            sketches.append(union(members) if members else None)
        except SchemaMismatchError as error:
            raise NotASketch(group, error.message) from None
    return pa.array(sketches, column.type)


def _bitwise_or(column: pa.Array, groups: Groups) -> pa.Array:
    values = pc.fill_null(column, pa.scalar(0, column.type)).to_numpy(zero_copy_only=False)
    combined = np.bitwise_or.reduceat(values, groups.starts)
    missing = groups.last_where(booleans(column.is_valid())) < 0
    return pa.array(combined, column.type, mask=missing)


def _first(column: pa.Array, groups: Groups) -> pa.Array:
    return take_or_null(column, groups.first_where(booleans(column.is_valid())))


def _last(column: pa.Array, groups: Groups) -> pa.Array:
    return take_or_null(column, groups.last_where(booleans(column.is_valid())))


def _members(column: pa.Array, groups: Groups) -> tuple[Integers, pa.Array, Any]:
    """Return the elements of a column of lists or maps, the group of each, and the groups without any list."""
    if pa.types.is_map(column.type):
        pair = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(pair))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    missing = groups.last_where(booleans(column.is_valid())) < 0
    return np.repeat(groups.numbers(), lengths), column.flatten(), missing


def _ends(owners: Integers, count: int) -> pa.Array:
    """Return the offsets of lists, from the list of each element."""
    ends = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
    return pa.array(ends.astype(np.int32))


def _concatenated(column: pa.Array, groups: Groups) -> pa.Array:
    owners, members, missing = _members(column, groups)
    return pa.ListArray.from_arrays(_ends(owners, groups.count), members, column.type, mask=pa.array(missing))


def _union(column: pa.Array, groups: Groups) -> pa.Array:
    """Return the distinct elements, in ascending order; null last."""
    owners, members, missing = _members(column, groups)
    rows = pa.table({"group": pa.array(owners), "value": _storage(members)})
    rows = rows.group_by(["group", "value"], use_threads=False).aggregate([])
    rows = rows.sort_by([("group", "ascending"), ("value", "ascending")])
    ends = _ends(rows.column("group").to_numpy(), groups.count)
    distinct = _as_type(rows.column("value").combine_chunks(), members.type)
    return pa.ListArray.from_arrays(ends, distinct, column.type, mask=pa.array(missing))


def _join_texts(column: pa.Array, groups: Groups) -> pa.Array:
    lists = _by_arrow("list", column.drop_null(), _of_valid(column, groups))
    joined = pc.binary_join(lists, JOIN_SEPARATOR)
    present = np.flatnonzero(groups.last_where(booleans(column.is_valid())) >= 0)
    positions = np.full(groups.count, -1)
    positions[present] = np.arange(len(present))
    return take_or_null(joined, positions)


def _of_valid(column: pa.Array, groups: Groups) -> Groups:
    """Return the groups of the rows whose value is not null; groups without one are left out."""
    owners = groups.numbers()[booleans(column.is_valid())]
    begins = np.flatnonzero(np.diff(owners, prepend=-1))
    return Groups(begins, len(owners))


def _by_map_key(name: str, column: pa.Array, groups: Groups) -> pa.Array:
    """Merge maps key by key, with keys in ascending order."""
    owners, members, missing = _members(column, groups)
    rows = pa.table({"group": pa.array(owners), "key": members.field("key"), "value": members.field("value")})
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("group", "ascending"), ("key", "ascending")])).combine_chunks()
    if not rows.num_rows:
        return pa.MapArray.from_arrays(_ends(owners, groups.count), *_no_members(column), mask=pa.array(missing))
    inner = Groups.of(rows.to_batches()[0], ("group", "key"))
    values = rows.column("value").combine_chunks()
    try:
        merged = combine(name, values, inner)
    except DoesNotFit as error:
        raise DoesNotFit(int(rows.column("group")[int(inner.starts[error.group])].as_py()), error.value) from None
    firsts = rows.take(pa.array(inner.starts))
    ends = _ends(firsts.column("group").to_numpy(), groups.count)
    keys = firsts.column("key").combine_chunks()
    return pa.MapArray.from_arrays(ends, keys, merged, column.type, mask=pa.array(missing))


def _no_members(column: pa.Array) -> tuple[pa.Array, pa.Array, pa.DataType]:
    return pa.nulls(0, column.type.key_type), pa.nulls(0, column.type.item_type), column.type


_COMBINE: dict[str, Callable[[pa.Array, Groups], pa.Array]] = {
    "sum": partial(_arithmetic, "sum"),
    "product": partial(_arithmetic, "product"),
    "min": partial(_extreme, "min"),
    "max": partial(_extreme, "max"),
    "first": _first,
    "last": _last,
    "any": partial(_by_arrow, "any"),
    "all": partial(_by_arrow, "all"),
    "or": _bitwise_or,
    "count": partial(_arithmetic, "sum"),
    "mean": _mean,
    "hll": partial(_sketch, sketches.hll_union),
    "quantiles": partial(_sketch, sketches.quantiles_union),
    "list": _concatenated,
    "set": _union,
    "join": _join_texts,
    "map_sum": partial(_by_map_key, "sum"),
    "map_min": partial(_by_map_key, "min"),
    "map_max": partial(_by_map_key, "max"),
}
