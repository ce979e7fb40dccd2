"""How many bytes of its inputs a merge reads at once. Pure: plans may import it.

A merge plan keeps the stored bytes that it has read until its end (:mod:`lakebed.files.sorting.merge`). Half of the
memory limit is for them, and half for batches. So inputs of at most half of the limit are read at once: by one plan,
without conditions on keys, and without a sample of them.

Larger inputs are read in slices of keys, one after another, of about an eighth of the limit, and at most a quarter:
tiles of keys may be twice as large, and the engine's allocator does not return all that a slice has freed to the next.
At each border between slices one page of every input is decoded twice, so slices are not smaller than necessary.
"""

from __future__ import annotations

_WHOLE_SHARE = 2
_SLICE_SHARE = 8


def slice_bytes(size_bytes: int, memory_limit_bytes: int) -> int:
    """Return about how many bytes of inputs of this size a merge reads at once: all of them, or those of a slice."""
    if size_bytes <= memory_limit_bytes // _WHOLE_SHARE:
        return size_bytes
    return max(1, memory_limit_bytes // _SLICE_SHARE)
