"""The state of an ordered table, and its transactions: each gives the next state, or the reason why it is refused.

Keys are integers in `[0, KEYS)`. A file has a span of sequence: its own version when it was added, from the least to
the greatest of its inputs when it was merged.
"""

from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from .rules import Rules

KEYS = 4


class Row(NamedTuple):
    """A put of a key, or its deletion. The label is the write's."""

    key: int
    label: str
    deletes: bool = False


class File(NamedTuple):
    """A sorted file, at most one row a key."""

    name: str
    low: int
    high: int
    rows: tuple[Row, ...]


class Partition(NamedTuple):
    """A key range in force and the files it refers to."""

    min: int
    max: int
    files: tuple[File, ...]


class Job(NamedTuple):
    """An open job. `bottom`: no file below its inputs, so that deletions among them have nothing left to hide."""

    id: str
    min: int
    max: int
    inputs: tuple[File, ...]
    opened: int = 0
    bottom: bool = False


class Fence(NamedTuple):
    """A range that was removed for good at a version."""

    min: int
    max: int
    version: int


class State(NamedTuple):
    """The table at one version."""

    version: int
    partitions: tuple[Partition, ...]
    jobs: tuple[Job, ...] = ()
    fences: tuple[Fence, ...] = ()

    def next(self, **changes: object) -> "State":
        return self._replace(version=self.version + 1, **changes)  # type: ignore[arg-type]


def within(file: File, lower: int, upper: int) -> tuple[Row, ...]:
    """The file's rows whose key lies in `[lower, upper)`."""
    return tuple([row for row in file.rows if lower <= row.key < upper])


def latest(files: Iterable[File], lower: int, upper: int) -> dict[int, Row]:
    """What counts for each key of a range: the row of the file with the greatest span."""
    rows: dict[int, Row] = {}
    for file in sorted(files, key=attrgetter("high", "low")):
        for row in file.rows:
            if lower <= row.key < upper:
                rows[row.key] = row
    return rows


def visible(state: State) -> dict[int, str]:
    """What a reader sees: each partition by its own files."""
    return {
        key: row.label
        for partition in state.partitions
        for key, row in latest(partition.files, partition.min, partition.max).items()
        if not row.deletes
    }


def merged(job: Job, name: str, rules: Rules) -> File | None:
    """The job's output; None if no row is left."""
    drops = job.bottom or rules.markers == "dropped"
    rows = latest(job.inputs, job.min, job.max)
    retained = tuple(row for _, row in sorted(rows.items()) if not (row.deletes and drops))
    low, high = min(file.low for file in job.inputs), max(file.high for file in job.inputs)
    return File(name, low, high, retained) if retained else None


def _under_fence(state: State, lower: int, upper: int, base: int) -> bool:
    return any(fence.min < upper and lower < fence.max and base < fence.version for fence in state.fences)


def add(state: State, name: str, rows: tuple[Row, ...], base: int, rules: Rules) -> State | str:
    """Add a file; it is the latest. Refused if it reaches a range that was removed for good since it was proposed."""
    validated = base if rules.fence_base == "of the first proposal" else state.version
    if rules.fence_adds == "refused" and any(_under_fence(state, row.key, row.key + 1, validated) for row in rows):
        return "under a fence"
    sequence = state.version + 1 if rules.sequence == "of the commit" else base
    file = File(name, sequence, sequence, rows)
    partitions = tuple(_gain(partition, file) for partition in state.partitions)
    return state.next(partitions=partitions)


def _gain(partition: Partition, file: File | None) -> Partition:
    if file is None or not within(file, partition.min, partition.max):
        return partition
    return partition._replace(files=(*partition.files, file))


def open_job(state: State, job: Job, rules: Rules) -> State | str:
    """Claim inputs in exactly one partition in force: whole, free, and with no other file of the partition in their
    span."""
    partition = next(
        (partition for partition in state.partitions if (partition.min, partition.max) == (job.min, job.max)), None
    )
    if partition is None:
        return "no such partition"
    if any(file not in partition.files for file in job.inputs):
        return "an input is gone"
    if any(file in other.inputs and _overlaps(other, partition) for other in state.jobs for file in job.inputs):
        return "an input is in another open job"
    if not _in_order(partition, job.inputs, rules):
        return "another file is in their span"
    least = min(file.low for file in job.inputs)
    bottom = all(file.low >= least for file in partition.files)
    return state.next(jobs=(*state.jobs, job._replace(opened=state.version + 1, bottom=bottom)))


