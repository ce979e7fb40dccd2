"""Writes of rows that were found by reading the table: a read, a decision, and a commit that holds if it still does.

The rows are found in one version, and arrive in a later one, where they hide rows that were written in between. So the
write has a guard over the keys (:mod:`lakebed.model.state.transactions.key_guard`). If a file that may have such rows
has arrived, nothing is committed, and all of it is done again in the newest version, at most :data:`TRIES_MAX` times.

Core. :func:`add_found`. Errors. Those of reads and writes; ContentionError. Source: docs/decisions/0053, 0084.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakebed.errors import Code, RejectedError
from lakebed.model.state.time_travel import committed_at
from lakebed.model.state.transactions.key_guard import KeyGuards
from lakebed.write.run import Added, Write, WriteTarget, add

if TYPE_CHECKING:
    from lakebed.model.state.transactions.key_guard import KeyGuard
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.write.source_rows import RowInput

TRIES_MAX = 10
"""How often rows are looked for; each time rows that may be theirs have arrived meanwhile."""


class ReadTarget(WriteTarget, Protocol):
    """The target of guarded writes: a :class:`~lakebed.table.table.Table`."""

    def snapshot(self, max_staleness: float | None = None) -> Snapshot:
        """Return the latest version, or one that was the latest at most ``max_staleness`` seconds ago."""


Find: TypeAlias = "Callable[[Snapshot, KeyGuards], AbstractContextManager[RowInput]]"
"""Finds the rows to write in a version, and adds the keys that it decides by before the last row is read."""


def add_found(table: ReadTarget, find: Find, write: Write, check: Callable[[int], None] = lambda _: None) -> Added:
    """Write the rows that ``find`` finds, in one commit; nothing if the commit id was committed before.

    ``check`` is called with the number of rows in the files before they are committed, and may raise.
    """
    state = table.state()
    if (first := committed_at(state, "commit_id", write.commit_id)) is not None:
        return Added(first, 0, repeated=True)
    if write.base_version is None and write.commit_id is not None:
        # The base version of the first attempt, by which a repeat is recognised.
        write = replace(write, base_version=state.version)
    for _ in range(TRIES_MAX):
        snapshot, guards = table.snapshot(), KeyGuards()

        def guard(rows: int, snapshot: Snapshot = snapshot, guards: KeyGuards = guards) -> KeyGuard:
            check(rows)
            return guards.guard(snapshot.state)

        try:
            with find(snapshot, guards) as found:
                return add(table, found, replace(write, guard=guard))
        except RejectedError as error:
            if error.code is not Code.KEYS_CHANGED:
                raise
    raise Code.COMMIT_CONTENDED(
        f"table {table.name}: rows that may be those that were looked for arrived {TRIES_MAX} times meanwhile; nothing "
        "was changed. Do it again, or change rows by their keys",
        attempts=TRIES_MAX,
    )
