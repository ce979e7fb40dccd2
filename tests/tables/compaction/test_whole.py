"""Small files that reach many partitions are merged whole: which, when, and what becomes of the rows."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.transactions import (
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeRemoval,
    ProposeSplit,
    Rejected,
    resolve,
)
from lakebed.upkeep.compaction.plan import CompactionLimits, plan
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from tests.pure.state.cases import drawn, job, key, new_file, step
from tests.pure.state.cases import table as partitions_at

PARTITIONS, WRITES = 30, 12


FEW = CompactionLimits(references_min=2)
"""Two references less are worth a job over several partitions."""


def planned(state, strategy=Strategy.SIZE_RATIO, limits=FEW, **changes):
    """A line a merge over several partitions: ``partitions: files``; then those of single partitions."""
    found = plan(state, Settings(**changes), strategy, limits=limits)
    wide = [
        f"{' '.join(map(str, m.partitions))}: {' '.join(f.id for f in m.inputs)} ({m.rows} rows)" for m in found.whole
    ]
    return wide + [f"partition {m.partition}: {' '.join(f.id for f in m.inputs)}" for m in found.merges]


def written(*letters, boundaries="m"):
    """A table of a file for each of these texts, each by a write of its own."""
    state = partitions_at(*boundaries)
    for place, text in enumerate(letters):
        # The ranks at boundaries are exact, as those of files that were written for them.
        state = step(state, ProposeFiles((new_file(f"f{place}", text, samples=text + boundaries),)))
    return state


def test_files_of_like_size_are_merged_whole_over_the_partitions_that_they_reach():
    state = written("ax", "by", "cz", "az", boundaries="mp")
    assert planned(state) == ["1 3: f0 f1 f2 f3 (8 rows)"]
    assert planned(written("ax", "by", "cz")) == []
    assert planned(written("ax", "by", "cz"), Strategy.FULL) == ["1 2: f0 f1 f2 (6 rows)"]


def test_files_of_one_partition_and_files_with_large_slices_are_merged_partition_by_partition():
    assert planned(written("ab", "bc", "cd", "ax", "ax", "ax", "ax")) == ["1 2: f3 f4 f5 f6 (8 rows)"]
    found = planned(written("ax", "by", "cz", "az"), limits=replace(FEW, slice_bytes_max=100))
    assert found == [
        "partition 1: f0 f1 f2 f3",
        "partition 2: f0 f1 f2 f3",
    ]


def test_few_references_are_not_worth_it():
    assert planned(written("ax", "by", "cz", "az"), limits=CompactionLimits()) == [
        "partition 1: f0 f1 f2 f3",
        "partition 2: f0 f1 f2 f3",
    ]


def test_a_file_that_was_merged_away_in_one_partition_is_merged_partition_by_partition():
    state = written("ax", "by", "cz", "az", "ay")
    low = EncodedRange(b"", key("m"))
    state = step(state, OpenJob(job("job-1", "f0", keys=low)))
    assert planned(state) == ["1 2: f1 f2 f3 f4 (8 rows)"]
    state = step(state, ProposeOutput("job-1", (new_file("f9", "a"),)))
    assert planned(state) == ["1 2: f1 f2 f3 f4 (8 rows)"]


def test_a_file_with_an_estimate_is_merged_partition_by_partition():
    """Nothing proves that all of its rows count."""
    state = step(written("ax", "by", "cz", "az"), ProposeSplit({1: (key("c"),)}))
    found = planned(state)
    assert found
    assert all(line.startswith("partition ") for line in found)


def refused(state, proposal):
    found = resolve(proposal, state)
    assert isinstance(found, Rejected), found
    return found.reason


def test_a_job_over_several_partitions_is_opened_only_if_every_row_of_its_inputs_counts():
    state = written("ax", "by")
    low = EncodedRange(b"", key("m"))
    merged = step(step(state, OpenJob(job("job-1", "f0", keys=low))), ProposeOutput("job-1", (new_file("f9", "a"),)))
    assert "do not hold all rows of its input f0" in refused(merged, OpenJob(job("job-2", "f0", "f1")))
    estimated = step(state, ProposeSplit({1: (key("c"),)}))
    assert "do not hold all rows" in refused(estimated, OpenJob(job("job-2", "f0", "f1")))
    assert "do not hold all rows" in refused(state, OpenJob(job("job-2", "f0", "f1", keys=EncodedRange(b"", key("x")))))
    held = step(state, OpenJob(job("job-1", "f1", keys=low)))
    assert "belongs to open job job-1" in refused(held, OpenJob(job("job-2", "f0", "f1")))
    opened = step(state, OpenJob(job("job-2", "f0", "f1", keys=ALL_KEYS)))
    assert drawn(step(opened, ProposeOutput("job-2", (new_file("f9", "abxy", samples="m"),)))) == ["f9:2", "f9:2"]


def test_partitions_that_were_split_or_emptied_meanwhile_are_served_partition_by_partition():
    state = step(written("ax", "by"), OpenJob(job("job-1", "f0", "f1")))
    state = step(state, ProposeRemoval((EncodedRange(key("m"), None),), False, {}))
    ranks = {name: new_file(name, text, samples=text + "bm").summary for name, text in (("f0", "ax"), ("f1", "by"))}
    state = step(state, ProposeSplit({1: (key("b"),)}, ranks))
    state = step(state, ProposeFiles((new_file("f7", "az", samples="bm"),)))
    assert drawn(state) == ["f0:1 f7:1", "f1:1", "f7:1"]
    output = ProposeOutput("job-1", (new_file("f9", "abxy", samples="bm"),))
    assert drawn(step(state, output)) == ["f7:1 f9:1", "f9:1", "f7:1"]


# -- with rows -------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Many partitions, and writes that all reach all of them."""
    schema = lakebed.Schema({"k": "int64"}, values={"v": "int64"})
    edges = [(100 * place,) for place in range(1, PARTITIONS)]
    found = lakebed.create(str(tmp_path / "instance")).create_table("t", schema, split_points=edges)
    for version in range(WRITES):
        keys = [100 * place + version % 100 for place in range(PARTITIONS)]
        found.write(pa.table({"k": keys, "v": [version] * PARTITIONS}))
    return found


