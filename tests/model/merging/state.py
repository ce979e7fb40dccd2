"""The state of a table that merges rows, and its transactions: each returns the next state, or why it is refused.

The files of a partition are a list in order of arrival. A file has a sequence span: its own number if it was added;
from the least to the greatest of its inputs if a job made it.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple

from .rows import KEYS, Filter, Kind, Mode, Row, merged
from .rules import Rules


class File(NamedTuple):
    """A sorted file, with at most one row per key."""

    name: str
    low: int
    high: int
    rows: tuple[Row, ...]


class Partition(NamedTuple):
    """A current key range and the files it refers to, in order of arrival."""

    min: int
    max: int
    files: tuple[File, ...]


class Job(NamedTuple):
    """An open job. `complete`: no file is older than its inputs, so deletes have nothing left to hide."""

    id: str
    min: int
    max: int
    inputs: tuple[File, ...]
    opened: int = 0
    complete: bool = False


class Fence(NamedTuple):
    """A range that was removed permanently at a version."""

    min: int
    max: int
    version: int


class State(NamedTuple):
    """The table at one version."""

    version: int
    partitions: tuple[Partition, ...] = (Partition(0, KEYS, ()),)
    jobs: tuple[Job, ...] = ()
    fences: tuple[Fence, ...] = ()
    mode: Mode = "latest"
    mode_version: int = 0
    filter: Filter = Filter()

    def next(self, **changes: object) -> "State":
        return self._replace(version=self.version + 1, **changes)  # type: ignore[arg-type]


def within(file: File, lower: int, upper: int) -> tuple[Row, ...]:
    """Return the file's rows whose key is in `[lower, upper)`."""
    return tuple([row for row in file.rows if lower <= row.key < upper])


def stored(partition: Partition) -> list[Row]:
    """Return the rows of a partition in order of arrival."""
    return [row for file in partition.files for row in within(file, partition.min, partition.max)]


def visible(state: State, rules: Rules) -> dict[int, Row]:
    """Return the rows that a reader sees: those of each partition's own files, merged and then filtered."""
    seen = {}
    for partition in state.partitions:
        for key, row in merged(stored(partition), state.mode, rules).items():
            if row.kind is not Kind.DELETE and state.filter.shows(row, state.mode, rules):
                seen[key] = row._replace(kind=Kind.WHOLE)
    return seen


def outputs(job: Job, state: State, rules: Rules, cut: int = 0, clock: int = 0) -> tuple[File, ...]:
    """Return the files that a job makes of its inputs: one, or two that meet at `cut`; none if no row is left."""
    filtered = state.filter._replace(cut=clock) if rules.cut_of_job == "of a clock" else state.filter
    # Only of the partitions that have the file: it may have more rows, which were removed.
    held = [(p, file) for file in job.inputs for p in state.partitions if file in p.files]
    rows = merged(
        chain.from_iterable(within(file, max(job.min, p.min), min(job.max, p.max)) for p, file in held),
        state.mode,
        rules,
    )
    kept = [row for _, row in sorted(rows.items()) if filtered.shows(row, state.mode, rules)]
    if rules.deletes == "dropped" or (job.complete and (state.mode != "by sort key" or rules.sorted_deletes != "kept")):
        kept = [row for row in kept if row.kind is not Kind.DELETE]
    if job.complete or rules.partial == "becomes whole":
        kept = [row._replace(kind=Kind.WHOLE) if row.kind is Kind.PARTIAL else row for row in kept]
    low, high = min(file.low for file in job.inputs), max(file.high for file in job.inputs)
    parts = ([row for row in kept if row.key < cut], [row for row in kept if row.key >= cut])
    return tuple(File(f"o-{job.id}-{part}", low, high, tuple(of)) for part, of in enumerate(parts) if of)


# -- adding -----------------------------------------------------------------------------------------------------


def _under_fence(state: State, lower: int, upper: int, base: int) -> bool:
    return any(fence.min < upper and lower < fence.max and base < fence.version for fence in state.fences)


def add(state: State, name: str, rows: tuple[Row, ...], base: int, rules: Rules) -> State | str:
    """Add a file as the latest. Refused if it reaches a range that was removed permanently since it was proposed, or if
    its rows were merged by another mode.
    """
    validated = base if rules.fence_base == "of the first proposal" else state.version
    if rules.fence_adds == "refused" and any(_under_fence(state, row.key, row.key + 1, validated) for row in rows):
        return "under a fence"
    if rules.mode_adds == "refused" and base < state.mode_version:
        return "of another mode"
    if not fit(rows, state.mode) and not (state.mode == "by sort key" and rules.sorted_partial == "accepted"):
        return "rows that the mode does not take"
    if rules.sequence == "of the commit":
        file = File(name, state.version + 1, state.version + 1, rows)
        return state.next(partitions=tuple(_gain(partition, (file,)) for partition in state.partitions))
    file = File(name, base, base, rows)
    places = [sum(other.high <= base for other in partition.files) for partition in state.partitions]
    gained = [_gain(partition, (file,), place) for partition, place in zip(state.partitions, places, strict=True)]
    return state.next(partitions=tuple(gained))


