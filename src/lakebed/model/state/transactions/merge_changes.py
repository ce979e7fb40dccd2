"""Sets the merge mode of a table, and keeps it consistent with the schema. Pure.

A mode can be set only while the table has no rows. Existing rows were merged by another mode, or not at all, and no
mode applied to them afterwards gives readers the same rows before and after a compaction. Operations that began before
the change are refused: writes by their base version; jobs because the change requires that none is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code, Error
from lakebed.model.merge_modes import MergeMode, check_mode, mode_of
from lakebed.model.state.transactions.filter_changes import unfit_filter
from lakebed.model.state.transactions.index_changes import unfit_indexes
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated, refused_change
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState


class SetMerge(Struct, frozen=True):
    """Merge rows with equal keys by another mode from now on."""

    mode: MergeMode

    def resolve(self, state: TableState) -> SetMerge | Repeated | Rejected:
        """Return self if the table has no rows and no open job, and its latest schema allows the mode."""
        if refused := refused_change(state):
            return refused
        if self.mode == state.merge:
            return Repeated(state.version)
        if state.references:
            files = len(state.referenced())
            text = (
                f"the table has rows, in {count_text(files, 'file')}, which are merged by {state.merge}; make a table "
                f"with {self.mode} and import the rows into it, or remove all rows first"
            )
            return Rejected(Code.MERGE_CHANGE_REJECTED, text)
        for job in state.jobs.values():
            return Rejected(Code.JOB_CONFLICT, f"job {job.id} is open; set the mode when it is closed", {"job": job.id})
        return (
            unfit(self.mode, state.created)
            or unfit_filter(state.row_filter, self.mode, state.created)
            or unfit_indexes(state.indexes, self.mode, state.created)
            or self
        )

    def apply(self, state: TableState) -> TableState:
        """Return the state with the mode and the version that set it."""
        return replace(state, merge=self.mode, merge_version=state.version)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the mode."""
        return Description(str(self.mode))

    def document(self, _sidecars: Sidecars) -> SetMergeDocument:
        """Return the document that the log stores."""
        return SetMergeDocument(self.mode.document())


class SetMergeDocument(Struct, frozen=True, tag_field="type", tag="set_merge"):
    """The stored document; docs/format.md describes its fields."""

    merge: dict[str, Any] | None

    def transaction(self, _sidecars: SidecarData) -> SetMerge:
        """Return the transaction of this document."""
        return SetMerge(mode_of(self.merge))


def unfit(mode: MergeMode, schema: Schema) -> Rejected | None:
    """Return why rows of a schema cannot be merged by a mode; None if they can."""
    try:
        check_mode(mode, schema)
    except Error as error:
        return Rejected(Code.MERGE_CHANGE_REJECTED, str(error))
    return None
