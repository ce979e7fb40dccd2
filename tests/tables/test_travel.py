"""Reading a table as it was: what is kept, for how long, and the error when it is not."""

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.errors import Code, NotFoundError, NotRetainedError, RejectedError, UsageError
from lakebed.log.log_limits import LogLimits
from lakebed.model.state.time_travel import moment_in
from lakebed.testing.faults import CountingStorage, Meanwhile
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.clocks import set_clock
from tests.raising import raises
from tests.tables.retention.cases import on, through

SCHEMA = Schema({"k": "int64"}, values={"v": "string"})


def rows(*keys, value="x"):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [value] * len(keys)})


def keys_of(found):
    return [row["k"] for row in found.scan().read_all().to_pylist()]


def compacted(table, tmp_path):
    """All partitions merged, in this process."""

    def execute(tasks):
        return [run_merge_task(task, table.storage, Path(tmp_path)) for task in tasks]

    return compact(table, prepare(table, "full"), execute, cores=1)


@pytest.fixture
def table(tmp_path):
    made = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, settings={"history_s": 0})
    for key in (1, 2, 3):
        made.write(rows(key))
    return made


def test_each_number_has_its_own_rows_whatever_comes_after(table, tmp_path):
    """Writes, a split, a compaction; and by a process that opens the table anew."""
    compacted(table, tmp_path)
    table.write(rows(4))
    numbers = {2: [1], 3: [1, 2], 4: [1, 2, 3], 5: [1, 2, 3], 6: [1, 2, 3], 7: [1, 2, 3, 4]}
    again = lakebed.open(tmp_path / "lake").table("t")
    for held in (table, again):
        assert {number: keys_of(held.at(version=number)) for number in numbers} == numbers
    snapshot = table.at(version=3)
    assert snapshot.version == 3
    assert snapshot.get(2).num_rows == 1
    assert snapshot.get(3).num_rows == 0
    assert [row["k"] for row in snapshot.scan(KeyRange(2), limit=5).read_all().to_pylist()] == [2]
    assert snapshot.files().num_rows == 2
    assert snapshot.partitions().column("rows").to_pylist() == [2]
    assert table.at(version=1).scan().read_all().num_rows == 0


def test_a_time_means_the_newest_entry_stored_by_then(table):
    """By the store's last-modified times, whatever the writers' clocks said."""
    last_modified_times = [table.log.entry_last_modified(number) for number in range(1, 5)]
    for version, last_modified in enumerate(last_modified_times, 1):
        at_least = max(n for n, s in enumerate(last_modified_times, 1) if s <= last_modified)
        assert table.at(time=last_modified).version == at_least >= version
        assert table.at(time=last_modified.isoformat()).version == at_least
    assert table.at(time=table.log.now()).version == 4
    with pytest.raises(NotFoundError, match="was created later"):
        table.at(time=last_modified_times[0] - dt.timedelta(seconds=1))


class Dated(CountingStorage):
    """A store with entry n of a log stored at noon of January n."""

    def last_modified(self, name):
        found = super().last_modified(name)
        if found is None or "/log/" not in name:
            return found
        return dt.datetime(2026, 1, int(name.rpartition("/")[2].split(".")[0]), 12, tzinfo=dt.UTC)


def test_a_date_is_its_midnight_in_utc_unless_a_tag_has_its_name(table):
    lake = through(lakebed.open(table.storage.url), Dated(table.storage))
    table = lake.create_table("dated", SCHEMA)
    for key in (1, 2, 3):
        table.write(rows(key))
    assert table.at("2026-01-04").version == table.at(time="2026-01-04").version == 3
    assert keys_of(table.at("2026-01-04")) == [1, 2]
    assert sorted(lake.sql('SELECT k FROM "dated@2026-01-04"').to_arrow()["k"].to_pylist()) == [1, 2]
    assert table.changes(since="2026-01-04").read_all()["_version"].to_pylist() == [4]
    table.tag("2026-01-04", 2)
    assert table.at("2026-01-04").version == 2
    assert table.at(time="2026-01-04").version == 3
    for missing in ({"tag": "2026-01-03"}, {"time": "2025-12-31"}):
        with raises(Code.TAG_NOT_FOUND, Code.VERSION_NOT_FOUND):
            table.at(**missing)
    with pytest.raises(NotFoundError, match="no tag '2026-02-31'"):
        table.at("2026-02-31")


