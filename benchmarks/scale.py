"""A table of 10¹² rows among 10,000 tables, by simulation: what it takes, what it costs, and what breaks first.

    python -m benchmarks.scale [--partitions 1000,10000,132000] [--page docs/scale.md]

The planners, transactions and states are the real ones; no row is written. Two parts:

*A day* of a table in which every partition is like every other: ``DAY_PARTITIONS`` of them stand for all, at the rates
of a partition of the large table. Writes of every five minutes and imports arrive, the planner is asked after each, and
what it plans is carried out. It gives runs, write amplification, files, and the number and size of jobs.

*One event of each kind* at each number of partitions: CPU seconds to resolve and apply a write, an import and a merge,
to encode and to decode their entries, to plan compaction and to summarise the table as a service does, and the memory
of the state. From these, the rates, and a modelled store and Spark follow requests, US$, delays, and the share of
each resource that is used. A share grows in proportion to partitions, so it says at which size a resource is used up.

Modelled are: the latency of the store (``PUT_S``, ``GET_S``), the start of Spark (``SPARK_START_S``, as published for
EMR Serverless), CPU seconds of a row in an import and in a merge (measured by other benchmarks), and prices
(:mod:`benchmarks.prices`).
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

import psutil

from benchmarks import prices
from benchmarks.amplification import CODEC, KEYS, SCHEMA, Day
from benchmarks.month import MERGE_ROWS_S, SLICE_BYTES, WRITE_ROWS_S
from benchmarks.state import STEP, large_state
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.machine import TABLE
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import Job, TableState
from lakebed.model.state.transactions import (
    CreateTable,
    OpenJob,
    Proposal,
    ProposeFiles,
    ProposeOutput,
    Rejected,
    Repeated,
    TooOld,
    apply,
    resolve,
)
from lakebed.server.service.summary import summarise
from lakebed.storage.contract import OBJECT_BYTES_MAX
from lakebed.storage.object_store import PART_BYTES
from lakebed.upkeep.compaction.plan import PartitionMerge, plan

ROWS, PARTITIONS, TABLES = 10**12, 132_000, 10_000
ROW_BYTES = 25
IMPORTS, IMPORT_ROWS = 40, 10**9
WRITES, WRITE_ROWS = 288, 10**9 // 288
"""Imports and writes of a day, and the rows of each: 41 · 10⁹ rows a day, 4% of the table."""
IMPORT_FILES = -(-IMPORT_ROWS * ROW_BYTES // Settings().file_bytes)

DAY_PARTITIONS = 300
PUT_S, GET_S = 0.05, 0.03
SPARK_START_S = 120.0
SPARK_CORES = 144
IMPORT_CORE_S, MERGE_CORE_S = 1.3e-6, 1 / MERGE_ROWS_S
"""CPU seconds of a row, on Spark: docs/performance/writes.md and docs/performance.md."""
UPLOAD_BYTES_S = 1e8
IDLE_USD = 199.0
"""10,000 idle tables, looked at once a minute, a month: docs/service.md, measured."""
MEMORY_BYTES_MAX = 4 * 2**30
"""The memory of a service without its operations: docs/operations.md."""
COMMITS_S_MAX = 10.0
"""Commits a second of many machines to one log on S3: docs/sizing.md."""
JOBS_S_MAX = 1_000.0
"""Commits a second of one process, which share entries: docs/performance/commits.md."""
SIDECAR_REFERENCES = 1_024


# -- a day of partitions that are all alike ---------------------------------------------------------------------


@dataclass(slots=True)
class Jobs:
    """Merges of a day: over all partitions, and in one of them."""

    whole: int = 0
    whole_bytes: int = 0
    partition: int = 0
    partition_bytes: int = 0


@dataclass(slots=True)
class SimulatedDay:
    """What a day found, for ``partitions`` partitions."""

    partitions: int
    runs_mean: float = 0.0
    runs_most: int = 0
    files_mean: float = 0.0
    amplification: float = 0.0
    jobs: Jobs = field(default_factory=Jobs)


def simulate_day(partitions: int = DAY_PARTITIONS, writes: int = WRITES, imports: int = IMPORTS) -> SimulatedDay:
    """Run a day in which each partition gets what one of the large table gets."""
    day, found = Day(Strategy.SIZE_RATIO, noted=4 * partitions), SimulatedDay(partitions)
    edges = [KEYS * part // partitions for part in range(1, partitions)]
    day.proposal(CreateTable("simulated", SCHEMA, {}, tuple(CODEC.encode_key((key,)) for key in edges)))
    share = partitions / PARTITIONS
    for low, high in zip([0, *edges], [*edges, KEYS], strict=True):
        size_bytes = ROWS // PARTITIONS * ROW_BYTES
        day.proposal(ProposeFiles((day.file(low, high, size_bytes, f"first-{low}"),)))
    day.written_bytes = 0
    arrivals = sorted(
        [((at + 0.5) / writes, WRITE_ROWS) for at in range(writes)]
        + [((at + 0.5) / imports, IMPORT_ROWS) for at in range(imports)]
    )
    runs = []
    for number, (_, rows) in enumerate(arrivals):
        day.ingest(number, 0, KEYS, int(rows * ROW_BYTES * share))
        _compact(day, found.jobs)
        sums = partition_sums(day.state).values()
        runs.append(mean(one.runs for one in sums))
        found.runs_most = max(found.runs_most, *(one.runs for one in sums))
    found.runs_mean = mean(runs)
    found.files_mean = mean(one.files for one in partition_sums(day.state).values())
    found.amplification = day.written_bytes / day.came_bytes
    return found


def _compact(day: Day, jobs: Jobs) -> None:
    planned = plan(day.state, day.settings, day.strategy)
    for merge in planned.whole:
        jobs.whole, jobs.whole_bytes = jobs.whole + 1, jobs.whole_bytes + merge.size_bytes
        day.merge(merge)
    for merge in planned.merges:
        jobs.partition, jobs.partition_bytes = jobs.partition + 1, jobs.partition_bytes + merge.size_bytes
        day.merge(merge)


# -- one event of each kind -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Events:
    """CPU seconds of events in a state of ``partitions`` partitions, and its memory and largest entry in bytes."""

    partitions: int
    cpu_s: dict[str, float] = field(default_factory=dict)
    state_bytes: int = 0
    entry_bytes: int = 0

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the CPU seconds of the block."""
        gc.collect()
        began_s = time.process_time()
        yield
        self.cpu_s[name] = self.cpu_s.get(name, 0.0) + time.process_time() - began_s


