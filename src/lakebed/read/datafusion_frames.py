"""The rows of a plan as a DataFusion frame: read by the engine itself, file by file, in any context.

Nothing is merged: rows come in no promised order, and those that count are told by conditions on the key, for files of
which not all rows do. A file that is gone is an error here, though the engine takes it for an empty one: who runs the
frame asks :func:`check_found` of the plan that it made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakebed.read.plan import LiveFile, live_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from datafusion import DataFrame, Expr, SessionContext

    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.parquet.open_files import OpenFile
    from lakebed.read.plan import QueryPlan
    from lakebed.read.reader import Reader


_held: WeakKeyDictionary[SessionContext, list[Frame]] = WeakKeyDictionary()
"""Copies of files that contexts read go when the contexts do."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame, and the files it reads: those of them that are copies live as long as this does."""

    rows: DataFrame
    opened: tuple[OpenFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files read."""
        return tuple(opened.file for opened in self.opened)


def frame_of(plan: QueryPlan, reader: Reader, columns: Iterable[str] | None = None) -> Frame:
    """All rows of the plan, of which these columns are read (all if None). Raises as :meth:`Reader.get`."""
    from datafusion import SessionContext

    engine, schema = reader.engine(), plan.schema
    files = live_files(plan)
    opened = tuple(reader.open(live.file, schema, columns) for live in files)
    frames = []
    for live, one in zip(files, opened, strict=True):
        with reader.attribute_errors([live.file]):
            rows = engine.rows(one, schema)
        frames.append(rows if live.whole else rows.filter(_counting(live, schema)))
    if not frames:
        return Frame(SessionContext().from_arrow(schema.arrow.empty_table()), ())
    return Frame(_union(frames), opened)


def _counting(live: LiveFile, schema: Schema) -> Expr:
    """What is true of the rows that count."""
    from datafusion import lit

    from lakebed.engine.datafusion import inside

    conditions = [inside(schema, keys) for keys in live.ranges]
    return reduce(or_, [lit(value=True) if one is None else one for one in conditions])


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """One frame of several; halved, so that the plan of many is not deep."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return _union(frames[:middle]).union(_union(frames[middle:]))


def register(context: SessionContext, name: str, plan: QueryPlan, reader: Reader) -> None:
    """Let a context of the caller's read the rows of the plan as a table. Raises as :meth:`Reader.get`."""
    from datafusion.catalog import Table

    frame = frame_of(plan, reader)
    context.register_table(name, Table(frame.rows))
    _held.setdefault(context, []).append(frame)


def check_found(frame: Frame, plan_text: str, reader: Reader) -> None:
    """Raise as :meth:`Reader.get` for a file that the engine's plan does not read because it is not there.

    ``plan_text`` is the physical plan, which names every file on local disk that the engine found and could not rule
    out. What is read from a store by us raises if it is not there.
    """
    for opened in frame.opened:
        if opened.path is not None and opened.file.id not in plan_text:
            reader.check_there(opened)
