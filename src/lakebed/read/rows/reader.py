"""Executes query plans: rows in key order, as a stream, in the caller's process.

:class:`Reader` reads the partitions of a plan one after another, and in a partition the groups of files that overlap.
Only overlapping files are merged, and their rows by the table's merge mode (:mod:`lakebed.read.rows.merged_rows`).
There are four ways to read a group:

* *point lookup* (:mod:`lakebed.read.rows.point_lookup`): one key. Bounds and bloom filters choose the files, page
  indexes the pages to decode. It takes less than a millisecond, without the engine.
* *page read* (:mod:`lakebed.read.rows.page_read`): a few thousand rows, decoded page by page as well.
* *sequential scan* (:mod:`lakebed.read.rows.sequential_scan`): more rows, of a file that shares its keys with no other.
  Pages are decoded ahead on all cores.
* *DataFusion scan* (:mod:`lakebed.read.rows.datafusion_scan`): everything else, streamed through the engine in bounded
  memory: merges of many rows, predicates over them, nested columns.

*Errors.* Each way verifies the bytes that it uses against digests, before or while it decodes them
(:mod:`lakebed.files.parquet.open_files`, decision 0029); reads by pages also check the CRCs of the pages. After any
exception, a panic of the engine included, all files of the group are read whole and compared with their digests. The
error names the damaged file, with row group and column if a page is damaged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.open_files import OpenFile, OpenFiles
from lakebed.files.parquet.page_decoder import read_columns
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.read_cache import READ_CACHE, ReadCache, ReadStatistics
from lakebed.files.parquet.row_positions import rank, slices_at
from lakebed.model.arrays import empty_table
from lakebed.model.files import DataFile, data_name
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from lakebed.model.schema import Schema
from lakebed.model.settings import Settings
from lakebed.read.rows.merged_rows import MergeSchemas, merge_table, merged_rows
from lakebed.read.rows.page_read import PageReader
from lakebed.read.rows.plan import RANGES_MIN, PartitionQuery, QueryPlan, is_merged
from lakebed.read.rows.point_lookup import PointLookup, SomeHidden, TooMuch
from lakebed.read.rows.request import LIMITS, KeyList, ReadRequest, beginning_of, parts
from lakebed.read.rows.row_stream import RowStream, Unfiltered, bounded, exactly, filtered, timed_batches, unfiltered
from lakebed.read.rows.visible_rows import visible_rows, visible_where

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import pyarrow.dataset as pads

    from lakebed.engine.predicate import Predicate
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.datafusion_scan import ScanEngine
    from lakebed.read.rows.multi_get import PartKeys
    from lakebed.read.rows.page_bounds import BoundedColumns
    from lakebed.storage.contract import Storage

FAN_IN_MIN = 4
INPUT_BYTES = 12 * 1024 * 1024
"""About what an input of a merge holds; a merge has at least ``FAN_IN_MIN`` inputs."""

PartRequest: TypeAlias = tuple[Sequence[DataFile], ReadRequest]
"""Files that overlap, and a request for their rows."""

MEMORY_LIMIT_BYTES = Settings().memory_limit_bytes


class Reader:
    """Reads the files of one table. Safe to use from many threads. What is cached of a file holds for all schemas."""

    def __init__(
        self,
        storage: Storage,
        table_id: str,
        keeps: Callable[[DataFile], bool],
        memory_limit_bytes: Callable[[], int] = lambda: MEMORY_LIMIT_BYTES,
        cache: ReadCache = READ_CACHE,
    ) -> None:
        """``keeps`` returns whether the table still needs a file: if so, a missing one is lost; else it was deleted."""
        self._storage = storage
        self._table_id = table_id
        self._memory_limit_bytes = memory_limit_bytes
        self.limits = LIMITS
        self._files = OpenFiles(storage, table_id, keeps, cache)
        self._page_reader = PageReader(self._files)
        self.merge_schemas = MergeSchemas()
        self._points = PointLookup(self._files, self.merge_schemas)
        self._engine: ScanEngine | None = None
        self._engine_lock = threading.Lock()

    def get(self, state: TableState, key: Sequence[Any], columns: Sequence[str] | None) -> pa.Table:
        """Return all rows of one key, ordered by sort key. Raises as :meth:`scan`, and BadKeyError."""
        encoded = state.created.codec.encode_key(key)
        found = self._points.get(state, encoded, columns, self.limits)
        return found if isinstance(found, pa.Table) else self._beyond_lookup(state, encoded, columns, found)

    def get_encoded(self, state: TableState, key: bytes, columns: Sequence[str] | None) -> pa.Table:
        """As :meth:`get`, of an encoded key."""
        found = self._points.get(state, key, columns, self.limits)
        return found if isinstance(found, pa.Table) else self._beyond_lookup(state, key, columns, found)

    def _beyond_lookup(
        self, state: TableState, key: bytes, columns: Sequence[str] | None, found: TooMuch | SomeHidden
    ) -> pa.Table:
        if isinstance(found, SomeHidden):
            return visible_rows(state, columns, lambda bare, names: self.get_encoded(bare, key, names))
        wanted = found.request.schema.arrow_of(found.request.names)
        batches = self._live_rows(found.files, found.request)
        return pa.Table.from_batches(
            (exactly(one, wanted) for one in batches if not isinstance(one, Unfiltered)), wanted
        )

    def starting_with(self, state: TableState, begin: bytes) -> Sequence[pa.RecordBatch] | None:
        """Return all stored rows whose first key fields have these encoded values, in no particular order; None if
        they are too many for a lookup. Raises as :meth:`get`.
        """
        return self._points.starting_with(state, begin, self.limits)

    def stored(self, file: DataFile, schema: Schema, names: Sequence[str]) -> Generator[pa.RecordBatch]:
        """Return all rows of a file as they are stored, with these columns of a schema that has the hidden ones too.

        They are kept in the read cache if they are few bytes.
        """
        form = ("stored", schema.version, *names)
        known = self._files.kept_rows(file, form)
        if known is not None:
            yield from known.to_batches()
            return
        planned = QueryPlan((PartitionQuery(0, (ALL_KEYS,), (file,)),), schema)
        # Decoded bytes: a small file may have the same long text in each of its rows.
        kept, size_bytes, bytes_max = [], 0, self.limits.kept_rows_bytes
        with closing(self.scan(planned, names, None)) as batches:
            for batch in batches:
                size_bytes += batch.nbytes
                if size_bytes <= bytes_max:
                    kept.append(batch)
                else:
                    kept.clear()
                yield batch
            if size_bytes <= bytes_max:
                self._files.keep_rows(file, form, pa.Table.from_batches(kept, batches.schema).combine_chunks())

    def scan(  # noqa: PLR0913 - one call has all options of a scan
        self,
        plan: QueryPlan,
        columns: Sequence[str],
        limit: int | None,
        *,
        where: Predicate | None = None,
        reverse: bool = False,
        statistics: ReadStatistics | None = None,
    ) -> RowStream:
        """At most ``limit`` rows of the plan for which ``where`` is true, in key order, or ``reverse`` order.

        Nothing is read before the stream is. ``statistics`` counts what the read does. Raises, at once or during the
        read:

            UsageError: a column that the schema does not have, or a row that ``where`` cannot be evaluated for.
            NotRetainedError: a file was deleted meanwhile, because the table does not retain it any more.
            NotFoundError, DamagedError, StorageError: a file is missing, damaged, or cannot be read.
        """
        if limit is not None and limit < 0:
            raise Code.ARGUMENT_INVALID(f"limit = {limit}: must be 0 or more")
        names = plan.schema.project(columns)
        schema = plan.schema.arrow_of(names)
        counted = ReadStatistics() if statistics is None else statistics
        request = ReadRequest(
            plan.schema,
            ALL_KEYS,
            names,
            limit,
            visible_where(plan, where),
            reverse=reverse,
            statistics=counted,
            merge=plan.merge,
            limits=self.limits,
            bounded=self._bounded(plan, where),
            contested=plan.contested,
        )
        batches = (part for batch in self._passing_rows(plan, request, schema) for part in bounded(batch))
        return RowStream(schema, timed_batches(batches, "scan", self._table_id, counted))

    def open(self, file: DataFile, schema: Schema, columns: Iterable[str] | None = None) -> OpenFile:
        """Open a file for an engine, and verify the columns that it will read (None: all). Raises as :meth:`scan`."""
        with self.attribute_errors([file]):
            opened = self._files.open(file, schema)
            if columns is None:
                opened.verify_all()
            else:
                numbers = [schema.by_name[name].id for name in dict.fromkeys((*schema.sort_names, *columns))]
                opened.verify(opened.footer.byte_ranges_of(numbers))
        return opened

    @property
    def is_local(self) -> bool:
        """Whether files are read in place, and not over a network."""
        return self._files.at_once < 2

    def stored_footer(self, file: DataFile) -> bytes:
        """Return the bytes of the footer of a file. One request.

        Raises NotRetainedError, NotFoundError, DamagedError, StorageError.
        """
        return self._files.stored_footer(file)

    def stored_field_ids(self, file: DataFile, schema: Schema) -> AbstractSet[int]:
        """Return the ids of the fields of which a file has columns; ``schema`` is any of the table's.

        Raises as :meth:`stored_footer`.
        """
        return read_footer(self.stored_footer(file), schema, data_name(self._table_id, file)).names.keys()

    def drop(self, files: Sequence[DataFile]) -> None:
        """Drop what is cached of deleted files."""
        self._files.drop(*files)

    def dataset(self, opened: OpenFile) -> pads.FileSystemDataset:
        """Return a file on a store, as a PyArrow dataset for an engine."""
        from lakebed.files.parquet.stored_file import stored_dataset

        return stored_dataset(opened, self._files)

    def check_there(self, opened: OpenFile) -> None:
        """Raise as :meth:`scan` if the object of the file is missing, whatever is cached of it."""
        name = data_name(self._table_id, opened.file)
        there = opened.path.exists() if opened.path else self._storage.last_modified(name)
        if not there:
            self._files.drop(opened.file)
            self._files.verify(opened.file)

    def engine(self) -> ScanEngine:
        """Return the engine of this table's files; made at first use."""
        with self._engine_lock:
            if self._engine is None:
                from lakebed.read.rows.datafusion_scan import ScanEngine

                self._engine = ScanEngine(self._files)
            return self._engine

    def get_many(
        self, state: TableState, keys: Sequence[bytes], columns: Sequence[str], statistics: ReadStatistics | None = None
    ) -> pa.Table:
        """Return all rows of ascending encoded keys, in key order. Raises as :meth:`scan`."""
        from lakebed.read.rows.multi_get import gathered, keys_by_part

        if state.filter_version:
            return visible_rows(state, columns, lambda bare, names: self.get_many(bare, keys, names, statistics))
        schema = _selected(state.created, columns)
        tables = [empty_table(schema)]
        if keys:
            counted = ReadStatistics() if statistics is None else statistics
            bounds = EncodedRange(keys[0], successor(keys[-1]))
            key_list = KeyList.of(state.created, keys)
            request = ReadRequest(
                state.created,
                bounds,
                tuple(schema.names),
                key_list=key_list,
                statistics=counted,
                merge=state.merge,
                limits=self.limits,
            )
            for parts in gathered(keys_by_part(state, keys), self.limits.files_at_once):
                files = list({file.id: file for part in parts for file in part.files}.values())
                merged = any(is_merged(state.merge, part.files) for part in parts)
                below = self.merge_schemas.below(request, files) if merged else request
                with self.attribute_errors(files):
                    rows = self._many(parts, files, below)
                if merged:
                    rows = merge_table(rows, below)
                tables.append(pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema))
            counted.rows = sum(rows.num_rows for rows in tables)
            counted.report("get_many", self._table_id)
        return pa.concat_tables(tables)

    def _many(self, parts: Sequence[PartKeys], files: Sequence[DataFile], request: ReadRequest) -> pa.Table:
        from lakebed.read.rows.multi_get_batches import dense_range, multi_get_fields, only_keys, read_keys

        schema = request.schema
        opened = self._files.open_all(files, schema)
        keys = dense_range(parts, opened, request, self._files)
        if keys is not None:
            every = replace(request, keys=keys, names=tuple(dict.fromkeys((*schema.row_key_names, *request.names))))
            batches = self._page_reader.read(opened, every)
            if batches is not None:
                return only_keys(batches, request)
        count = sum((part.last - part.first) * len(part.files) for part in parts)
        by_pages = count * request.limits.point_bytes < sum(
            each.file.size_bytes for each in opened if each.path is None
        )
        fields = (*schema.row_key, *multi_get_fields(request, sorted_rows=True))
        ready = {
            each.file.id: each
            if each.path or (by_pages and each.footer.gives_pages(fields))
            else self._files.local(each.file, schema)
            for each in opened
        }
        return read_keys(parts, ready, request, self._files)

    def rank(self, file: DataFile, schema: Schema, bound: bytes) -> int:
        """Return the number of rows of a file with a key below an encoded bound. Raises as :meth:`scan`."""
        with self.attribute_errors([file]):
            return rank(self.paged(file, schema), bound)

    def paged(self, file: DataFile, schema: Schema) -> PagedFile:
        """Return a file made ready to be read by pages, or by row groups if it has no page index; for one thread."""
        opened = self._files.open(file, schema)
        if not opened.footer.paged:
            opened = self._files.local(file, schema)
        return self._paged(opened, schema)

    def take(self, file: DataFile, schema: Schema, columns: Sequence[str], positions: Sequence[int]) -> pa.Table:
        """Return the rows of a file at these ascending positions. Raises as :meth:`scan`."""
        wanted = _selected(schema, columns)
        fields = [schema.by_name[name] for name in dict.fromkeys(columns)]
        with self.attribute_errors([file]):
            slices = list(slices_at(self._paged(self._files.local(file, schema), schema), positions))
            if not slices:
                return empty_table(wanted)
            decoded = read_columns(slices, fields)
        return pa.Table.from_arrays([decoded[name] for name in columns], schema=wanted)

    def _paged(self, opened: OpenFile, schema: Schema) -> PagedFile:
        return PagedFile(opened, schema, self._files)

    def _passing_rows(self, plan: QueryPlan, request: ReadRequest, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Return the rows for which the predicate is true, as many as the limit allows."""
        rows_left = request.limit
        with closing(self._all_rows(plan, request, schema)) as batches:
            for batch in filtered(batches, request.where):
                if rows_left == 0:
                    return
                rows = batch if rows_left is None else batch.slice(0, rows_left)
                request.statistics.rows += rows.num_rows
                if rows.num_rows:
                    yield exactly(rows, schema)
                if rows_left is not None:
                    rows_left -= rows.num_rows

    def _all_rows(
        self, plan: QueryPlan, request: ReadRequest, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unfiltered]:
        """Return the rows part by part, as :meth:`_part_rows` returns them; with a limit, more rows may come."""
        rows_left = request.limit
        requests = (
            (files, replace(request, keys=keys, point=point))
            for keys, point, files in parts(plan, reverse=request.reverse)
        )
        for files, part in requests if request.bounded is None else self._narrowed(requests):
            if rows_left is not None and rows_left <= 0:
                return
            few = replace(part, limit=rows_left)
            rows = self._reverse_rows(files, few, schema) if request.reverse else self._live_rows(files, few)
            with closing(rows) as batches:
                for batch in batches:
                    if rows_left is not None and not isinstance(batch, Unfiltered):
                        rows_left -= batch.num_rows
                    yield batch

    def few_rows(self, plan: QueryPlan) -> tuple[QueryPlan, QueryPlan]:
        """Divide a plan for an engine, of files that need no merge, by the condition of the plan.

        The second part has the key ranges of files on a store in which few rows may pass: the engine would read whole
        row groups there. Raises as :meth:`scan`.
        """
        bounded, nothing = self._bounded(plan, None), replace(plan, partitions=())
        if bounded is None:
            return plan, nothing
        limits = replace(self.limits, narrowed_share=self.limits.copied_share)
        each = [replace(query, files=(file,)) for query in plan.partitions for file in query.files]
        asked = [(query, keys) for query in each if self._files.is_ranged(query.files[0]) for keys in query.ranges]
        requests = (
            (query.files, ReadRequest(plan.schema, keys, (), bounded=bounded, limits=limits)) for query, keys in asked
        )
        passing: dict[tuple[int, str], list[EncodedRange]] = {}
        for (query, _), (_, _, ranges) in zip(asked, self._passing(requests), strict=True):
            passing.setdefault((query.partition, query.files[0].id), []).extend(ranges)
        few: list[PartitionQuery] = []
        rest: list[PartitionQuery] = []
        for query in each:
            found = tuple(passing.get((query.partition, query.files[0].id), query.ranges))
            if found == query.ranges:
                rest.append(query)
            elif found:
                few.append(replace(query, ranges=found))
        return replace(plan, partitions=tuple(rest)), replace(plan, partitions=tuple(few))

    def _bounded(self, plan: QueryPlan, where: Predicate | None) -> BoundedColumns | None:
        """Return the ranges of columns by which a read is narrowed; None if it is not.

        They follow from the condition of the plan, which includes ``where`` if there is one, and from the table's
        filter.
        """
        given = (where if plan.condition is None else None, visible_where(plan))
        predicates = [one for one in given if one is not None]
        # Many ranges of keys are narrow as they are.
        many = any(len(query.ranges) >= RANGES_MIN for query in plan.partitions)
        if many or (plan.condition is None and not predicates):
            return None
        from lakebed.read.rows.conditions import And
        from lakebed.read.rows.page_bounds import BoundedColumns

        conditions = [] if plan.condition is None else [plan.condition]
        if predicates:
            from lakebed.read.rows.expressions import condition_of

            conditions += [condition_of(one.parts) for one in predicates]
        return BoundedColumns.of(And(conditions), plan.schema)

    def _narrowed(self, requests: Iterator[PartRequest]) -> Iterator[PartRequest]:
        """Return the requests, narrowed to the key ranges in which rows may pass, in reading order."""
        for files, request, ranges in self._passing(requests):
            for keys in reversed(ranges) if request.reverse else ranges:
                if keys == request.keys:
                    yield files, request
                elif reaching := [file for file in files if file.reaches(keys)]:
                    yield reaching, replace(request, keys=keys)

    def _passing(
        self, requests: Iterator[PartRequest]
    ) -> Iterator[tuple[Sequence[DataFile], ReadRequest, list[EncodedRange]]]:
        """Return with each request the key ranges in which rows may pass: its own range if it is not narrowed.

        On a store the page indexes of several parts are fetched at once, to look at them in few round trips.
        """
        from lakebed.read.rows.page_bounds import fetch_all, passing_ranges

        ahead = 1
        while some := list(islice(requests, ahead)):
            ahead = min(2 * ahead, self._files.at_once)
            usable = [(files, request) for files, request in some if _may_narrow(files, request)]
            every = list({file.id: file for files, _ in usable for file in files}.values())
            with self.attribute_errors(every), some[0][1].statistics.step("bounds"):
                opened = {one.file.id: one for one in self._files.open_all(every, some[0][1].schema)}
                paged = [
                    [PagedFile(opened[file.id], request.schema, self._files, request.statistics) for file in files]
                    for files, request in usable
                ]
                pairs = [(one, request) for held, (_, request) in zip(paged, usable, strict=True) for one in held]
                fetch_all(pairs, self._files.at_once)
            ready = iter(paged)
            for files, request in some:
                ranges = [request.keys]
                if _may_narrow(files, request):
                    with self.attribute_errors(files), request.statistics.step("bounds"):
                        ranges = passing_ranges(next(ready), request, merged=is_merged(request.merge, files))
                yield files, request, ranges

    def _reverse_rows(
        self, files: Sequence[DataFile], request: ReadRequest, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unfiltered]:
        """Return the requested rows in reverse order: slices from the end, each read forwards and then reversed."""
        from lakebed.read.rows.slices import backwards, reversed_rows

        with self.attribute_errors(files, request.where):
            opened = [self._files.open(file, request.schema) for file in files]
        slices = backwards([self._paged(one, request.schema) for one in opened], request.keys, request.limits)
        while True:
            with self.attribute_errors(files, request.where):
                keys = next(slices, None)
            if keys is None:
                return
            slice_request = replace(request, keys=keys, limit=None)
            reaching = [file for file in files if file.reaches(keys)]
            with closing(self._live_rows(reaching, slice_request)) as rows:
                first = next(rows, None)
                hold_bytes = self._memory_limit_bytes() // request.limits.held_share
                if isinstance(first, Unfiltered):
                    # Either all batches of a slice are unfiltered, or none is.
                    few = (one.rows for one in chain((first,), rows) if isinstance(one, Unfiltered))
                    yield from map(Unfiltered, reversed_rows(few, hold_bytes))
                elif first is not None:
                    exact = (exactly(one, schema) for one in chain((first,), rows) if not isinstance(one, Unfiltered))
                    yield from reversed_rows(exact, hold_bytes)

    def _live_rows(self, files: Sequence[DataFile], request: ReadRequest) -> Generator[pa.RecordBatch | Unfiltered]:
        """Return the requested rows of overlapping files, merged by the merge mode; as :meth:`_part_rows`."""
        if not is_merged(request.merge, files):
            return self._part_rows(files, request)
        below = self.merge_schemas.below(request, files)
        return merged_rows(self._part_rows(files, below), request, below)

    def _part_rows(self, files: Sequence[DataFile], request: ReadRequest) -> Generator[pa.RecordBatch | Unfiltered]:
        """Return the requested rows of overlapping files; small reads return :class:`Unfiltered` rows, for the
        predicate.

        Either all batches are unfiltered, or none is.
        """
        with self.attribute_errors(files, request.where):
            batches = self._opened_rows(files, request)
        while True:
            with self.attribute_errors(files, request.where), request.statistics.step("read"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _opened_rows(self, files: Sequence[DataFile], request: ReadRequest) -> Iterator[pa.RecordBatch | Unfiltered]:
        statistics = request.statistics
        if len(files) > 1 and (point := request.point or beginning_of(request.schema, request.keys)):
            files = self._points.candidates(files, request, point)
            if not files:
                return iter(())
        with statistics.step("open"):
            opened = self._files.open_all(files, request.schema)
        with statistics.step("read"):
            before = request if request.where is None else request.before_where()
            few = (self._page_reader if request.point is None else self._points).read(opened, before)
        if few is not None:
            return iter(few) if request.where is None else unfiltered(few, before.arrow())
        limit_bytes = self._memory_limit_bytes()
        from lakebed.read.rows.sequential_scan import is_sequential, sequential_scan

        if len(opened) == 1 and is_sequential(opened[0], request):
            return sequential_scan(opened[0], request, limit_bytes, self._files)
        if request.point is None and len(files) > min(
            request.limits.fan_in, max(FAN_IN_MIN, limit_bytes // INPUT_BYTES)
        ):
            local = [self._files.local(file, request.schema) for file in files]
            return self.engine().merge_in_levels(local, request, limit_bytes)
        if any(one.path is None or one.footer.is_wide for one in opened):
            return self._page_rows(opened, request)
        return self.engine().read(opened, request)

    def _page_rows(self, opened: Sequence[OpenFile], request: ReadRequest) -> Iterator[pa.RecordBatch | Unfiltered]:
        """Return the requested rows of files with wide rows or on a store: by pages if possible, else by the engine."""

        def by_engine(request: ReadRequest) -> Iterator[pa.RecordBatch]:
            return self.engine().read([self._files.local(one.file, request.schema) for one in opened], request)

        before = request if request.where is None else request.before_where()
        rows = self._page_reader.scan(opened, before, self._memory_limit_bytes(), by_engine)
        return rows if request.where is None else unfiltered(rows, before.arrow())

    @contextmanager
    def attribute_errors(self, files: Sequence[DataFile], where: Predicate | None = None) -> Iterator[None]:
        """Attribute an exception inside the block to a file or to the predicate; see :meth:`OpenFiles.attribute`."""
        try:
            yield
        except BaseException as error:
            self._files.attribute(error, files, None if where is None else where.evaluation_error)
            raise


def _may_narrow(files: Sequence[DataFile], request: ReadRequest) -> bool:
    """Return whether a request is for rows that overlapping files hold as they are, and for more than a few."""
    keeps_rows = request.merge.kept is not None or not is_merged(request.merge, files)
    return request.point is None and keeps_rows and sum(file.rows for file in files) >= request.limits.narrowed_rows


def _selected(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    return schema.arrow_of(schema.project(columns))