def contents(table):
    rows = table.scan().read_all()
    return Counter(zip(rows.column("k").to_pylist(), rows.column("v").to_pylist(), strict=True))


def merged(table, scratch):
    return lambda tasks: [run_merge_task(task, table.storage, scratch) for task in tasks]


def runs(table):
    return table.partitions().column("runs").to_pylist()


@pytest.mark.parametrize("strategy", list(Strategy))
def test_many_writes_over_all_partitions_are_one_job_and_one_file(table, tmp_path, strategy):
    before = contents(table)
    report = compact(table, prepare(table, strategy), merged(table, tmp_path), cores=2)
    assert (report.jobs, report.partitions, report.files_in, report.files_out) == (1, PARTITIONS, WRITES, 1)
    assert report.rows == PARTITIONS * WRITES
    assert runs(table) == [1] * PARTITIONS
    assert contents(table) == before
    assert not table.verify(files=True).findings


def test_what_else_is_due_is_done_after_it(table, tmp_path):
    """Files of one partition each lie beside the small ones: ``full`` makes one run of all."""
    for version in range(3):
        table.write(pa.table({"k": [5, 7], "v": [version] * 2}))
    before = contents(table)
    report = compact(table, prepare(table, "full"), merged(table, tmp_path), cores=2)
    assert (report.jobs, report.failed, report.skipped) == (2, (), ())
    assert runs(table) == [1] * PARTITIONS
    assert contents(table) == before


def test_rows_that_are_removed_while_it_runs_do_not_come_back(table, tmp_path):
    def execute(tasks):
        made = [run_merge_task(task, table.storage, tmp_path) for task in tasks]
        table.remove(KeyRange((150,), (450,)))
        table.write(pa.table({"k": [200], "v": [-1]}))
        return made

    before = contents(table)
    report = compact(table, prepare(table), execute, cores=2)
    assert report.jobs == 1
    left = Counter({row: n for row, n in before.items() if not 150 <= row[0] < 450}) + Counter({(200, -1): 1})
    assert contents(table) == left


def test_a_task_that_fails_leaves_the_table_as_it_was_and_the_job_closed(table):
    def execute(tasks):
        return [Code.OBJECT_DAMAGED("no", name="f") for _ in tasks]

    before = contents(table)
    report = compact(table, prepare(table), execute, cores=2)
    assert len(report.failed) == 1
    assert not table.state().jobs
    assert contents(table) == before
