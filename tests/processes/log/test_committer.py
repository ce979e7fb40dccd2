"""Commits: group by group, against other writers, and whatever the store answers or does not answer."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakebed.errors import Code, ContentionError, StorageError
from lakebed.log.log_limits import LIMITS, LogLimits
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, Unknown, version_of
from lakebed.model.state.transactions import CloseJob
from lakebed.storage import LocalStorage
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from tests.clocks import set_clock
from tests.raising import raises
from tests.tables.log.cases import adding, created, log_on


def test_entries_are_numbered_without_gap_and_every_reader_sees_the_same(store):
    """A second log object follows the first."""
    writer, reader = created(store), log_on(store)
    for count in range(5):
        assert writer.commit(adding(f"f{count}")) == Committed(count + 2)
    assert reader.follow() == writer.head.state
    assert reader.head.digest == writer.head.digest


def test_a_lost_race_is_judged_again_on_the_state_that_won(store):
    """The writer with the old snapshot commits at the next version, or learns that its request was done."""
    one, two = created(store), log_on(store)
    two.follow()
    one.commit(adding("f1", "request"))
    assert two.commit(adding("f2")) == Committed(3)
    three = log_on(store)
    assert three.commit(adding("f9", "request")) == Committed(2, repeated=True)
    assert set(three.follow().files) == {"f1", "f2"}


def test_a_refusal_is_reported_on_the_newest_state_only(store):
    """A job opened by another process is found before its closing is refused."""
    from tests.pure.state.cases import job

    one, two = created(store), log_on(store)
    one.commit(adding("f1"))
    two.follow()
    from lakebed.model.state.transactions import OpenJob

    one.commit(OpenJob(job("j1", "f1")))
    assert two.commit(CloseJob("j1", "seen")) == Committed(4)
    assert isinstance(two.commit(CloseJob("j1", "again")), NotCommitted)


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CONFLICT, Fault.LATE])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_unclear_put_is_settled_by_putting_again(store, fault, call):
    """Whether it took effect, will, or never does: one entry, reported as committed."""
    created(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(fault, "create", "*/log/*", calls={call})]))
    log = log_on(faulty)
    outcomes = [log.commit(adding(f"f{n}")) for n in range(4)]
    faulty.settle()

    assert faulty.fired[fault] == 1
    assert outcomes == [Committed(n + 2) for n in range(4)]
    assert sorted(log_on(store).follow().files) == ["f0", "f1", "f2", "f3"]


def test_a_late_put_that_lost_its_slot_doubles_nothing(store):
    """Ours is still under way when another writer takes the version."""
    created(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(Fault.LATE, "create", "*/log/*", calls={1}, later_calls=50)]))
    log = log_on(faulty)
    log.follow()
    other = log_on(store)
    other.commit(adding("other"))
    assert log.commit(adding("ours")) == Committed(3)
    faulty.settle()
    assert sorted(log_on(store).follow().files) == ["other", "ours"]


def test_a_store_that_stays_silent_leaves_the_outcome_unknown_and_the_slot_ours_to_settle(store):
    """The next commit settles it first, so nothing is doubled and nothing jumps ahead."""
    created(store)
    rules = [Rule(Fault.FAIL_AFTER, "create", "*/log/*", calls=range(1, LIMITS.settle_puts + 1))]
    log = log_on(FaultyStorage(store, FaultPlan(rules)))
    assert log.commit(adding("f1", "request")) == Unknown(2)
    assert log.commit(adding("f1-again", "request")) == Committed(2, repeated=True)
    assert log.commit(adding("f2")) == Committed(3)


def test_while_an_unknown_put_is_under_way_nothing_else_is_proposed(store):
    """The store is silent for longer than one commit."""
    created(store)
    rules = [Rule(Fault.FAIL_BEFORE, "create", "*/log/*", calls=range(1, 2 * LIMITS.settle_puts + 1))]
    log = log_on(FaultyStorage(store, FaultPlan(rules)))
    assert log.commit(adding("f1")) == Unknown(2)
    assert isinstance(log.commit(adding("f2")), Contended)
    assert log.commit(adding("f3")) == Committed(3)
    assert sorted(log_on(store).follow().files) == ["f1", "f3"]


def test_a_full_store_is_an_error_and_commits_nothing(store):
    """And the next commit goes on."""
    created(store)
    log = log_on(FaultyStorage(store, FaultPlan([Rule(Fault.FULL, "create", "*/log/*", calls={1})])))
    with raises(Code.STORE_FULL):
        log.commit(adding("f1"))
    assert log.commit(adding("f2")) == Committed(2)


def all_at_once(log, gate, commit, names):
    """Have a thread commit each name: the gate opens when the first commits, and all others wait."""
    threads = [threading.Thread(target=commit, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    while len(log.local.queue) < len(threads) - 1 and not gate.wait(0.01):
        pass
    gate.set()
    for thread in threads:
        thread.join()


def test_waiting_callers_share_an_entry_and_get_their_own_outcomes(store):
    """A refused one spoils no other."""
    created(store)
    gate = threading.Event()

    class Slow(CountingStorage):
        def create(self, name, data):
            gate.wait(120)
            return super().create(name, data)

    slow = Slow(store)
    log = log_on(slow)
    log.follow()
    outcomes = {}

    def commit(name):
        outcomes[name] = log.commit(CloseJob("none", "x") if name == "bad" else adding(name))

    all_at_once(log, gate, commit, ["first", "bad", *map(str, range(8))])

    assert isinstance(outcomes.pop("bad"), NotCommitted)
    assert all(isinstance(o, Committed) for o in outcomes.values())
    assert log.head.version <= 4
    assert len(log_on(store).follow().files) == 9


@pytest.mark.parametrize("interrupted", ["put", "stored"])
def test_an_interrupt_of_the_leader_proposals_what_may_be_stored_no_second_time(store, monkeypatch, interrupted):
    """It would be rejected, as in the table already, and a writer that gets this answer deletes its files."""
    created(store)
    gate = threading.Event()

    def interrupt(moment):
        moments.append(moment)
        # The first entry is of one caller, the second of all others.
        if moment == interrupted and moments.count(moment) == 2:
            raise KeyboardInterrupt

    class Slow(CountingStorage):
        def create(self, name, data):
            gate.wait(120)
            outcome = super().create(name, data)
            if "/log/" in name:
                interrupt("put")
            return outcome

    moments, outcomes = [], {}
    log = log_on(Slow(store))
    log.follow()
    monkeypatch.setattr(log.local._backoff, "won", lambda _: interrupt("stored"))

    def commit(name):
        try:
            outcomes[name] = log.commit(adding(name))
        except KeyboardInterrupt:
            outcomes[name] = None

    all_at_once(log, gate, commit, map(str, range(8)))

    assert sorted(type(outcome).__name__ for outcome in outcomes.values()) == ["Committed", "NoneType"] + 6 * [
        "Unknown"
    ]
    assert len(log_on(store).follow().files) == 8


def test_many_writers_on_one_log_lose_and_double_nothing(store):
    """Eight logs, as if eight processes, over a store that loses answers."""
    created(store)
    plans = [FaultPlan([Rule(Fault.FAIL_AFTER, "create", "*/log/*", probability=0.2)], seed=n) for n in range(8)]
    logs = [log_on(FaultyStorage(store, plan)) for plan in plans]
    failures = []

    def write(index):
        for count in range(10):
            outcome = logs[index].commit(adding(f"f{index}-{count}", f"{index}-{count}"))
            if not isinstance(outcome, Committed):
                failures.append(outcome)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    state = log_on(store).follow()
    assert len(state.files) == 80
    assert sum(log.backend.storage.fired[Fault.FAIL_AFTER] for log in logs) > 0


def test_a_lost_race_takes_one_read(store):
    """What filled the log position is the entry that was missed. The log start, read once, proves it and the next."""
    # However slow the machine: an entry that follows another at once asks for no last-modified time.
    one, counting = created(store), CountingStorage(store)
    two = log_on(counting, limits=LogLimits(last_modified_pause_s=3600.0))
    two.commit(adding("f1"))
    one.commit(adding("f2"))
    counting.clear()
    assert two.commit(adding("f3")) == Committed(4)
    assert counting.calls == {"create": 2, "get": 1 + 1}


def test_a_second_lost_race_reads_to_the_end_of_the_log_and_no_log_start(store):
    """The log start is read once, after the put, and proves all that was read before."""
    rival, races = created(store), iter(range(2))

    class Raced(CountingStorage):
        def create(self, name, data):
            for race in races:
                rival.commit(adding(f"rival-{race}"))
                break
            return super().create(name, data)

    counting = Raced(store)
    log = log_on(counting, limits=LogLimits(last_modified_pause_s=3600.0))
    log.follow()
    counting.clear()
    assert log.commit(adding("ours")) == Committed(4)
    winners, end, log_start = 2, 1, 1
    assert (counting.calls["create"], counting.calls["get"]) == (3, winners + end + log_start)
    assert set(log.head.state.files) == {"rival-0", "rival-1", "ours"}


def test_losing_is_bounded_by_time(store, monkeypatch):
    """A rival takes each version just before; the waits alone make the time."""
    created(store)
    now_s = [0.0]
    set_clock(monkeypatch, monotonic_s=lambda: now_s[0], sleep=lambda seconds: now_s.__setitem__(0, now_s[0] + seconds))
    rival = log_on(store)
    names = iter(range(100_000))

    class Hurried(CountingStorage):
        def create(self, name, data):
            rival.commit(adding(f"rival-{next(names)}"))
            return super().create(name, data)

    log = log_on(Hurried(store), limits=LogLimits(losing_s=1.0))
    outcome = log.commit(adding("ours"))
    assert isinstance(outcome, Contended)
    assert 1.0 <= now_s[0] < 1.1
    assert outcome.attempts > 20
    assert "ours" not in log_on(store).follow().files


def test_a_full_queue_refuses_at_once_and_nothing_is_proposed(store):
    """One commits, two wait, the next is asked to come again."""
    created(store)
    begun, gate = threading.Event(), threading.Event()

    class Slow(CountingStorage):
        def create(self, name, data):
            begun.set()
            gate.wait(120)
            return super().create(name, data)

    slow = Slow(store)
    log = log_on(slow, limits=LogLimits(queue_max=2))
    log.follow()
    threads = [threading.Thread(target=log.commit, args=(adding(f"f{n}"),)) for n in range(3)]
    threads[0].start()
    assert begun.wait(120)
    for thread in threads[1:]:
        thread.start()
    while len(log.local.queue) < 2:
        gate.wait(0.001)
    outcome = log.commit(adding("late"))
    gate.set()
    for thread in threads:
        thread.join()

    assert outcome == Crowded(2)
    with pytest.raises(ContentionError, match="already wait for the log"):
        version_of(outcome, "write")
    assert set(log_on(store).follow().files) == {"f0", "f1", "f2"}


def test_while_a_checkpoint_is_written_no_entry_is_read_back(store, checkpoints_later, real_waiting):
    """The state rests on what was written, and what came meanwhile was kept. Only the log start is read, once a
    commit."""
    created(store).wait_for_checkpoint()
    gate = threading.Event()

    class Slow(CountingStorage):
        def replace(self, name, data):
            gate.wait(120)
            super().replace(name, data)

    counting = Slow(store)
    log = log_on(counting)
    log.commit(adding("f0"))
    counting.clear()
    for count in range(1, 10):
        log.commit(adding(f"f{count}"))
    expected = log.head.state
    gate.set()
    log.wait_for_checkpoint()

    assert counting.calls["get"] == 9
    assert counting.calls["replace"] == 1
    assert log.head.state is not expected
    assert log.head.state == expected
    assert log.commit(adding("f10")) == Committed(12)


WRITER = """
import sys
from tests.tables.log.cases import adding, log_on
from lakebed.log.outcomes import Committed
from lakebed.storage import LocalStorage

