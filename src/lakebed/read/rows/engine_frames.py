"""Rows of a plan as frames of DataFusion, for SQL and for contexts of the caller.

:func:`frame_of` gives the rows of a plan as one frame for any context, in no order. Files of which only some
rows are live are filtered by conditions on the key. Overlapping files of a table that merges rows are read from a
merged copy. The engine treats a missing file as empty, so whatever runs a frame must call :func:`check_found` with the
physical plan.

*Contested keys.* A table under upserts has large files, and small ones whose keys lie anywhere between theirs. A row of
a large file counts as it is, unless another file of the part has its key. So the large files are read without the keys
of the small ones, and only rows of these contested keys are merged (:class:`Contest`). Keys of floats are left to the
merge, because a join may take others for equal than Lakebed; a merge mode that may drop a row by itself sees each row.

Core types: :class:`Frame`, :class:`Contest`. Errors: as :meth:`lakebed.read.rows.reader.Reader.scan`.

Rule: import this module where it is needed. It imports DataFusion, which takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, lit
from datafusion.catalog import Table
from msgspec.structs import replace

from lakebed.engine.datafusion import inside, is_plain
from lakebed.engine.key_joins import with_keys, without_keys
from lakebed.files.parquet.open_files import LocalCopy, OpenFile, copies_folder
from lakebed.model.arrays import empty_table, plain
from lakebed.model.checks import check_method, check_text
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.schema import Schema
from lakebed.model.state.visibility import EVERY_ROW
from lakebed.read.rows.merged_copy import merged_copy
from lakebed.read.rows.plan import RANGES_MIN, LiveFile, divided, inside_of, live_files
from lakebed.read.rows.visible_rows import visible_where

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.read.rows.plan import PartitionQuery, QueryPlan
    from lakebed.read.rows.reader import Reader
    from lakebed.read.rows.request import ReadLimits

_frames: WeakKeyDictionary[SessionContext, list[Frame]] = WeakKeyDictionary()
"""Frames registered with a caller's context: local copies of their files are deleted with the context."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, and the files that it reads. Local copies among them exist as long as this value.

    ``merged`` have the rows of overlapping files, if the table merges rows.
    """

    rows: DataFrame
    opened: tuple[OpenFile, ...]
    merged: tuple[LocalCopy, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files read."""
        return tuple(opened.file for opened in self.opened)


@dataclass(frozen=True, slots=True)
class Contest:
    """The parts of a plan with large files: these alone, and all files with the distinct contested keys."""

    large: QueryPlan
    merged: QueryPlan

    @property
    def keys(self) -> pa.Table:
        """The contested keys of all parts: a key is in the ranges of one part at most."""
        assert self.merged.contested is not None
        return self.merged.contested


def contest_of(plan: QueryPlan, reader: Reader) -> tuple[Contest | None, QueryPlan]:
    """Return the parts of a plan in which few keys are contested, and the rest of the plan.

    Requires a plan of overlapping files. Reads the keys of the small files.
    """
    fields = plan.schema.row_key
    if plan.merge.may_drop_rows or any(field.key_type.has_nan for field in fields):
        return None, plan
    if not reader.is_local or not is_plain(copies_folder()):
        return None, plan
    found: list[tuple[PartitionQuery, tuple[DataFile, ...]]] = []
    rest: list[PartitionQuery] = []
    for part in plan.partitions:
        large = large_files(part.files, reader.limits) if len(part.ranges) < RANGES_MIN else ()
        if large and all(_is_read_by_engine(file, plan.schema, reader) for file in large):
            found.append((part, large))
        else:
            rest.append(part)
    keys = _keys(plan, found, reader) if found else None
    if keys is None:
        return None, plan
    alone = replace(plan, partitions=tuple([replace(part, files=large) for part, large in found]))
    merged = replace(plan, partitions=tuple([part for part, _ in found]), contested=keys)
    return Contest(alone, merged), replace(plan, partitions=tuple(rest))


def _is_read_by_engine(file: DataFile, schema: Schema, reader: Reader) -> bool:
    """Return whether the engine opens the file itself. It hands what joins find out while they run on to PyArrow, which
    otherwise reads the file, and does not compare all types of keys.
    """
    path = reader.open(file, schema, ()).path
    return path is not None and is_plain(path)


def large_files(files: Sequence[DataFile], limits: ReadLimits) -> tuple[DataFile, ...]:
    """Return files that do not overlap, and have most of the rows; none if a merge of all takes no longer. Pure."""
    large: list[DataFile] = []
    for file in sorted(files, key=lambda one: one.rows, reverse=True):
        apart = all(file.max_key < other.min_key or other.max_key < file.min_key for other in large)
        if apart and not file.markers:
            large.append(file)
    rows, in_large = sum(file.rows for file in files), sum(file.rows for file in large)
    few = rows < limits.contested_rows_min or (rows - in_large) * limits.rows_a_contested_key > in_large
    return () if few or len(files) > limits.fan_in else tuple(large)


