"""What a month costs in US$, from requests that are counted: ``python -m benchmarks.month [--page docs/prices.md]``.

Each operation runs once, for real, on a store in memory, and the requests that this process sends are counted, as a
service counts its own; a test compares these counts with the requests that an S3 server receives. How many merges a day
of writes takes, and how large they are, the real planner says (:mod:`benchmarks.amplification`). Prices are those of
:mod:`benchmarks.prices`; CPU seconds of a row are measured by other benchmarks.

Core types: :class:`Counts`, :class:`Bill`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks import prices
from benchmarks.amplification import Day, simulated
from benchmarks.billion.rows import SCHEMA, rows_of
from lakebed import Pipeline, clock
from lakebed.model.settings import Strategy
from lakebed.server.service.watch import LOG_START_EVERY, Watch
from lakebed.storage.client_errors import SENT, SentRequests
from lakebed.storage.object_store import PART_BYTES
from lakebed.table.instance import Instance
from lakebed.table.table import Table

TERABYTE = 1e12
GETS = 10**6
ROWS = 10**9
WRITES = 1_440
ROW_BYTES = 22
"""Stored bytes of a row of 40 bytes of :mod:`benchmarks.billion.rows`."""
WRITE_ROWS_S, MERGE_ROWS_S = 0.9e6, 2.0e6
"""Rows that a core writes and merges in a second: docs/performance.md."""
LOOK_S = 54.0
"""A service looks at an idle table every 48 to 60 seconds, and at the catalog each second."""
SLICE_BYTES = 8 * 2**20
MERGED = 8
"""Runs of the merge whose requests are counted."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests of one operation."""

    puts: float
    gets: float

    @property
    def usd(self) -> float:
        """Their price."""
        return self.puts * prices.PUT + self.gets * prices.GET


@contextmanager
def counted() -> Iterator[Callable[[], Counts]]:
    """Count the requests of the block: the function returns them after it."""
    before, after = SENT.last_hour(), [SentRequests(0, 0)]
    yield lambda: Counts(after[0].puts - before.puts, after[0].gets - before.gets)
    after[0] = SENT.last_hour()


def new_table(lake: Instance, rows: int, batch: int) -> Table:
    """Return a table with rows in batches of so many, each a run."""
    table = lake.create_table(f"t{rows}-{batch}", SCHEMA)
    for begin in range(0, rows, batch):
        table.write(rows_of(np.arange(begin, min(rows, begin + batch)), 0))
    return table


