"""Makes docs/performance/figures.md from the results of benchmarks: ``python -m benchmarks.figures``.

A run of ``python -m benchmarks`` leaves a file in docs/performance/results: the lines of :mod:`benchmarks.results`,
with the commit, the day, the machine and the versions of packages. The page shows each line by its newest run, those
furthest below their aim first, and the ratios of earlier runs beside.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.results import CORE_SECOND_USD, Line

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/performance/results"
PAGE = ROOT / "docs/performance/figures.md"
PACKAGES = ("pyarrow", "datafusion", "duckdb", "numpy", "pyspark", "polars", "pyiceberg", "slatedb")
EARLIER_MAX = 3
_DASH = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of benchmarks found, and where; ``day`` is its date in UTC."""

    day: str
    commit: str
    machine: str
    versions: dict[str, str]
    lines: tuple[Line, ...]

    @classmethod
    def parse(cls, text: str) -> Run:
        """Return the run of a file of results."""
        found: dict[str, Any] = json.loads(text)
        return cls(**{**found, "lines": tuple(Line.parse(json.dumps(line)) for line in found["lines"])})


def this_run(lines: Iterable[Line]) -> Run:
    """Return the run that is ending on this machine, at this commit."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    memory = round(psutil.virtual_memory().total / 2**30)
    machine = f"{os.cpu_count()} cores ({platform.machine()}), {memory} GiB, Python {platform.python_version()}"
    return Run(datetime.now(UTC).date().isoformat(), commit, machine, _versions(), tuple(lines))


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def save(run: Run, folder: Path = RESULTS) -> Path:
    """Write the file of a run, one line of text for each of its lines, so that two runs can be compared; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(asdict(line)) for line in run.lines)
    head = json.dumps({key: value for key, value in asdict(run).items() if key != "lines"})
    number = len(list(folder.glob("*.json"))) + 1
    path = folder / f"{number:04d}-{run.day}.json"
    path.write_text(f'{head[:-1]},\n "lines": [\n  {lines}\n]}}\n')
    return path


def runs() -> list[Run]:
    """Return all runs, the oldest first."""
    return [Run.parse(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


# -- the page -----------------------------------------------------------------------------------------------------

_HEAD = """# Figures

Each line is the median of the measurements of one run, with their range, beside a peer that did the same work in the
same run. *Ratio* says how many times as good as the peer Lakebed is: above 1 it is faster, or smaller. Lines that are
furthest below the ratio that we aim at come first. *Earlier* has the ratios of runs before. *US$* is the price of the
CPU for a billion rows, or calls, at {price} US$ for a core-hour. Run a line yourself with
`.venv/bin/python -m benchmarks.` and its command; [Benchmarks](../benchmarks.md) says what each measures.

`make bench` adds a run to the files in `docs/performance/results`, of which this page is made.

| what | Lakebed | peer | ratio | aim | US$ | earlier | command |
|---|---|---|---|---|---|---|---|
"""


def page(found: Sequence[Run]) -> str:
    """Return the page of these runs, the oldest first."""
    newest: dict[tuple[str, str, str | None], Line] = {}
    ratios: dict[tuple[str, str, str | None], list[float]] = {}
    for run in found:
        for line in run.lines:
            newest[_key(line)] = line
            if line.ratio is not None:
                ratios.setdefault(_key(line), []).append(line.ratio)
    ordered = sorted(newest.values(), key=_goodness)
    rows = [_row(line, ratios.get(_key(line), [])[-1 - EARLIER_MAX : -1]) for line in ordered]
    head = _HEAD.format(price=f"{CORE_SECOND_USD * 3600:.5f}")
    return head + "".join(rows) + "\n## Runs\n\n" + "".join(map(_said, reversed(found)))


def _key(line: Line) -> tuple[str, str, str | None]:
    return line.what, line.unit, line.peer


def _goodness(line: Line) -> tuple[float, str]:
    """Lines without a peer come last, those without an aim behind those that miss theirs."""
    ratio = line.ratio
    return (float("inf") if ratio is None else ratio / (line.aim or 1.0), line.what)


def _row(line: Line, earlier: Sequence[float]) -> str:
    theirs = _DASH if line.peer is None else f"{line.peer}: {_figure(line.theirs)}"
    cells = [
        line.what,
        f"{_figure(line.ours)} {line.unit}",
        theirs,
        _DASH if line.ratio is None else _digits(line.ratio),
        _DASH if line.aim is None else _digits(line.aim),
        _DASH if line.usd_billion is None else _digits(line.usd_billion),
        ", ".join(map(_digits, earlier)) or _DASH,
        f"`{line.benchmark}`",
    ]
    return f"| {' | '.join(cells)} |\n"


def _figure(values: Sequence[float]) -> str:
    middle = _digits(median(values))
    return middle if len(values) == 1 else f"{middle} ({_digits(min(values))}{_DASH}{_digits(max(values))})"


def _digits(value: float) -> str:
    """Return three digits: 0.169, 12.7, 1,240."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _said(run: Run) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    return f"* {run.day}, commit {run.commit}: {len(run.lines)} lines, {run.machine}; {versions}\n"


def main() -> None:
    PAGE.write_text(page(runs()))


if __name__ == "__main__":
    main()
