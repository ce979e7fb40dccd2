"""Processes that write and maintain a table until they are killed, and an external ledger of the answers that they got.

``python -m tests.adversarial.torture ROLE NAME CONFIG``: a writer records in its ledger the rows that it is about to
add, adds them under that commit id, and records the answer. After a kill it repeats every write without an answer. So
each started id must be in the table exactly once, whenever its process died. A maintainer compacts, splits and collects
garbage.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed import Schema
from lakebed.errors import ContentionError, Error, RejectedError, StorageError, UnknownOutcomeError
from lakebed.table.table import Table
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.upkeep.splitting.run import split
from tests.orphans import delete_orphans

SCHEMA = Schema({"k": "int64"}, values={"id": "string"})
SETTINGS = {
    "history_s": 0,
    "orphan_age_s": 5,
    "log_s": 5,
    "split_rows": 400,
    "compaction_batch_runs": 4,
}
ROWS_MAX = 60
AGAIN = (ContentionError, RejectedError, StorageError, UnknownOutcomeError)
"""Errors after lost races, garbage collection of orphans, or failures of the store: the same call is repeated."""

SILENT_S = 15.0
"""A write that is retried for longer reports its errors this often."""

SETTLE_S = 240
SLOWEST_START_S = 3.0

PAUSE_S = 1.5 * SETTINGS["orphan_age_s"]
"""How long a worker stands still: longer than the table keeps orphans, entries and files without a reference."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a worker: the location of the instance, and of its ledgers."""

    url: str
    folder: str
    options: dict[str, str] = field(default_factory=dict)
    log_url: str | None = None
    commit_via: str | None = None

    @property
    def stop(self) -> Path:
        """The file that tells workers to stop."""
        return Path(self.folder, "stop")

    def ledger(self, name: str) -> Path:
        return Path(self.folder, f"{name}.ledger")

    def table(self) -> Table:
        """Open the table as a new process; retry while the store fails."""
        while True:
            try:
                lake = lakebed.open(
                    self.url, storage_options=self.options, log_url=self.log_url, commit_via=self.commit_via
                )
                return lake.table("t")
            except StorageError:
                time.sleep(0.05)


def rows_of(commit_id: str) -> pa.Table:
    """Return the rows of an id, always the same: some over all keys, some of a few hot ones."""
    chance = random.Random(commit_id)
    count = chance.randint(1, ROWS_MAX)
    keys = [chance.choice((chance.randrange(10**6), chance.randrange(10))) for _ in range(count)]
    return pa.table({"k": pa.array(keys, pa.int64()), "id": [commit_id] * count})


