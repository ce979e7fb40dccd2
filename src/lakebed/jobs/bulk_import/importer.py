"""Bulk import: a large input, sorted by map tasks and reduce tasks, visible in one commit.

    check -> sample -> cut partitions -> map: read, sort, cut -> exchange of pieces -> reduce: merge, send
    -> settle -> commit

The tasks are run, and the pieces carried, by the exchange of an executor (:class:`~lakebed.jobs.executor.Exchange`): by
Spark's shuffle, or in files of worker processes.

Parquet files are read by the map tasks themselves: the driver lists them, reads their footers and samples their keys.
Any other source is staged first, and its staged files take its place: text, Arrow and ORC files, which tasks read as a
write does (:mod:`lakebed.write.file_parts`), and what only Spark reads (:class:`~lakebed.jobs.executor.SparkFrames`).

A reducer owns one range of keys, so its files and those of its neighbours at most touch: all are one run. There is one
commit, of all rows or none, under the job id that the caller gave; a repeated import with the same id adds nothing. If
anything fails before the commit, the table is unchanged, and files that were sent are orphans.

Core types: :class:`Importer`.

Errors: those of sources and rows before anything is committed; UnknownOutcomeError if the commit has no clear outcome.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, UnknownOutcomeError
from lakebed.files.formats.file_format import SUFFIXES as DATA_SUFFIXES
from lakebed.files.formats.file_format import FileFormat, check_options
from lakebed.files.formats.reading_options import FORMATS, SPARK_FORMATS
from lakebed.jobs.bulk_import.boundaries import (
    WeightedKeys,
    choose_split_keys,
    divide,
    full_partitions,
    range_count,
    range_cuts,
    reducer_count,
    weigh,
)
from lakebed.jobs.bulk_import.map_inputs import (
    MAP_SHARE,
    MapInput,
    footer_columns,
    native_input,
    source_rows,
    staged_input,
)
from lakebed.jobs.bulk_import.shuffle import CHUNK_SHARE, Reduced, Shuffle, map_task, reduce_task, settle
from lakebed.jobs.bulk_import.staging import Quarantine, Rows, Staged, Staging, part_rows, stage_task
from lakebed.jobs.executor import Executor, MapReduce, Root, TableCall, frames_of
from lakebed.jobs.job_progress import Progress, in_phase
from lakebed.log.outcomes import Committed, version_of
from lakebed.model.checks import is_text, is_whole, shown
from lakebed.model.state.table_state import Source
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions import ProposeFiles
from lakebed.read.inspect.history import CopyKind, record_copy
from lakebed.storage.external import absolute, options_for
from lakebed.upkeep.ingest_jobs import Ingested
from lakebed.upkeep.splitting.run import split_at_keys
from lakebed.write.conformer import Conformer
from lakebed.write.file_parts import PART_BYTES_MIN, are_parquet, divided, part_columns
from lakebed.write.growth import Growth
from lakebed.write.imports import ImportReport, SourceReading
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.run import check_runs, commit_files, discard
from lakebed.write.source_rows import SourceRows
from lakebed.write.sources import SUFFIXES, find_files

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.parquet.layout import Layout
    from lakebed.model.files import NewFile
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The request key of an import, and the version when it began."""

    key: str | None
    base_version: int


