"""Objects written by an earlier Lakebed are read correctly, and would be written again byte for byte."""

import shutil
from typing import get_args

import pytest

from lakebed.log import entry as entries
from lakebed.log.backends.objects import ObjectLog
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.log.log import Log
from lakebed.log.replay import advance
from lakebed.model.files import checkpoint_name, entry_name
from lakebed.model.state import codec
from lakebed.model.state.checkpoint_codec import of_table
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import RaiseWatermark, Transaction, Watermark
from lakebed.read.inspect.verification import verify
from lakebed.storage import LocalStorage
from tests.golden.write import FOLDER, PREFIX, TABLE_ID, encoded


@pytest.fixture
def storage(tmp_path):
    """A copy, because a store may add its own objects."""
    return LocalStorage(shutil.copytree(FOLDER, tmp_path / "store"))


def stored(storage):
    """Return the bytes of every entry, in order."""
    found, version = [], 1
    while (data := storage.get(entry_name(PREFIX, version))) is not None:
        found.append(data)
        version += 1
    return found


def test_every_entry_is_written_again_byte_for_byte(storage):
    """There is one of every kind of transaction and watermark; a new kind needs a new golden table."""
    kinds, marks, previous = set(), set(), ""
    for version, data in enumerate(stored(storage), 1):
        entry = entries.decode(data, TABLE_ID, version, previous)
        (transaction,) = map(codec.decode_transaction, entry.documents)
        assert encoded(version, transaction, previous) == data
        kinds.add(type(transaction))
        marks |= {transaction.mark} if isinstance(transaction, RaiseWatermark) else set()
        previous = entry.digest
    assert kinds == set(get_args(Transaction))
    assert marks == set(Watermark)


def test_the_entries_lead_to_the_state_of_the_checkpoint(storage):
    """So neither applying nor reading a checkpoint has changed its meaning; the document is written again unchanged."""
    log = Log(ObjectLog(storage, PREFIX), CheckpointLocation(storage, PREFIX), TABLE_ID, TABLE)
    checkpoint = log.checkpoints.read()
    head = Head(0, "", TABLE.empty)
    for data in stored(storage)[: checkpoint.version]:
        head = advance(head, data, TABLE_ID, TABLE, log.read_sidecars).head
        check_invariants(head.state)
    assert head == checkpoint
    assert of_table(head.state).document == of_table(checkpoint.state).document
    state = head.state
    for held in (state.files, state.references, state.requests, state.open_requests):
        assert len(held)
    for held in (state.jobs, state.tags, state.fences, state.settings, state.partitions.parents):
        assert len(held)
    assert min(state.earliest_retained_version, state.request_watermark, state.orphan_cutoff_us) > 0
    report = verify(log, TABLE_ID, "golden", None)
    assert (report.sound, report.version, report.checkpoint) == (True, checkpoint.version + 1, checkpoint.version)


def test_the_checkpoint_is_written_again_as_it_was(storage, tmp_path):
    """The line of the state: the bytes of Arrow's parts may differ between versions of Arrow, their rows may not."""
    place = CheckpointLocation(storage, PREFIX)
    found = Checkpoints(place, TABLE_ID, TABLE).read()
    again = CheckpointLocation(LocalStorage(tmp_path / "again"), PREFIX)
    Checkpoints(again, TABLE_ID, TABLE).write(found)

    bodies = [
        entries.decode_checkpoint(one.storage.get(checkpoint_name(PREFIX)), TABLE_ID)[2] for one in (place, again)
    ]
    assert bodies[0]["state"] == bodies[1]["state"]
    assert list(bodies[0]["state"]) == list(bodies[1]["state"])
    assert bodies[0]["segments"].keys() == bodies[1]["segments"].keys()
    assert Checkpoints(again, TABLE_ID, TABLE).read() == found
