"""Declares the indexes of a table, and keeps its schema and merge mode fit for them. Pure.

The entries of an index are the rows of a table of its own, a view with an
:class:`~lakebed.model.state.table_state.IndexCoverage`. The indexed table only knows that the index exists, from which
version to which, and of which fields: its log and the log of the index are never written together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.key_types import key_type
from lakebed.model.state.fields import Id, Positive, StoredAsIs
from lakebed.model.state.table_state import TableIndex
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema
    from lakebed.model.state.reference_lists import ReferenceCounts
    from lakebed.model.state.table_state import TableState


class AddIndex(StoredAsIs, frozen=True, tag="add_index"):
    """Declare the index of the fields with these ids, whose entries another table has."""

    index: Id
    fields: tuple[Positive, ...]

    def resolve(self, state: TableState) -> AddIndex | Repeated | Rejected:
        """Return self if the fields can be indexed, and no other index is of the same fields."""
        added = TableIndex(self.index, self.fields)
        if added in state.indexes:
            return Repeated(state.version)
        if state.is_index:
            return Rejected(Code.INDEX_UNFIT, "the table is an index itself: make another index of its table")
        schema = state.created
        names = {field.id: field.name for field in schema.fields}
        if any(one not in names for one in self.fields):
            return Rejected(Code.PROPOSAL_OUTDATED, "a field of the index was dropped meanwhile")
        for other in state.indexes:
            if other.fields == self.fields:
                text = f"the table has an index of {', '.join(names[one] for one in self.fields)} already"
                return Rejected(Code.INDEX_EXISTS, text)
        return unfit_indexes((added,), state.merge, schema) or self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the index."""
        return replace(state, indexes=(*state.indexes, TableIndex(self.index, self.fields)))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the table of the entries, and the fields by their ids: their names may change."""
        return Description(f"in {self.index}, of fields {', '.join(map(str, self.fields))}")


class DropIndex(StoredAsIs, frozen=True, tag="drop_index"):
    """Declare that the table has the index no more."""

    index: Id

    def resolve(self, state: TableState) -> DropIndex | Repeated:
        """Return self; Repeated if there is no such index."""
        return self if any(one.table == self.index for one in state.indexes) else Repeated(state.version)

    def apply(self, state: TableState) -> TableState:
        """Return the state without the index."""
        return replace(state, indexes=tuple(one for one in state.indexes if one.table != self.index))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the table of the entries."""
        return Description(f"in {self.index}")


def unfit_indexes(indexes: tuple[TableIndex, ...], merge: MergeMode, schema: Schema) -> Rejected | None:
    """Return why rows of a schema, merged by a mode, cannot have these indexes; None if they can.

    The values of a merged row have to be those of stored rows, which have the entries.
    """
    known = {field.id: field for field in schema.fields}
    for index in indexes:
        if not (merge.keeps_all or merge.kept is not None):
            text = f"rows are merged by {merge}, which computes values: a table with an index keeps or replaces rows"
            return Rejected(Code.INDEX_UNFIT, text)
        for one in index.fields:
            field = known.get(one)
            if field is None:
                return Rejected(Code.INDEX_UNFIT, "an index of the table is of the field: drop the index first")
            if key_type(field.type) is None:
                text = f"{field.name} is {field.type}, which has no order: an index is of fields that a key could have"
                return Rejected(Code.INDEX_UNFIT, text, {"column": field.name})
    return None
