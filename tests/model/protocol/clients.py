"""The clients: writers and maintenance. Each plans on some view, commits, and acts on the outcome.

A client whose outcome is unknown, or that lost every race, retries like a restarted process: with the same request key,
but a new attempt with new files. Plans may be old when they are validated; no client reads a second time.
"""

from typing import NamedTuple, assert_never

from ..engine import Steps
from .rows import KEYS, DataFile, within
from .state import (
    AddFile,
    CloseJob,
    Effect,
    Job,
    Join,
    OpenJob,
    Remove,
    Replace,
    Split,
    TableState,
    Transaction,
)
from .store import Desk, Outcome

REPEATS = 3


class Writer(NamedTuple):
    """Adds one file per batch, given as (batch number, rows). Two writers with the same batch are a restarted
    stream.
    """

    process: str
    name: str
    batches: tuple[tuple[int, int], ...]


class Compactor(NamedTuple):
    """Opens a job over some references of a partition and runs it, or runs a job that another one opened.

    `turns` is how often its task lets others run before it commits. A `wide` one opens jobs over all partitions.
    """

    process: str
    name: str
    jobs: int
    backoff: int = 0
    wide: bool = False


class Closer(NamedTuple):
    """Closes open jobs as past their deadline; their tasks may still be running."""

    process: str
    name: str
    looks: int


class Splitter(NamedTuple):
    """Splits some partition, at any key or only at one of `at`."""

    process: str
    name: str
    splits: int
    at: tuple[int, ...] = tuple(range(1, KEYS))


class Joiner(NamedTuple):
    """Joins two adjacent partitions, once it finds any within its number of looks."""

    process: str
    name: str
    looks: int = 1


class Remover(NamedTuple):
    """Removes a key range."""

    process: str
    name: str
    min: int
    max: int


Client = Writer | Compactor | Closer | Splitter | Joiner | Remover


def run(desk: Desk, client: Client) -> Steps[None]:
    """Return the client's steps. A turn keeps nothing of earlier ones but their number."""
    match client:
        case Writer():
            return _write(desk, client)
        case Compactor():
            return _compact(desk, client)
        case Closer():
            return _close(desk, client)
        case Splitter():
            return _split(desk, client)
        case Joiner():
            return _join(desk, client)
        case Remover():
            return _remove(desk, client)
        case _:
            assert_never(client)


def _look(desk: Desk, turn: int) -> Steps[TableState]:
    """Begin a turn."""
    desk.store.begin(turn)
    snapshot: TableState = yield desk.store.look, desk
    return snapshot


def _choose(desk: Desk, options: int) -> Steps[int]:
    chosen: int = yield desk.store.choose, options
    return chosen


def _insist(desk: Desk, name: str, snapshot: TableState, key: str, effect: Effect) -> Steps[Outcome]:
    """Commit, retrying with the same key while the outcome is open. Each attempt names its own files."""
    outcome = Outcome("unknown")
    for attempt in range(REPEATS):
        label = f"{name}.{attempt}"
        proposal = desk.store.proposal(desk, Transaction(key, f"{key}/{label}", _attempted(effect, label)), snapshot)
        outcome = yield desk.store.learn_outcome, proposal
        if outcome.end in ("committed", "rejected"):
            break
    return outcome


def _attempted(effect: Effect, label: str) -> Effect:
    if isinstance(effect, AddFile):
        return AddFile(effect.file._replace(name=f"{effect.file.name}.{label}"))
    if isinstance(effect, Replace) and effect.output is not None:
        return Replace(effect.job, effect.output._replace(name=f"{effect.output.name}.{label}"))
    return effect


def _write(desk: Desk, client: Writer) -> Steps[None]:
    for turn, (batch, rows) in enumerate(client.batches):
        snapshot = yield from _look(desk, turn)
        yield from _insist(desk, client.name, snapshot, f"batch{batch}", AddFile(DataFile(f"b{batch}", rows)))


