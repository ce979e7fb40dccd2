"""Binary search for bounds among sorted keys that stand in columns.

For many the steps are Arrow's and NumPy's. Each looks at several rows for each bound, since what a step costs does not
depend on the rows that it looks at until these are thousands. A few bounds are searched for one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakebed.model.arrays import Integers, booleans, of_binary, of_integers

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.keys import EncodedRange, KeyCodec

FEW_BOUNDS = 6
"""Among a thousand rows it takes some 30 us to search for one in Python, and for any number of them at once 200."""

STEP_ROWS = 1_024


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
