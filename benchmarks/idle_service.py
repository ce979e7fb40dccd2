"""The cost of an idle service: CPU time, requests to the store, memory, and the price of requests.

    python -m benchmarks.idle_service [--tables 1000] [--seconds 36] [--rest 10]

Makes ``--tables`` small tables on local disk, starts a service, advances its clock by two hours, so that all tables
have been idle for long, and measures for some seconds. Idle tables are checked every ``--rest`` seconds; the figures
for other periods, such as the default of a minute, follow from the cost of one check. Garbage collections, once a day
for an idle table, are left out. Prices are the list prices of S3 Standard in us-east-1: 0.40 USD for a million GET
requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import lakebed
from benchmarks import prices
from lakebed import clock
from lakebed.server.service.plan import ServiceLimits, default_periods
from lakebed.server.service.service import Service
from lakebed.storage import connect
from lakebed.table.instance import Instance
from lakebed.testing.faults import CountingStorage
from lakebed.write.batches import in_threads

USD_PER_GET = prices.GET
PERIODS_S = (1, 10, 60, 600)
CREATED_AT_ONCE = 16
"""Tables created at the same time share an entry of the catalog."""

SCHEMA = lakebed.Schema({"key": "string"}, values={"value": "int64"})


def memory_mib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def made(folder: str, tables: int) -> CountingStorage:
    """Return the store of an instance with this many tables, each with a version of some rows."""
    instance = lakebed.create(f"{folder}/lake")
    rows = pa.table({"key": ["a", "b"], "value": [1, 2]})
    in_threads(lambda number: instance.create_table(f"table-{number:05d}", SCHEMA), range(tables), CREATED_AT_ONCE)
    for name in instance.tables()[:: max(1, tables // 100)]:
        instance.table(name).write(rows)
    return CountingStorage(connect(f"{folder}/lake"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=36.0)
    parser.add_argument("--rest", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = made(folder, asked.tables)
        document = json.loads(Path(folder, "lake", "instance.json").read_bytes())
        periods = default_periods() | {"gc": 30 * 86_400.0}
        limits = ServiceLimits(follow_s=min(1.0, asked.rest), follow_max_s=asked.rest, periods=periods)
        before_mib, began_s = memory_mib(), time.monotonic()
        service = Service(Instance(storage, document), launcher="in-process", limits=limits)
        with service:
            while len([t for t in service.status().tables if t.version]) < asked.tables:
                time.sleep(0.5)
            started_s = time.monotonic() - began_s
            later = clock.monotonic_s() + 7200 - time.monotonic()
            clock.monotonic_s = lambda: time.monotonic() + later  # type: ignore[assignment]
            time.sleep(asked.rest)
            storage.clear()
            spent_s, since_s = time.process_time(), time.monotonic()
            time.sleep(asked.seconds)
            spent_s, lasted_s = time.process_time() - spent_s, time.monotonic() - since_s
            calls, looked_s = storage.calls, time.perf_counter()
            service.status()
            looked_s = time.perf_counter() - looked_s
            held_mib = memory_mib()
    report(asked, spent_s / lasted_s, sum(calls.values()) / lasted_s)
    print(f"all tables were looked at first within {started_s:.1f} s; a status takes {1000 * looked_s:.0f} ms")
    print(f"memory: {held_mib:.0f} MiB, of which {held_mib - before_mib:.0f} since the service began")


def report(asked: argparse.Namespace, share: float, rate: float) -> None:
    """Print the figures, and estimates for other periods."""
    print(f"{asked.tables} tables that rest, looked at every {asked.rest:g} s at most (80% to 100% of it)")
    print(f"measured: {100 * share:.2f}% of a core, {rate:.1f} requests a second")
    print(f"\n{'rest, s':>8} {'% of a core':>12} {'requests an hour':>17} {'USD an hour':>12} {'USD a month':>12}")
    for period_s in PERIODS_S:
        scale = asked.rest / period_s
        hour = 3600 * rate * scale
        price = hour * USD_PER_GET
        print(f"{period_s:8} {100 * share * scale:12.2f} {hour:17,.0f} {price:12.4f} {730 * price:12.2f}")


if __name__ == "__main__":
    main()
