"""Executing query plans: rows in key order, streamed, read in the caller's process.

Partitions follow one another, and so do the parts of a partition whose files do not overlap; only files that overlap
are merged. There are three ways to read:

* *narrow* (:mod:`lakebed.read.page_read`): a key, or a few thousand rows. Page indexes and bloom filters say which
  pages of which files to decode; no engine, so under a millisecond.
* *straight* (:mod:`lakebed.read.sequential_scan`): more rows, of a file that shares its keys with no other. By pages
  as well, decoded ahead on all cores.
* *by the engine* (:mod:`lakebed.read.merge_scan`): everything else, streamed through DataFusion in bounded memory:
  merges of many rows, predicates over them, nested columns, and many rows of large files on object stores.

*Damage.* Each way verifies the bytes that it uses against digests before or while it decodes them
(:mod:`lakebed.parquet.open_files`, decision 0029); reads by pages also check the CRCs of the pages. Whatever is raised,
a panic of the engine too, every file of the part is then read whole against its digest, and the error names the damaged
one, with row group and column if a page is at fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import DamagedError, Error, UsageError
from lakebed.model.files import DataFile, data_name
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Schema
from lakebed.parquet.bloom_filters import Membership
from lakebed.parquet.open_files import OpenFile, OpenFiles
from lakebed.parquet.pages import PagedFile
from lakebed.parquet.read_cache import READ_CACHE, ReadCache
from lakebed.parquet.read_statistics import ReadStatistics
from lakebed.read.filtering import Unfiltered, exactly, filtered
from lakebed.read.page_read import Ask, PageReader, Point
from lakebed.read.plan import QueryPlan, at, successive
from lakebed.read.row_stream import RowStream, bounded
from lakebed.settings import Settings

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from lakebed.engine.predicate import Predicate
    from lakebed.read.merge_scan import Engine
    from lakebed.read.multi_get import PartKeys
    from lakebed.read.multi_get_batches import Lookup
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage

FAN_IN_MAX = 40
FAN_IN_MIN = 4
INPUT_BYTES = 12 * 1024 * 1024
"""Each input of a merge holds about 2.5 MiB and eight batches of 8,192 rows: 40, with 100 bytes a row, 0.35 GiB."""

FILES_AT_ONCE = 256
"""Files that one batch of a read of many keys holds open."""

POINT_BYTES = 128 * 1024
"""What is fetched of a file on a store for one key by pages, with their indexes, about."""

HELD_SHARE = 4
"""Of the memory limit, what a slice read from the end may hold in memory; beyond it goes to local disk."""

MEMORY_LIMIT_BYTES = Settings().memory_limit_bytes


class Reader:
    """Answers plans over one table's files; what it learns of them is kept. Safe to use from many threads.

    What is kept of a file is the same for all schemas of the table: plans of different ones may follow one another.
    """

    def __init__(
        self,
        storage: Storage,
        table_id: str,
        keeps: Callable[[DataFile], bool],
        memory_limit_bytes: Callable[[], int] = lambda: MEMORY_LIMIT_BYTES,
        cache: ReadCache = READ_CACHE,
    ) -> None:
        """``keeps`` tells whether the table has a file still: one that is missing was deleted, or it was lost."""
        self._storage = storage
        self._table_id = table_id
        self._memory_limit_bytes = memory_limit_bytes
        self._kept = cache
        self._files = OpenFiles(storage, table_id, keeps, cache)
        self._narrow = PageReader(self._files, cache)
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()

    def get(self, plan: QueryPlan, columns: Sequence[str], statistics: ReadStatistics | None = None) -> pa.Table:
        """All rows of the plan at once, in key order; ``columns`` as asked, in that order. ``read statistics`` notes
        it.

        Raises:
            UsageError: a column that the plan's schema does not have.
            NotRetainedError: a file was deleted meanwhile, since the table had no use for it any more.
            NotFoundError, DamagedError, StorageError: a file is gone, not what was written, or cannot be read.
        """
        schema = _selected(plan.schema, columns)
        return pa.Table.from_batches(self._rows(plan, ScanRequest(schema), statistics), schema)

    def scan(  # noqa: PLR0913 - what is asked of a plan's rows is said in one call
        self,
        plan: QueryPlan,
        columns: Sequence[str],
        limit: int | None,
        *,
        where: Predicate | None = None,
        reverse: bool = False,
        statistics: ReadStatistics | None = None,
    ) -> RowStream:
        """At most ``limit`` rows of the plan for which ``where`` is true, as a stream; with ``reverse`` the last first.

        Raises as :meth:`get`, and UsageError for a row that ``where`` cannot be evaluated for. Reads nothing yet.
        """
        if limit is not None and limit < 0:
            raise UsageError(f"limit = {limit}: must be 0 or more")
        schema = _selected(plan.schema, columns)
        rows = self._rows(plan, ScanRequest(schema, where, limit, reverse), statistics)
        return RowStream(schema, (part for batch in rows for part in bounded(batch)))

    def open(self, file: DataFile, schema: Schema, columns: Iterable[str] | None = None) -> OpenFile:
        """A file made ready for an engine that reads these columns (all if None) by itself; raises as :meth:`get`."""
        with self.blaming([file]):
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

    def drop(self, files: Sequence[DataFile]) -> None:
        """Drop all that is kept of files that were deleted."""
        self._files.drop(*files)

    def dataset(self, opened: OpenFile) -> pads.FileSystemDataset:
        """A file that stays on its store, for an engine that takes PyArrow's datasets."""
        from lakebed.read.bounded_scan import dataset

        return dataset(opened, self._files)

    def check_there(self, opened: OpenFile) -> None:
        """Raise as :meth:`get` if the object of the file is gone, whatever is kept of it."""
        there = (
            opened.path.exists() if opened.path else self._storage.last_modified(data_name(self._table_id, opened.file))
        )
        if not there:
            self._files.drop(opened.file)
            self._files.verify(opened.file)

    def engine(self) -> Engine:
        """The engine of wide reads, for the frames it has of files."""
        with self._engine_lock:
            if self._engine is None:
                from lakebed.read.merge_scan import Engine

                self._engine = Engine(self._files, self._kept)
            return self._engine

    def get_many(
        self, state: TableState, keys: Sequence[bytes], columns: Sequence[str], statistics: ReadStatistics | None = None
    ) -> pa.Table:
        """All rows with one of the encoded keys, which ascend, in key order. Raises as :meth:`get`."""
        from lakebed.read.multi_get import by_part
        from lakebed.read.multi_get_batches import Lookup

        schema = _selected(state.created, columns)
        lookup = Lookup.of(
            state.created, keys, schema.names, self._kept, statistics or ReadStatistics(), files=self._files
        )
        found = [schema.empty_table()]
        for parts in _batches(by_part(state, keys)):
            files = list({file.id: file for part in parts for file in part.files}.values())
            with self.blaming(files):
                rows = self._many(parts, files, lookup)
            found.append(pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema))
        return pa.concat_tables(found)

    def _many(self, parts: Sequence[PartKeys], files: Sequence[DataFile], lookup: Lookup) -> pa.Table:
        from lakebed.read.multi_get_batches import read_parts

        opened = self._files.open_all(files, lookup.schema)
        count = sum((part.last - part.first) * len(part.files) for part in parts)
        by_pages = count * POINT_BYTES < sum(each.file.size_bytes for each in opened if each.path is None)
        fields = (*lookup.schema.row_key, *lookup.fields(sorted_rows=True))
        ready = {
            each.file.id: each
            if each.path or (by_pages and each.footer.gives_pages(fields))
            else self._files.local(each.file, lookup.schema)
            for each in opened
        }
        return read_parts(parts, ready, lookup)

    def rank(self, file: DataFile, schema: Schema, bound: bytes) -> int:
        """How many rows of a file have a key below an encoded bound, exactly. Raises as :meth:`get`."""
        from lakebed.parquet.row_positions import rank

        with self.blaming([file]):
            opened = self._files.open(file, schema)
            if not opened.footer.paged:
                opened = self._files.local(file, schema)
            return rank(opened, schema, self._kept, bound, self._files)

    def take(self, file: DataFile, schema: Schema, columns: Sequence[str], positions: Sequence[int]) -> pa.Table:
        """The rows of a file at these ascending places. Raises as :meth:`get`."""
        from lakebed.parquet.row_positions import GroupRows, positions_by_group

        wanted = _selected(schema, columns)
        fields = [schema.by_name[name] for name in dict.fromkeys(columns)]
        found = [wanted.empty_table()]
        with self.blaming([file]):
            opened = self._files.local(file, schema)
            for group, inside in positions_by_group(opened, positions):
                read = GroupRows(opened, group, schema, self._kept).take(fields, inside)
                found.append(pa.Table.from_arrays([read[name] for name in columns], schema=wanted))
        return pa.concat_tables(found)

    def _rows(
        self, plan: QueryPlan, wanted: ScanRequest, statistics: ReadStatistics | None = None
    ) -> Generator[pa.RecordBatch]:
        left = wanted.limit
        seen = statistics or ReadStatistics()
        with closing(self._found(plan, wanted, seen)) as found:
            for batch in filtered(found, wanted.where):
                if left == 0:
                    return
                taken = batch if left is None else batch.slice(0, left)
                seen.rows += taken.num_rows
                if taken.num_rows:
                    yield exactly(taken, wanted.schema)
                if left is not None:
                    left -= taken.num_rows

    def _found(
        self, plan: QueryPlan, wanted: ScanRequest, statistics: ReadStatistics
    ) -> Generator[pa.RecordBatch | Unfiltered]:
        """The rows part by part, as :meth:`_part_rows` has them; with a limit, more may come."""
        left = wanted.limit
        names = tuple(wanted.schema.names)
        for keys, point, files in _parts(plan, wanted):
            if left is not None and left <= 0:
                return
            ask = Ask(plan.schema, keys, point, names, left, wanted.where, statistics)
            rows = self._from_the_end(files, ask, wanted.schema) if wanted.reverse else self._part_rows(files, ask)
            with closing(rows) as batches:
                for batch in batches:
                    if left is not None and not isinstance(batch, Unfiltered):
                        left -= batch.num_rows
                    yield batch

    def _from_the_end(
        self, files: Sequence[DataFile], ask: Ask, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unfiltered]:
        """The rows asked for, the last one first: slices from the end, each of them read forwards and turned round."""
        from lakebed.read.reverse import turned
        from lakebed.read.slices import backwards

        with self.blaming(files, ask.where):
            opened = [self._files.open(file, ask.schema) for file in files]
        slices = backwards([PagedFile(one, ask.schema, self._kept, None, self._files) for one in opened], ask.keys)
        while True:
            with self.blaming(files, ask.where):
                keys = next(slices, None)
            if keys is None:
                return
            slice_ask = replace(ask, keys=keys, limit=None)
            reaching = [file for file in files if file.reaches(keys)]
            with closing(self._part_rows(reaching, slice_ask)) as rows:
                first = next(rows, None)
                hold_bytes = self._memory_limit_bytes() // HELD_SHARE
                if isinstance(first, Unfiltered):
                    # All of a slice, or none of it.
                    few = (one.rows for one in chain((first,), rows) if isinstance(one, Unfiltered))
                    yield from map(Unfiltered, turned(few, hold_bytes))
                elif first is not None:
                    exact = (exactly(one, schema) for one in chain((first,), rows) if not isinstance(one, Unfiltered))
                    yield from turned(exact, hold_bytes)

    def _part_rows(self, files: Sequence[DataFile], ask: Ask) -> Generator[pa.RecordBatch | Unfiltered]:
        """The rows asked for, of files that overlap; of few rows the predicate was not asked yet."""
        with self.blaming(files, ask.where):
            batches = self._opened_rows(files, ask)
        while True:
            with self.blaming(files, ask.where), ask.statistics.step("read"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _opened_rows(self, files: Sequence[DataFile], ask: Ask) -> Iterator[pa.RecordBatch | Unfiltered]:
        holding = self._narrow.holding(files, ask)
        with ask.statistics.step("open"):
            opened = self._files.open_all(holding, ask.schema)
        with ask.statistics.step("read"):
            narrow = self._narrow_rows(opened, ask)
        if narrow is not None:
            return iter(narrow)
        limit_bytes = self._memory_limit_bytes()
        from lakebed.read.sequential_scan import is_sequential, sequential_scan

        if len(opened) == 1 and is_sequential(opened[0], ask):
            return sequential_scan(opened[0], ask, self._kept, limit_bytes, self._files)
        if ask.point is None and len(files) > min(FAN_IN_MAX, max(FAN_IN_MIN, limit_bytes // INPUT_BYTES)):
            local = [self._files.local(file, ask.schema) for file in files]
            return self.engine().merge_in_levels(local, ask, limit_bytes)
        if any(one.path is None or one.footer.is_wide for one in opened):
            return self._page_rows(opened, ask)
        return self.engine().read(opened, ask)

    def _page_rows(self, opened: Sequence[OpenFile], ask: Ask) -> Iterator[pa.RecordBatch | Unfiltered]:
        """The rows asked for of files of which some are wide, or stay on their store: by pages, else by the engine."""
        from lakebed.read.bounded_scan import RemoteReader

        def from_copies(ask: Ask) -> Iterator[pa.RecordBatch]:
            return self.engine().read([self._files.local(one.file, ask.schema) for one in opened], ask)

        asked = ask if ask.where is None else ask.before_where()
        remote = RemoteReader(self._files, self._kept, self._narrow)
        rows = remote.rows(opened, asked, self._memory_limit_bytes(), from_copies)
        return rows if ask.where is None else map(Unfiltered, rows)

    def _narrow_rows(self, opened: Sequence[OpenFile], ask: Ask) -> Sequence[pa.RecordBatch | Unfiltered] | None:
        if ask.where is None:
            return self._narrow.read(opened, ask)
        batches = self._narrow.read(opened, ask.before_where())
        return None if batches is None else [Unfiltered(batch) for batch in batches]

    @contextmanager
    def blaming(self, files: Sequence[DataFile], where: Predicate | None = None) -> Iterator[None]:
        """Turn a failure inside the block into an error about the file that caused it, or the predicate."""
        try:
            yield
        except (Error, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:
            for file in files:
                self._files.drop(file)
                try:
                    self._files.verify(file)
                except DamagedError as damage:
                    raise damage from error
            if where is not None:
                raise where.untold(error) from error
            if "non UTF-8" in str(error):
                raise DamagedError(
                    "the table holds text that is not UTF-8, written before such text was refused: run `lakebed table "
                    f"repair` on it ({str(error)[:200]})"
                ) from error
            raise Error(f"the query failed, and each of its {len(files)} files is whole: {error}") from error


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Which of a plan's rows are wanted, and how: as this schema, at most so many, from the last one if ``reverse``."""

    schema: pa.Schema
    where: Predicate | None = None
    limit: int | None = None
    reverse: bool = False


def _parts(plan: QueryPlan, wanted: ScanRequest) -> Iterator[tuple[EncodedRange, Point | None, tuple[DataFile, ...]]]:
    """Key ranges, or one key, with files that overlap there, in the order in which they are to be read."""
    for partition in reversed(plan.partitions) if wanted.reverse else plan.partitions:
        for keys in reversed(partition.ranges) if wanted.reverse else partition.ranges:
            point = _point(plan.schema, keys)
            parts = successive(partition.files, keys) if point is None else at(partition.files, keys)
            for part, files in reversed(list(parts)) if wanted.reverse else parts:
                yield part, point, files


def _batches(parts: Iterable[PartKeys]) -> Iterator[list[PartKeys]]:
    """Parts whose files are opened together."""
    batch: list[PartKeys] = []
    for part in parts:
        batch.append(part)
        if sum(len(one.files) for one in batch) >= FILES_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _selected(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    return schema.arrow_of(schema.project(columns))


def _point(schema: Schema, keys: EncodedRange) -> Point | None:
    """The one key that the range holds; None for any other range."""
    if keys.max is None or keys.max != successor(keys.min):
        return None
    fields = schema.row_key
    bound = schema.codec.decode_bound(keys.min)
    # A bound that was cut short decodes like the key that it begins.
    if len(bound.values) < len(fields) or bound.after or schema.codec.encode(bound.values) != keys.min:
        return None
    return Point(fields, bound.values, Membership(fields, bound.values, keys.min))
