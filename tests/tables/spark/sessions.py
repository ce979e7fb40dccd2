"""A session of Spark without a JVM: functions travel by cloudpickle, rows as Arrow, and a failed task is repeated."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from lakebed.spark.scattered import address_of

ATTEMPTS_MAX = 4


def attempted(task):
    """The result of a task, which is tried as often as Spark tries it."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return task()
        except Exception as error:  # noqa: BLE001 - as Spark does
            if attempt == ATTEMPTS_MAX:
                # The text of an exception is all that arrives.
                raise PySparkException(f"[UDF] {error}") from None
    raise AssertionError


class Frame:
    """Rows in Spark partitions, and what Spark does with them."""

    def __init__(self, session, parts):
        self.sparkSession = session
        self.parts = parts

    def mapInArrow(self, function, _schema):  # noqa: N802 - Spark's name
        arrived = cloudpickle.loads(cloudpickle.dumps(function))
        return Frame(self.sparkSession, [attempted(lambda part=part: list(arrived(iter(part)))) for part in self.parts])

    def repartition(self, count, column):
        """A row in the partition that its address says."""
        places = {address_of(number): number for number in range(count)}
        parts = [[] for _ in range(count)]
        for batch in (batch for part in self.parts for batch in part):
            for index, address in enumerate(batch.column(column).to_pylist()):
                parts[places[address]].append(batch.slice(index, 1))
        return Frame(self.sparkSession, parts)

    def toArrow(self):  # noqa: N802 - Spark's name
        batches = [batch for part in self.parts for batch in part]
        return pa.Table.from_batches(batches) if batches else pa.table({})


class Session:
    """As much of a session as tasks need."""

    conf: ClassVar = {"spark.master": f"local[2,{ATTEMPTS_MAX}]"}

    def range(self, start, end, step, partitions):
        assert (start, end, step) == (0, partitions, 1)
        return Frame(self, [[pa.record_batch({"id": [number]})] for number in range(partitions)])

    def addTag(self, _):  # noqa: N802 - Spark's name
        """Nothing can be cancelled."""

    removeTag = interruptTag = addTag  # noqa: N815 - Spark's names
