"""How long a commit takes to be visible in the Iceberg catalog of a service.

    python -m benchmarks.published_visible [--commits 200] [--rows 1000000] [--pause 0.2] [--stores disk s3]

A table gets commits of 1,000 rows from this process, at random times about ``--pause`` seconds apart, while a service
in a process of its own follows it (``lakebed serve``, maintenance included). The catalog is asked for the table all the
time, as an engine would; a commit is visible once the metadata names its version or a later one. Seconds from the end
of the commit: the median, 99 of 100, the longest. The store ``s3`` is moto's server in a thread of this process.

Aim: at most 1 second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Self

import numpy as np
from pyiceberg.catalog import load_catalog

import lakebed
from benchmarks.published import SCHEMA, batch
from benchmarks.results import record
from lakebed.server.security import stored
from tests.s3.conftest import served as served_store
from tests.service.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

COMMIT_ROWS = 1_000
ASK_S = 0.02
"""Between two requests to the catalog: the error of each figure."""

WAIT_S = 120.0


class Visible:
    """Asks a catalog for the version of the table ``t``, and keeps when each was seen first; ends with its block."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._seen: list[tuple[int, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def at(self, version: int) -> float:
        """Return when the version, or a later one, was seen first; waits for it."""
        limit_s = time.monotonic() + WAIT_S
        while time.monotonic() < limit_s and self._thread.is_alive():
            for seen, at_s in list(self._seen):
                if seen >= version:
                    return at_s
            time.sleep(ASK_S)
        raise SystemExit(f"version {version} was not visible within {WAIT_S:.0f} s")

    def _ask(self) -> None:
        while not self._ended.wait(ASK_S):
            snapshot = self._catalog.load_table("default.t").current_snapshot()
            assert snapshot is not None
            assert snapshot.summary is not None
            version = int(str(snapshot.summary["lakebed.version"]))
            if not self._seen or version != self._seen[-1][0]:
                self._seen.append((version, time.monotonic()))


@contextlib.contextmanager
def store_url(kind: str, folder: str) -> Iterator[str]:
    """The URL of a new instance on a local disk or an S3 server, which the environment then names."""
    if kind == "disk":
        yield f"{folder}/lake"
        return
    with served_store() as store:
        names = {"endpoint_url": "AWS_ENDPOINT_URL"}
        os.environ |= {names.get(name, name.upper()): value for name, value in store.storage_options.items()}
        yield f"{store.new_bucket()}/lake"


def lags_s(url: str, rows: int, commits: int, pause_s: float) -> list[float]:
    """Return for each commit the seconds from its end until it is visible."""
    lake = lakebed.create(url)
    table = lake.create_table("t", SCHEMA, merge=lakebed.Latest(), settings={"publish": "iceberg"})
    table.write(batch(2 * np.arange(rows), 0))
    chance, made = random.Random(1), []
    _, token = stored.create_token(lake.storage, "reader", ["read"])
    with served(lake.url) as service:
        catalog = load_catalog("lake", type="rest", uri=f"{service.url}/iceberg", token=token)
        limit_s = time.monotonic() + WAIT_S
        while not catalog.table_exists("default.t") and time.monotonic() < limit_s:
            time.sleep(ASK_S)
        with Visible(catalog) as visible:
            for seed in range(commits):
                keys = np.unique(np.random.default_rng(seed).integers(0, 2 * rows, COMMIT_ROWS))
                version = table.write(batch(keys, seed))
                made.append((version, time.monotonic()))
                time.sleep(chance.uniform(0, 2 * pause_s))
            return [max(0.0, visible.at(version) - at_s) for version, at_s in made]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--stores", nargs="+", choices=("disk", "s3"), default=("disk", "s3"))
    args = parser.parse_args()
    print(f"{args.rows:,} rows, {args.commits} commits of {COMMIT_ROWS:,}, one every {args.pause} s")
    print(f"{'store':6} {'median':>10} {'99 of 100':>10} {'longest':>10}")
    for kind in args.stores:
        with tempfile.TemporaryDirectory() as folder, store_url(kind, folder) as url:
            found = sorted(lags_s(url, args.rows, args.commits, args.pause))
        late = found[min(len(found) - 1, int(0.99 * len(found)))]
        print(f"{kind:6} {statistics.median(found):8.2f} s {late:8.2f} s {found[-1]:8.2f} s", flush=True)
        record(f"a commit is visible in the catalog, {kind}", "s", found)


if __name__ == "__main__":
    main()
