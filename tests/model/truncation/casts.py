"""The actors of a schedule: drawn from the seed, or one of a few tiny casts.

The log is some entries long when a schedule begins, so that there is something to truncate.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ..engine import Chooser, Steps, run_alone
from .actors import arrive, drop, follow, open_log, read, rot, truncate, write
from .rules import Rules
from .store import EMPTY, Record, State, Store


def _past(entries: int) -> tuple[State, ...]:
    states = [EMPTY]
    for version in range(1, entries + 1):
        before = states[-1]
        records = (*before.records, Record(f"old {version}", version - 1, version))
        states.append(State(version, f"e{version}", before.id, f"old {version}", records))
    return tuple(states)


PAST = _past(entries=3)


class Cast(NamedTuple):
    """The number of each actor. Writers have one batch each; `again` of them repeat the first one's."""

    writers: int
    batches: int = 1
    again: int = 0
    trimmers: int = 1
    rounds: int = 1
    readers: int = 0
    polls: int = 2
    arriving: int = 0
    forgetters: int = 0
    entries: int = 2
    checkpoints: tuple[int, ...] = (1,)
    snapshots: tuple[int, ...] = ()  # initially held by writers, readers, arriving ones; the others hold the head
    faults: int = 0
    torn: int = 0
    rotten: int = 0


class Truncated(Store):
    """A store with its cast, and the last checks."""

    def __init__(self, chooser: Chooser, rules: Rules, cast: Cast) -> None:
        super().__init__(chooser, rules, faults_max=cast.faults, torn_max=cast.torn, rotten_max=cast.rotten)
        past = PAST[1 : cast.entries + 1]
        self.history += past
        self.entries = {state.version: state for state in past}
        self.keys = {state.key: state.version for state in past}
        self.checkpoints = {version: self.history[version] for version in cast.checkpoints if version <= cast.entries}
        snapshots = iter(cast.snapshots)
        for index in range(cast.writers):
            stream = 0 if index >= cast.writers - cast.again else index
            keys = tuple(f"batch {stream}.{turn}" for turn in range(cast.batches))
            self._hold(f"w{index}", partial(write, self, f"w{index}", keys), next(snapshots, cast.entries))
        for index in range(cast.readers):
            self._hold(f"r{index}", partial(read, self, f"r{index}", cast.polls), next(snapshots, cast.entries))
        for index in range(cast.arriving):
            self._hold(f"a{index}", partial(arrive, self, f"a{index}"), next(snapshots, cast.entries))
        for index in range(cast.trimmers):
            self._hold(f"t{index}", partial(truncate, self, f"t{index}", cast.rounds), cast.entries)
        for index in range(cast.forgetters):
            self._hold(f"f{index}", partial(drop, self, f"f{index}"), cast.entries)
        if cast.rotten:
            self.spawn("rot", partial(rot, self))

    def _hold(self, name: str, make: Callable[[], Steps[None]], version: int) -> None:
        self.snapshots[name] = self.history[version]
        self.spawn(name, make, knows=version)

    def finish(self) -> None:
        """Check that every holder of a snapshot, and a new process, can follow to the head."""
        head = self.history[-1].version
        for snapshot in self.snapshots.values():
            self.read_done(run_alone(follow(self, snapshot)), head)
        self.read_done(run_alone(_arrive(self)), head)


def _arrive(store: Store) -> Steps[State]:
    return (yield from follow(store, (yield from open_log(store))))


def swarm(chooser: Chooser) -> Cast:
    """Return a cast drawn by the chooser. Each draw leaves out many actors: a race shows more often if no third actor
    hides it.
    """
    below = chooser.below
    writers = 1 + below(3)
    readers = below(2)
    arriving = below(4) == 0
    entries = 2 + below(2)
    return Cast(
        writers=writers,
        batches=1 + (below(4) == 0),
        again=below(2) if writers > 1 else 0,
        trimmers=1 + (below(4) == 0),
        rounds=1 + (below(3) == 0),
        readers=readers,
        polls=2,
        arriving=arriving,
        forgetters=below(4) == 0,
        entries=entries,
        checkpoints=(1 + below(entries),),
        snapshots=tuple(below(entries + 1) for _ in range(writers + readers + arriving)),
        faults=below(3),
        torn=below(6) == 0,
        rotten=below(6) == 0,
    )


# The fewest actors in which a form shows that the swarm hides.
TWO_TRIMMERS = Cast(writers=1, trimmers=2, readers=1, polls=1, entries=3, checkpoints=(1, 2), snapshots=(3, 2))
ROTTEN = Cast(writers=1, batches=2, rounds=2, torn=1, rotten=1)
LATE_PUTS = Cast(writers=1, entries=3, checkpoints=(2,), snapshots=(1,), faults=1)
LATE_READER = Cast(writers=1, readers=1, snapshots=(0, 0))
LATE_LISTING = Cast(writers=1, arriving=1, checkpoints=(2,), snapshots=(2, 1))
LATE_PUT_LISTED = Cast(writers=2, arriving=1, entries=1, snapshots=(0, 1, 0))
