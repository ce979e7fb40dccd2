"""The clients: what writers and maintenance ask of a table. Each plans on some view, commits, and minds the outcome.

A client whose outcome is unknown, or that lost every race, asks again as a restarted process would: the same request
key, but a new attempt with new files. Plans may be old by the time they are judged; no client looks twice.
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
    """Adds one file a batch, given as (batch number, rows). Two writers with one batch are a restarted stream."""

    process: str
    name: str
    batches: tuple[tuple[int, int], ...]


class Compactor(NamedTuple):
    """Opens a job over some references of a leaf and runs it, or runs a job that another one opened.

    `turns` is how often its task lets others go first before it commits. A `wide` one opens jobs over all leaves.
    """

    process: str
    name: str
    jobs: int
    turns: int = 0
    wide: bool = False


class Closer(NamedTuple):
    """Closes open jobs as past their deadline; their tasks may still be running."""

    process: str
    name: str
    looks: int


class Splitter(NamedTuple):
    """Splits some leaf, at any key or only at one of `at`."""

    process: str
    name: str
    splits: int
    at: tuple[int, ...] = tuple(range(1, KEYS))


class Joiner(NamedTuple):
    """Joins two leaves that meet, once it sees any in as many looks as it has."""

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
    """The client's whole life, as steps. In each turn it remembers nothing of those before but that they were."""
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
    view: TableState = yield desk.store.look, desk
    return view


def _choose(desk: Desk, options: int) -> Steps[int]:
    chosen: int = yield desk.store.choose, options
    return chosen


def _insist(desk: Desk, name: str, view: TableState, key: str, effect: Effect) -> Steps[Outcome]:
    """Commit, asking again with the same key while the outcome is open. Each attempt names files of its own."""
    outcome = Outcome("unknown")
    for attempt in range(REPEATS):
        label = f"{name}.{attempt}"
        offer = desk.store.offer(desk, Transaction(key, f"{key}/{label}", _attempted(effect, label)), view)
        outcome = yield desk.store.hear, offer
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
        view = yield from _look(desk, turn)
        yield from _insist(desk, client.name, view, f"batch{batch}", AddFile(DataFile(f"b{batch}", rows)))


def _compact(desk: Desk, client: Compactor) -> Steps[None]:
    for turn in range(client.jobs):
        view = yield from _look(desk, turn)
        job = yield from _choose_open_job(desk, view)
        if job is None:
            job = yield from _open_job(desk, client, turn, view)
        if job is None:
            continue
        for _ in range(client.turns):
            yield from _choose(desk, 1)
        outcome = yield from _insist(desk, client.name, view, f"replace {job.id}", Replace(job, _merged(job)))
        if outcome.end == "rejected":
            yield from _insist(desk, client.name, view, f"close {job.id}", CloseJob(job.id))


def _choose_open_job(desk: Desk, view: TableState) -> Steps[Job | None]:
    """Perhaps run a job that is open already: a task is often started twice."""
    if not view.jobs:
        return None
    chosen = yield from _choose(desk, len(view.jobs) + 1)
    return view.jobs[chosen] if chosen < len(view.jobs) else None


def _open_job(desk: Desk, client: Compactor, turn: int, view: TableState) -> Steps[Job | None]:
    leaves = [leaf for leaf in view.leaves if leaf.references]
    if not leaves:
        return None
    if client.wide:
        files = tuple(dict.fromkeys(file for leaf in leaves for file in leaf.references))
        chosen = files[: 1 + (yield from _choose(desk, len(files)))]
        return (yield from _opened(desk, client, view, Job(f"{client.name}-{turn}", 0, KEYS, chosen)))
    leaf = leaves[(yield from _choose(desk, len(leaves)))]
    windows = tuple(dict.fromkeys((leaf.references, leaf.references[:2], leaf.references[-2:])))
    job = Job(f"{client.name}-{turn}", leaf.min, leaf.max, windows[(yield from _choose(desk, len(windows)))])
    return (yield from _opened(desk, client, view, job))


def _opened(desk: Desk, client: Compactor, view: TableState, job: Job) -> Steps[Job | None]:
    outcome = yield from _insist(desk, client.name, view, f"open {job.id}", OpenJob(job))
    return None if outcome.end == "rejected" else job


def _merged(job: Job) -> DataFile | None:
    """The job's output: all rows of its inputs inside its range. An empty output is no file."""
    rows = 0
    for file in job.inputs:
        rows |= within(file.rows, job.min, job.max)
    return DataFile(f"o-{job.id}", rows) if rows else None


def _close(desk: Desk, client: Closer) -> Steps[None]:
    for turn in range(client.looks):
        view = yield from _look(desk, turn)
        if view.jobs:
            job = view.jobs[(yield from _choose(desk, len(view.jobs)))]
            yield from _insist(desk, client.name, view, f"close {job.id} {client.name}", CloseJob(job.id))


def _split(desk: Desk, client: Splitter) -> Steps[None]:
    for turn in range(client.splits):
        view = yield from _look(desk, turn)
        cuts = [(leaf, at) for leaf in view.leaves for at in client.at if leaf.min < at < leaf.max]
        if not cuts:
            return
        leaf, at = cuts[(yield from _choose(desk, len(cuts)))]
        effect = Split(leaf.min, leaf.max, at, seen=leaf.references)
        yield from _insist(desk, client.name, view, f"split {client.name}-{turn}", effect)


def _join(desk: Desk, client: Joiner) -> Steps[None]:
    for turn in range(client.looks):
        view = yield from _look(desk, turn)
        boundaries = [leaf.min for leaf in view.leaves if leaf.min > 0]
        if boundaries:
            at = boundaries[(yield from _choose(desk, len(boundaries)))]
            yield from _insist(desk, client.name, view, f"join {client.name}", Join(at))
            return


def _remove(desk: Desk, client: Remover) -> Steps[None]:
    assert 0 <= client.min < client.max <= KEYS, "a removal needs a range"
    view = yield from _look(desk, 0)
    yield from _insist(desk, client.name, view, f"remove {client.name}", Remove(client.min, client.max))