def note(ledger: Path, *words: object) -> None:
    """Write a line, synced to disk before anything follows."""
    with ledger.open("a") as lines:
        lines.write(" ".join(map(str, words)) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def begun_and_done(ledger: Path) -> tuple[list[str], set[str]]:
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return [words[1] for words in lines if words[0] == "begin"], {words[1] for words in lines if words[0] == "done"}


def write(name: str, config: Config) -> None:
    ledger, table = config.ledger(name), config.table()
    begun, done = begun_and_done(ledger)
    for commit_id in begun:
        if commit_id not in done:
            add(table, ledger, commit_id)
    count = len(begun)
    while not config.stop.exists():
        commit_id = f"{name}-{count}"
        note(ledger, "begin", commit_id)
        add(table, ledger, commit_id)
        count += 1


def add(table: Table, ledger: Path, commit_id: str) -> None:
    silent_until_s = time.monotonic() + SILENT_S
    for tries in itertools.count(1):
        try:
            version = table.write(rows_of(commit_id), commit_id=commit_id)
        except AGAIN as error:
            if time.monotonic() >= silent_until_s:
                silent_until_s = time.monotonic() + SILENT_S
                print(f"{commit_id}: after {tries:,} tries: {error}", file=sys.stderr, flush=True)
            time.sleep(0.02)
        else:
            note(ledger, "done", commit_id, version)
            return


def what_it_does(pid: int) -> str:
    """Return the kernel stacks of the threads of a process that does not end. Its own stacks go to its stderr."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
    time.sleep(2)
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with suppress(OSError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(f"thread {task.name}: {state} in {(task / 'wchan').read_text() or '?'}")
    return "; ".join(lines)


def maintain(name: str, config: Config) -> None:
    table, chance = config.table(), random.Random(f"{name} {time.time_ns()}")
    steps = [merge, split, collect_garbage, lambda of: delete_orphans(of, force=True)]
    while not config.stop.exists():
        try:
            chance.choice(steps)(table)
        except AGAIN:
            time.sleep(0.02)


def merge(table: Table, strategy: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as scratch:

        def execute(tasks):
            return [attempt(task) for task in tasks]

        def attempt(task):
            try:
                return run_merge_task(task, table.storage, Path(scratch))
            except Error as error:
                return error

        compact(table, prepare(table, strategy), execute, cores=1)


ROLES = {"write": write, "maintain": maintain}


class Torture:
    """Workers that are killed one after another and started again."""

    def __init__(self, config: Config, seed: int, writers: int = 2) -> None:
        self.config, self.chance = config, random.Random(seed)
        names = [("write", f"w{n}") for n in range(writers)] + [("maintain", "m0")]
        self.running = {name: (role, self.start(role, name)) for role, name in names}
        self.kills = 0

    def start(self, role: str, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.adversarial.torture", role, name, json.dumps(asdict(self.config))]
        return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        """Kill a random worker after a while; a worker that died by itself is a fault."""
        time.sleep(self.chance.uniform(0.1, SLOWEST_START_S))
        self.check_alive()
        name = self.chance.choice(sorted(self.running))
        role, victim = self.running[name]
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        self.running[name] = role, self.start(role, name)
        self.kills += 1

    def pause(self) -> None:
        """Stop a random worker until files that nothing refers to, and entries, may be deleted."""
        _, victim = self.running[self.chance.choice(sorted(self.running))]
        victim.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        victim.send_signal(signal.SIGCONT)

    def check_alive(self) -> None:
        for name, (_, worker) in self.running.items():
            if worker.poll() is not None:
                raise AssertionError(f"{name} ended by itself: {worker.communicate()[1].decode()[-3000:]}")

    def end(self) -> None:
        """Let all workers stop by themselves."""
        self.config.stop.touch()
        for name, (_, worker) in self.running.items():
            said = worker.communicate(timeout=SETTLE_S)[1].decode()
            assert worker.returncode == 0, f"{name}: {said[-3000:]}"

    def close(self) -> None:
        for _, worker in self.running.values():
            worker.kill()
            worker.communicate()


def tortured(config: Config, *, kills: int, seed: int, pauses: int = 0) -> int:
    """Kill and stop workers this often, then compare the table with the ledgers; return the number of commits."""
    lake = lakebed.create(config.url, storage_options=config.options, log_url=config.log_url)
    lake.create_table("t", SCHEMA, settings=SETTINGS)
    torture = Torture(config, seed)
    try:
        for number in range(kills):
            torture.kill()
            if number < pauses:
                torture.pause()
        torture.end()
    finally:
        torture.close()
    ids = []
    for ledger in Path(config.folder).glob("w*.ledger"):
        begun, done = begun_and_done(ledger)
        assert set(begun) == done
        ids += begun
    table = config.table()
    expected = Counter({commit_id: rows_of(commit_id).num_rows for commit_id in ids})
    found = table.scan().read_all()
    assert Counter(found["id"].to_pylist()) == expected
    assert found["k"].to_pylist() == sorted(found["k"].to_pylist())
    for commit_id in random.Random(seed).sample(ids, min(20, len(ids))):
        key = rows_of(commit_id)["k"][0].as_py()
        assert commit_id in table.get(key)["id"].to_pylist()
    report = table.verify(files=True)
    assert report.sound, report
    return len(ids)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    ROLES[sys.argv[1]](sys.argv[2], Config(**json.loads(sys.argv[3])))
