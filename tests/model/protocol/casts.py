"""Small fixed casts: the fewest actors in which a wrong form shows, and the tiny configurations searched completely.

cast          who                                          what must meet
two_writers   two writers of two batches each              lost, late and repeated answers
restarted     two writers of one batch (a stream again)    request keys
small_table   two writers, splitter, compactor             everything at once
late_job      two compactors, closer                       a job closed while its task runs, its inputs shared
halved_job    two compactors, splitter                     a job opened late over a leaf split since
emptied_leaf  compactor, remover, joiner                   half of a job's range emptied, then joined again
rejoined      writer, compactor, splitter, joiner          a file merged away in one of two leaves
"""

from .clients import Client, Closer, Compactor, Joiner, Remover, Splitter, Writer
from .rows import KEYS, DataFile, write_rows
from .scenario import Fault, Scenario, table

EVERYWHERE = tuple(range(KEYS))
LOWER, UPPER = EVERYWHERE[: KEYS // 2], EVERYWHERE[KEYS // 2 :]


def _file(write: int, keys: tuple[int, ...]) -> DataFile:
    return DataFile(f"f{write}", write_rows(write, keys))


def _batch(write: int) -> tuple[int, int]:
    return write, write_rows(write, (1, KEYS - 1))


THREE_FILES = tuple(_file(write, EVERYWHERE) for write in range(3))
BLURRED: tuple[Fault, ...] = ("answer lost", "request late")


def two_writers(batches: int, faults: tuple[Fault, ...] = BLURRED, faults_max: int = 2) -> Scenario:
    first = tuple(_batch(3 + index) for index in range(batches))
    second = tuple(_batch(6 + index) for index in range(batches))
    return Scenario(table(()), (Writer("p", "w0", first), Writer("q", "w1", second)), faults, faults_max, "own process")


def restarted(faults_max: int = 1) -> Scenario:
    clients = (Writer("p", "w0", (_batch(3),)), Writer("q", "w1", (_batch(3),)))
    return Scenario(table(()), clients, BLURRED, faults_max, "own process")


def small_table(writers: int, batches: int, faults_max: int) -> Scenario:
    """Writers, a splitter at the middle and a compactor, each in a process of its own, over two files of two keys."""
    files = (_file(0, (1, KEYS - 1)), _file(1, (1, KEYS - 1)))
    clients: list[Client] = [Splitter("s", "s0", splits=1, at=(KEYS // 2,)), Compactor("c", "c0", jobs=1)]
    for index in range(writers):
        written = tuple(_batch(3 + 3 * index + turn) for turn in range(batches))
        clients.append(Writer(f"p{index}", f"w{index}", written))
    return Scenario(table(files), tuple(clients), BLURRED, faults_max, "own process")


def late_job(looks: int = 1) -> Scenario:
    clients = (
        Compactor("p", "c0", jobs=1, turns=8),
        Compactor("q", "c1", jobs=1),
        Closer("r", "d0", looks),
    )
    return Scenario(table(THREE_FILES), clients, (), 0)


def halved_job() -> Scenario:
    clients = (
        Compactor("p", "c0", jobs=1),
        Compactor("q", "c1", jobs=1),
        Splitter("r", "s0", splits=1, at=(KEYS // 2,)),
    )
    return Scenario(table(THREE_FILES), clients, (), 0)


def emptied_leaf(looks: int = 1) -> Scenario:
    clients = (
        Compactor("p", "c0", jobs=1, turns=12),
        Remover("q", "x0", 0, KEYS // 2),
        Joiner("r", "j0", looks),
    )
    return Scenario(table((_file(0, LOWER), _file(1, UPPER))), clients, (), 0)


def rejoined() -> Scenario:
    clients = (Compactor("p", "c0", jobs=1), Joiner("r", "j0"), Writer("q", "w0", (_batch(3),)))
    return Scenario(table(THREE_FILES[:2], KEYS // 2), clients, ("answer lost",), 1)