def test_a_time_that_the_store_has_not_reached_is_not_there_yet(table):
    """An entry may still come before it, and the answer would change."""
    ahead = table.log.now() + dt.timedelta(days=1)
    for time in (ahead, ahead.isoformat(), dt.datetime.max.replace(tzinfo=dt.UTC)):
        with pytest.raises(NotFoundError, match=r"is .* ahead of the store's clock"):
            table.at(time=time)
    with pytest.raises(NotFoundError, match="ahead of the store's clock"):
        table.at(time=ahead.astimezone(dt.timezone(dt.timedelta(hours=-11))))


def test_a_time_a_moment_ahead_is_waited_for_and_has_what_came_meanwhile(table, monkeypatch):
    """The caller's clock is a little fast; another process commits while it waits."""
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        table.write(rows(4))

    set_clock(monkeypatch, sleep=sleep)
    found = table.at(time=table.log.now() + dt.timedelta(seconds=5))
    assert found.version == 5
    assert len(slept) == 1
    assert 0 < slept[0] <= 5


def test_the_clock_of_the_store_is_asked_once(table):
    counting = CountingStorage(table.storage)
    table = on(table, counting)
    for _ in range(5):
        assert table.at(time=table.log.entry_last_modified(4)).version == 4
    assert counting.calls["now"] == 1


def test_a_store_that_cannot_be_written_tells_the_past_by_this_machine(table):
    """Its clock is read off an object that is put."""

    class ReadOnly(CountingStorage):
        def now(self):
            raise Code.STORE_UNAVAILABLE("no right to put", transient=False)

    table = on(table, ReadOnly(table.storage))
    assert table.at(time=dt.datetime.now(dt.UTC)).version == 4
    with pytest.raises(NotFoundError, match="ahead of the store's clock"):
        table.at(time=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("12", {"version": 12}),
        ("0", {"version": 0}),
        ("-1", {"version": -1}),
        ("2026-01-31T12:00:00Z", {"time": "2026-01-31T12:00:00Z"}),
        ("release-3", {"tag": "release-3"}),
        ("\u00b2", {"tag": "\u00b2"}),
        ("", {"tag": ""}),
    ],
)
def test_a_text_names_a_number_a_time_or_a_tag(table, text, meant):
    """A superscript two is a digit to Python, and no version."""
    assert moment_in(text) == meant
    with raises(Code.TAG_NOT_FOUND, Code.VERSION_NOT_FOUND):
        table.at(**meant)


def test_a_moment_needs_no_name(table):
    table.tag("third", 3)
    now = dt.datetime.now(dt.UTC)
    assert [table.at(moment).version for moment in (3, "3", "third", now, now.isoformat())] == [3, 3, 3, 5, 5]
    table.restore("third")
    assert keys_of(table) == [1, 2]


@pytest.mark.parametrize("moment", [b"3", 2.5, True, [3]])
def test_a_moment_of_another_type_is_refused(table, moment):
    for call in (table.at, table.restore):
        with pytest.raises(UsageError, match="no moment: give a version, a tag, or a time such as"):
            call(moment)
        with pytest.raises(UsageError, match="give exactly one of version, time and tag"):
            call(3, tag="x")


def test_a_snapshot_is_read_by_the_calls_of_its_table(table):
    """With their arguments: it is as fresh as it is, and refuses a version that it does not have."""
    snapshot = table.at(version=3)
    for read in (lambda **fresh: snapshot.get(1, **fresh), lambda **fresh: snapshot.get_many([1], **fresh),
                 lambda **fresh: snapshot.scan(limit=1, **fresh).read_all()):  # fmt: skip
        assert read(max_staleness=0, at_least=3).num_rows == 1
        with pytest.raises(NotFoundError, match="at_least = 4: this snapshot is of version 3"):
            read(at_least=4)
        for wrong in ({"max_staleness": "x"}, {"at_least": -1}):
            with pytest.raises(UsageError, match=next(iter(wrong))):
                read(**wrong)
    assert snapshot.snapshot() is snapshot


