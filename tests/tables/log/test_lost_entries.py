"""A log that lost entries says so to its readers and writers, and nothing is put into their place."""

import pytest

from lakebed.errors import Code, DamagedError
from lakebed.log.log_limits import LogLimits
from lakebed.model.files import checkpoint_name, entry_name
from lakebed.testing.faults import CountingStorage
from tests.tables.log.cases import LOG, adding, created, log_on

COUNT = 12


@pytest.fixture
def log(store):
    """Versions 1 to 13, without a checkpoint."""
    log = created(store)
    for number in range(COUNT):
        log.commit(adding(f"f{number}"))
    log.wait_for_checkpoint()
    store.delete([checkpoint_name(LOG)])
    return log


def lose(store, *versions):
    store.delete([entry_name(LOG, version) for version in versions])


CALLS = {"read": lambda log: log.follow(), "write": lambda log: log.commit(adding("late"))}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "lost", [(1,), (2,), (7,), (12,), (5, 6), (5, 9), tuple(range(2, 13)), tuple(range(1, 13))], ids=str
)
def test_a_gap_is_reported_at_the_first_read_and_at_the_first_write(store, log, lost, call):
    """However long it is, and wherever; else the entry before it is taken for the newest."""
    lose(store, *lost)
    fresh = log_on(store)
    for _ in range(2):
        with pytest.raises(DamagedError, match=rf"entry {lost[0]} of table-00 is missing from the log") as raised:
            call(fresh)
    assert raised.value.code is Code.ENTRY_MISSING
    assert store.get(entry_name(LOG, lost[0])) is None


def test_an_entry_that_is_put_back_makes_everything_well(store, log):
    kept = store.get(entry_name(LOG, 7))
    lose(store, 7)
    fresh = log_on(store)
    with pytest.raises(DamagedError) as raised:
        fresh.follow()
    assert raised.value.code is Code.ENTRY_MISSING
    store.create(entry_name(LOG, 7), kept)
    assert fresh.follow() == log.head.state


def test_the_look_takes_one_request_of_a_process_and_one_of_a_writer(store, log):
    """What a process read may be old when it first commits; if it did not read before, one look serves both."""
    counting = CountingStorage(store)
    fresh = log_on(counting)
    fresh.follow()
    assert counting.calls["list"] == 1
    counting.clear()
    fresh.follow()
    assert counting.calls == {"get": 2}
    for lists in (1, 1):
        fresh.commit(adding(f"late {len(fresh.head.state.files)}"))
        assert counting.calls["list"] == lists
    counting.clear()
    log_on(counting).commit(adding("first"))
    assert counting.calls["list"] == 1


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_checkpoint_beyond_the_end_is_a_witness(store, log, call):
    """The last entries are lost: the log ends before the state that a new process begins with."""
    log.checkpoints.write(log.head)
    lose(store, *range(9, 14))
    with pytest.raises(DamagedError, match="the log of table-00 went back: entry 13") as raised:
        call(log_on(store))
    assert raised.value.code is Code.LOG_WENT_BACK


def test_a_process_that_knew_the_lost_entries_gets_an_error_after_a_while(store, log):
    """A look at its last entry takes a request, so it is not made at each read."""
    lose(store, *range(9, 14))
    log.limits = LogLimits(look_s=0.0)
    with pytest.raises(DamagedError, match="went back: entry 13"):
        log.follow()


def test_a_writer_that_knew_the_lost_entries_gets_an_error_by_the_time_of_the_last(store, log, monkeypatch):
    """Its entry records when the one before was stored, unless it follows at once or a checkpoint is due."""
    log.limits = LogLimits(last_modified_pause_s=0)
    monkeypatch.setattr(log.checkpoints, "due", lambda entry_bytes=0: False)
    lose(store, *range(9, 14))
    with pytest.raises(DamagedError, match=r"went back: entry 13|entry 13 of table-00 is missing"):
        log.commit(adding("late"))
    assert store.get(entry_name(LOG, 14)) is None


def test_an_entry_of_another_history_is_distinguished_from_a_damaged_one(store, log):
    """The log went back and grew beyond what this process knows."""
    lose(store, *range(9, 14))
    other = log_on(store)
    for number in range(7):
        other.commit(adding(f"other-{number}"))
    with pytest.raises(DamagedError, match="went back: entry 13"):
        log.follow()


def test_an_empty_log_has_no_gap(store):
    assert log_on(store).follow().version == 0
