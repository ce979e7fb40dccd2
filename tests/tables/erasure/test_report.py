"""Erasure reports of real tables: each kind of place is made, seen, and gone after what the report says."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import KeyRange, Schema, clock
from lakebed.errors import Code, Error
from lakebed.jobs.executor import decode, encode
from lakebed.model.files import data_folder, data_object
from lakebed.model.state.transactions import RejectRequest
from lakebed.read.inspect.history import CopyKind, read_copies, record_copy
from lakebed.storage import connect
from lakebed.upkeep.export.run import ExportRequest, export, run_export_task
from lakebed.upkeep.retention.erasure.plan import Where
from lakebed.upkeep.retention.erasure.run import RowsSought, erase_report
from lakebed.upkeep.retention.erasure.search import SearchedObject, run_search_task
from lakebed.upkeep.retention.run import collect_garbage, gc
from tests.raising import raises
from tests.tables.cases import compact, rewritten

SCHEMA = Schema({"person": "string"}, {"visit": "int64"}, {"city": "string"})
BOB = "person = 'bob'"


@pytest.fixture
def table(lake):
    """Two visits of each of three persons, in one file each."""
    found = lake.create_table("visits", SCHEMA, settings={"history_s": 0, "orphan_age_s": 0})
    for visit in (1, 2):
        found.write(rows(("ann", "bob", "eve"), visit))
    return found


def rows(persons, visit):
    return pa.table({"person": list(persons), "visit": [visit] * len(persons), "city": ["Rome"] * len(persons)})


def report(table, where=BOB, *ranges, also=()):
    def execute(tasks):
        made = []
        for task in tasks:
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    # As it comes back from Spark.
                    made.append(decode(encode(run_search_task(task, table.storage, Path(scratch))), SearchedObject))
                except Error as error:
                    made.append(error)
        return made

    return erase_report(table, RowsSought(ranges, where), also, {}, execute)


def rows_in(found):
    """Rows found in each kind of place."""
    kinds = {}
    for place in found.places:
        if place.rows or place.unclear_rows:
            kinds[str(place.where)] = kinds.get(str(place.where), 0) + place.rows
    return kinds


def by_value(table, **how):
    """A report by a column that is no key: nothing is said of keys."""
    return report(table, f"{BOB} AND city = 'Rome'", **how)


# -- data files -------------------------------------------------------------------------------------------------------


def test_rows_in_use_are_in_the_files_of_the_latest_version(table):
    found = by_value(table)
    assert rows_in(found) == {"in use": 2}
    assert [(one.rows, one.live_rows, one.first_version, one.last_version) for one in found.places] == [
        (1, 1, 2, None),
        (1, 1, 3, None),
    ]
    assert not found.erased
    assert found.searched == {"in use": 2}


def test_a_table_without_such_rows_is_erased(table):
    found = report(table, "person = 'zoe'")
    assert found.erased
    assert found.keys_searched
    assert found.searched["in use"] == 2
    assert found.searched["log entry"] == table.version
    assert {"log entry", "checkpoint", "in use"} >= set(found.searched)


def test_rewritten_rows_stay_in_older_versions_until_they_are_collected(table):
    before = table.version
    rewritten(table, delete_where=BOB)
    table.set(history_s=3600)
    found = by_value(table)
    assert rows_in(found) == {"older versions": 2}
    assert {(one.first_version, one.last_version >= before, one.live_rows) for one in found.places} == {
        (2, True, 0),
        (3, True, 0),
    }
    assert all(one.due > clock.now() and "history_s" in one.goes for one in found.places)
    table.set(history_s=0)
    collect_garbage(table)
    assert by_value(table).erased


def test_a_tag_keeps_rows_until_it_is_dropped(table):
    table.tag("audited")
    rewritten(table, delete_where=BOB)
    collect_garbage(table)
    found = by_value(table)
    assert rows_in(found) == {"older versions": 2}
    assert {(one.tags, one.goes, one.due) for one in found.places} == {
        (("audited",), "lakebed gc, when tag audited is dropped", None)
    }
    table.untag("audited")
    collect_garbage(table)
    assert by_value(table).erased


def test_a_reader_keeps_rows_as_long_as_it_reads(table):
    with table.pin() as snapshot:
        rewritten(table, delete_where=BOB)
        collect_garbage(table)
        found = by_value(table)
        assert rows_in(found) == {"retired": 2}
        assert {one.pins for one in found.places} == {(snapshot.version,)}
        assert {one.goes for one in found.places} == {f"lakebed gc, when the reader of version {snapshot.version} ends"}
    assert {one.goes for one in by_value(table).places} == {"the next lakebed gc"}
    collect_garbage(table)
    assert by_value(table).erased


def test_rows_that_were_removed_are_still_in_files_that_others_keep(table):
    table.remove(KeyRange.prefix("bob"))
    found = by_value(table)
    assert rows_in(found) == {"in use": 2}
    assert [one.live_rows for one in found.places] == [0, 0]
    assert "compact the file if none of them is live" in found.places[0].goes


def test_ranges_choose_rows_like_a_predicate(table):
    assert rows_in(report(table, None, KeyRange.prefix("bob"))) == {"in use": 2}
    assert rows_in(report(table, "visit = 1", KeyRange.prefix("bob"), KeyRange.prefix("zoe"))) == {"in use": 1}


def test_an_empty_range_has_no_rows(table):
    found = report(table, None, KeyRange("bob", "bob"))
    assert rows_in(found) == {}
    assert found.erased


def test_a_file_that_cannot_be_read_is_no_proof(table):
    names = sorted(one.name for one in table.storage.list(data_folder(table.id)))
    data = table.storage.get(names[0])
    table.storage.replace(names[0], data[:-20] + b"\0" + data[-19:])
    found = report(table, "person = 'zoe'")
    assert not found.places
    assert not found.erased
    assert [one.object for one in found.unread] == [table.storage.object_url(names[0])]
    table.storage.delete([names[1]])
    reasons = [one.reason for one in report(table, "person = 'zoe'").unread]
    assert len(reasons) == 2


# -- orphans ----------------------------------------------------------------------------------------------------------


def test_an_orphan_is_read_like_a_file_of_the_table(table):
    names = [one.name for one in table.storage.list(data_folder(table.id))]
    orphan = data_object(table.id, clock.new_id(), clock.new_id())
    table.storage.create(orphan, table.storage.get(names[0]))
    table.storage.create(orphan.replace(".parquet", ".odd"), b"?")
    found = by_value(table)
    assert rows_in(found) == {"in use": 2, "orphan": 1}
    assert [one.object for one in found.places if one.where is Where.ORPHAN] == [table.storage.object_url(orphan)]
    assert [one.reason for one in found.unread] == ["an object of an unknown kind: look at it"]
    table.storage.delete([orphan.replace(".parquet", ".odd")])
    rewritten(table, delete_where=BOB)


def test_an_orphan_goes_with_the_next_collection(lake, table):
    name = next(iter(table.storage.list(data_folder(table.id)))).name
    table.storage.create(data_object(table.id, clock.new_id(), clock.new_id()), table.storage.get(name))
    rewritten(table, delete_where=BOB)
    assert rows_in(by_value(table)) == {"older versions": 2, "orphan": 1}
    gc(lake, [table], force=True)
    assert by_value(table).erased


def test_half_an_upload_cannot_be_read(table):
    name = next(iter(table.storage.list(data_folder(table.id)))).name
    half = data_object(table.id, clock.new_id(), clock.new_id())
    table.storage.create(half, table.storage.get(name)[:200])
    (unread,) = report(table, "person = 'zoe'").unread
    assert (unread.where, unread.object) == (Where.ORPHAN, table.storage.object_url(half))
    assert "orphan_age_s" in unread.goes


@pytest.mark.parametrize("where", ["data", "log"])
def test_what_a_put_left_whose_process_died_is_no_proof(lake, table, where):
    """It may hold all bytes of a file or of an entry, and no listing shows it."""
    rewritten(table, delete_where=BOB)
    collect_garbage(table)
    assert by_value(table).erased
    folder = Path(table.storage.folder, "tables", table.id, where)
    left = folder / f".left.{'a' * 32}"
    left.write_bytes(b"bob")
    (unread,) = by_value(table).unread
    assert (unread.where, unread.object, unread.goes) == (
        Where.ORPHAN,
        left.as_uri(),
        "lakebed gc, after orphan_age_s",
    )
    gc(lake, [table], force=True)
    assert by_value(table).erased


def test_what_an_export_left_that_died_is_no_proof(table, tmp_path):
    exported(table, tmp_path / "out", where="person = 'eve'")
    rewritten(table, delete_where=BOB)
    collect_garbage(table)
    assert by_value(table).erased
    left = tmp_path / "out" / f".part.{'a' * 32}"
    left.write_bytes(b"bob")
    (unread,) = by_value(table).unread
    assert (unread.where, unread.object, unread.goes) == (Where.EXPORT, left.as_uri(), "delete the file yourself")


# -- copies -----------------------------------------------------------------------------------------------------------


def exported(table, url, format="parquet", where=None):
    target = connect(str(url), {})

    def execute(tasks):
        with tempfile.TemporaryDirectory() as scratch:
            return [run_export_task(task, table.storage, target, Path(scratch)) for task in tasks]

    return export(table, table.snapshot(), target, ExportRequest(format=format, where=where), execute)


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_an_export_is_on_record_and_is_read(table, tmp_path, format):
    exported(table, tmp_path / "out", format)
    rewritten(table, delete_where=BOB)
    collect_garbage(table)
    found = by_value(table)
    assert rows_in(found) == {"export": 2}
    (place,) = found.places
    assert place.object.endswith(f".{format}")
    assert (place.first_version, place.goes) == (3, "delete the file yourself")
    Path(place.object.removeprefix("file://")).unlink()
    assert by_value(table).erased


def test_an_export_that_failed_is_on_record_too(table, tmp_path):
    with raises(Code.WORKER_KILLED):
        export(
            table,
            table.snapshot(),
            connect(str(tmp_path / "out"), {}),
            ExportRequest(),
            lambda tasks: [Code.WORKER_KILLED("killed")] * len(tasks),
        )
    (record,) = read_copies(table.storage, table.id)
    assert (record.kind, record.version) == (CopyKind.EXPORT, 3)
    assert record.url.rstrip("/").endswith("/out")


def test_a_folder_that_cannot_be_listed_is_no_proof(table):
    record_copy(table.storage, table.id, CopyKind.EXPORT, "memory://nowhere-at-all", 3)
    record_copy(table.storage, table.id, CopyKind.EXPORT, "bogus://bucket", 3)
    (unread,) = report(table, "person = 'zoe'").unread
    assert (unread.where, unread.object) == (Where.EXPORT, "bogus://bucket")


def test_rejected_rows_of_an_import_are_read_by_the_names_of_their_columns(table, tmp_path):
    """Of a row that was rejected for its key it is not known whether it is meant."""
    folder = tmp_path / "quarantine" / "job-0001"
    folder.mkdir(parents=True)
    refused = pa.table({"person": ["bob", "ann", None], "city": ["Rome", "Rome", "Rome"], "visit": ["x", "1", "2"]})
    pq.write_table(refused, folder / "rejected.parquet")
    (folder / "_SUCCESS").write_text("{}")
    record_copy(table.storage, table.id, CopyKind.QUARANTINE, str(folder), 3)
    places = [one for one in by_value(table).places if one.where is Where.QUARANTINE]
    assert [(one.rows, one.unclear_rows) for one in places] == [(1, 0)]
    places = [one for one in report(table, "visit = 1").places if one.where is Where.QUARANTINE]
    assert [(one.rows, one.unclear_rows) for one in places] == [(1, 1)]
    places = [one for one in report(table, None, KeyRange.prefix("bob")).places if one.where is Where.QUARANTINE]
    assert [(one.rows, one.unclear_rows) for one in places] == [(1, 1)]


def test_a_folder_that_is_named_is_read_as_well(table, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.csv").write_text("person,visit,city\nbob,1,Rome\nbob,2,\n")
    (tmp_path / "mine" / "b.ndjson").write_text(json.dumps({"person": "bob", "city": "Rome"}) + "\n")
    (tmp_path / "mine" / "c.txt").write_text("bob")
    found = by_value(table, also=[str(tmp_path / "mine")])
    assert rows_in(found) == {"in use": 2, "other": 2}
    assert [one.reason for one in found.unread] == [
        "c.txt is no Parquet, CSV or JSON file by its ending: look at it, or delete it"
    ]
    with raises(Code.URL_SCHEME_UNKNOWN):
        report(table, also=["bogus://x"])


# -- requests ---------------------------------------------------------------------------------------------------------


def test_files_that_wait_or_were_rejected_are_read(table, tmp_path):
    for name in ("waiting", "rejected"):
        pq.write_table(rows(("bob",), 7), tmp_path / f"{name}.parquet")
        table.submit(str(tmp_path / f"{name}.parquet"))
    state = table.state()
    (rejected,) = [one for one in state.open_requests.values() if "rejected" in one.files[0].url]
    table.commit(RejectRequest(rejected.id, "extra column"))
    found = by_value(table)
    places = {Path(one.object).stem: one.goes for one in found.places if one.where is Where.REQUEST}
    assert places == {
        "waiting": "delete the file yourself; the request is open: withdraw it before",
        "rejected": "delete the file yourself; the request is rejected",
    }
    assert any("1 rejected requests" in text for text in found.not_searched)
    (tmp_path / "waiting.parquet").unlink()
    (tmp_path / "rejected.parquet").unlink()
    assert rows_in(by_value(table)) == {"in use": 2}
    assert not by_value(table).unread


def test_a_file_of_a_request_that_was_changed_is_no_proof(table, tmp_path):
    pq.write_table(rows(("bob",), 7), tmp_path / "in.parquet")
    table.submit(str(tmp_path / "in.parquet"))
    pq.write_table(rows(("zoe", "zoe"), 7), tmp_path / "in.parquet")
    (unread,) = by_value(table).unread
    assert "was changed since it was found" in unread.reason


# -- keys -------------------------------------------------------------------------------------------------------------


def keys_in(found):
    return {(str(one.where), one.first_version): one.keys for one in found.places if one.keys}


def test_keys_of_files_are_in_log_entries_and_checkpoints(table):
    """Only ann and eve bound the files, so bob is in none."""
    assert keys_in(report(table, BOB)) == {}
    found = keys_in(report(table, "person = 'eve'"))
    assert found[("log entry", 2)] == 1
    assert ("log entry", 3) in found
    assert ("log entry", 1) not in found


def test_a_removal_names_its_keys_in_the_log(table):
    table.remove(KeyRange.prefix("bob"))
    found = report(table, BOB)
    assert ("log entry", table.version) in keys_in(found)
    (place,) = [one for one in found.places if one.first_version == table.version and one.where is Where.LOG_ENTRY]
    assert "truncates the log" in place.goes
    assert place.due > clock.now()


def test_the_keys_of_a_truncated_log_are_gone(lake, table):
    table.set(log_s=1)
    rewritten(table, delete_where="person = 'eve'")
    collect_garbage(table)
    assert any(where == "log entry" for where, _ in keys_in(report(table, "person = 'eve'")))
    assert "keys" not in report(table, "person = 'eve'").not_searched


def test_bounds_of_later_key_fields_are_searched_by_a_predicate_on_that_field(lake):
    schema = Schema({"place": "string", "person": "string"}, values={"n": "int64"})
    table = lake.create_table("t", schema)
    table.write(pa.table({"place": ["a", "a"], "person": ["bob", "eve"], "n": [1, 2]}))
    found = report(table, "person = 'bob' AND place = 'zzz'")
    assert found.erased
    assert keys_in(report(table, BOB))[("log entry", 2)] >= 1


def test_keys_of_summaries_are_searched(lake):
    table = lake.create_table("big", Schema({"person": "string"}, values={"text": "string"}), settings={"history_s": 0})
    people = [f"p{n:05d}" for n in range(12_000)]
    table.write(pa.table({"person": people, "text": [clock.random_token() for _ in people]}))
    found = report(table, "person = 'p00000'")
    assert found.searched["summary"] == 1
    (place,) = [one for one in found.places if one.where is Where.SUMMARY]
    assert place.object.endswith(".summary")
    assert place.keys == 1


def test_a_predicate_on_values_says_that_keys_were_not_searched(table):
    found = by_value(table)
    assert not found.keys_searched
    assert any("names other columns than those of the row key" in text for text in found.not_searched)


# -- bad input --------------------------------------------------------------------------------------------------------


def test_a_report_about_nothing_is_refused(table):
    with pytest.raises(Error, match="give where, a predicate, or ranges") as caught:
        report(table, None)
    assert caught.value.code is Code.ARGUMENT_MISSING


def test_a_predicate_that_does_not_fit_is_refused(table):
    with pytest.raises(Error, match="No field named absent") as caught:
        report(table, "absent = 1")
    assert caught.value.code is Code.PREDICATE_INVALID


def test_a_compacted_table_has_the_rows_in_new_and_in_old_files(table):
    compact(table)
    assert rows_in(by_value(table)) == {"in use": 2, "older versions": 2}
