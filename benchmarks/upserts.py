"""Upserts and deletes, against other systems that support them: the same rows, in turns in the same minutes.

    python -m benchmarks.upserts [--rows 5000000] [--keys 50000] [--turns 3] [--peers ducklake,lancedb,delta-rs]

A table of ``--rows`` rows gets ``--keys`` rows in one call, half of them with new keys; then again, with other keys.
The table is on local disk, has the default settings of its system, and was compacted before. Each system runs in a
process of its own, in the environment of :mod:`benchmarks.lookup_under_ingest.environments`. The number of rows is
checked after every upsert, and the new value of one key.

For Lakebed also the delete of 10,000 keys by a predicate on the first row key field, and by the keys themselves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.lookup_under_ingest.environments import default_cache, python_of
from benchmarks.lookup_under_ingest.peers import Peer, peer_of
from benchmarks.lookup_under_ingest.rows import COLUMNS, key_of, rows_between, rows_of, ts_of
from benchmarks.results import record

PEERS = ("ducklake", "lancedb", "delta-rs")
BATCH_ROWS = 500_000
GROUPS, GROUP_KEYS = 20, 10_000
SECONDS_MAX, RATIO_MIN, DELETE_SECONDS_MAX = 0.15, 4.0, 1.0


class Lakebed(Peer):
    packages = ("lakebed",)

    def create(self) -> None:
        import lakebed

        schema = lakebed.Schema(
            {"key": "string"}, values={name: COLUMNS.field(name).type for name in COLUMNS.names[1:]}
        )
        self.table = lakebed.create(self.folder / "lake").create_table("t", schema, merge=lakebed.Latest())

    def open(self) -> None:
        import lakebed

        self.table = lakebed.open(str(self.folder / "lake")).table("t")

    def append(self, rows: pa.Table) -> None:
        self.table.write(rows)

    upsert = append

    def get(self, key: str) -> pa.Table:
        return self.table.get(key)

    def range(self, min: str, max: str) -> pa.Table:
        raise NotImplementedError

    def maintain(self) -> None:
        import lakebed
        from lakebed import Pipeline

        with Pipeline(lakebed.open(str(self.folder / "lake")), launcher="in-process") as pipeline:
            pipeline.compact("t", strategy="full")

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.table.scan(columns=["key"]))


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def upserts(peer: Peer, rows: int, keys: int, turns: int) -> list[float]:
    """Return the seconds of each upsert; the first one is a warm-up, and excluded."""
    peer.create()
    for begin in range(0, rows, BATCH_ROWS):
        peer.append(rows_between(begin, min(begin + BATCH_ROWS, rows)))
    peer.maintain()
    peer.open()
    random, seconds, total = np.random.default_rng(3), [], rows
    for turn in range(turns + 1):
        old = random.choice(rows, keys // 2, replace=False)
        given = rows_of(random.permutation(np.append(old, np.arange(total, total + keys - len(old)))), version=turn + 1)
        seconds.append(timed(lambda given=given: peer.upsert(given)))
        total += keys - len(old)
        peer.refresh()
        assert peer.count() == total, (peer.count(), total)
        (row,) = peer.get(key_of(int(old[0]))).to_pylist()
        assert row["ts"] == ts_of(int(old[0]), turn + 1)
    return seconds[1:]


def deletes(folder: Path) -> dict[str, list[float]]:
    """Return the seconds to delete 10,000 of 200,000 keys, by the first field of the row key, and by the keys."""
    import lakebed

    schema = lakebed.Schema({"group": "int64", "n": "int64"}, values={"v": "int64"})
    found: dict[str, list[float]] = {"where": [], "keys": []}
    for how, seconds in found.items():
        table = lakebed.create(folder / how).create_table("t", schema, merge=lakebed.Latest())
        count = GROUPS * GROUP_KEYS
        numbers = np.arange(count)
        table.write(pa.table({"group": numbers // GROUP_KEYS, "n": numbers, "v": numbers}))
        for group in range(4):
            keys = pa.table({"group": [group] * GROUP_KEYS, "n": numbers[group * GROUP_KEYS :][:GROUP_KEYS]})
            given: dict[str, Any] = {"where": f'"group" = {group}'} if how == "where" else {"keys": keys}
            seconds.append(timed(lambda given=given, table=table: table.delete(**given)))
            assert sum(batch.num_rows for batch in table.scan()) == count - (group + 1) * GROUP_KEYS
    return found


def child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one system in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        command = [python_of(name, default_cache()), "-m", "benchmarks.upserts", "--child", name, "--folder", folder]
        command += ["--rows", options.rows, "--keys", options.keys, "--turns", options.turns]
        made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"{name} failed:\n{made.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        peer = Lakebed(options.folder) if options.child == "lakebed" else peer_of(options.child, options.folder)
        result: dict[str, Any] = {"upsert": upserts(peer, options.rows, options.keys, options.turns)}
        if options.child == "lakebed":
            result["delete"] = deletes(options.folder)
        print(json.dumps(result))
        return
    found = {name: child(name, options) for name in ("lakebed", *filter(None, options.peers.split(",")))}
    print(f"upsert of {options.keys:,} keys, half of them new, into {options.rows:,} rows: seconds, median of turns")
    for name, result in found.items():
        print(f"  {name:10} {median(result['upsert']):8.3f}  ({', '.join(f'{s:.3f}' for s in result['upsert'])})")
    ours = median(found["lakebed"]["upsert"])
    met = ours <= SECONDS_MAX
    if peers := [median(result["upsert"]) for name, result in found.items() if name != "lakebed"]:
        print(f"  fastest peer / lakebed: {min(peers) / ours:.1f} (at least {RATIO_MIN})")
        for name in found.keys() - {"lakebed"}:
            what = f"upsert of {options.keys:,} keys into {options.rows:,} rows"
            mine, theirs = found["lakebed"]["upsert"], found[name]["upsert"]
            record(what, "s", mine, peer=name, theirs=theirs, aim=RATIO_MIN)
        met = met and min(peers) / ours >= RATIO_MIN
    for how, seconds in found["lakebed"]["delete"].items():
        print(f"delete of {GROUP_KEYS:,} keys by {how}: {median(seconds):.3f} s (at most {DELETE_SECONDS_MAX})")
        met = met and median(seconds) <= DELETE_SECONDS_MAX
    sys.exit(0 if met else "a target was missed")


if __name__ == "__main__":
    main()
