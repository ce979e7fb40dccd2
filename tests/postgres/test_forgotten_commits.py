"""A server forgets commits that it acknowledged: a fail-over to a standby that was behind, or a restored backup."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import lakebed
from lakebed import clock
from lakebed.errors import Code, DamagedError
from lakebed.log.entry import digest_of
from lakebed.log.locations import connect_logs
from lakebed.server.service.watch import LOG_START_EVERY, Watch
from lakebed.storage import connect
from lakebed.storage.contract import PutOutcome
from lakebed.upkeep.view_feed import refresh

SCHEMA = lakebed.Schema({"k": "int64"})


@pytest.fixture
def lake(cluster, tmp_path):
    return lakebed.create(str(tmp_path / "lake"), log_url=cluster.url())


def write(table, k):
    return table.write(pa.table({"k": [k]}), commit_id=f"c{k}")


def keys(table):
    return table.scan().read_all()["k"].to_pylist()


def forget(cluster, table, after):
    """As a server that never had the entries after that version."""
    table.log.wait_for_checkpoint()
    cluster.sql(f"DELETE FROM lakebed_entries WHERE log LIKE '%tables/{table.id}' AND version > {after}")


def opened(lake):
    return lakebed.open(lake.url).table("t")


@pytest.fixture
def table(cluster, lake):
    """Versions 2 to 9 have the rows 0 to 7; the server forgets those after version 4, which this process knows."""
    table = lake.create_table("t", SCHEMA)
    for k in range(8):
        write(table, k)
    table.log.wait_for_checkpoint()
    table.log.checkpoints.write(table.log.head)
    forget(cluster, table, 4)
    return table


def went_back(call, version=9):
    with pytest.raises(DamagedError, match=rf"went back: entry {version}\b.*lakebed docs operations") as raised:
        call()
    assert raised.value.code is Code.LOG_WENT_BACK


def test_a_process_that_knows_forgotten_commits_gets_an_error_when_it_reads_and_when_it_writes(table, lake):
    """It does not write above the gap, where no other process would see its rows."""
    went_back(lambda: keys(table))
    went_back(lambda: write(table, 100))
    went_back(lambda: table.count(exact=True))
    assert list(table.log.backend.versions()) == [1, 2, 3, 4]


def test_a_new_process_sees_it_by_a_checkpoint_that_is_ahead(table, lake):
    assert table.log.checkpoints.read().version > 4
    for call in (lambda: keys(opened(lake)), lambda: write(opened(lake), 100)):
        went_back(call, table.log.checkpoints.read().version)


def test_a_log_that_went_back_and_grew_again_is_recognized(table, lake):
    """Shorter than, as long as, and longer than what the first process knows."""
    shutil.rmtree(f"{lake.url.removeprefix('file://')}/tables/{table.id}/checkpoints")
    other = opened(lake)
    for k in range(200, 207):
        write(other, k)
        went_back(lambda: keys(table))
        went_back(lambda: write(table, 100))
    assert keys(opened(lake)) == [0, 1, 2, *range(200, 207)]
    assert opened(lake).verify(files=True).sound


def test_the_way_out_of_the_documentation_leads_out(table, lake):
    """Delete the checkpoints that are ahead, and write the rows of the lost commits again, under their commit ids."""
    report = opened(lake).verify(files=True)
    assert "cut_off" in {finding.kind for finding in report.findings}
    shutil.rmtree(f"{lake.url.removeprefix('file://')}/tables/{table.id}/checkpoints")
    again = opened(lake)
    assert keys(again) == [0, 1, 2]
    for k in range(8):
        write(again, k)
    assert keys(opened(lake)) == list(range(8))
    assert opened(lake).verify(files=True, deep=True).sound


def test_lost_entries_that_are_put_back_make_everything_well(cluster, lake):
    table = lake.create_table("t", SCHEMA)
    for k in range(8):
        write(table, k)
    kept = {version: table.log.backend.get(version) for version in range(5, 10)}
    forget(cluster, table, 4)
    went_back(lambda: keys(table))
    for version, data in kept.items():
        assert table.log.backend.create(version, data, digest_of(table.log.backend.get(version - 1))) is (
            PutOutcome.CREATED
        )
    assert keys(table) == keys(opened(lake)) == list(range(8))
    write(table, 8)
    assert opened(lake).verify(files=True).sound


def test_a_service_shows_it_in_the_status_of_the_table(cluster, lake):
    table = lake.create_table("t", SCHEMA)
    write(table, 0)
    watch = Watch(lake.catalog().tables[table.id], lake.log_of(table.id), 0.0, 0.0)
    assert watch.follow(lake)
    write(table, 1)
    assert watch.follow(lake)
    forget(cluster, table, 2)
    for _ in range(LOG_START_EVERY):
        watch.follow(lake)
    assert watch.error is not None
    assert watch.error.code == "log_went_back"


def test_a_gap_in_the_rows_of_a_log_is_reported_at_the_first_read(cluster, lake):
    """And by a process that has read before, as the server shows what follows with each log start."""
    table = lake.create_table("t", SCHEMA)
    for k in range(8):
        write(table, k)
    behind = opened(lake)
    behind.log.tail._head = behind.log.past.at(4)
    behind.log.tail.opened = True
    table.log.wait_for_checkpoint()
    shutil.rmtree(f"{lake.url.removeprefix('file://')}/tables/{table.id}/checkpoints")
    cluster.sql(f"DELETE FROM lakebed_entries WHERE log LIKE '%tables/{table.id}' AND version IN (6, 7)")
    for call in (lambda: keys(opened(lake)), lambda: keys(behind), lambda: write(opened(lake), 9)):
        with pytest.raises(DamagedError, match=r"entry 6 of .* is missing from the log") as raised:
            call()
        assert raised.value.code is Code.ENTRY_MISSING


def test_an_entry_goes_in_behind_its_predecessor_only(lake, table):
    """By one condition of the INSERT, for every writer."""
    log = connect_logs(lake.catalog_log().backend.location.server.url, connect("memory://x"), clock.new_id()).open("l")
    assert log.create(1, b"one") is PutOutcome.CREATED
    assert log.create(3, b"three", digest_of(b"two")) is PutOutcome.UNLINKED
    assert log.create(2, b"two", digest_of(b"another")) is PutOutcome.UNLINKED
    assert log.create(2, b"two", digest_of(b"one")) is PutOutcome.CREATED
    assert log.create(2, b"other", digest_of(b"one")) is PutOutcome.EXISTS
    assert [log.around(version).digest for version in (1, 2, 3)] == [digest_of(b"one"), digest_of(b"two"), ""]


def test_a_view_that_is_ahead_of_its_source_says_so(cluster, lake):
    """It would have nothing to do until the source has as many versions again, and then miss some of their rows."""
    table = lake.create_table("t", SCHEMA)
    select = "SELECT k FROM source WHERE k >= 0"
    view = lake.create_view_table("v", source="t", select=select, row_key=["k"])
    write(table, 0)
    write(table, 1)
    refresh(view, table)
    forget(cluster, table, 2)
    shutil.rmtree(f"{lake.url.removeprefix('file://')}/tables/{table.id}/checkpoints", ignore_errors=True)
    fresh = lakebed.open(lake.url)
    with pytest.raises(
        DamagedError, match="has version 3 of t, which is at version 2: the log of the source went back"
    ):
        refresh(fresh.table("v"), fresh.table("t"))
    refresh(fresh.table("v"), fresh.table("t"), anew=True)
    assert fresh.table("v").to_arrow()["k"].to_pylist() == [0]