log, mine = log_on(LocalStorage(sys.argv[1], durability="none")), sys.argv[2]
log.follow()
print("ready", flush=True)
sys.stdin.readline()
for count in range(50):
    outcome = log.commit(adding(f"{mine}-{count}"))
    assert isinstance(outcome, Committed), outcome
    print(f"{mine}-{count}", outcome.version, flush=True)
log.wait_for_checkpoint()
"""


def test_processes_that_know_nothing_of_each_other_lose_and_double_nothing(tmp_path, real_waiting):
    """Four of them, fifty commits each: each is where its outcome says."""
    created(LocalStorage(tmp_path, durability="none")).wait_for_checkpoint()
    start = [sys.executable, "-c", WRITER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[3]}
    writers = [subprocess.Popen([*start, f"w{number}"], **pipes) for number in range(4)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    committed = [line.split() for writer in writers for line in writer.communicate(timeout=120)[0].splitlines()]

    assert all(writer.returncode == 0 for writer in writers)
    files = log_on(LocalStorage(tmp_path)).follow().files
    assert len(committed) == len(files) == 200
    assert {name: int(version) for name, version in committed} == {name: files[name].added for name in files}


def test_a_store_that_does_not_answer_fails_the_whole_group_at_once(store, monkeypatch):
    """None of it is in the log. Each caller would wait for the store in turn else."""
    created(store)
    rules = [Rule(Fault.FAIL_BEFORE, "get", "*/log/*"), Rule(Fault.FAIL_BEFORE, "list")]
    log = log_on(FaultyStorage(store, FaultPlan(rules)))
    log.tail.open()
    log.limits = LogLimits(fresh_s=-1.0)
    asked, gate = [], threading.Event()
    follow = log.tail.follow

    def slow():
        asked.append(1)
        gate.wait(120)
        return follow()

    monkeypatch.setattr(log.tail, "follow", slow)
    errors = []

    def commit(number):
        try:
            log.commit(adding(f"f{number}"))
        except StorageError as error:
            errors.append(error)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(20)]
    threads[0].start()
    while not asked:
        gate.wait(0.01)
    for thread in threads[1:]:
        thread.start()
    while len(log.local.queue) < 19:
        threads[0].join(0.01)
    gate.set()
    for thread in threads:
        thread.join()
    assert len({id(error) for error in errors}) == 20
    assert all(error.transient for error in errors)
    assert len(asked) == 2
    assert log_on(store).follow().files == {}
