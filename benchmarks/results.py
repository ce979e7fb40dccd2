"""Lines of benchmarks as data: a figure of Lakebed, its peer's of the same run, and the ratio that is aimed at.

A benchmark prints its own table, and calls :func:`record` for each line of it that a reader of the documentation should
see. If the environment variable ``BENCHMARK_RESULTS`` names a file, the lines are appended to it, one JSON object each;
``python -m benchmarks`` sets it. :mod:`benchmarks.figures` makes the page of them.

Core types: :class:`Line`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

VARIABLE = "BENCHMARK_RESULTS"

RATES = ("rows/s", "gets/s", "commits/s", "MiB/s", "ranges/s", "rows/core-s")
"""Units of which more is better; of every other, less is."""

CORE_SECOND_USD = 0.04048 / 3600
"""AWS Fargate, Linux on x86, us-east-1: list price of a vCPU for an hour, 2026."""

_BILLION = 1e9
_CORE_S_BILLION = {"core-s/M rows": 1e3, "CPU ms": 1e6}
"""What makes core-seconds for a billion rows, or for a billion calls, of the units that are of CPU."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure, with every measurement of it; ``theirs`` are those of the peer, empty without one.

    ``aim`` is the least ratio to the peer, where one is aimed at. A ratio says how many times as good Lakebed is.
    """

    benchmark: str
    what: str
    unit: str
    ours: tuple[float, ...]
    peer: str | None = None
    theirs: tuple[float, ...] = ()
    aim: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer's the median is; None without a peer."""
        if not self.theirs:
            return None
        ours, theirs = median(self.ours), median(self.theirs)
        return ours / theirs if self.unit in RATES else theirs / ours

    @property
    def usd_billion(self) -> float | None:
        """The price of the CPU of a billion rows or calls, in US$; None if the unit says nothing of CPU."""
        if self.unit == "rows/core-s":
            return _BILLION / median(self.ours) * CORE_SECOND_USD
        factor = _CORE_S_BILLION.get(self.unit)
        return None if factor is None else median(self.ours) * factor * CORE_SECOND_USD

    @classmethod
    def parse(cls, text: str) -> Line:
        """Return the line of a JSON object."""
        found = json.loads(text)
        return cls(**{**found, "ours": tuple(found["ours"]), "theirs": tuple(found["theirs"])})


def record(
    what: str,
    unit: str,
    ours: float | Iterable[float],
    *,
    peer: str | None = None,
    theirs: float | Iterable[float] = (),
    aim: float | None = None,
) -> Line:
    """Append a line to the file of results, if there is one, and return it."""
    command = " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]])
    line = Line(command, what, unit, _several(ours), peer, _several(theirs), aim)
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")
    return line


def _several(values: float | Iterable[float]) -> tuple[float, ...]:
    """Return measurements with four digits: more would say nothing."""
    several = [values] if isinstance(values, int | float) else values
    return tuple(float(f"{float(value):.4g}") for value in several)
