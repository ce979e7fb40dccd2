"""A follower of a source while the store fails; the source is in memory."""

from __future__ import annotations

import os
from datetime import timedelta

import pyarrow as pa
from msgspec import structs

import lakebed
from lakebed.clock import now, random_token
from lakebed.errors import Code
from lakebed.model.files import follow_name
from lakebed.storage import processes
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.follow.change_source import Lag, SourceProgress
from lakebed.upkeep.follow.follow_record import FollowRecord, drop_record, read_record, read_records, write_record
from lakebed.upkeep.follow.run import FollowOptions, SourceFollower
from lakebed.upkeep.follow.target import SourceColumns
from tests.raising import raises
from tests.tables.retention.cases import through

COLUMNS = SourceColumns("numbers", ("k",), {"k": "int64", "v": "int64"})


class Numbers:
    """One stream of the rows 1, 2, 3 …, each at its own position, one at each read."""

    url = id = "numbers://here"

    def __init__(self, count: int) -> None:
        self.count = count
        self.confirmed = 0

    def open(self, following) -> None:
        following.prepared(self.id)
        self._target = following.target("numbers", COLUMNS)
        if not self._target.positions:
            schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
            following.load(
                self._target, {0: 1}, iter([pa.RecordBatch.from_pydict({"k": [1], "v": [1]}, schema)]), schema
            )
        self._read = self._target.positions[0]

    def read(self, deadline_s, full) -> bool:
        if self._read < self.count:
            self._read += 1
            self._target.pending.add(pa.RecordBatch.from_pydict({"k": [self._read], "v": [self._read]}))
        return False

    def positions(self):
        return {0: self._read}

    def confirm(self, positions) -> None:
        self.confirmed = positions[0]

    def beat(self) -> None:
        pass

    def progress(self, positions):
        return SourceProgress({"number": str(positions[0])}, Lag(0, "rows", 0.0))

    def target_end(self):
        return {0: self.count}

    def close(self) -> None:
        pass


def test_a_store_that_fails_to_take_the_record_is_tried_again():
    """The record says as well why the follower failed, and that cannot be written either."""
    lake = lakebed.create(f"memory://{random_token()}")
    storage = FaultyStorage(lake.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "replace", "follows/*", {2, 3})]))
    source, said = Numbers(3), []
    follower = SourceFollower(through(lake, storage), source, FollowOptions("numbers", "dead"), said.append)
    report = follower.run(until_caught_up=True)
    assert storage.fired[Fault.FAIL_BEFORE] == 2
    assert [line for line in said if "trying again" in line]
    assert (report.place, source.confirmed) == ({"number": "3"}, 3)
    assert sorted(lake["numbers"].scan().read_all()["k"].to_pylist()) == [1, 2, 3]


def test_a_damaged_record_is_the_error_of_its_follower_alone():
    lake = lakebed.create(f"memory://{random_token()}")
    write_record(lake.storage, FollowRecord(name="sound", url="numbers://here", source="numbers"))
    lake.storage.replace(follow_name("damaged"), b"{")
    damaged, sound = read_records(lake.storage)
    assert (damaged.name, "delete the object" in (damaged.error or "")) == ("damaged", True)
    assert (sound.name, sound.error) == ("sound", None)


class Values(Numbers):
    """The values 1, 2, 3 … of one row; ``pause`` is called when the next one was read, before it is committed."""

    pause = staticmethod(lambda: None)

    def read(self, deadline_s, full) -> bool:
        if self._read < self.count:
            self._read += 1
            self._target.pending.add(pa.RecordBatch.from_pydict({"k": [1], "v": [self._read]}))
            self.pause()
        return False


def test_a_follower_that_was_suspended_commits_nothing_older_than_another_one():
    lake, said = lakebed.create(f"memory://{random_token()}"), []
    options = FollowOptions("numbers", "dead")
    suspended = Values(4)

    def others() -> None:
        suspended.pause = lambda: None
        SourceFollower(lake, Values(4), options).run(until_caught_up=True)
        assert lake["numbers"].get(1)["v"].to_pylist() == [4]

    suspended.pause = others
    SourceFollower(lake, suspended, options, said.append).run(until_caught_up=True)
    assert lake["numbers"].get(1)["v"].to_pylist() == [4]
    assert [line for line in said if "another follower" in line]


def test_rows_of_others_delay_a_commit_and_stay():
    lake = lakebed.create(f"memory://{random_token()}")
    source = Values(2)
    source.pause = lambda: lake["numbers"].write(pa.table({"k": [7], "v": [7]}))
    SourceFollower(lake, source, FollowOptions("numbers", "dead")).run(until_caught_up=True)
    assert lake["numbers"].scan().read_all().to_pylist() == [{"k": 1, "v": 2}, {"k": 7, "v": 7}]


def test_a_truncation_removes_the_rows_that_were_there():
    lake = lakebed.create(f"memory://{random_token()}")
    SourceFollower(lake, Numbers(2), FollowOptions("numbers", "dead")).run(until_caught_up=True)
    source = Values(3)
    opened, source.open = source.open, lambda following: (opened(following), source._target.pending.truncate())
    SourceFollower(lake, source, FollowOptions("numbers", "dead")).run(until_caught_up=True)
    assert lake["numbers"].scan().read_all().to_pylist() == [{"k": 1, "v": 3}]


def test_a_follower_that_runs_keeps_others_of_its_name_away_and_is_not_dropped():
    lake, said = lakebed.create(f"memory://{random_token()}"), []
    SourceFollower(lake, Numbers(2), FollowOptions("numbers", "dead")).run(until_caught_up=True)
    ended = read_record(lake.storage, "numbers")
    assert ended.holder == ""
    running = structs.replace(ended, holder=processes._owner(os.getppid()), at=now().isoformat())
    write_record(lake.storage, running)
    with raises(Code.SOURCE_BUSY, "runs already"):
        drop_record(lake.storage, "numbers")
    waiting = SourceFollower(lake, Numbers(3), FollowOptions("numbers", "dead"), said.append)
    waiting.run(stop=lambda: bool(said))
    assert "runs already" in said[0]
    assert read_record(lake.storage, "numbers") == running

    write_record(lake.storage, structs.replace(running, at=(now() - timedelta(minutes=1)).isoformat()))
    assert SourceFollower(lake, Numbers(3), FollowOptions("numbers", "dead")).run(until_caught_up=True).changes == 1
    drop_record(lake.storage, "numbers")
    with raises(Code.SOURCE_NOT_FOUND, "There are: none"):
        drop_record(lake.storage, "numbers")