def test_what_a_collection_deleted_cannot_be_read_and_the_window_is_named(table, tmp_path):
    before = table.at(version=3)
    compacted(table, tmp_path)
    assert collect_garbage(table).files == 3
    for version in (2, 3, 5):
        with pytest.raises(NotRetainedError, match="Retained are versions 6 to 8") as caught:
            table.at(version=version)
        assert caught.value.kind == "not_retained"
    assert keys_of(table.at(version=6)) == [1, 2, 3]
    with pytest.raises(NotFoundError) as raised:
        before.scan().read_all()
    assert raised.value.code is Code.DATA_FILE_NOT_RETAINED


def test_a_tag_keeps_the_files_of_its_number_until_it_goes(table, tmp_path):
    assert table.tag("early", 3) == 3
    assert table.tag("now") == 5
    assert table.tags() == {"early": 3, "now": 5}
    compacted(table, tmp_path)
    assert collect_garbage(table, dry_run=True).waiting == 3
    assert collect_garbage(table).files == 0
    table.write(rows(9))
    assert keys_of(table.at(tag="early")) == [1, 2]
    assert keys_of(table.at(version=4)) == [1, 2, 3]
    table.untag("now")
    assert collect_garbage(table).files == 1
    assert keys_of(table.at(tag="early")) == keys_of(table.at(version=3)) == [1, 2]
    with pytest.raises(NotRetainedError, match="and 3 by tags"):
        table.at(version=4)
    with pytest.raises(NotRetainedError, match="no longer retained"):
        table.tag("late", 4)
    table.untag("early")
    assert collect_garbage(table).files == 2
    with pytest.raises(NotRetainedError) as raised:
        table.at(version=3)
    assert raised.value.code is Code.VERSION_NOT_RETAINED


def test_a_tag_that_comes_between_plan_and_mark_is_respected(table, tmp_path):
    """The mark is validated when it is committed; only what it took is deleted."""
    compacted(table, tmp_path)
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: table.tag("early", 3)))
    late.log.limits = LogLimits(turn_wait_s=0.0)
    assert collect_garbage(late).files == 1
    assert keys_of(table.at(tag="early")) == [1, 2]
    assert table.verify(files=True).sound


def test_a_tag_stands_at_one_number(table):
    table.tag("a", 2)
    assert table.tag("a", 2) == 2
    with pytest.raises(RejectedError, match="stands at version 2"):
        table.tag("a", 3)
    with pytest.raises(RejectedError, match="stands at version 2"):
        table.tag("a")
    with pytest.raises(NotFoundError, match="version 99 does not exist"):
        table.tag("b", 99)
    with pytest.raises(RejectedError, match="no tag b"):
        table.untag("b")


def test_tags_given_at_once_are_all_there(table):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: table.tag(f"t{n}", 2), range(24)))
    assert set(table.tags().values()) == {2}
    assert len(table.tags()) == 24


@pytest.mark.parametrize("name", ["", "12", "a b", "-x", ".x", "a/b", "x" * 129, 7, None])
def test_a_bad_tag_is_refused(table, name):
    with pytest.raises(UsageError, match="not a tag"):
        table.tag(name)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, Code.ARGUMENTS_CONFLICT),
        ({"version": 2, "tag": "a"}, Code.ARGUMENTS_CONFLICT),
        ({"version": "2"}, Code.ARGUMENT_INVALID),
        ({"version": True}, Code.ARGUMENT_INVALID),
        ({"version": 0}, Code.VERSION_NOT_FOUND),
        ({"version": -1}, Code.VERSION_NOT_FOUND),
        ({"version": 5}, Code.VERSION_NOT_FOUND),
        ({"tag": "none"}, Code.TAG_NOT_FOUND),
        ({"time": "yesterday"}, Code.ARGUMENT_INVALID),
        ({"time": "2026-01-31T12:00:00"}, Code.ARGUMENT_INVALID),
        ({"time": dt.datetime(2026, 1, 31)}, Code.ARGUMENT_INVALID),  # noqa: DTZ001 - what is refused
        ({"time": 5}, Code.ARGUMENT_INVALID),
    ],
)
def test_what_is_not_there_or_means_nothing_is_an_error(table, asked, code):
    with raises(code):
        table.at(**asked)
