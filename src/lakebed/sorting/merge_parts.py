"""Divides a merge that does not fit into memory into levels of inputs and slices of keys. Only reads inputs.

:mod:`lakebed.sorting.merge` says why. Core functions: :func:`levels`, :func:`slices_of`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lakebed.engine.datafusion import between, inside
from lakebed.sorting.merge_inputs import sample, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from datafusion import Expr

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.sorting.merge_inputs import MergeInput

BATCHES_HELD = 8
"""Batches of each input that a merge holds."""

BATCH_ROWS_MIN = 256

_FAN_IN_MIN = 12
_INPUT_BYTES = 2 * 1024 * 1024
_SLICE_ROWS = 40_000
"""The least rows of each input in a slice: one page of each decoded twice at a border is then 10% of the work."""
_SAMPLES = 8
"""Sampled rows for a slice: the sizes of slices then vary by about a third."""


def levels(inputs: Sequence[MergeInput], memory_limit_bytes: int) -> list[list[MergeInput]]:
    """Return the groups of neighbours that are merged on their own first; one group if the inputs fit into one plan."""
    parquet_bytes = sum(item.file_bytes for item in inputs if not item.is_arrow)
    if any(item.is_arrow for item in inputs) and parquet_bytes > memory_limit_bytes // 4:
        return [
            part
            for is_arrow, group in itertools.groupby(inputs, key=lambda item: item.is_arrow)
            for part in ([[item] for item in group] if is_arrow else [list(group)])
        ]
    held = sum(_held_bytes(item) for item in inputs)
    fan_in = max(_FAN_IN_MIN, len(inputs) * memory_limit_bytes // max(1, held))
    if len(inputs) <= fan_in:
        return [list(inputs)]
    # Groups of equal size, or a last group of one file would only be copied.
    count = -(-len(inputs) // fan_in)
    return [list(inputs[i * len(inputs) // count : (i + 1) * len(inputs) // count]) for i in range(count)]


def _held_bytes(item: MergeInput) -> int:
    batches = (3 * item.batch_bytes) if item.is_arrow else (BATCHES_HELD * BATCH_ROWS_MIN * item.row_bytes)
    return batches + (0 if item.is_arrow else _INPUT_BYTES)


def slices_of(
    inputs: Sequence[MergeInput], schema: Schema, ranges: Sequence[EncodedRange | None], memory_limit_bytes: int
) -> list[Expr | None]:
    """Return conditions that divide the rows into disjoint slices in key order, each of M/16 to M/4 bytes of input.

    Rows with equal row key and sort key stay together, however many.
    """
    key_range, known = ranges[0], ranges[1:]
    within = inside(schema, key_range)
    if any(item.is_arrow for item in inputs):
        return [within]
    if len(known) == 1:
        return [within]
    if known:
        return [inside(schema, part) for part in known]
    places = spans(inputs, schema, key_range)
    total = sum(span.file_bytes for span in places)
    overlap = _SLICE_ROWS * len(inputs) * total // max(1, sum(span.rows for span in places))
    size = max(1, min(max(overlap, memory_limit_bytes // 16), memory_limit_bytes // 4))
    if total <= size:
        return [within]
    rows = sample(places, schema, max(1, size // _SAMPLES))
    ends: list[list[pa.Scalar]] = []
    for index in range(_SAMPLES, rows.num_rows, _SAMPLES):
        end = [rows.column(name)[index] for name in schema.sort_names]
        if not ends or end != ends[-1]:
            ends.append(end)
    fields = (*schema.row_key, *schema.sort_key)
    bounds = [between(fields, low, high) for low, high in zip([None, *ends], [*ends, None], strict=True)]
    return [bound if within is None else within if bound is None else within & bound for bound in bounds]
