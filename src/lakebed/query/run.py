"""Executing query plans: rows in key order, streamed, read in the caller's process.

Leaves follow one another, and so do the parts of a leaf whose files do not overlap; only files that overlap are
merged. There are two ways to read, one for each size:

* *narrow* (:mod:`lakebed.query.narrow`): a key, or a few thousand rows. Page indexes and bloom filters say which pages
  of which files to decode; no engine, so under a millisecond.
* *wide* (:mod:`lakebed.query.engine`): everything else, streamed through DataFusion in bounded memory; also nested
  columns, and large files on object stores, which it reads by ranges.

*Damage.* Neither way says which file it stumbled over, and a panic of the engine is not even an Exception: whatever is
raised, every file of the part is then read whole against its digest, and the error names the damaged one. Narrow
reads verify page CRCs. The engine does not, so in a wide read a flipped bit in a page that still decodes goes
unnoticed; compaction and the scrubber read whole files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Error, UsageError
from lakebed.files import DataFile
from lakebed.keys import EncodedRange, successor
from lakebed.query.cache import READ_CACHE, ReadCache
from lakebed.query.footer import Value
from lakebed.query.membership import Membership
from lakebed.query.narrow import Ask, NarrowReader, Point
from lakebed.query.opening import OpenFiles
from lakebed.query.plan import QueryPlan, at, successive
from lakebed.query.tally import Tally
from lakebed.schema import Field, Schema

if TYPE_CHECKING:
    from lakebed.query.engine import Engine
    from lakebed.storage.contract import Storage

FAN_IN_MAX = 40
"""Each input of a merge holds about 2.5 MiB and eight batches of 8,192 rows: 40, with 100 bytes a row, 0.35 GiB."""


class Reader:
    """Answers plans over one table's files; what it learns of them is kept. Safe to use from many threads.

    What is kept of a file is the same for all schemas of the table: plans of different ones may follow one another.
    """

    def __init__(
        self, storage: Storage, table_id: str, keeps: Callable[[DataFile], bool], cache: ReadCache = READ_CACHE
    ) -> None:
        """``keeps`` tells whether the table has a file still: one that is missing was deleted, or it was lost."""
        self._storage = storage
        self._kept = cache
        self._files = OpenFiles(storage, table_id, keeps, cache)
        self._narrow = NarrowReader(self._files, cache)
        self._engine: Engine | None = None
        self._engine_lock = threading.Lock()

    def get(self, plan: QueryPlan, columns: Sequence[str], tally: Tally | None = None) -> pa.Table:
        """All rows of the plan at once, in key order; ``columns`` as asked, in that order. ``tally`` notes it.

        Raises:
            UsageError: a column that the plan's schema does not have.
            NotRetainedError: a file was deleted meanwhile, since the table had no use for it any more.
            NotFoundError, DamagedError, StorageError: a file is gone, not what was written, or cannot be read.
        """
        schema = _selected(plan.schema, columns)
        return pa.Table.from_batches(self._rows(plan, schema, None, tally), schema)

    def scan(
        self, plan: QueryPlan, columns: Sequence[str], limit: int | None, tally: Tally | None = None
    ) -> pa.RecordBatchReader:
        """The rows of the plan as a stream in key order, at most ``limit`` of them; raises as :meth:`get`.

        Nothing is read before the first batch is asked for. What the stream holds goes with the last reference to it.
        """
        if limit is not None and limit < 0:
            raise UsageError(f"limit = {limit}: must be 0 or more")
        schema = _selected(plan.schema, columns)
        return pa.RecordBatchReader.from_batches(schema, self._rows(plan, schema, limit, tally))

    def _rows(
        self, plan: QueryPlan, schema: pa.Schema, limit: int | None, tally: Tally | None
    ) -> Generator[pa.RecordBatch]:
        left = limit
        seen = tally or Tally()
        for leaf in plan.leaves:
            for keys in leaf.ranges:
                point = _point(plan.schema, keys)
                for part, files in successive(leaf.files, keys) if point is None else at(leaf.files, keys):
                    if left == 0:
                        return
                    ask = Ask(plan.schema, part, point, tuple(schema.names), left, seen)
                    with closing(self._part_rows(files, ask)) as batches:
                        for batch in batches:
                            taken = batch if left is None else batch.slice(0, left)
                            seen.rows += taken.num_rows
                            if taken.num_rows:
                                yield _exactly(taken, schema)
                            if left is not None:
                                left -= taken.num_rows
                                if left == 0:
                                    return

    def _part_rows(self, files: Sequence[DataFile], ask: Ask) -> Generator[pa.RecordBatch]:
        """The rows asked for, of files that overlap."""
        with self._blaming(files):
            if ask.point is None and len(files) > FAN_IN_MAX:
                local = [self._files.local(file, ask.schema) for file in files]
                paths = [opened.path for opened in local if opened.path is not None]
                ask.tally.files.update(file.id for file in files)
                batches = self._wide().merge_in_levels(paths, ask)
            else:
                holding = self._narrow.holding(files, ask)
                with ask.tally.step("open"):
                    opened = self._files.open_all(holding, ask.schema)
                with ask.tally.step("read"):
                    tables = self._narrow.read(opened, ask)
                if tables is None:
                    batches = self._wide().read(opened, ask)
                else:
                    batches = iter([batch for table in tables for batch in table.to_batches()])
        while True:
            with self._blaming(files), ask.tally.step("read"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _wide(self) -> Engine:
        with self._engine_lock:
            if self._engine is None:
                from lakebed.query.engine import Engine

                self._engine = Engine(self._storage, self._kept)
            return self._engine

    @contextmanager
    def _blaming(self, files: Sequence[DataFile]) -> Iterator[None]:
        """Turn a failure inside the block into an error about the file that caused it."""
        try:
            yield
        except (Error, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:
            for file in files:
                self._files.forget(file)
                self._files.verify(file)
            raise Error(f"the query failed, and each of its {len(files)} files is whole: {error}") from error


def _selected(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.arrow.field(name) for name in schema.project(columns)])


def _point(schema: Schema, keys: EncodedRange) -> Point | None:
    """The one key that the range holds; None for any other range."""
    if keys.max is None or keys.max != successor(keys.min):
        return None
    fields = schema.row_key
    bound = schema.codec.decode_bound(keys.min)
    # A bound that was cut short decodes like the key that it begins.
    if len(bound.values) < len(fields) or bound.after or schema.codec.encode(bound.values) != keys.min:
        return None
    values = tuple(_scalar(field, value) for field, value in zip(fields, bound.values, strict=True))
    return Point(values, Membership(fields, bound.values, keys.min))


def _scalar(field: Field, value: Value) -> pa.Scalar:
    """The value as Arrow has it. Made of its bytes: to convert a value of Python, Arrow would import pandas first."""
    if isinstance(value, int):
        content = [value.to_bytes(field.width, "little", signed=True)]
    else:
        data = value.encode("utf-8") if isinstance(value, str) else value
        content = [(0).to_bytes(4, "little") + len(data).to_bytes(4, "little"), data]
    return pa.Array.from_buffers(field.type, 1, [None, *map(pa.py_buffer, content)])[0]


def _exactly(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the schema's columns and exact types: an engine has its own layouts of some, and no field ids."""
    columns = []
    for field in schema:
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
