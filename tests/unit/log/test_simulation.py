"""The log keeps its promises in random schedules, and the simulation that says so finds it out when one is broken.

A seed that failed prints its schedule; mend the code, and run it alone: ``run_seed(seed, monkeypatch)``.
"""

from collections import Counter
from dataclasses import replace

import pytest

from lakebed import table as tables
from lakebed.errors import DamagedError, NotRetainedError, StorageError
from lakebed.log import committer, slots
from lakebed.log.committer import Log
from lakebed.log.judging import judge
from lakebed.log.sides import SideObjects
from lakebed.log.snapshot import Head, Snapshots
from lakebed.log.tail import Tail
from lakebed.state.machine import TABLE
from lakebed.state.transactions import OfferFiles
from lakebed.storage.contract import PutOutcome
from lakebed.testing.faults import Fault
from tests.unit.log.simulation import run_seed
from tests.unit.log.world import Violation

SEEDS = range(100)
NIGHTLY = range(100, 2_100)

# What must have happened, how often in a hundred seeds at least: a green run in which nothing happens proves nothing.
QUOTA = {
    "add_files": 700,
    "replace": 50,
    "close_job": 20,
    "split_leaves": 40,
    "mark_dead": 20,
    "forget_files": 12,
    "snapshots": 500,
    "parts swept": 20,
    "entries trimmed": 50,
    "side objects": 300,
    "side objects swept": 20,
    "killed": 10,
    "told NotCommitted": 100,
    "told Unknown": 60,
    "told Contended": 10,
    "told NoneType": 50,
    "told TooOld": 3,
}


def run_all(seeds, monkeypatch):
    """What happened in the schedules of these seeds, and which faults fired."""
    tally, fired = Counter(), Counter()
    for seed in seeds:
        world = run_seed(seed, monkeypatch)
        tally += world.tally
        fired += world.faulty.fired
        fired["repeated"] += world.storage.repeated
        fired["slept"] += world.storage.slept
    return tally, fired


def run_seeds(seeds, monkeypatch):
    tally, fired = run_all(seeds, monkeypatch)
    for name, times in sorted(tally.items()):
        print(f"{times:>10,}  {name}")
    for name, quota in QUOTA.items():
        assert tally[name] * 100 >= quota * len(seeds), f"{name}: {tally[name]}"
    for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE, Fault.CONFLICT, "repeated", "slept"):
        assert fired[fault] >= len(seeds), fault


def test_the_log_keeps_its_promises_whatever_the_store_answers_and_whoever_is_next(monkeypatch):
    run_seeds(SEEDS, monkeypatch)


@pytest.mark.slow
def test_it_keeps_them_in_many_schedules(monkeypatch):
    run_seeds(NIGHTLY, monkeypatch)


def test_a_seed_replays_its_schedule(monkeypatch):
    assert run_seed(3, monkeypatch).schedule.trace == run_seed(3, monkeypatch).schedule.trace


# -- wrong forms ------------------------------------------------------------------------------------------------


class Foreign(bytes):
    """Bytes that are nobody's own."""

    __hash__ = bytes.__hash__

    def __eq__(self, _):
        return False

    def __ne__(self, _):
        return True


def no_look_at_what_exists(patch):
    """What exists is taken for another's, though it may be an earlier try of ours."""
    read_back = slots._read_back

    def anothers(backend, number):
        found = read_back(backend, number)
        return None if found is None else Foreign(found)

    patch.setattr(slots, "_read_back", anothers)


def what_exists_is_ours(patch):
    """What exists is taken for ours."""

    def fill(backend, slot):
        return None if backend.create(slot.number, slot.data) is PutOutcome.UNCLEAR else slot.data

    patch.setattr(committer, "fill", fill)


def on_after_an_unclear_put(patch):
    """No answer is taken for a refusal, though the put may be under way."""
    attempt = Log._try

    def fill(backend, slot):
        if backend.create(slot.number, slot.data) is PutOutcome.CREATED:
            return slot.data
        raise StorageError("refused")

    def again(log, group, reading, lost):
        try:
            return attempt(log, group, reading, lost)
        except StorageError:
            log.follow()
            return False

    patch.setattr(committer, "fill", fill)
    patch.setattr(Log, "_try", again)


