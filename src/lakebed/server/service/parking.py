"""Parked operations, as jobs that `lakebed jobs list --parked` lists, and requests to try them again.

Core types: :class:`Parking`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from lakebed.errors import Error
from lakebed.model.operations import OPERATIONS
from lakebed.table.tracker.runs import Begun, RunOutcome, requested_retries, settle_retries

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.model.state.catalog import CatalogTable
    from lakebed.table.instance import Instance

LOOK_EVERY_S = 5.0
"""How often requests are looked for while something is parked; each look is one request."""


class Parking:
    """The parked operations of one service. ``retry`` is called with the table and operation of a retry request."""

    def __init__(self, instance: Instance, retry: Callable[[str, str], None]) -> None:
        self._instance = instance
        self._retry = retry
        self._runs: dict[str, tuple[str, str]] = {}
        self._facts: dict[str, tuple[Begun, BaseException]] = {}
        self._look_at_s = 0.0

    def park(self, table: CatalogTable, operation: str, error: BaseException, tries: int) -> None:
        """Record a job that is not retried until it is requested."""
        tracker = self._instance.tracker
        begun = Begun(
            operation=OPERATIONS[operation].kinds[0], table=table.name, table_id=table.id, detail="parked", tries=tries
        )
        run = tracker.begin(begun)
        tracker.end(run, RunOutcome.FAILED, error=error, parked=True)
        self._runs[run] = (table.id, operation)
        self._facts[run] = begun, error

    def look(self, now_s: float) -> None:
        """Accept retry requests for operations that this service has parked."""
        if not self._runs or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_EVERY_S
        # If the store does not respond, the next round tries again.
        with suppress(Error):
            asked = requested_retries(self._instance.storage) & self._runs.keys()
            for run in asked:
                self._retry(*self._unpark(run))
            # Deleted last: a request that remains has no further effect, and one that is deleted could not be repeated.
            settle_retries(self._instance.storage, asked)

    def has(self, table_id: str, operation: str) -> bool:
        """Return whether the operation, or a part of it, is recorded as parked."""
        return (table_id, operation) in self._runs.values()

    def forget(self, table_id: str, operation: str) -> None:
        """Remove the record: the operation is retried, or succeeded."""
        for run in [run for run, parked in self._runs.items() if parked == (table_id, operation)]:
            self._unpark(run)

    def _unpark(self, run: str) -> tuple[str, str]:
        """Record that a job is no longer parked."""
        begun, error = self._facts.pop(run)
        again = structs.replace(begun, id=run, detail="was parked, and is tried again")
        tracker = self._instance.tracker
        tracker.end(tracker.begin(again), RunOutcome.FAILED, error=error)
        return self._runs.pop(run)