def _keys(
    plan: QueryPlan, parts: Sequence[tuple[PartitionQuery, tuple[DataFile, ...]]], reader: Reader
) -> pa.Table | None:
    """Return the distinct keys of the small files; None if they take too much memory."""
    names = plan.schema.row_key_names
    batches: list[pa.RecordBatch] = []
    size_bytes = 0
    for part, large in parts:
        for file in part.files:
            if file in large:
                continue
            # As they are stored: a delete contests its key as well.
            stored = replace(plan, partitions=(replace(part, files=(file,)),), merge=KEEP_ALL)
            with reader.scan(stored, names, None) as rows:
                for batch in rows:
                    batches.append(batch)
                    size_bytes += batch.nbytes
                    if size_bytes > reader.limits.contested_bytes:
                        return None
    found = pa.Table.from_batches(batches, plan.schema.arrow_of(names))
    return pa.table([plain(column) for column in found.columns], list(names)).group_by(list(names)).aggregate([])


def frame_of(
    plan: QueryPlan, reader: Reader, columns: Iterable[str] | None = None, *, wanted: QueryPlan | None = None
) -> Frame:
    """Return all rows of the plan, in no order; ``columns`` (all if None) are those that will be read.

    Of rows that Lakebed reads before the engine does, only those of the narrower plan ``wanted`` are read. They are
    the rows of overlapping files that are merged, and few rows of files on a store. Raises as
    :meth:`lakebed.read.rows.reader.Reader.scan`.
    """
    engine, schema = reader.engine(), plan.schema
    # The engine filters by itself the rows that need no merge.
    direct, overlapping = divided(replace(plan, shown=EVERY_ROW))
    direct, few = reader.few_rows(direct)
    if wanted is not None:
        overlapping, few = inside_of(overlapping, wanted), inside_of(few, wanted)
    contest, overlapping = contest_of(overlapping, reader)
    where = visible_where(plan)
    if columns is not None and where is not None:
        columns = dict.fromkeys((*columns, *where.columns))
    sources = [(live, False) for live in live_files(direct)]
    if contest is not None:
        sources += [(live, True) for live in live_files(contest.large)]
    opened = tuple(reader.open(live.file, schema, columns) for live, _ in sources)
    frames = []
    for (live, contested), file in zip(sources, opened, strict=True):
        with reader.attribute_errors([live.file]):
            rows = engine.rows(file, schema)
        rows = rows if live.whole else rows.filter(_is_live(live, schema))
        rows = rows if where is None or plan.shown.shows_all(live.file) else rows.filter(where.alone)
        frames.append(without_keys(rows, contest.keys) if contest and contested else rows)
    copies = []
    read = replace(overlapping, partitions=(*overlapping.partitions, *few.partitions), shown=plan.shown)
    if read.partitions:
        copies.append(merged_copy(read, reader, columns))
        frames.append(engine.copied_rows(copies[-1], schema))
    if contest is not None:
        keyed = None if columns is None else (*schema.row_key_names, *columns)
        copies.append(merged_copy(replace(contest.merged, shown=plan.shown), reader, keyed))
        # More rows may have been read.
        frames.append(with_keys(engine.copied_rows(copies[-1], schema), contest.keys))
    if not frames:
        return Frame(SessionContext().from_arrow(empty_table(schema.arrow)), ())
    return Frame(_union(frames), opened, tuple(copies))


def register(context: SessionContext, name: str, plan: QueryPlan, reader: Reader) -> None:
    """Register the rows of the plan as a table of the caller's context; raises as :func:`frame_of`."""
    check_method("context", context, "register_table", "SessionContext of DataFusion")
    check_text("name", name)
    frame = frame_of(plan, reader)
    context.register_table(name, Table(frame.rows))
    _frames.setdefault(context, []).append(frame)


def check_found(frame: Frame, plan_text: str, reader: Reader) -> None:
    """Raise as :func:`frame_of` for a file that the engine does not read because it is missing.

    ``plan_text`` is the physical plan, which names every file on local disk that the engine found and could not
    exclude. Files on a store are read by Lakebed, which raises an error if they are missing.
    """
    for opened in frame.opened:
        if opened.path is not None and opened.file.id not in plan_text:
            reader.check_there(opened)


def _is_live(live: LiveFile, schema: Schema) -> Expr:
    conditions = [inside(schema.codec, keys) for keys in live.ranges]
    return reduce(or_, [lit(value=True) if one is None else one for one in conditions])


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return one frame of several, as a balanced tree: the engine walks plans by recursion."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _union(frames[:middle]).union(_union(frames[middle:]))
