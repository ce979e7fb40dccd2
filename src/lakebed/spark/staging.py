"""Stages the source of a bulk import: each of its Spark partitions becomes a sorted run, before the import proper.

A DataFrame may give other rows each time it is computed (``rand``, ``limit``, a source that changes), and computing it
twice, to sample and to import it, may be expensive. :func:`stage` computes it once, by one action, and writes each
partition as a run under the table's data, which no log names. The import then reads these immutable files, and tasks
may be repeated. The summaries of the files say where to cut.

With a :class:`Quarantine`, rows that do not fit are kept apart here, with the reason. Rows read are rows staged and
rows rejected, or the import fails. Each import has a folder of its own, named by its job, below the location that the
user gave. Tasks put Parquet files there under new names, so nothing is ever overwritten. ``_SUCCESS``, put after the
commit, names the files that count: a file that it does not name, and a folder without it, belong to an attempt that did
not commit, or that died just after its commit. An import that fails deletes its files.

Core types: :class:`SourceToStage`, :class:`Staging`, :class:`Staged`, :class:`Quarantine`, :class:`RejectedRowsWriter`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, StorageError
from lakebed.jobs.executor import (
    Root,
    TaskTimes,
    decode,
    encode,
    task_scratch,
)
from lakebed.jobs.job_progress import Callback, in_phase
from lakebed.model.files import NewFile
from lakebed.spark.scattered import Scattered, values_in
from lakebed.spark.shuffle import Shuffle
from lakebed.spark.spark_job import ArrowFunction, attempt_number, raising, record_tasks, spark_job
from lakebed.storage.contract import check_name
from lakebed.storage.retries import create_until_clear
from lakebed.table.tracker.recorder import NO_RUN, RunHandle
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import check_rows, send_run
from lakebed.write.source_rows import SourceRows, conformed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.files.formats.reading_options import ReadingOptions
    from lakebed.jobs.interrupt import Stop
    from lakebed.storage.contract import Storage
    from lakebed.write.input_files import TextFields


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rejected rows of one task: their number, and the names of the objects."""

    rows: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder of one import, below a location shared with others; file names begin with ``attempt``."""

    place: Root
    job: str
    attempt: str

    @property
    def url(self) -> str:
        """The folder's URL."""
        return f"{self.place.url.rstrip('/')}/{self.job}"

    @property
    def _success_name(self) -> str:
        return f"{self.job}/_SUCCESS"

    def check(self) -> None:
        """Raise UsageError for an invalid location or name, ExistsError for the folder of another import."""
        check_name(self.job)
        storage = self.place.connect()
        if not storage.locality.shared:
            raise Code.INSTANCE_IN_MEMORY(
                f"Spark's tasks cannot write to a quarantine in memory ({self.place.url}); use a folder"
            )
        if storage.get(self._success_name) is not None:
            raise Code.QUARANTINE_IN_USE(
                f"{self.url} holds rejected rows of another import with the job id {self.job}; name another location",
                name=self.url,
            )

    def finish(self, rejected: Sequence[RejectedRows], facts: Mapping[str, Any]) -> None:
        """Put ``_SUCCESS``, after the commit. Raises StorageError, which says that the rows are imported."""
        names = [name for one in rejected for name in one.names]
        self.discard(keep=names)
        if not names:
            return
        files = [name.removeprefix(f"{self.job}/") for name in names]
        document = {**facts, "job": self.job, "rows": sum(one.rows for one in rejected), "files": files}
        try:
            create_until_clear(self.place.connect(), self._success_name, json.dumps(document, indent=1).encode())
        except StorageError as error:
            raise error.restated(
                f"the rows are imported, and the rejected ones are in {self.url}, without _SUCCESS ({error.message}); "
                "do not import them again"
            ) from error.__cause__

    def discard(self, keep: Collection[str] = ()) -> None:
        """Delete the files of this attempt, except for ``keep``: all after a failure, or those of repeated tasks.

        A best effort: ``_SUCCESS`` does not name them.
        """
        storage = self.place.connect()
        with suppress(StorageError):
            own = [o.name for o in storage.list(self.job) if o.name.startswith(f"{self.job}/{self.attempt}-")]
            storage.delete([name for name in own if name not in keep])


