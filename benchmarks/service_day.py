"""A simulated day of a service with constant writes to 20 tables, and an hour in which every operation fails.

    python -m benchmarks.service_day [--tables 20] [--writes 144] [--gigabytes 300] [--svg FILE] [--json FILE]

The decisions are made by the code of the service: summaries, plan, order, retries, and the planners of compaction and
splitting, on real states. Only time is modelled: an operation takes two seconds plus its bytes at 50 MB/s. No row is
written. Table ``n`` gets ``n`` shares of the bytes, in as many writes as each other table. From 12:00 to 13:00 every
operation fails, as if Spark and all workers were gone, while writes go on. Printed for every two hours: runs that a
query merges in a partition (mean and most, of all tables), runs and bytes that wait for compaction, and operations
under way.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.amplification import DAY_S, GC_DELAY_S, KEYS, SCHEMA, Day, bounds
from benchmarks.plots import Curve, Plot
from lakebed.model.operations import OPERATIONS
from lakebed.model.settings import Strategy
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import (
    CloseJob,
    ConcatenateRuns,
    CreateTable,
    OpenJob,
    ProposeOutput,
    PurgeFiles,
    RetireFiles,
)
from lakebed.model.table_summary import Record, TableSummary, TableView
from lakebed.server.service.plan import Due, ServiceLimits, choose, due, failed, succeeded
from lakebed.server.service.summary import summarise
from lakebed.upkeep.compaction.plan import PartitionMerge, plan

OPERATION_S = 2.0
BYTES_S = 50_000_000
GONE_S = (12 * 3600.0, 13 * 3600.0)
SAMPLE_S = 300.0
LIMITS = ServiceLimits(at_once=2)


@dataclass(slots=True)
class SimulatedTable:
    """One table, and its status in the service."""

    name: str
    day: Day
    write_bytes: int
    summary: TableSummary = field(default_factory=TableSummary)
    records: dict[str, Record] = field(default_factory=dict)
    dropped: list[tuple[float, str]] = field(default_factory=list)

    def look(self) -> None:
        self.summary = summarise(self.day.state, self.day.settings, online=True)

    def view(self, now_s: float) -> TableView:
        return TableView(self.name, True, (), self.summary, self.records, now_s=now_s)

    def begin(self, operation: str) -> tuple[float, list[tuple[PartitionMerge, str]]]:
        """Return the seconds that the operation takes, and the jobs that it opens."""
        if not OPERATIONS[operation].merges:
            return OPERATION_S, []
        planned = plan(self.day.state, self.day.settings)
        for link in planned.concatenations:
            self.day.proposal(ConcatenateRuns(link.partition, link.files, f"chain-{self.day.state.version}"))
        jobs = []
        for merge in (*planned.whole, *planned.merges):
            name = f"job-{self.day.state.version}"
            self.day.proposal(OpenJob(Job(name, merge.keys, tuple(file.id for file in merge.inputs), "", 10**6, 0)))
            jobs.append((merge, name))
        return OPERATION_S + sum(merge.size_bytes for merge, _ in jobs) / BYTES_S, jobs

    def end(self, operation: str, jobs: list[tuple[PartitionMerge, str]], now_s: float) -> None:
        """Commit the result of the operation."""
        if operation == "splitting":
            self.day.split()
        elif operation == "gc":
            old = tuple(name for at_s, name in self.dropped if at_s + GC_DELAY_S <= now_s)
            if old:
                self.day.proposal(RetireFiles(old))
                self.day.proposal(PurgeFiles(old))
                self.dropped = [one for one in self.dropped if one[1] not in set(old)]
        for merge, name in jobs:
            low, high = bounds(merge.keys, merge)
            count = -(-merge.size_bytes // self.day.settings.file_bytes)
            edges = [low + (high - low) * part // count for part in range(count + 1)]
            parts = [self.day.file(a, b, merge.size_bytes // count, name) for a, b in itertools.pairwise(edges)]
            self.day.proposal(ProposeOutput(name, tuple(parts)))
            free = [file.id for file in merge.inputs if not self.day.state.files[file.id].references]
            self.dropped += [(now_s, file) for file in free]


class Simulation:
    """The clock, the tables, and the operations under way."""

    def __init__(self, tables: int, writes: int, total_bytes: int) -> None:
        shares = tables * (tables + 1) // 2
        self.tables = {}
        self.events: list[tuple[float, int, str, Any]] = []
        self.order = itertools.count()
        self.running: dict[tuple[str, str], float] = {}
        self.samples: list[dict[str, float]] = []
        self.begun = Counter[str]()
        self.looks: set[float] = set()
        for number in range(1, tables + 1):
            day = Day(Strategy.SIZE_RATIO)
            day.proposal(CreateTable(f"table-{number:02d}", SCHEMA, {}, ()))
            name = f"table-{number:02d}"
            self.tables[name] = SimulatedTable(name, day, total_bytes * number // shares // writes)
            for write in range(writes):
                self.at((write + number / tables) * DAY_S / writes, "write", (name, write))
        for sample in range(int(DAY_S / SAMPLE_S) + 1):
            self.at(sample * SAMPLE_S, "sample", None)

    def at(self, time_s: float, what: str, value: Any) -> None:
        heapq.heappush(self.events, (time_s, next(self.order), what, value))

    def run(self) -> None:
        while self.events:
            now_s, _, what, value = heapq.heappop(self.events)
            if now_s > DAY_S:
                return
            if what == "write":
                table = self.tables[value[0]]
                table.day.ingest(value[1], 0, KEYS, table.write_bytes)
                table.look()
            elif what == "end":
                self.end(now_s, *value)
            elif what == "sample":
                self.sample(now_s)
            self.begin(now_s)

    def begin(self, now_s: float) -> None:
        waiting: list[Due] = []
        next_s = DAY_S + 1.0
        for table in self.tables.values():
            found, look_s = due(table.view(now_s), LIMITS)
            waiting += [one for one in found if (one.table, one.operation) not in self.running]
            next_s = min(next_s, look_s)
        for one in choose(waiting, self.running, LIMITS):
            table = self.tables[one.table]
            seconds, jobs = table.begin(one.operation)
            table.look()
            table.records[one.operation] = Record(
                **{**_fields(table.records.get(one.operation, Record())), "begun_s": now_s}
            )
            self.running[one.table, one.operation] = now_s
            self.begun[one.operation] += 1
            self.at(now_s + seconds, "end", (one.table, one.operation, jobs, table.day.state.version))
        if now_s < next_s <= DAY_S and next_s not in self.looks:
            self.looks.add(next_s)
            self.at(next_s, "look", None)

    def end(self, now_s: float, name: str, operation: str, jobs: Any, before: int) -> None:
        table = self.tables[name]
        del self.running[name, operation]
        record = table.records[operation]
        if GONE_S[0] <= now_s < GONE_S[1]:
            for _, job in jobs:
                table.day.proposal(CloseJob(job, "the worker is gone"))
            table.records[operation] = failed(record, now_s, LIMITS.retry, 0.5, fault=False)
        else:
            table.end(operation, jobs, now_s)
            table.records[operation] = succeeded(record, now_s, before, table.day.state.version)
        table.look()

    def sample(self, now_s: float) -> None:
        runs = [one.runs for table in self.tables.values() for one in partition_sums(table.day.state).values()]
        self.samples.append(
            {
                "hour": now_s / 3600,
                "runs_mean": mean(runs or [0]),
                "runs_most": max(runs, default=0),
                "runs_due": sum(table.summary.backlog.runs_due for table in self.tables.values()),
                "bytes_due": sum(table.summary.backlog.bytes_due for table in self.tables.values()),
                "running": len(self.running),
                "partitions": len(runs),
            }
        )


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in Record.__slots__}


def picture(samples: list[dict[str, float]]) -> Plot:
    """Return the most and the mean runs of a partition over the day, with the hour of failures shaded."""
    names = {"runs_most": "most", "runs_mean": "mean"}
    curves = [Curve(shown, [(one["hour"], one[name]) for one in samples]) for name, shown in names.items()]
    gone = GONE_S[0] / 3600, GONE_S[1] / 3600
    return Plot("Runs of a partition; every operation fails in the shaded hour", "hours", curves, shaded=[gone])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--writes", type=int, default=144)
    parser.add_argument("--gigabytes", type=int, default=300)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    simulation = Simulation(asked.tables, asked.writes, asked.gigabytes * 10**9)
    simulation.run()
    print(f"{asked.tables} tables, {asked.writes} writes to each in a day, {asked.gigabytes} GB in all")
    print(" hour  runs, mean  most  runs due  GB due  under way  partitions")
    for sample in simulation.samples[:: int(7200 / SAMPLE_S)]:
        print(
            f"{sample['hour']:5.0f} {sample['runs_mean']:11.2f} {sample['runs_most']:5.0f} {sample['runs_due']:9.0f} "
            f"{sample['bytes_due'] / 1e9:7.2f} {sample['running']:10.0f} {sample['partitions']:11.0f}"
        )
    calm = [one for one in simulation.samples if not 12 <= one["hour"] < 13.5]
    print(f"operations: {', '.join(f'{count} {name}' for name, count in sorted(simulation.begun.items()))}")
    most = max(one["runs_most"] for one in calm)
    print(f"most runs in a partition, but for that hour and 30 minutes after it: {most:.0f}")
    if asked.svg is not None:
        asked.svg.write_text(picture(simulation.samples).svg())
    if asked.json is not None:
        asked.json.write_text(json.dumps(simulation.samples) + "\n")


if __name__ == "__main__":
    main()
