"""Sketches: compact summaries of many values, for the aggregate functions ``mean``, ``hll`` and ``quantiles``.

A table that aggregates rows keeps an intermediate state in one column, so that more rows can be merged later:

* ``mean``: a struct of ``sum`` (float64) and ``count`` (int64);
* ``hll``: a HyperLogLog sketch of Apache DataSketches, for the number of distinct values, in a binary column;
* ``quantiles``: a KLL sketch of doubles of Apache DataSketches, in a binary column.

:func:`mean_column`, :func:`hll_column` and :func:`quantiles_column` make columns to be written, :func:`hll` and
:func:`quantiles` one sketch of many values; :func:`mean`, :func:`hll_estimate` and :func:`quantile` read columns. The
bytes are those of Spark (``hll_sketch_agg``, ``kll_sketch_agg_double``) and of DataSketches in other languages.

Rules: the library of DataSketches may crash the process on bytes that are not a sketch, so the layout of every sketch
is checked byte by byte before it is given to the library. Null values are ignored;
``quantiles`` also ignores NaN.

Errors: UsageError where the package ``datasketches`` is missing (``pip install 'lakebed[sketches]'``), for a type that
cannot be counted, and for a rank that is not from 0 to 1; SchemaMismatchError for bytes that are not a sketch.

Source: Heule, Nunkesser, Hall, "HyperLogLog in practice", 2013; Karnin, Lang, Liberty, "Optimal quantile approximation
in streams", 2016.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.model.checks import shown
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.merge_modes import MEAN
from lakebed.model.types import is_text

__all__ = [
    "MEAN",
    "hll",
    "hll_column",
    "hll_estimate",
    "hll_union",
    "mean",
    "mean_column",
    "quantile",
    "quantiles",
    "quantiles_column",
    "quantiles_union",
]

LG_K = 12
"""An HLL sketch has 2^12 registers at most, in 4 KiB; its standard error is 1.6%. Spark's default."""

K = 200
"""A KLL sketch with this parameter has a rank error of 1.65% at most, in 99% of all cases, in about 5 KB."""


# -- columns to write -------------------------------------------------------------------------------------------


def mean_column(values: Any) -> pa.Array:
    """Return for each number (an Arrow array, or a sequence) the struct of a column with the function ``mean``."""
    numbers = _as_array(values).cast(pa.float64())
    counts = pc.if_else(pc.is_valid(numbers), pa.scalar(1, pa.int64()), pa.scalar(None, pa.int64()))
    return pa.StructArray.from_arrays([numbers, counts], fields=list(MEAN), mask=pc.is_null(numbers))


def hll_column(values: Any) -> pa.Array:
    """Return for each value the HLL sketch of that value alone; null for null. Raises UsageError as :func:`hll`."""
    return _each(_countable(_as_array(values)), lambda value: hll([value]))


def quantiles_column(values: Any) -> pa.Array:
    """Return for each number the KLL sketch of that number alone; null for null."""
    return _each(_as_array(values).cast(pa.float64()), lambda value: quantiles([value]))


def hll(values: Any, lg_k: int = LG_K) -> bytes:
    """Return the HLL sketch of the values: integers, floats or strings, as an Arrow array or a sequence.

    ``lg_k`` is from 7 to 21: the standard error is 1.04 / sqrt(2^lg_k). Raises UsageError for values of another type.
    """
    library = _library()
    found = library.hll_sketch(lg_k, library.tgt_hll_type.HLL_8)
    for value in _countable(_as_array(values)).to_pylist():
        if value is not None:
            found.update(value)
    return bytes(found.serialize_compact())


def quantiles(values: Any, k: int = K) -> bytes:
    """Return the KLL sketch of the numbers, an Arrow array or a sequence; ``k`` is from 8 to 65,535."""
    found = _library().kll_doubles_sketch(k)
    numbers = pc.drop_null(_as_array(values).cast(pa.float64()))
    # Copied: the library takes no array that it may not write to.
    found.update(np.array(numbers))
    return bytes(found.serialize())