@dataclass(frozen=True, slots=True)
class SourceToStage:
    """What stages a source, whose rows ``conformer`` makes those of the table, and the number of its files."""

    stage: Callable[[Staging], Sequence[Staged]]
    shuffle: Shuffle
    conformer: Conformer
    files: int = 0


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports into the table of a call. ``partition_rows`` takes the place of the setting ``split_rows``.

    The executor starts nothing if there is nothing to import.
    """

    executor: Executor
    call: TableCall
    partition_rows: int | None = None

    @property
    def table(self) -> Table:
        """The table."""
        return self.call.table

    def run(
        self, given: Any, format: str | None, job_id: str | None, reading: SourceReading | None = None
    ) -> ImportReport:
        """Import a source; see :meth:`Pipeline.bulk_import`."""
        if self.partition_rows is not None and not is_whole(self.partition_rows, 2):
            raise Code.ARGUMENT_INVALID(
                f"partition_rows = {shown(self.partition_rows)}: must be 2 or more", partition_rows=self.partition_rows
            )
        if format is not None and not (is_text(format) and format in (*FORMATS, *SPARK_FORMATS)):
            formats = ", ".join((*FORMATS, *SPARK_FORMATS))
            raise Code.FORMAT_UNKNOWN(f"unknown format {shown(format)}; formats: {formats}", format=format)
        state = self.table.state()
        request = ImportRequest(job_id, state.version)
        if (first := committed_at(state, "job_id", job_id)) is not None:
            return ImportReport(self.table.name, job_id or "", 0, 0, 0, 0, 0, 0, 0, first, repeated=True)
        check_runs(self.table)
        # One schema from here to the end, even if the table is altered meanwhile.
        shuffle = self._shuffle(self.table.layout(), state.merge)
        reading = reading or SourceReading()
        quarantine = self._quarantine(reading, job_id or shuffle.job, shuffle.job)
        if _is_frame(given) or format in SPARK_FORMATS or reading.select is not None:
            return self._staged(self._read_by_spark(given, format, shuffle, reading), request, quarantine)
        files = find_files(given, self.table.storage, SUFFIXES if format == "parquet" else DATA_SUFFIXES)
        if not are_parquet(files, self.table.storage, replace(reading.options, format=format)):
            return self._staged(self._divided_files(files, format, shuffle, reading), request, quarantine)
        map_input, shuffle, conformer = self._parquet(files, shuffle, reading)
        if quarantine is None:
            return self._shuffled(map_input, shuffle, request)
        rows = partial(source_rows, shuffle=shuffle)
        stage = partial(self._stage, map_input.tasks, rows)
        return self._staged(SourceToStage(stage, shuffle, conformer, len(files)), request, quarantine)

    def _parquet(
        self, files: Sequence[Source], shuffle: Shuffle, reading: SourceReading
    ) -> tuple[MapInput, Shuffle, Conformer]:
        """Parquet files as the input of map tasks; the columns that the table lacks are added, or left out."""
        check_options(((file.url, FileFormat.PARQUET) for file in files), reading.options)
        conformer = self._limited(reading.conformer(shuffle.layout.schema, untyped=False))
        columns = partial(footer_columns, files, shuffle, self.call.stop)
        if reading.ignore_extra:
            extra = {name for _, schema in columns() for name in schema.names} - set(conformer.read)
            conformer = replace(conformer, ignored=frozenset(extra))
        else:
            shuffle, conformer = self._growing(shuffle, conformer, columns)
        return native_input(files, shuffle, conformer, self.call.stop, self._cores), shuffle, conformer

    def _divided_files(
        self, files: Sequence[Source], format: str | None, shuffle: Shuffle, reading: SourceReading
    ) -> SourceToStage:
        """Return files of other formats, which tasks read as a write does: whole, or large ones of text in parts."""
        options = replace(reading.options, format=format)
        part_bytes = max(PART_BYTES_MIN, shuffle.memory_limit_bytes // MAP_SHARE)
        parts = divided(files, self.table.storage, options, part_bytes=part_bytes)
        untyped = any(part.is_text for part in parts)
        conformer = self._limited(reading.conformer(shuffle.layout.schema, untyped=untyped))
        text = reading.text_fields(conformer.schema)
        grows = not reading.ignore_extra and Growth.of(self.table.log.head.state, self.table.settings_in_force())
        # Without growth the first file shows whether the options are right, and tasks check the others.
        columns = part_columns(parts if grows else parts[:1], self.table.storage, text, options)
        shuffle, conformer = self._growing(shuffle, conformer, lambda: columns) if grows else (shuffle, conformer)
        for name, schema in columns:
            RowEncoder(conformer, shuffle.merge).check(schema, name)
        rows = partial(part_rows, shuffle=shuffle, text=text, options=options)
        return SourceToStage(partial(self._stage, parts, rows), shuffle, conformer, len(files))

    def _read_by_spark(self, data: Any, format: str | None, shuffle: Shuffle, reading: SourceReading) -> SourceToStage:
        reading.check_spark()
        instead = "import files that Lakebed reads itself, without a select"
        found = frames_of(self.executor, "this source", instead).source(self.call, data, format, reading.select)
        conformer = self._limited(reading.conformer(shuffle.layout.schema, untyped=found.untyped))
        shuffle, conformer = self._growing(shuffle, conformer, lambda: [(found.name, found.columns)])
        typed = found.typed(conformer)
        RowEncoder(conformer, shuffle.merge).check(typed.columns, typed.name)
        rows = partial(named_rows, source=typed.name)

        def stage(staging: Staging) -> Sequence[Staged]:
            return typed.run_all(partial(stage_task, rows=rows, staging=staging), Staged, self._in_phase("read"))

        return SourceToStage(stage, shuffle, conformer)

    def _stage(self, tasks: Sequence[Any], rows: Rows, staging: Staging) -> Sequence[Staged]:
        """Stage the rows of tasks."""
        work = partial(stage_task, rows=rows, staging=staging)
        return self.executor.exchange.run_all(tasks, work, Staged, self._in_phase("read"))

    def _in_phase(self, phase: str) -> TableCall:
        return replace(self.call, progress=in_phase(self.call.progress, phase))

    def _staged(self, source: SourceToStage, request: ImportRequest, quarantine: Quarantine | None) -> ImportReport:
        """Stage the rows of a source, then import what was staged."""
        try:
            staged = source.stage(Staging(source.shuffle, source.conformer, quarantine))
        except BaseException:
            if quarantine is not None:
                quarantine.discard()
            raise
        report = self._from_staged(staged, source.shuffle, request, quarantine)
        return replace(report, source_files=source.files)

    def _growing(
        self, shuffle: Shuffle, conformer: Conformer, sources: Callable[[], Iterable[tuple[str, pa.Schema]]]
    ) -> tuple[Shuffle, Conformer]:
        """Return both with fields for other columns of the sources, if the table takes new columns."""
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
        url = absolute(str(reading.quarantine))
        place = self.call.place
        quarantine = Quarantine(Root(url, options_for(url, place.url, place.options)), job, attempt)
        quarantine.check()
        record_copy(self.table.storage, self.table.id, CopyKind.QUARANTINE, quarantine.url, self.table.version)
        return quarantine

    def _from_staged(
        self, staged: Sequence[Staged], shuffle: Shuffle, request: ImportRequest, quarantine: Quarantine | None
    ) -> ImportReport:
        rejected = [part.rejected for part in staged]
        counted = False
        try:
            map_input = staged_input([new for part in staged for new in part.files], self._cores())
            report = self._shuffled(map_input, shuffle, request)
            counted = not report.repeated
        except UnknownOutcomeError:
            # The import may have been committed; then its rejected rows count.
            counted = True
            raise
        finally:
            self._unstage(staged)
            if quarantine is not None and not counted:
                quarantine.discard()
        if report.repeated:
            return report
        report = replace(report, rows=sum(part.rows for part in staged))
        if quarantine is None:
            return report
        quarantine.finish(rejected, {"table": self.table.id, "version": report.version})
        rows = sum(one.rows for one in rejected)
        return replace(report, rejected=rows, quarantine=quarantine.url if rows else None)

    def _shuffle(self, layout: Layout, merge: MergeMode) -> Shuffle:
        return Shuffle(
            place=self.call.place,
            table_id=self.table.id,
            job=clock.new_id(),
            layout=layout,
            memory_limit_bytes=self.table.settings_in_force().memory_limit_bytes,
            boundaries=(),
            partitions=(),
            merge=merge,
        )

    def sort(self, files: Sequence[Source], merge: MergeMode) -> Ingested:
        """Return the rows of Parquet files, merged by a mode, as new data files of the table, sent, not committed."""
        shuffle = self._shuffle(self.table.layout(), merge)
        conformer = self._limited(Conformer(shuffle.layout.schema))
        shuffle, conformer = self._growing(shuffle, conformer, partial(footer_columns, files, shuffle, self.call.stop))
        map_input = native_input(files, shuffle, conformer, self.call.stop, self._cores)
        new_files = self._exchange(map_input, self._divided(map_input, weigh(map_input.parts), shuffle))
        return Ingested(new_files, sum(map_input.rows))

    def staged(
        self,
        tasks: Sequence[Any],
        rows: Rows,
        conformed: Callable[[Schema], Conformer] = Conformer,
        columns: Sequence[tuple[str, pa.Schema]] = (),
        check: Callable[[int], None] = lambda _: None,
    ) -> Ingested:
        """Return the rows that tasks make, merged by the table's mode, as new data files, sent and not committed.

        ``conformed`` makes them fit the schema. ``columns`` are those of each source by name, if they are known
        before. ``check`` is called with the number of rows, before they are shuffled.
        """
        shuffle = self._shuffle(self.table.layout(), self.table.state().merge)
        conformer = self._limited(conformed(shuffle.layout.schema))
        if columns:
            shuffle, conformer = self._growing(shuffle, conformer, lambda: columns)
        for name, schema in columns:
            RowEncoder(conformer, shuffle.merge).check(schema, name)
        staged = self._stage(tasks, rows, Staging(shuffle, conformer, None))
        try:
            check(sum(part.rows for part in staged))
            map_input = staged_input([new for part in staged for new in part.files], self._cores())
            sample = weigh(map_input.parts)
            self._split_partitions(map_input, sample)
            new_files = self._exchange(map_input, self._divided(map_input, sample, shuffle))
        finally:
            self._unstage(staged)
        return Ingested(new_files, sum(part.rows for part in staged))

    def _unstage(self, staged: Sequence[Staged]) -> None:
        """Delete staged files, which are never committed."""
        discard(self.table.storage, self.table.id, [new for part in staged for new in part.files])

    def _divided(self, map_input: MapInput, sample: WeightedKeys, shuffle: Shuffle) -> Shuffle:
        partitions = self.table.state().partitions.boundaries
        reducers = reducer_count(map_input.size_bytes, shuffle.layout.file_bytes, map_input.cores)
        boundaries = divide(sample, partitions, reducers)
        ranges = range_count(
            sum(map_input.rows),
            map_input.size_bytes,
            columns=len(shuffle.layout.schema.names),
            chunk_bytes=shuffle.memory_limit_bytes // CHUNK_SHARE,
        )
        cuts = range_cuts(sample, boundaries, ranges)
        return replace(shuffle, boundaries=boundaries, partitions=partitions, cuts=cuts)

    def _shuffled(self, map_input: MapInput, shuffle: Shuffle, request: ImportRequest) -> ImportReport:
        sample = weigh(map_input.parts)
        self.call.stop.check()
        partitions_split = self._split_partitions(map_input, sample)
        shuffle = self._divided(map_input, sample, shuffle)
        files = self._exchange(map_input, shuffle)
        if self.call.progress is not None:
            self.call.progress(Progress(rows := sum(map_input.rows), rows, "commit"))
        version, repeated = self.commit(files, request)
        return ImportReport(
            table=self.table.name,
            job=request.key or shuffle.job,
            rows=0 if repeated else sum(map_input.rows),
            rows_written=0 if repeated else sum(new.file.rows for new in files),
            files=0 if repeated else len(files),
            size_bytes=0 if repeated else sum(new.file.size_bytes for new in files),
            source_files=map_input.files,
            map_tasks=len(map_input.tasks),
            reduce_tasks=len(shuffle.boundaries) + 1 if map_input.tasks else 0,
            version=version,
            repeated=repeated,
            partitions_split=partitions_split,
        )

    def _split_partitions(self, map_input: MapInput, sample: WeightedKeys) -> int:
        limits = self.table.settings_in_force()
        if self.partition_rows is not None:
            limits = replace(limits, split_rows=self.partition_rows)
        row_bytes = map_input.size_bytes / max(1, sum(map_input.rows))
        return split_before(self.table, self.table.state(), sample, row_bytes, limits)

    def _cores(self) -> int:
        self.call.stop.check()
        return self.executor.cores(self.table.settings_in_force().memory_limit_bytes)

    def _exchange(self, map_input: MapInput, shuffle: Shuffle) -> tuple[NewFile, ...]:
        """Run the map tasks and the reduce tasks; none if there are no rows."""
        if not map_input.tasks:
            return ()
        exchange = self.executor.exchange
        compression = exchange.compression(map_input.size_bytes)
        shuffle = replace(shuffle, part_bytes=exchange.piece_bytes_max, compression=compression)
        work = MapReduce(
            values=map_input.tasks,
            map=partial(map_task, shuffle=shuffle, chunks=map_input.chunks),
            reducers=len(shuffle.boundaries) + 1,
            reduce=partial(reduce_task, shuffle=shuffle),
            made=Reduced,
            rows=sum(map_input.rows),
        )
        reduced = exchange.map_reduce(work, self._in_phase("sort and merge"))
        return settle(dict(enumerate(map_input.rows)), reduced, shuffle.merge)

    def commit(self, files: Sequence[NewFile], request: ImportRequest) -> tuple[int | None, bool]:
        """Add files: the version, and whether the request was committed before; no version if there is nothing to add.

        Raises KeyboardInterrupt if the call was asked to stop.
        """
        if not files and request.key is None:
            return None, False
        self.call.stop.check()
        outcome = commit_files(self.table, ProposeFiles(tuple(files), request.key, request.base_version))
        version = version_of(outcome, f"import into {self.table.name}")
        return version, isinstance(outcome, Committed) and outcome.repeated


def split_before(table: Table, state: TableState, sample: WeightedKeys, row_bytes: float, settings: Settings) -> int:
    """Cut the partitions that would grow too large; returns their number. Partitions that changed are left out.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; partitions cut before stay cut.
    """
    codec = table.schema.codec
    full = full_partitions(state, sample, row_bytes, settings)
    return len(
        split_at_keys(
            table, full, lambda partition, summaries: choose_split_keys(partition, summaries, sample, codec)
        ).split
    )


def named_rows(batches: Iterator[pa.RecordBatch], source: str) -> Iterator[SourceRows]:
    """Return the rows of a Spark partition, with the name of their source."""
    return (SourceRows(batch, source) for batch in batches)


def _is_frame(given: Any) -> bool:
    """Return whether the source is a DataFrame of Spark; there is none where PySpark was not imported."""
    module = sys.modules.get("pyspark.sql")
    return module is not None and isinstance(given, module.DataFrame)
