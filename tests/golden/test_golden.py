"""What an earlier Lakebed wrote is read as it was meant, and would be written again byte for byte."""

import shutil
from typing import get_args

import pytest

from lakebed.files import entry_name, snapshot_name
from lakebed.log import entry as entries
from lakebed.log.committer import Log
from lakebed.log.objects import ObjectLog
from lakebed.log.replay import advance
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.state import codec
from lakebed.state.image import of_table
from lakebed.state.machine import TABLE
from lakebed.state.table import check_invariants
from lakebed.state.transactions import Mark, RaiseMark, Transaction
from lakebed.storage import LocalStorage
from lakebed.verification import verify
from tests.golden.write import FOLDER, PREFIX, TABLE_ID, encoded


@pytest.fixture
def storage(tmp_path):
    """A copy: a store may put things of its own beside what it holds."""
    return LocalStorage(shutil.copytree(FOLDER, tmp_path / "store"))


def stored(storage):
    """The bytes of every entry, in order."""
    found, number = [], 1
    while (data := storage.get(entry_name(PREFIX, number))) is not None:
        found.append(data)
        number += 1
    return found


def test_every_entry_is_written_again_byte_for_byte(storage):
    """And there is one of every kind of transaction and mark; a new kind needs a new golden table."""
    kinds, marks, previous = set(), set(), ""
    for number, data in enumerate(stored(storage), 1):
        entry = entries.decode(data, TABLE_ID, number, previous)
        transactions = [codec.decode_transaction(document) for document in entry.documents]
        assert encoded(number, [codec.encode_transaction(one) for one in transactions], previous) == data
        kinds |= set(map(type, transactions))
        marks |= {one.mark for one in transactions if isinstance(one, RaiseMark)}
        previous = entry.digest
    assert kinds == set(get_args(Transaction))
    assert marks == set(Mark)


def test_the_entries_lead_to_the_state_of_the_snapshot(storage):
    """So neither applying nor reading a snapshot has changed its meaning; the document is written again as it was."""
    log = Log(ObjectLog(storage, PREFIX), SnapshotPlace(storage, PREFIX), TABLE_ID, TABLE)
    snapshot = log.snapshots.read()
    head = Head(0, "", TABLE.empty)
    for data in stored(storage)[: snapshot.number]:
        head, _ = advance(head, data, TABLE_ID, TABLE)
        check_invariants(head.state)
    assert head == snapshot
    assert of_table(head.state).document == of_table(snapshot.state).document
    state = head.state
    for held in (state.files, state.references, state.requests, state.open_requests):
        assert len(held)
    for held in (state.jobs, state.tags, state.fences, state.settings, state.leaves.parents):
        assert len(held)
    assert min(state.retained_from, state.forget_line, state.orphan_horizon_us) > 0
    report = verify(log, TABLE_ID, "golden", None)
    assert (report.sound, report.number, report.snapshot) == (True, snapshot.number + 1, snapshot.number)


def test_the_snapshot_is_written_again_as_it_was(storage, tmp_path):
    """Its state's line: the bytes of Arrow's parts may differ from one of its versions to the next, their rows not."""
    place = SnapshotPlace(storage, PREFIX)
    found = Snapshots(place, TABLE_ID, TABLE).read()
    again = SnapshotPlace(LocalStorage(tmp_path / "again"), PREFIX)
    Snapshots(again, TABLE_ID, TABLE).write(found)

    bodies = [entries.decode_snapshot(one.storage.get(snapshot_name(PREFIX)), TABLE_ID)[2] for one in (place, again)]
    assert bodies[0]["state"] == bodies[1]["state"]
    assert list(bodies[0]["state"]) == list(bodies[1]["state"])
    assert bodies[0]["parts"].keys() == bodies[1]["parts"].keys()
    assert Snapshots(again, TABLE_ID, TABLE).read() == found
