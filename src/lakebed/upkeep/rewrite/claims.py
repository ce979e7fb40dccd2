"""Claims the files of a rewrite: opens a job for each, and waits for compactions that hold some of them.

A rewrite is atomic, so it claims all of its files before it reads the first. Claimed files cannot be merged or joined
with others, so each round has fewer left. Files that another job holds, or its output, are claimed when that job has
ended. Files that arrive meanwhile are not claimed, and can be compacted.

Two rewrites could each wait for files of the other. A rewrite therefore fails if it finds a job of another rewrite,
recognised by its id.

Core type: :class:`Claims`. Errors: RejectedError if a job does not end; ContentionError, UnknownOutcomeError and
StorageError of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.operations import REWRITE_JOB_PREFIX
from lakebed.model.state.transactions import Job, ProposeJobs
from lakebed.storage.processes import this_process
from lakebed.upkeep.compaction.merge_jobs import close_job
from lakebed.upkeep.compaction.run import release_jobs
from lakebed.upkeep.rewrite.plan import FileRewrite, RewriteScope, conflicts, is_as_planned, plan
from lakebed.write import batches as runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakebed.table.table import Table

JOBS_MAX = 10_000
"""Maximum files of one rewrite. All become visible by one entry, which has about a kilobyte for each."""

WAIT_S = 600.0
"""The longest wait of a rewrite for a job that holds one of its files."""

PAUSE_S, PAUSE_MAX_S = 0.05, 2.0

DEADLINE_MAX_S = 30 * 86_400


@dataclass(slots=True)
class Claims:
    """The open jobs of one rewrite, by their ids. ``cores`` is the number of its tasks that run at once."""

    table: Table
    scope: RewriteScope
    cores: int
    check: Callable[[], None]
    jobs: dict[str, FileRewrite] = field(default_factory=dict)

    def take(self) -> None:
        """Claim everything in the scope.

        Raises RejectedError if the rewrite has too many files, or if another job holds some of them for too long.
        """
        # The clock of the store dates the files.
        began_us = to_us(self.table.storage.now())
        end, pause = clock.monotonic_s() + WAIT_S, PAUSE_S
        while True:
            self.check()
            state = self.table.state()
            # A job that another process closed has to be opened again.
            self.jobs = {name: one for name, one in self.jobs.items() if name in state.jobs}
            if outdated := [name for name, one in self.jobs.items() if not is_as_planned(one, state)]:
                # Rows were removed before the job was opened, so the fence of the removal does not apply to it.
                self.close(outdated, "rows of it were removed before it was opened")
                for name in outdated:
                    self.jobs.pop(name)
                continue
            wanted = plan(state, self.scope, [state.jobs[name] for name in self.jobs])
            if not wanted:
                return
            self._check_count(len(self.jobs) + len(wanted))
            others = [job for name, job in state.jobs.items() if name not in self.jobs]
            claimed = {index: jobs for index, one in enumerate(wanted) if (jobs := conflicts(one, others))}
            free = [one for index, one in enumerate(wanted) if index not in claimed]
            if claimed and release_jobs(self.table):
                # A dead process held them.
                continue
            self._check_others(claimed.values())
            if clock.monotonic_s() > end:
                raise self._held_up(claimed)
            if free:
                self._open(free, began_us, len(self.jobs) + len(wanted))
                continue
            clock.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def close(self, jobs: Sequence[str], reason: str) -> None:
        """Close jobs that commit nothing, as a best effort."""
        runner.in_threads(lambda job: close_job(self.table, job, reason), list(jobs))

    def _open(self, free: Sequence[FileRewrite], began_us: int, count: int) -> None:
        # Each of the tasks may take as long as a job may be open.
        deadline_s = self.table.settings_in_force().job_deadline_s * -(-count // self.cores)
        owner, jobs = this_process(), []
        for wanted in free:
            name = f"{REWRITE_JOB_PREFIX}{clock.new_id()}"
            self.jobs[name] = wanted
            jobs.append(Job(name, wanted.keys, (wanted.file.id,), owner, min(deadline_s, DEADLINE_MAX_S), began_us))
        outcome = self.table.try_commit(ProposeJobs(tuple(jobs)))
        if isinstance(outcome, NotCommitted) and outcome.code in (Code.PROPOSAL_OUTDATED, Code.JOB_CONFLICT):
            # Other processes took or changed all of them since the plan was made: plan again, as if only some had
            # changed.
            return
        version_of(outcome, f"table {self.table.name}")

    def _check_count(self, count: int) -> None:
        if count > JOBS_MAX:
            raise Code.LIMIT_REACHED(
                f"a rewrite of table {self.table.name} would concern {count:,} files, and {JOBS_MAX:,} can change "
                "together: compact the table first, or rewrite one range of keys after another"
            )

    def _check_others(self, claimed: Iterable[list[str]]) -> None:
        for names in claimed:
            for name in names:
                if name.startswith(REWRITE_JOB_PREFIX):
                    raise Code.JOB_CONFLICT(
                        f"another rewrite of table {self.table.name} is under way (job {name}); rewrite again when it "
                        "has ended",
                        job=name,
                    )

    def _held_up(self, claimed: Mapping[int, Sequence[str]]) -> Error:
        job = next((names[0] for names in claimed.values()), "of compactions, one after another,")
        return Code.JOB_CONFLICT(
            f"job {job} of table {self.table.name} still holds files of the rewrite after {WAIT_S:.0f} s; nothing was "
            "changed. Rewrite again when it has ended; if its process died on another host, it is closed after "
            "job_deadline_s",
            job=job,
        )
