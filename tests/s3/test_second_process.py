"""A process with a cache on local disk begins with what the one before it has proven, and never answers by it alone."""

import json
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import NotFoundError
from tests.s3.test_requests import SCHEMA, as_new, rows
from tests.soaked import few

KEY = "key-000123"


@pytest.fixture
def url(s3_server):
    lake = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    table = lake.create_table("t", SCHEMA)
    table.write(rows(0, 20_000))
    table.log.wait_for_checkpoint()
    return lake.url


@pytest.fixture
def opened(s3_server, url, tmp_path):
    """Open the instance as a new process does, with the cache."""

    def opened(**changed):
        as_new()
        options = s3_server.storage_options | {"cache_dir": str(tmp_path / "cache")} | changed
        return lakebed.open(url, storage_options=options)

    return opened


@pytest.fixture
def other(s3_server, url):
    """The instance as a process elsewhere has it open, without this cache."""
    return lakebed.open(url, storage_options=s3_server.storage_options)


def values(table):
    return sorted(table.get(KEY)["v"].to_pylist())


@contextmanager
def together(s3_server, count):
    """Answer the next requests when as many are there, so that they can only be in one round trip."""
    begun = threading.Barrier(count)

    def wait(_):
        begun.wait(timeout=60)

    s3_server.requests.clear()
    s3_server.spoil = wait
    yield
    s3_server.spoil = None
    assert len(s3_server.requests) == count, s3_server.requests
    assert not begun.broken


def test_the_first_get_of_a_second_process_takes_one_round_trip(s3_server, opened):
    """The instance; of the catalog and of the table what follows the last entry, and that entry."""
    assert values(opened().table("t")) == [123]
    with together(s3_server, 5):
        assert values(opened().table("t")) == [123]
    asked = [request.key.rpartition("/")[2] or "listed" for request in s3_server.requests]
    entries = [f"{version:020d}.ndjson" for version in (1, 2)]
    assert sorted(asked) == sorted(["instance.json", "listed", "listed", *entries])


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.snapshot().get(KEY).num_rows,
        lambda table: table.get_many([KEY]).num_rows,
        lambda table: table.scan(where=f"k = '{KEY}'").to_arrow().num_rows,
        lambda table: table.count(exact=True).rows // 20_000,
    ],
)
def test_other_first_reads_take_one_round_trip_as_well(s3_server, opened, read):
    assert read(opened().table("t")) == 1
    with together(s3_server, 5):
        assert read(opened().table("t")) == 1


def test_a_handle_that_was_confirmed_reads_as_any_other(s3_server, opened):
    opened().table("t").get(KEY)
    lake = opened()
    table = lake.table("t")
    assert values(table) == [123]
    s3_server.requests.clear()
    assert values(table) == [123]
    assert len(s3_server.requests) == 2
    assert lake.table("t").id == table.id
    assert lake.tables() == ["t"]
    assert (table.version, table.schema) == (2, SCHEMA)


def test_what_was_written_since_is_read(s3_server, opened, other):
    opened().table("t").get(KEY)
    for count in range(1, 4):
        other.table("t").write(rows(123, 124))
        assert values(opened().table("t")) == [123] * (count + 1)
    with together(s3_server, 5):
        assert values(opened().table("t")) == [123] * 4


def test_what_is_written_while_a_handle_is_not_used_is_read(opened, other):
    """Opening asks nothing, so nothing that it knows can be old."""
    opened().table("t").get(KEY)
    table = opened().table("t")
    other.table("t").write(rows(123, 124))
    assert values(table) == [123, 123]


def copied(lake):
    """All objects of an instance."""
    return {found.name: lake.storage.get(found.name) for found in lake.storage.list("")}


def restore(lake, objects):
    """Put these objects in place of those that are there, as from a backup."""
    for name, data in objects.items():
        lake.storage.replace(name, data)
    lake.storage.delete([found.name for found in lake.storage.list("") if found.name not in objects])


def written(lake, *values):
    for value in values:
        lake.table("t").write(rows(123, 124).set_column(2, "v", [[value]]))
    lake.close()


