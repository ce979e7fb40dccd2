"""Places rows in chosen Spark partitions, for which Spark 4.0 has no method.

``repartition(n, column)`` puts a row into the Spark partition ``hash(value) mod n``. The hash of an integer is
MurmurHash3 with the seed 42, every step of which can be undone: there is exactly one integer with the hash *p*, and a
row with that *address* goes to the partition *p*. Spark leaves the number of partitions as it was given.

Rules. The hash is a part of Spark's public functions (``hash``) and of its bucketed tables, and has not changed since
Spark 2. No I/O here. Source: ``org.apache.spark.unsafe.hash.Murmur3_x86_32``.
"""

from __future__ import annotations

_BITS = 2**32
_SEED = 42

# The inverse of each of the hash's factors modulo 2^32.
_UNDO_5 = pow(5, -1, _BITS)
_UNDO_FIRST, _UNDO_SECOND = pow(0xCC9E2D51, -1, _BITS), pow(0x1B873593, -1, _BITS)
_UNDO_THIRD, _UNDO_FOURTH = pow(0x85EBCA6B, -1, _BITS), pow(0xC2B2AE35, -1, _BITS)


def address_of(partition: int) -> int:
    """Return the signed 32-bit integer whose hash in Spark is ``partition``, which is from 0 to 2^31 - 1."""
    # The final mix, backwards.
    mixed = partition ^ partition >> 16
    mixed = mixed * _UNDO_FOURTH % _BITS
    mixed ^= mixed >> 13 ^ mixed >> 26
    mixed = mixed * _UNDO_THIRD % _BITS
    mixed ^= mixed >> 16
    mixed ^= 4  # the length in bytes
    # The mix of the seed and the only word.
    mixed = (mixed - 0xE6546B64) * _UNDO_5 % _BITS
    word = _rotated(mixed, 32 - 13) ^ _SEED
    word = _rotated(word * _UNDO_SECOND % _BITS, 32 - 15)
    word = word * _UNDO_FIRST % _BITS
    return word - _BITS if word >= _BITS // 2 else word


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) % _BITS
