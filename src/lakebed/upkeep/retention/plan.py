"""Plans garbage collection, as values: :class:`FilePlan`, :class:`LogPlan`, :class:`OrphanPlan`.

Each is planned from a table state, listings, a time and settings. They are planned separately, and again after each
step, because the order of the reads matters: pins are read after the state that has the retired files, and a state
after the orphan cutoff was committed.

Rules:

* A file may be *retired* once the entry that dropped its last reference is older than ``history_s``, unless a tag is at
  a version that needs it. A retired file may be *deleted* unless a pin is at a version that needs it. The pins must
  have been read after the state, so without pins nothing is deletable.
* Entries may be deleted below a retained checkpoint that is older than ``Settings.log_retention_s``, has another one
  above it, and lies below all open jobs.
* Request keys expire by the base version of their transaction, below a watermark.
* An object that the state does not name is an *orphan*. It may be deleted once it is older than the orphan cutoff in
  the state, because no transaction can add it any more. "Older" is strictly less, in microseconds of the store's clock,
  here and where an addition is rejected.

The last-modified times of entries ascend with their versions, so old entries are found by binary search, because each
lookup of a time may be a request. Pure: no I/O. Source: decisions 0011 and 0013; tests/model/deletion and
tests/model/truncation.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed.model.files import data_object, file_of_object
from lakebed.model.state.sums import file_jobs
from lakebed.model.state.table_state import TableState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from lakebed.model.files import CommittedFile
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import Answer

REQUESTS_MAX = 1_000_000
"""Request keys that are kept, about 100 MB of a state. Beyond that, those with the lowest base version expire."""

REQUEST_WATERMARK_STEPS = 8
"""The watermark is raised when an eighth of the keys, or of their time, has expired: it costs an entry and a scan."""

CHECKPOINTS_RETAINED = 4
"""Checkpoints retained within the retention of the log: entries are kept for at most a quarter longer than that."""

ORPHANS_MAX = 10_000
ORPHANS_SHARE_MAX = 0.05
"""More orphans than either are in doubt: judged by the state of another table, all files would be orphans."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of a listing; ``last_modified_us`` is the store's, in microseconds since 1970."""

    name: str
    size_bytes: int
    last_modified_us: int


@dataclass(frozen=True, slots=True)
class ObjectListing:
    """The data objects of a table, listed at ``now_us`` of their store's clock, after the state ``before`` was read."""

    objects: Sequence[FoundObject]
    now_us: int
    before: TableState


