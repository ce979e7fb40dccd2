"""Submitting files: each is put on record once, by any process, and however often."""

import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import NotFoundError, RejectedError, UsageError
from lakebed.errors import Code
from lakebed.log.last_modified_times import EPOCH
from lakebed.model.state.transactions import FailRequest, RaiseWatermark, RejectRequest, Watermark
from lakebed.write import requests
from tests.raising import raises
from tests.tables.ingest.cases import ingested, put, standings
from tests.tables.retention.cases import letters, made, on


def test_files_are_put_on_record_by_name_folder_or_glob(table, inbox):
    put(inbox, "ab", "cd", "ce")
    assert standings(table.submit(inbox)) == "ab submitted, cd submitted, ce submitted"
    assert len(table.state().open_requests) == 3
    assert standings(made().submit(f"{inbox}/c*")) == "cd submitted, ce submitted"
    assert standings(made().submit([inbox / "ce.parquet", inbox / "ab.parquet"])) == "ce submitted, ab submitted"


def test_a_file_is_submitted_once_by_whichever_process(table, inbox):
    """It is known by its URL, size and version; the report says since when it is on record."""
    put(inbox, "ab")
    first = table.submit(inbox)
    put(inbox, "cd")
    again = on(table).submit(inbox)
    assert standings(again) == "ab open, cd submitted"
    assert (again.files[0].request, again.files[0].version) == (first.files[0].request, first.version)
    assert (again.version, table.submit(inbox).version) == (first.version + 1, None)


def test_a_file_is_submitted_once_from_wherever_it_is_named(table, inbox, monkeypatch):
    put(inbox, "ab")
    table.submit(inbox)
    (inbox / "deep").mkdir()
    monkeypatch.chdir(inbox / "deep")
    assert standings(table.submit("../ab.parquet")) == "ab open"
    assert standings(table.submit("../../inbox/a*.parquet")) == "ab open"


def test_a_file_that_was_ingested_is_not_submitted_again_unless_it_is_meant(table, inbox):
    put(inbox, "ab")
    table.submit(inbox)
    version = ingested(table).version
    again = table.submit(inbox)
    assert (standings(again), again.files[0].version, again.version) == ("ab ingested", version, None)
    assert standings(table.submit(inbox, again=True)) == "ab submitted"
    ingested(table)
    assert letters(table) == "aabb"


def test_a_file_that_was_written_over_is_another(table, inbox):
    put(inbox, "ab")
    table.submit(inbox)
    ingested(table)
    os.utime(inbox / "ab.parquet", (1, 1))
    assert standings(table.submit(inbox)) == "ab submitted"


def test_a_file_of_before_the_forget_line_is_left_out_unless_it_is_meant(table, inbox):
    """There is no record any more of whether it was ingested. The clocks of store and log may be apart."""
    put(inbox, "old", "young")
    table.submit(inbox / "old.parquet")
    ingested(table)
    table.commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, table.version))
    line = table.log.entry_last_modified(table.state().request_watermark)
    for name, late in (("old", timedelta(0)), ("young", timedelta(seconds=1))):
        moment = (line + requests.CLOCKS_APART + late - EPOCH) // timedelta(microseconds=1) * 1000 - 1
        os.utime(inbox / f"{name}.parquet", ns=(moment, moment))
    assert standings(table.submit(inbox)) == "old old, young submitted"
    assert len(table.state().open_requests) == 1
    assert standings(table.submit(inbox / "old.parquet", again=True)) == "old submitted"


def test_a_table_that_forgot_nothing_takes_files_of_any_age(table, inbox):
    put(inbox, "ab")
    os.utime(inbox / "ab.parquet", (1, 1))
    assert standings(table.submit(inbox)) == "ab submitted"


def test_many_files_take_several_entries(table, inbox):
    put(inbox, *"abcde")
    before = table.version
    report = requests.submit(table.log, "t", inbox, again=False, home=table.storage, batch_requests=2)
    assert (report.version, report.count(requests.Standing.SUBMITTED)) == (before + 3, 5)
    assert [file.version - before for file in report.files] == [1, 1, 2, 2, 3]


def test_there_is_room_for_so_many_open_requests(table, inbox):
    """All of a submission goes in, or nothing of it."""
    put(inbox, *"abc")
    with pytest.raises(
        RejectedError, match="0 requests are open, and 3 more would exceed the limit of 2; ingest first"
    ):
        requests.submit(table.log, "t", inbox, again=False, home=table.storage, open_requests_max=2)
    assert not table.state().open_requests


