"""Backpressure: files are not added to a partition that has far more runs than reads can serve.

A commit of files for a partition with more runs than the setting ``runs_max`` is refused with a ContentionError. If a
job is open over the partition, somebody is compacting it: the commit is then proposed again, for at most
:data:`STALL_S` seconds, as RocksDB stalls its writers. Without such a job waiting would help nobody, so the error comes
at once.

Source: docs/decisions/0032.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.log.outcomes import version_of
from lakebed.state.transactions import ProposeFiles, TooManyRuns

if TYPE_CHECKING:
    from lakebed.ingest.adding import AddTarget
    from lakebed.log.outcomes import Outcome
    from lakebed.state.transactions import Proposal

STALL_S = 60.0
"""A compaction that runs commits the jobs of a wave within seconds; a caller that waits longer is to learn why."""

PAUSE_S, PAUSE_MAX_S = 0.1, 2.0


def try_commit(table: AddTarget, proposal: Proposal) -> Outcome:
    """Commit a proposal; with files, wait while a partition has too many runs and is being compacted."""
    if not isinstance(proposal, ProposeFiles):
        return table.log.commit(proposal)
    proposal = replace(proposal, runs_max=table.settings_in_force().runs_max)
    end, pause = clock.monotonic_s() + STALL_S, PAUSE_S
    while True:
        outcome = table.log.commit(proposal)
        left = end - clock.monotonic_s()
        if not isinstance(outcome, TooManyRuns) or not outcome.job_open or left <= 0:
            return outcome
        clock.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_MAX_S)


def check_runs(table: AddTarget) -> None:
    """Raise ContentionError if a partition has too many runs now: before long work, whose commit would be refused."""
    state, runs_max = table.log.head.state, table.settings_in_force().runs_max
    for partition in state.partitions.ids if runs_max else ():
        if state.references.exceeds(partition, runs_max):
            runs = len({one.run for one in state.held_by(partition)})
            if runs > runs_max:
                version_of(TooManyRuns(partition, runs, runs_max, job_open=False), f"table {state.table}")
