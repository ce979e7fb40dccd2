"""The clients: what writers and maintenance ask of a table. Each plans on some view, commits, and minds the outcome.

A client whose outcome is unknown, or that lost every race, asks again as a restarted process would: the same request
key, but a new attempt with new files. Plans may be old by the time they are judged; no client looks twice.
"""

from dataclasses import dataclass, replace
from typing import assert_never

from .calls import Choose, Commit, Look, NotCommitted, Outcome, Rejected, Steps, Unknown
from .rows import KEYS, DataFile, within
from .state import (
    AddFile,
    CloseJob,
    Effect,
    Job,
    Join,
    Leaf,
    OpenJob,
    Remove,
    Replace,
    Split,
    TableState,
    Transaction,
)

REPEATS = 3


@dataclass(frozen=True, slots=True)
class Writer:
    """Adds one file a batch, given as (batch number, rows). Two writers with one batch are a restarted stream."""

    process: str
    name: str
    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Compactor:
    """Opens a job over some references of a leaf and runs it, or runs a job that another one opened.

    `turns` is how often its task lets others go first before it commits.
    """

    process: str
    name: str
    jobs: int
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Closer:
    """Closes open jobs as past their deadline; their tasks may still be running."""

    process: str
    name: str
    looks: int


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits some leaf, at any key or only at one of `at`."""

    process: str
    name: str
    splits: int
    at: tuple[int, ...] = tuple(range(1, KEYS))


@dataclass(frozen=True, slots=True)
class Joiner:
    """Joins two leaves that meet, once it sees any in as many looks as it has."""

    process: str
    name: str
    looks: int = 1


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes a key range."""

    process: str
    name: str
    min: int
    max: int


Client = Writer | Compactor | Closer | Splitter | Joiner | Remover


def run(client: Client) -> Steps[None]:
    """The client's whole life, as steps."""
    match client:
        case Writer():
            return _write(client)
        case Compactor():
            return _compact(client)
        case Closer():
            return _close(client)
        case Splitter():
            return _split(client)
        case Joiner():
            return _join(client)
        case Remover():
            return _remove(client)
        case _:
            assert_never(client)


def _insist(key: str, name: str, effect: Effect, view: TableState) -> Steps[Outcome]:
    """Commit, asking again with the same key while the outcome is open. Each attempt names files of its own."""
    outcome: Outcome = Unknown()
    for attempt in range(REPEATS):
        label = f"{name}.{attempt}"
        outcome = yield Commit(Transaction(key, f"{key}/{label}", _attempted(effect, label)), view)
        if not isinstance(outcome, Unknown | NotCommitted):
            break
    return outcome


def _attempted(effect: Effect, label: str) -> Effect:
    if isinstance(effect, AddFile):
        return AddFile(replace(effect.file, name=f"{effect.file.name}.{label}"))
    if isinstance(effect, Replace) and effect.output is not None:
        return Replace(effect.job, replace(effect.output, name=f"{effect.output.name}.{label}"))
    return effect


def _write(client: Writer) -> Steps[None]:
    for batch, rows in client.batches:
        view: TableState = yield Look()
        yield from _insist(f"batch{batch}", client.name, AddFile(DataFile(f"b{batch}", rows)), view)


def _compact(client: Compactor) -> Steps[None]:
    for turn in range(client.jobs):
        view: TableState = yield Look()
        job = yield from _choose_open_job(view)
        if job is None:
            job = yield from _open_job(client, turn, view)
        if job is None:
            continue
        for _ in range(client.turns):
            yield Choose(1)
        outcome = yield from _insist(f"replace {job.id}", client.name, Replace(job, _merged(job)), view)
        if isinstance(outcome, Rejected):
            yield from _insist(f"close {job.id}", client.name, CloseJob(job.id), view)


def _choose_open_job(view: TableState) -> Steps[Job | None]:
    """Perhaps run a job that is open already: a task is often started twice."""
    if not view.jobs:
        return None
    chosen: int = yield Choose(len(view.jobs) + 1)
    return view.jobs[chosen] if chosen < len(view.jobs) else None


def _open_job(client: Compactor, turn: int, view: TableState) -> Steps[Job | None]:
    leaves = [leaf for leaf in view.leaves if leaf.references]
    if not leaves:
        return None
    chosen: int = yield Choose(len(leaves))
    leaf: Leaf = leaves[chosen]
    windows = sorted({leaf.references, leaf.references[:2], leaf.references[-2:]}, key=repr)
    chosen = yield Choose(len(windows))
    job = Job(f"{client.name}-{turn}", leaf.min, leaf.max, windows[chosen])
    outcome = yield from _insist(f"open {job.id}", client.name, OpenJob(job), view)
    return None if isinstance(outcome, Rejected) else job


def _merged(job: Job) -> DataFile | None:
    """The job's output: all rows of its inputs inside its range. An empty output is no file."""
    rows = 0
    for file in job.inputs:
        rows |= within(file.rows, job.min, job.max)
    return DataFile(f"o-{job.id}", rows) if rows else None


def _close(client: Closer) -> Steps[None]:
    for _ in range(client.looks):
        view: TableState = yield Look()
        if view.jobs:
            chosen: int = yield Choose(len(view.jobs))
            job = view.jobs[chosen]
            yield from _insist(f"close {job.id} {client.name}", client.name, CloseJob(job.id), view)


def _split(client: Splitter) -> Steps[None]:
    for turn in range(client.splits):
        view: TableState = yield Look()
        cuts = [(leaf, at) for leaf in view.leaves for at in client.at if leaf.min < at < leaf.max]
        if not cuts:
            return
        chosen: int = yield Choose(len(cuts))
        leaf, at = cuts[chosen]
        effect = Split(leaf.min, leaf.max, at, seen=leaf.references)
        yield from _insist(f"split {client.name}-{turn}", client.name, effect, view)


def _join(client: Joiner) -> Steps[None]:
    for _ in range(client.looks):
        view: TableState = yield Look()
        boundaries = [leaf.min for leaf in view.leaves if leaf.min > 0]
        if boundaries:
            chosen: int = yield Choose(len(boundaries))
            yield from _insist(f"join {client.name}", client.name, Join(boundaries[chosen]), view)
            return


def _remove(client: Remover) -> Steps[None]:
    assert 0 <= client.min < client.max <= KEYS, "a removal needs a range"
    view: TableState = yield Look()
    yield from _insist(f"remove {client.name}", client.name, Remove(client.min, client.max), view)
