"""The layout of sketches of Apache DataSketches, checked byte by byte.

The library's own decoder does not validate sketches: with invalid bytes it may crash, or never return. So sketches of
users are checked here first. Valid are HLL sketches of the type HLL_8, compact or updatable, and KLL sketches of
doubles, in serial versions 1 and 2. Pure: no I/O, and no import of the library.

Errors: SchemaMismatchError, which describes the fault of a sketch.

Source: the classes PreambleUtil and KllPreambleUtil of datasketches-java.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np

from lakebed.errors import Code, Error

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
