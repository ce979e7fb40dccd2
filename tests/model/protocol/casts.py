"""The actors of a schedule: drawn from the seed, or a small cast, the fewest actors in which a wrong form shows.

cast               who                                          what must meet
two_writers        two writers of two batches each              lost, late and repeated answers
restarted          two writers of one batch (a stream again)    request keys
small_table        two writers, splitter, compactor             everything at once
late_job           two compactors, closer                       a job closed while its task runs, its inputs shared
halved_job         two compactors, splitter                     a job opened late over a partition split since
wide_job           two compactors, one of them wide             over two partitions; an input is merged away in one
wide_split         wide compactor, splitter, remover, writer    a job over two partitions split and emptied meanwhile
emptied_partition  compactor, remover, joiner                   half of a job's range emptied, then joined again
rejoined           writer, compactor, splitter, joiner          a file merged away in one of two partitions
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, get_args

from ..engine import Chooser, World
from .clients import Client, Closer, Compactor, Joiner, Remover, Splitter, Writer, run
from .committer import commit_forever
from .rows import KEYS, WRITES, DataFile, write_rows
from .rules import Rules
from .state import Partition, TableState, cut
from .store import Desk, Fault, Store

FAULTS: tuple[Fault, ...] = get_args(Fault)
START_FILES = 3  # the writes 0, 1, 2; batches take the numbers after


class Cast(NamedTuple):
    """The initial table, the clients, the allowed faults. `looks`: whose view a client plans on."""

    start: TableState
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...]
    faults_max: int
    looks: Literal["own process", "any process"] = "any process"


def world_of(chooser: Chooser, rules: Rules, cast: Cast) -> World:
    """Return a world of this cast: the committer of each process, then the clients."""
    store = Store(chooser, rules, cast.start, faults=cast.faults, faults_max=cast.faults_max)
    store.looks = cast.looks
    processes = [client.process for client in cast.clients]
    desks = {name: Desk(store, name, processes.count(name)) for name in sorted(set(processes))}
    store.desks = list(desks.values())
    for desk in store.desks:
        store.desk_of[store.spawn(desk.name, partial(commit_forever, desk))] = desk
    for client in cast.clients:
        desk = desks[client.process]
        store.desk_of[store.spawn(client.name, partial(run, desk, client))] = desk
    return store


def table(files: tuple[DataFile, ...], *boundaries: int) -> TableState:
    """Return a table at version 0 whose partitions refer to these files."""
    partitions: tuple[Partition, ...] = (Partition(0, KEYS, files),)
    for at in boundaries:
        partitions = cut(partitions, at, Rules())
    return TableState(0, partitions)


def swarm(chooser: Chooser) -> Cast:
    """Return a cast drawn by the chooser, of two to three processes with at least one writer; each draw leaves out many
    actors.
    """
    below = chooser.below
    processes = "pqr"[: 2 + (below(10) < 3)]

    def process() -> str:
        return processes[below(len(processes))]

    clients: list[Client] = list(_writers(chooser, process))
    clients += [
        Compactor(process(), f"c{index}", jobs=1 + (below(10) < 3), backoff=(0, 2, 8)[below(3)])
        for index in range(_drawn(chooser, 3, 9, 8))
    ]
    clients += [
        Splitter(process(), f"s{index}", splits=1 + (below(10) < 3)) for index in range(_drawn(chooser, 7, 10, 3))
    ]
    if below(10) < 4:
        clients.append(Closer(process(), "d0", looks=6))
    if below(10) < 4:
        clients.append(Joiner(process(), "j0", looks=2))
    if below(20) < 7:
        lower = below(KEYS)
        clients.append(Remover(process(), "x0", lower, lower + 1 + below(KEYS - lower)))
    files = tuple([DataFile(f"f{write}", _rows(chooser, write)) for write in range(1 + below(START_FILES))])
    boundaries = (1 + below(KEYS - 1),) if below(10) < 4 else ()
    faults_max = _drawn(chooser, 4, 8, 5, 3)
    if below(10) < 3:
        clients.append(Compactor(process(), "g0", jobs=1, backoff=(0, 2, 8)[below(3)], wide=True))
    return Cast(table(files, *boundaries), tuple(clients), FAULTS, faults_max)


def _writers(chooser: Chooser, process: Callable[[], str]) -> tuple[Writer, ...]:
    """Return one to three writers; the last one may restart the stream of another."""
    writers: list[Writer] = []
    write = START_FILES
    for index in range(_drawn(chooser, 0, 7, 8, 5)):
        if writers and chooser.below(10) < 3:
            batches = writers[0].batches
        else:
            versions = range(write, write + 1 + (chooser.below(4) == 0))
            batches = tuple([(version, _rows(chooser, version)) for version in versions])
            write = versions.stop
        writers.append(Writer(process(), f"w{index}", batches))
    assert write <= WRITES, "each batch needs a bit of its own"
    return tuple(writers)


def _rows(chooser: Chooser, write: int) -> int:
    """Return one to four rows: often narrow, sometimes at both ends of the key space."""
    below = chooser.below
    low, width = (0, KEYS) if below(5) < 3 else (below(2) * KEYS // 2, KEYS // 2)
    return write_rows(write, {low + below(width) for _ in range(1 + below(4))})


def _drawn(chooser: Chooser, *weights: int) -> int:
    """Return 0, 1, 2 … with these weights."""
    point = chooser.below(sum(weights))
    for value, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return value
    raise AssertionError("below their sum")


# -- small casts -----------------------------------------------------------------------------------------------------

EVERYWHERE = tuple(range(KEYS))
LOWER, UPPER = EVERYWHERE[: KEYS // 2], EVERYWHERE[KEYS // 2 :]


def _file(write: int, keys: tuple[int, ...]) -> DataFile:
    return DataFile(f"f{write}", write_rows(write, keys))


def _batch(write: int) -> tuple[int, int]:
    return write, write_rows(write, (1, KEYS - 1))


THREE_FILES = tuple(_file(write, EVERYWHERE) for write in range(3))
BLURRED: tuple[Fault, ...] = ("answer lost", "request late")


def two_writers(batches: int, faults: tuple[Fault, ...] = BLURRED, faults_max: int = 2) -> Cast:
    first = tuple(_batch(3 + index) for index in range(batches))
    second = tuple(_batch(6 + index) for index in range(batches))
    return Cast(table(()), (Writer("p", "w0", first), Writer("q", "w1", second)), faults, faults_max, "own process")


def restarted(faults_max: int = 1) -> Cast:
    clients = (Writer("p", "w0", (_batch(3),)), Writer("q", "w1", (_batch(3),)))
    return Cast(table(()), clients, BLURRED, faults_max, "own process")


def small_table(writers: int, batches: int, faults_max: int) -> Cast:
    """Return writers, a splitter at the middle and a compactor, each in a process of its own, over two files of two
    keys.
    """
    files = (_file(0, (1, KEYS - 1)), _file(1, (1, KEYS - 1)))
    clients: list[Client] = [Splitter("s", "s0", splits=1, at=(KEYS // 2,)), Compactor("c", "c0", jobs=1)]
    for index in range(writers):
        written = tuple(_batch(3 + 3 * index + turn) for turn in range(batches))
        clients.append(Writer(f"p{index}", f"w{index}", written))
    return Cast(table(files), tuple(clients), BLURRED, faults_max, "own process")


def late_job(looks: int = 1) -> Cast:
    clients = (
        Compactor("p", "c0", jobs=1, backoff=8),
        Compactor("q", "c1", jobs=1),
        Closer("r", "d0", looks),
    )
    return Cast(table(THREE_FILES), clients, (), 0)


def halved_job() -> Cast:
    clients = (
        Compactor("p", "c0", jobs=1),
        Compactor("q", "c1", jobs=1),
        Splitter("r", "s0", splits=1, at=(KEYS // 2,)),
    )
    return Cast(table(THREE_FILES), clients, (), 0)


def wide_job() -> Cast:
    clients = (Compactor("p", "c0", jobs=1), Compactor("q", "g0", jobs=1, backoff=4, wide=True))
    return Cast(table(THREE_FILES, KEYS // 2), clients, (), 0)


def wide_split() -> Cast:
    clients = (
        Compactor("p", "g0", jobs=1, backoff=6, wide=True),
        Splitter("q", "s0", splits=1),
        Remover("r", "x0", 1, KEYS // 2),
        Writer("q", "w0", (_batch(3),)),
    )
    return Cast(table((*THREE_FILES[:1], _file(1, UPPER)), KEYS // 2), clients, ("answer lost",), 1)


def emptied_partition(looks: int = 1) -> Cast:
    clients = (
        Compactor("p", "c0", jobs=1, backoff=12),
        Remover("q", "x0", 0, KEYS // 2),
        Joiner("r", "j0", looks),
    )
    return Cast(table((_file(0, LOWER), _file(1, UPPER))), clients, (), 0)


def rejoined() -> Cast:
    clients = (Compactor("p", "c0", jobs=1), Joiner("r", "j0"), Writer("q", "w0", (_batch(3),)))
    return Cast(table(THREE_FILES[:2], KEYS // 2), clients, ("answer lost",), 1)
