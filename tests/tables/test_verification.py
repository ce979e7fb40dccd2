"""Verifying a table: what is pure, and what the objects of its files add. Faults of the log: tests/processes/log."""

import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import DamagedError, KeyRange, Schema, clock
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.files import data_name, summary_name
from lakebed.read.inspect.verification import numbering
from lakebed.read.rows.summaries import load_summaries
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage, Meanwhile
from tests.tables.cases import compact
from tests.tables.retention.cases import through

FILES = 5


@pytest.fixture
def table():
    made = lakebed.create(f"memory://{clock.random_token()}")
    found = made.create_table("t", Schema({"k": "string"}, values={"v": "int64"}))
    for count in range(FILES):
        found.write(pa.table({"k": ["a", "b"], "v": [count, count]}))
    return found


def kinds(report):
    return [(finding.kind, finding.damage) for finding in report.findings]


def a_file(table):
    return next(iter(table.state().referenced().values()))


@pytest.mark.parametrize(
    ("numbers", "messages"),
    [
        ([1, 2, 3], []),
        ([], ["the log has no entries"]),
        ([2, 3], ["entry 1 is missing"]),
        ([1, 5, 6, 8], ["entries 2 to 4 are missing", "entry 7 is missing"]),
    ],
)
def test_gaps_are_named(numbers, messages):
    assert [finding.what for finding in numbering(numbers)] == messages


def test_what_was_read_is_no_gap_whatever_the_listing_missed():
    """Entries 3 and 5 came while it was made, in a folder that lists them in any order."""
    assert numbering([1, 2, 4, 6], 6) == []
    assert [finding.what for finding in numbering([1, 2, 4, 6], 4)] == ["entry 5 is missing"]


def test_a_sound_table_has_no_findings(table):
    report = table.verify(files=True)
    assert report.sound
    assert (report.version, report.entries, report.objects, report.findings) == (FILES + 1, FILES + 1, FILES, ())
    assert table.verify().objects is None


def test_objects_are_looked_for_by_listing(table):
    """Not one request a file; another lists the checkpoints."""
    counting = CountingStorage(table.storage)
    fresh = Table(table.id, "t", counting, ObjectLogs(table.storage), dict)
    assert fresh.verify(files=True).sound
    assert counting.calls == {"get": 1, "list": 2}


def test_a_log_at_a_url_of_its_own_is_verified_there(tmp_path):
    """Entries there, checkpoint and data here."""
    made = lakebed.create(str(tmp_path / "lake"), log_url=str(tmp_path / "logs"))
    table = made.create_table("t", Schema({"k": "string"}, values={"v": "int64"}))
    table.write(pa.table({"k": ["a"], "v": [1]}))
    assert table.verify(files=True).findings == ()
    (folder,) = (tmp_path / "logs").glob("tables/*/log")
    (folder / "stray").write_bytes(b"")
    assert kinds(table.verify()) == [("foreign", False)]


def test_a_checkpoint_that_this_process_is_writing_is_not_missing():
    may_write = threading.Event()
    made = lakebed.create(f"memory://{clock.random_token()}")
    late = Meanwhile(made.storage, "replace", "tables/*/checkpoints/*", lambda: may_write.wait(120))
    table = through(made, late).create_table("t", Schema({"k": "string"}))
    threading.Timer(0.1, may_write.set).start()
    assert table.verify().findings == ()


def test_a_lost_data_file_is_damage(table):
    table.storage.delete([data_name(table.id, a_file(table))])
    report = table.verify(files=True)
    assert kinds(report) == [("file_missing", True)]
    assert a_file(table).id in report.findings[0].what
    assert table.verify().sound


def test_a_data_file_of_another_size_is_damage(table):
    name = data_name(table.id, a_file(table))
    table.storage.replace(name, table.storage.get(name)[:-1])
    assert kinds(table.verify(files=True)) == [("file_size", True)]


def test_a_lost_summary_is_a_note(table, request):
    """It is derived; a small file has none."""
    assert table.verify(files=True).findings == ()
    request.getfixturevalue("small_summaries")
    load_summaries(table.storage, table.id, table.state().referenced().values(), table.schema)
    assert table.verify(files=True).findings == ()
    table.storage.delete([summary_name(table.id, a_file(table))])
    report = table.verify(files=True)
    assert kinds(report) == [("summary_missing", False)]
    assert report.sound


def test_the_summary_of_another_file_is_refused_by_all_that_read_it(small_summaries):
    """It is whole, and has a right digest; its ranks are wrong."""
    made = lakebed.create(f"memory://{clock.random_token()}")
    table = made.create_table("t", Schema({"k": "int64"}))
    for first in (0, 7):
        table.write(pa.table({"k": range(first, 2000 + first)}))
    one, other = table.state().referenced().values()
    names = [summary_name(table.id, file) for file in (one, other)]
    stored = [table.storage.get(name) for name in names]
    for name, data in zip(names, reversed(stored), strict=True):
        table.storage.replace(name, data)
    readers = (
        lambda: table.count(KeyRange((100,), (200,))),
        lambda: load_summaries(table.storage, table.id, (one, other), table.schema),
        lambda: table.remove(KeyRange((100,), (200,))),
    )
    for read in readers:
        with pytest.raises(DamagedError, match="is the summary of another file"):
            read()
    assert kinds(table.verify(deep=True)) == [("summary_damaged", True)] * 2


def test_a_file_that_was_collected_while_it_was_looked_for_is_none_of_its_business(table):
    """A compaction and a collection between the replay and the listing."""

    class Late(CountingStorage):
        def list(self, prefix, after=""):
            if prefix.endswith("/data"):
                compact(table)
                state = table.state()
                gone = [c.file for c in state.files.values() if not c.references]
                self.inner.delete([data_name(table.id, file) for file in gone])
            return super().list(prefix, after)

    late = Late(table.storage)
    fresh = Table(table.id, "t", late, ObjectLogs(table.storage), dict)
    report = fresh.verify(files=True)
    assert report.version == FILES + 1
    assert kinds(report) == []


def test_an_entry_that_a_store_lists_twice_is_one_entry(table):
    """No name exists twice in a store; its listing may have it in two pages."""

    class Twice(CountingStorage):
        def list(self, prefix, after=""):
            for one in super().list(prefix, after):
                yield from (one, one)

    table.write(pa.table({"k": ["a"], "v": [1]}))
    fresh = Table(table.id, "t", Twice(table.storage), ObjectLogs(Twice(table.storage)), dict)
    report = fresh.verify(files=True)
    assert report.sound
    assert (report.findings, report.entries) == ((), table.version)
