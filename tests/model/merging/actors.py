"""The actors that change a table. Each reads a state, plans on it, and commits when the schedule allows."""

from functools import partial
from itertools import combinations

from ..engine import Steps
from .rows import Mode, Row, merged
from .rules import Rules
from .state import File, Job, State, close_job, join, joined, open_job, outputs, replace, set_cut, split, within
from .store import Store


def write(store: Store, name: str, batches: tuple[tuple[Row, ...], ...]) -> Steps[None]:
    """Write a file per batch: its own rows are merged, proposed once, and committed when the schedule allows."""
    for turn, rows in enumerate(batches):
        snapshot: State = yield (store.look,)
        file = tuple(row for _, row in sorted(merged(rows, snapshot.mode, store.rules).items()))
        yield store.add, f"{name}-{turn}", rows, file, snapshot.version


def compact(store: Store, name: str, jobs: int, whole: bool) -> Steps[None]:
    """Open a job over files of a partition, or of two partitions, in order of arrival; commit its outputs."""
    for turn in range(jobs):
        snapshot: State = yield (store.look,)
        choices = _choices(snapshot, whole, store.rules)
        if not choices:
            continue
        lower, upper, files = choices[(yield store.choose, len(choices))]
        subsets = [files, *combinations(files, 2)] if len(files) > 2 else [files]
        inputs = tuple(subsets[(yield store.choose, len(subsets))])
        job = Job(f"{name}-{turn}", lower, upper, inputs)
        # The table decides whether it is complete: a planner proposes it if possible.
        complete = job._replace(complete=True)
        if (yield store.commit, "open", partial(open_job, job=complete, rules=store.rules)) and (
            yield store.commit, "open", partial(open_job, job=job, rules=store.rules)
        ):
            continue
        snapshot = yield (store.look,)
        opened = next((other for other in snapshot.jobs if other.id == job.id), None)
        if opened is None:
            continue
        at: int = yield store.choose, 2
        clock: int = (yield store.choose, 3) if store.rules.cut_of_job == "of a clock" else 0
        made = outputs(opened, snapshot, store.rules, at * (lower + upper) // 2, clock)
        change = partial(replace, job_id=job.id, made=made, rules=store.rules)
        if (yield store.commit_outputs, change, made):
            yield store.commit, "close", partial(close_job, job_id=job.id)


def _choices(state: State, whole: bool, rules: Rules) -> list[tuple[int, int, tuple[File, ...]]]:
    """Return ranges and files over which a job could be opened."""
    choices = [(p.min, p.max, p.files) for p in state.partitions if len(p.files) > 1]
    for lower, upper in zip(state.partitions, state.partitions[1:], strict=False) if whole else ():
        files = joined(lower.files, upper.files, rules.input_order)
        inside = tuple(file for file in files if within(file, lower.min, upper.max) == file.rows)
        if len(inside) > 1:
            choices.append((lower.min, upper.max, inside))
        # A single file may be rewritten whatever other files there are.
        choices += [(lower.min, upper.max, (file,)) for file in files]
    return choices


def close(store: Store) -> Steps[None]:
    """Close a job as past its deadline."""
    snapshot: State = yield (store.look,)
    if snapshot.jobs:
        yield store.commit, "close", partial(close_job, job_id=snapshot.jobs[0].id)


def cut(store: Store, at: int) -> Steps[None]:
    """Split the partition around a key."""
    yield store.commit, "split", partial(split, at=at)


def unite(store: Store, looks: int) -> Steps[None]:
    """Join two partitions, once two may be joined."""
    for _ in range(looks):
        snapshot: State = yield (store.look,)
        boundaries = [partition.min for partition in snapshot.partitions if partition.min]
        if boundaries:
            chosen: int = yield store.choose, len(boundaries)
            if not (yield store.commit, "join", partial(join, at=boundaries[chosen], rules=store.rules)):
                return


def erase(store: Store, lower: int, upper: int, fence: int) -> Steps[None]:
    """Remove a key range."""
    yield store.remove, lower, upper, fence


def go_back(store: Store) -> Steps[None]:
    """Record a version, and restore it."""
    target: State = yield (store.remember,)
    yield store.restore, target


def hide(store: Store, parities: tuple[int | None, ...]) -> Steps[None]:
    """Set filters, one after the other."""
    for parity in parities:
        yield store.filter, parity


def age(store: Store, cuts: tuple[int, ...]) -> Steps[None]:
    """Raise the cut, or try to lower it."""
    for at in cuts:
        yield store.commit, "cut", partial(set_cut, cut=at, rules=store.rules)


def change_mode(store: Store, mode: Mode, looks: int) -> Steps[None]:
    """Set another mode, once the table has no rows."""
    for _ in range(looks):
        yield (store.look,)
        if not (yield store.set_mode, mode):
            return
