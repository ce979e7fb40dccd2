"""Which partitions are merged, and how one is shared out: tables of letters in, a line a merge out."""

import pytest

from lakebed.errors import UsageError
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.transactions import ConcatenateRuns, OpenJob, ProposeFiles, ProposeOutput
from lakebed.upkeep.compaction.plan import (
    LIMITS,
    CompactionLimits,
    PartitionMerge,
    check_strategy,
    divide_merge,
    inputs_of,
    plan,
    share_out,
    tasks_of,
    whole,
    why_wait,
)
from tests.pure.state.cases import job, key, new_file, step, table


def planned(state, strategy=Strategy.FULL, limits=LIMITS, **changes):
    """A line a merge, ``partition: files (runs, rows)``; then one a chain; and a line for each partition that has to
    wait."""
    found = plan(state, Settings(**changes), strategy, limits=limits)
    merges = [f"{m.partition}: {' '.join(f.id for f in m.inputs)} ({m.runs} runs, {m.rows} rows)" for m in found.merges]
    concatenations = [f"{c.partition} concatenated: {' '.join(c.files)} ({c.runs} runs)" for c in found.concatenations]
    return merges + concatenations + [f"{s.partition} waits: {s.reason}" for s in found.skipped]


def test_a_partition_of_one_run_or_none_is_left_alone():
    """However many files the run has: they do not overlap."""
    assert planned(table("m")) == []
    state = step(table("m"), ProposeFiles((new_file("f1", "abc", "run"), new_file("f2", "def", "run"))))
    assert planned(state) == []


def test_a_partition_of_several_runs_is_merged_whole():
    state = step(table(), ProposeFiles((new_file("f1", "abc", "r1"), new_file("f2", "def", "r1"))))
    state = step(state, ProposeFiles((new_file("f3", "bz"),)))
    assert planned(state) == ["1: f1 f2 f3 (2 runs, 8 rows)"]


def test_only_the_slice_inside_the_partition_counts():
    state = step(table("m"), ProposeFiles((new_file("f1", "abxyz", samples="m"), new_file("f2", "a"))))
    merge = plan(state, Settings(), Strategy.FULL).merges[0]
    assert (merge.rows, merge.exact, merge.size_bytes) == (3, True, 300)


def test_partitions_with_most_runs_come_first():
    """A query merges as many runs as its partition has."""
    state = step(table("m"), ProposeFiles((new_file("f1", "a"), new_file("f2", "b"))))
    state = step(state, ProposeFiles((new_file("f3", "x"), new_file("f4", "y"), new_file("f5", "z"))))
    assert planned(state) == ["2: f3 f4 f5 (3 runs, 3 rows)", "1: f1 f2 (2 runs, 2 rows)"]


def test_a_partition_with_an_open_job_waits_and_its_neighbour_does_not():
    state = step(table("m"), ProposeFiles((new_file("f1", "ax"), new_file("f2", "bz"))))
    state = step(state, OpenJob(job("job-1", "f1", keys=EncodedRange(b"", key("m")))))
    assert planned(state) == ["2: f1 f2 (2 runs, 2 rows)", "1 waits: job job-1 is open in the partition"]


def several(*names, boundaries=()):
    """A table of files of one row each that all lie at ``a``."""
    return step(table(*boundaries), ProposeFiles(tuple(new_file(name, "a") for name in names)))


def test_the_table_says_which_strategy_unless_the_caller_does():
    state = several("f1", "f2", "f3", "f4")
    assert planned(state, None, compaction_strategy=Strategy.BASIC) == []
    assert planned(state, Strategy.SIZE_RATIO, compaction_strategy=Strategy.BASIC) == [
        "1: f1 f2 f3 f4 (4 runs, 4 rows)"
    ]


