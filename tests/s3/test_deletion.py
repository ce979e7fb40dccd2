"""Pins, collection and sweep where last-modified times are whole seconds and every step is a request."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import RejectedError
from lakebed.log.last_modified_times import to_us
from lakebed.model.files import data_folder, data_object, pin_folder
from lakebed.read.snapshot.pins import read_pins
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.retention.run import collect_garbage
from tests.orphans import delete_orphans
from tests.tables.cases import compact
from tests.tables.retention.cases import on

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


@pytest.fixture
def table(s3_server):
    instance = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    made = instance.create_table("t", SCHEMA, settings={"history_s": 0, "orphan_age_s": 0})
    for text in ("ab", "cd"):
        made.write(pa.table({"k": list(text), "v": [1, 2]}))
    return made


def keys(snapshot):
    return "".join(snapshot.scan().read_all().column("k").to_pylist())


def test_a_pinned_view_outlives_a_collection(table):
    with table.pin() as snapshot:
        compact(table)
        assert collect_garbage(table).pinned == 2
        assert keys(snapshot) == "abcd"
        assert read_pins(table.storage, table.id).versions == {3}
    assert list(table.storage.list(pin_folder(table.id))) == []
    assert collect_garbage(table).files == 2
    assert keys(table) == "abcd"


def test_a_look_for_pins_where_there_are_none_is_one_request(s3_server, table):
    s3_server.requests.clear()
    read_pins(table.storage, table.id)
    assert len(s3_server.requests) == 1


def test_an_orphan_of_a_whole_second_ago_is_swept_and_one_of_this_second_waits(table):
    """Strictly older, of last-modified times that know no parts of a second; what was committed stays, whatever its
    last-modified time."""
    orphan = data_object(table.id, "dead-job", "019a0000-0000-7000-8000-000000000000")
    table.storage.create(orphan, b"rows")
    last_modified_us = to_us(table.storage.last_modified(orphan))
    while not (report := delete_orphans(table, force=True)).orphans:
        assert to_us(report.before) == last_modified_us
    assert to_us(report.before) > last_modified_us
    assert report.orphans == 1
    assert table.state().orphan_cutoff_us == last_modified_us + 1
    assert len(list(table.storage.list(data_folder(table.id)))) == 2
    assert keys(table) == "abcd"


def test_a_writer_of_before_the_horizon_is_refused(table):
    def late():
        newest = max(listed.last_modified for listed in table.storage.list(data_folder(table.id)))
        while table.storage.now() == newest:
            pass
        delete_orphans(table, force=True)

    rows = pa.table({"k": ["e"], "v": [1]})
    with pytest.raises(RejectedError, match="write it again"):
        on(table, Meanwhile(table.storage, "create", "*/log/*", late)).write(rows)
    table.write(rows)
    assert keys(table) == "abcde"


@pytest.mark.parametrize("left", [".clock/left", f".probe/{'a' * 32}"])
def test_what_dead_processes_left_is_swept_at_the_root(s3_server, table, left):
    table.storage.replace(left, b"")
    before = table.storage.now()
    while before == table.storage.now():
        pass
    assert table.storage.delete_temporaries("tables", table.storage.now()) == 0
    assert table.storage.delete_temporaries("", table.storage.now()) == 1
    assert table.storage.get(left) is None
