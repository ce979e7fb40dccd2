"""The log keeps its promises in random schedules, and the simulation that says so finds it out when one is broken.

A seed that failed prints its schedule; mend the code, and run it alone: ``run_seed(seed, monkeypatch)``.
"""

from collections import Counter

import pytest
from msgspec import structs
from msgspec.structs import replace

from lakebed.errors import Code, Error, StorageError
from lakebed.log import committer, group_commit, sidecars
from lakebed.log.checkpoint import Checkpoints, Head
from lakebed.log.committer import LocalCommitter
from lakebed.log.group_commit import validate
from lakebed.log.sidecars import SidecarStore
from lakebed.log.tail import LogTail
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import ProposeFiles
from lakebed.storage.contract import PutOutcome
from lakebed.table import table as tables
from lakebed.testing.faults import Fault
from lakebed.upkeep.retention import run as collection
from tests.tables.log.simulation import run_seed
from tests.tables.log.world import Violation
from tests.variants import Planted, planted

SEEDS = range(65, 80)
NIGHTLY = range(80, 2_165)

# What must have happened, how often in a hundred seeds at least: a green run in which nothing happens proves nothing.
QUOTA = {
    "add_files": 700,
    "replace": 50,
    "close_job": 20,
    "split_partitions": 40,
    "retire_files": 20,
    "purge_files": 12,
    "checkpoints": 500,
    "parts swept": 20,
    "entries truncated": 25,
    "sidecars": 300,
    "sidecars swept": 20,
    "killed": 10,
    "reported NotCommitted": 100,
    "reported Unknown": 60,
    "reported Contended": 10,
    "reported NoneType": 50,
    "reported TooOld": 3,
}


def run_all(seeds, monkeypatch):
    """What happened in the schedules of these seeds, and which faults fired."""
    counts, fired = Counter(), Counter()
    for seed in seeds:
        world = run_seed(seed, monkeypatch)
        counts += world.counts
        fired += world.faulty.fired
        fired["repeated"] += world.storage.repeated
        fired["slept"] += world.storage.slept
    return counts, fired


def run_seeds(seeds, monkeypatch):
    counts, fired = run_all(seeds, monkeypatch)
    for name, times in sorted(counts.items()):
        print(f"{times:>10,}  {name}")
    for name, quota in QUOTA.items():
        assert counts[name] * 100 >= quota * len(seeds), f"{name}: {counts[name]}"
    for fault in (
        Fault.FAIL_BEFORE,
        Fault.FAIL_AFTER,
        Fault.LATE,
        Fault.CONFLICT,
        "repeated",
        "slept",
    ):
        assert fired[fault] >= len(seeds), fault


def test_the_log_keeps_its_promises_whatever_the_store_answers_and_whichever_actor_is_next(monkeypatch):
    run_seeds(SEEDS, monkeypatch)


@pytest.mark.slow
def test_it_keeps_them_in_many_schedules(monkeypatch):
    run_seeds(NIGHTLY, monkeypatch)


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_replays_its_schedule(monkeypatch, seed):
    assert run_seed(seed, monkeypatch).schedule.trace == run_seed(seed, monkeypatch).schedule.trace


# -- wrong forms ------------------------------------------------------------------------------------------------


class Foreign(bytes):
    """Bytes that no actor wrote."""

    __hash__ = bytes.__hash__

    def __eq__(self, _):
        return False

    def __ne__(self, _):
        return True


def no_look_at_what_exists():
    """What exists is taken for another's, though it may be an earlier try of ours."""
    read_back = group_commit._read_back

    def anothers(backend, version):
        found = read_back(backend, version)
        return None if found is None else Foreign(found)

    yield Planted(group_commit, "_read_back", anothers)


def what_exists_is_ours():
    """What exists is taken for ours."""

    def append(backend, pending, _puts):
        unclear = backend.create(pending.version, pending.data) is PutOutcome.UNCLEAR
        return group_commit.NotAppended.UNCLEAR if unclear else pending.data

    yield Planted(committer, "append", append)


def on_after_an_unclear_put():
    """No answer is taken for a refusal, though the put may be under way."""
    attempt = LocalCommitter._try

    def append(backend, pending, _puts):
        if backend.create(pending.version, pending.data) is PutOutcome.CREATED:
            return pending.data
        raise Code.STORE_UNAVAILABLE("refused")

    def again(log, group, reading, lost):
        try:
            return attempt(log, group, reading, lost)
        except StorageError:
            log.tail.follow()
            return committer._NoPut.LOST

    yield Planted(committer, "append", append)
    yield Planted(LocalCommitter, "_try", again)


def the_log_start_does_not_matter():
    """What was created is ours, and what is missing has never been there."""

    def prove(tail, reading, error=None, **_):
        tail._publish(reading)
        if error is not None:
            raise error
        return True

    yield Planted(LogTail, "prove", prove)


