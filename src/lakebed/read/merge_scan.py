"""Wide reads: DataFusion plans over the files of one part of a partition, merged in order, in bounded memory.

The rows of several files are merged by row key, then sort key: scans that declare their order, a filter on each, a
sort-preserving merge. One file needs none. The engine is kept lean, because planning is most of a small read: one
context for each table, one frame for each file, expressions instead of SQL, and no logical optimizer rules, since what
these plans need (pushing down filter, projection and limit) the physical ones do too.

*Memory.* The engine's Parquet reader keeps the compressed bytes it has read until its plan ends, and its allocator
keeps for some time what was freed. So a range is cut into slices (:mod:`lakebed.read.slices`), one plan after another:
reading 20 million rows then took 0.1 GB above the process's own, in slices of whole row groups 0.3 to 0.8.
The rows of one key stay together, however many. A merge holds some MiB for each input, so very many go through the
merge kernel, which works in levels.

*Wide rows.* Without a key range inside a row group the reader fetches whole column chunks, on threads that allocate
rarely. The allocator (mimalloc 2) gives back what another thread has freed only at each hundredth allocation of the
thread that made it: a hundred chunks of up to 64 MiB. Files with rows of 16 KiB or more are therefore read by pages
(:mod:`lakebed.read.page_read`), unless a column is nested or the rows of one key are very many.

*Damage.* The engine checks no digest and no CRC. Before a plan runs, the blocks that it may read are verified.

Importing this module imports DataFusion, which takes a good part of a second: import it where it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from datafusion import DataFrame, ExecutionPlan, Expr, SessionContext, lit
from datafusion.catalog import Table

from lakebed.engine.datafusion import column, inside, read_as, scan_context
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Field, Schema
from lakebed.parquet.footer import Footer, RowGroup, per_unit
from lakebed.parquet.open_files import OpenFile, OpenFiles
from lakebed.parquet.pages import PagedFile
from lakebed.parquet.read_cache import ReadCache, ReadStatistics
from lakebed.parquet.stored_file import stored_dataset
from lakebed.read.request import ReadRequest
from lakebed.read.slices import forwards
from lakebed.sorting.merge import merge_stream, ordered

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = (8192, 512, 32)
_BATCH_BYTES = 8 * 1024 * 1024
_PRUNED = frozenset({"row_groups_pruned_statistics", "page_index_pages_pruned"})
_MATCHED = re.compile(r"→ (\d+) matched")


class Engine:
    """Wide reads of one table's files. Safe to use from many threads."""

    def __init__(self, files: OpenFiles, kept: ReadCache) -> None:
        self._files = files
        self._kept = kept
        self._contexts: dict[int, SessionContext] = {}
        self._columns: dict[str, Expr] = {}
        self._frames: WeakKeyDictionary[OpenFile, dict[int, DataFrame]] = WeakKeyDictionary()
        self._stored: WeakKeyDictionary[OpenFile, dict[int, pa.Field]] = WeakKeyDictionary()

    def read(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """The rows asked for, in order, of files that have a ``path``; with a limit, more than that may come.

        Raises what the engine raises, which does not tell the file; FileNotFoundError if one is gone.
        """
        request.statistics.files.update(opened.file.id for opened in files)
        numbers = [field.id for field in request.fields(with_keys=True)]
        for keys, condition in self.conditions(files, request):
            for opened in files:
                opened.verify(opened.footer.byte_ranges_of(numbers, _not_pruned(opened.footer, keys, request.schema)))
            # Only the context of a plan knows how many rows its batches have.
            frame = self.frame(files, condition, request)
            yield from _execute(self._context(_batch_rows(files)), files, frame, request.statistics)

    def rows(self, opened: OpenFile, schema: Schema) -> DataFrame:
        """All rows of one file, as the schema has them, for plans that others make.

        The file may be on a store: PyArrow reads it then, and verifies what it reads.
        """
        found = self._scan(opened, schema, _BATCH_ROWS[0]).select(*self._read_as(schema.fields, opened, schema))
        kinds = {f.name: f.type for f in found.schema()}
        exactly = [
            self._column(f.name) if kinds[f.name] == f.type else self._column(f.name).cast(f.type).alias(f.name)
            for f in schema.fields
        ]
        return found.select(*exactly)

    def merge_in_levels(
        self, files: Sequence[OpenFile], request: ReadRequest, memory_limit_bytes: int
    ) -> Generator[pa.RecordBatch]:
        """As :meth:`read`, over any number of files, which have a ``path`` and are held to the end: one may be a copy.

        Of what it reads nothing but the engine itself is noted.
        """
        request.statistics.engine = True
        request.statistics.files.update(opened.file.id for opened in files)
        for opened in files:
            opened.verify_all()
        yield from merge_stream(
            [opened.path for opened in files if opened.path is not None],
            request.schema,
            key_range=request.keys,
            memory_limit_bytes=memory_limit_bytes,
            where=request.where,
            columns=request.names,
        )

    def conditions(self, files: Sequence[OpenFile], request: ReadRequest) -> Iterator[tuple[EncodedRange, Expr | None]]:
        """What cuts the rows asked for into disjoint slices in key order: as keys, and for the engine."""
        if request.point is not None:
            names = request.schema.row_key_names
            values = zip(names, request.point.scalars(), strict=True)
            yield request.keys, reduce(and_, (self._column(name) == lit(value) for name, value in values))
            return
        for keys in forwards([PagedFile(opened, request.schema, self._kept) for opened in files], request.keys):
            whole = all(opened.file.lies_in(keys) for opened in files)
            yield keys, None if whole else inside(request.schema, keys)

    def frame(self, files: Sequence[OpenFile], condition: Expr | None, request: ReadRequest) -> DataFrame:
        """The rows of the files that meet the condition and the predicate, in order."""
        # Selected below the filter, so that the scan reads these and no others.
        needed = request.fields(with_keys=condition is not None or len(files) > 1)
        scans = [self._scan(opened, request.schema, _batch_rows(files)) for opened in files]
        pairs = zip(files, scans, strict=True)
        frames = [scan.select(*self._read_as(needed, opened, request.schema)) for opened, scan in pairs]
        union = ordered(frames, request.schema, condition, request.where)
        rows = union.select(*(self._column(name) for name in dict.fromkeys(request.names)))
        return rows if request.limit is None else rows.limit(request.limit)

    def _read_as(self, fields: Sequence[Field], opened: OpenFile, schema: Schema) -> list[Expr]:
        """The fields of a schema, out of the columns of a file."""
        if opened.file.schema_version == schema.version:
            return [self._column(field.name) for field in fields]
        stored = self._stored.get(opened)
        if stored is None:
            columns = self._scan(opened, schema, _BATCH_ROWS[0]).schema()
            stored = {field: columns.field(name) for field, name in opened.footer.names.items()}
            self._stored[opened] = stored
        return [read_as(field, stored.get(field.id)) for field in fields]

    def _column(self, name: str) -> Expr:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = column(name)
        return found

    def _scan(self, opened: OpenFile, schema: Schema, batch_rows: int) -> DataFrame:
        engine = self._context(batch_rows)
        if opened.path is None:
            # Not kept: it holds the file, which would then never go.
            return engine.read_table(Table(stored_dataset(opened, self._files)))
        frames = self._frames.setdefault(opened, {})
        found = frames.get(batch_rows)
        if found is None:
            order = [column(opened.footer.names[key.id]).sort() for key in (*schema.row_key, *schema.sort_key)]
            found = engine.read_parquet(opened.url, file_extension="", file_sort_order=[order])
            frames[batch_rows] = found
        return found

    def _context(self, batch_rows: int) -> SessionContext:
        found = self._contexts.get(batch_rows)
        return self._contexts.setdefault(batch_rows, scan_context(batch_rows)) if found is None else found


def _batch_rows(files: Sequence[OpenFile]) -> int:
    """Rows of a batch, by the row group with the widest rows: one of four numbers, each of which has a context."""
    widest = max((g.content_bytes // max(1, g.rows) for one in files for g in one.footer.groups), default=0)
    return next((rows for rows in _BATCH_ROWS if rows * widest <= _BATCH_BYTES), 1)


def _execute(
    engine: SessionContext, files: Sequence[OpenFile], frame: DataFrame, statistics: ReadStatistics
) -> Generator[pa.RecordBatch]:
    plan = frame.execution_plan()
    if not _found_all(files):
        raise FileNotFoundError("the engine found fewer files than it was given")
    try:
        for batch in engine.execute(plan, 0):
            yield batch.to_pyarrow()
    finally:
        _note(plan, statistics)


def _found_all(files: Sequence[OpenFile]) -> bool:
    """Whether every file is there. The engine lists them while it plans, and takes a missing one for empty.

    A file that is there after planning was there before: names are never used twice. Later it would be an error.
    """
    return all(opened.path is not None and opened.path.exists() for opened in files)


def _not_pruned(footer: Footer, keys: EncodedRange, schema: Schema) -> list[RowGroup]:
    """The row groups that the engine may read for rows with such keys: it prunes by the first key field at least."""
    if per_unit(schema.row_key[0]) != 1:
        # The file has other units than the condition.
        return list(footer.groups)
    codec = schema.codec
    low = codec.decode_bound(keys.min).values[:1]
    high = () if keys.max is None else codec.decode_bound(keys.max).values[:1]
    wide = EncodedRange(codec.encode(low), successor(codec.encode(high)) if high else None)
    return [group for group in footer.groups if not wide.intersect(group.keys).empty]


def _note(plan: ExecutionPlan, statistics: ReadStatistics) -> None:
    """Note what the engine says that it read."""
    statistics.engine = True
    for _, found in plan.collect_metrics():
        for metric in found.metrics():
            # Pruning is told as text alone: "3 total → 1 matched".
            matched = _MATCHED.search(str(metric)) if metric.name in _PRUNED else None
            if metric.name == "bytes_scanned" and isinstance(metric.value, int):
                statistics.size_bytes += metric.value
            elif matched and metric.name == "row_groups_pruned_statistics":
                statistics.row_groups += int(matched[1])
            elif matched:
                statistics.pages += int(matched[1])
