"""The cache of pages between requests, so that most requests read nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict

from lakebed.model.state.table_state import TableState
from lakebed.read.drawing.key_space import KeySpace
from lakebed.server.web.pages.activity import Activity
from lakebed.server.web.pages.size_history import SizeHistory
from lakebed.table.instance import Instance
from lakebed.table.table import Table

KEY_SPACES_MAX = 8
"""40 bytes a partition: 5 MB for a table of 132,000."""

HISTORIES_MAX = 64


class PageMemory:
    """One for an application. Safe to use from many threads."""

    def __init__(self, instance: Instance) -> None:
        self.activity = Activity(instance)
        self._key_spaces: OrderedDict[str, KeySpace] = OrderedDict()
        self._histories: OrderedDict[str, SizeHistory] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the background work."""
        self.activity.close()
        for one in self._histories.values():
            one.close()

    def key_space(self, state: TableState) -> KeySpace:
        """Return the key space of a state of a table."""
        with self._lock:
            known = self._key_spaces.get(state.table)
            if known is not None and known.version == state.version:
                self._key_spaces.move_to_end(state.table)
                return known
        found = KeySpace.of(state)
        with self._lock:
            self._key_spaces[state.table] = found
            if len(self._key_spaces) > KEY_SPACES_MAX:
                self._key_spaces.popitem(last=False)
        return found

    def sizes(self, table: Table) -> SizeHistory:
        """Return the sizes of a table."""
        with self._lock:
            found = self._histories.setdefault(table.id, SizeHistory(table))
            self._histories.move_to_end(table.id)
            dropped = self._histories.popitem(last=False)[1] if len(self._histories) > HISTORIES_MAX else None
        if dropped is not None:
            dropped.close()
        return found
