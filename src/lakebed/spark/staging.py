"""Staging: rows of any source, each partition sorted and written as a run of its own, before the import proper.

A DataFrame may give other rows each time it is computed (``rand``, ``limit``, a source that changes), and computing it
once to sample it and again to import it would cost twice where it is dear. So it is computed exactly once, by one
action: each of its partitions is written as a run under the table's data, as orphans to be. What follows, the cutting
and merging, then reads immutable files, and may be repeated as often as Spark likes. Their summaries tell where to cut.

Rows are sifted here, too, if there is a quarantine: what one action gave is what counts, so rejected rows are counted
exactly once although tasks may run twice. Rows read are rows staged and rows rejected, or the import fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.ingest.conformer import Conformer
from lakebed.ingest.send import send_run
from lakebed.model.files import NewFile, object_names
from lakebed.spark import wire
from lakebed.spark.batch import TaskError, on_one_core, spark_errors, task_scratch
from lakebed.spark.quarantine import Aside, Quarantine, RejectedRows
from lakebed.spark.shuffle import Shuffle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.spark.interrupt import Stop
    from lakebed.storage.contract import Storage

_STAGED = "payload binary"
_STAGED_SCHEMA = pa.schema([("payload", pa.binary())])

Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[pa.RecordBatch, str]]]
"""From what Spark gives a task to the rows of the source, with what names it in errors."""


@dataclass(frozen=True, slots=True)
class Staging:
    """What all tasks share. Without a ``quarantine`` a row that does not fit is an error."""

    shuffle: Shuffle
    conformer: Conformer
    quarantine: Quarantine | None


@dataclass(frozen=True, slots=True)
class Staged:
    """The run that one partition became, and what was put aside of it."""

    rows: int
    files: tuple[NewFile, ...]
    rejected: RejectedRows


def stage(frame: DataFrame, staging: Staging, rows: Rows, stop: Stop) -> tuple[Staged, ...]:
    """Compute the frame, once, and write each partition as a run of job ``staging.shuffle.job``.

    Raises KeyboardInterrupt if the call was asked to stop.
    """
    with stop.job(frame.sparkSession), spark_errors():
        found = frame.mapInArrow(_stage_function(staging, rows), _STAGED).toArrow()
    return tuple(_decode(wire.load(payload)) for payload in found.column(0).to_pylist())


def unstage(staged: Sequence[Staged], storage: Storage, table_id: str) -> None:
    """Delete staged files: nothing ever names them in a log."""
    files = [new.file for part in staged for new in part.files]
    storage.delete([name for f in files for name in object_names(table_id, f)])


def _stage_function(staging: Staging, rows: Rows) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        on_one_core()
        try:
            yield pa.record_batch([[wire.dump(_staged(rows(batches), staging))]], schema=_STAGED_SCHEMA)
        except Exception as error:
            raise TaskError(error) from error

    return run


def _staged(given: Iterator[tuple[pa.RecordBatch, str]], staging: Staging) -> Any:
    """Sort and send the rows of one partition, the rejected ones aside; what was sent, as a document."""
    from lakebed.sorting.sort import sort_runs

    shuffle, conformer = staging.shuffle, staging.conformer
    read = 0
    with task_scratch() as scratch:
        aside = None if staging.quarantine is None else Aside(staging.quarantine, scratch)

        def fitting() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch, source in given:
                read += batch.num_rows
                if aside is None:
                    yield conformer.conform(batch, source)
                    continue
                kept, rejected = conformer.separate(batch, source)
                for part in rejected:
                    aside.add(part)
                yield kept

        run_files = sort_runs(fitting(), shuffle.layout, scratch, memory_limit_bytes=shuffle.memory_limit_bytes)
        files = send_run(shuffle.place.connect(), shuffle.table_id, run_files, job=shuffle.job)
        rejected = RejectedRows() if aside is None else aside.send()
    rows = sum(new.file.rows for new in files)
    if rows + rejected.rows != read:
        raise Code.ROWS_LOST(f"of {read} rows {rows} were kept and {rejected.rows} rejected; nothing was imported")
    return {"rows": rows, "files": wire.encode_new_files(files), "rejected": [rejected.rows, list(rejected.names)]}


def _decode(document: Any) -> Staged:
    count, names = document["rejected"]
    return Staged(document["rows"], wire.decode_new_files(document["files"]), RejectedRows(count, tuple(names)))
