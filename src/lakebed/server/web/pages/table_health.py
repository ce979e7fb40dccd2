"""The health of a table, with reasons. Pure.

The levels of :class:`Level` are in order of urgency, and a table has the most urgent of its reasons: operations that
failed or wait, paused or switched-off maintenance, and a backlog. A table that was not read yet has an unknown health.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakebed.model.wording import count_text
from lakebed.server.service.status import OperationStatus, TableStatus
from lakebed.server.web.pages import rendering


class Level(StrEnum):
    """The urgency, from nothing to do to act now."""

    OK = "ok"
    WORKING = "working"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    FAILING = "failing"


@dataclass(frozen=True, slots=True)
class Health:
    """The most urgent level, and every reason, most urgent first."""

    level: Level
    reasons: tuple[str, ...]


UNREAD = Health(Level.UNKNOWN, ("not read yet",))
"""That of a table that the service has not read yet."""


def health_of(table: TableStatus) -> Health:
    """Return the health of a table by its status."""
    if table.error is not None:
        return Health(Level.FAILING, (f"its log cannot be read: {table.error.message}",))
    if not table.version:
        return UNREAD
    found = [reason for operation in table.operations for reason in _of_operation(operation)]
    if not table.online:
        found.append((Level.PAUSED, "offline: not compacted or split"))
    if table.paused:
        found.append((Level.PAUSED, f"paused: {', '.join(table.paused)}"))
    backlog = table.backlog
    if backlog.requests:
        found.append(
            (
                Level.WORKING,
                f"{count_text(backlog.requests, 'request')} of {rendering.size(backlog.size_bytes)} to ingest",
            )
        )
    if backlog.runs_due:
        found.append((Level.WORKING, f"{count_text(backlog.runs_due, 'run')} to merge"))
    order = list(Level)
    found.sort(key=lambda one: order.index(one[0]), reverse=True)
    return Health(found[0][0] if found else Level.OK, tuple(reason for _, reason in found))


def _of_operation(one: OperationStatus) -> list[tuple[Level, str]]:
    if one.parked and one.last_error is not None:
        return [(Level.FAILING, f"{one.operation} is parked: {one.last_error.message}")]
    if one.failures_in_a_row and one.waiting_for is not None:
        return [(Level.WAITING, f"{one.operation} waits for {one.waiting_for}")]
    if one.failures_in_a_row and one.last_error is not None:
        return [(Level.FAILING, f"{one.operation} failed {one.failures_in_a_row:,} times: {one.last_error.message}")]
    return []
