"""Lets rows of a table age off: raises the cut to the time of the log's store, and drops files that are wholly past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.log.last_modified_times import to_us
from lakebed.state.transactions import ProposeCut, ProposeExpiry
from lakebed.state.transactions.age_off import cut_due, expired

if TYPE_CHECKING:
    from lakebed.table.table import Table


def age_off(table: Table) -> None:
    """Do what is due. A table without an age-off takes no request; one with it asks the store for its time.

    The outcomes do not matter: another process did it, or the next round will. Raises StorageError.
    """
    state = table.state()
    if not state.row_filter.age_field:
        return
    now_us = to_us(table.log.now())
    if cut_due(state, now_us) is not None:
        table.try_commit(ProposeCut(now_us))
        state = table.state()
    if next(expired(state), None) is not None:
        table.try_commit(ProposeExpiry())
