"""Pins, collection and sweep where stamps are whole seconds and every step is a request."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.collection.run import collect_garbage
from lakebed.collection.sweep import sweep_orphans
from lakebed.errors import RejectedError
from lakebed.files import data_folder, data_object, pin_folder
from lakebed.log.stamps import to_us
from lakebed.pins import read_pins
from tests.unit.cases import compact

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


@pytest.fixture
def table(s3_server):
    instance = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    made = instance.create_table("t", SCHEMA, settings={"gc_delay_s": 0, "history_s": 0, "orphan_age_s": 0})
    for text in ("ab", "cd"):
        made.write(pa.table({"k": list(text), "v": [1, 2]}))
    return made


def keys(view):
    return "".join(view.scan().read_all().column("k").to_pylist())


def test_a_pinned_view_outlives_a_collection(table):
    with table.pin() as view:
        compact(table)
        assert collect_garbage(table).pinned == 2
        assert keys(view) == "abcd"
        assert read_pins(table.storage, table.id, 3600).numbers == {3}
    assert list(table.storage.list(pin_folder(table.id))) == []
    assert collect_garbage(table).files == 2
    assert keys(table) == "abcd"


def test_a_look_for_pins_where_there_are_none_is_one_request(s3_server, table):
    s3_server.requests.clear()
    read_pins(table.storage, table.id, 3600)
    assert len(s3_server.requests) == 1


def test_an_orphan_of_a_whole_second_ago_is_swept_and_one_of_this_second_waits(table):
    """Strictly older, of stamps that know no parts of a second; what was committed stays, whatever its stamp."""
    orphan = data_object(table.id, "dead-job", "019a0000-0000-7000-8000-000000000000")
    table.storage.create(orphan, b"rows")
    stamp_us = to_us(table.storage.stamp(orphan))
    while not (report := sweep_orphans(table, force=True)).orphans:
        assert to_us(report.before) == stamp_us
    assert to_us(report.before) > stamp_us
    assert report.orphans == 1
    assert table.state().orphan_horizon_us == stamp_us + 1
    assert len(list(table.storage.list(data_folder(table.id)))) == 2
    assert keys(table) == "abcd"


def test_a_writer_of_before_the_horizon_is_refused(table, monkeypatch):
    commit = table.log.commit

    def late(offer):
        monkeypatch.setattr(table.log, "commit", commit)
        newest = max(listed.stamp for listed in table.storage.list(data_folder(table.id)))
        while table.storage.now() == newest:
            pass
        sweep_orphans(table, force=True)
        return commit(offer)

    monkeypatch.setattr(table.log, "commit", late)
    rows = pa.table({"k": ["e"], "v": [1]})
    with pytest.raises(RejectedError, match="write it again"):
        table.write(rows)
    table.write(rows)
    assert keys(table) == "abcde"


@pytest.mark.parametrize("left", [".clock/left", f".probe/{'a' * 32}"])
def test_what_dead_processes_left_is_swept_at_the_root(s3_server, table, left):
    table.storage.replace(left, b"")
    before = table.storage.now()
    while before == table.storage.now():
        pass
    assert table.storage.sweep_temporaries("tables", table.storage.now()) == 0
    assert table.storage.sweep_temporaries("", table.storage.now()) == 1
    assert table.storage.get(left) is None
