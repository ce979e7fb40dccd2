"""Values of tasks as the rows of a frame: a Spark partition, and so a task, for each.

The values travel with the function that is applied to them. Its rows are a range of integers, the positions of the
values, each in a Spark partition of its own, whatever Spark estimates of their sizes. The rows of a frame of the values
would be made by Python workers of another kind, which a first job would wait for, and would have to be shuffled.

Core type: :class:`Scattered`.
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