def test_a_head_below_the_log_start_is_forgotten(s3_server, opened, other):
    """3 was remembered, and is truncated with its checkpoint."""
    written(other, 3)
    assert values(opened().table("t")) == [3, 123]
    log = other.table("t").log
    for value in (4, 5, 6):
        written(other, value)
        log.retain_checkpoint()
        log.wait_for_checkpoint()
    assert log.truncate(4) == 4
    assert values(opened().table("t")) == [3, 4, 5, 6, 123]
    with together(s3_server, 5):
        assert values(opened().table("t")) == [3, 4, 5, 6, 123]


def test_a_head_long_ago_is_forgotten(s3_server, opened, other):
    """More entries follow than are read at a time: the checkpoint is nearer."""
    assert values(opened().table("t")) == [123]
    added = list(range(200, 240))
    written(other, *added)
    assert values(opened().table("t")) == [123, *added]
    with together(s3_server, 5):
        assert values(opened().table("t")) == [123, *added]


@pytest.mark.parametrize("after", few([[], [4, 5], [4], [4, 5, 6]], 2))
def test_a_head_of_a_log_that_was_restored_is_forgotten(opened, other, after):
    """A backup was made at version 2, and 3 and 4 were remembered: since then the log has other entries, or none."""
    backup = copied(other)
    written(other, 1, 2)
    assert values(opened().table("t")) == [1, 2, 123]
    restore(other, backup)
    as_new()
    again = lakebed.open(other.url, storage_options=other.storage_options)
    written(again, *after)
    assert values(opened().table("t")) == [*after, 123]
    assert values(opened().table("t")) == [*after, 123]


def test_a_table_that_was_dropped_is_reported_by_its_first_use(opened, other):
    opened().table("t").get(KEY)
    other.drop_table("t")
    table = opened().table("t")
    with pytest.raises(NotFoundError, match="no table named 't'"):
        table.get(KEY)
    with pytest.raises(NotFoundError, match="no table named 't'"):
        opened().table("t").write(rows(0, 1))
    lake = opened()
    assert lake.tables() == []
    with pytest.raises(NotFoundError, match="no table named 't'"):
        lake.table("t")


def test_a_statement_makes_a_table_that_was_dropped(opened, other):
    opened().table("t").get(KEY)
    other.drop_table("t")
    opened().execute("CREATE TABLE IF NOT EXISTS t (k TEXT PRIMARY KEY, v BIGINT)")
    assert opened().table("t").get(KEY).num_rows == 0


def test_an_instance_that_was_not_used_is_not_asked_for(s3_server, opened, other):
    opened().table("t").get(KEY)
    s3_server.requests.clear()
    with opened() as lake:
        assert repr(lake) == f"<lakebed instance at {other.url}>"
    assert s3_server.requests == []


def test_a_table_made_again_under_the_name_is_read(opened, other):
    opened().table("t").get(KEY)
    other.drop_table("t")
    made = other.create_table("t", Schema({"k": "string"}, {}, {"v": "float64"}))
    assert opened().table("t").get(KEY).num_rows == 0
    made.write({"k": [KEY], "v": [0.5]})
    table = opened().table("t")
    assert values(table) == [0.5]
    assert (table.id, table.version) == (made.id, made.version)


def test_a_name_means_the_table_that_has_it_now(opened, other):
    opened().table("t").get(KEY)
    other.rename_table("t", "u")
    with pytest.raises(NotFoundError, match="no table named 't'"):
        opened().table("t").get(KEY)
    assert values(opened().table("u")) == [123]
    other.create_table("t", SCHEMA).write(rows(123, 124).set_column(2, "v", [[7]]))
    assert values(opened().table("t")) == [7]
    other.rename_table("u", "t", replace=True)
    table = opened().table("t")
    assert values(table) == [123]
    assert table.name == "t"


def test_an_instance_that_is_gone_is_reported_by_the_first_use(opened, other):
    opened().table("t").get(KEY)
    other.storage.delete([found.name for found in other.storage.list("")])
    with pytest.raises(NotFoundError, match="no instance at"):
        opened().table("t").get(KEY)
    with pytest.raises(NotFoundError, match="no instance at"):
        opened().tables()


