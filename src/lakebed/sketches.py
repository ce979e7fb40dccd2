"""Sketches: compact summaries of many values, for the aggregate functions ``mean``, ``hll`` and ``quantiles``.

A table that aggregates rows keeps an intermediate state in one column, so that more rows can be merged later:

* ``mean``: a struct of ``sum`` (float64) and ``count`` (int64);
* ``hll``: a HyperLogLog sketch of Apache DataSketches, for the number of distinct values, in a binary column;
* ``quantiles``: a KLL sketch of doubles of Apache DataSketches, in a binary column.

:func:`mean_column`, :func:`hll_column` and :func:`quantiles_column` make columns to be written, :func:`hll` and
:func:`quantiles` one sketch of many values; :func:`mean`, :func:`hll_estimate` and :func:`quantile` read columns. The
bytes are those of Spark (``hll_sketch_agg``, ``kll_sketch_agg_double``) and of DataSketches in other languages.

Rules: the library of DataSketches may crash the process on bytes that are not a sketch, so the layout of every sketch
is checked before it is given to the library (:mod:`lakebed.model.sketch_layout`). Null values are ignored;
``quantiles`` also ignores NaN.

Errors: UsageError where the package ``datasketches`` is missing (``pip install 'lakebed[sketches]'``), for a type that
cannot be counted, and for a rank that is not from 0 to 1; SchemaMismatchError for bytes that are not a sketch.

Source: Heule, Nunkesser, Hall, "HyperLogLog in practice", 2013; Karnin, Lang, Liberty, "Optimal quantile approximation
in streams", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code
from lakebed.model import sketch_layout
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
        sketch_layout.check_hll(sketches[0])
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
        sketch_layout.check_kll_doubles(sketches[0])
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
    sketch_layout.check_hll(sketch)
    return _library().hll_sketch.deserialize(sketch)


def _kll_of(sketch: bytes) -> Any:
    sketch_layout.check_kll_doubles(sketch)
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
