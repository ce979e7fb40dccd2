"""Which leaves are merged, and how one is shared out: tables of letters in, a line a merge out."""

import pytest

from lakebed.compaction.plan import SHARE_BYTES_MIN, LeafMerge, cut, inputs_of, plan, share_out, tasks_of
from lakebed.errors import UsageError
from lakebed.keys import ALL_KEYS, EncodedRange
from lakebed.settings import MIB, Settings
from lakebed.state.transactions import OfferFiles, OpenJob
from tests.unit.state.cases import job, key, new_file, step, table


def planned(state, strategy=None):
    """A line a merge, ``leaf: files (runs, rows)``; and a line for each leaf that has to wait."""
    found = plan(state, strategy)
    merges = [f"{m.leaf}: {' '.join(f.id for f in m.inputs)} ({m.runs} runs, {m.rows} rows)" for m in found.merges]
    return merges + [f"{s.leaf} waits: {s.reason}" for s in found.skipped]


def test_a_leaf_of_one_run_or_none_is_left_alone():
    """However many files the run has: they do not overlap."""
    assert planned(table("m")) == []
    state = step(table("m"), OfferFiles((new_file("f1", "abc", "run"), new_file("f2", "def", "run"))))
    assert planned(state) == []


def test_a_leaf_of_several_runs_is_merged_whole():
    state = step(table(), OfferFiles((new_file("f1", "abc", "r1"), new_file("f2", "def", "r1"))))
    state = step(state, OfferFiles((new_file("f3", "bz"),)))
    assert planned(state) == ["1: f1 f2 f3 (2 runs, 8 rows)"]


def test_only_the_slice_inside_the_leaf_counts():
    state = step(table("m"), OfferFiles((new_file("f1", "abxyz", samples="m"), new_file("f2", "a"))))
    merge = plan(state).merges[0]
    assert (merge.rows, merge.exact, merge.size_bytes) == (3, True, 300)


def test_leaves_with_most_runs_come_first():
    """A query merges as many runs as its leaf has."""
    state = step(table("m"), OfferFiles((new_file("f1", "a"), new_file("f2", "b"))))
    state = step(state, OfferFiles((new_file("f3", "x"), new_file("f4", "y"), new_file("f5", "z"))))
    assert planned(state) == ["2: f3 f4 f5 (3 runs, 3 rows)", "1: f1 f2 (2 runs, 2 rows)"]


def test_a_leaf_with_an_open_job_waits_and_its_neighbour_does_not():
    state = step(table("m"), OfferFiles((new_file("f1", "ax"), new_file("f2", "bz"))))
    state = step(state, OpenJob(job("job-1", "f1", keys=EncodedRange(b"", key("m")))))
    assert planned(state) == ["2: f1 f2 (2 runs, 2 rows)", "1 waits: job job-1 is open there"]


def test_a_strategy_that_does_not_exist_is_refused_by_name():
    assert planned(table(), "full") == []
    with pytest.raises(UsageError, match="no compaction strategy 'basic'; there is: full"):
        plan(table(), "basic")


def merge(size_bytes):
    return LeafMerge(1, ALL_KEYS, (), 2, 100, exact=True, size_bytes=size_bytes)


@pytest.mark.parametrize(
    ("size_bytes", "cores", "tasks"),
    [
        (1, 8, 1),
        (SHARE_BYTES_MIN, 8, 1),
        (2 * SHARE_BYTES_MIN, 8, 2),
        (100 * SHARE_BYTES_MIN, 8, 8),
        (100 * SHARE_BYTES_MIN, 1, 4),
    ],
    ids=["tiny", "one share", "two shares", "all cores", "one core, but several GiB"],
)
def test_a_merge_is_shared_among_cores_if_it_is_large_and_by_size_in_any_case(size_bytes, cores, tasks):
    assert tasks_of(merge(size_bytes), Settings(merge_task_bytes=800 * MIB), cores) == tasks


def test_tasks_tile_the_leaf_and_take_only_the_files_that_reach_them():
    files = (new_file("f1", "abcd"), new_file("f2", "efgh"), new_file("f3", "adeh"))
    found = LeafMerge(1, EncodedRange(b"", key("x")), tuple(f.file for f in files), 2, 12, exact=True, size_bytes=1200)
    parts = cut(found, [f.summary for f in files], 3)
    assert [part.min for part in parts] == [b"", *(part.max for part in parts[:-1])]
    assert parts[-1].max == key("x")
    assert [[f.id for f in inputs_of(found.inputs, part)] for part in parts] == [
        ["f1", "f3"], ["f1", "f2", "f3"], ["f2", "f3"],
    ]  # fmt: skip


def test_a_single_key_cannot_be_shared_out():
    only = new_file("f1", "aaaa")
    assert cut(merge(10**12), [only.summary], 4) == (ALL_KEYS,)


def test_a_task_merges_its_share_in_slices_that_fit_its_memory():
    file = new_file("f1", "abcdefghijkl")
    found = LeafMerge(1, EncodedRange(b"", key("x")), (file.file,), 2, 12, exact=True, size_bytes=1200)
    shares = share_out(found, [file.summary], tasks=2, slice_bytes=200)
    assert [len(slices) for slices in shares] == [3, 3]
    tiles = [keys for slices in shares for keys in slices]
    assert [keys.min for keys in tiles] == [b"", *(keys.max for keys in tiles[:-1])]
    assert tiles[-1].max == key("x")


def test_a_leaf_of_few_keys_has_fewer_tasks_than_wished():
    file = new_file("f1", "aaaaab")
    assert [len(slices) for slices in share_out(merge(1200), [file.summary], tasks=4, slice_bytes=200)] == [1, 1]
