"""The targets: what is asked, in which units, how many in continuous integration and before a release, and what runs.

A quota is the least share of an event in the units of its target, or in another event. A run in which a fault fired
less often fails: otherwise green may mean that nothing happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.trust import slices
from tests.trust.results import Result, Slice

UNITS = "units"
TOO_FEW = 3
"""Events that a quota expects in fewer than this number are not judged: chance may leave them out."""


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table."""

    id: str
    asked: str
    unit: str
    ci: int
    release: int
    run: Callable[[int], Slice]
    weight: float = 1.0
    """Its share of the time, beside those of the others."""

    rounds: int | None = None
    """How many slices there are; None: without an end."""

    quota: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """Event -> the event that it is a share of (or UNITS), and the least share."""

    by_itself: bool = False
    """Runs only if it is asked for by name: it starts Spark, or takes half an hour."""

    def too_rare(self, result: Result) -> list[str]:
        """Return the events that happened too rarely."""
        found = []
        for event, (whole, share) in self.quota.items():
            least = (result.units if whole == UNITS else result.events[whole]) * share
            if least >= TOO_FEW and result.events[event] < least:
                found.append(f"{self.id}: {event}: {result.events[event]:,}, at least {least:,.0f} expected")
        return found


def _faults(*names: str, share: float) -> dict[str, tuple[str, float]]:
    return dict.fromkeys(names, (UNITS, share))


TARGETS = (
    Target(
        "T1", "the models of commits and merges in random schedules: none breaks a promise", "schedules",
        1_000_000, 50_000_000, slices.commit_models, 1.0, quota=slices.model_quota(slices.COMMITS),
    ),
    Target(
        "T2", "every schedule of small casts of the models, each state once", "states",
        100_000, 10_000_000, slices.every_schedule, 0.5, rounds=len(slices.CASTS),
    ),
    Target(
        "T3", "the real code from the table to the store, simulated from a seed: none breaks a promise", "schedules",
        20_000, 500_000, slices.simulation, 4.0, quota={
            **_faults(*slices.SIMULATION_FAULTS, "fault: repeated request", "fault: sleeper", share=0.5),
            **_faults(slices.FULL_DISK, share=0.1),
            **_faults("killed", "entries truncated", "parts swept", "sidecars swept", share=0.1),
        },
    ),
    Target(
        "T4", "the same seed has the same trace in other processes with other hash seeds", "seeds",
        200, 2_000, slices.determinism, 0.4,
    ),
    Target(
        "T5", "kill -9 at named points of operations without Spark, on local disk, S3, PostgreSQL, DynamoDB", "kills",
        900, 7_400, slices.crash_points, 3.0,
    ),
    Target(
        "T6", "kill -9 and SIGSTOP at random of processes that write and maintain a table (T7)", "kills",
        300, 10_000, slices.random_kills, 1.5, quota={"commits": (UNITS, 1.0)},
    ),
    Target(
        "T8", "each call to the store of each operation fails, in six ways", "calls",
        2_500, 2_500, slices.every_call, 2.0,
    ),
    Target(
        "T9", "power cuts: every image that POSIX allows after every call of short sequences, and tables", "images",
        20_000, 500_000, slices.power_cuts, 0.7, quota=_faults("images read by the store", share=0.001),
    ),
    Target(
        "T10", "damaged data files: the right rows, or an error that names the file", "damages",
        20_000, 1_000_000, slices.damaged_files, 2.0, quota={
            **_faults("damage: flipped bit", share=0.3),
            **_faults("damage: truncated", "damage: another file", share=0.01),
            "reported": ("reads", 0.05),
        },
    ),
    Target(
        "T11", "damaged entries, checkpoints, sidecars: what was written, or an error", "damages",
        100_000, 1_000_000, slices.damaged_entries, 1.0, quota={
            **_faults("damage: written so", "damage: a bit flipped", share=0.05),
            **_faults("object: manifest", "object: segment", "object: sidecar", share=0.002),
        },
    ),
    Target(
        "T12", "files of users and footers, changed at random: read, or refused by name", "inputs", 300, 10_000,
        slices.fuzzed, 0.6, quota={"refused": (UNITS, 0.2), "read": (UNITS, 0.02)},
    ),
    Target(
        "T13", "Spark: tasks that fail, run twice, are killed; jobs that die", "tests", 10, 10,
        slices.counted_tests(
            "-m", "slow or not slow",
            "tests/spark/test_crashes.py", "tests/spark/test_signals.py", "tests/pipeline/test_crashes.py",
        ),
        0.3, rounds=1, by_itself=True,
    ),
    Target(
        "T14", "the models of truncation, collection and lost entries: no needed object is deleted", "schedules",
        1_000_000, 1_000_000, slices.deletion_models, 1.0, quota=slices.model_quota(slices.DELETIONS),
    ),
    Target(
        "T15", "histories of eight clients, 200 operations each, over a failing store: no anomaly", "histories",
        100, 5_000, slices.histories, 0.8, quota=_faults("fault: fail_before", "fault: late", share=2.0),
    ),
    Target(
        "T16", "random steps over the public API beside a dictionary, 75 steps each", "examples",
        200, 1_000, slices.state_machine, 1.0, quota={"steps": (UNITS, 10.0)},
    ),
    Target(
        "T17", "seeded bugs: each is found", "bugs", 40, 60, slices.seeded_bugs, 3.0, rounds=slices.SEEDED_ROUNDS,
        quota={"found": (UNITS, 1.0)},
    ),
    Target(
        "T20", "services, writers and submitters killed at random for half an hour", "tests", 1, 1,
        slices.counted_tests("-m", "slow", "tests/service/test_soak.py"), 0.3, rounds=1, by_itself=True,
    ),
    Target(
        "T21", "golden instances open; unknown features are refused by readers, writers, collectors", "tests", 10, 10,
        slices.counted_tests("tests/golden"), 0.3, rounds=1,
    ),
    Target(
        "T22", "verification finds each kind of damage and names it", "tests", 40, 40,
        slices.counted_tests("tests/adversarial/test_verify.py", "tests/processes/log/test_faults.py"), 0.3, rounds=1,
    ),
    Target(
        "T23", "security: roles, tokens, hostile requests and statements", "tests", 100, 100,
        slices.counted_tests("tests/tables/security", "tests/pure/security", "tests/adversarial/test_statements.py"),
        0.3, rounds=1,
    ),
)  # fmt: skip
BY_ID = {target.id: target for target in TARGETS}