def the_floor_does_not_matter(patch):
    """What was created is ours, and what is missing has never been there."""

    def prove(tail, reading, amiss=None, **_):
        tail._publish(reading)
        if amiss is not None:
            raise amiss
        return True

    patch.setattr(Tail, "prove", prove)


def published_before_it_is_created(patch):
    """Readers of this process see what is not in the log yet."""
    fill_told = Log._fill_told

    def eager(log, slot, judged):
        reading = log._tail.reading()
        if slot.number == reading.head.number + 1:
            log._tail.read_on(reading, slot.data)
            log._tail._publish(reading)
        return fill_told(log, slot, judged)

    patch.setattr(Log, "_fill_told", eager)


def rests_on_the_snapshot_before(patch):
    """The state goes on from a snapshot that is not of its number."""
    write, last = Snapshots.write, {}

    def wrong(snapshots, head):
        rested = write(snapshots, head)
        before = last.get(snapshots)
        last[snapshots] = rested
        return rested if rested is None or before is None else Head(rested.number, rested.digest, before.state)

    patch.setattr(Snapshots, "write", wrong)


def a_snapshot_of_another_number(patch):
    """The state is written down under the number before it."""
    write = Snapshots.write
    patch.setattr(
        Snapshots, "write", lambda snapshots, head: write(snapshots, Head(head.number - 1, head.digest, head.state))
    )


def with_machine(patch, **functions):
    patch.setattr(tables, "TABLE", replace(TABLE, **functions))


def request_keys_are_forgotten(patch):
    """An offer that is made again is taken for a new one."""

    def resolve(offer, state):
        forgetful = replace(offer, request_key=None) if isinstance(offer, OfferFiles) else offer
        return TABLE.resolve(forgetful, state)

    with_machine(patch, resolve=resolve)


def a_repeat_has_a_base_number_of_its_own(patch):
    """A request whose key is forgotten is taken for a new one."""

    def resolve(offer, state):
        young = replace(offer, base_number=state.number) if isinstance(offer, OfferFiles) else offer
        return TABLE.resolve(young, state)

    with_machine(patch, resolve=resolve)


def closed_jobs_commit(patch):
    """Whether its job is still open is judged when it was opened, not when its output comes."""
    opened = {}

    def resolve(offer, state):
        opened.update(state.jobs)
        known = {**state.jobs, offer.job: opened[offer.job]} if getattr(offer, "job", None) in opened else state.jobs
        return TABLE.resolve(offer, replace(state, jobs=known))

    with_machine(patch, resolve=resolve)


def not_judged_again(patch):
    """What was judged before a lost race is written after it."""
    kept = {}

    def once(group, head, machine):
        _, state = kept.setdefault(id(group), (group, head.state))
        return judge(group, head, replace(machine, resolve=lambda offer, _: machine.resolve(offer, state)))

    patch.setattr(committer, "judge", once)


def side_objects_are_swept_too_soon(patch):
    """What the newest entry does not name is swept, though the next one may."""

    def sweep(sides, floor, head, read):
        return swept(sides, floor, head + 3, lambda number: read(number) if number <= head else b"")

    swept = SideObjects.sweep
    patch.setattr(SideObjects, "sweep", sweep)


def an_unclear_side_object_is_there(patch):
    """No answer to its put is taken for a good one, and the entry follows."""
    patch.setattr(SideObjects, "_put_one", lambda sides, name, data: sides._storage.create(name, data))


WRONG_FORMS = [
    no_look_at_what_exists,
    what_exists_is_ours,
    on_after_an_unclear_put,
    the_floor_does_not_matter,
    published_before_it_is_created,
    rests_on_the_snapshot_before,
    a_snapshot_of_another_number,
    side_objects_are_swept_too_soon,
    an_unclear_side_object_is_there,
    request_keys_are_forgotten,
    a_repeat_has_a_base_number_of_its_own,
    closed_jobs_commit,
    not_judged_again,
]


@pytest.mark.parametrize("form", WRONG_FORMS, ids=lambda form: form.__name__)
def test_a_wrong_form_is_found(form, monkeypatch):
    """Within forty schedules, most of them in the first two."""
    with monkeypatch.context() as patch:
        form(patch)
        with pytest.raises((Violation, DamagedError, NotRetainedError)):
            run_all(range(40), patch)