def fit(rows: Iterable[Row], mode: Mode) -> bool:
    """Return whether a mode accepts rows of these kinds."""
    takes = {"latest": (Kind.WHOLE, Kind.PARTIAL, Kind.DELETE), "by sort key": (Kind.WHOLE, Kind.DELETE)}
    return all(row.kind in takes.get(mode, (Kind.WHOLE,)) for row in rows)


def _gain(partition: Partition, files: Iterable[File], place: int | None = None) -> Partition:
    gained = [file for file in files if within(file, partition.min, partition.max)]
    if not gained:
        return partition
    held = partition.files
    place = len(held) if place is None else place
    return partition._replace(files=(*held[:place], *gained, *held[place:]))


# -- jobs -------------------------------------------------------------------------------------------------------


def open_job(state: State, job: Job, rules: Rules) -> State | str:
    """Claim inputs over one current partition that has them all, or over several that have all of their rows."""
    inside = [partition for partition in state.partitions if job.min <= partition.min and partition.max <= job.max]
    if not inside or inside[0].min != job.min or inside[-1].max != job.max:
        return "no such partitions"
    for file in job.inputs:
        if len(inside) == 1 and file not in inside[0].files:
            return "an input is gone"
        if len(inside) > 1 and _missing(file, inside, len(job.inputs)):
            return "rows of an input are missing"
    if any(_overlaps(other, job.min, job.max) and set(job.inputs) & set(other.inputs) for other in state.jobs):
        return "an input is in another open job"
    if not all(_in_order(partition, job.inputs, rules) for partition in inside):
        return "other files between them"
    if (
        len(inside) > 1 < len(job.inputs)
        and rules.whole == "nothing between in any partition"
        and _between(inside, job.inputs)
    ):
        return "other files between them in another partition"
    if job.complete and not _is_oldest(inside, job.inputs, rules):
        return "older files"
    return state.next(jobs=(*state.jobs, job._replace(opened=state.version + 1)))


def _missing(file: File, inside: Sequence[Partition], inputs: int) -> bool:
    """Return whether some row of a file is in none of the partitions; for a single input, whether every row is."""
    held = [within(file, partition.min, partition.max) for partition in inside if file in partition.files]
    return sum(map(len, held)) != len(file.rows) if inputs > 1 else not held


def _in_order(partition: Partition, inputs: Sequence[File], rules: Rules) -> bool:
    """Return whether one file can take the place of the inputs."""
    if rules.inputs == "any":
        return True
    listed = sorted(partition.files, key=attrgetter("low", "high")) if "lowest" in rules.inputs else partition.files
    places = [place for place, file in enumerate(listed) if file in inputs]
    return not places or places[-1] - places[0] + 1 == len(places)


def _between(inside: Sequence[Partition], inputs: Sequence[File]) -> bool:
    """Return whether a partition with an input has another file that arrived between the first and the last of them."""
    first, last = min(file.high for file in inputs), max(file.high for file in inputs)
    return any(
        first <= file.high <= last
        for partition in inside
        if set(inputs) & set(partition.files)
        for file in partition.files
        if file not in inputs
    )


def _is_oldest(inside: Sequence[Partition], inputs: Sequence[File], rules: Rules) -> bool:
    """Return whether no partition with an input has a file before all of them."""
    if rules.complete == "least sequence":
        least = min(file.low for file in inputs)
        return all(file.low >= least for partition in inside for file in partition.files)
    return all(partition.files[0] in inputs for partition in inside if set(inputs) & set(partition.files))


def _overlaps(job: Job, lower: int, upper: int) -> bool:
    return job.min < upper and lower < job.max


def close_job(state: State, job_id: str) -> State | str:
    """Close a job without a commit."""
    jobs = tuple(job for job in state.jobs if job.id != job_id)
    return state.next(jobs=jobs) if jobs != state.jobs else "no such open job"


def replace(state: State, job_id: str, made: tuple[File, ...], rules: Rules) -> State | str:
    """Commit partition by partition over the current partitions inside the job's range: one with inputs loses them and
    gains the outputs in their place.
    """
    job = next((job for job in state.jobs if job.id == job_id), None)
    if job is None:
        return "no such open job"
    if rules.fence_jobs == "refused" and _under_fence(state, job.min, job.max, job.opened):
        return "under a fence"
    if rules.filter_jobs == "refused" and job.opened < state.filter.version:
        return "of another filter"
    partitions = []
    served = False
    for partition in state.partitions:
        if partition.min < job.min or job.max < partition.max:
            partitions.append(partition)
            continue
        left = tuple(file for file in partition.files if file not in job.inputs)
        held = left != partition.files
        served = served or held
        gains = {
            "partition by partition": held,
            "original partition": partition.min == job.min,
            "every partition in range": True,
        }
        place = None
        if held and rules.output == "in place of its inputs":
            last = max(place for place, file in enumerate(partition.files) if file in job.inputs)
            place = sum(file not in job.inputs for file in partition.files[:last])
        without = partition._replace(files=left)
        partitions.append(_gain(without, made, place) if gains[rules.replace] else without)
    if not served:
        return "no input is left"
    return state.next(partitions=tuple(partitions), jobs=tuple(other for other in state.jobs if other is not job))


