"""Which rows of a state are visible, and which files have none of them, or no others. Pure.

Core types: :class:`Visibility`, the rows that a table's filter and age-off show at one version; :class:`FileTimes`,
what the bounds of files say of their times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.model.field_bounds import decode_bounds
from lakebed.model.key_values import encode_content
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.merge_modes import KeepAll
from lakebed.model.row_filters import NO_FILTER, age_field, ages_by_sort_key, cut_in, filter_sql

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Field
    from lakebed.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class Visibility:
    """The rows for which the predicate ``sql`` is true, or all rows if it is empty.

    ``times`` are those of an age-off by a key field, with the cut ``cut_us``. ``by_age``: nothing else hides rows.
    """

    sql: str = ""
    times: FileTimes | None = None
    cut_us: int = 0
    by_age: bool = True

    @classmethod
    def of(cls, state: TableState) -> Visibility:
        """That of a table."""
        sql = filter_sql(state.row_filter, state.created, state.age_off_cut_us)
        times = FileTimes.of(state) if state.age_off_cut_us else None
        return cls(sql, times, state.age_off_cut_us, not state.row_filter.predicate) if sql else EVERY_ROW

    def shows_all(self, file: DataFile) -> bool:
        """Whether every row of the file is known to be visible."""
        return not self.sql or (self.by_age and self.times is not None and not self.times.any_before(file, self.cut_us))

    def hides_all(self, file: DataFile) -> bool:
        """Whether no row of the file is visible, as far as its times say."""
        return self.times is not None and self.times.all_before(file, self.cut_us)


EVERY_ROW = Visibility()


def kept_by_jobs(state: TableState, *, complete: bool) -> str:
    """The predicate, in SQL, of the rows that a job leaves in its output; empty if it leaves all.

    A job that is not ``complete`` keeps the hidden rows of keys that are merged: an older row would take their place
    once the filter is ended. By the greatest sort key a row that is too old hides only older ones, and may go.
    """
    if complete or isinstance(state.merge, KeepAll):
        return state.visibility.sql
    if ages_by_sort_key(state.row_filter, state.merge, state.created):
        return filter_sql(replace(state.row_filter, predicate="", columns=()), state.created, state.age_off_cut_us)
    return ""


def unfiltered(state: TableState) -> TableState:
    """The state as if it had no filter: for reads that evaluate the filter themselves."""
    return replace(state, row_filter=NO_FILTER, filter_version=0, age_off_cut_us=0)


@dataclass(frozen=True, slots=True)
class FileTimes:
    """What the state knows of the times of files: the bounds of the age-off's field, the key field at ``place``."""

    field: Field
    unit: str
    place: int

    @classmethod
    def of(cls, state: TableState) -> FileTimes | None:
        """Those of a table; None if it has no age-off, or one by a value field."""
        field = age_field(state.row_filter, state.created)
        fields = (*state.created.row_key, *state.created.sort_key)
        if field is None or field not in fields:
            return None
        return cls(field, state.row_filter.unit, fields.index(field))

    def all_before(self, file: DataFile, cut_us: int) -> bool:
        """Whether every row of the file is known to have a time before the cut."""
        bounds, cut = self._bounds(file), self._encoded(cut_us)
        return bounds is not None and bounds.max is not None and bounds.max <= cut

    def are_known(self, file: DataFile) -> bool:
        """Whether the file has bounds of its times."""
        return self._bounds(file) is not None

    def any_before(self, file: DataFile, cut_us: int) -> bool:
        """Whether a row of the file may have a time before the cut; some row has the least time, as far as known."""
        bounds = self._bounds(file)
        return bounds is None or bounds.min < self._encoded(cut_us)

    def _bounds(self, file: DataFile) -> EncodedRange | None:
        """The range of the encoded times; None if it is not known."""
        if self.place == 0:
            width = self.field.width
            return EncodedRange(file.min_key[:width], successor(file.max_key[:width]))
        bounds = decode_bounds(file.bounds)
        return bounds[self.place - 1] if len(bounds) >= self.place else None

    def _encoded(self, cut_us: int) -> bytes:
        value = cut_in(self.field, self.unit, cut_us)
        held = self.field.key_type
        return encode_content(self.field, max(held.least, min(value, held.greatest)))
