"""Fails if tests covered too few branches: ``python scripts/check_coverage.py COVERAGE.json``, of `make coverage`.

The data are those of ``coverage json``. What is not measured, and why: ``[tool.coverage.run]`` in pyproject.toml.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path, PurePath

from lakebed.model.documents import load

CORE_PERCENT_MIN = 95.0
"""The minimum for state, the log, plans and strategies, which decide what rows a table has."""
REST_PERCENT_MIN = 85.0


@dataclass(slots=True)
class Taken:
    """The number of branches, and of covered branches."""

    taken: int = 0
    total: int = 0

    def add(self, taken: int, total: int) -> None:
        """Add the branches of another module."""
        self.taken += taken
        self.total += total

    @property
    def percent(self) -> float:
        """Of all branches; those of none are all taken."""
        return 100 * self.taken / self.total if self.total else 100.0


def is_core(module: PurePath) -> bool:
    """Whether a module, relative to ``src/lakebed``, is held to the higher share."""
    return (
        module.parts[:2] == ("model", "state")
        or module.parts[0] == "log"
        or module.name in ("plan.py", "strategies.py")
    )


def main() -> int:
    """Print a line for each folder and for both groups; 1 if a group has too few."""
    files = load(Path(sys.argv[1]).read_bytes())["files"]
    folders: dict[str, Taken] = {}
    core, rest = Taken(), Taken()
    for name, found in sorted(files.items()):
        module = PurePath(name).relative_to("src")
        summary = found["summary"]
        counts = summary["covered_branches"], summary["num_branches"]
        inside = PurePath(*module.parts[1:]) if len(module.parts) > 1 else module
        (core if is_core(inside) else rest).add(*counts)
        folders.setdefault(inside.parts[0] if len(inside.parts) > 1 else ".", Taken()).add(*counts)
    for folder, taken in folders.items():
        print(f"{folder:12} {taken.taken:6,} of {taken.total:6,} branches {taken.percent:5.1f}%")
    failed = False
    for name, taken, least in (("state, log, plans", core, CORE_PERCENT_MIN), ("the rest", rest, REST_PERCENT_MIN)):
        failed |= taken.percent < least
        print(f"{name}: {taken.percent:.1f}% of branches, at least {least:.0f}% are asked for")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