def test_what_is_not_there_is_named(table, inbox):
    with pytest.raises(NotFoundError, match=r"no file or folder with Parquet files at .*nothing"):
        table.submit(inbox / "nothing")
    with pytest.raises(UsageError, match="no source was given"):
        table.submit([])


def test_requests_are_listed_with_their_outcomes(table, inbox):
    put(inbox, "a", "b", "c")
    report = table.submit(inbox)
    a, b, _ = (file.request for file in report.files)
    failed = table.commit(FailRequest(a, "no such column"))
    rejected = table.commit(RejectRequest(b, "it is gone"))
    listed = on(table).requests().select(["id", "state", "version", "failures", "reason", "files"]).to_pylist()
    assert [tuple(row.values())[1:] for row in listed] == [
        ("open", report.version, 1, "no such column", 1),
        ("open", report.version, 0, None, 1),
        ("rejected", rejected, 0, "it is gone", 1),
    ]
    assert [row["id"] for row in listed][::2] == [a, b]
    assert failed < rejected
    assert table.requests().column("time").to_pylist()[2] == table.log.entry_last_modified(rejected)


def test_a_rejected_request_may_be_submitted_anew(table, inbox):
    put(inbox, "ab")
    (file,) = table.submit(inbox).files
    table.commit(RejectRequest(file.request, "it is gone"))
    assert standings(table.submit(inbox)) == "ab submitted"
    assert table.requests().column("state").to_pylist() == ["open"]


def test_a_file_that_is_no_parquet_is_refused_and_so_is_what_comes_with_it(table, inbox):
    put(inbox, "ab")
    (inbox / "cd.parquet").write_text("a page that says 404, in HTML")
    with pytest.raises(UsageError, match=r"cd\.parquet is no Parquet file.*Nothing was submitted"):
        requests.submit(table.log, "t", inbox, again=False, home=table.storage, open_requests_max=2)
    assert not table.state().open_requests


def test_open_requests_are_withdrawn_by_id_or_url_and_may_be_submitted_anew(table, inbox):
    ab, _, _ = put(inbox, "ab", "cd", "ef")
    submitted = {file.url: file.request for file in table.submit(inbox).files}
    report = table.withdraw(ab, submitted[f"{inbox}/cd.parquet"])
    assert set(report.withdrawn) == {submitted[ab], submitted[f"{inbox}/cd.parquet"]}
    assert (report.version, report.late) == (table.version, ())
    assert {one.reason for one in on(table).state().rejected} == {"withdrawn"}
    assert ingested(table).rows == 2
    assert standings(table.submit(inbox)) == "ab submitted, cd submitted, ef ingested"


def test_nothing_is_withdrawn_if_one_of_them_is_not_open(table, inbox):
    (ab,) = put(inbox, "ab")
    table.submit(inbox)
    for strange in (["nothing"], [ab, "nothing"], [7], []):
        with raises(Code.ARGUMENT_INVALID, Code.ARGUMENT_MISSING, Code.REQUEST_NOT_FOUND):
            table.withdraw(*strange)
    assert len(table.state().open_requests) == 1


def test_many_requests_are_withdrawn_by_one_call(table, inbox):
    """Side by side, so that those that wait together go into one entry."""
    put(inbox, *(f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"))
    table.submit(inbox)
    held = set(table.state().open_requests)
    report = table.withdraw(*held)
    assert set(report.withdrawn) == held
    assert report.version == table.version
    assert not on(table).state().open_requests


def test_what_was_ingested_meanwhile_is_late(table, inbox):
    (ab,) = put(inbox, "ab")
    table.submit(inbox)
    held = table.state()
    behind = SimpleNamespace(follow=lambda: held, commit=table.log.commit)
    ingested(table)
    report = requests.withdraw(behind, "t", [ab])
    assert (report.version, report.withdrawn, len(report.late)) == (None, (), 1)


def test_new_files_count_as_new_however_short_the_record_is(tmp_path):
    """With a log_s of less than the hour by which clocks may differ, each new file would be left out for ever. Files on
    the disk of the log have its clock.
    """
    table = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "int64"}), settings={"log_s": 2})
    table.commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, table.version))
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    for path in (old, new):
        pq.write_table(pa.table({"k": pa.array([1], pa.int64())}), path)
    os.utime(old, (0, 0))
    report = table.submit([old, new])
    assert {Path(file.url).name: file.standing for file in report.files} == {
        "old.parquet": requests.Standing.OLD,
        "new.parquet": requests.Standing.SUBMITTED,
    }
