"""What the library measures while it works, and that it measures nothing when there is no receiver."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lakebed
from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.log.batch_commit import commit_batch
from lakebed.model.state.transactions import AlterSettings
from lakebed.storage import telemetry
from tests.raising import raises


class Recorded:
    """Keeps every value, by the name of its measure and its labels."""

    def __init__(self):
        self.values = defaultdict(list)
        self.spans = []

    def measured(self, name, value, labels):
        self.values[name, *sorted(labels.items())].append(value)

    def begun(self, name, labels, *, nests=True):
        self.spans.append(("begun", name, nests))
        return lambda error: self.spans.append(("ended", name, error))

    def of(self, name, **labels):
        return self.values[name, *sorted(labels.items())]


@pytest.fixture
def recorded():
    sink = Recorded()
    telemetry.install(sink)
    yield sink
    telemetry.install(None)


@pytest.fixture
def table():
    return lakebed.create(f"memory://{random_token()}").create_table("t", lakebed.Schema({"k": "int64"}))


def rows(count):
    return pa.table({"k": pa.array(range(count), pa.int64())})


def test_a_write_and_its_commit_are_measured(table, recorded):
    table.write(rows(3))
    assert recorded.of("write_rows_total", table=table.id) == [3]
    (size_bytes,) = recorded.of("written_bytes_total", table=table.id)
    assert size_bytes > 0
    assert len(recorded.of("write_seconds", table=table.id)) == 1
    assert len(recorded.of("commit_seconds", table=table.id, outcome="committed")) == 1
    assert recorded.of("commit_group_size") == [1]


def test_commits_that_are_made_for_others_are_measured_each(table, recorded):
    proposals = [AlterSettings({"history_s": seconds}) for seconds in (3600, 7200)]
    with ThreadPoolExecutor(2) as threads:
        outcomes = commit_batch(table.log, proposals, threads).result(120)
    assert [type(one).__name__ for one in outcomes] == ["Committed", "Committed"]
    assert len(recorded.of("commit_seconds", table=table.id, outcome="committed")) == 2
    assert recorded.spans.count(("begun", "commit", False)) == recorded.spans.count(("ended", "commit", None)) == 2


def test_each_kind_of_read_is_measured_once(table, recorded):
    table.write(rows(100))
    recorded.values.clear()
    assert table.get(7).num_rows == 1
    assert table.snapshot().get(8).num_rows == 1
    assert table.get_many([1, 2, 300]).num_rows == 2
    assert table.scan().read_all().num_rows == 100
    assert table.count().rows == 100
    kinds = {
        dict(labels)["kind"]: len(found) for (name, *labels), found in recorded.values.items() if name == "read_seconds"
    }
    assert kinds == {"get": 2, "get_many": 1, "scan_first_batch": 1, "scan": 1, "count": 1}
    assert recorded.of("read_rows_total", kind="get", table=table.id) == [1, 1]
    assert recorded.of("read_rows_total", kind="get_many", table=table.id) == [2]
    assert recorded.of("read_rows_total", kind="scan", table=table.id) == [100]
    first, second = recorded.of("read_bytes_total", kind="get", table=table.id)
    assert first > 0
    assert second == 0, "the page is kept from the first"


def test_sql_is_measured_here_and_in_a_process_of_its_own(tmp_path, recorded):
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("t", lakebed.Schema({"k": "int64"})).write(rows(5))
    assert lake.sql("SELECT k FROM t").read_all().num_rows == 5
    assert len(recorded.of("read_seconds", kind="sql", table="")) == 1
    with lake.sql("SELECT k FROM t", timeout_s=60) as limited:
        assert limited.read_all().num_rows == 5
    assert len(recorded.of("read_seconds", kind="sql", table="")) == 2


def test_a_scan_that_is_closed_early_counts_what_was_read_and_is_no_error(table, recorded):
    table.write(rows(10))
    with table.scan() as stream:
        stream.read_next_batch()
    assert recorded.of("read_rows_total", kind="scan", table=table.id) == [10]
    assert not recorded.of("read_errors_total", kind="scan", table=table.id)
    assert ("ended", "read", None) in recorded.spans


def test_a_failed_read_is_counted_as_an_error(table, recorded):
    table.write(rows(1))
    with raises(Code.KEY_TYPE_MISMATCH):
        table.get("no number")
    assert recorded.of("read_errors_total", kind="get", table=table.id) == [1]
    begun, ended = [one for one in recorded.spans if one[1] == "read"]
    assert begun == ("begun", "read", True)
    assert isinstance(ended[2], lakebed.BadKeyError)


def test_a_lost_race_is_counted(tmp_path, recorded):
    lake = lakebed.create(str(tmp_path / "lake"))
    one = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    one.write(rows(1))
    other = lakebed.open(str(tmp_path / "lake")).table("t")
    other.write(rows(1))
    one.set(split_rows=10)
    other.set(split_rows=11)
    assert sum(recorded.of("commit_conflicts_total", table=one.id)) == 2


def test_requests_to_an_object_store_are_measured(table, recorded):
    table.write(rows(1))
    table.get(0)
    operations = {dict(labels)["operation"] for name, *labels in recorded.values if name == "storage_request_seconds"}
    assert {"create", "send", "read"} <= operations
    outcomes = {dict(labels)["outcome"] for name, *labels in recorded.values if name == "storage_request_seconds"}
    assert outcomes == {"ok"}


def test_a_checkpoint_and_a_collection_are_measured(tmp_path, recorded):
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(rows(1))
    table.log.wait_for_checkpoint()
    assert recorded.of("checkpoint_write_seconds", outcome="written")
    from lakebed.upkeep.retention.run import collect_garbage

    collect_garbage(table)
    assert len(recorded.of("gc_seconds", table=table.id)) == 1
    assert recorded.of("gc_deleted_files_total", table=table.id) == [0]


def test_several_sinks_receive_the_same(table):
    first, second = Recorded(), Recorded()
    telemetry.install(telemetry.Several(first, second))
    try:
        table.write(rows(1))
    finally:
        telemetry.install(None)
    assert first.values == second.values
    assert first.spans == second.spans
    assert first.spans


def test_without_a_sink_a_span_is_one_object_that_does_nothing():
    assert telemetry.sink is None
    assert telemetry.span("read", kind="get") is telemetry.UNMEASURED
    with telemetry.span("read") as span:
        span.labels["outcome"] = "ok"


def test_work_of_another_thread_is_in_the_context_of_the_one_that_gave_it(recorded):
    telemetry.trace_parent.set("mine")
    with ThreadPoolExecutor(2) as pool:
        both = threading.Barrier(2)

        def work(number):
            both.wait(120)
            return number, telemetry.trace_parent.get()

        assert list(pool.map(telemetry.carry(work), [1, 2])) == [(1, "mine"), (2, "mine")]
        assert pool.submit(telemetry.trace_parent.get).result() == ""
    telemetry.trace_parent.set("")


def test_without_a_sink_work_is_handed_on_as_it_is():
    assert telemetry.carry(len) is len
