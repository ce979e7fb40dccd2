"""Stages the source of a bulk import: the rows of each of its tasks become a sorted run, before the import proper.

Text has to be parsed to be sampled, and a DataFrame may give other rows each time it is computed (``rand``, ``limit``,
a source that changes). So a source that is not plain Parquet is read once, and each task writes its rows as a run under
the table's data, which no log names. The import then reads these immutable files, and tasks may be repeated. The
summaries of the files say where to cut.

With a :class:`Quarantine`, rows that do not fit are kept apart here, with the reason. Rows read are rows staged and
rows rejected, or the import fails. Each import has a folder of its own, named by its job, below the location that the
user gave. Tasks put Parquet files there under new names, so nothing is ever overwritten. ``_SUCCESS``, put after the
commit, names the files that count: a file that it does not name, and a folder without it, belong to an attempt that did
not commit, or that died just after its commit. An import that fails deletes its files.

Core types: :class:`Staging`, :class:`Staged`, :class:`Quarantine`, :class:`RejectedRowsWriter`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, StorageError
from lakebed.jobs.bulk_import.shuffle import Shuffle
from lakebed.jobs.executor import Root, task_scratch
from lakebed.model.files import NewFile
from lakebed.storage.contract import check_name
from lakebed.storage.retries import create_until_clear
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import check_rows, send_run
from lakebed.write.source_rows import SourceRows, conformed_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.formats.reading_options import ReadingOptions
    from lakebed.storage.contract import Storage
    from lakebed.write.file_parts import SourcePart
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
                f"tasks cannot write to a quarantine in memory ({self.place.url}); use a folder"
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


Rows = Callable[[Any], Iterator[SourceRows]]
"""From the value of a staging task, or the batches that Spark gives it, to the rows of the source."""


def part_rows(part: SourcePart, shuffle: Shuffle, text: TextFields, options: ReadingOptions) -> Iterator[SourceRows]:
    """Return the rows of a staging task, whose value is a part of a file of any format that is read here."""
    yield from part.open(shuffle.place.connect(), text, options).rows


@dataclass(frozen=True, slots=True)
class Staging:
    """What all tasks share. Without a ``quarantine`` a row that does not fit is an error."""

    shuffle: Shuffle
    conformer: Conformer
    quarantine: Quarantine | None


@dataclass(frozen=True, slots=True)
class Staged:
    """The run that a task made of ``rows`` rows of its source, and its rejected rows."""

    rows: int
    files: tuple[NewFile, ...]
    rejected: RejectedRows


def stage_task(value: Any, rows: Rows, staging: Staging) -> Staged:
    """Run a staging task: sort and send the rows of its value, and the rejected ones apart."""
    from lakebed.files.sorting.sort import sort_runs

    shuffle, encoder = staging.shuffle, RowEncoder(staging.conformer, staging.shuffle.merge)
    read = 0
    with task_scratch() as scratch:
        rejects = None if staging.quarantine is None else RejectedRowsWriter(staging.quarantine, scratch)

        def fitting() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for read_rows in rows(value):
                read += read_rows.batch.num_rows
                if rejects is None:
                    yield from conformed_rows(read_rows, encoder)
                    continue
                kept, rejected = encoder.separate(read_rows.batch, read_rows.source)
                for part in rejected:
                    rejects.add(part)
                yield kept

        limit = shuffle.memory_limit_bytes
        run_files = sort_runs(fitting(), shuffle.layout, scratch, memory_limit_bytes=limit, mode=shuffle.merge)
        files = send_run(shuffle.place.connect(), shuffle.table_id, run_files, job=shuffle.job)
        rejected = RejectedRows() if rejects is None else rejects.send()
    taken = read - rejected.rows
    check_rows(taken, sum(new.file.rows for new in files), shuffle.merge)
    return Staged(taken, files, rejected)
