"""Writers of one machine take turns at a log on local disk, and lose no race; nothing correct depends on it."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakebed.log.backends.objects import ObjectLog
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed
from lakebed.storage import LocalStorage, PutOutcome
from tests.tables.log.cases import adding, created, log_on

PREFIX = "tables/t"
HOLDER = """
import sys, time
from lakebed.storage.syscalls import turn
with turn(sys.argv[1], 10, 0.001) as has_turn:
    print(has_turn, flush=True)
    time.sleep(60)
"""


class _Counted(LocalStorage):
    """Counts the creates of entries, and those that were refused."""

    def __init__(self, root):
        super().__init__(root, durability="none")
        self.creates = Counter()

    def create(self, name, data):
        outcome = super().create(name, data)
        if "/log/" in name:
            self.creates[outcome] += 1
        return outcome


@pytest.fixture
def folder(tmp_path):
    """A folder whose turn can be taken."""
    store = LocalStorage(tmp_path, durability="none")
    store.create(f"{PREFIX}/log/x", b"")
    (place,) = (path.parent for path in tmp_path.rglob("x"))
    return place


@pytest.fixture
def holder(folder):
    """A process that has the turn of the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def turns(folder):
    return ObjectLog(LocalStorage(folder.parents[2]), PREFIX)


def test_one_writer_has_its_turn_at_a_time(folder, real_waiting):
    """Each reads, waits and writes a number, which another's turn in between would overwrite."""
    number = folder / "number"
    number.write_text("0")

    def add_one(_):
        with turns(folder).turn(30, 0.001) as has_turn:
            assert has_turn
            found = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(found + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_one, range(40)))
    assert number.read_text() == "40"


def test_a_turn_is_waited_for_within_a_bound(folder, holder):
    with turns(folder).turn(0.0, 0.001) as has_turn:
        assert not has_turn


def test_the_turn_of_a_process_that_died_is_free(folder, holder, real_waiting):
    holder.kill()
    with turns(folder).turn(30, 0.001) as has_turn:
        assert has_turn


def test_without_a_folder_and_in_other_stores_there_are_no_turns(tmp_path, store):
    for storage in (LocalStorage(tmp_path / "none"), store):
        with ObjectLog(storage, PREFIX).turn(1, 0.001) as has_turn:
            assert not has_turn


def test_a_turn_leaves_no_file(folder):
    before = sorted(folder.iterdir())
    with turns(folder).turn(1, 0.001) as has_turn:
        assert has_turn
        assert sorted(folder.iterdir()) == before


def test_writers_that_have_met_lose_no_more_races(tmp_path, real_waiting):
    """Each has a log and a store of its own, as processes have. The first race makes them take turns."""
    created(LocalStorage(tmp_path, durability="none"))
    stores = [_Counted(tmp_path) for _ in range(3)]
    logs = [log_on(store) for store in stores]
    for number, log in enumerate(logs):
        log.local._backoff.lost()
        assert isinstance(log.commit(adding(f"first{number}")), Committed)
    for store in stores:
        store.creates.clear()

    def write(number):
        return [logs[number].commit(adding(f"f{number}-{count}")) for count in range(15)]

    with ThreadPoolExecutor(3) as pool:
        outcomes = [outcome for found in pool.map(write, range(3)) for outcome in found]
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert sum((store.creates for store in stores), Counter()) == {PutOutcome.CREATED: 45}
    assert len(log_on(LocalStorage(tmp_path)).follow().files) == 48


def test_a_stopped_process_holds_up_no_other_for_good(tmp_path, real_waiting):
    """It has the turn and does not go on: the others wait once, and then do without turns."""
    log = created(LocalStorage(tmp_path, durability="none"), LogLimits(turn_wait_s=0.05))
    (place,) = (path for path in tmp_path.rglob("log") if path.is_dir())
    process = subprocess.Popen([sys.executable, "-c", HOLDER, place], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "True\n"
        os.kill(process.pid, signal.SIGSTOP)
        log.local._backoff.lost()
        assert isinstance(log.commit(adding("f1")), Committed)
        assert not log.local._backoff.wants_turn()
        assert isinstance(log.commit(adding("f2")), Committed)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
