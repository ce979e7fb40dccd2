"""The measures of every peer, the same for all; each measure runs in a process of its own.

A measure returns its figures as a dict for JSON. Every answer is checked against the rows that the benchmark computes:
a wrong answer ends the measure, and is shown as its error.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lookup_under_ingest.peers import Peer
from benchmarks.lookup_under_ingest.rows import (
    DELETED_ROWS,
    Sizes,
    key_of,
    rows_between,
    rows_of,
    some_numbers,
    some_ranges,
    ts_of,
)

Figures = dict[str, Any]

RANGE_ROWS = 1_000
TINY_ROWS = 10
TRIES_MAX = 10
"""A writer gives up a commit after this many attempts."""

INGEST_TIMES = 4
"""The ingest may take this many times as long as another measure, since the others depend on it."""

WARM_UP = 300
CHECKPOINTS = (1, 2, 5, 10, 20, 35, 50, 75, 100, 150, 200, 500, 1_000)
"""Numbers of commits after which the curve of lookups has a point."""

CURVE_GETS = 30


class WrongAnswer(Exception):
    """The peer returned a wrong answer."""


def timed(questions: Iterable[Callable[[], object]], seconds: float) -> list[float]:
    """Return the milliseconds of each query, until the time is over."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    for question in questions:
        begin = time.perf_counter()
        if begin > end and times:
            break
        question()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def p50_p99(times: list[float]) -> Figures:
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "asked": len(times)}


def look_up(peer: Peer, number: int, version: int = 0) -> None:
    """Look up the row of that number, and check the result."""
    found = peer.get(key_of(number))
    if found.column("ts").to_pylist() != [ts_of(number, version)]:
        raise WrongAnswer(f"{found.num_rows} rows for {key_of(number)}, ts {found.column('ts').to_pylist()[:3]}")


def look_for_nothing(peer: Peer, number: int) -> None:
    """Look up an absent key."""
    if found := peer.get(key_of(number)).num_rows:
        raise WrongAnswer(f"{found} rows for {key_of(number)}, which is not there")


def look_up_range(peer: Peer, asked: tuple[str, str, int]) -> None:
    """Read the rows of a range, and check their number."""
    min, max, rows = asked
    if (found := peer.range(min, max).num_rows) != rows:
        raise WrongAnswer(f"{found} rows of [{min}, {max}), not {rows}")


def warm(questions: list[Callable[[], object]], sizes: Sizes) -> Figures:
    """Return the times of queries after some warm-up queries, which take at most a third of the time."""
    counted = max(0, len(questions) - sizes.gets)
    timed(questions[:counted], sizes.seconds / 9)
    return p50_p99(timed(questions[counted:], sizes.seconds * 2 / 9))


def ingest(peer: Peer, sizes: Sizes) -> Figures:
    """Commit random keys, with lookups between commits: lookups depend on how many files overlap."""
    peer.create()
    taken: list[float] = []
    curve = []
    for commit in range(1, sizes.commits + 1):
        rows = rows_between((commit - 1) * sizes.rows, commit * sizes.rows)
        taken += timed([lambda rows=rows: peer.append(rows)], 0)
        if commit in CHECKPOINTS or commit == sizes.commits:
            peer.refresh()
            numbers = some_numbers(commit * sizes.rows, CURVE_GETS + 10)
            questions = [lambda n=n: look_up(peer, n) for n in numbers]
            timed(questions[:10], sizes.seconds / 60)
            curve.append({"commits": commit, **p50_p99(timed(questions[10:], sizes.seconds / 30))})
        if sum(taken) > sizes.seconds * INGEST_TIMES * 1e3:
            break
    return {
        "commits": len(taken),
        "seconds": sum(taken) / 1e3,
        "commit_p50_ms": float(np.median(taken)),
        "curve": curve,
        **on_disk(peer.folder),
        "peak_mib": peak_mib(),
    }


def lookups(peer: Peer, sizes: Sizes) -> Figures:
    """Warm lookups: one process, the table held open, after all commits and before any maintenance."""
    peer.open()
    total, count = sizes.commits * sizes.rows, sizes.gets + WARM_UP
    ranges = some_ranges(total, RANGE_ROWS, count)
    return {
        "get": warm([lambda n=n: look_up(peer, n) for n in some_numbers(total, count)], sizes),
        "absent": warm([lambda n=n: look_for_nothing(peer, total + n) for n in some_numbers(10**9, count)], sizes),
        "range": warm([lambda r=r: look_up_range(peer, r) for r in ranges], sizes),
        "peak_mib": peak_mib(),
    }


