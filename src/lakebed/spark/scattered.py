"""Values of tasks as the rows of a frame: a Spark partition, and so a task, for each.

The values travel with the function that is applied to them. Its rows are a range of integers, the positions of the
values, each in a Spark partition of its own, whatever Spark estimates of their sizes. The rows of a frame of the values
would be made by Python workers of another kind, which a first job would wait for, and would have to be shuffled.

Core type: :class:`Scattered`.

*Places rows in chosen Spark partitions, for which Spark 4.0 has no method.*

``repartition(n, column)`` puts a row into the Spark partition ``hash(value) mod n``. The hash of an integer is
MurmurHash3 with the seed 42, every step of which can be undone: there is exactly one integer with the hash *p*, and a
row with that *address* goes to the partition *p*. Spark leaves the number of partitions as it was given.

Rules. The hash is a part of Spark's public functions (``hash``) and of its bucketed tables, and has not changed since
Spark 2. No I/O here. Source: ``org.apache.spark.unsafe.hash.Murmur3_x86_32``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.spark.spark_job import ArrowFunction

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


_VALUES_SCHEMA = pa.schema([("item", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True, slots=True)
class Scattered:
    """Values as a frame with a Spark partition for each: rows of ``item``, its position, and ``payload``, the pickled
    value. It has those members of a DataFrame that the pipeline needs.
    """

    sparkSession: SparkSession  # noqa: N815 - Spark's name
    payloads: tuple[bytes, ...]

    def mapInArrow(self, function: ArrowFunction, schema: str) -> DataFrame:  # noqa: N802 - Spark's name
        """As the DataFrame's: apply a function to the rows of each Spark partition."""
        # Spark needs a partition even without values.
        count = max(1, len(self.payloads))
        numbers = self.sparkSession.range(0, count, 1, count)
        return numbers.mapInArrow(_with_values(function, self.payloads), schema)


def scattered(session: SparkSession, values: Sequence[Any]) -> Scattered:
    """Return a frame of the values."""
    return Scattered(session, tuple(map(pickle.dumps, values)))


def values_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """Return the values of a task, each after its position."""
    for batch in batches:
        for item, payload in zip(*(column.to_pylist() for column in batch.columns[:2]), strict=True):
            yield item, pickle.loads(payload)  # noqa: S301 - the driver pickled it


def _with_values(function: ArrowFunction, payloads: Sequence[bytes]) -> ArrowFunction:
    """Return the function on the values in place of their positions."""

    def values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch.column(0).to_pylist():
                # The one Spark partition of a frame without values gets none.
                found = payloads[item : item + 1]
                yield pa.record_batch([[item] * len(found), list(found)], schema=_VALUES_SCHEMA)

    return lambda batches: function(values(batches))
