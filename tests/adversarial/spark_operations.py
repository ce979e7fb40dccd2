"""The operations of the pipeline and the data source on Spark, without a JVM: all calls to the store are made in this
process.

The driver, its tasks and the workers of a stream open the store again by the address that is sent to them, and get that
of the instance under test.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException

from lakebed.engine import datafusion
from lakebed.errors import Error
from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.bulk_import.migration import migrate_rows
from lakebed.jobs.executor import Root, TableCall
from lakebed.spark.datasource import spark_columns
from lakebed.spark.datasource.data_source import DefaultSource
from lakebed.spark.spark_executor import SparkExecutor
from lakebed.storage import connect
from lakebed.table.instance import Instance
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.hive import open_hive
from lakebed.upkeep.migration.run import Selection, plan
from tests.tables.retention.cases import Killed
from tests.tables.spark.sessions import Session, attempted


@contextlib.contextmanager
def places_of(lake: Instance) -> Iterator[None]:
    """Make every address open the store of the instance."""
    context = SimpleNamespace(getLocalProperty=lambda _: lake.id, partitionId=lambda: 0, attemptNumber=lambda: 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Root, "connect", lambda _: lake.storage)
        patch.setattr(Root, "open", lambda _, **__: Instance(lake.storage, {"instance": lake.id}))
        patch.setattr(datafusion, "claim_one_core", lambda: None)
        patch.setattr(pyspark.TaskContext, "get", lambda: context)
        yield


def importer(lake: Instance) -> Importer:
    return Importer(SparkExecutor(Session), TableCall(lake.table("t"), Root(lake.url)))


def imported(lake: Instance) -> None:
    """Import two text files, which tasks stage before they are shuffled."""
    with tempfile.TemporaryDirectory() as folder, places_of(lake):
        for number, letters in enumerate(("amz", "bcd")):
            made = {"k": list(letters), "v": [5] * 3, "w": ["x"] * 3}
            pc.write_csv(pa.table(made), Path(folder, f"{number}.csv"))
        importer(lake).run(folder, None, "once")


def migrated(lake: Instance) -> None:
    with tempfile.TemporaryDirectory() as folder, places_of(lake):
        for part in "xy":
            Path(folder, f"w={part}").mkdir()
            pq.write_table(pa.table({"k": [part, "m"], "v": [5, 6]}), f"{folder}/w={part}/rows.parquet")
        location = SourceLocation(folder, connect(f"{folder}-lake"))
        planned = plan(lake.table("t").state(), open_hive(location), "once")
        migrate_rows(importer(lake), planned, Selection({}))


# -- a stream ---------------------------------------------------------------------------------------------------


@dataclass
class Checkpoint:
    """The checkpoint that Spark keeps of a query: the ends of its batches, and the number of completed ones."""

    ends: list[str] = field(default_factory=list)
    done: int = 0


CHECKPOINTS: dict[str, Checkpoint] = {}
"""Checkpoints by the id of the instance: a restarted query continues."""


def streamed(lake: Instance) -> None:
    """Stream from table ``t`` into table ``copy`` to the end.

    Any error ends the query, and tells nothing about commits: only the checkpoint does.
    """
    try:
        _streamed(lake, CHECKPOINTS.setdefault(lake.id, Checkpoint()))
    except (Error, PySparkException) as error:
        raise Killed from error


def _streamed(lake, checkpoint):
    given = {"instance": lake.url}
    with places_of(lake):
        source = DefaultSource({**given, "table": "t", "partition_bytes": "1"})
        schema = source.schema()
        reader = source.streamReader(schema)
        if not checkpoint.ends:
            checkpoint.ends.append(json.dumps(reader.initialOffset()))
            checkpoint.done = 1
        while True:
            number = checkpoint.done
            start = json.loads(checkpoint.ends[number - 1])
            if number == len(checkpoint.ends):
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                if end == start:
                    return
                # Spark writes the end of a batch before it begins the batch.
                checkpoint.ends.append(json.dumps(end))
            _batch(reader, start, json.loads(checkpoint.ends[number]), (given, schema), number)
            checkpoint.done += 1


def _batch(reader, start, end, sink, number):
    given, schema = sink
    writer = DefaultSource({**given, "table": "copy"}).streamWriter(schema, overwrite=False)
    tasks = pickle.dumps((reader, writer))

    def task(part):
        reading, writing = pickle.loads(tasks)
        return writing.write(spark_columns.to_spark(rows, wanted) for rows in reading.read(part))

    wanted = spark_columns.arrow_of(schema)
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions(start, end)]
    writer.commit([attempted(lambda part=part: task(part)) for part in parts], number)
