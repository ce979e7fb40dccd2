"""How many runs a leaf is left with, under loads that no strategy was made for. Pure: sizes in, sizes out.

The bounds are those of :mod:`lakebed.compaction.strategies`.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.compaction.strategies import RUNS_MAX, Run, batches, overdue
from lakebed.files import DataFile, LeafFile
from lakebed.settings import GIB, KIB, MIB, Settings, Strategy

GROWING = [Strategy.BASIC, Strategy.SIZE_RATIO, Strategy.BY_BYTES]


def run_of(name, size_bytes):
    file = DataFile(name, "job", 10, size_bytes, b"a", b"z", 1, 0, "digest", 8, "footer")
    return Run.of([LeafFile(file, 10, True, name)])


class Leaf:
    """One leaf, whose runs all overlap; what is merged is as large as its inputs together."""

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
        """What a leaf under size-ratio is left with at most."""
        ratio, target = self.settings.compaction_ratio, self.settings.compaction_run_bytes
        sizes = [run.size_bytes for run in self.runs]
        small = 2 + math.log(max(1, ratio * target / max(1, min(sizes)))) / math.log(1 + 1 / ratio)
        return small + sum(sizes) / target


def test_a_batch_that_is_too_small_for_the_ratio_is_merged_all_the_same():
    """Four runs of which three have three times the bytes of the fourth are of exactly one size."""
    leaf = Leaf(Settings(compaction_batch_runs=4, compaction_ratio=3))
    leaf.add(*(1000 + place for place in range(30)))
    assert batches(leaf.strategy, leaf.runs, leaf.settings) == []
    leaf.compact()
    assert len(leaf.runs) < 5


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
    leaf = Leaf(settings)
    for chunk in [sizes] if at_once else [sizes[at : at + 40] for at in range(0, len(sizes), 40)]:
        leaf.add(*chunk)
        leaf.compact()
    assert len(leaf.runs) <= RUNS_MAX
    if settings.runs_max:
        assert len(leaf.runs) <= settings.runs_max, "or writes would be refused for ever"
    if settings.compaction_strategy is Strategy.SIZE_RATIO:
        assert len(leaf.runs) <= leaf.bound()


WRITES = 600


def tiny(_):
    return 2 * KIB


def growing(number):
    return int(KIB * 1.02**number)


def shrinking(number):
    return int(KIB * 1.02 ** (WRITES - number))


def alternating(number):
    return (KIB, 40 * MIB, 700 * KIB)[number % 3]


def powers(number):
    """The sizes that a binary counter has at hand: none is ever of like size with the next."""
    return KIB * 2 ** (number % 20)


def drawn(number):
    return int(random.Random(number).lognormvariate(10, 4)) + 1


def target_sized(_):
    """A leaf of one key, which cannot be split, of runs that are left alone."""
    return 2 * GIB


@pytest.mark.parametrize("load", [tiny, growing, shrinking, alternating, powers, drawn])
@pytest.mark.parametrize("every", [1, WRITES])
def test_runs_below_the_target_stay_few_under_the_default_settings(load, every):
    """Compacted after every write, or once after all of them: 78 is the bound for runs of a byte and more."""
    leaf = Leaf(Settings())
    for number in range(WRITES):
        leaf.add(load(number))
        if (number + 1) % every == 0:
            leaf.compact()
            assert len(leaf.runs) <= leaf.bound()
            assert sum(run.size_bytes < GIB for run in leaf.runs) <= 60


def test_runs_that_are_left_alone_are_bounded_too_and_are_written_twice_at_most():
    leaf = Leaf(Settings())
    for number in range(WRITES):
        leaf.add(target_sized(number))
        leaf.compact()
        assert len(leaf.runs) <= RUNS_MAX
    assert leaf.written <= 2 * sum(run.size_bytes for run in leaf.runs)


@pytest.mark.parametrize("strategy", GROWING)
def test_jobs_that_fail_now_and_then_cost_time_and_no_bound(strategy):
    chance = random.Random(7)
    leaf = Leaf(Settings(compaction_strategy=strategy))
    for number in range(WRITES):
        leaf.add(drawn(number))
        leaf.compact(fails=lambda: chance.random() < 0.5)
    leaf.compact()
    assert len(leaf.runs) <= RUNS_MAX


def test_tiny_writes_are_written_again_a_logarithm_of_times():
    leaf = Leaf(Settings())
    for number in range(2000):
        leaf.add(tiny(number))
        leaf.compact()
    amplification = leaf.written / (2000 * tiny(0))
    assert amplification < 6