def _in_order(partition: Partition, inputs: tuple[File, ...], rules: Rules) -> bool:
    """Whether one file can stand where the inputs stand."""
    if rules.inputs == "any":
        return True
    others = [file for file in partition.files if file not in inputs]
    if rules.inputs == "neighbours by lowest":
        places = [place for place, file in enumerate(sorted(partition.files, key=lambda f: f[1:3])) if file in inputs]
        return places[-1] - places[0] + 1 == len(places)
    low, high = min(file.low for file in inputs), max(file.high for file in inputs)
    return all(file.high < low or high < file.low for file in others)


def _overlaps(job: Job, partition: Partition) -> bool:
    return job.min < partition.max and partition.min < job.max


def close_job(state: State, job_id: str) -> State | str:
    """Give a job up."""
    jobs = tuple(job for job in state.jobs if job.id != job_id)
    return state.next(jobs=jobs) if jobs != state.jobs else "no such open job"


def replace(state: State, job_id: str, output: File | None, rules: Rules) -> State | str:
    """Partition by partition over what is now inside the job's range: who holds an input loses it and gains the
    output."""
    job = next((job for job in state.jobs if job.id == job_id), None)
    if job is None:
        return "no such open job"
    if rules.fence_jobs == "refused" and _under_fence(state, job.min, job.max, job.opened):
        return "under a fence"
    partitions = []
    served = False
    for partition in state.partitions:
        if partition.min < job.min or job.max < partition.max:
            partitions.append(partition)
            continue
        left = partition._replace(files=tuple(file for file in partition.files if file not in job.inputs))
        held = left != partition
        served = served or held
        gains = {
            "partition by partition": held,
            "original partition": partition.min == job.min,
            "every partition in range": True,
        }
        partitions.append(_gain(left, output) if gains[rules.replace] else left)
    if not served:
        return "no input is left"
    return state.next(partitions=tuple(partitions), jobs=tuple(other for other in state.jobs if other is not job))


def _cut(partitions: tuple[Partition, ...], at: int) -> tuple[Partition, ...]:
    result = []
    for partition in partitions:
        edges = (
            (partition.min, at, partition.max) if partition.min < at < partition.max else (partition.min, partition.max)
        )
        for lower, upper in pairwise(edges):
            result.append(
                Partition(lower, upper, tuple(file for file in partition.files if within(file, lower, upper)))
            )
    return tuple(result)


def split(state: State, at: int) -> State | str:
    """Cut the partition around a key; all of its files move."""
    partitions = _cut(state.partitions, at)
    return state.next(partitions=partitions) if partitions != state.partitions else "no such partition"


def join(state: State, at: int, rules: Rules) -> State | str:
    """Make one partition of the two that meet at a key: no open job in them, no file of just one reaches into the
    other."""
    lower = next((partition for partition in state.partitions if partition.max == at), None)
    upper = next((partition for partition in state.partitions if partition.min == at), None)
    if lower is None or upper is None:
        return "no such partition"
    both = Partition(lower.min, upper.max, lower.files + tuple(file for file in upper.files if file not in lower.files))
    if rules.join_jobs == "none open" and any(_overlaps(job, both) for job in state.jobs):
        return "a partition has an open job"
    if rules.join_files == "must not reach over":
        for one, other in ((lower, upper), (upper, lower)):
            if any(file not in other.files and within(file, other.min, other.max) for file in one.files):
                return "a file reaches over"
    partitions = tuple(
        both if partition is lower else partition for partition in state.partitions if partition is not upper
    )
    return state.next(partitions=partitions)


def remove(state: State, gone: Fence) -> State | str:
    """Drop every reference in a range, and put up a fence if the removal is for good (its version is 1, else 0)."""
    partitions = tuple(
        partition._replace(files=()) if gone.min <= partition.min and partition.max <= gone.max else partition
        for partition in _cut(_cut(state.partitions, gone.min), gone.max)
    )
    fences = (*state.fences, gone._replace(version=state.version + 1)) if gone.version else state.fences
    return state.next(partitions=partitions, fences=fences)
