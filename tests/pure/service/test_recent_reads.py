"""The reads of the last minutes: how many, how quick, and which of them are still counted."""

import random

import pytest

from lakebed.server.service.recent_reads import RecentReads
from lakebed.server.service.status import ReadRates
from tests.clocks import set_clock


@pytest.fixture
def now(monkeypatch):
    """Seconds of the clock, in a list of one, beginning with a minute."""
    found = [6_000.0]
    set_clock(monkeypatch, monotonic_s=lambda: found[0])
    return found


def test_without_reads_there_is_no_percentile(now):
    reads = RecentReads()
    now[0] += 10
    assert reads.rates() == ReadRates(window_s=10.0)


def test_percentiles_are_less_than_a_fifth_above_the_true_ones(now):
    reads, chance = RecentReads(), random.Random(3)
    times = [chance.lognormvariate(-6, 2) for _ in range(1000)]
    for one in times:
        reads.add(one)
    reads.fail()
    now[0] += 20
    found = reads.rates()
    assert (found.reads, found.errors, found.per_second, found.window_s) == (1000, 1, 50.0, 20.0)
    for share, said in ((0.5, found.p50_s), (0.99, found.p99_s)):
        true = sorted(times)[int(share * len(times)) - 1]
        assert 0.95 * true <= said <= 1.25 * true


def test_reads_are_forgotten_after_some_minutes(now):
    reads = RecentReads()
    for minute in range(20):
        reads.add(0.001)
        assert reads.rates().reads == min(minute + 1, 6)
        now[0] += 60
    assert reads.rates().window_s == 300.0
    now[0] += 600
    assert reads.rates().reads == 0
    reads.add(0.0)
    assert (reads.rates().reads, len(reads._minutes)) == (1, 1)
