"""The strategies on runs of given sizes: sizes in, a line a batch out; and on any sizes at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import DataFile, PartitionFile
from lakebed.model.settings import Settings, Strategy
from lakebed.upkeep.compaction.strategies import Run, batches, concatenated, runs_of


def held(name, size_bytes, span="a-a", run=None, *, rows=10, whole=10):
    """A reference to a file of these bytes and keys, with ``rows`` of its ``whole`` inside the partition."""
    low, high = span.encode().split(b"-")
    file = DataFile(name, "job", whole, size_bytes, low, high, 1, 0, "digest", 8, "footer")
    return PartitionFile(file, rows, True, run or name)


def drawn(strategy, sizes, **changes):
    """A line a batch: the sizes of its runs."""
    runs = [Run.of([held(f"f{place}", size)]) for place, size in enumerate(sizes)]
    found = batches(strategy, runs, Settings(**changes))
    return [" ".join(str(run.size_bytes) for run in batch) for batch in found]


def test_a_run_is_what_its_references_have_inside_the_partition():
    found = runs_of([held("f1", 100, "a-c", "r"), held("f2", 90, "b-z", rows=3, whole=9), held("f3", 50, "d-e", "r")])
    assert [(run.size_bytes, run.rows, run.min_key, run.max_key) for run in found] == [
        (150, 20, b"a", b"e"),
        (30, 3, b"b", b"z"),
    ]


def test_basic_merges_full_batches_of_the_least():
    assert drawn(Strategy.BASIC, [5, 1, 4, 2, 3], compaction_batch_runs=2) == ["1 2", "3 4"]
    assert drawn(Strategy.BASIC, [5, 1], compaction_batch_runs=3) == []


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], []),
        ([7], []),
        ([7, 7, 7], []),
        ([7, 7, 7, 7], ["7 7 7 7"]),
        ([100, 7, 7, 7, 7], ["7 7 7 7"]),
        ([1, 1, 1, 1, 4], ["1 1 1 1"]),
        ([1, 2, 4, 8, 16], []),
        ([1] * 5, ["1 1 1 1"]),
        ([1] * 8, ["1 1 1 1", "1 1 1 1"]),
        ([1, 1, 1, 3, 3, 3, 3], ["3 3 3 3"]),
    ],
    ids=lambda value: ",".join(map(str, value)) or "none",
)
def test_size_ratio_merges_runs_of_like_size(sizes, merged):
    """Three times the largest in the others: a batch of four at least, here also at most."""
    assert drawn(Strategy.SIZE_RATIO, sizes, compaction_batch_runs=4) == merged


def test_size_ratio_takes_all_that_will_do_if_they_are_no_more_than_a_batch():
    assert drawn(Strategy.SIZE_RATIO, [9, 8, 1, 9, 90, 9]) == ["1 8 9 9 9"]


def test_by_bytes_merges_the_least_that_reach_the_target_together():
    assert drawn(Strategy.BY_BYTES, [900, 400, 300, 1100, 600], compaction_run_bytes=1024) == ["300 400 600"]
    assert drawn(Strategy.BY_BYTES, [500, 500], compaction_run_bytes=1024) == []


def test_full_merges_all_runs_and_leaves_a_single_one_alone():
    assert drawn(Strategy.FULL, [9000, 1, 5], compaction_run_bytes=1024) == ["1 5 9000"]
    assert drawn(Strategy.FULL, [9000]) == []


@pytest.mark.parametrize("strategy", [Strategy.BASIC, Strategy.SIZE_RATIO, Strategy.BY_BYTES])
def test_runs_at_the_target_size_are_left_alone(strategy):
    assert drawn(strategy, [1024] * 20, compaction_run_bytes=1024) == []
    assert drawn(strategy, [1023] * 20, compaction_run_bytes=1024)


def test_runs_that_do_not_overlap_make_as_few_chains_as_overlap_anywhere():
    """Two that share a key are not put together: under it, rows are in order in each and not in both.

    f1  aaaa      f3 eeee
    f2    cccccc      f4 gggg
    f5             e..........
    """
    spans = {"f1": "a-b", "f2": "bb-d", "f3": "e-f", "f4": "g-h", "f5": "e-z"}
    runs = [Run.of([held(name, 100, span)]) for name, span in spans.items()]
    found = concatenated(runs, 100)
    assert [" ".join(one.file.id for one in run.held) for run in found] == ["f1 f2 f3 f4", "f5"]
    assert [run.concatenated for run in found] == [4, 1]
    touching = [Run.of([held("f1", 100, "a-b")]), Run.of([held("f2", 100, "b-c")])]
    assert concatenated(touching, 100) == touching


def test_runs_of_small_files_are_not_kept_apart():
    large, small = Run.of([held("f1", 100, "a-b")]), Run.of([held("f2", 99, "c-d")])
    assert sorted(run.held[0].file.id for run in concatenated([large, small], 100)) == ["f1", "f2"]
    of_two = Run.of([held("f3", 150, "e-f", "r"), held("f4", 50, "g-h", "r")])
    assert [run.concatenated for run in concatenated([large, of_two], 100)] == [2]


SIZES = st.lists(st.integers(1, 5000), max_size=60)


@given(st.sampled_from(Strategy), SIZES, st.integers(2, 15), st.floats(0.1, 8))
def test_batches_share_no_run_are_bounded_and_come_to_an_end(strategy, sizes, batch, ratio):
    """Merging what is planned, again and again, partitions less runs each time and then nothing to merge."""
    settings = Settings(compaction_batch_runs=batch, compaction_ratio=ratio, compaction_run_bytes=1024)
    runs = [Run.of([held(f"f{place}", size)]) for place, size in enumerate(sizes)]
    while found := batches(strategy, runs, settings):
        merged = [run.held[0].file.id for one in found for run in one]
        assert len(set(merged)) == len(merged)
        assert set(merged) <= {run.held[0].file.id for run in runs}
        assert all(len(one) > 1 for one in found)
        for one in found:
            small = [run.size_bytes for run in one]
            match strategy:
                case Strategy.BASIC:
                    assert len(one) == batch
                case Strategy.SIZE_RATIO:
                    assert len(one) <= batch
                    assert ratio * max(small) <= sum(small) - max(small)
                case Strategy.BY_BYTES:
                    assert sum(small) - max(small) < 1024 <= sum(small)
                case Strategy.FULL:
                    assert len(one) == len(runs)
            assert strategy is Strategy.FULL or max(small) < 1024
        left = [run for run in runs if run.held[0].file.id not in merged]
        made = [Run.of([held(one[0].held[0].file.id, sum(run.size_bytes for run in one))]) for one in found]
        assert len(left) + len(made) < len(runs)
        runs = left + made
