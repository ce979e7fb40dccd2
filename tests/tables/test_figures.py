"""The page of figures is what benchmarks found, and its ratios say what they claim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.figures import Run, page
from benchmarks.results import VARIABLE, Line

ROOT = Path(__file__).parents[2]


def run(*lines: Line, day: str = "2026-01-02") -> Run:
    return Run(day, "abc1234", "2 cores", {"pyarrow": "1"}, lines)


def line(what: str, ours: float, theirs: float, unit: str = "ms", aim: float | None = None) -> Line:
    return Line("lookups", what, unit, (ours,), "DuckDB", (theirs,), aim)


def test_the_page_shows_the_results_that_are_kept() -> None:
    assert figures.PAGE.read_text() == page(figures.runs())


@pytest.mark.parametrize(("unit", "ratio"), [("ms", 4.0), ("rows/s", 0.25)])
def test_a_ratio_says_how_many_times_as_good(unit: str, ratio: float) -> None:
    assert line("a", 2.0, 8.0, unit).ratio == ratio


def test_the_line_furthest_below_its_aim_comes_first() -> None:
    lines = [line("met", 1.0, 2.0), line("missed", 1.0, 9.0, aim=10.0), Line("x", "alone", "ms", (1.0,))]
    lines.append(line("worse", 1.0, 8.0, aim=10.0))
    shown = page([run(*lines)])
    assert sorted(["worse", "missed", "met", "alone"], key=lambda what: shown.index(f"| {what} |")) == [
        "worse", "missed", "met", "alone",
    ]  # fmt: skip


def test_a_line_has_its_newest_figure_and_the_earlier_ratios() -> None:
    shown = page([run(line("get", 1.0, 3.0)), run(line("get", 1.0, 5.0), day="2026-02-03")])
    assert "| get | 1 ms | DuckDB: 5 | 5 | \N{EN DASH} | \N{EN DASH} | 3 | `lookups` |" in shown
    assert shown.index("2026-02-03") < shown.index("2026-01-02")


def test_the_price_is_that_of_core_seconds() -> None:
    rows = Line("x", "import", "core-s/M rows", (1.0,))
    calls = Line("x", "get", "CPU ms", (1.0,))
    assert rows.usd_billion == pytest.approx(1_000 * 0.04048 / 3600)
    assert calls.usd_billion == pytest.approx(1_000_000 * 0.04048 / 3600)
    assert Line("x", "get", "ms", (1.0,)).usd_billion is None


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = run(line("get", 1.0, 3.0), Line("x", "alone", "ms", (1.0, 2.0)))
    path = figures.save(written, tmp_path / "results")
    assert Run.parse(path.read_text()) == written
    assert figures.save(written, tmp_path / "results") != path


def test_a_benchmark_adds_its_lines_to_the_file(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    code = "from benchmarks.results import record; record('get', 'ms', [0.123456, 2], peer='DuckDB', theirs=3)"
    for environment in ({VARIABLE: str(lines)}, {}, {VARIABLE: str(lines)}):
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=os.environ | environment)
    assert [Line.parse(text).ours for text in lines.read_text().splitlines()] == [(0.1235, 2.0)] * 2
