"""The page docs/reliability.md, from the results of all runs. What other systems do is quoted from what was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.trust.results import Result
from tests.trust.slices import ROOT
from tests.trust.targets import BY_ID, TARGETS, Target

PAGE = ROOT / "docs/reliability.md"

HEAD = """# Reliability

**What is promised?** What was acknowledged is in every later state (no loss); each request takes effect at most once
(no doubling), whole or not at all; all readers of a version have the same rows; every reference of a retained version
names an object with the bytes that were written; and after any fault another process goes on without a person.

**How is it shown?** By harnesses that break things: models of the protocol, the real code simulated from a seed, stores
that fail at every call, processes that are killed at named points, images of a disk after a power cut, and damaged
files. And by bugs that are planted in the code, one at a time, which the harnesses have to find.

**How is it run?** `make trust MINUTES=30` runs slices of all targets for as long as it is given, as many at once as
there are cores. Each slice is run from a number, its seed, in a process of its own; `python -m tests.trust slice T3 17`
runs one again. Counts add up over all runs in `tests/trust/results.json`, from which the command writes this page. A
run fails if a slice finds something, hangs or dies, or if a fault fired less often than its quota. `UNTIL=ci`, or
`UNTIL=release`, leaves out the targets that have done what these columns ask.

**Where is it weak?** A target whose count is below its column *release* is not reached yet. Nothing here ran on a real
S3, GCS, Azure or DynamoDB: those servers are stand-ins on one machine. No power was cut: the disk is a model of POSIX.
Each target counts from the revision in which it was first run.

## Targets