def test_another_instance_at_the_url_is_read(s3_server, opened, other, url):
    lost = opened().table("t")
    lost.get(KEY)
    other.storage.delete([found.name for found in other.storage.list("")])
    made = lakebed.create(url, storage_options=s3_server.storage_options)
    assert opened().tables() == []
    made.create_table("t", SCHEMA).write(rows(123, 124).set_column(2, "v", [[7]]))
    lake = opened()
    assert values(lake.table("t")) == [7]
    assert lake.id == made.id
    with together(s3_server, 5):
        assert values(opened().table("t")) == [7]


def test_a_copy_of_an_instance_elsewhere_goes_its_own_way(s3_server, opened, other, tmp_path):
    """Both have one id, and share the cache."""
    opened().table("t").get(KEY)
    options = s3_server.storage_options | {"cache_dir": str(tmp_path / "cache")}
    copy_url = s3_server.new_bucket() + "/copy"
    restore(lakebed.create(copy_url, storage_options=s3_server.storage_options), copied(other))
    for value in (1, 2):
        written(lakebed.open(copy_url, storage_options=options), value)
        written(other, value + 100)
        assert values(opened().table("t")) == sorted([*range(101, 101 + value), 123])
        as_new()
        copy = lakebed.open(copy_url, storage_options=options)
        assert values(copy.table("t")) == sorted([*range(1, 1 + value), 123])


def cached(tmp_path):
    return sorted(path for path in (tmp_path / "cache" / "v1" / "entries").rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", few([lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda _: b"", None], 1))
def test_each_object_of_the_cache_may_be_damaged(opened, other, tmp_path, damage):
    """Or be gone: it is read from the store, and remembered again."""
    written(other, 1)
    opened().table("t").get(KEY)
    count = len(cached(tmp_path))
    assert count >= 6, "of the instance, both heads, the entries and the file"
    for position in range(count):
        path = cached(tmp_path)[position]
        data = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage(data))
        assert values(opened().table("t")) == [1, 123]
        assert values(opened().table("t")) == [1, 123]


def test_a_head_that_is_older_than_what_another_process_has_remembered_does_no_harm(opened):
    """Two processes share the cache; each write of one is read by the other, whichever remembers last."""
    first, second = opened(), opened()
    for value in range(3):
        written(first, 1000 + value)
        written(second, 2000 + value)
        seen = sorted([123, *range(1000, 1001 + value), *range(2000, 2001 + value)])
        assert values(first.table("t")) == values(second.table("t")) == values(opened().table("t")) == seen


WORKER = """
import json, sys
import lakebed
url, options, worker = json.loads(sys.argv[1])
table = lakebed.open(url, storage_options=options).table("t")
for count in range(10_000):
    value = 1_000_000 * worker + count
    table.write({"k": ["key-000123"], "n": [value], "v": [value], "w": [""]}, commit_id=str(value))
    print(value, flush=True)
    lake = lakebed.open(url, storage_options=options)
    assert value in lake.table("t").get("key-000123")["v"].to_pylist()
"""


def test_a_process_that_is_killed_leaves_a_cache_from_which_the_next_one_reads(s3_server, opened, url, tmp_path):
    """Two at a time write, remember and read until they are killed."""
    options = s3_server.storage_options | {"cache_dir": str(tmp_path / "cache")}
    acknowledged = set()
    for turn in range(2):
        commands = [[sys.executable, "-c", WORKER, json.dumps([url, options, 2 * turn + number])] for number in (1, 2)]
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        for worker in workers:
            for _ in range(4):
                line = worker.stdout.readline()
                assert line, "it failed by itself"
                acknowledged.add(int(line))
        for worker in workers:
            worker.kill()
        for worker in workers:
            acknowledged.update(int(line) for line in worker.stdout.read().split("\n")[:-1])
            worker.wait()
        found = values(opened().table("t"))
        as_new()
        assert found == values(lakebed.open(url, storage_options=s3_server.storage_options).table("t"))
        assert acknowledged <= set(found)
