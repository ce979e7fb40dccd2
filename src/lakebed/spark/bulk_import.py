"""Bulk import: a large input, sorted by a shuffle of runs, visible in one commit.

    check -> sample -> cut partitions -> map: read, sort, cut -> shuffle of pieces -> reduce: merge, send
    -> settle -> commit

Parquet files are read by the map tasks themselves: the driver lists them, reads their footers and samples their keys.
Any other source becomes a DataFrame and is staged first (:mod:`lakebed.spark.source_frames`); its staged files take the
place of the source.

A reducer owns one range of keys, so its files and those of its neighbours at most touch: all are one run. There is one
commit, of all rows or none, under the job id that the caller gave; a repeated import with the same id adds nothing. If
anything fails before the commit, the table is unchanged, and files that were sent are orphans.

Core types: :class:`Importer`, :class:`SourceReading`, :class:`ImportReport`.

Errors: those of sources and rows before anything is committed; UnknownOutcomeError if the commit has no clear outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, Error, UnknownOutcomeError
from lakebed.ingest.conformer import Conformer
from lakebed.ingest.growth import Growth
from lakebed.ingest.row_encoder import RowEncoder
from lakebed.ingest.run import sent_rows
from lakebed.ingest.send import check_runs, commit_files
from lakebed.ingest.sources import find_files
from lakebed.inspect.copies import CopyKind, record_copy
from lakebed.log.outcomes import Committed, version_of
from lakebed.maintenance.ingest_tasks import Ingested
from lakebed.maintenance.splitting.run import cut_partitions
from lakebed.model.checks import are_names, are_texts, is_text, is_whole, shown
from lakebed.spark import source_frames
from lakebed.spark.batch import Place, decode, record_tasks, rows_of, scattered, spark_errors
from lakebed.spark.boundaries import InputPart, WeightedKeys, cut, divide, full_partitions, weigh
from lakebed.spark.interrupt import Stop, current_stop
from lakebed.spark.job_progress import Callback, JobSpan, watched
from lakebed.spark.map_inputs import MAP_SHARE, MapInput, footer_columns, native_input, source_rows
from lakebed.spark.session import cores_of
from lakebed.spark.shuffle import MADE, PIECES, Reduced, RowsRead, Shuffle, map_function, reduce_function, settle
from lakebed.spark.staging import Quarantine, Rows, Staged, Staging, stage, unstage
from lakebed.state.time_travel import committed_at
from lakebed.state.transactions import ProposeFiles, Source
from lakebed.storage.external import options_for
from lakebed.tracker.recorder import RunHandle, current_run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema
    from lakebed.parquet.layout import Layout
    from lakebed.settings import Settings
    from lakebed.state.table_state import TableState
    from lakebed.table.table import Table

REDUCER_BYTES_MIN = 16 * 1024 * 1024
"""A reducer gets at least this much, even if cores are idle: small files cost every later read a request."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. ``repeated``: the job id was committed before, at ``version``, and nothing was added now.

    ``version`` is None if there were no rows (and no job id to remember). ``partitions_split`` partitions were cut
    before the import. ``rejected`` rows are in the folder ``quarantine``. ``rows`` were imported, as ``rows_written``:
    fewer, if rows with equal keys were merged.
    """

    table: str
    job: str
    rows: int
    rows_written: int
    files: int
    size_bytes: int
    source_files: int
    map_tasks: int
    reduce_tasks: int
    version: int | None
    repeated: bool = False
    partitions_split: int = 0
    rejected: int = 0
    quarantine: str | None = None


@dataclass(frozen=True, slots=True)
class SourceReading:
    """How :meth:`Pipeline.bulk_import` reads a source: columns, casts, query, and where rejected rows go."""

    columns: Mapping[str, str] = field(default_factory=dict)
    casts: Sequence[str] = ()
    select: str | None = None
    quarantine: str | None = None

    def conformer(self, schema: Schema, format: str) -> Conformer:
        """How rows become those of a table. In formats without types all fields are cast."""
        if not are_texts(self.casts):
            raise Code.ARGUMENT_INVALID(f"casts is a list of names, not {shown(self.casts)}")
        if not are_names(self.columns) or not is_text(format):
            raise Code.ARGUMENT_INVALID(
                f"columns = {shown(self.columns)}, format = {shown(format)}: must be names by field, a text"
            )
        unasked = schema.names if format in source_frames.TEXT_FORMATS else ()
        return Conformer(schema, dict(self.columns), frozenset([*self.casts, *unasked]))


@dataclass(frozen=True, slots=True)
class _Request:
    """The request key of an import, and the version when it began."""

    key: str | None
    base_version: int


def _unchecked(_rows: int) -> None:
    """Any number of rows is right."""


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports into one table. ``partition_rows`` takes the place of the setting ``split_rows``.

    ``start`` gives the Spark session; it is not called if there is nothing to import.
    """

    start: Callable[[], SparkSession]
    table: Table
    place: Place
    progress: Callback | None = None
    partition_rows: int | None = None
    stop: Stop = field(default_factory=current_stop)
    record: RunHandle = field(default_factory=current_run)
    """The run that the tasks are recorded for."""

    def run(self, given: Any, format: str, job_id: str | None, reading: SourceReading | None = None) -> ImportReport:
        """Import a source; see :meth:`Pipeline.bulk_import`."""
        if self.partition_rows is not None and not is_whole(self.partition_rows, 2):
            raise Code.ARGUMENT_INVALID(
                f"partition_rows = {shown(self.partition_rows)}: must be 2 or more", partition_rows=self.partition_rows
            )
        state = self.table.state()
        request = _Request(job_id, state.version)
        if (first := committed_at(state, "job_id", job_id)) is not None:
            return ImportReport(self.table.name, job_id or "", 0, 0, 0, 0, 0, 0, 0, first, repeated=True)
        check_runs(self.table)
        # One schema from here to the end, even if the table is altered meanwhile.
        layout = self.table.layout()
        shuffle = self._shuffle(layout, state.merge)
        reading = reading or SourceReading()
        is_frame = _is_frame(given)
        conformer = self._limited(reading.conformer(layout.schema, "" if is_frame else format))
        quarantine = self._quarantine(reading, job_id or shuffle.job, shuffle.job)
        if format == "parquet" and not is_frame and reading.select is None:
            files = find_files(given, self.table.storage)
            shuffle, conformer = self._growing(shuffle, conformer, partial(footer_columns, files, shuffle, self.stop))
            found = native_input(files, shuffle, conformer, self.stop)
            if quarantine is None:
                return self._shuffled(found, shuffle, request)
            rows: Rows = partial(source_rows, shuffle=shuffle)
            frame, text = scattered(self.start(), found.tasks), str(given)
        else:
            text = "the DataFrame" if is_frame else str(given)
            with self.stop.job(session := self.start()):
                frame = source_frames.read_frame(session, given, format, reading.select)
                columns = source_frames.columns_of(frame)
                shuffle, conformer = self._growing(shuffle, conformer, lambda: [(text, columns)])
                frame = source_frames.typed(frame, conformer)
            source_frames.check_frame(frame, RowEncoder(conformer, shuffle.merge), text)
            if reading.select is None and not is_frame:
                frame = source_frames.with_files(frame, format)
            rows = partial(source_frames.named_rows, source=text)
        try:
            staged = stage(frame, Staging(shuffle, conformer, quarantine), rows, self.stop, self.record)
        except BaseException as error:
            if quarantine is not None:
                quarantine.discard()
            if not isinstance(error, Error):
                raise
            raise source_frames.refused_text(error, text) from error
        return self._from_staged(staged, shuffle, request, quarantine)

    def _growing(
        self, shuffle: Shuffle, conformer: Conformer, sources: Callable[[], Iterable[tuple[str, pa.Schema]]]
    ) -> tuple[Shuffle, Conformer]:
        """Both with fields for other columns of the sources, if the table takes new columns."""
        growth = Growth.of(self.table.log.head.state, self.table.settings_in_force())
        if growth is None:
            return shuffle, conformer
        layout = growth.layout(shuffle.layout, sources(), conformer.read)
        return replace(shuffle, layout=layout), replace(conformer, schema=layout.schema, grows=True)

    def _limited(self, conformer: Conformer) -> Conformer:
        return replace(conformer, value_bytes_max=self.table.settings_in_force().value_bytes_max)

    def _quarantine(self, reading: SourceReading, job: str, attempt: str) -> Quarantine | None:
        if reading.quarantine is None:
            return None
        # Tasks run in other folders.
        url = source_frames.absolute(reading.quarantine)
        quarantine = Quarantine(Place(url, options_for(url, self.place.url, self.place.options)), job, attempt)
        quarantine.check()
        record_copy(self.table.storage, self.table.id, CopyKind.QUARANTINE, quarantine.url, self.table.version)
        return quarantine

    def _from_staged(
        self, staged: Sequence[Staged], shuffle: Shuffle, request: _Request, quarantine: Quarantine | None
    ) -> ImportReport:
        rejected = [part.rejected for part in staged]
        counted = False
        try:
            report = self._shuffled(_restaged(staged), shuffle, request)
            counted = not report.repeated
        except UnknownOutcomeError:
            # The import may have been committed; then its rejected rows count.
            counted = True
            raise
        finally:
            # Staged files are never committed, so they are deleted in any case.
            unstage(staged, self.table.storage, self.table.id)
            if quarantine is not None and not counted:
                quarantine.discard()
        if report.repeated:
            return report
        report = replace(report, rows=sum(part.taken for part in staged))
        if quarantine is None:
            return report
        quarantine.finish(rejected, {"table": self.table.id, "version": report.version})
        rows = sum(one.rows for one in rejected)
        return replace(report, rejected=rows, quarantine=quarantine.url if rows else None)

    def _shuffle(self, layout: Layout, merge: MergeMode) -> Shuffle:
        return Shuffle(
            place=self.place,
            table_id=self.table.id,
            job=clock.new_id(),
            layout=layout,
            memory_limit_bytes=self.table.settings_in_force().memory_limit_bytes,
            boundaries=(),
            partitions=(),
            merge=merge,
        )

    def sort(self, files: Sequence[Source], merge: MergeMode) -> Ingested:
        """The rows of Parquet files, merged by a mode, as new data files of the table, sent and not committed."""
        shuffle = self._shuffle(self.table.layout(), merge)
        conformer = self._limited(Conformer(shuffle.layout.schema))
        shuffle, conformer = self._growing(shuffle, conformer, partial(footer_columns, files, shuffle, self.stop))
        found = native_input(files, shuffle, conformer, self.stop)
        made = self._exchange(found, self._divided(found, weigh(found.parts), shuffle))
        return Ingested(made, sum(found.rows))

    def staged(
        self,
        tasks: Sequence[Any],
        rows: Rows,
        conformed: Callable[[Schema], Conformer] = Conformer,
        columns: Sequence[tuple[str, pa.Schema]] = (),
        check: Callable[[int], None] = _unchecked,
    ) -> Ingested:
        """The rows that tasks make, merged by the table's mode, as new data files, sent and not committed.

        ``conformed`` says how they are made to fit. ``columns`` are those of each source by name, if they are known
        before. ``check`` is called with the number of rows, before they are shuffled.
        """
        shuffle = self._shuffle(self.table.layout(), self.table.state().merge)
        conformer = self._limited(conformed(shuffle.layout.schema))
        if columns:
            shuffle, conformer = self._growing(shuffle, conformer, lambda: columns)
        for name, found in columns:
            RowEncoder(conformer, shuffle.merge).check(found, name)
        staged = stage(scattered(self.start(), tasks), Staging(shuffle, conformer, None), rows, self.stop, self.record)
        try:
            check(sum(part.taken for part in staged))
            found = _restaged(staged)
            sample = weigh(found.parts)
            self._split_partitions(found, sample)
            made = self._exchange(found, self._divided(found, sample, shuffle))
        finally:
            unstage(staged, self.table.storage, self.table.id)
        return Ingested(made, sum(part.taken for part in staged))

    def _divided(self, found: MapInput, sample: WeightedKeys, shuffle: Shuffle) -> Shuffle:
        partitions = self.table.state().partitions.boundaries
        boundaries = divide(sample, partitions, self._reducers(found, shuffle.layout.file_bytes))
        return replace(shuffle, boundaries=boundaries, partitions=partitions)

    def _shuffled(self, found: MapInput, shuffle: Shuffle, request: _Request) -> ImportReport:
        sample = weigh(found.parts)
        self.stop.check()
        partitions_split = self._split_partitions(found, sample)
        shuffle = self._divided(found, sample, shuffle)
        files = self._exchange(found, shuffle)
        version, repeated = self._commit(files, request)
        return ImportReport(
            table=self.table.name,
            job=request.key or shuffle.job,
            rows=0 if repeated else sum(found.rows),
            rows_written=0 if repeated else sum(new.file.rows for new in files),
            files=0 if repeated else len(files),
            size_bytes=0 if repeated else sum(new.file.size_bytes for new in files),
            source_files=found.files,
            map_tasks=len(found.tasks),
            reduce_tasks=len(shuffle.boundaries) + 1 if found.tasks else 0,
            version=version,
            repeated=repeated,
            partitions_split=partitions_split,
        )

    def _split_partitions(self, found: MapInput, sample: WeightedKeys) -> int:
        limits = self.table.settings_in_force()
        if self.partition_rows is not None:
            limits = replace(limits, split_rows=self.partition_rows)
        return split_before(self.table, self.table.state(), sample, found.size_bytes / max(1, sum(found.rows)), limits)

    def _reducers(self, found: MapInput, file_bytes: int) -> int:
        with self.stop.job(session := self.start()):
            cores = cores_of(session)
        busy = min(cores, found.size_bytes // REDUCER_BYTES_MIN)
        return max(1, busy, -(-found.size_bytes // file_bytes))

    def _exchange(self, found: MapInput, shuffle: Shuffle) -> tuple[NewFile, ...]:
        """Map, shuffle, reduce: one Spark job, one action; none if there are no rows."""
        if not found.tasks:
            return ()
        total = sum(found.rows)
        span = JobSpan(0, total, total, tasks=len(found.tasks) + len(shuffle.boundaries) + 1)
        session = self.start()
        with watched(session, self.progress, span), self.stop.job(session), spark_errors():
            pieces = scattered(session, found.tasks).mapInArrow(map_function(shuffle, found.chunks), PIECES)
            placed = pieces.repartitionById(len(shuffle.boundaries) + 1, "reducer")
            made = placed.mapInArrow(reduce_function(shuffle), MADE).toArrow()
        rows = zip(*(column.to_pylist() for column in made.columns), strict=True)
        reduced = [(reducer, decode(payload, Reduced)) for reducer, payload in rows]
        tasks = [(rows_of(one.files), one.times) for _, one in sorted(reduced, key=itemgetter(0))]
        record_tasks(self.record, session, tasks)
        return settle(dict(enumerate(found.rows)), reduced, shuffle.merge)

    def _commit(self, files: tuple[NewFile, ...], request: _Request) -> tuple[int | None, bool]:
        if not files and request.key is None:
            return None, False
        self.stop.check()
        outcome = commit_files(self.table, ProposeFiles(files, request.key, request.base_version))
        if isinstance(outcome, Committed):
            return outcome.version, outcome.repeated
        return version_of(outcome, f"import into {self.table.name}"), False


def _is_frame(given: Any) -> bool:
    from pyspark.sql import DataFrame

    return isinstance(given, DataFrame)


def split_before(table: Table, state: TableState, sample: WeightedKeys, row_bytes: float, settings: Settings) -> int:
    """Cut the partitions that would grow too large; returns their number. Partitions that changed are left out.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; partitions cut before stay cut.
    """
    codec = table.schema.codec
    full = full_partitions(state, sample, row_bytes, settings)
    return len(cut_partitions(table, full, lambda partition, summaries: cut(partition, summaries, sample, codec)).split)


# -- staged files -----------------------------------------------------------------------------------------------


def _restaged(staged: Sequence[Staged]) -> MapInput:
    files = [new for part in staged for new in part.files]
    return MapInput(
        tasks=tuple(new.file for new in files),
        rows=tuple(new.file.rows for new in files),
        parts=tuple(InputPart(new.file.rows, new.summary.spread()) for new in files),
        size_bytes=sum(new.file.size_bytes for new in files),
        files=0,
        chunks=staged_chunks,
    )


def staged_chunks(file: DataFile, shuffle: Shuffle, read: RowsRead) -> Iterator[pa.Table]:
    """A map task: read a staged file, which is sorted, in chunks. Raises DamagedError if it is not what was written."""
    from lakebed.parquet.file_writer import as_schema
    from lakebed.parquet.sizes import gather

    limit = shuffle.memory_limit_bytes
    stored = sent_rows(shuffle.place.connect(), shuffle.table_id, file, limit)
    # Parquet stores seconds as milliseconds; boundaries are keys of the schema's own types.
    batches = (as_schema(batch, shuffle.layout.schema) for batch in stored)
    yield from gather(read.counted(batches), 2**31 - 1, limit // MAP_SHARE)
