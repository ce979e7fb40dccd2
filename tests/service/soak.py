"""A service that is killed at random while others write, submit files and ask: nothing is lost or doubled.

``python -m tests.service.soak ROLE NAME CONFIG``: the writers are those of :mod:`tests.adversarial.torture`. A
submitter records files that the services ingest. A reader asks the services over HTTP for keys that were committed.
Two services maintain the table; they, and all others, die by SIGKILL and are started again.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

import lakebed
from tests.adversarial.torture import (
    AGAIN,
    SCHEMA,
    SETTLE_S,
    Config,
    begun_and_done,
    note,
    rows_of,
    what_it_does,
    write,
)

SETTINGS = {"split_rows": 5_000, "compaction_batch_runs": 4, "ingest_age_s": 1}
GONE = (urllib.error.URLError, ConnectionError, TimeoutError)
"""What a client meets while a service is down; an answer with a status is none of these."""


def submit(name: str, config: Config) -> None:
    """Files to ingest, each recorded once: a repeated call for the same file adds nothing."""
    ledger, table = config.ledger(name), config.table()
    begun, done = begun_and_done(ledger)
    left = [one for one in begun if one not in done]
    count = len(begun)
    while left or not config.stop.exists():
        if left:
            submit_id = left.pop()
        else:
            submit_id = f"{name}-{count}"
            count += 1
            note(ledger, "begin", submit_id)
        path = Path(config.folder, f"{submit_id}.parquet")
        if not path.exists():
            pq.write_table(rows_of(submit_id), f"{path}.part")
            Path(f"{path}.part").replace(path)
        while True:
            try:
                table.submit(path)
            except AGAIN:
                time.sleep(0.02)
            else:
                note(ledger, "done", submit_id)
                break
        time.sleep(0.5)


def read(name: str, config: Config) -> None:
    """Ask the services for keys whose commits were acknowledged: the row must be in the answer."""
    chance = random.Random(name)
    ports = json.loads(Path(config.folder, "ports").read_text())
    counts: Counter[str] = Counter()
    while not config.stop.exists():
        acknowledged = [one for ledger in Path(config.folder).glob("w*.ledger") for one in begun_and_done(ledger)[1]]
        if not acknowledged:
            time.sleep(0.1)
            continue
        commit_id = chance.choice(acknowledged)
        key = rows_of(commit_id)["k"][0].as_py()
        url = f"http://127.0.0.1:{chance.choice(ports)}/v1/tables/t/get?key={key}"
        request = urllib.request.Request(url, headers={"Accept": "application/x-ndjson"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                found = [json.loads(line)["id"] for line in answer.read().splitlines()]
        except urllib.error.HTTPError as error:
            # Nothing else is asked of a service whose store answers.
            raise AssertionError(f"{url}: {error.code} {error.read()[:500]!r}") from error
        except GONE:
            counts["gone"] += 1
            time.sleep(0.05)
            continue
        assert commit_id in found, f"{commit_id} was acknowledged, and {url} does not have it"
        counts["read"] += 1
    Path(config.folder, f"{name}.counts").write_text(json.dumps(counts))


ROLES = {"write": write, "submit": submit, "read": read}


@dataclass(slots=True)
class Soak:
    """The processes, by name: the command of each, and the one that runs."""

    config: Config
    ports: list[int]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def start(self, name: str) -> None:
        """By its first letter: a service, a writer, a submitter or a reader."""
        # One of the writers commits through a service.
        via = f"http://127.0.0.1:{self.ports[0]}" if name == "w1" else None
        config = json.dumps(asdict(replace(self.config, commit_via=via)))
        if name[0] == "v":
            port = str(self.ports[int(name[1:])])
            options = ["--port", port, "--in-process", "--workers", "1"]
            command = [sys.executable, "-m", "lakebed.cli", "--instance", self.config.url, "serve", *options]
        else:
            role = {"w": "write", "s": "submit", "r": "read"}[name[0]]
            command = [sys.executable, "-m", "tests.service.soak", role, name, config]
        with Path(self.config.folder, f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=Path(__file__).parents[2], start_new_session=True
            )

    def kill(self, chance: random.Random) -> None:
        """One of them dies and is started again; one that ended by itself is a fault."""
        for name, process in self.running.items():
            assert process.poll() is None, f"{name} ended by itself: {self.log(name)}"
        name = chance.choice([one for one in sorted(self.running) if one[0] != "r"])
        self._end(name, signal.SIGKILL)
        self.kills[name[0]] += 1
        self.start(name)

    def settle(self) -> None:
        """Writers, submitters and readers come to an end; then the services ingest what is left, and end."""
        self.config.stop.touch()
        for name in [one for one in self.running if one[0] != "v"]:
            # One that does not end stays in ``running``, so that it is killed.
            with suppress(subprocess.TimeoutExpired):
                self.running[name].wait(SETTLE_S)
            process = self.running[name]
            if process.poll() is None:
                raise AssertionError(
                    f"{name} has not ended after {SETTLE_S} s: {what_it_does(process.pid)}\n{self.table()}\n"
                    f"{self.log(name)}\n{self.log('v0')}\n{self.log('v1')}"
                )
            assert process.poll() == 0, f"{name}: {process.poll()} {self.log(name)}"
            del self.running[name]
        table, until = self.config.table(), time.monotonic() + SETTLE_S
        while table.state().open_requests:
            assert time.monotonic() < until, f"requests are left open: {self.log('v0')}"
            time.sleep(0.5)
        for name in list(self.running):
            assert self._end(name, signal.SIGTERM) == 0, f"{name}: {self.log(name)}"

    def close(self) -> None:
        for name in list(self.running):
            self._end(name, signal.SIGKILL)

    def table(self) -> str:
        """What a writer may wait for."""
        state = self.config.table().state()
        runs = max(len({one.run for one in state.held_by(partition)}) for partition in state.partitions.ids)
        return f"{runs:,} runs in a partition, {len(state.jobs)} open jobs, {len(state.open_requests)} open requests"

    def log(self, name: str) -> str:
        return Path(self.config.folder, f"{name}.log").read_text()[-3000:]

    def _end(self, name: str, how: signal.Signals) -> int:
        process = self.running.pop(name)
        if how == signal.SIGKILL:
            # With its workers: a machine that fails takes all of them.
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        return process.wait(SETTLE_S)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def soaked(folder: Path, *, seconds: float, seed: int) -> dict[str, int]:
    """Kill for so long, then hold the table against the ledgers; returns what happened, counted."""
    config = Config(str(folder / "lake"), str(folder))
    lakebed.create(config.url).create_table("t", SCHEMA, settings=SETTINGS)
    chance, ports = random.Random(seed), free_ports(2)
    (folder / "ports").write_text(json.dumps(ports))
    soak = Soak(config, ports)
    try:
        for name in ("v0", "v1", "w0", "w1", "s0", "r0"):
            soak.start(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(1, 8))
            soak.kill(chance)
        soak.settle()
    finally:
        soak.close()
    return {**held(config), **{f"kills of {name}": count for name, count in soak.kills.items()}, **counted(folder)}


def held(config: Config) -> dict[str, int]:
    """Every row of every ledger is in the table, once, and the table is sound."""
    ids = []
    for ledger in Path(config.folder).glob("[ws]*.ledger"):
        begun, done = begun_and_done(ledger)
        assert set(begun) == done
        ids += begun
    table = config.table()
    found = table.scan().read_all()
    assert Counter(found["id"].to_pylist()) == Counter({one: rows_of(one).num_rows for one in ids})
    report = table.verify(files=True)
    assert report.sound, report
    changes = Counter(table.history()["type"].to_pylist())
    return {"commits of writers and files": len(ids), "rows": found.num_rows, **changes}


def counted(folder: Path) -> dict[str, int]:
    """What the reader met."""
    return json.loads((folder / "r0.counts").read_text())


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    ROLES[sys.argv[1]](sys.argv[2], Config(**json.loads(sys.argv[3])))