def upsert(peer: Peer, sizes: Sizes) -> Figures:
    """Upsert as many rows in one commit as the other commits have, half of them existing."""
    peer.open()
    total = sizes.commits * sizes.rows
    old = np.linspace(0, total - 1, sizes.rows // 2).astype(np.int64)
    new = np.arange(total, total + sizes.rows - len(old))
    rows = rows_of(np.concatenate([old, new]), version=1)
    before_mib = peak_mib()
    taken = timed([lambda: peer.upsert(rows)], 0)
    peer.refresh()
    for number in (int(old[0]), int(old[-1]), int(new[0]), int(new[-1])):
        look_up(peer, number, version=1)
    look_up(peer, int(old[0]) + 1 if sizes.rows > 2 else int(new[0]), version=int(sizes.rows <= 2))
    return {"seconds": taken[0] / 1e3, "peak_mib": peak_mib(), "peak_before_mib": before_mib}


def deleted_range(total: int) -> tuple[str, str]:
    """Return the range of keys to delete: the greatest ones."""
    return f"user-{2**64 - DELETED_ROWS * 2**64 // max(total, DELETED_ROWS + 1):016x}", "user-g"


def delete(peer: Peer, sizes: Sizes) -> Figures:
    """Delete all rows of a range of keys in one commit, by a predicate on the key."""
    peer.open()
    total = sizes.commits * sizes.rows
    min, max = deleted_range(total)
    there = peer.range(min, max).num_rows
    taken = timed([lambda: peer.delete(min, max)], 0)
    peer.refresh()
    left = peer.range(min, max).num_rows
    if left or not there:
        raise WrongAnswer(f"{left} of {there} rows are there after they were deleted")
    return {"seconds": taken[0] / 1e3, "rows": there, "peak_mib": peak_mib()}


def maintain(peer: Peer, sizes: Sizes) -> Figures:
    """Run the peer's maintenance that makes lookups fast again, and lookups after it.

    The upsert and the delete, if the peer has them, came before.
    """
    peer.open()
    taken = timed([peer.maintain], 0)
    peer.close()
    peer.open()
    # The rows that the upsert left unchanged: it took every n-th row, from the first on.
    total = sizes.commits * sizes.rows
    taken_over = set(np.linspace(0, total - 1, sizes.rows // 2).astype(np.int64).tolist())
    first_deleted, _ = deleted_range(total)
    numbers = some_numbers(total, sizes.gets + WARM_UP)
    numbers = [n for n in numbers if n not in taken_over and key_of(n) < first_deleted]
    after = warm([lambda n=n: look_up(peer, n) for n in numbers], sizes)
    return {"seconds": taken[0] / 1e3, "get": after, **on_disk(peer.folder), "peak_mib": peak_mib()}


def tiny(peer: Peer, sizes: Sizes) -> Figures:
    """Commit ten rows many times, one commit after the other, by one writer."""
    peer.create()
    batches = (rows_between(n * TINY_ROWS, (n + 1) * TINY_ROWS) for n in range(sizes.tiny))
    taken = timed((lambda rows=rows: peer.append(rows) for rows in batches), sizes.seconds)
    ends = max(1, min(100, len(taken) // 10))
    return {
        "commits": len(taken),
        "seconds": sum(taken) / 1e3,
        "first_ms": float(np.mean(taken[:ends])),
        "last_ms": float(np.mean(taken[-ends:])),
        # Means of fifty consecutive ones, for the plot.
        "means_ms": [float(np.mean(taken[at : at + 50])) for at in range(0, len(taken), 50)],
        **on_disk(peer.folder),
    }


def writers(peer: Peer, sizes: Sizes) -> Figures:
    """Commit from several processes to one table at once, ten rows per commit; then count the rows."""
    peer.create_for_many()
    peer.close()
    start = [sys.executable, "-m", "benchmarks.lookup_under_ingest.worker", sys.argv[1], "writer", str(peer.folder)]
    outs = [peer.folder / f"writer-{number}.json" for number in range(sizes.writers)]
    offset = sizes.writer_commits * TINY_ROWS
    ran = [
        subprocess.Popen([*start, str(out), json.dumps({**asdict(sizes), "first": number * offset})])
        for number, out in enumerate(outs)
    ]
    while sum(p.poll() is None for p in ran) > sum(out.with_suffix(".ready").exists() for out in outs):
        time.sleep(0.01)
    begin = time.time()
    (peer.folder / "go").touch()
    for process in ran:
        process.wait()
    reports = [json.loads(out.read_text()) for out in outs if out.exists()]
    wrote = [figures for figures in reports if "error" not in figures]
    end = max((figures["end"] for figures in wrote), default=begin)
    errors = Counter(error for figures in wrote for error in figures["errors"])
    errors.update(figures["error"] for figures in reports if "error" in figures)
    peer.open()
    committed = sum(figures["committed"] for figures in wrote)
    return {
        "asked": sizes.writers * sizes.writer_commits,
        "committed": committed,
        "failed": sizes.writers * sizes.writer_commits - committed,
        "retries": sum(figures["retries"] for figures in wrote),
        "seconds": end - begin,
        "errors": dict(errors.most_common(3)),
        "rows_acknowledged": committed * TINY_ROWS,
        "rows_there": peer.count(),
    }


def writer(peer: Peer, sizes: Sizes, first: int, out: Path) -> Figures:
    """Run one of the writers: a commit that raises is retried with the table opened again, as by an application."""
    peer.open()
    out.with_suffix(".ready").touch()
    while not (out.parent / "go").exists():
        time.sleep(0.001)
    committed = retries = 0
    errors: list[str] = []
    over = time.time() + sizes.seconds
    for commit in range(sizes.writer_commits):
        rows = rows_between(first + commit * TINY_ROWS, first + (commit + 1) * TINY_ROWS)
        for attempt in range(TRIES_MAX):
            if time.time() > over:
                break
            try:
                if attempt:
                    peer.open()
                peer.append(rows)
            except Exception as error:  # noqa: BLE001 - whatever a peer raises is a failure to be counted
                errors.append(said(error))
                retries += attempt + 1 < TRIES_MAX
            else:
                committed += 1
                break
    return {"committed": committed, "retries": retries, "errors": errors, "end": time.time()}


def said(error: BaseException) -> str:
    """Return an error on one line, without paths, short enough for the table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["(no message)"]
    return f"{type(error).__name__}: {lines[0][:160]}"


def on_disk(folder: Path) -> Figures:
    """Return bytes and files of everything below the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {"size_bytes": sum(path.stat().st_size for path in files), "files": len(files)}


def peak_mib() -> float:
    """Return the peak memory of this process."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


MEASURES: dict[str, Callable[[Peer, Sizes], Figures]] = {
    measure.__name__: measure for measure in (ingest, lookups, upsert, delete, maintain, tiny, writers)
}
