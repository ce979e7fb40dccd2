"""The head goes on and rests on checkpoints while entries are under way, of which the last is never proven."""

import random
import threading

import pytest

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.log.backends.objects import LISTED_MAX, ObjectLog
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed
from lakebed.model.files import checkpoint_name, entry_name, log_start_name, sidecar_folder, sidecar_name
from lakebed.storage import connect
from lakebed.storage.contract import PutOutcome
from lakebed.storage.object_store import ObjectStorage
from lakebed.testing.faults import CountingStorage, Meanwhile
from tests.tables.log.cases import LOG, adding, created, log_on


class Overlapping(CountingStorage):
    """A store where a thread's look at the log start stands still until it is let go."""

    def __init__(self, inner):
        super().__init__(inner)
        self.looks, self.go_on, self.lost = {}, {}, set()

    def get(self, name):
        if name in self.lost:
            raise Code.STORE_UNAVAILABLE(f"{name} is out of reach", transient=True)
        if name == log_start_name(LOG) and (mine := threading.current_thread().name) in self.looks:
            self.looks[mine].set()
            self.go_on[mine].wait(120)
        return super().get(name)


def overlapping(log, storage, proposals):
    """Commit them so that each is proven once the next one's entry is put; yields after each."""
    before, outcomes = None, []
    for version, proposal in enumerate(proposals):
        name = f"commit {version}"
        storage.looks[name], storage.go_on[name] = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda proposal=proposal: outcomes.append(log.commit(proposal)), name=name)
        thread.start()
        assert storage.looks[name].wait(120)
        if before:
            storage.go_on[before.name].set()
            before.join()
            yield outcomes[-1]
        before = thread
    storage.go_on[before.name].set()
    before.join()
    yield outcomes[-1]


@pytest.mark.usefixtures("real_waiting")
def test_the_head_rests_on_each_checkpoint_though_there_is_always_an_entry_under_way(store):
    """Else the memory of a busy table would grow until a moment without a commit."""
    created(store)
    storage = Overlapping(store)
    log = log_on(storage)
    log.follow()
    versions = set()
    for outcome in overlapping(log, storage, [adding(f"f{count}") for count in range(60)]):
        assert isinstance(outcome, Committed)
        versions.add(resting := log.checkpoints.read().version)
        assert len(log.head.state.files.changes) <= log.head.version - resting
    assert len(versions) > 3
    assert log.head.state == log_on(store).follow()


@pytest.mark.usefixtures("real_waiting")
def test_a_sidecar_out_of_reach_keeps_no_entry_back(store):
    """The state is as right where it does not rest on the checkpoint; what puts it there may fail."""
    created(store)
    storage = Overlapping(store)
    log = log_on(storage, limits=LogLimits(inline_references=0))
    log.follow()
    for outcome in overlapping(log, storage, [adding(f"f{count}") for count in range(12)]):
        assert isinstance(outcome, Committed)
        storage.lost = {listed.name for listed in store.list(sidecar_folder(LOG))}
    assert storage.lost
    assert len(log.head.state.files.changes) > log.head.version - log.checkpoints.read().version
    assert log.head.state == log_on(store).follow()


def test_a_listed_entry_that_was_deleted_before_it_is_read_is_not_followed(store):
    """A process that slept has put another one in its place, which continues what the reader knows."""
    log = created(store)
    apart = connect(f"memory://{random_token()}")
    apart.create(entry_name(LOG, 1), store.get(entry_name(LOG, 1)))
    log_on(apart).commit(adding("late"))
    log.commit(adding("f"))
    store.delete([checkpoint_name(LOG)])

    def truncate():
        log.commit(adding("g"))
        log.retain_checkpoint()
        log.wait_for_checkpoint()
        log.backend.advance_log_start(0, 2)
        log.backend.remove([2])
        assert store.create(entry_name(LOG, 2), apart.get(entry_name(LOG, 2))) is PutOutcome.CREATED

    storage = Meanwhile(store, "get", entry_name(LOG, 2), truncate)
    assert log_on(storage).follow() == log.head.state
    assert storage.happened


def test_a_page_of_a_listing_that_others_share_shows_all_entries_or_none():
    """Objects of others lie between the entries, of which a full page then has fewer; sidecars lie after them."""
    memory = connect(f"memory://{random_token()}")
    storage = ObjectStorage(memory.url, "", memory.clients)
    backend = ObjectLog(storage, LOG)
    versions = list(range(1, LISTED_MAX + 1))
    for version in versions[:-1]:
        backend.create(version, b"")
    storage.create(f"{entry_name(LOG, 1)}.bak", b"")
    assert backend.entries_from(1) in (None, versions[:-1])
    backend.create(LISTED_MAX, b"")
    assert backend.entries_from(1) in (None, versions)
    storage.create(sidecar_name(LOG, 1, "0" * 32), b"")
    assert backend.entries_from(3) == versions[2:]


class Shuffled(ObjectStorage):
    """A store that lists in no order, as directory buckets of S3 do."""

    def list(self, prefix, after=""):
        listed = list(super().list(prefix, after))
        random.Random(len(listed)).shuffle(listed)
        return iter(listed)


@pytest.mark.parametrize("count", [5, LISTED_MAX + 300])
def test_a_listing_in_no_order_is_not_taken_for_the_entries_that_follow(count):
    """Not even if its first page happens to show a part of them without a gap."""
    memory = connect(f"memory://{random_token()}")
    backend = ObjectLog(Shuffled(memory.url, "", memory.clients), LOG)
    for version in range(1, count + 1):
        backend.create(version, b"")
    assert backend.entries_from(1) is None
    assert backend.entries_from(count) == [count]
    assert backend.around(2).digest is None
    assert backend.around(count - 2).beyond == count
    assert backend.around(count - 1).beyond == 0
    assert backend.around(count + 1).digest == ""


def test_a_log_is_followed_on_a_store_that_lists_in_no_order():
    memory = connect(f"memory://{random_token()}")
    created(memory)
    for name in "abcdefgh":
        assert isinstance(log_on(memory).commit(adding(name)), Committed)
    shuffled = Shuffled(memory.url, "", memory.clients)
    assert log_on(shuffled).follow() == log_on(memory).follow()
    assert log_on(shuffled).commit(adding("i")) == Committed(10)
