"""Casts a column to the type of a field, value by value: values that cannot be converted are null in the result.

Rules. Only for types that :mod:`lakebed.write.conformer` has accepted. Arrow's own cast is used where it raises for
each value that it does not keep, because it is much faster; text is converted by :mod:`lakebed.model.text_values`; for
others, DataFusion's cast is used (:func:`lakebed.engine.computed_columns.try_cast`), whose result is cast back and
compared. Pure: no I/O.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import types, validity
from lakebed.model.extension_values import json_of, texts_of_uuids, uuids_of
from lakebed.model.iso_times import has_expanded_years, iso_texts
from lakebed.model.text_values import is_parsed, values_of_texts
from lakebed.model.type_names import JSON, UUID

if TYPE_CHECKING:
    from lakebed.model.schema import Field


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