def count_operations() -> dict[str, Counts]:
    """Return the requests of one operation of each kind."""
    lake = lakebed.create(f"memory://{clock.random_token()}")
    found: dict[str, Counts] = {}
    table = new_table(lake, 200_000, 200_000)
    every = rows_of(np.arange(200_000), 0)["key"].to_pylist()
    chance = random.Random(1)
    table.get(every[0])
    with counted() as counts:
        for _ in range(100):
            lakebed.set_read_cache_bytes(0)
            lakebed.set_read_cache_bytes(2**30)
            table.get(chance.choice(every))
    found["get of a file's row, nothing cached"] = _each(counts(), 100)
    for key in every[:2_000]:
        table.get(key)
    with counted() as counts:
        for key in every[:500]:
            table.get(key)
    found["get of a file's row, footer cached"] = _each(counts(), 500)
    for name, rows in (("write of 1,000 rows", 1_000), (f"write of {ROWS // WRITES:,} rows", ROWS // WRITES)):
        data: pa.Table = rows_of(np.arange(rows), 1)
        table.write(data)
        with counted() as counts:
            for _ in range(4):
                table.write(data)
            table.log.wait_for_checkpoint()
        found[name] = _each(counts(), 4)
    merged = new_table(lake, MERGED * 50_000, 50_000)
    merged.log.wait_for_checkpoint()
    with counted() as counts, Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.compact(merged, strategy="full")
        merged.log.wait_for_checkpoint()
    found[f"merge of {MERGED} runs"] = counts()
    watch = Watch(lake.catalog().tables[table.id], lake.log_of(table.id), 0.0, 0.0)
    for name, look in (("look of a service at a table", watch.follow), ("look at the catalog", Instance.catalog)):
        look(lake)
        with counted() as counts:
            for _ in range(LOG_START_EVERY):
                look(lake)
        found[name] = _each(counts(), LOG_START_EVERY)
    return found


def _each(counts: Counts, times: int) -> Counts:
    return Counts(counts.puts / times, counts.gets / times)


@dataclass(frozen=True, slots=True)
class Bill:
    """What a month of something costs, by what it is for, in US$."""

    title: str
    lines: dict[str, float] = field(default_factory=dict)

    @property
    def usd(self) -> float:
        """The sum."""
        return sum(self.lines.values())


def bills(counts: dict[str, Counts], day: Day) -> list[Bill]:
    """Return the bills of the page. ``day`` is a day of writes, as simulated."""
    days, looks = prices.MONTH_DAYS, prices.MONTH_S
    look, catalog = counts["look of a service at a table"].usd, counts["look at the catalog"].usd
    service = prices.fargate_usd(2, 8)
    write = counts[f"write of {ROWS // WRITES:,} rows"].usd
    amplified = day.written_bytes / day.came_bytes
    merged_rows = ROWS * (amplified - 1)
    # The merge that was counted is small: larger ones read in slices, and write in parts.
    parts = merged_rows * ROW_BYTES * (prices.PUT / PART_BYTES + prices.GET / SLICE_BYTES)
    gb = ROWS * ROW_BYTES / 1e9
    core_s = ROWS / WRITE_ROWS_S + merged_rows / MERGE_ROWS_S
    return [
        Bill("1 TB, nothing else", {"storage": TERABYTE / 1e9 * prices.GB_MONTH}),
        Bill(
            "idle: a service that follows one idle table",
            {
                "looks at the table and the catalog": looks * (look / LOOK_S + catalog),
                "container, 2 vCPU and 8 GB": service,
            },
        ),
        Bill(
            "1,000,000 gets a day, nothing cached",
            {"requests": days * GETS * counts["get of a file's row, nothing cached"].usd},
        ),
        Bill(
            "1,000,000 gets a day, footers cached",
            {"requests": days * GETS * counts["get of a file's row, footer cached"].usd},
        ),
        Bill(
            "1,000,000,000 rows a day, in a write each minute",
            {
                "requests of writes": days * WRITES * write,
                "requests of merges": days * (day.merges * counts[f"merge of {MERGED} runs"].usd + parts),
                "CPU of writes and merges, on Fargate": days * prices.fargate_usd(1, 4, core_s),
                "storage that a month adds": days * gb * prices.GB_MONTH,
                "storage of a day's history": gb * amplified * prices.GB_MONTH,
            },
        ),
    ]


def page(counts: dict[str, Counts], day: Day) -> str:
    """Return the page."""
    lines = ["# What a month costs", ""]
    lines += [
        fill(
            "What tables on S3 cost in a month, for those who plan a budget. "
            f"Written by `python -m benchmarks.month` on {datetime.now(UTC).date()}. Requests are counted while each "
            f"operation runs; the merges of a day are those that the planner plans. Prices are list prices in "
            f"us-east-1, without discounts: {prices.AS_OF} (`benchmarks/prices.py`). Traffic inside a region is free.",
            120,
        ),
        "",
        "## Requests",
        "",
        "| operation | puts and lists | gets and heads | US$ for a million |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {one.puts:,.2f} | {one.gets:,.2f} | {one.usd * 1e6:,.2f} |" for name, one in counts.items()]
    lines += ["", "## Bills", "", "| a month of | for | US$ |", "|---|---|---|"]
    for bill in bills(counts, day):
        lines += [f"| {bill.title} | {what} | {usd:,.2f} |" for what, usd in bill.lines.items()]
        if len(bill.lines) > 1:
            lines.append(f"| | **all** | **{bill.usd:,.2f}** |")
    amplified = day.written_bytes / day.came_bytes
    lines += [
        "",
        fill(
            f"A day of a write each minute took {day.merges:,} merges, and wrote each byte {amplified:.1f} times. A "
            f"container that is always there costs more than the rest of a small table: run [`lakebed "
            f"maintain`](scheduling.md) from cron instead, and pay for minutes. What grows with the number of tables "
            f"is in [service](service.md#what-it-costs), what grows with rows in [a trillion rows](scale.md).",
            120,
        ),
        "",
        "**Next:** [sizing](sizing.md) estimates your table, [costs](costs.md#requests) has the requests of each call.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--writes", type=int, default=WRITES, help="of the simulated day")
    asked = parser.parse_args()
    day = simulated(Strategy.SIZE_RATIO, asked.writes, ROWS * ROW_BYTES, growing=False)
    text = page(count_operations(), day)
    print(text)
    if asked.page is not None:
        asked.page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
