"""What a schedule is about: the table it starts from, the clients, the processes they live in, the faults allowed.

`swarm` draws a scenario from a seed. Each draw leaves much out: a fault between two writers shows more often where no
third actor hides it.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

from .clients import Client, Closer, Compactor, Joiner, Remover, Splitter, Writer
from .rows import KEYS, WRITES, DataFile, write_rows
from .rules import Rules
from .state import Leaf, TableState, cut

Fault = Literal[
    "answer lost",  # the put takes effect, the answer does not arrive
    "request lost",  # the put never takes effect
    "request late",  # the client gives up waiting, the put takes effect later, or never
    "client retry",  # the store's client repeats by itself and reports "exists" for our own write
    "crash after effect",
    "crash before effect",
    "crash, request late",
]
FAULTS: tuple[Fault, ...] = (
    "answer lost",
    "request lost",
    "request late",
    "client retry",
    "crash after effect",
    "crash before effect",
    "crash, request late",
)
START_FILES = 3  # the writes 0, 1, 2; batches take the numbers after


@dataclass(frozen=True, slots=True)
class Scenario:
    """One cast. `looks` says whose view a client plans on."""

    start: TableState
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...]
    faults_max: int
    looks: Literal["own process", "any process"] = "any process"


def table(files: tuple[DataFile, ...], *boundaries: int) -> TableState:
    """A table at number 0 whose leaves refer to these files."""
    leaves: tuple[Leaf, ...] = (Leaf(0, KEYS, files),)
    for at in boundaries:
        leaves = cut(leaves, at, Rules())
    return TableState(0, leaves)


def swarm(random: Random) -> Scenario:
    """A random cast of two to three processes with at least one writer."""
    processes = ("p", "q", "r")[: 2 + (random.random() < 0.3)]
    clients: list[Client] = list(_writers(random, processes))
    for index in range(_draw(random, 0.15, 0.45, 0.4)):
        jobs, turns = 1 + (random.random() < 0.3), random.choice((0, 2, 8))
        clients.append(Compactor(random.choice(processes), f"c{index}", jobs, turns))
    clients += [
        Splitter(random.choice(processes), f"s{index}", splits=1 + (random.random() < 0.3))
        for index in range(_draw(random, 0.35, 0.5, 0.15))
    ]
    if random.random() < 0.4:
        clients.append(Closer(random.choice(processes), "d0", looks=6))
    if random.random() < 0.4:
        clients.append(Joiner(random.choice(processes), "j0", looks=2))
    if random.random() < 0.35:
        lower = random.randrange(KEYS)
        clients.append(Remover(random.choice(processes), "x0", lower, random.randint(lower + 1, KEYS)))
    files = tuple(DataFile(f"f{write}", _rows(random, write)) for write in range(random.randint(1, START_FILES)))
    boundaries = (random.randrange(1, KEYS),) if random.random() < 0.4 else ()
    return Scenario(table(files, *boundaries), tuple(clients), FAULTS, faults_max=_draw(random, 0.2, 0.4, 0.25, 0.15))


def _writers(random: Random, processes: tuple[str, ...]) -> tuple[Writer, ...]:
    """One to three writers; the last one may be another one's stream, started again."""
    writers: list[Writer] = []
    write = START_FILES
    for index in range(_draw(random, 0.0, 0.35, 0.4, 0.25)):
        if writers and random.random() < 0.3:
            batches = writers[0].batches
        else:
            numbers = range(write, write + 1 + (random.random() < 0.25))
            batches = tuple((number, _rows(random, number)) for number in numbers)
            write = numbers.stop
        writers.append(Writer(random.choice(processes), f"w{index}", batches))
    assert write <= WRITES, "each batch needs a bit of its own"
    return tuple(writers)


def _rows(random: Random, write: int) -> int:
    """One to four rows: often narrow, sometimes at both ends of the key space."""
    low, high = (0, KEYS) if random.random() < 0.6 else random.choice(((0, KEYS // 2), (KEYS // 2, KEYS)))
    return write_rows(write, tuple({random.randrange(low, high) for _ in range(random.randint(1, 4))}))


def _draw(random: Random, *weights: float) -> int:
    """0, 1, 2 … with these probabilities."""
    point = random.random()
    for value, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return value
    return len(weights) - 1
