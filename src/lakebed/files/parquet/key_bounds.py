"""The bounds of the key fields of a data file after the first, by which reads skip whole files.

They come from the file's statistics. Parquet statistics omit NaN, so files with NaN in a key have none for that column;
their bounds are taken from the rows, NaN above all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.files import encode_bounds
from lakebed.model.key_type import Content

if TYPE_CHECKING:
    from lakebed.model.schema import Field, Schema


def is_float(schema: Schema, name: str) -> bool:
    """Return whether a column has floats, which may be NaN."""
    return bool(schema.by_name[name].key_type.has_nan)


FloatBounds = dict[str, tuple[float, float]]
"""The least and greatest value of each key column of floats, in the order of keys: NaN above all numbers."""


def widen(bounds: FloatBounds, rows: pa.Table, schema: Schema) -> None:
    """Widen the bounds to include further rows."""
    for name in schema.sort_names:
        if is_float(schema, name):
            column = rows.column(name)
            nan = pc.is_nan(column)
            numbers = pc.min_max(column.filter(pc.invert(nan))).as_py().values()
            every = [*bounds.get(name, ()), *(number for number in numbers if number is not None)]
            if pc.any(nan).as_py():
                every.append(math.nan)
            bounds[name] = min(every, key=_in_key_order), max(every, key=_in_key_order)


def _in_key_order(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def key_bounds(metadata: Any, schema: Schema, floats: FloatBounds) -> bytes:
    """Return the stored bounds of all key fields after the first, from ``floats`` or else from a file's statistics."""
    return encode_bounds(_statistics_bounds(metadata, schema, floats))


def _statistics_bounds(
    metadata: Any, schema: Schema, floats: FloatBounds
) -> Iterator[tuple[Field, Content | None, Content | None]]:
    """Return the bounds of each field; None if the column has no statistics, as columns of long values may."""
    # Key columns come first, in the order of the fields, and none is nested.
    for index, field in list(enumerate((*schema.row_key, *schema.sort_key)))[1:]:
        if field.name in floats:
            yield field, *floats[field.name]
            continue
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        known = [chunk.statistics for chunk in chunks]
        if not all(one is not None and one.has_min_max for one in known):
            yield field, None, None
        else:
            # The order of raw values differs from that of the field: those of decimals are signed bytes.
            lows, highs = (
                [field.key_type.of_statistics(raw) for raw in raws] for raws in zip(*map(_raw, known), strict=True)
            )
            yield field, min(lows), max(highs)


def _raw(statistics: Any) -> tuple[Any, Any]:
    return statistics.min_raw, statistics.max_raw
