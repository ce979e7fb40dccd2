"""Divides a merge that does not fit into memory into levels of inputs and slices of keys. Only reads inputs.

:mod:`lakebed.files.sorting.merge` says why. Core functions: :func:`levels`, :func:`slices_of`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lakebed.engine.datafusion import inside
from lakebed.files.sorting.merge_inputs import sample, spans
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, successor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datafusion import Expr

    from lakebed.files.sorting.merge_inputs import MergeInput
    from lakebed.model.schema import Schema

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
    held_bytes = sum(_held_bytes(item) for item in inputs)
    fan_in = max(_FAN_IN_MIN, len(inputs) * memory_limit_bytes // max(1, held_bytes))
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
    """Return conditions that divide the rows into disjoint slices in key order, each of at most M/4 bytes of input.

    Rows with equal row key and sort key stay together, however many.
    """
    codec, key_range, known = schema.codec, ranges[0], [part for part in ranges[1:] if part is not None]
    if any(item.is_arrow for item in inputs) or (key_range is None and len(known) == 1):
        return [inside(codec, key_range)]
    if known:
        whole = EncodedRange(known[0].min, known[-1].max)
        return [inside(codec, tile) for tile in tiles(codec, whole, [part.min for part in known[1:]])]
    places = spans(inputs, schema, key_range)
    total = sum(span.file_bytes for span in places)
    overlap = _SLICE_ROWS * len(inputs) * total // max(1, sum(span.rows for span in places))
    # A tile is up to twice as large.
    size = max(1, min(max(overlap, memory_limit_bytes // 16), memory_limit_bytes // 8))
    if total <= size:
        return [inside(codec, key_range)]
    codec, whole = KeyCodec((*schema.row_key, *schema.sort_key)), key_range or ALL_KEYS
    keys = codec.encode_columns(sample(places, schema, max(1, size // _SAMPLES))).to_pylist()
    cuts = [key for key in dict.fromkeys(keys[_SAMPLES::_SAMPLES]) if key > whole.min and whole.contains(key)]
    return [inside(codec, tile) for tile in tiles(codec, whole, cuts)]


def tiles(codec: KeyCodec, key_range: EncodedRange, cuts: Sequence[bytes]) -> list[EncodedRange]:
    """Divide a key range at about these ascending keys, each tile at most as large as two of the parts between them.

    Pages have statistics of each field alone. So that a scan of a tile reads few pages of another one, the keys of a
    tile agree in their first fields and have a range of values in one more field: a cut moves back to where the first
    of its values begin, if the cut before it is below that. Further cuts are made where first values begin and end.
    """
    moved, before = [], key_range.min
    for cut in cuts:
        moved.append(next(start for start in _starts(codec, cut) if start > before))
        before = cut
    borders = [key_range.min]
    for border in moved if key_range.max is None else [*moved, key_range.max]:
        for start in _starts(codec, border):
            if start > borders[-1]:
                borders += [*_ends(codec, borders[-1], start), start]
    if key_range.max is None:
        borders += _ends(codec, borders[-1], None)
    else:
        borders.pop()
    return [EncodedRange(low, high) for low, high in zip(borders, [*borders[1:], key_range.max], strict=True)]


def _starts(codec: KeyCodec, key: bytes) -> list[bytes]:
    """Return the least keys with the first value of a key, its first two values and so on, and the key itself."""
    first = (KeyCodec(codec.fields[:count]).beginning(key) for count in range(1, len(codec.fields)))
    return list(dict.fromkeys([*first, key]))


def _ends(codec: KeyCodec, key: bytes, high: bytes | None) -> list[bytes]:
    """Return the ends of all keys below ``high`` that agree with a key in some of its first values, ascending."""
    ends = [successor(start) for start in reversed(_starts(codec, key)[:-1])]
    return [end for end in dict.fromkeys(ends) if end is not None and (high is None or end < high)]