*CI* is what a run of continuous integration should do, *release* what should be done before a version. *CPU seconds*
are those of the slices and their children. *Found* is the number of findings, in Lakebed or in the harness itself; all
are [listed below](#findings).

| | what is asked | done | CI | release | slices | CPU seconds | found |
|---|---|---|---|---|---|---|---|
"""

NOT_RUN = """
Counted elsewhere: clocks that are wrong by years (T19) are in every schedule of T3, whose processes read times between
2020 and 2040; SIGSTOP past every delay (T7) is in T6; the quotas (T24) are checked after each run. The coverage of
branches (T18) is checked by `make coverage`: at least 95% of the packages that decide what rows a table has, and 85% of
the others. T13 and T20 run only by name, `make trust ONLY=T13`, as they start Spark and take half an hour.
"""

PEERS = """
## Beside other systems

As their sources and documents said in November 2026. The sources were read at slatedb e0161973, icechunk 224519be,
tigerbeetle 52ad553f, foundationdb c0c44752, rocksdb 1dfa7297 and etcd c34dc7ee. None of their figures was measured here.

| | simulation of the real code | processes killed | damage, lost answers | seeded or old bugs |
|---|---|---|---|---|
| **Lakebed** | {simulated} schedules, and {modelled} of models | {kills} kills at {points} named points on {places}, \
{random_kills} at random | {damages} damaged files, {entries} damaged entries, {calls} failed calls, {images} \
images of power cuts | {bugs} planted bugs, {forms} forms of models |
| SlateDB | deterministic simulation with ten random faults a run, hourly, four jobs of up to 60 minutes; same seed run \
twice | named fail points | a chaos job of eight scenarios, such as 75% of answers 503 | FizzBee models of log and \
collection |
| TigerBeetle | a whole cluster in one process (VOPR), all day on 1,024 cores, about 1,000 times real time | crash faults \
in the simulation | read and write faults up to 10%, misdirected writes up to 10% a run | 16 further fuzzers; about \
8,100 assertions stay on in production |
| FoundationDB | deterministic simulation, tens of thousands of runs a night | in the simulation | BUGGIFY branches, \
swizzle-clogging | 247 test files of the simulation |
| RocksDB | none of this kind | black box: every 120 s for 6,000 s; white box: 22 named kill points | a file system that \
drops unsynced data | about 275 randomised options, an expected state outside the process |
| etcd | none of this kind | 41 kinds of failure under traffic, and a run with too little traffic is invalid | black \
holes, panics at fail points | the harness must reproduce old bugs before it may change; table of 17 |
| Icechunk | Hypothesis state machines: 200 examples of 75 steps in CI, 1,000 of 500 nightly | none of this kind | a test \
that cuts the answer of a put | shuttle for interleavings of threads |

Simulations of a database on a thousand cores run orders of magnitude more schedules than these. Beside that, Lakebed's
harnesses let every call of every operation fail in turn, kill processes at named points on each kind of store, damage
files under every way to read, and record what it took to find each planted bug.
"""  # noqa: E501


def page_of(results: Mapping[str, Result]) -> str:
    """Return the page."""
    return "".join(
        [
            HEAD,
            *(f"{_line(target, results.get(target.id, Result()))}\n" for target in TARGETS),
            NOT_RUN,
            _peers(results),
            _seeded(results.get("T17", Result())),
            _faults(results),
            _points(results.get("T5", Result())),
            _findings(results),
        ]
    )


def _line(target: Target, result: Result) -> str:
    found = f"{len(result.findings)}" + (f", {len(result.open_findings)} open" if result.open_findings else "")
    done = _amount(f"{result.units:,} {target.unit}") if result.slices else "not run yet"
    return (
        f"| {target.id} | {target.asked} | {done} | {target.ci:,} | {target.release:,} | {result.slices:,} | "
        f"{result.cpu_s:,.0f} | {found} |"
    )


def _amount(text: str) -> str:
    """Return a number with its unit, which is in the singular after 1."""
    return re.sub(r"^1 (\w+?)(ies|s)$", lambda found: f"1 {found[1]}" + ("y" if found[2] == "ies" else ""), text)


def _peers(results: Mapping[str, Result]) -> str:
    def units(*names: str) -> str:
        return f"{sum(results.get(name, Result()).units for name in names):,}"

    found = results.get("T17", Result()).facts
    forms = [name for name in found if name.startswith("model ")]
    points = results.get("T5", Result()).facts
    places = sorted({name.partition(":")[0] for name in points})
    return PEERS.format(
        simulated=units("T3"), modelled=units("T1", "T14"), kills=units("T5"), random_kills=units("T6"),
        points=f"{sum(points.values()):,}", places=", ".join(places) or "no store",
        damages=units("T10"), entries=units("T11"), calls=units("T8"), images=units("T9"),
        bugs=len(found) - len(forms), forms=len(forms),
    )  # fmt: skip


def _seeded(result: Result) -> str:
    bugs = {name: took for name, took in result.facts.items() if not name.startswith("model ")}
    lines = [
        f"| {name.partition(': ')[2]} | {name.partition(': ')[0]} | {_amount(took)} |"
        for name, took in sorted(bugs.items())
    ]
    forms = {name: took for name, took in result.facts.items() if name.startswith("model ")}
    missed = [name for name, took in forms.items() if took == "not found"]
    return f"""
## Seeded bugs

Each line is a bug that was planted in the real code, the harness that found it, and what it took. In addition
{len(forms)} forms of the models' rules, each wrong in one point, were {"not all" if missed else "all"} found.

| bug | harness | found after |
|---|---|---|
""" + "".join(f"{line}\n" for line in lines)


def _faults(results: Mapping[str, Result]) -> str:
    counted: Counter[str] = Counter()
    for name, result in results.items():
        for event, count in result.events.items():
            if event.startswith(("fault: ", "damage: ", "kill -9", "SIGSTOP", "killed: ")):
                counted[f"{name} | {event.removeprefix('fault: ').removeprefix('damage: ')}"] += count
    lines = "".join(f"| {name} | {count:,} |\n" for name, count in sorted(counted.items(), key=_by_target))
    return f"""
## Faults that fired

| | fault | times |
|---|---|---|
{lines}"""


def _by_target(pair: tuple[str, Any]) -> tuple[int, str]:
    return int(pair[0].partition(" ")[0][1:]), pair[0]


def _points(result: Result) -> str:
    by_place: dict[str, dict[str, int]] = {}
    for name, points in result.facts.items():
        place, _, operation = name.partition(": ")
        by_place.setdefault(operation, {})[place] = points
    places = sorted({name.partition(": ")[0] for name in result.facts})
    lines = "".join(
        f"| {operation} | {' | '.join(str(found.get(place, '-')) for place in places)} |\n"
        for operation, found in sorted(by_place.items())
    )
    return f"""
## Crash points

A process leaves traces only by its calls to a store or a log. So the points at which it can die lie before each call,
and behind each that changes something. The table has the number of points of an operation; a slice kills at some of
them, the next slice of the operation at others. {result.events["points that were not reached again"]:,} kills missed
their point, because calls came in another order.

| operation | {" | ".join(places)} |
|---|{"---|" * len(places)}
{lines}"""


def _findings(results: Mapping[str, Result]) -> str:
    lines = "".join(_finding_lines(results))
    return f"""
## Findings

{lines or "None yet." + chr(10)}"""


def _finding_lines(results: Mapping[str, Result]) -> Iterator[str]:
    for name in BY_ID:
        for finding in results.get(name, Result()).findings:
            short = " ".join(finding.detail.replace("|", "/").replace("<", "&lt;").replace("`", "'").split())[:160]
            yield f"* {name}, slice {finding.seed}, in {finding.revision}: {short}. {finding.mended or 'Open.'}\n"