@dataclass(frozen=True, slots=True)
class FilePlan:
    """Files without references: ``due`` may be retired, ``retired`` are, ``deletable`` ones are retired and unpinned.

    ``waiting`` counts the rest, which are too young or needed by a tag.
    """

    retired: tuple[CommittedFile, ...] = ()
    due: tuple[CommittedFile, ...] = ()
    waiting: int = 0
    deletable: tuple[CommittedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPlan:
    """``retain``: retain a checkpoint of the head. ``truncate_to`` is the first version to keep, or None."""

    retain: bool
    truncate_to: int | None


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """``orphans`` are older than ``before_us``; ``deletable`` are those older than the cutoff in the state.

    ``cutoff_us`` is the cutoff at which all orphans are deletable; None: they already are. An open job
    ``held_by`` may hold ``before_us`` back. ``unknown`` are names of objects that are neither a data file nor a
    summary, ``missing`` of data files that the table refers to and that were not found, of all ``objects``.
    """

    orphans: tuple[FoundObject, ...]
    deletable: tuple[FoundObject, ...]
    cutoff_us: int | None
    before_us: int
    held_by: str | None
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    objects: int

    def doubts(self) -> list[str]:
        """Return the reasons for which nothing should be deleted without a manual check."""
        reasons = []
        if self.missing:
            reasons.append(f"{len(self.missing)} data files are not there, such as {self.missing[0]}: verify the table")
        if self.unknown:
            reasons.append(
                f"{len(self.unknown)} objects are of no kind known here, such as {self.unknown[0]}: move them away, or "
                "upgrade"
            )
        count = len(self.orphans)
        if count > ORPHANS_MAX or count > ORPHANS_SHARE_MAX * self.objects:
            reasons.append(f"{count} of {self.objects} objects are orphans, more than 5% or {ORPHANS_MAX:,}")
        return reasons


# -- files ------------------------------------------------------------------------------------------------------


def cutoff(now: datetime, settings: Settings) -> datetime:
    """Return the time at or before which dropped files may be deleted; ``now`` is by the clock of the log."""
    return now - timedelta(seconds=settings.history_s)


def plan_files(
    state: TableState,
    last_modified_of: Callable[[int], datetime | None],
    before: datetime,
    pins: Collection[int] | None = None,
) -> FilePlan:
    """Return the files that were dropped at or before that time."""
    unused = sorted(state.files.having("dropped"), key=lambda c: (c.dropped or 0, c.sequence_lo, c.facts.id))
    retired = tuple(c for c in unused if c.retired)
    free = [c for c in unused if not c.retired and not state.tagged(c)]
    # Files dropped before the earliest retained version are old; their entries may have been truncated.
    versions = sorted(
        {c.dropped for c in free if c.dropped is not None and c.dropped > state.earliest_retained_version}
    )
    # All versions from the first young one on are young.
    old = bisect_left(versions, x=True, key=lambda version: not _is_old(last_modified_of(version), before))
    young = set(versions[old:])
    due = tuple(c for c in free if c.dropped not in young)
    deletable = () if pins is None else unpinned(retired, pins)
    waiting = len(unused) - len(retired) - len(due)
    return FilePlan(retired, due, waiting, deletable)


def unpinned(files: Iterable[CommittedFile], pins: Collection[int]) -> tuple[CommittedFile, ...]:
    """Return those of the files that the table does not refer to at any of the pinned versions."""
    versions = sorted(pins)

    def is_needed(committed: CommittedFile) -> bool:
        # At the first pinned version from the one that added the file on, if at any.
        first = bisect_left(versions, committed.added)
        return first < len(versions) and committed.needed_at(versions[first])

    return tuple(committed for committed in files if not is_needed(committed))


def _is_old(last_modified: datetime | None, before: datetime) -> bool:
    # A truncated entry is older than any time that is compared with.
    return last_modified is None or last_modified <= before


# -- the log ----------------------------------------------------------------------------------------------------


def plan_log(
    state: TableState,
    retained: Collection[int],
    last_modified_of: Callable[[int], datetime | None],
    now: datetime,
    settings: Settings,
) -> LogPlan:
    """Return the plan for a log with these ``retained`` checkpoints above the log start."""
    keep_for = timedelta(seconds=settings.log_retention_s)
    return LogPlan(
        checkpoint_due(retained, state.version, last_modified_of, now - keep_for / CHECKPOINTS_RETAINED),
        truncation_version(retained, state, last_modified_of, now - keep_for),
    )


def checkpoint_due(
    retained: Collection[int], head: int, last_modified_of: Callable[[int], datetime | None], before: datetime
) -> bool:
    """Return whether the head should be retained: it is newer than the last retained version, and that one is old."""
    last = max(retained, default=1)
    return last < head and _is_old(last_modified_of(last), before)


def truncation_version(
    retained: Collection[int],
    state: TableState,
    last_modified_of: Callable[[int], datetime | None],
    before: datetime,
) -> int | None:
    """Return the latest old retained version with another one above it, below all open jobs; None if none is."""
    # The age of a job is that of the entry that opened it.
    opened = min((job.opened for job in state.jobs.values()), default=state.version)
    fit = [version for version in sorted(retained)[:-1] if version <= opened]
    return next((version for version in reversed(fit) if _is_old(last_modified_of(version), before)), None)


def request_watermark(
    state: TableState,
    last_modified_of: Callable[[int], datetime | None],
    now: datetime,
    settings: Settings,
    requests_max: int = REQUESTS_MAX,
) -> int | None:
    """Return the next request watermark; None: not due, or no key has expired.

    Keys that were committed within the retention of the log are kept, however low their base version, so a client can
    repeat a request without knowing that version. The age of requests before a truncated entry is unknown.
    """
    if not state.requests and not state.fences:
        return None
    keep_for = timedelta(seconds=settings.log_retention_s)
    oldest = last_modified_of(min(state.request_watermark + 1, state.version))
    if (
        len(state.requests) <= requests_max
        and oldest is not None
        and oldest > now - keep_for - keep_for / REQUEST_WATERMARK_STEPS
    ):
        return None
    answers = list(state.requests.having("version"))
    line = _old_requests(state, answers, last_modified_of, now - keep_for)
    if len(answers) > requests_max:
        bases = sorted(answer.base_version for answer in answers)
        line = max(line, bases[len(bases) - requests_max + requests_max // REQUEST_WATERMARK_STEPS - 1] + 1)
    due = any(answer.base_version < line for answer in answers) or any(fence.version <= line for fence in state.fences)
    return line if due and line > state.request_watermark else None


def _old_requests(
    state: TableState, answers: Iterable[Answer], last_modified_of: Callable[[int], datetime | None], before: datetime
) -> int:
    versions = range(1, state.version + 1)
    young = versions.start + bisect_left(
        versions, x=True, key=lambda version: not _is_old(last_modified_of(version), before)
    )
    if young == 1 or last_modified_of(young - 1) is None:
        return state.request_watermark
    return min([young, state.version, *(answer.base_version for answer in answers if answer.version >= young)])


def what_remains(state: TableState) -> TableState:
    """Return the state of a dropped table without what grows with a table, for the checkpoint that takes its log's
    place.
    """
    return TableState(
        version=state.version,
        table=state.table,
        schemas=state.schemas,
        settings=state.settings,
        earliest_retained_version=state.version,
        dropped=True,
    )


# -- orphans ----------------------------------------------------------------------------------------------------


def plan_orphans(state: TableState, listing: ObjectListing, age_s: float) -> OrphanPlan:
    """Return the objects of a listing that the state does not name and that are older than ``age_s``.

    An object counts as missing only if both states, before the listing and after it, refer to it.
    """
    orphans, unknown, names = [], [], set()
    before_us, held_by = _orphans_before(state, listing.now_us, age_s)
    referenced = file_jobs(state)
    jobs = referenced | {c.facts.id: c.facts.job for c in state.files.having("dropped")}
    for listed in listing.objects:
        names.add(listed.name)
        job_and_file = file_of_object(state.table, listed.name)
        job = None if job_and_file is None else jobs.get(job_and_file[1])
        if job_and_file is None or (job is not None and job != job_and_file[0]):
            unknown.append(listed.name)
        elif job is None and listed.last_modified_us < before_us:
            orphans.append(listed)
    missing = [
        name
        for file_id, job in file_jobs(listing.before).items()
        if (name := data_object(state.table, job, file_id)) not in names and file_id in referenced
    ]
    # No higher than necessary, so that no later upload is refused if the store's clock is temporarily wrong.
    needed_us = max((orphan.last_modified_us for orphan in orphans), default=-1) + 1
    return OrphanPlan(
        orphans=tuple(orphans),
        deletable=tuple(orphan for orphan in orphans if orphan.last_modified_us < state.orphan_cutoff_us),
        cutoff_us=needed_us if needed_us > state.orphan_cutoff_us else None,
        before_us=before_us,
        held_by=held_by,
        unknown=tuple(unknown),
        missing=tuple(missing),
        objects=len(listing.objects),
    )


def _orphans_before(state: TableState, now_us: int, age_s: float) -> tuple[int, str | None]:
    """Return the time before which objects may be orphans, and the open job that holds it back for its output."""
    before_us, held_by = now_us - int(age_s * 1_000_000), None
    first = min(state.jobs.values(), key=lambda job: job.began_us, default=None)
    if first is not None and first.began_us < before_us:
        before_us, held_by = first.began_us, first.id
    return max(before_us, state.orphan_cutoff_us), held_by
