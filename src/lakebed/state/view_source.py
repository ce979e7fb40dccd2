"""The source of a view, as stored in the state of its table. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.errors import Code
from lakebed.state.fields import Id, Whole
from lakebed.state.transactions.resolution import Rejected

if TYPE_CHECKING:
    from lakebed.state.table_state import TableState


class ViewSource(Struct, frozen=True):
    """The id of the source table, a query over its rows, and its version up to which the view has them; 0: none."""

    table: Id
    select: str
    version: Whole


def refused_change(state: TableState) -> Rejected | None:
    """Return why only a feed may change the table; None for a table that is not a view."""
    if state.view is None:
        return None
    text = f"the table is a view of table {state.view.table}, and changes only when it is refreshed"
    return Rejected(Code.VIEW_READ_ONLY, text)
