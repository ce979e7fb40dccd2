"""Point reads and short scans, against DuckDB over the same Parquet files: of a compacted table, and of an uncompacted
one after many commits of random keys.

    python -m benchmarks.lookups [--rows 20000000] [--gets 2000] [--commits 100] [--commit-rows 50000]

All reads use the public API: ``Table.get`` and ``Table.scan``, each with its probe for newer entries. Warm: the reader
is open, its page indexes are decoded, the files are in the page cache. Lakebed keeps the pages that short reads decode,
so a few hundred scans of the smaller table leave all of it in memory; the lines *new pages* drop these pages before
each query, and so does the comparison with SlateDB. Keys are drawn at random from the rows; absent keys differ from
those in the last digit. DuckDB keeps one connection with a snapshot over the files and a prepared statement. A cold
read is by a new process that opens the instance; its imports are timed separately. With ``--slatedb`` (it needs ``pip
install slatedb``) SlateDB reads the same keys and ranges, in a database with the same rows in as many commits. Then
come gets of several threads at once, gets while another process commits, and large reads: 10,000 keys and all rows.
DataFusion does the same over the same files, by a hash join and without any order; they take turns, and the median of
each is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.lookup_under_ingest.peers import peer_of
from benchmarks.results import record
from benchmarks.writes import batches
from lakebed import KeyRange
from lakebed.files.parquet.read_cache import READ_CACHE, CacheKind

WARM_UP = 300
SCAN_ROWS = 1_000
NEW_PAGES = ", new pages"
"""The suffix of the names of queries before which the decoded pages are dropped."""

Question = Callable[[str], int]


def table_of(folder: str, rows: int, page_rows: int | None) -> lakebed.Table:
    """Return a table of one partition with one run, as after a compaction."""
    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    settings = {} if page_rows is None else {"page_rows": page_rows}
    table = lakebed.create(f"{folder}/lake").create_table("t", schema, settings=settings)
    first = next(batches(1))
    table.write(pa.RecordBatchReader.from_batches(first.schema, batches(rows)))
    return table


def overlapping(folder: str, commits: int, rows: int) -> lakebed.Table:
    """Return a table of one partition with a file of each commit, all over the whole key space."""
    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    table = lakebed.create(f"{folder}/lake").create_table("t", schema)
    left = pa.Table.from_batches(batches(commits * rows))
    for commit in range(commits):
        table.write(left.slice(commit * rows, rows))
    return table


def sample_keys(table: lakebed.Table, rows: int, count: int) -> list[str]:
    """Return existing keys, in random order."""
    random = np.random.default_rng(7)
    wanted = np.sort(random.choice(rows, count, replace=False))
    keys: list[str] = []
    passed = 0
    for batch in table.scan(columns=["key"]):
        inside = wanted[(wanted >= passed) & (wanted < passed + batch.num_rows)] - passed
        keys += batch.column(0).take(pa.array(inside)).to_pylist()
        passed += batch.num_rows
    random.shuffle(keys)
    return keys


def halves(keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the keys in two parts."""
    return keys[: len(keys) // 2], keys[len(keys) // 2 :]


def drop_pages() -> None:
    """Drop only the decoded pages from the read cache."""
    for key in [key for key in READ_CACHE._entries if key[0] is CacheKind.ROWS]:
        READ_CACHE._drop(key)


def timed(name: str, question: Question, keys: Sequence[str], expected: int | None) -> np.ndarray:
    """Return the milliseconds of each query except the first few."""
    times = []
    for key in keys:
        if name.endswith(NEW_PAGES):
            drop_pages()
        begin = time.perf_counter()
        found = question(key)
        times.append((time.perf_counter() - begin) * 1e3)
        if expected is not None and found != expected:
            raise AssertionError(f"{found} rows for {key}, not {expected}")
    return np.array(times[min(WARM_UP, len(times) // 2) :])


def ours(table: lakebed.Table, step: int) -> dict[str, Question]:
    def neighbours(key: str) -> int:
        return sum(b.num_rows for b in table.scan(KeyRange(key, after(key, step))))

    questions: dict[str, Question] = {
        "get": lambda key: table.get(key).num_rows,
        "get, not there": lambda key: table.get(key + "x").num_rows,
        f"scan, limit {SCAN_ROWS}": lambda key: sum(b.num_rows for b in table.scan(KeyRange(key), limit=SCAN_ROWS)),
        f"scan, range of ~{SCAN_ROWS}": neighbours,
    }
    return questions | {name + NEW_PAGES: question for name, question in questions.items()}


def duckdb(table: lakebed.Table, step: int) -> dict[str, Question]:
    import duckdb as peer

    paths = [unquote(urlsplit(url).path) for url in table.files().column("url").to_pylist()]
    connection = peer.connect()
    connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet({paths!r})")
    connection.execute("SET enable_object_cache = true")
    connection.execute("PREPARE by_key AS SELECT * FROM t WHERE key = $1 ORDER BY ts")
    connection.execute("PREPARE by_range AS SELECT * FROM t WHERE key >= $1 AND key < $2 ORDER BY key, ts")
    connection.execute(f"PREPARE by_limit AS SELECT * FROM t WHERE key >= $1 ORDER BY key, ts LIMIT {SCAN_ROWS}")

    def ask(statement: str, *arguments: str) -> int:
        values = ", ".join(f"'{argument}'" for argument in arguments)
        found: Any = connection.execute(f"EXECUTE {statement}({values})").to_arrow_table()
        return int(found.num_rows)

    return {
        "get": lambda key: ask("by_key", key),
        "get, not there": lambda key: ask("by_key", key + "x"),
        f"scan, limit {SCAN_ROWS}": lambda key: ask("by_limit", key),
        f"scan, range of ~{SCAN_ROWS}": lambda key: ask("by_range", key, after(key, step)),
    }


def slatedb(table: lakebed.Table, folder: str, step: int, rows: int) -> dict[str, Question]:
    """Write the same rows as keys and values, in commits of ``step`` rows."""
    peer = peer_of("slatedb", Path(folder) / "slatedb")
    peer.create()
    left = table.scan(columns=["key", "ts", "count", "value"]).read_all()
    # The rows come in key order; commits have to overlap as those of the table do.
    left = left.take(np.random.default_rng(5).permutation(left.num_rows))
    for begin in range(0, left.num_rows, rows):
        peer.append(left.slice(begin, rows))
    return {
        "get": lambda key: peer.get(key).num_rows,
        "get, not there": lambda key: peer.get(key + "x").num_rows,
        f"scan, range of ~{SCAN_ROWS}": lambda key: peer.range(key, after(key, step)).num_rows,
    }


def after(key: str, step: int) -> str:
    """Return the key ``step`` numbers later: keys are ``user-`` and 16 hex digits, evenly spread."""
    return f"user-{int(key[5:], 16) + step:016x}"


def cold_ms(folder: str, key: str) -> tuple[float, float]:
    """Return the time in a new process to import everything for a lookup, and then to find the row."""
    code = (
        "import sys, time; begin = time.perf_counter(); import lakebed.table.instance, lakebed.read.snapshot.snapshot, "
        "lakebed.read.rows.reader\nimported = time.perf_counter(); found = "
        "lakebed.open(sys.argv[1]).table('t').get(sys.argv[2])\nassert found.num_rows == 1; print((imported - begin) "
        "* 1e3, (time.perf_counter() - imported) * 1e3)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, f"{folder}/lake", key], check=True, capture_output=True, text=True, timeout=120
    )
    imports, rest = map(float, ran.stdout.split())
    return imports, rest


def gets_a_second(table: lakebed.Table, keys: Sequence[str], threads: int) -> float:
    """Return the gets per second of several threads that share the keys. Reads cache the pages of the keys for the next
    ones.
    """
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        found = sum(rows.num_rows for rows in pool.map(table.get, keys))
    if found != len(keys):
        raise AssertionError(f"{found} rows for {len(keys)} keys")
    return len(keys) / (time.perf_counter() - begin)


WRITER = """
import itertools, sys, time
import pyarrow as pa
import lakebed
from benchmarks.writes import batches
table, rows, begin = lakebed.open(sys.argv[1]).table("t"), pa.Table.from_batches(batches(100_000)), time.monotonic()
for commit in itertools.count(1):
    table.write(rows.slice(commit % 100 * 1_000, 1_000))
    print(commit, flush=True)
    time.sleep(max(0.0, begin + commit / 5 - time.monotonic()))
"""
"""Commits a thousand rows five times a second until it is ended."""


def beside_writer(table: lakebed.Table, folder: str, keys: Sequence[str], seconds: float = 10.0) -> None:
    """Print the milliseconds of gets while another process commits, and of as many while none does.

    A get is asked for every two milliseconds, so that about one of a hundred is the first after a commit.
    """

    def gets(seconds: float) -> np.ndarray:
        times, end = [], time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            assert table.get(keys[len(times) % len(keys)]).num_rows
            times.append(1e3 * (time.perf_counter() - begin))
            time.sleep(0.002)
        return np.array(times)

    gets(1.0)
    alone = gets(seconds)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, f"{folder}/lake"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        beside = gets(seconds)
        writer.kill()
    for share in (50, 99):
        mine, theirs = np.percentile(beside, share), np.percentile(alone, share)
        print(f"{f'get, p{share} beside 5 commits a second':<34}{mine:8.2f}   alone {theirs:.2f}", flush=True)
        record(f"get, p{share}, beside 5 commits a second", "ms", mine, peer="alone", theirs=theirs)


def of_much(table: lakebed.Table, rows: int, count: int) -> None:
    """Print seconds and CPU seconds of all threads of large reads, beside DataFusion."""
    import datafusion

    keys = sample_keys(table, rows, min(count, rows))
    peer = datafusion.SessionContext()
    paths = [unquote(urlsplit(url).path) for url in table.files().column("url").to_pylist()]
    peer.register_table("t", reduce(datafusion.DataFrame.union, map(peer.read_parquet, paths)))
    peer.register_record_batches("k", [pa.table({"key": keys}).to_batches()])
    reads: dict[str, Callable[[], int]] = {
        f"get_many of {len(keys):,}": lambda: table.get_many(keys).num_rows,
        "  hash join": lambda: sum(b.num_rows for b in peer.sql("SELECT t.* FROM t JOIN k ON t.key = k.key").collect()),
        "full scan, in order": lambda: sum(b.num_rows for b in table.scan()),
        "  DataFusion, unordered": lambda: sum(b.to_pyarrow().num_rows for b in peer.table("t").execute_stream()),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in reads}
    for _ in range(5):
        for name, read in reads.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            found = read()
            times[name].append((time.perf_counter() - begin, time.process_time() - begin_cpu))
            if found != (len(keys) if "many" in name or "join" in name else rows):
                raise AssertionError(f"{name}: {found} rows")
    for name, taken in times.items():
        wall, cpu = np.median(taken, axis=0)
        print(f"{name:<26}{wall:8.2f} s, of the processor {cpu:.2f} s", flush=True)
    names = list(times)
    for ours, theirs in zip(names[::2], names[1::2], strict=True):
        mine_s, theirs_s = ([cpu for _, cpu in times[name]] for name in (ours, theirs))
        record(f"{ours}, {rows:,} rows", "CPU s", mine_s, peer="DataFusion", theirs=theirs_s)


def measure(folder: str, table: lakebed.Table, rows: int, args: argparse.Namespace) -> None:
    files = table.files()
    size = sum(files.column("size_bytes").to_pylist())
    print(f"{rows:,} rows in {files.num_rows} files, {size / 1e6:.0f} MB; milliseconds")
    keys = sample_keys(table, rows, min(args.gets + WARM_UP, rows))
    step = int(SCAN_ROWS * 2**62 / rows)
    print(f"{'':34}{'p50':>8}{'p99':>8}   {'DuckDB p50':>11}{'p99':>8}   {'ratio of p50':>12}")
    peers = duckdb(table, step)
    for name, question in ours(table, step).items():
        asked_of_peer = name.removesuffix(NEW_PAGES)
        expected = {"get": 1, "get, not there": 0}.get(asked_of_peer)
        times = timed(name, question, keys if "get" in name else keys[: args.scans], expected)
        peer = timed(asked_of_peer, peers[asked_of_peer], keys[: args.peer_gets], expected)
        p50, p99 = np.percentile(times, [50, 99])
        peer_p50, peer_p99 = np.percentile(peer, [50, 99])
        print(
            f"{name:<34}{p50:8.2f}{p99:8.2f}   {peer_p50:11.2f}{peer_p99:8.2f}   {peer_p50 / p50:11.1f}x",
            flush=True,
        )
        what = f"{name}, {rows:,} rows in {files.num_rows} files"
        record(what, "ms", p50, peer="DuckDB", theirs=peer_p50)
        record(f"{what}, p99", "ms", p99, peer="DuckDB", theirs=peer_p99)
    if args.slatedb:
        others = slatedb(table, folder, step, args.commit_rows)
        asked = ours(table, step)
        for name in (name + pages for name in others for pages in ("", NEW_PAGES)):
            question = others[name.removesuffix(NEW_PAGES)]
            few = keys if "get" in name else keys[: args.scans]
            expected = {"get": 1, "get, not there": 0}.get(name.removesuffix(NEW_PAGES))
            # In turns: each runs after the other, on a machine in the state that the other left.
            pairs = [
                (timed(name, asked[name], part, expected), timed("SlateDB", question, part, expected))
                for part in halves(few)
            ]
            mine, theirs = (np.median(np.concatenate(times)) for times in zip(*pairs, strict=True))
            print(
                f"{name:<34}{mine:8.2f}           SlateDB {theirs:6.2f}            {theirs / mine:11.1f}x", flush=True
            )
            record(f"{name}, {rows:,} rows in {files.num_rows} files", "ms", mine, peer="SlateDB", theirs=theirs)
    imports, rest = zip(*sorted(cold_ms(folder, key) for key in keys[:5]), strict=True)
    print(f"{'get, fresh process':<34}{sorted(rest)[2]:8.0f}   and {imports[2]:.0f} for imports")
    record(f"get, fresh process, {rows:,} rows in {files.num_rows} files", "ms", rest)
    gets_a_second(table, keys, 1)
    for pages in ("", NEW_PAGES):
        rates = []
        for threads in (1, 2, 8):
            if pages:
                drop_pages()
            rates.append(gets_a_second(table, keys, threads))
        one, two, many = rates
        print(
            f"{'gets a second, 1 thread' + pages:<34}{one:8.0f}   {two:.0f} of 2 threads, {two / one:.2f} times, "
            f"{many:.0f} of 8, {many / one:.2f} times",
            flush=True,
        )
        record(
            f"gets of two threads{pages}, {files.num_rows} files", "gets/s", two, peer="one thread", theirs=one, aim=1.3
        )
    of_much(table, rows, args.many)
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the compacted table; 0: leave it out")
    parser.add_argument("--gets", type=int, default=2_000)
    parser.add_argument("--peer-gets", type=int, default=200, help="the peer is asked less often")
    parser.add_argument("--scans", type=int, default=500)
    parser.add_argument("--slatedb", action="store_true", help="ask SlateDB as well")
    parser.add_argument("--many", type=int, default=10_000, help="keys that are read at once")
    parser.add_argument("--page-rows", type=int, help="instead of the default setting")
    parser.add_argument("--commits", type=int, default=100, help="into the other table; 0: leave it out")
    parser.add_argument("--commit-rows", type=int, default=50_000)
    args = parser.parse_args()
    if args.rows:
        with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
            table = table_of(folder, args.rows, args.page_rows)
            measure(folder, table, args.rows, args)
    if args.commits:
        with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
            table = overlapping(folder, args.commits, args.commit_rows)
            measure(folder, table, args.commits * args.commit_rows, args)
            beside_writer(table, folder, sample_keys(table, args.commits * args.commit_rows, args.gets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