def _file(number: int, low: int, high: int, rows: int, run: str) -> NewFile:
    keys = [CODEC.encode_key((low + (high - low) * part // 64,)) for part in range(64)]
    last = CODEC.encode_key((high - 1,))
    name = f"01a1fce2-8c7f-7278-ad10-{1 << 44 | number:012x}"
    file = DataFile(name, name, rows, rows * ROW_BYTES, keys[0], last, 1, 0, f"{number:032x}", 900, f"{number:032x}")
    return NewFile(file, Summary(tuple(keys), tuple(rows * part // 64 for part in range(64)), rows, last), run)


def measure_events(partitions: int) -> Events:
    """Measure one event of each kind, on a state with a file in each partition."""
    found, settings, top = Events(partitions), Settings(), partitions * STEP
    before = psutil.Process().memory_info().rss
    state = large_state(partitions, 1)

    def committed(name: str, proposal: Proposal, state: TableState) -> TableState:
        with found.timed(f"{name}, resolved"):
            transaction = resolve(proposal, state)
            assert not isinstance(transaction, Rejected | Repeated | TooOld), transaction
        with found.timed(f"{name}, encoded"):
            encoded = TABLE.encode(transaction, SIDECAR_REFERENCES)
        sidecars = {digest: one.data for digest, one in encoded.sidecars.items()}
        found.entry_bytes = max(found.entry_bytes, len(encoded.document), *map(len, sidecars.values()))
        with found.timed(f"{name}, decoded"):
            TABLE.decode(encoded.document, sidecars)
        with found.timed(f"{name}, applied"):
            return apply(state, transaction, state.version + 1)

    state = committed("write", ProposeFiles((_file(1, 0, top, WRITE_ROWS, "write"),)), state)
    edges = [top * part // IMPORT_FILES for part in range(IMPORT_FILES + 1)]
    rows = IMPORT_ROWS // IMPORT_FILES
    parts = [_file(10 + at, low, high, rows, "import") for at, (low, high) in enumerate(pairwise(edges))]
    state = committed("import", ProposeFiles(tuple(parts)), state)
    found.state_bytes = psutil.Process().memory_info().rss - before
    with found.timed("summary"):
        summarise(state, settings, online=True)
    with found.timed("plan"):
        planned = plan(state, settings)
    first = _first(planned.merges, state)
    state = committed("job", OpenJob(Job("job", first.keys, tuple(one.id for one in first.inputs), "", 60, 0)), state)
    output = _file(5, first.partition * STEP - STEP + 10, first.partition * STEP - 10, max(1000, first.rows), "job")
    committed("merge", ProposeOutput("job", (output,)), state)
    return found


def measured(partitions: int) -> Events:
    """Measure in a new process, which has no memory of another measurement; what is made once was made before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(measure_events, 100).result()
        return pool.submit(measure_events, partitions).result()


def _first(merges: tuple[PartitionMerge, ...], state: TableState) -> PartitionMerge:
    """Return a planned merge; if none is due, one of all files of a partition."""
    if merges:
        return merges[0]
    partition = state.partitions.ids[0]
    files = state.files_of(partition)
    keys: EncodedRange = state.partitions.range_at(0)
    return PartitionMerge(partition, keys, files, 2, sum(f.rows for f in files), True, sum(f.size_bytes for f in files))


# -- the model --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """What a day takes, at ``events.partitions`` partitions."""

    day: SimulatedDay
    events: Events

    @property
    def jobs(self) -> float:
        """Jobs of a day. Merges in one partition are as many as partitions; those over all partitions are not."""
        return self.day.jobs.whole + self.day.jobs.partition * self.events.partitions / self.day.partitions

    @property
    def entries(self) -> float:
        """Entries of a day: proposals of one process that wait for an entry share the next one."""
        return WRITES + IMPORTS + min(self.jobs, 86_400 / (2 * PUT_S + GET_S))

    def follow_s(self) -> float:
        """Return the CPU seconds in which a process follows the log for a day."""
        cpu_s = self.events.cpu_s
        kinds = {"write": WRITES, "import": IMPORTS, "job": self.jobs, "merge": self.jobs}
        return sum(count * (cpu_s[f"{kind}, decoded"] + cpu_s[f"{kind}, applied"]) for kind, count in kinds.items())

    def shares(self) -> list[tuple[str, float, str]]:
        """Return resources, the share of each that is used, and what it is a share of."""
        cpu_s, jobs_s = self.events.cpu_s, self.jobs / 86_400
        state, entry = self.events.state_bytes, self.events.entry_bytes
        round_s = cpu_s["summary"] + cpu_s["plan"]
        return [
            ("a round of planning", round_s / 300, f"{round_s:.1f} of 300 s"),
            ("CPU to follow the log", self.follow_s() / 86_400, f"{self.follow_s():,.0f} of 86,400 core-s a day"),
            ("commits of merges", jobs_s / JOBS_S_MAX, f"{jobs_s:.2f} of {JOBS_S_MAX:,.0f} a second"),
            ("memory of a state", state / MEMORY_BYTES_MAX, f"{state / 1e6:,.0f} of {MEMORY_BYTES_MAX / 1e6:,.0f} MB"),
            ("bytes of an entry", entry / OBJECT_BYTES_MAX, f"{entry / 1e6:.2f} of {OBJECT_BYTES_MAX / 1e6:,.0f} MB"),
        ]

    def merged_bytes(self) -> float:
        """Return the bytes that merges of a day write."""
        return (self.day.amplification - 1) * (IMPORTS * IMPORT_ROWS + WRITES * WRITE_ROWS) * ROW_BYTES

    def requests(self) -> dict[str, tuple[float, float]]:
        """Return puts and gets of a day, by what makes them."""
        imported, merged = IMPORTS * IMPORT_ROWS * ROW_BYTES, self.merged_bytes()
        looks = 86_400 * 1.06
        return {
            "writes": (WRITES * (3 + WRITE_ROWS * ROW_BYTES / PART_BYTES), WRITES * 3),
            "imports": (_puts(imported, IMPORTS * IMPORT_FILES) + 2 * IMPORTS, 2 * imported / SLICE_BYTES),
            "merges": (_puts(merged, self.jobs) + self.jobs, merged / SLICE_BYTES + 6 * self.jobs),
            "a service and a reader that follow the log": (0, 2 * (looks + self.entries)),
        }

    def dollars(self) -> dict[str, float]:
        """Return US$ a month, by what they are for."""
        puts, gets = (sum(column) for column in zip(*self.requests().values(), strict=True))
        imported = IMPORTS * IMPORT_ROWS
        merged = self.merged_bytes() / ROW_BYTES
        month = prices.MONTH_DAYS
        return {
            "storage": ROWS * ROW_BYTES / 1e9 * prices.GB_MONTH,
            "storage of a day's history": (imported * ROW_BYTES + self.merged_bytes()) / 1e9 * prices.GB_MONTH,
            "requests": month * (puts * prices.PUT + gets * prices.GET),
            "Spark, imports": prices.spark_usd(month * imported * IMPORT_CORE_S),
            "Spark, merges": prices.spark_usd(month * merged * MERGE_CORE_S),
            "two services": 2 * prices.fargate_usd(2, 16),
            "9,999 idle tables": IDLE_USD,
        }

    def visible_s(self) -> dict[str, float]:
        """Return the seconds from a call to the moment at which a reader that looks each second sees its rows."""
        cpu_s = self.events.cpu_s

        def commit(kind: str) -> float:
            own = sum(cpu_s[f"{kind}, {step}"] for step in ("resolved", "encoded", "applied"))
            return own + 2 * PUT_S + GET_S + 0.5 + GET_S + cpu_s[f"{kind}, decoded"] + cpu_s[f"{kind}, applied"]

        work = IMPORT_ROWS * IMPORT_CORE_S / SPARK_CORES
        sent = WRITE_ROWS / WRITE_ROWS_S + WRITE_ROWS * ROW_BYTES / UPLOAD_BYTES_S
        return {
            "a write of 3.5 million rows": sent + commit("write"),
            "an import of 10⁹ rows, Spark running": work + commit("import"),
            "an import of 10⁹ rows, Spark started for it": SPARK_START_S + work + commit("import"),
        }


def _puts(size_bytes: float, files: float) -> float:
    """Return the requests that send files of so many bytes together: parts, their begin and end, summaries."""
    return size_bytes / PART_BYTES + 3 * files


# -- the page ---------------------------------------------------------------------------------------------------


def rows_of_page(day: SimulatedDay, events: list[Events]) -> list[str]:
    """Return the lines of the page."""
    needs = [Needs(day, one) for one in events]
    last = needs[-1]
    dollars, shares = last.dollars(), sorted(last.shares(), key=lambda one: -one[1])
    name, share, of_what = shares[0]
    breaks = last.events.partitions / share
    daily = IMPORTS * IMPORT_ROWS + WRITES * WRITE_ROWS
    lines = ["# A trillion rows", ""]
    lines += [
        _filled(
            "Which limit a very large table reaches first, for those who plan one. "
            f"Written by `python -m benchmarks.scale` on {datetime.now(UTC).date()}. A simulation: the planners, "
            f"transactions and states are the real ones, and no row was written. The store, Spark and prices are "
            f"modelled. A table of {_power(ROWS)} rows of {ROW_BYTES} stored bytes in {last.events.partitions:,} "
            f"partitions, among {TABLES:,} tables, takes {IMPORTS} imports of {_power(IMPORT_ROWS)} rows and {WRITES} "
            f"writes a day: {daily / 1e9:.0f} billion rows. Largest table that was really imported: "
            f"[sizing](sizing.md#limits)."
        ),
        "",
        "## What breaks first",
        "",
        _filled(
            f"First {name}: {of_what}, {share:.0%} of it at {last.events.partitions:,} partitions. In proportion, "
            f"it is used up at {breaks:,.0f} partitions of this table. A round is a summary and a plan of compaction, "
            f"one after the other, and has to end before the next write, 300 s later. {shares[1][0].capitalize()} "
            f"comes next: {shares[1][2]}."
        ),
        "",
        "| resource | " + " | ".join(f"{one.events.partitions:,} partitions" for one in needs) + " | share |",
        "|---|" + "---|" * (len(needs) + 1),
    ]
    by_name = [{kind: what for kind, _, what in one.shares()} for one in needs]
    lines += [
        f"| {kind} | " + " | ".join(one[kind] for one in by_name) + f" | {used:.1%} |" for kind, used, _ in shares
    ]
    lines += ["", "## CPU of one event", "", "Milliseconds of one core; a reader decodes and applies.", ""]
    lines += ["| event | " + " | ".join(f"{one.partitions:,}" for one in events) + " |", "|---|" + "---|" * len(events)]
    lines += [
        f"| {kind} | " + " | ".join(f"{one.cpu_s[kind] * 1e3:,.1f}" for one in events) + " |"
        for kind in events[0].cpu_s
    ]
    lines += ["", "## A day", "", *_day(day, last), "", "## A month in US$", ""]
    lines += [_filled(f"List prices in us-east-1, without discounts: {prices.AS_OF}, {prices.AS_OF_SPARK}."), ""]
    lines += ["| for | US$ a month |", "|---|---|", *(f"| {what} | {usd:,.0f} |" for what, usd in dollars.items())]
    lines += [f"| all | {sum(dollars.values()):,.0f} |", ""]
    lines += [
        _filled(
            "Nearly all requests are of merges in one partition: a merge takes about as many requests, however few "
            "bytes it has. Fewer and larger imports make them fewer."
        ),
        "",
    ]
    return [*lines, *_beside_sleeper(last)]


def _filled(text: str) -> str:
    return fill(text, 120)


def _power(number: int) -> str:
    """Return a power of ten as text."""
    return "10" + str(len(str(number)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _day(day: SimulatedDay, last: Needs) -> list[str]:
    requests = last.requests()
    each = day.jobs.partition_bytes / max(1, day.jobs.partition)
    return [
        "| what | figure |",
        "|---|---|",
        f"| runs that a query merges in a partition | mean {day.runs_mean:.1f}, most {day.runs_most} |",
        f"| files of a partition at its end | {day.files_mean:.1f} |",
        f"| write amplification | {day.amplification:.2f} |",
        f"| merges over all partitions | {day.jobs.whole:,} |",
        f"| merges in one partition | {last.jobs - day.jobs.whole:,.0f}, of {each / 1e6:.1f} MB each |",
        f"| commits | {last.entries:,.0f}, {last.entries / 86_400:.2f} a second |",
        *(f"| requests of {what} | {puts:,.0f} puts, {gets:,.0f} gets |" for what, (puts, gets) in requests.items()),
        *(f"| seconds until visible: {what} | {second:,.1f} |" for what, second in last.visible_s().items()),
    ]


def _beside_sleeper(last: Needs) -> list[str]:
    state = last.events.state_bytes / 1e6
    work_min = IMPORT_ROWS * 10 * IMPORT_CORE_S / 160 / 60
    compared = [
        ("10¹⁰ rows imported on 160 vCPUs", "23 minutes", f"{work_min:.1f} minutes, of CPU alone"),
        ("rows merged in a second by a core", "0.9 million", f"{MERGE_ROWS_S / 1e6:.1f} million"),
        ("state of 132,000 partitions", "26 s to load, in the field", f"{state:,.0f} MB, three files in each"),
        ("commits of one table in a second", "more than 100 (one machine)", f"{COMMITS_S_MAX:g}, from many machines"),
        ("seconds until visible, US$, amplification", "not published", "above"),
    ]
    return [
        "## Beside Sleeper",
        "",
        _filled(
            "Its figures are those that it publishes, of real runs on AWS; these are modelled from measured CPU. "
            "More commits than ten a second go [through a service](commit-via.md)."
        ),
        "",
        "| what | Sleeper | Lakebed |",
        "|---|---|---|",
        *(f"| {what} | {theirs} | {ours} |" for what, theirs, ours in compared),
        "",
        "**Next:** [sizing](sizing.md) estimates your table, [a run](performance/billion.md) has real rows.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1000,10000,132000")
    parser.add_argument("--day-partitions", type=int, default=DAY_PARTITIONS)
    parser.add_argument("--writes", type=int, default=WRITES, help="of the simulated day")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    day = simulate_day(asked.day_partitions, asked.writes)
    print(f"a day: {day}", flush=True)
    events: list[Events] = []
    for partitions in asked.partitions.split(","):
        events.append(measured(int(partitions)))
        shown: dict[str, Any] = {name: round(cpu_s, 3) for name, cpu_s in events[-1].cpu_s.items()}
        print(f"{partitions} partitions: {shown}, {events[-1].state_bytes / 1e6:,.0f} MB", flush=True)
    lines = rows_of_page(day, events)
    print("\n".join(lines))
    if asked.page is not None:
        asked.page.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
