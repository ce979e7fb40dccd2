"""Those who change an ordered table. Each looks, plans on what it saw, and commits when the schedule lets it."""

from functools import partial
from itertools import combinations

from ..engine import Steps
from .state import Job, Row, State, close_job, join, merged, open_job, replace, split
from .store import Store


def write(store: Store, name: str, batches: tuple[tuple[Row, ...], ...]) -> Steps[None]:
    """Write a file a batch: offered once, committed when it gets there."""
    for turn, rows in enumerate(batches):
        view: State = yield (store.look,)
        yield store.add, f"{name}-{turn}", rows, view.number


def compact(store: Store, name: str, jobs: int) -> Steps[None]:
    """Open a job over two or more files of a leaf, as they come, and commit its output."""
    for turn in range(jobs):
        view: State = yield (store.look,)
        leaves = [leaf for leaf in view.leaves if len(leaf.files) > 1]
        if not leaves:
            continue
        chosen: int = yield store.choose, len(leaves)
        leaf = leaves[chosen]
        subsets = [leaf.files, *combinations(leaf.files, 2)] if len(leaf.files) > 2 else [leaf.files]
        chosen = yield store.choose, len(subsets)
        inputs = tuple(subsets[chosen])
        job = Job(f"{name}-{turn}", leaf.min, leaf.max, inputs)
        if (yield store.commit, "open", partial(open_job, job=job, rules=store.rules)):
            continue
        view = yield (store.look,)
        opened = next((other for other in view.jobs if other.id == job.id), None)
        if opened is None:
            continue
        output = merged(opened, f"o-{job.id}", store.rules)
        change = partial(replace, job_id=job.id, output=output, rules=store.rules)
        if (yield store.commit_output, change, output):
            yield store.commit, "close", partial(close_job, job_id=job.id)


def close(store: Store) -> Steps[None]:
    """Close a job as past its deadline."""
    view: State = yield (store.look,)
    if view.jobs:
        yield store.commit, "close", partial(close_job, job_id=view.jobs[0].id)


def cut(store: Store, at: int) -> Steps[None]:
    """Split the leaf around a key."""
    yield store.commit, "split", partial(split, at=at)


def unite(store: Store, looks: int) -> Steps[None]:
    """Join two leaves, once there are two that may."""
    for _ in range(looks):
        view: State = yield (store.look,)
        boundaries = [leaf.min for leaf in view.leaves if leaf.min]
        if boundaries:
            chosen: int = yield store.choose, len(boundaries)
            if not (yield store.commit, "join", partial(join, at=boundaries[chosen], rules=store.rules)):
                return


def erase(store: Store, lower: int, upper: int, fence: int) -> Steps[None]:
    """Remove a key range."""
    yield store.remove, lower, upper, fence
