"""What is read: the keys, columns and rows that one read, or a part of it, is for.

Core type: :class:`ReadRequest`. A scan has one for the whole read; the reader narrows it to each part of the table that
it reads, with the key range there and the rows that are still wanted. Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Field, Schema
from lakebed.parquet.read_statistics import ReadStatistics

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.read.point_lookup import Point


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """At most ``limit`` rows with these keys, as rows of the schema with the columns ``names``.

    ``point`` is set if the keys are a single one. Rows for which ``where`` is not true are left out and do not count.
    With ``reverse`` the last row comes first. The read is counted in ``statistics``.
    """

    schema: Schema
    keys: EncodedRange
    names: tuple[str, ...]
    limit: int | None = None
    where: Predicate | None = None
    point: Point | None = None
    reverse: bool = False
    statistics: ReadStatistics = field(default_factory=ReadStatistics, compare=False)

    def before_where(self) -> ReadRequest:
        """The request for all rows, with the columns that the predicate needs as well."""
        assert self.where is not None
        return replace(self, names=(*self.names, *self.where.columns), limit=None, where=None)

    def fields(self, *, with_keys: bool) -> list[Field]:
        """The fields to read, each once; with keys, those by which rows are sorted come first."""
        first = self.schema.sort_names if with_keys else ()
        names = dict.fromkeys((*first, *self.names, *(() if self.where is None else self.where.columns)))
        return [self.schema.by_name[name] for name in names]
