"""The head goes on and rests on snapshots while entries are under way, of which the last is never proven."""

import threading

import pytest

from lakebed.errors import StorageError
from lakebed.files import floor_name, side_folder
from lakebed.log.outcomes import Committed
from lakebed.state import bulk
from lakebed.testing.faults import CountingStorage
from tests.unit.log.cases import LOG, adding, created, log_on


class Overlapping(CountingStorage):
    """A store where a thread's look at the floor stands still until it is told to go on."""

    def __init__(self, inner):
        super().__init__(inner)
        self.looks, self.go_on, self.lost = {}, {}, set()

    def get(self, name):
        if name in self.lost:
            raise StorageError(f"{name} is out of reach", transient=True)
        if name == floor_name(LOG) and (mine := threading.current_thread().name) in self.looks:
            self.looks[mine].set()
            self.go_on[mine].wait(10)
        return super().get(name)


def overlapping(log, storage, offers):
    """Commit them so that each is proven once the next one's entry is put; yields after each."""
    before, outcomes = None, []
    for number, offer in enumerate(offers):
        name = f"commit {number}"
        storage.looks[name], storage.go_on[name] = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda offer=offer: outcomes.append(log.commit(offer)), name=name)
        thread.start()
        assert storage.looks[name].wait(10)
        if before:
            storage.go_on[before.name].set()
            before.join()
            yield outcomes[-1]
        before = thread
    storage.go_on[before.name].set()
    before.join()
    yield outcomes[-1]


@pytest.mark.usefixtures("real_waiting")
def test_the_head_rests_on_each_snapshot_though_there_is_always_an_entry_under_way(store):
    """Else the memory of a busy table would grow until a moment without a commit."""
    created(store)
    storage = Overlapping(store)
    log = log_on(storage)
    log.follow()
    numbers = set()
    for outcome in overlapping(log, storage, [adding(f"f{count}") for count in range(60)]):
        assert isinstance(outcome, Committed)
        numbers.add(resting := log.snapshots.read().number)
        assert len(log.head.state.files.changes) <= log.head.number - resting
    assert len(numbers) > 3
    assert log.head.state == log_on(store).follow()


@pytest.mark.usefixtures("real_waiting")
def test_a_side_object_out_of_reach_keeps_no_entry_back(store, monkeypatch):
    """The state is as right where it does not rest on the snapshot; what puts it there may fail."""
    monkeypatch.setattr(bulk, "INLINE_MAX", 0)
    created(store)
    storage = Overlapping(store)
    log = log_on(storage)
    log.follow()
    for outcome in overlapping(log, storage, [adding(f"f{count}") for count in range(12)]):
        assert isinstance(outcome, Committed)
        storage.lost = {listed.name for listed in store.list(side_folder(LOG))}
    assert storage.lost
    assert len(log.head.state.files.changes) > log.head.number - log.snapshots.read().number
    assert log.head.state == log_on(store).follow()