def test_what_an_open_job_merges_is_left_to_it_and_the_rest_of_the_partition_is_not(monkeypatch):
    state = step(several("f1", "f2", "f3", "f4"), OpenJob(job("job-1", "f1", "f4")))
    state = step(state, ProposeFiles((new_file("f5", "a"),)))
    basic = {"strategy": Strategy.BASIC, "compaction_batch_runs": 3}
    assert planned(state, **basic) == ["1: f2 f3 f5 (3 runs, 3 rows)"]
    limits = CompactionLimits(partition_jobs_max=1)
    assert planned(state, limits=limits, **basic) == ["1 waits: 1 jobs are open in the partition (limit 1)"]


def test_a_table_has_at_most_so_many_jobs_and_the_worst_partitions_come_first():
    state = step(table("m"), ProposeFiles(tuple(new_file(f"a{n}", "a") for n in range(2))))
    state = step(state, ProposeFiles(tuple(new_file(f"z{n}", "z") for n in range(3))))
    assert planned(state, limits=CompactionLimits(jobs_max=1)) == [
        "2: z0 z1 z2 (3 runs, 3 rows)",
        "1 waits: the table has 0 open jobs, and jobs planned before (limit 1)",
    ]
    state = step(state, OpenJob(job("job-1", "z0", keys=EncodedRange(key("m"), None))))
    waiting = "1 waits: the table has 1 open jobs, and jobs planned before (limit 1)"
    assert waiting in planned(state, limits=CompactionLimits(jobs_max=1))


def test_partitions_are_merged_whole_on_demand_even_of_a_single_run():
    state = step(table("m"), ProposeFiles((new_file("f1", "ax", samples="m"), new_file("f2", "b"))))
    found = whole(state, (1, 2, 9))
    assert [(m.partition, [f.id for f in m.inputs], m.rows) for m in found.merges] == [
        (1, ["f1", "f2"], 2),
        (2, ["f1"], 1),
    ]