def _compact(desk: Desk, client: Compactor) -> Steps[None]:
    for turn in range(client.jobs):
        snapshot = yield from _look(desk, turn)
        job = yield from _choose_open_job(desk, snapshot)
        if job is None:
            job = yield from _open_job(desk, client, turn, snapshot)
        if job is None:
            continue
        for _ in range(client.backoff):
            yield from _choose(desk, 1)
        outcome = yield from _insist(desk, client.name, snapshot, f"replace {job.id}", Replace(job, _merged(job)))
        if outcome.end == "rejected":
            yield from _insist(desk, client.name, snapshot, f"close {job.id}", CloseJob(job.id))


def _choose_open_job(desk: Desk, snapshot: TableState) -> Steps[Job | None]:
    """Return an open job to run, or None: a task is often started twice."""
    if not snapshot.jobs:
        return None
    chosen = yield from _choose(desk, len(snapshot.jobs) + 1)
    return snapshot.jobs[chosen] if chosen < len(snapshot.jobs) else None


def _open_job(desk: Desk, client: Compactor, turn: int, snapshot: TableState) -> Steps[Job | None]:
    partitions = [partition for partition in snapshot.partitions if partition.references]
    if not partitions:
        return None
    if client.wide:
        files = tuple(dict.fromkeys(file for partition in partitions for file in partition.references))
        chosen = files[: 1 + (yield from _choose(desk, len(files)))]
        return (yield from _opened(desk, client, snapshot, Job(f"{client.name}-{turn}", 0, KEYS, chosen)))
    partition = partitions[(yield from _choose(desk, len(partitions)))]
    windows = tuple(dict.fromkeys((partition.references, partition.references[:2], partition.references[-2:])))
    job = Job(f"{client.name}-{turn}", partition.min, partition.max, windows[(yield from _choose(desk, len(windows)))])
    return (yield from _opened(desk, client, snapshot, job))


def _opened(desk: Desk, client: Compactor, snapshot: TableState, job: Job) -> Steps[Job | None]:
    outcome = yield from _insist(desk, client.name, snapshot, f"open {job.id}", OpenJob(job))
    return None if outcome.end == "rejected" else job


def _merged(job: Job) -> DataFile | None:
    """Return the job's output: all rows of its inputs inside its range. An empty output is no file."""
    rows = 0
    for file in job.inputs:
        rows |= within(file.rows, job.min, job.max)
    return DataFile(f"o-{job.id}", rows) if rows else None


def _close(desk: Desk, client: Closer) -> Steps[None]:
    for turn in range(client.looks):
        snapshot = yield from _look(desk, turn)
        if snapshot.jobs:
            job = snapshot.jobs[(yield from _choose(desk, len(snapshot.jobs)))]
            yield from _insist(desk, client.name, snapshot, f"close {job.id} {client.name}", CloseJob(job.id))


def _split(desk: Desk, client: Splitter) -> Steps[None]:
    for turn in range(client.splits):
        snapshot = yield from _look(desk, turn)
        cuts = [
            (partition, at)
            for partition in snapshot.partitions
            for at in client.at
            if partition.min < at < partition.max
        ]
        if not cuts:
            return
        partition, at = cuts[(yield from _choose(desk, len(cuts)))]
        effect = Split(partition.min, partition.max, at, seen=partition.references)
        yield from _insist(desk, client.name, snapshot, f"split {client.name}-{turn}", effect)


def _join(desk: Desk, client: Joiner) -> Steps[None]:
    for turn in range(client.looks):
        snapshot = yield from _look(desk, turn)
        boundaries = [partition.min for partition in snapshot.partitions if partition.min > 0]
        if boundaries:
            at = boundaries[(yield from _choose(desk, len(boundaries)))]
            yield from _insist(desk, client.name, snapshot, f"join {client.name}", Join(at))
            return


def _remove(desk: Desk, client: Remover) -> Steps[None]:
    assert 0 <= client.min < client.max <= KEYS, "a removal needs a range"
    snapshot = yield from _look(desk, 0)
    yield from _insist(desk, client.name, snapshot, f"remove {client.name}", Remove(client.min, client.max))
