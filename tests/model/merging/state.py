"""The state of an ordered table, and its transactions: each gives the next state, or the reason why it is refused.

Keys are integers in `[0, KEYS)`. A file has a span of sequence: its own number when it was added, from the least to the
greatest of its inputs when it was merged.
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


class Leaf(NamedTuple):
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
    """A range that was removed for good at a number."""

    min: int
    max: int
    number: int


class State(NamedTuple):
    """The table at one number."""

    number: int
    leaves: tuple[Leaf, ...]
    jobs: tuple[Job, ...] = ()
    fences: tuple[Fence, ...] = ()

    def next(self, **changes: object) -> "State":
        return self._replace(number=self.number + 1, **changes)  # type: ignore[arg-type]


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
    """What a reader sees: each leaf by its own files."""
    return {
        key: row.label
        for leaf in state.leaves
        for key, row in latest(leaf.files, leaf.min, leaf.max).items()
        if not row.deletes
    }


def merged(job: Job, name: str, rules: Rules) -> File | None:
    """The job's output; None if no row is left."""
    drops = job.bottom or rules.markers == "dropped"
    rows = latest(job.inputs, job.min, job.max)
    kept = tuple(row for _, row in sorted(rows.items()) if not (row.deletes and drops))
    low, high = min(file.low for file in job.inputs), max(file.high for file in job.inputs)
    return File(name, low, high, kept) if kept else None


def _under_fence(state: State, lower: int, upper: int, base: int) -> bool:
    return any(fence.min < upper and lower < fence.max and base < fence.number for fence in state.fences)


def add(state: State, name: str, rows: tuple[Row, ...], base: int, rules: Rules) -> State | str:
    """Add a file; it is the latest. Refused if it reaches a range that was removed for good since it was offered."""
    judged = base if rules.fence_base == "of the first offer" else state.number
    if rules.fence_adds == "refused" and any(_under_fence(state, row.key, row.key + 1, judged) for row in rows):
        return "under a fence"
    sequence = state.number + 1 if rules.sequence == "of the commit" else base
    file = File(name, sequence, sequence, rows)
    leaves = tuple(_gain(leaf, file) for leaf in state.leaves)
    return state.next(leaves=leaves)


def _gain(leaf: Leaf, file: File | None) -> Leaf:
    if file is None or not within(file, leaf.min, leaf.max):
        return leaf
    return leaf._replace(files=(*leaf.files, file))


def open_job(state: State, job: Job, rules: Rules) -> State | str:
    """Claim inputs in exactly one leaf in force: whole, free, and with no other file of the leaf in their span."""
    leaf = next((leaf for leaf in state.leaves if (leaf.min, leaf.max) == (job.min, job.max)), None)
    if leaf is None:
        return "no such leaf"
    if any(file not in leaf.files for file in job.inputs):
        return "an input is gone"
    if any(file in other.inputs and _overlaps(other, leaf) for other in state.jobs for file in job.inputs):
        return "an input is in another open job"
    if not _in_order(leaf, job.inputs, rules):
        return "another file is in their span"
    least = min(file.low for file in job.inputs)
    bottom = all(file.low >= least for file in leaf.files)
    return state.next(jobs=(*state.jobs, job._replace(opened=state.number + 1, bottom=bottom)))


def _in_order(leaf: Leaf, inputs: tuple[File, ...], rules: Rules) -> bool:
    """Whether one file can stand where the inputs stand."""
    if rules.inputs == "any":
        return True
    others = [file for file in leaf.files if file not in inputs]
    if rules.inputs == "neighbours by lowest":
        places = [place for place, file in enumerate(sorted(leaf.files, key=lambda f: f[1:3])) if file in inputs]
        return places[-1] - places[0] + 1 == len(places)
    low, high = min(file.low for file in inputs), max(file.high for file in inputs)
    return all(file.high < low or high < file.low for file in others)


def _overlaps(job: Job, leaf: Leaf) -> bool:
    return job.min < leaf.max and leaf.min < job.max


def close_job(state: State, job_id: str) -> State | str:
    """Give a job up."""
    jobs = tuple(job for job in state.jobs if job.id != job_id)
    return state.next(jobs=jobs) if jobs != state.jobs else "no such open job"


def replace(state: State, job_id: str, output: File | None, rules: Rules) -> State | str:
    """Leaf by leaf over what is now inside the job's range: who holds an input loses it and gains the output."""
    job = next((job for job in state.jobs if job.id == job_id), None)
    if job is None:
        return "no such open job"
    if rules.fence_jobs == "refused" and _under_fence(state, job.min, job.max, job.opened):
        return "under a fence"
    leaves = []
    served = False
    for leaf in state.leaves:
        if leaf.min < job.min or job.max < leaf.max:
            leaves.append(leaf)
            continue
        left = leaf._replace(files=tuple(file for file in leaf.files if file not in job.inputs))
        held = left != leaf
        served = served or held
        gains = {"leaf by leaf": held, "original leaf": leaf.min == job.min, "every leaf in range": True}
        leaves.append(_gain(left, output) if gains[rules.replace] else left)
    if not served:
        return "no input is left"
    return state.next(leaves=tuple(leaves), jobs=tuple(other for other in state.jobs if other is not job))


def _cut(leaves: tuple[Leaf, ...], at: int) -> tuple[Leaf, ...]:
    result = []
    for leaf in leaves:
        edges = (leaf.min, at, leaf.max) if leaf.min < at < leaf.max else (leaf.min, leaf.max)
        for lower, upper in pairwise(edges):
            result.append(Leaf(lower, upper, tuple(file for file in leaf.files if within(file, lower, upper))))
    return tuple(result)


def split(state: State, at: int) -> State | str:
    """Cut the leaf around a key; all of its files move."""
    leaves = _cut(state.leaves, at)
    return state.next(leaves=leaves) if leaves != state.leaves else "no such leaf"


def join(state: State, at: int, rules: Rules) -> State | str:
    """Make one leaf of the two that meet at a key: no open job in them, no file of just one reaches into the other."""
    lower = next((leaf for leaf in state.leaves if leaf.max == at), None)
    upper = next((leaf for leaf in state.leaves if leaf.min == at), None)
    if lower is None or upper is None:
        return "no such leaf"
    both = Leaf(lower.min, upper.max, lower.files + tuple(file for file in upper.files if file not in lower.files))
    if rules.join_jobs == "none open" and any(_overlaps(job, both) for job in state.jobs):
        return "a leaf has an open job"
    if rules.join_files == "must not reach over":
        for one, other in ((lower, upper), (upper, lower)):
            if any(file not in other.files and within(file, other.min, other.max) for file in one.files):
                return "a file reaches over"
    leaves = tuple(both if leaf is lower else leaf for leaf in state.leaves if leaf is not upper)
    return state.next(leaves=leaves)


def remove(state: State, gone: Fence) -> State | str:
    """Drop every reference in a range, and put up a fence if the removal is for good (its number is 1, else 0)."""
    leaves = tuple(
        leaf._replace(files=()) if gone.min <= leaf.min and leaf.max <= gone.max else leaf
        for leaf in _cut(_cut(state.leaves, gone.min), gone.max)
    )
    fences = (*state.fences, gone._replace(number=state.number + 1)) if gone.number else state.fences
    return state.next(leaves=leaves, fences=fences)