def published_before_it_is_created():
    """Readers of this process see what is not in the log yet."""
    append_or_report = LocalCommitter._append_or_report

    def eager(log, pending, validated):
        reading = log.tail.reading()
        if pending.version == reading.head.version + 1:
            log.tail.read_on(reading, pending.data)
            log.tail._publish(reading)
        return append_or_report(log, pending, validated)

    yield Planted(LocalCommitter, "_append_or_report", eager)


def rests_on_the_checkpoint_before():
    """The state goes on from a checkpoint that is not of its version."""
    write, last = Checkpoints.write, {}

    def wrong(checkpoints, head):
        rested = write(checkpoints, head)
        before = last.get(checkpoints)
        last[checkpoints] = rested
        return rested if rested is None or before is None else Head(rested.version, rested.digest, before.state)

    yield Planted(Checkpoints, "write", wrong)


def a_checkpoint_of_another_number():
    """The state is written down under the version before it."""
    write = Checkpoints.write
    yield Planted(
        Checkpoints,
        "write",
        lambda checkpoints, head: write(checkpoints, Head(head.version - 1, head.digest, head.state)),
    )


def with_machine(**functions):
    return Planted(tables, "TABLE", replace(TABLE, **functions))


def request_keys_are_forgotten():
    """A proposal that is made again is taken for a new one."""

    def resolve(proposal, state):
        forgetful = structs.replace(proposal, request_key=None) if isinstance(proposal, ProposeFiles) else proposal
        return TABLE.resolve(forgetful, state)

    yield with_machine(resolve=resolve)


def a_repeat_has_a_base_number_of_its_own():
    """A request whose key is forgotten is taken for a new one."""

    def resolve(proposal, state):
        if isinstance(proposal, ProposeFiles):
            proposal = structs.replace(proposal, base_version=state.version)
        return TABLE.resolve(proposal, state)

    yield with_machine(resolve=resolve)


def closed_jobs_commit():
    """Whether its job is still open is validated when it was opened, not when its output comes."""
    opened = {}

    def resolve(proposal, state):
        opened.update(state.jobs)
        known = (
            {**state.jobs, proposal.job: opened[proposal.job]}
            if getattr(proposal, "job", None) in opened
            else state.jobs
        )
        return TABLE.resolve(proposal, replace(state, jobs=known))

    yield with_machine(resolve=resolve)


def not_validated_again():
    """What was validated before a lost race is written after it."""
    retained = {}

    def once(group, head, machine, limits):
        _, state = retained.setdefault(id(group), (group, head.state))
        stale = replace(machine, resolve=lambda proposal, _: machine.resolve(proposal, state))
        return validate(group, head, stale, limits)

    yield Planted(committer, "validate", once)


def sidecars_are_swept_too_soon():
    """What the newest entry does not name is swept, though the next one may."""

    def sweep(sidecars, log_start, head, read):
        return swept(sidecars, log_start, head + 3, lambda version: read(version) if version <= head else b"")

    swept = SidecarStore.delete_unnamed
    yield Planted(SidecarStore, "delete_unnamed", sweep)


def an_unclear_sidecar_is_there():
    """No answer to its put is taken for a good one, and the entry follows."""
    yield Planted(sidecars, "create_until_clear", lambda storage, name, data: storage.create(name, data))


def files_go_while_they_are_read():
    """A file is deleted as soon as nothing refers to it any more, even if it is being read."""
    yield Planted(collection, "cutoff", lambda now, _settings: now)


WRONG_FORMS = {
    no_look_at_what_exists: 1,
    what_exists_is_ours: 0,
    on_after_an_unclear_put: 0,
    the_log_start_does_not_matter: 1,
    published_before_it_is_created: 0,
    rests_on_the_checkpoint_before: 1,
    a_checkpoint_of_another_number: 0,
    sidecars_are_swept_too_soon: 5,
    an_unclear_sidecar_is_there: 2,
    request_keys_are_forgotten: 2,
    a_repeat_has_a_base_number_of_its_own: 0,
    closed_jobs_commit: 13,
    not_validated_again: 0,
    files_go_while_they_are_read: 27,
}
"""Each form, and a seed that shows it soon. Another one does after a change of the simulation; this is tried first,
so that the others need not be."""


def is_a_finding(error):
    damaged = (Code.ENTRY_DAMAGED, Code.SIDECAR_DAMAGED, Code.TRANSACTION_IMPOSSIBLE)
    return isinstance(error, Violation) or (isinstance(error, Error) and error.code in damaged)


@pytest.mark.parametrize(("form", "seed"), WRONG_FORMS.items(), ids=lambda given: getattr(given, "__name__", "seed"))
def test_a_wrong_form_is_found(form, seed, monkeypatch):
    """Within forty schedules."""
    with planted(form), pytest.raises((Violation, Error), check=is_a_finding):
        run_all([seed, *range(40)], monkeypatch)
