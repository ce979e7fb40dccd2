"""Which objects nobody will ever name. Pure: no I/O.

An object that is on no record is an orphan if it is older than a horizon that the log holds: nobody can add it then.
"Older" is strictly less, of the store's stamps in microseconds, here and where an addition is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.files import data_name, file_of_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.state.table import TableState

ORPHANS_MAX = 10_000
ORPHANS_SHARE_MAX = 0.05
"""More of them than either, and someone should look: by a state that is not the table's, all its files are orphans."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a listing; ``stamp_us`` is the store's, in microseconds since 1970."""

    name: str
    size_bytes: int
    stamp_us: int


@dataclass(frozen=True, slots=True)
class SweepPlan:
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


def orphan_horizon(state: TableState, now_us: int, age_s: float) -> tuple[int, str | None]:
    """So long before now, but not past the beginning of an open job; and the job that holds it back, if one does."""
    wanted_us = now_us - int(age_s * 1_000_000)
    first = min(state.jobs.values(), key=lambda job: job.began_us, default=None)
    if first is None or first.began_us >= wanted_us:
        return wanted_us, None
    return first.began_us, first.id


def plan_sweep(state: TableState, found: Sequence[FoundObject], horizon_us: int, before: TableState) -> SweepPlan:
    """What of a listing is an orphan. ``before`` is a state from before the listing: what both need must be listed."""
    orphans, unknown, names = [], [], set()
    for listed in found:
        names.add(listed.name)
        job_and_file = file_of_object(state.table, listed.name)
        committed = None if job_and_file is None else state.files.get(job_and_file[1])
        if job_and_file is None or (committed is not None and committed.file.job != job_and_file[0]):
            unknown.append(listed.name)
        elif committed is None and listed.stamp_us < horizon_us:
            orphans.append(listed)
    needed = ((file_id, known) for file_id, known in before.files.items() if known.references)
    missing = [
        name
        for file_id, known in needed
        if (name := data_name(state.table, known.file)) not in names
        and file_id in state.files
        and state.files[file_id].references
    ]
    return SweepPlan(tuple(orphans), tuple(unknown), tuple(missing), len(found))
