"""Writes to a partition with far more runs than reads can serve: refused, or held back while a compaction runs."""

import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import clock
from lakebed.errors import Code, ContentionError
from lakebed.model.state.checkpoint_codec import of_table
from lakebed.model.state.table_state import IngestRequest, Job, Source
from lakebed.model.state.transactions import CloseJob, OpenJob, SubmitRequests
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.write import run as backpressure
from tests.clocks import set_clock, skip_sleeps


@pytest.fixture
def table(tmp_path):
    """Two partitions; the lower one has five runs, at most four of which are allowed."""
    found = lakebed.create(str(tmp_path / "instance")).create_table(
        "t", lakebed.Schema({"k": "int64"}), split_points=[(100,)]
    )
    for _ in range(5):
        found.write(rows(1, 2))
    found.set(runs_max=4)
    return found


def rows(*keys):
    return pa.table({"k": pa.array(keys, pa.int64())})


def merged(table, scratch):
    return lambda tasks: [run_merge_task(task, table.storage, scratch) for task in tasks]


def job_over(table, partition):
    position = table.state().partitions.position_of(partition)
    held = table.state().held_by(partition)
    job = Job("job-00001", table.state().partitions.range_at(position), (held[0].file.id,), "", 60, 0)
    table.commit(OpenJob(job))


def test_a_write_to_a_partition_with_too_many_runs_is_refused_and_says_what_to_do(table):
    before = table.version
    with pytest.raises(
        ContentionError, match=r"partition 1 has 5 runs, more than 4 \(setting runs_max\).*lakebed maintain"
    ) as e:
        table.write(rows(3))
    assert (e.value.facts["partition"], e.value.facts["runs"], e.value.facts["runs_max"]) == (1, 5, 4)
    assert table.version == before
    assert table.write(rows(300)) == before + 1


def test_nothing_is_refused_where_the_setting_is_0(table):
    table.set(runs_max=0)
    assert table.write(rows(3)) == table.version


def test_a_write_that_reaches_many_partitions_is_refused_within_as_many_commits(table):
    """Each commit looks at two of the partitions; of two partitions, at both."""
    with pytest.raises(ContentionError) as raised:
        table.write(rows(3, 300))
    assert raised.value.code is Code.RUNS_MAX_EXCEEDED


def test_after_a_compaction_writes_are_taken_again(table, tmp_path):
    """Whatever the strategy finds: the plan leaves at most half of what is allowed."""
    for strategy in ("by-bytes", "basic"):
        table.set(compaction_strategy=strategy)
        compact(table, prepare(table), merged(table, tmp_path), cores=1)
        assert max(table.partitions().column("runs").to_pylist()) <= 2
        table.write(rows(3))


def test_a_write_waits_while_the_partition_is_compacted(table, tmp_path, monkeypatch):
    waits = threading.Event()
    sleep = clock.sleep
    set_clock(monkeypatch, sleep=lambda seconds: (waits.set(), sleep(min(seconds, 0.01)))[1])
    written = []

    def execute(tasks):
        writer.start()
        assert waits.wait(120)
        return merged(table, tmp_path)(tasks)

    writer = threading.Thread(target=lambda: written.append(table.write(rows(3))))
    compact(table, prepare(table), execute, cores=1)
    writer.join(120)
    assert written == [table.version]


def test_a_write_that_waited_long_enough_is_refused(table, monkeypatch):
    skip_sleeps(monkeypatch)
    job_over(table, 1)
    with pytest.raises(ContentionError, match="partition 1 has 5 runs"):
        table.write(rows(3))
    table.commit(CloseJob("job-00001", "done"))


def test_compaction_does_not_wait_for_requests_that_wait_for_it(table, tmp_path):
    """More open requests than allow a job to begin, which are refused until one is done."""
    files = (Source("s3://in/f", 1, "v"),)
    many = tuple(IngestRequest.new(f"request-{number}", files, table.version) for number in range(1_001))
    table.commit(SubmitRequests(many, 0))
    report = compact(table, prepare(table), merged(table, tmp_path), cores=1)
    assert (report.jobs, report.waits) == (1, None)
    assert prepare(table).waits is not None


def test_long_work_is_refused_before_it_begins(table):
    with pytest.raises(ContentionError, match="partition 1 has 5 runs"):
        backpressure.check_runs(table)
    table.set(runs_max=5)
    backpressure.check_runs(table)


def test_files_of_one_run_count_once(table):
    """A partition of many files that do not overlap is one run."""
    table.set(runs_max=1, file_bytes=4096, page_rows=100, row_group_rows=1000)
    numbers = list(range(100, 60_000))
    table.write(rows(*numbers))
    assert table.partitions().column("files").to_pylist()[1] > 1
    table.write(rows(200))
    with pytest.raises(ContentionError, match="partition 2 has 2 runs"):
        table.write(rows(201))


def test_what_lies_in_a_checkpoint_counts_too(table):
    """The references are in the columns then, and in no change since."""
    rested = of_table(table.state()).state.references
    assert [rested.exceeds(1, count) for count in (4, 5, 10**6)] == [True, False, False]
    assert not rested.exceeds(2, 0)
