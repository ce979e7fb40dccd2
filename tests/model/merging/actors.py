"""Those who change an ordered table. Each looks, plans on what it saw, and commits when the schedule lets it."""

from functools import partial
from itertools import combinations

from ..engine import Steps
from .state import Job, Row, State, close_job, join, merged, open_job, replace, split
from .store import Store


def write(store: Store, name: str, batches: tuple[tuple[Row, ...], ...]) -> Steps[None]:
    """Write a file a batch: proposed once, committed when it gets there."""
    for turn, rows in enumerate(batches):
        snapshot: State = yield (store.look,)
        yield store.add, f"{name}-{turn}", rows, snapshot.version


def compact(store: Store, name: str, jobs: int) -> Steps[None]:
    """Open a job over two or more files of a partition, as they come, and commit its output."""
    for turn in range(jobs):
        snapshot: State = yield (store.look,)
        partitions = [partition for partition in snapshot.partitions if len(partition.files) > 1]
        if not partitions:
            continue
        chosen: int = yield store.choose, len(partitions)
        partition = partitions[chosen]
        subsets = (
            [partition.files, *combinations(partition.files, 2)] if len(partition.files) > 2 else [partition.files]
        )
        chosen = yield store.choose, len(subsets)
        inputs = tuple(subsets[chosen])
        job = Job(f"{name}-{turn}", partition.min, partition.max, inputs)
        if (yield store.commit, "open", partial(open_job, job=job, rules=store.rules)):
            continue
        snapshot = yield (store.look,)
        opened = next((other for other in snapshot.jobs if other.id == job.id), None)
        if opened is None:
            continue
        output = merged(opened, f"o-{job.id}", store.rules)
        change = partial(replace, job_id=job.id, output=output, rules=store.rules)
        if (yield store.commit_output, change, output):
            yield store.commit, "close", partial(close_job, job_id=job.id)


def close(store: Store) -> Steps[None]:
    """Close a job as past its deadline."""
    snapshot: State = yield (store.look,)
    if snapshot.jobs:
        yield store.commit, "close", partial(close_job, job_id=snapshot.jobs[0].id)


def cut(store: Store, at: int) -> Steps[None]:
    """Split the partition around a key."""
    yield store.commit, "split", partial(split, at=at)


def unite(store: Store, looks: int) -> Steps[None]:
    """Join two partitions, once there are two that may."""
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
