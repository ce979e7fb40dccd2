"""Which objects are orphans. Pure: no I/O.

An object that is not in the state is an orphan if it is older than the cutoff in the log: no transaction can add it any
more. "Older" is strictly less, by the store's last-modified times in microseconds, here and where an addition is
rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.files import data_object, file_of_object
from lakebed.state.sums import file_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.state.table_state import TableState

ORPHANS_MAX = 10_000
ORPHANS_SHARE_MAX = 0.05
"""More orphans than either need ``force``: judged by the state of another table, all files would be orphans."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a listing; ``last_modified_us`` is the store's, in microseconds since 1970."""

    name: str
    size_bytes: int
    last_modified_us: int


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """``orphans`` may be deleted. ``unknown`` are the names of objects that are neither a data file nor a summary.

    ``missing`` are data files that the table refers to and that were not found, of all ``objects``.
    """

    orphans: tuple[FoundObject, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    objects: int

    @property
    def size_bytes(self) -> int:
        """Of the orphans."""
        return sum(orphan.size_bytes for orphan in self.orphans)

    def doubts(self) -> list[str]:
        """Why nothing should be deleted before someone has looked."""
        found = []
        if self.missing:
            found.append(f"{len(self.missing)} data files are not there, such as {self.missing[0]}: verify the table")
        if self.unknown:
            found.append(
                f"{len(self.unknown)} objects are of no kind known here, such as {self.unknown[0]}: move them away, or "
                "upgrade"
            )
        count = len(self.orphans)
        if count > ORPHANS_MAX or count > ORPHANS_SHARE_MAX * self.objects:
            found.append(f"{count} of {self.objects} objects are orphans, more than 5% or {ORPHANS_MAX:,}")
        return found


def orphan_cutoff(state: TableState, now_us: int, age_s: float) -> tuple[int, str | None]:
    """So long before now, but not past the beginning of an open job; and the job that holds it back, if one does."""
    wanted_us = now_us - int(age_s * 1_000_000)
    first = min(state.jobs.values(), key=lambda job: job.began_us, default=None)
    if first is None or first.began_us >= wanted_us:
        return wanted_us, None
    return first.began_us, first.id


def plan_orphans(state: TableState, found: Sequence[FoundObject], cutoff_us: int, before: TableState) -> OrphanPlan:
    """What of a listing is an orphan. ``before`` is a state from before the listing: what both need must be listed."""
    orphans, unknown, names = [], [], set()
    referenced = file_jobs(state)
    jobs = referenced | {c.facts.id: c.facts.job for c in state.files.having("dropped")}
    for listed in found:
        names.add(listed.name)
        job_and_file = file_of_object(state.table, listed.name)
        job = None if job_and_file is None else jobs.get(job_and_file[1])
        if job_and_file is None or (job is not None and job != job_and_file[0]):
            unknown.append(listed.name)
        elif job is None and listed.last_modified_us < cutoff_us:
            orphans.append(listed)
    missing = [
        name
        for file_id, job in file_jobs(before).items()
        if (name := data_object(state.table, job, file_id)) not in names and file_id in referenced
    ]
    return OrphanPlan(tuple(orphans), tuple(unknown), tuple(missing), len(found))
