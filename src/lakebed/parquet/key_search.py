"""Binary search among sorted keys that stand in columns: for one value of a field, or for many bounds at once.

For many the steps are Arrow's and NumPy's. Each looks at several rows for each bound, since what a step costs does not
depend on the rows that it looks at until these are thousands. A few bounds are searched for one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakebed.model.arrays import Integers, booleans, of_binary, of_integers

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.keys import EncodedRange, KeyCodec
    from lakebed.parquet.footer import Value

FEW_BOUNDS = 6
"""Among a thousand rows it takes some 30 us to search for one in Python, and for any number of them at once 200."""

STEP_ROWS = 1_024


def equal_range(column: pa.Array, value: Value, low: int, high: int) -> tuple[int, int]:
    """The places in ``[low, high)``, between which a key column ascends, of a value; as ``[first, last)``.

    Ten steps of Python's own search in a page of texts are quicker than Arrow's comparison with all of them, and
    ``pyarrow.compute`` takes as long to import as a lookup does in all.
    """
    _, held, *content = column.buffers()
    if isinstance(value, int):
        width = column.type.bit_width // 8
        numbers = np.frombuffer(held or b"", f"<i{width}", len(column), width * column.offset)[low:high]
        return low + int(numbers.searchsorted(value, "left")), low + int(numbers.searchsorted(value, "right"))
    wanted = value.encode("utf-8") if isinstance(value, str) else value
    ends = memoryview(held or b"").cast("B").cast("i")[column.offset :]
    texts = memoryview(content[0] or b"").cast("B")

    def text(position: int) -> bytes:
        return texts[ends[position] : ends[position + 1]].tobytes()

    first = bisect_left(range(high), wanted, low, high, key=text)
    return first, bisect_right(range(high), wanted, first, high, key=text)


def places_within(columns: pa.RecordBatch, codec: KeyCodec, keys: EncodedRange, starts: Sequence[int]) -> list[range]:
    """Where in sorted stretches of key columns the rows with such keys are.

    ``starts`` has where each stretch begins, and the end of the last.
    """
    bounds = [keys.min] if keys.max is None else [keys.min, keys.max]
    ends = np.array(starts)
    low, high = np.repeat(ends[:-1], len(bounds)), np.repeat(ends[1:], len(bounds))
    ranks = lower_ranks(columns, codec, bounds * (len(ends) - 1), low, high).reshape(-1, len(bounds))
    lows, highs = ranks[:, 0], ends[1:] if keys.max is None else ranks[:, 1]
    return [range(first, last) for first, last in zip(lows.tolist(), highs.tolist(), strict=True)]


def lower_ranks(
    keys: pa.RecordBatch, codec: KeyCodec, bounds: Sequence[bytes], low: Integers, high: Integers
) -> Integers:
    """For each encoded bound, the first place in ``[low, high)`` of a key that is not below it, or ``high``.

    ``keys`` are row key columns; between ``low`` and ``high`` they ascend, each bound with places of its own.
    """
    if len(bounds) < FEW_BOUNDS:
        ends = zip(bounds, low.tolist(), high.tolist(), strict=True)
        return np.array([codec.lower_rank(keys, bound, first, last) for bound, first, last in ends], np.int64)
    import pyarrow.compute as pc

    low, high = low.copy(), high.copy()
    wanted = of_binary(bounds)
    while len(active := np.flatnonzero(low < high)):
        probes = max(1, STEP_ROWS // len(bounds))
        begin, size = low[active, None], (high - low)[active, None]
        positions = begin + size * np.arange(1, probes + 1) // (probes + 1)
        found = codec.encode_columns(keys.take(of_integers(positions.ravel())))
        below = booleans(pc.less(found, wanted.take(of_integers(np.repeat(active, probes)))))
        # The keys ascend, so of the probes the first few are below the bound.
        count = below.reshape(positions.shape).sum(axis=1)
        rows = np.arange(len(active))
        low[active] = np.where(count, positions[rows, count - 1] + 1, low[active])
        high[active] = np.where(count < probes, positions[rows, np.minimum(count, probes - 1)], high[active])
    return low
