"""The simulations and counts of benchmarks, run small: their figures agree with what they stand for."""

import re

import pytest

from benchmarks import month, prices, scale, service_day
from benchmarks.amplification import simulated
from benchmarks.plots import Curve, Plot
from lakebed.model.settings import Strategy


def test_a_day_of_a_service_is_simulated():
    simulation = service_day.Simulation(tables=2, writes=6, total_bytes=10**9)
    simulation.run()
    assert simulation.begun["compaction"] > 0
    assert {sample["hour"] for sample in simulation.samples} >= {0.0, 24.0}


@pytest.fixture(scope="module")
def needs():
    return scale.Needs(scale.simulate_day(20, writes=12, imports=4), scale.measured(200))


def test_a_trillion_rows_are_simulated_by_partitions_that_are_all_alike(needs):
    assert 1 < needs.day.runs_mean <= needs.day.runs_most
    assert needs.day.amplification > 1
    assert needs.jobs == needs.day.jobs.whole + 10 * needs.day.jobs.partition
    assert needs.events.entry_bytes > 0
    assert set(needs.events.cpu_s) >= {"summary", "plan", "write, applied", "merge, decoded"}


def test_what_is_used_of_each_resource_says_what_breaks_first(needs):
    shares = needs.shares()
    assert all(0 < share < 1 for _, share, _ in shares)
    page = "\n".join(scale.rows_of_page(needs.day, [needs.events]))
    worst = max(shares, key=lambda one: one[1])
    assert f"First {worst[0]}: {worst[2]}" in page.replace("\n", " ")
    (total,) = re.findall(r"\| all \| ([\d,]+) \|", page)
    assert int(total.replace(",", "")) == pytest.approx(sum(needs.dollars().values()), abs=1)


def test_the_bills_of_a_month_are_of_requests_that_were_counted():
    counts = month.count_operations()
    assert counts["get of a file's row, footer cached"].gets <= 2
    assert counts["write of 1,000 rows"].puts + counts["write of 1,000 rows"].gets <= 5
    # A file of more than 16 MiB goes in parts.
    assert counts["write of 694,444 rows"].puts > counts["write of 1,000 rows"].puts + 1
    assert counts["look of a service at a table"].gets == pytest.approx(1 + 1 / month.LOG_START_EVERY, abs=0.07)
    found = month.bills(counts, simulated(Strategy.SIZE_RATIO, 24, 10**9, growing=False))
    by_title = {bill.title: bill.usd for bill in found}
    assert by_title["1 TB, nothing else"] == pytest.approx(1000 * prices.GB_MONTH)
    assert by_title["1,000,000 gets a day, footers cached"] == pytest.approx(
        30e6 * counts["get of a file's row, footer cached"].gets * prices.GET
    )


def test_a_plot_has_a_line_for_each_curve_and_leaves_out_what_a_logarithm_lacks():
    curves = [Curve("a", [(0, 1.0), (1, 10.0)]), Curve("b < c", [(0, 0.0), (1, 100.0)])]
    svg = Plot("some <things>", "minutes", curves, log=True, shaded=[(0.2, 0.4)], marked=[0.5]).svg()
    lines = re.findall(r'<polyline [^>]*points="([^"]*)"', svg)
    assert [len(line.split()) for line in lines] == [2, 1]
    assert "some &lt;things&gt;" in svg
    assert "b &lt; c" in svg
    assert Plot("none", "x", []).svg().startswith("<svg")
