"""A stand-in for a Spark session that runs the tasks of a pipeline in this process, one after another, without Java.

For :mod:`benchmarks.compare`, whose older side may lack the in-process launcher, and which measures the CPU time of one
process. It has the methods of a session that :class:`lakebed.Pipeline` uses for a compaction, under PySpark's own
names.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa


class SessionHere:
    """The session. ``conf`` sets one task at a time."""

    conf = SimpleNamespace(get=lambda *_: "local[1]")

    def addTag(self, tag):  # noqa: N802 - PySpark's name
        """Do nothing: jobs end before they could be cancelled."""

    removeTag = interruptTag = addTag  # noqa: N815

    def range(self, start, end, step, partitions):
        return _Frame([pa.record_batch({"id": [number]}) for number in range(start, end, step)])

    def createDataFrame(self, rows, schema):  # noqa: N802 - what the older side may call
        columns = [name.split()[0] for name in schema.split(",")]
        return _Frame(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))).to_batches())


class _Frame:
    def __init__(self, batches):
        self._batches = batches

    def repartition(self, count, column):
        return self

    repartitionById = repartition  # noqa: N815 - what the older side may call

    def mapInArrow(self, function, schema):  # noqa: N802
        return _Frame(list(function(iter(self._batches))))

    def toArrow(self):  # noqa: N802
        return pa.Table.from_batches(self._batches)
