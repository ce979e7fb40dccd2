"""Rows of a plan as frames of DataFusion, for SQL and for contexts of the caller.

:func:`frame_of` gives the rows of a plan as one frame for any context, in no order. Files of which only some
rows are live are filtered by conditions on the key. Overlapping files of a table that merges rows are read from a
merged copy. The engine treats a missing file as empty, so whatever runs a frame must call :func:`check_found` with the
physical plan.

Core types: :class:`Frame`. Errors: as :meth:`lakebed.read.rows.reader.Reader.scan`.

Rule: import this module where it is needed. It imports DataFusion, which takes a good part of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from datafusion import DataFrame, Expr, SessionContext, lit
from datafusion.catalog import Table
from msgspec.structs import replace

from lakebed.engine.datafusion import inside
from lakebed.files.parquet.open_files import LocalCopy, OpenFile
from lakebed.model.arrays import empty_table
from lakebed.model.checks import check_method, check_text
from lakebed.model.schema import Schema
from lakebed.model.state.visibility import EVERY_ROW
from lakebed.read.rows.merged_copy import merged_copy
from lakebed.read.rows.plan import LiveFile, divided, inside_of, live_files
from lakebed.read.rows.visible_rows import visible_where

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.read.rows.plan import QueryPlan
    from lakebed.read.rows.reader import Reader

_frames: WeakKeyDictionary[SessionContext, list[Frame]] = WeakKeyDictionary()
"""Frames registered with a caller's context: local copies of their files are deleted with the context."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, and the files that it reads. Local copies among them exist as long as this value.

    ``merged`` has the rows of overlapping files, if the table merges rows.
    """

    rows: DataFrame
    opened: tuple[OpenFile, ...]
    merged: LocalCopy | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files read."""
        return tuple(opened.file for opened in self.opened)


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
    files = live_files(direct)
    where = visible_where(plan)
    if columns is not None and where is not None:
        columns = dict.fromkeys((*columns, *where.columns))
    opened = tuple(reader.open(live.file, schema, columns) for live in files)
    frames = []
    for live, file in zip(files, opened, strict=True):
        with reader.attribute_errors([live.file]):
            rows = engine.rows(file, schema)
        rows = rows if live.whole else rows.filter(_is_live(live, schema))
        frames.append(rows if where is None or plan.shown.shows_all(live.file) else rows.filter(where.alone))
    read = replace(overlapping, partitions=(*overlapping.partitions, *few.partitions), shown=plan.shown)
    read = read if wanted is None else inside_of(read, wanted)
    copy = merged_copy(read, reader, columns) if read.partitions else None
    if copy is not None:
        frames.append(engine.copied_rows(copy, schema))
    if not frames:
        return Frame(SessionContext().from_arrow(empty_table(schema.arrow)), ())
    return Frame(_union(frames), opened, copy)


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
