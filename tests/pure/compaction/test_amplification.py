"""What steady ingest costs, on a small day of the simulation that the documented figures come from."""

from benchmarks.amplification import simulated
from lakebed.model.settings import Strategy


def test_size_ratio_writes_each_byte_less_than_six_times_and_keeps_runs_few():
    day = simulated(Strategy.SIZE_RATIO, 60, 6 * 10**9, growing=False)
    assert 1 < day.written_bytes / day.came_bytes < 6
    assert day.most_runs <= 12


def test_keys_that_grow_with_time_are_never_rewritten():
    day = simulated(Strategy.SIZE_RATIO, 60, 6 * 10**9, growing=True)
    assert day.written_bytes == day.came_bytes
    assert day.most_runs == 1
    assert len(day.state.partitions) > 1