# -- columns that were read -------------------------------------------------------------------------------------


def mean(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the mean of each struct, in float64; null for null, and where nothing was counted."""
    rows = _one_array(column)
    counts = rows.field("count")
    counted = pc.if_else(pc.equal(counts, pa.scalar(0, pa.int64())), pa.scalar(None, pa.int64()), counts)
    means = pc.divide(rows.field("sum"), counted.cast(pa.float64(), safe=False))
    return pc.if_else(pc.is_valid(rows), means, pa.scalar(None, pa.float64()))


def hll_estimate(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the estimated number of distinct values of each HLL sketch, in float64; null for null."""
    return _read_each(column, lambda sketch: _hll_of(sketch).get_estimate())


def quantile(column: pa.Array | pa.ChunkedArray, rank: Any) -> pa.Array:
    """Return the estimated quantile of each KLL sketch: the least value with ``rank`` (0 to 1) of the values at or
    below it.

    0.5 is the median. Null for null, and for a sketch of no values.
    """
    if isinstance(rank, bool) or not isinstance(rank, int | float) or not 0 <= rank <= 1:
        raise Code.ARGUMENT_INVALID(f"rank = {shown(rank)}: must be a number from 0 to 1")

    def read(sketch: bytes) -> float | None:
        found = _kll_of(sketch)
        return None if found.is_empty() else found.get_quantile(rank, True)  # noqa: FBT003 - the library's, inclusive

    return _read_each(column, read)


# -- merging ----------------------------------------------------------------------------------------------------


def hll_union(sketches: Sequence[bytes]) -> bytes:
    """Return the HLL sketch of all values of these, with as many registers as the smallest of them."""
    if len(sketches) == 1:
        check_hll(sketches[0])
        return sketches[0]
    library = _library()
    parts = [_hll_of(sketch) for sketch in sketches]
    union = library.hll_union(min(part.lg_config_k for part in parts))
    for part in parts:
        union.update(part)
    return bytes(union.get_result(library.tgt_hll_type.HLL_8).serialize_compact())


def quantiles_union(sketches: Sequence[bytes]) -> bytes:
    """Return the KLL sketch of all values of these."""
    if len(sketches) == 1:
        check_kll_doubles(sketches[0])
        return sketches[0]
    merged, *others = (_kll_of(sketch) for sketch in sketches)
    for other in others:
        merged.merge(other)
    return bytes(merged.serialize())


# -- helpers ----------------------------------------------------------------------------------------------------


def _library() -> Any:
    with optional_imports():
        import datasketches
    return datasketches


def _hll_of(sketch: bytes) -> Any:
    check_hll(sketch)
    return _library().hll_sketch.deserialize(sketch)


def _kll_of(sketch: bytes) -> Any:
    check_kll_doubles(sketch)
    return _library().kll_doubles_sketch.deserialize(sketch)


def _as_array(values: Any) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _one_array(values)
    return pa.array(values)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _countable(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if is_text(kind):
        return values
    if pa.types.is_null(kind):
        return values.cast(pa.int64())
    raise Code.TYPE_UNSUPPORTED(f"hll counts integers, floats and strings, not {kind}: cast the values to one of them")


def _each(values: pa.Array, make: Callable[[Any], bytes]) -> pa.Array:
    made: dict[Any, bytes] = {}
    sketches: list[bytes | None] = []
    for value in values.to_pylist():
        if value is not None and value not in made:
            made[value] = make(value)
        sketches.append(None if value is None else made[value])
    return pa.array(sketches, pa.binary())


def _read_each(column: pa.Array | pa.ChunkedArray, read: Callable[[bytes], float | None]) -> pa.Array:
    sketches: Iterable[bytes | None] = _one_array(column).to_pylist()
    return pa.array([None if sketch is None else read(sketch) for sketch in sketches], pa.float64())


# -- layout ------------------------------------------------------------------------------------------------------------

# Valid are HLL sketches of the type HLL_8, compact or updatable, and KLL sketches of doubles, in serial versions 1 and
# 2. Source: the classes PreambleUtil and KllPreambleUtil of datasketches-java.

_HLL_FAMILY = 7
_KLL_FAMILY = 15

_LIST, _SET, _REGISTERS = 0, 1, 2
_PREAMBLES = {_LIST: 2, _SET: 3, _REGISTERS: 10}
"""The length of the preamble of each form of an HLL sketch, in 4-byte integers."""

_EMPTY_FLAG, _COMPACT_FLAG = 4, 8
_HLL_8 = 2
_REGISTER_MAX = 63
_LIST_LENGTH = 8

_KLL_EMPTY_FLAG, _KLL_SINGLE_FLAG = 1, 4
_KLL_LEVELS_MAX = 61
"""Items of level n have weight 2^n, and the sum of weights is a 64-bit number."""


def check_hll(sketch: bytes) -> None:
    """Raise SchemaMismatchError for bytes that are not an HLL sketch of the type HLL_8."""
    if len(sketch) < 8:
        raise _wrong("HLL", sketch, "it has fewer than 8 bytes")
    preamble, version, family, lg_k, lg_length, flags, count, mode = sketch[:8]
    form, kind = mode & 3, mode >> 2 & 3
    if version != 1 or family != _HLL_FAMILY or _PREAMBLES.get(form) != preamble:
        raise _wrong("HLL", sketch, "its first bytes are not those of one")
    if kind != _HLL_8:
        raise _wrong("HLL", sketch, "it is of the type HLL_4 or HLL_6; make sketches of the type HLL_8, as Spark does")
    if not 4 <= lg_k <= 21:
        raise _wrong("HLL", sketch, f"its lg_k is {lg_k}, not from 4 to 21")
    if form == _REGISTERS:
        _check_registers(sketch, lg_k)
        return
    start = 8
    if form == _SET:
        count, start = _count_of_set(sketch, lg_k, lg_length), 12
    elif count > _LIST_LENGTH or lg_length != 3 or bool(flags & _EMPTY_FLAG) != (count == 0):
        raise _wrong("HLL", sketch, f"it has a list of {count} values")
    slots = count if flags & _COMPACT_FLAG else 1 << lg_length
    if len(sketch) != start + 4 * slots:
        raise _wrong("HLL", sketch, f"it has {len(sketch)} bytes")
    held = [coupon for coupon in struct.unpack_from(f"<{slots}I", sketch, start) if coupon]
    if len(held) != count or len(set(held)) != count or any(not coupon >> 26 for coupon in held):
        raise _wrong("HLL", sketch, "its values are not distinct")


def _count_of_set(sketch: bytes, lg_k: int, lg_length: int) -> int:
    """Return the number of values of an HLL sketch with a hash set of them."""
    count: int = struct.unpack_from("<i", sketch, 8)[0] if len(sketch) >= 12 else -1
    if not 5 <= lg_length <= max(lg_k - 3, 5) or not 0 < count <= 3 << lg_length >> 2:
        raise _wrong("HLL", sketch, f"it has a set of {count} values in 2^{lg_length} slots")
    return count


def _check_registers(sketch: bytes, lg_k: int) -> None:
    if len(sketch) != 40 + (1 << lg_k):
        raise _wrong("HLL", sketch, f"it has {len(sketch)} bytes, not {40 + (1 << lg_k)}")
    registers = np.frombuffer(sketch, np.uint8, offset=40)
    if sketch[6] or registers.max() > _REGISTER_MAX:
        raise _wrong("HLL", sketch, f"a register is above {_REGISTER_MAX}")
    sums = struct.unpack_from("<3d", sketch, 8)
    if not all(0 <= number < 2**63 for number in sums):
        raise _wrong("HLL", sketch, "its sums are not finite")
    zeros, auxiliaries = struct.unpack_from("<2i", sketch, 32)
    if zeros != len(registers) - np.count_nonzero(registers) or auxiliaries:
        raise _wrong("HLL", sketch, f"it counts {zeros} empty registers")


def check_kll_doubles(sketch: bytes) -> None:
    """Raise SchemaMismatchError for bytes that are not a KLL sketch of doubles."""
    if len(sketch) < 8:
        raise _wrong("KLL", sketch, "it has fewer than 8 bytes")
    preamble, version, family, flags, k, m, _ = struct.unpack_from("<4BH2B", sketch)
    if family != _KLL_FAMILY or version not in (1, 2) or k < 8 or m != 8:
        raise _wrong("KLL", sketch, "its first bytes are not those of one")
    short = bool(flags & (_KLL_EMPTY_FLAG | _KLL_SINGLE_FLAG))
    if preamble != (2 if short else 5) or (version == 2) != bool(flags & _KLL_SINGLE_FLAG):
        raise _wrong("KLL", sketch, "its first bytes are not those of one")
    if flags & _KLL_EMPTY_FLAG:
        if len(sketch) != 8 or version != 1:
            raise _wrong("KLL", sketch, f"it is empty and has {len(sketch)} bytes")
    elif flags & _KLL_SINGLE_FLAG:
        if len(sketch) != 16 or np.isnan(np.frombuffer(sketch, "<f8", offset=8)).any():
            raise _wrong("KLL", sketch, f"it has one value and {len(sketch)} bytes")
    else:
        _check_levels(sketch, k, m)


def _check_levels(sketch: bytes, k: int, m: int) -> None:
    levels = sketch[18] if len(sketch) >= 20 else 0
    if not 1 <= levels <= _KLL_LEVELS_MAX or len(sketch) < 36 + 4 * levels:
        raise _wrong("KLL", sketch, f"it has {levels} levels and {len(sketch)} bytes")
    n, min_k = struct.unpack_from("<QH", sketch, 8)
    capacity = sum(max(m, _level_capacity(k, levels - 1 - level)) for level in range(levels))
    edges = [*struct.unpack_from(f"<{levels}I", sketch, 20), capacity]
    if any(low > high for low, high in pairwise(edges)) or not m <= min_k <= k:
        raise _wrong("KLL", sketch, "its levels are not in order")
    if len(sketch) != 36 + 4 * levels + 8 * (capacity - edges[0]):
        raise _wrong("KLL", sketch, f"it has {len(sketch)} bytes")
    weight = sum((high - low) << level for level, (low, high) in enumerate(pairwise(edges)))
    if weight != n or n < 2:
        raise _wrong("KLL", sketch, f"it counts {n} values, and its items stand for {weight}")
    least, greatest, *_ = items = np.frombuffer(sketch, "<f8", offset=20 + 4 * levels)
    if not ((items >= least) & (items <= greatest)).all():
        raise _wrong("KLL", sketch, "a value is not between the least and the greatest")
    for low, high in pairwise(edge - edges[0] for edge in edges[1:]):
        if (np.diff(items[2 + low : 2 + high]) < 0).any():
            raise _wrong("KLL", sketch, "a level is not sorted")


def _level_capacity(k: int, depth: int) -> int:
    """Return the capacity of a level in items: k (2/3)^depth, rounded as the library does."""
    if depth > 30:
        half = depth // 2
        return _level_capacity(_level_capacity(k, half), depth - half)
    thirds: int = 3**depth
    return ((k << 1 << depth) // thirds + 1) >> 1


def _wrong(kind: str, sketch: bytes, reason: str) -> Error:
    return Code.VALUE_INVALID(
        f"{bytes(sketch[:12]).hex() or 'an empty value'} does not begin a whole {kind} sketch of Apache DataSketches: "
        f"{reason}. Make sketches with lakebed.sketches, or with Spark's "
        f"{'hll_sketch_agg' if kind == 'HLL' else 'kll_sketch_agg_double'}"
    )
