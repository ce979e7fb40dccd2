"""A writer or a reader of the benchmark: ``python -m benchmarks.billion.worker ROLE NUMBER FOLDER``.

A writer notes in its ledger, synced to disk, the batch that it is about to upsert, upserts it under a commit id, and
notes that it is done. It may die at any moment: the next one with its number repeats what was begun and not noted as
done, which adds nothing twice. A reader asks for rows at random moments, on average so many a second. Nine of ten gets
are of a random row, and are timed; each tenth is of a row of a batch that a ledger notes as done, whose version must be
that of the batch or a later one. Every row that it gets must be whole.

Both count the calls to the store. They end when the file ``stop`` is in the folder.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.billion.rows import Workload, keys_of, texts_of
from lakebed.errors import ContentionError, RejectedError, StorageError, UnknownOutcomeError
from lakebed.storage import connect
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage

AGAIN = (ContentionError, RejectedError, StorageError, UnknownOutcomeError)
"""After these the same call is repeated, with the same commit id."""

FRESH = 10
"""One get in so many is of a row that was just upserted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all processes of a run share, in ``plan.json`` of its folder."""

    url: str
    options: dict[str, str]
    workload: Workload
    interval_s: float
    readers: int
    gets_s: float

    def save(self, folder: Path) -> None:
        """Write the plan, replacing the one before."""
        (folder / "plan.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Return the plan of a folder."""
        found = json.loads((folder / "plan.json").read_text())
        return cls(**{**found, "workload": Workload(**found["workload"])})

    def table(self) -> tuple[Table, Counted]:
        """Open the table through a store that counts."""
        storage = Counted(connect(self.url, self.options))
        return Instance(storage, json.loads(storage.get("instance.json"))).table("t"), storage


class Counted(CountingStorage):
    """A store that counts calls, and does not keep their names, which would fill the memory in some hours."""

    def _count(self, operation: str, name: str) -> None:
        with self._lock:
            self.totals[operation] += 1

    def __init__(self, inner: object) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.totals: Counter[str] = Counter()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The file of a writer: ``begin BATCH`` and ``done BATCH SECONDS TRIES`` a line."""

    path: Path

    @classmethod
    def of(cls, folder: Path, writer: int) -> Ledger:
        """Return that of a writer."""
        return cls(folder / f"writer-{writer}.ledger")

    def note(self, *words: object) -> None:
        """Write a line that is on disk before anything follows."""
        with self.path.open("a") as lines:
            lines.write(" ".join(map(str, words)) + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def batches(self) -> tuple[int, int]:
        """Return how many batches were begun, and how many of them are done. They are in order."""
        begun = done = 0
        for words in self._lines():
            begun += words[0] == "begin"
            done += words[0] == "done"
        return begun, done

    def seconds(self) -> list[float]:
        """Return how long each batch that is done took, with all its tries."""
        return [float(words[2]) for words in self._lines() if words[0] == "done"]

    def _lines(self) -> Iterator[list[str]]:
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                yield line.split()


def write(number: int, folder: Path) -> None:
    """Upsert a batch in each interval, until the file `stop` is there; a batch that was begun is always ended."""
    plan, ledger = Plan.load(folder), Ledger.of(folder, number)
    table, storage = plan.table()
    begun, done = ledger.batches()
    # The writers are spread over the interval.
    next_s = time.monotonic() + plan.interval_s * number / plan.workload.writers
    while done < begun or not (folder / "stop").exists():
        if done == begun:
            if (wait_s := next_s - time.monotonic()) > 0:
                time.sleep(min(wait_s, 0.2))
                continue
            next_s = max(next_s + plan.interval_s, time.monotonic())
            ledger.note("begin", begun)
            begun += 1
        rows, began_s, tries = plan.workload.batch(number, done), time.monotonic(), 1
        while not _upserted(table, rows, f"writer-{number}-{done}"):
            tries += 1
            time.sleep(0.1)
        ledger.note("done", done, f"{time.monotonic() - began_s:.4f}", tries)
        done += 1
        _save(folder, f"writer-{number}", storage)


def _upserted(table: Table, rows: pa.Table, commit_id: str) -> bool:
    try:
        table.write(rows, commit_id=commit_id)
    except AGAIN as error:
        print(f"{commit_id}: {error!r}", file=sys.stderr, flush=True)
        return False
    return True


def read(number: int, folder: Path) -> None:
    """Get rows at random moments; append the time and milliseconds of each timed get to a file, about once a second."""
    plan, chance = Plan.load(folder), random.Random(f"{number} {time.time_ns()}")
    table, storage = plan.table()
    lines: list[str] = []
    flushed_s = time.monotonic()
    with (folder / f"reader-{number}.gets").open("a") as out:
        while not (folder / "stop").exists():
            time.sleep(chance.expovariate(plan.gets_s))
            if chance.randrange(FRESH):
                row, least = chance.randrange(plan.workload.rows), 0
            else:
                row, least = acknowledged(plan.workload, folder, chance)
            began_s = time.perf_counter()
            found = table.get(int(keys_of(np.array([row]))[0]))
            took_ms = (time.perf_counter() - began_s) * 1e3
            check(row, least, found)
            if not least:
                lines.append(f"{time.time():.2f} {took_ms:.3f}\n")
            if time.monotonic() - flushed_s > 1:
                out.write("".join(lines))
                out.flush()
                lines, flushed_s = [], time.monotonic()
                _save(folder, f"reader-{number}", storage)


def acknowledged(workload: Workload, folder: Path, chance: random.Random) -> tuple[int, int]:
    """Return a row of the last batch that a random writer notes as done, and its version; (0, 0) if there is none."""
    writer = chance.randrange(workload.writers)
    _, done = Ledger.of(folder, writer).batches()
    return (int(chance.choice(workload.numbers(writer, done - 1))), done) if done else (0, 0)


def check(row: int, least: int, found: pa.Table) -> None:
    """Raise AssertionError unless the row is there once, whole, and at least in that version."""
    key = keys_of(np.array([row]))
    assert found.num_rows == 1, f"row {row} (key {key[0]}) is there {found.num_rows} times"
    version = found["version"].to_numpy()
    assert version[0] >= least, f"row {row} (key {key[0]}) has version {version[0]}; {least} was acknowledged"
    text = texts_of(key, version.astype(np.int64))[0].as_py()
    assert found["text"][0].as_py() == text, f"row {row} (key {key[0]}): {found.to_pylist()}, not {text}"


def _save(folder: Path, name: str, storage: Counted) -> None:
    """Store the calls of this process so far, in a file of its own."""
    path = folder / "calls" / f"{name}-{os.getpid()}.json"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(storage.totals))
    part.replace(path)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
