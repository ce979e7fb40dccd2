"""The source of a view, as stored in the state of its table. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.state.fields import Id, Whole
from lakebed.model.state.transactions.resolution import Rejected

if TYPE_CHECKING:
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState


class ViewSource(Struct, frozen=True, omit_defaults=True):
    """The id of the source table, a query over its rows, and its version up to which the view has them; 0: none.

    ``schema`` is the version of the source's schema when the view was declared, by whose names the query reads fields;
    0: by the names that they have now.
    """

    table: Id
    select: str
    version: Whole
    schema: Whole = 0

    def columns(self, source: TableState) -> tuple[tuple[str, str], ...]:
        """Return the fields of the source that the query knows: the name in the query, and the name now."""
        names = {field.id: field.name for field in source.created.fields}
        return tuple((field.name, names[field.id]) for field in self._declared(source) if field.id in names)

    def dropped(self, source: TableState) -> tuple[str, ...]:
        """Return the names in the query of fields that the source no longer has."""
        ids = {field.id for field in source.created.fields}
        return tuple(field.name for field in self._declared(source) if field.id not in ids)

    def _declared(self, source: TableState) -> tuple[Field, ...]:
        known = next((schema for schema in source.schemas if schema.version == self.schema), source.created)
        return known.fields


def refused_change(state: TableState) -> Rejected | None:
    """Return why only a feed may change the table; None for a table that is not a view."""
    if state.view is None:
        return None
    text = f"the table is a view of table {state.view.table}, and changes only when it is refreshed"
    return Rejected(Code.VIEW_READ_ONLY, text)