def test_runs_that_do_not_overlap_are_chained_and_a_chain_that_is_merged_is_not():
    """100 bytes a row: files of at least two rows are worth keeping apart here."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"), new_file("f2", "cd"), new_file("f3", "ef"))))
    keep = {"file_bytes": 1600}
    for strategy in Strategy:
        assert planned(state, strategy, **keep) == ["1 concatenated: f1 f2 f3 (3 runs)"]
    assert planned(state, file_bytes=1608) == ["1: f1 f2 f3 (3 runs, 6 rows)"]
    state = step(state, ProposeFiles((new_file("f4", "bc"),)))
    assert planned(state, **keep) == ["1: f1 f2 f3 f4 (4 runs, 8 rows)"]
    assert planned(state, Strategy.BASIC, **keep) == [
        "1 concatenated: f1 f2 (2 runs)",
        "1 concatenated: f4 f3 (2 runs)",
    ]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(strategy):
    """Twenty files of letters, some of which overlap: round by round there are less runs, until none are due."""
    letters = "abcdefghijklmnopqrst"
    new = tuple(new_file(f"f{n:02}", letters[n : n + 1 + n % 3]) for n in range(20))
    state = step(table("k"), ProposeFiles(new))
    changes = {"compaction_batch_runs": 3, "compaction_run_bytes": 500, "file_bytes": 1600}
    contents = {one.file.id: letters[n : n + 1 + n % 3] for n, one in enumerate(new)}
    settings, rounds = Settings(**changes), 0
    while (found := plan(state, settings, strategy)).merges or found.concatenations:
        rounds += 1
        for link in found.concatenations:
            state = step(state, ConcatenateRuns(link.partition, link.files, f"chain-{state.version}"))
        for merge in found.merges:
            name = f"job-{state.version}"
            state = step(state, OpenJob(job(name, *(f.id for f in merge.inputs), keys=merge.keys)))
            inside = [c for f in merge.inputs for c in contents[f.id] if merge.keys.contains(key(c))]
            assert len(inside) == merge.rows
            contents[f"by-{name}"] = "".join(sorted(inside))
            state = step(state, ProposeOutput(name, (new_file(f"by-{name}", inside),)))
    assert 0 < rounds < 20
    read = [
        c
        for position, partition in enumerate(state.partitions.ids)
        for file in state.files_of(partition)
        for c in contents[file.id]
        if state.partitions.range_at(position).contains(key(c))
    ]
    assert sorted(read) == sorted("".join(contents[one.file.id] for one in new))


def test_nothing_is_begun_while_requests_or_commits_pile_up():
    assert why_wait(1_000, LIMITS.commits_waiting_max) is None
    assert why_wait(1_001, 0) == "1001 requests are open; compaction goes on when they are 1000"
    assert why_wait(0, 257) == "257 commits wait in this process; compaction goes on when they are 256"


def test_a_strategy_that_does_not_exist_is_refused_by_name():
    assert check_strategy("size-ratio") is Strategy.SIZE_RATIO
    assert check_strategy(None) is None
    with pytest.raises(UsageError, match="unknown compaction strategy 'magic'; strategies: basic, size-ratio"):
        check_strategy("magic")


def merge(size_bytes):
    return PartitionMerge(1, ALL_KEYS, (), 2, 100, exact=True, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("size_bytes", "cores", "tasks"),
    [
        (1, 8, 1),
        (LIMITS.share_bytes_min, 8, 1),
        (2 * LIMITS.share_bytes_min, 8, 2),
        (100 * LIMITS.share_bytes_min, 8, 8),
        (100 * LIMITS.share_bytes_min, 1, 4),
    ],
    ids=["tiny", "one share", "two shares", "all cores", "one core, but several GiB"],
)
def test_a_merge_is_shared_among_cores_if_it_is_large_and_by_size_in_any_case(size_bytes, cores, tasks):
    assert tasks_of(merge(size_bytes), cores) == tasks


def test_tasks_tile_the_partition_and_take_only_the_files_that_reach_them():
    files = (new_file("f1", "abcd"), new_file("f2", "efgh"), new_file("f3", "adeh"))
    found = PartitionMerge(
        1, EncodedRange(b"", key("x")), tuple(f.file for f in files), 2, 12, exact=True, size_bytes=1200
    )
    parts = divide_merge(found, [f.summary for f in files], 3)
    assert [part.min for part in parts] == [b"", *(part.max for part in parts[:-1])]
    assert parts[-1].max == key("x")
    assert [[f.id for f in inputs_of(found.inputs, part)] for part in parts] == [
        ["f1", "f3"], ["f1", "f2", "f3"], ["f2", "f3"],
    ]  # fmt: skip


def test_a_single_key_cannot_be_shared_out():
    only = new_file("f1", "aaaa")
    assert divide_merge(merge(10**12), [only.summary], 4) == (ALL_KEYS,)


def test_a_task_merges_its_share_in_slices_that_fit_its_memory():
    file = new_file("f1", "abcdefghijkl")
    found = PartitionMerge(1, EncodedRange(b"", key("x")), (file.file,), 2, 12, exact=True, size_bytes=1200)
    shares = share_out(found, [file.summary], tasks=2, memory_limit_bytes=1199)
    assert [len(slices) for slices in shares] == [5, 5]
    tiles = [keys for slices in shares for keys in slices]
    assert [keys.min for keys in tiles] == [b"", *(keys.max for keys in tiles[:-1])]
    assert tiles[-1].max == key("x")


def test_a_share_of_at_most_half_the_memory_limit_is_one_slice():
    file = new_file("f1", "abcdefghijkl")
    found = PartitionMerge(1, EncodedRange(b"", key("x")), (file.file,), 2, 12, exact=True, size_bytes=1200)
    for tasks in (1, 2, 3):
        shares = share_out(found, [file.summary], tasks=tasks, memory_limit_bytes=2 * 1200 // tasks)
        assert [len(slices) for slices in shares] == [1] * tasks


def test_a_partition_of_few_keys_has_fewer_tasks_than_wished():
    file = new_file("f1", "aaaaab")
    assert [len(slices) for slices in share_out(merge(1200), [file.summary], tasks=4, memory_limit_bytes=400)] == [1, 1]