class RejectedRowsWriter:
    """Writes the rejected rows of one task to local files, one for each schema, and sends them to the quarantine."""

    def __init__(self, quarantine: Quarantine, scratch: Path) -> None:
        self._quarantine = quarantine
        self._scratch = scratch
        self._writers: dict[pa.Schema, tuple[Path, Any]] = {}
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows to the file of their schema."""
        import pyarrow.parquet as pq

        if rows.schema not in self._writers:
            path = self._scratch / f"rejected-{len(self._writers)}.parquet"
            self._writers[rows.schema] = path, pq.ParquetWriter(path, rows.schema, compression="zstd")
        self._writers[rows.schema][1].write_batch(rows)
        self._rows += rows.num_rows

    def send(self) -> RejectedRows:
        """Send all files."""
        storage: Storage = self._quarantine.place.connect()
        names = []
        for path, writer in self._writers.values():
            writer.close()
            names.append(f"{self._quarantine.job}/{self._quarantine.attempt}-{clock.new_id()}.parquet")
            storage.send(names[-1], path)
        return RejectedRows(self._rows, tuple(names))


_STAGED = "payload binary"
_STAGED_SCHEMA = pa.schema([("payload", pa.binary())])

Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[SourceRows]]
"""From the batches that Spark gives a task to the rows of the source."""


def part_rows(
    batches: Iterator[pa.RecordBatch], shuffle: Shuffle, text: TextFields, options: ReadingOptions
) -> Iterator[SourceRows]:
    """Return the rows of a staging task, whose Spark partition is a part of a file of any format that is read here."""
    home = shuffle.place.connect()
    for _, part in values_in(batches):
        yield from part.open(home, text, options).rows


@dataclass(frozen=True, slots=True)
class SourceToStage:
    """The frame whose tasks stage a source, how a task gets the rows, and how they become those of the table."""

    frame: Any
    rows: Rows
    shuffle: Shuffle
    conformer: Conformer
    name: str
    files: int = 0


@dataclass(frozen=True, slots=True)
class Staging:
    """What all tasks share. Without a ``quarantine`` a row that does not fit is an error."""

    shuffle: Shuffle
    conformer: Conformer
    quarantine: Quarantine | None


@dataclass(frozen=True, slots=True)
class Staged:
    """The run of one Spark partition, by its number, of ``taken`` rows; and its rejected rows."""

    partition: int
    taken: int
    files: tuple[NewFile, ...]
    rejected: RejectedRows
    times: TaskTimes | None = None


def stage(  # noqa: PLR0913 - what is staged, how, and who watches and stops it
    frame: DataFrame | Scattered,
    staging: Staging,
    rows: Rows,
    stop: Stop,
    run: RunHandle = NO_RUN,
    *,
    progress: Callback | None = None,
) -> tuple[Staged, ...]:
    """Compute the frame, once, and write each Spark partition as a run of job ``staging.shuffle.job``, in their order.

    The tasks are recorded as those of ``run``. Raises KeyboardInterrupt if the call was asked to stop.
    """
    session = frame.sparkSession
    with spark_job(session, stop, in_phase(progress, "read")):
        found = frame.mapInArrow(_stage_function(staging, rows), _STAGED).toArrow()
    decoded = (decode(payload, Staged) for payload in found.column(0).to_pylist())
    staged = tuple(sorted(decoded, key=lambda part: part.partition))
    record_tasks(run, frame.sparkSession, [(part.taken, part.times) for part in staged])
    return staged


def _stage_function(staging: Staging, rows: Rows) -> ArrowFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        began = clock.now()
        staged = replace(_staged(rows(batches), staging, partition), times=TaskTimes.since(began, attempt_number()))
        yield pa.record_batch([[encode(staged)]], schema=_STAGED_SCHEMA)

    return raising(run)


def _staged(given: Iterator[SourceRows], staging: Staging, partition: int) -> Staged:
    """Sort and send the rows of one Spark partition, and the rejected ones apart."""
    from lakebed.files.sorting.sort import sort_runs

    shuffle, encoder = staging.shuffle, RowEncoder(staging.conformer, staging.shuffle.merge)
    read = 0
    with task_scratch() as scratch:
        rejects = None if staging.quarantine is None else RejectedRowsWriter(staging.quarantine, scratch)

        def fitting() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for rows in given:
                read += rows.batch.num_rows
                if rejects is None:
                    yield from conformed_rows(rows, encoder)
                    continue
                kept, rejected = encoder.separate(rows.batch, rows.source)
                for part in rejected:
                    rejects.add(part)
                yield kept

        limit = shuffle.memory_limit_bytes
        run_files = sort_runs(fitting(), shuffle.layout, scratch, memory_limit_bytes=limit, mode=shuffle.merge)
        files = send_run(shuffle.place.connect(), shuffle.table_id, run_files, job=shuffle.job)
        rejected = RejectedRows() if rejects is None else rejects.send()
    taken = read - rejected.rows
    check_rows(taken, sum(new.file.rows for new in files), shuffle.merge)
    return Staged(partition, taken, files, rejected)
