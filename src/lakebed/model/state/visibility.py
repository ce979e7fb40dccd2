"""Which rows of a state are visible, and which files have none or only visible rows. Pure.

Core types: :class:`Visibility`, the rows that a table's filter and age-off show at one version; :class:`FileTimes`, the
times of files as far as their bounds give them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.model.files import decode_bounds
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.row_filters import NO_FILTER, age_field, ages_by_sort_key, cut_in, filter_sql

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState


class Visibility(Struct, frozen=True):
    """The rows for which the predicate ``sql`` is true, or all rows if it is empty.

    ``times`` are those of an age-off by a key field, with the cut ``cut_us``. ``by_age``: no other filter hides rows.
    """

    sql: str = ""
    times: FileTimes | None = None
    cut_us: int = 0
    by_age: bool = True

    @classmethod
    def of(cls, state: TableState) -> Visibility:
        """Return the visibility of a table's rows."""
        sql = filter_sql(state.row_filter, state.created, state.age_off_cut_us)
        times = FileTimes.of(state) if state.age_off_cut_us else None
        return cls(sql, times, state.age_off_cut_us, not state.row_filter.predicate) if sql else EVERY_ROW

    def shows_all(self, file: DataFile) -> bool:
        """Return whether every row of the file is known to be visible."""
        return not self.sql or (self.by_age and self.times is not None and not self.times.any_before(file, self.cut_us))

    def hides_all(self, file: DataFile) -> bool:
        """Return whether every row of the file is known to be hidden by its time."""
        return self.times is not None and self.times.all_before(file, self.cut_us)


EVERY_ROW = Visibility()


def kept_by_jobs(state: TableState, *, complete: bool) -> str:
    """Return the SQL predicate of the rows that a job keeps in its output; empty if it keeps all.

    A job that is not ``complete`` keeps the hidden rows of keys that are merged: otherwise an older row would take
    their place once the filter is removed. If rows are merged by the greatest sort key, a row that is too old hides
    only older ones, and may be dropped.
    """
    if complete or state.merge.keeps_all:
        return state.visibility.sql
    if ages_by_sort_key(state.row_filter, state.merge, state.created):
        return filter_sql(replace(state.row_filter, predicate="", columns=()), state.created, state.age_off_cut_us)
    return ""


def unfiltered(state: TableState) -> TableState:
    """Return the state without its filter, for reads that evaluate the filter themselves."""
    return replace(state, row_filter=NO_FILTER, filter_version=0, age_off_cut_us=0)


class FileTimes(Struct, frozen=True):
    """The bounds of the age-off's field in files: the key field at ``place``."""

    field: Field
    unit: str
    place: int

    @classmethod
    def of(cls, state: TableState) -> FileTimes | None:
        """Return the times of a table's files; None if it has no age-off, or one by a value field."""
        field = age_field(state.row_filter, state.created)
        fields = (*state.created.row_key, *state.created.sort_key)
        if field is None or field not in fields:
            return None
        return cls(field, state.row_filter.unit, fields.index(field))

    def all_before(self, file: DataFile, cut_us: int) -> bool:
        """Return whether every row of the file is known to have a time before the cut."""
        bounds, young = self._bounds(file), self._from(cut_us)
        return bounds is not None and bounds.intersect(young).empty

    def are_known(self, file: DataFile) -> bool:
        """Return whether the file has bounds of its times."""
        return self._bounds(file) is not None

    def any_before(self, file: DataFile, cut_us: int) -> bool:
        """Return whether a row of the file may have a time before the cut; unknown bounds count as such."""
        bounds = self._bounds(file)
        return bounds is None or not self._from(cut_us).covers(bounds)

    def _bounds(self, file: DataFile) -> EncodedRange | None:
        """Return the range of the encoded times; None if it is unknown."""
        if self.place == 0:
            width = self.field.width
            return EncodedRange(file.min_key[:width], successor(file.max_key[:width]))
        bounds = decode_bounds(file.bounds)
        return bounds[self.place - 1] if len(bounds) >= self.place else None

    def _from(self, cut_us: int) -> EncodedRange:
        """Return the range of the times that are not before the cut; empty if the field can hold none."""
        least = self.field.key_type.least_from(cut_in(self.field, self.unit, cut_us))
        return EncodedRange(b"", b"") if least is None else EncodedRange(least)
