"""What slices of the targets did, added up over all runs.

A *slice* is a part of a target that is run from one number, its seed, and always the same one: what it found is run
again with ``python -m tests.trust slice TARGET SEED``. Results of slices add up in one JSON file, so that nights add
up, and a run goes on with the seed after the last one.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
DETAIL_MAX = 2_000
"""Characters of a finding that are kept; the seed shows the rest again."""


@dataclass
class Slice:
    """The units that a slice ran, what happened in them and how often, and what it found."""

    units: int = 0
    events: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Results that are no counts, such as how many schedules it took to find each seeded bug. A later slice replaces
    those of the same name.
    """

    @classmethod
    def from_json(cls, text: str) -> Slice:
        """Read what :meth:`to_json` wrote."""
        read = json.loads(text)
        return cls(read["units"], Counter(read["events"]), read["findings"], read["facts"])

    def to_json(self) -> str:
        """Return the slice as one line."""
        return json.dumps(vars(self))


@dataclass
class Finding:
    """What a slice found, and the revision of the code that it was found in. ``mended`` says what became of it."""

    seed: int
    detail: str
    revision: str
    mended: str = ""


@dataclass
class Result:
    """All slices of a target until now."""

    slices: int = 0
    units: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    first_revision: str = ""
    last_revision: str = ""

    def add(self, done: Slice, seed: int, revision: str, seconds: float, cpu_s: float) -> None:
        """Add a slice."""
        self.slices = max(self.slices, seed + 1)
        self.units += done.units
        self.seconds = round(self.seconds + seconds, 1)
        self.cpu_s = round(self.cpu_s + cpu_s, 1)
        self.events += done.events
        self.facts |= done.facts
        self.findings += [Finding(seed, detail[:DETAIL_MAX], revision) for detail in done.findings]
        self.first_revision = self.first_revision or revision
        self.last_revision = revision

    @property
    def open_findings(self) -> list[Finding]:
        """Those that nothing is known to have mended."""
        return [finding for finding in self.findings if not finding.mended]


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Return the results by target."""
    if not path.exists():
        return {}
    read = json.loads(path.read_text("utf-8"))
    return {
        name: Result(
            **{
                **result,
                "events": Counter(result["events"]),
                "findings": [Finding(**finding) for finding in result["findings"]],
            }
        )
        for name, result in read.items()
    }


def write_results(results: dict[str, Result], path: Path = RESULTS) -> None:
    """Write the results whole or not at all, so that a run may be killed at any time."""
    temporary = path.with_suffix(".new")
    by_name = {
        name: {**vars(result), "findings": [vars(finding) for finding in result.findings]}
        for name, result in results.items()
    }
    temporary.write_text(json.dumps(by_name, indent=1, sort_keys=True) + "\n", "utf-8")
    temporary.replace(path)
