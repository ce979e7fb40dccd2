"""Follows the catalog of an instance and all of its tables, each on its own schedule.

Core types: :class:`Follower`.
"""

from __future__ import annotations

import heapq
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Error
from lakebed.model.operations import OPERATIONS
from lakebed.model.table_summary import Record
from lakebed.server.service.subscriptions import Subscription
from lakebed.server.service.watch import Watch, error_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.server.service.plan import ServiceLimits
    from lakebed.server.service.status import LastError
    from lakebed.table.instance import Instance

THREADS = 8
"""Tables that are followed at once: on a store of 30 ms, 250 a second."""


BATCH_S = 0.1
"""Looks at tables whose turns come within so long are made together, since each round of a service has a price."""


class Follower:
    """The tables of an instance in a service: ``watches`` by id, ``waiting`` those with operations that may
    begin. Used by one thread at a time; so the time of a round does not grow with the number of tables.

    ``error`` is why the catalog cannot be read. ``spread``: the first garbage collections are spread over a period.
    """

    def __init__(self, instance: Instance, limits: ServiceLimits, report: Callable[[str], None]) -> None:
        self.watches: dict[str, Watch] = {}
        self.waiting: dict[str, Watch] = {}
        self.error: LastError | None = None
        self.limits = limits
        self.spread = True
        self._instance = instance
        self._report = report
        self._is_near = instance.storage.locality.near
        self._close: frozenset[str] = frozenset()
        self._defaults: object = None
        self._catalog_at_s = -1.0
        self._catalog_version = -1
        self._turns: list[tuple[float, str]] = []
        self._threads = ThreadPoolExecutor(THREADS, "lakebed-follow")

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def follow(self, now_s: float) -> None:
        """Check all tables that are due."""
        if now_s >= self._catalog_at_s:
            self._follow_catalog(now_s)
            self._catalog_at_s = now_s + self.limits.follow_s
        if self.error is None:
            self._follow_tables(now_s)

    def look(self) -> None:
        """Check the catalog and all tables now."""
        now_s = clock.monotonic_s()
        self._catalog_at_s = now_s
        for watch in self.watches.values():
            self.turn(watch, now_s)
        self.follow(now_s)

    def heads(self) -> dict[str, int]:
        """Return the versions of the tables whose logs could be read at the last look, by their ids; from memory."""
        if self.error is not None:
            return {}
        return {one.found.id: one.summary.version for one in list(self.watches.values()) if one.error is None}

    def published(self) -> list[str]:
        """Return the ids of the tables with the setting ``publish``, as they were at the last look; from memory."""
        return [one.found.id for one in list(self.watches.values()) if one.summary.published]

    def view_lags(self) -> dict[str, int]:
        """Return how many versions of its source each view lacks, by the id of the view; from memory."""
        summaries = {table_id: watch.summary for table_id, watch in list(self.watches.items())}
        versions = {table_id: summary.version for table_id, summary in summaries.items()}
        views = [Subscription(view, one.source, one.fed) for view, one in summaries.items() if one.source in versions]
        return {view.id: view.lag(versions) for view in views}

    def fed_from(self, source: str) -> dict[str, int]:
        """Return the versions of a source that its views and indexes have, by their ids; from memory."""
        summaries = {table_id: watch.summary for table_id, watch in list(self.watches.items())}
        return {table_id: one.fed for table_id, one in summaries.items() if one.source == source}

    def follow_closely(self, tables: frozenset[str], now_s: float) -> None:
        """Check these tables at least every ``follow_s``, however long they are idle: they have subscribers."""
        for watch in (self.watches[one] for one in tables - self._close if one in self.watches):
            self.turn(watch, now_s)
        self._close = tables

    def pause_s(self) -> float:
        """Return the seconds until the next turn; at least :data:`BATCH_S`, or a tenth of the catalog's period, at most
        it.
        """
        longest_s = self.limits.follow_s
        next_s = min(self._turns[0][0] if self._turns else self._catalog_at_s, self._catalog_at_s)
        return max(min(BATCH_S, longest_s / 10), min(next_s - clock.monotonic_s(), longest_s))

    def plan(self, watch: Watch, now_s: float) -> None:
        """Determine which operations may begin on a table, and when it is checked next."""
        source = self.watches.get(watch.summary.source) if watch.summary.source else None
        watch.plan(now_s, self.limits, 0 if source is None else source.summary.version)
        if watch.waiting:
            self.waiting[watch.found.id] = watch
        else:
            self.waiting.pop(watch.found.id, None)
        close = watch.found.id in self._close
        self.turn(watch, min(watch.follow_at_s, now_s + self._close_s(watch, now_s)) if close else watch.follow_at_s)

    def _close_s(self, watch: Watch, now_s: float) -> float:
        """Return the time between two checks of a table with subscribers.

        A published table is checked twice as often while it changes: its versions are to be visible within a second,
        and publishing takes time, too.
        """
        if not watch.summary.published:
            return self.limits.follow_s
        return min(self.limits.follow_s, max(self.limits.follow_s / 2, (now_s - watch.changed_s) / 10))

    def turn(self, watch: Watch, at_s: float) -> None:
        """Schedule the next check of a table."""
        watch.follow_at_s = at_s
        heapq.heappush(self._turns, (at_s, watch.found.id))

    def _follow_catalog(self, now_s: float) -> None:
        """Add, change or remove tables. If the catalog cannot be read, all tables wait."""
        try:
            catalog = self._instance.catalog()
        except (Error, OSError) as error:
            if self.error is None:
                self.error = error_now(error)
                self._report(f"the catalog cannot be read: {self.error.message}; tried again every second or so")
            return
        if self.error is not None:
            self._report(f"the catalog can be read again; it could not since {self.error.at:%H:%M:%S}")
            self.error = None
        if catalog.version == self._catalog_version:
            return
        for table_id in self.watches.keys() - catalog.tables.keys():
            del self.watches[table_id]
            self.waiting.pop(table_id, None)
            self._instance.release(table_id)
        for table_id, found in catalog.tables.items():
            watch = self.watches.get(table_id)
            if watch is None:
                watch = self.watches[table_id] = Watch(found, self._instance.log_of(table_id), now_s, now_s)
                if self.spread:
                    # Otherwise a service would collect the garbage of all tables when it starts.
                    for name in (one.name for one in OPERATIONS.values() if one.spread):
                        watch.records[name] = Record(ended_s=now_s - watch.share * self.limits.periods[name])
            elif watch.found is found and self._defaults is catalog.defaults:
                continue
            elif watch.found == found and self._defaults == catalog.defaults:
                watch.found = found
                continue
            watch.found, watch.stale = found, True
            self.turn(watch, now_s)
        self._defaults, self._catalog_version = catalog.defaults, catalog.version

    def _follow_tables(self, now_s: float) -> None:
        turns: dict[str, Watch] = {}
        while self._turns and self._turns[0][0] <= now_s:
            at_s, table_id = heapq.heappop(self._turns)
            watch = self.watches.get(table_id)
            if watch is not None and watch.follow_at_s == at_s:
                turns[table_id] = watch
        if not turns:
            return
        watches = list(turns.values())
        follow = map if self._is_near or len(watches) == 1 else self._threads.map
        changed = list(follow(lambda watch: watch.follow(self._instance), watches))
        moved = {watch.found.id for watch, new in zip(watches, changed, strict=True) if new}
        # Views of a table that has changed are due as well.
        views = [w for w in self.watches.values() if w.summary.source in moved] if moved else []
        for watch in {w.found.id: w for w in (*watches, *views)}.values():
            watch.rest(self._instance, now_s)
            self.plan(watch, now_s)