# -- partitions -------------------------------------------------------------------------------------------------


def _cut(partitions: Iterable[Partition], at: int) -> tuple[Partition, ...]:
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
    """Join the two partitions that meet at a key: requires no open job in them, and no file of just one that reaches
    into the other.
    """
    lower = next((partition for partition in state.partitions if partition.max == at), None)
    upper = next((partition for partition in state.partitions if partition.min == at), None)
    if lower is None or upper is None:
        return "no such partition"
    if rules.join_jobs == "none open" and any(_overlaps(job, lower.min, upper.max) for job in state.jobs):
        return "a partition has an open job"
    if rules.join_files == "must not reach over":
        for one, other in ((lower, upper), (upper, lower)):
            if any(file not in other.files and within(file, other.min, other.max) for file in one.files):
                return "a file reaches over"
    both = Partition(lower.min, upper.max, tuple(joined(lower.files, upper.files, rules.join_order)))
    partitions = tuple(
        both if partition is lower else partition for partition in state.partitions if partition is not upper
    )
    return state.next(partitions=partitions)


def joined(lower: Sequence[File], upper: Sequence[File], order: str) -> list[File]:
    """Merge two lists of files into one that keeps the order of both."""
    files = [*lower, *(file for file in upper if file not in lower)]
    if order == "one list after the other":
        return files
    if order != "of the lists":
        by = ("low", "high", "name") if order == "by least sequence" else ("high", "low", "name")
        return sorted(files, key=attrgetter(*by))
    ordered: list[File] = []
    lists = [list(lower), list(upper)]
    while any(lists):
        # The first of a list goes next unless the other list has files before it. (In a wrong form both may have.)
        ready = [of[0] for of, other in (lists, lists[::-1]) if of and of[0] not in other[1:]]
        chosen = min(ready or [of[0] for of in lists if of], key=attrgetter("high", "low", "name"))
        ordered.append(chosen)
        lists = [[file for file in of if file is not chosen] for of in lists]
    return ordered


def remove(state: State, gone: Fence) -> State | str:
    """Drop every reference in a range, and set a fence if the removal is permanent (its version is 1, else 0)."""
    partitions = tuple(
        partition._replace(files=()) if gone.min <= partition.min and partition.max <= gone.max else partition
        for partition in _cut(_cut(state.partitions, gone.min), gone.max)
    )
    fences = (*state.fences, gone._replace(version=state.version + 1)) if gone.version else state.fences
    return state.next(partitions=partitions, fences=fences)


def restore(state: State, target: State, rules: Rules) -> State | str:
    """Replace the current partitions by those of an older version, region by region; a region of one partition with the
    same files is unchanged. Jobs over the others are closed.
    """
    if rules.mode_restore == "refused" and state.mode_version != target.mode_version:
        return "of another mode"
    edges = [*sorted({p.min for p in state.partitions} & {p.min for p in target.partitions}), KEYS]
    partitions: list[Partition] = []
    changed: list[tuple[int, int]] = []
    for lower, upper in pairwise(edges):
        present = [p for p in state.partitions if lower <= p.min < upper]
        past = [p for p in target.partitions if lower <= p.min < upper]
        if len(present) == len(past) == 1 and set(present[0].files) == set(past[0].files):
            partitions += present
        else:
            partitions += past
            changed.append((lower, upper))
    if not changed:
        return "nothing differs"
    jobs = state.jobs
    if rules.restore_jobs == "closed":
        jobs = tuple(job for job in jobs if not any(_overlaps(job, *keys) for keys in changed))
    return state.next(partitions=tuple(partitions), jobs=jobs)


# -- filters and modes ------------------------------------------------------------------------------------------


def set_filter(state: State, parity: int | None) -> State | str:
    """Show only keys of one parity."""
    if state.filter.parity == parity:
        return "nothing differs"
    return state.next(filter=state.filter._replace(parity=parity, version=state.version + 1))


def set_cut(state: State, cut: int, rules: Rules) -> State | str:
    """Hide rows whose age is below the cut."""
    if cut == state.filter.cut or (cut < state.filter.cut and rules.cut == "only rises"):
        return "not above the cut"
    return state.next(filter=state.filter._replace(cut=cut))


def set_mode(state: State, mode: Mode, rules: Rules) -> State | str:
    """Merge rows by another mode, if there are none and no job is open."""
    if rules.mode_rows == "none" and any(partition.files for partition in state.partitions):
        return "the table has rows"
    if rules.mode_rows == "none" and state.jobs:
        return "a job is open"
    return state.next(mode=mode, mode_version=state.version + 1)
