"""Sets the filter and the age-off of a table, and keeps them consistent with its schema and merge mode. Pure.

The hidden rows depend on the state alone, so a read of a version always shows the same rows. A compaction drops hidden
rows permanently. So a job that was opened before a change of the filter is refused at its commit: it may have dropped
rows that are visible again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code, Error
from lakebed.model.row_filters import (
    NO_FILTER,
    AgeOff,
    FilterChange,
    RowFilter,
    SetFilter,
    ages_by_sort_key,
    check_age_field,
    filter_of,
    forbidden,
    stored_filter,
)
from lakebed.model.state.fields import Whole
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState

_US = 1_000_000


class ProposeFilter(Struct, frozen=True):
    """Changes of the filter, of the age-off, or of both.

    ``fields`` are the fields that the predicate names, as they were when it was checked. ``now_us`` is a time of the
    log's clock, in microseconds since 1970; the first cut is computed from it.
    """

    changes: tuple[FilterChange, ...]
    fields: tuple[Field, ...]
    now_us: int

    def resolve(self, state: TableState) -> ChangeFilter | Repeated | Rejected:
        """Return the filter with all changes made, if the latest schema and the merge mode allow it."""
        if state.is_index:
            text = "an index has the entries of all rows of its table, and hides none; set the filter of the table"
            return Rejected(Code.FILTER_CHANGE_REJECTED, text)
        schema = state.created
        row_filter = state.row_filter
        for change in self.changes:
            match change:
                case SetFilter():
                    for field in self.fields:
                        if schema.by_name.get(field.name) != field:
                            text = f"field {field.name} was altered meanwhile; set the filter again"
                            return Rejected(Code.FILTER_CHANGE_REJECTED, text, {"column": field.name})
                    ids = tuple(field.id for field in self.fields)
                    row_filter = replace(row_filter, predicate=change.predicate or "", columns=ids)
                case AgeOff():
                    try:
                        age_field = 0 if change.field is None else check_age_field(change, schema).id
                    except Error as error:
                        return Rejected(Code.FILTER_CHANGE_REJECTED, str(error))
                    row_filter = replace(row_filter, age_field=age_field, age_s=change.age_s, unit=change.unit)
        if row_filter == state.row_filter:
            return Repeated(state.version)
        if refused := unfit_filter(row_filter, state.merge, schema) or _with_markers(row_filter, state):
            return refused
        return ChangeFilter(row_filter, self._cut_us(row_filter, state))

    def _cut_us(self, row_filter: RowFilter, state: TableState) -> int:
        """Return the cut for the new age. It is not lowered unless the age grew."""
        if not row_filter.age_field:
            return 0
        before = state.row_filter
        is_same = (before.age_field, before.unit) == (row_filter.age_field, row_filter.unit)
        least = state.age_off_cut_us if is_same and row_filter.age_s <= before.age_s else 0
        return max(least, self.now_us - row_filter.age_s * _US, 0)


class ChangeFilter(Struct, frozen=True):
    """Sets the filter of the table, and the cut of its age-off: 0 without one."""

    filter: RowFilter
    cut_us: int

    def apply(self, state: TableState) -> TableState:
        """Return the state with the filter and the version that set it."""
        return replace(state, row_filter=self.filter, filter_version=state.version, age_off_cut_us=self.cut_us)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the predicate and the age."""
        return Description(self.filter.describe())

    def document(self, _sidecars: Sidecars) -> ChangeFilterDocument:
        """Return the document that the log stores."""
        return ChangeFilterDocument(stored_filter(self.filter), self.cut_us)


class ChangeFilterDocument(Struct, frozen=True, tag_field="type", tag="set_filter"):
    """The stored document; docs/format.md describes its fields."""

    filter: dict[str, Any] | None
    cut_us: Whole

    def transaction(self, _sidecars: SidecarData) -> ChangeFilter:
        """Return the transaction of this document."""
        return ChangeFilter(filter_of(self.filter), self.cut_us)


def _with_markers(row_filter: RowFilter, state: TableState) -> Rejected | None:
    """Return why rows cannot age off by the sort key: there may be partial rows. None if they can."""
    begins = (
        ages_by_sort_key(row_filter, state.merge, state.created) and row_filter.age_field != state.row_filter.age_field
    )
    if begins and any(file.markers for file in state.referenced().values()):
        text = (
            "rows cannot age off by the sort key while files have deletes or partial rows; let them age off by a row "
            "key field, or write the rows to a table that has the age-off from the start"
        )
        return Rejected(Code.FILTER_CHANGE_REJECTED, text)
    return None


def unfit_filter(found: RowFilter, mode: MergeMode, schema: Schema) -> Rejected | None:
    """Return why a table of this mode and schema cannot have a filter; None if it can."""
    reason = None if found == NO_FILTER else forbidden(found, mode, schema)
    return None if reason is None else Rejected(Code.FILTER_CHANGE_REJECTED, reason)


def unfollowed(found: RowFilter, before: Schema, after: Schema) -> Rejected | None:
    """Return why a filter cannot stay as the schema changes; None if it can.

    A predicate is text with names, so its fields keep their names and types. The field of an age-off is identified by
    its id, and may be renamed.
    """
    new: Mapping[int, Field] = {field.id: field for field in after.fields}
    for field in before.fields:
        changed = new.get(field.id)
        if field.id in found.columns and (changed is None or (changed.name, changed.type) != (field.name, field.type)):
            text = f"the table's filter names {field.name}; end it first with SetFilter(None), and set it again after"
            return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, {"column": field.name})
        if field.id == found.age_field and (changed is None or changed.type != field.type):
            text = f"rows age off by {field.name}; end that first with AgeOff(None)"
            return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, {"column": field.name})
    return None
