"""Running the world of a seed: time, chance and waiting come from it, and nothing of it is left behind."""

from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace

from msgspec.structs import replace

# Imported by a run, it would draw from the chance of this run's seed for as long as the process lives.
import lakebed.files.parquet.open_files  # noqa: F401
from lakebed import clock
from lakebed.log import checkpoint, committer, entry, queue, segments, sidecars, tail
from lakebed.log.backends.objects import ObjectLogs
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Committed, Contended
from lakebed.model.state import persistent_table
from lakebed.model.state.machine import TABLE
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.transactions import CreateTable, ProposeFiles
from lakebed.storage import probe, retries
from lakebed.table.table import Table
from lakebed.testing.faults import FaultPlan
from tests.clocks import set_clock
from tests.pure.state.cases import SCHEMA
from tests.tables.log.schedule import Lock
from tests.tables.log.world import KEYS, TABLE_ID, Process, World, expect

PROCESSES = 4
TASKS = 7


class OrderedDelta(dict):
    """The changes of a persistent table in the order in which they came; a hash trie has another in each run."""

    def update(self, changes):
        return OrderedDelta({**self, **changes})


def tables_of_the_empty_state():
    """What all states are made of. They are older than any patch of the type of their changes."""
    for name in TABLE.empty.__struct_fields__:
        found = getattr(TABLE.empty, name)
        if isinstance(found, PartitionFiles):
            yield from (found, found._table)
        elif isinstance(found, PersistentTable):
            yield found


def one_by_one(act, items):
    return list(map(act, items))


@contextmanager
def drawn_by(world, monkeypatch):
    """Time, chance and waiting are the seed's, and limits are so small that they are met."""
    random = Random(world.random.random())
    world.limits = replace(world.limits, inline_references=world.random.choice([0, 1, LIMITS.inline_references]))
    with monkeypatch.context() as patch:
        set_clock(
            patch,
            now=lambda: world.inner.time.replace(year=random.randint(2020, 2040)),
            sleep=lambda _: world.schedule.pause("sleeps"),
            jitter_s=lambda _: 0.0,
            random_token=lambda: f"{random.getrandbits(128):032x}",
            monotonic_s=lambda: len(world.schedule.trace) * 0.1,
        )
        for replaced in (
            (probe, "random_token", clock.random_token),
            (committer, "this_writer", lambda: "simulated"),
            (queue, "threading", SimpleNamespace(Lock=partial(Lock, world.schedule))),
            (checkpoint, "in_parallel", one_by_one),
            (sidecars, "in_parallel", one_by_one),
            (tail, "in_parallel", one_by_one),
            (persistent_table, "HashTrieMap", OrderedDelta),
            (retries, "ATTEMPTS_MAX", 3),
            (entry, "NAMED_WITHIN", 3),
            (sidecars, "NAMED_WITHIN", 3),
            (tail.LogTail, "start_checkpoint", lambda one: world.write_checkpoint(one)),  # noqa: PLW0108 - a method
            *((table, "_delta", OrderedDelta()) for table in tables_of_the_empty_state()),
        ):
            patch.setattr(*replaced)
        yield


def run_seed(seed, monkeypatch):
    """The schedule of this seed, always the same one; returns the world. Whatever it raises has seed and schedule."""
    world = World(seed)
    _empty_state_cache()
    with drawn_by(world, monkeypatch):
        try:
            _run(world)
        except BaseException as error:
            trace = "\n".join(world.schedule.trace)
            error.add_note(f"seed {seed} of the simulation of a log; its schedule:\n{trace}")
            raise
        finally:
            world.schedule.close()
    return world


def _empty_state_cache():
    """What an earlier run of the seed cached, this one would not fetch."""
    bytes_max = segments.STATE_CACHE.bytes_max
    segments.STATE_CACHE.limit(0)
    segments.STATE_CACHE.limit(bytes_max)


def _run(world):
    first = Table(TABLE_ID, "t", world.inner, ObjectLogs(world.inner), dict).log
    settings = {"history_s": world.history_s, "log_s": 0}
    create = CreateTable(TABLE_ID, SCHEMA, settings, (KEYS["f"],))
    world.processes.append(Process(world, "first"))
    first.limits = world.limits
    world.processes[0].log = first
    expect(first.commit(create) == Committed(1), "a table is created")
    for version in range(PROCESSES):
        world.start(f"p{version}", TASKS)

    def after_step():
        world.observe()
        if world.random.random() < 0.001:
            world.kill(world.random.choice(world.processes[1:]))

    world.schedule.run(after_step)
    # The store is mended, and the actors that are left can write.
    world.faulty.plan = FaultPlan([])
    world.faulty.settle()
    for process in list(world.processes):
        last = partial(_commit_at_last, world, process)
        process.actors.append(world.schedule.spawn(f"{process.name}.last", last))
    world.schedule.run(world.observe)
    expect(all(p.log.local._unsettled is None for p in world.processes), "a log position was left unsettled")


def _commit_at_last(world, process):
    new = world.file([("a", process.name)])
    for _ in range(50):
        outcome = world.commit(process, ProposeFiles((new,), None, process.log.follow().version))
        if not isinstance(outcome, Contended):
            break
    expect(isinstance(outcome, Committed), f"{process.name} cannot commit to a store that is mended: {outcome}")
