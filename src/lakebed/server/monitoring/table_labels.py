"""Values of the label ``table``: the names of tables, bounded in number.

Each value makes hundreds of series, so an instance of 10,000 tables cannot have one for each. The tables that were
created first have labels of their own; all others share :data:`OTHERS`. A table keeps its label until it is dropped or
renamed.

Core type: :class:`TableLabels`. No I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

OTHERS = "(others)"
"""The label of all other tables; parentheses are not allowed in names of tables."""

CATALOG = "(catalog)"
"""The label of the log of the catalog."""


class TableLabels:
    """Labels by table id. Safe to use from many threads."""

    def __init__(self, tables_max: int, catalog: str, names: Callable[[], Mapping[str, str]]) -> None:
        """``catalog`` is the identity of the catalog's log; ``names`` returns the names of all tables by id."""
        self._tables_max = tables_max
        self._names = names
        self._own: dict[str, str] = {"": "", catalog: CATALOG}
        self._kept = len(self._own)
        self._unlabelled: Collection[str] = ()
        self._changing = threading.Lock()

    def of(self, table_id: str) -> str:
        """Return the label of a table."""
        label = self._own.get(table_id)
        if label is None:
            if table_id not in self._unlabelled:
                self.refresh()
            label = self._own.get(table_id, OTHERS)
        return label

    def refresh(self) -> list[str]:
        """Assign labels to new tables up to the maximum; return the labels that no table has any more."""
        names = self._names()
        with self._changing:
            own = dict(list(self._own.items())[: self._kept])
            gone = [name for table, name in self._own.items() if table not in own and names.get(table) != name]
            # Ids begin with the time of creation. Tables that have a label keep it.
            known = [table for table in self._own if names.get(table) == self._own[table]]
            for table in (*known, *sorted(names)):
                if len(own) - self._kept >= self._tables_max:
                    break
                if table in names:
                    own.setdefault(table, names[table])
            self._own, self._unlabelled = own, names.keys() - own.keys()
        return gone

    @property
    def unlabelled(self) -> int:
        """The number of tables without a label of their own."""
        return len(self._unlabelled)
