"""How many runs a partition is left with, under loads that no strategy was made for. Pure: sizes in, sizes out.

The bounds are those of :mod:`lakebed.upkeep.compaction.strategies`.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import DataFile, PartitionFile
from lakebed.model.settings import GIB, KIB, MIB, Settings, Strategy
from lakebed.upkeep.compaction.strategies import RUNS_MAX, Run, batches, overdue

GROWING = [Strategy.BASIC, Strategy.SIZE_RATIO, Strategy.BY_BYTES]


def run_of(name, size_bytes):
    file = DataFile(name, "job", 10, size_bytes, b"a", b"z", 1, 0, "digest", 8, "footer")
    return Run.of([PartitionFile(file, 10, True, name)])


class Partition:
    """One partition, whose runs all overlap; what is merged is as large as its inputs together."""

    def __init__(self, settings):
        self.settings = settings
        self.strategy = settings.compaction_strategy
        self.runs = []
        self.came = self.written = 0

    def add(self, *sizes):
        for size in sizes:
            self.runs.append(run_of(f"r{self.came}", size))
            self.came += 1
            self.written += size

    def compact(self, fails=lambda: False):
        """Do what is planned until nothing is; a job that fails changes nothing, and is planned again."""
        while found := batches(self.strategy, self.runs, self.settings) or overdue(
            self.strategy, self.runs, self.settings
        ):
            names = [run.held[0].file.id for batch in found for run in batch]
            assert len(set(names)) == len(names)
            assert all(len(batch) > 1 for batch in found)
            for batch in found:
                if fails():
                    return
                size = sum(run.size_bytes for run in batch)
                ids = {run.held[0].file.id for run in batch}
                self.runs = [run for run in self.runs if run.held[0].file.id not in ids]
                self.add(size)

    def bound(self):
        """What a partition under size-ratio is left with at most."""
        ratio, target = self.settings.compaction_ratio, self.settings.compaction_run_bytes
        sizes = [run.size_bytes for run in self.runs]
        small = 2 + math.log(max(1, ratio * target / max(1, min(sizes)))) / math.log(1 + 1 / ratio)
        return small + sum(sizes) / target


def test_a_batch_that_is_too_small_for_the_ratio_is_merged_all_the_same():
    """Four runs of which three have three times the bytes of the fourth are of exactly one size."""
    partition = Partition(Settings(compaction_batch_runs=4, compaction_ratio=3))
    partition.add(*(1000 + place for place in range(30)))
    assert batches(partition.strategy, partition.runs, partition.settings) == []
    partition.compact()
    assert len(partition.runs) < 5


SETTINGS = st.builds(
    Settings,
    compaction_strategy=st.sampled_from(GROWING),
    compaction_batch_runs=st.one_of(st.integers(2, 20), st.integers(2, 1000)),
    compaction_ratio=st.one_of(st.floats(0.1, 5), st.floats(0.1, 100)),
    compaction_run_bytes=st.sampled_from([KIB, MIB, GIB]),
    runs_max=st.one_of(st.integers(0, 20), st.integers(0, 10_000)),
)
SIZES = st.one_of(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=400),
    st.builds(lambda size, count: [size] * count, st.integers(1, 10**6), st.integers(1, 1500)),
    st.builds(lambda growth, count: [int(growth**n) + 1 for n in range(count)], st.floats(1, 1.3), st.integers(1, 90)),
    st.builds(lambda step, count: [1000 + step * n for n in range(count)], st.integers(0, 900), st.integers(1, 600)),
)


@given(SETTINGS, SIZES, st.booleans())
def test_no_settings_and_no_sizes_leave_more_runs_than_are_allowed(settings, sizes, at_once):
    partition = Partition(settings)
    for chunk in [sizes] if at_once else [sizes[at : at + 40] for at in range(0, len(sizes), 40)]:
        partition.add(*chunk)
        partition.compact()
    assert len(partition.runs) <= RUNS_MAX
    if settings.runs_max:
        assert len(partition.runs) <= settings.runs_max, "or writes would be refused for ever"
    if settings.compaction_strategy is Strategy.SIZE_RATIO:
        assert len(partition.runs) <= partition.bound()


WRITES = 600


def tiny(_):
    return 2 * KIB


def growing(version):
    return int(KIB * 1.02**version)


def shrinking(version):
    return int(KIB * 1.02 ** (WRITES - version))


def alternating(version):
    return (KIB, 40 * MIB, 700 * KIB)[version % 3]


def powers(version):
    """The sizes that a binary counter has at hand: none is ever of like size with the next."""
    return KIB * 2 ** (version % 20)


def drawn(version):
    return int(random.Random(version).lognormvariate(10, 4)) + 1


def target_sized(_):
    """A partition of one key, which cannot be split, of runs that are left alone."""
    return 2 * GIB


@pytest.mark.parametrize("load", [tiny, growing, shrinking, alternating, powers, drawn])
@pytest.mark.parametrize("every", [1, WRITES])
def test_runs_below_the_target_stay_few_under_the_default_settings(load, every):
    """Compacted after every write, or once after all of them: 78 is the bound for runs of a byte and more."""
    partition = Partition(Settings())
    for version in range(WRITES):
        partition.add(load(version))
        if (version + 1) % every == 0:
            partition.compact()
            assert len(partition.runs) <= partition.bound()
            assert sum(run.size_bytes < GIB for run in partition.runs) <= 60


def test_runs_that_are_left_alone_are_bounded_too_and_are_written_twice_at_most():
    partition = Partition(Settings())
    for version in range(WRITES):
        partition.add(target_sized(version))
        partition.compact()
        assert len(partition.runs) <= RUNS_MAX
    assert partition.written <= 2 * sum(run.size_bytes for run in partition.runs)


@pytest.mark.parametrize("strategy", GROWING)
def test_jobs_that_fail_now_and_then_cost_time_and_no_bound(strategy):
    chance = random.Random(7)
    partition = Partition(Settings(compaction_strategy=strategy))
    for version in range(WRITES):
        partition.add(drawn(version))
        partition.compact(fails=lambda: chance.random() < 0.5)
    partition.compact()
    assert len(partition.runs) <= RUNS_MAX


def test_tiny_writes_are_written_again_a_logarithm_of_times():
    partition = Partition(Settings())
    for version in range(2000):
        partition.add(tiny(version))
        partition.compact()
    amplification = partition.written / (2000 * tiny(0))
    assert amplification < 6
