"""Changes of a table's filter, checked by the engine that will evaluate it, and its age-off.

Errors: UsageError for changes; StorageError for the age-off.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.log.last_modified_times import to_us
from lakebed.model.checks import shown
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter, check_age_field
from lakebed.model.state.transactions import ProposeCut, ProposeExpiry, ProposeFilter
from lakebed.model.state.transactions.age_off import cut_due, expired

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakebed.model.schema import Field, Schema
    from lakebed.write.run import WriteTarget


def proposed_filter(changes: Sequence[Any], schema: Schema, now: datetime) -> ProposeFilter:
    """Return the proposal of a filter, an age-off or both; ``now`` is by the clock of the log.

    Raises UsageError for other changes beside them, a predicate that is not one over a row, or that is volatile, and an
    age-off by a field that holds no time.
    """
    others = [change for change in changes if not isinstance(change, FilterChange)]
    if others:
        raise Code.ARGUMENTS_CONFLICT(f"a filter is changed on its own; alter {shown(others[0])} in another call")
    if max(Counter(map(type, changes)).values()) > 1:
        raise Code.ARGUMENTS_CONFLICT("alter takes one SetFilter and one AgeOff")
    fields: tuple[Field, ...] = ()
    for change in changes:
        match change:
            case SetFilter(predicate=str(predicate)):
                from lakebed.engine.predicate import check_where

                columns = check_where(predicate, schema.arrow).columns
                fields = tuple(schema.by_name[name] for name in columns)
            case AgeOff() if change.field is not None:
                check_age_field(change, schema)
            case _:
                pass
    return ProposeFilter(tuple(changes), fields, to_us(now))


def age_off(table: WriteTarget) -> None:
    """Advance the cut if due. A table without an age-off takes no request; with one, the time of the store is read.

    Outcomes are ignored: another process did it, or the next round will. Raises StorageError.
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
