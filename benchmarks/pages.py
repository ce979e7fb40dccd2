"""Server time of web pages: the overview of many tables, and the page of a table with very many partitions.

    python -m benchmarks.pages [--tables 1000] [--partitions 132000]

Tables are real ones with rows, on local disk. The large table is a state as in benchmarks.state, with one file per
partition. Pages are requested from the application as by a browser, without a network; the first visit fills the caches
of later ones. There is no peer: pages of other systems have no key space.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from statistics import median

import pyarrow as pa
from litestar.testing import TestClient

import lakebed
from benchmarks.state import SCHEMA, large_state
from lakebed.log.checkpoint import Head
from lakebed.model.files import checkpoint_name, table_prefix
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.table.instance import Instance

VISITS = 9


def make_tables(instance: Instance, count: int) -> None:
    """Make tables with a few rows each."""
    rows = pa.table({"key": pa.array(range(100), pa.int64())})
    for number in range(count):
        instance.create_table(f"table-{number:04}", SCHEMA, split_points=range(10, 100, 10)).write(rows)


def make_large(instance: Instance, partitions: int) -> None:
    """Make a table whose checkpoint has this many partitions."""
    from msgspec.structs import replace

    table = instance.create_table("large", SCHEMA, online=False)
    table.set(split_rows=10**9)
    table.log.wait_for_checkpoint()
    state = replace(large_state(partitions, 1), table=table.id, version=table.version)
    head = Head(table.version, table.log.head.digest, state)
    table.storage.delete([checkpoint_name(table_prefix(table.id))])
    table.log.checkpoints.write(head)


def visit(client: TestClient, path: str, target: str) -> None:
    """Request a page several times, and print the times."""
    times = []
    for _ in range(VISITS):
        begin = time.perf_counter()
        answer = client.get(path, headers={"accept": "text/html"})
        times.append((time.perf_counter() - begin) * 1e3)
        assert answer.status_code == 200, answer.text
    size = len(answer.content) / 1e3
    took = f"first {times[0]:6.0f} ms, then {median(times[1:]):5.0f} ms"
    print(f"{path:<56}{took}, {size:4.0f} kB  ({target})", flush=True)


def main() -> None:
    """Make the tables, and visit pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=132_000)
    options = parser.parse_args()
    # The test client logs every request.
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        instance = lakebed.create(str(Path(folder) / "lake"))
        make_tables(instance, options.tables)
        make_large(instance, options.partitions)
        with Service(lakebed.open(instance.url), maintain=False) as service, TestClient(make_app(service)) as client:
            while any(not table.version for table in service.status().tables):
                time.sleep(0.1)
            visit(client, "/", "target 300 ms")
            visit(client, "/?sort=rows&desc=true&q=99", "target 300 ms")
            visit(client, "/index.json", "target 300 ms")
            visit(client, "/tables/large", "target 1 s")
            low, high = (SCHEMA.codec.encode_key((at,)).hex() for at in (60_000 * 10**6, 61_000 * 10**6))
            visit(client, f"/tables/large?from={low}&to={high}", "target 1 s")
            visit(client, "/tables/large.json", "target 1 s")


if __name__ == "__main__":
    main()
