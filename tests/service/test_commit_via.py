"""Writers of several processes commit through a service that is killed again and again: nothing is lost or doubled."""

import os
import random
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline, clock
from lakebed.errors import ContentionError, StorageError, UnknownOutcomeError
from lakebed.log.backends.objects import ObjectLog
from tests.waiting import unclaimed_port

WRITERS, THREADS, WRITES = 2, 4, 5
"""Processes, threads of each, and writes of each thread for each time that the service is killed."""


def serve(root, port):
    """A service in a process of its own; returns when it answers."""
    words = [sys.executable, "-m", "lakebed.cli", "serve", "--port", str(port), "--instance", root]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    while True:
        assert process.poll() is None, "the service did not start"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=120):
                return process
        except OSError:
            clock.sleep(0.02)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def root(tmp_path):
    schema = lakebed.Schema({"k": "string"}, values={"n": "int64"})
    lakebed.create(str(tmp_path / "lake")).create_table("t", schema)
    return str(tmp_path / "lake")


def write_until_known(table, key):
    """Write a row until it is certain that it is there; returns how often the outcome was not known."""
    unknown = 0
    while True:
        try:
            table.write(pa.table({"k": [key], "n": [1]}), commit_id=key)
            return unknown
        except UnknownOutcomeError:
            unknown += 1
        except (StorageError, ContentionError) as error:
            if not error.facts.get("transient"):
                raise
            # While the service starts again, eight threads ask: more often, and they take the cores that it starts on.
            clock.sleep(0.2)


def writer(root, url, name, writes):
    """What each process does; prints how many outcomes were not known."""
    table = lakebed.open(root, commit_via=url).table("t")
    keys = [f"{name}-{thread}-{number}" for thread in range(THREADS) for number in range(int(writes))]
    with ThreadPoolExecutor(THREADS) as threads:
        print(sum(threads.map(lambda key: write_until_known(table, key), keys)))


@pytest.mark.parametrize("kills_max", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_under_its_writers_loses_and_doubles_nothing(root, kills_max):
    writes = WRITES * kills_max
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    port = unclaimed_port()
    service = serve(root, port)
    words = [sys.executable, __file__, root, f"http://127.0.0.1:{port}"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    writers = [
        subprocess.Popen([*words, str(number), str(writes)], stdout=subprocess.PIPE, text=True, env=environment)
        for number in range(WRITERS)
    ]
    kills = 0
    reader = lakebed.open(root).table("t")
    try:
        while any(one.poll() is None for one in writers):
            # Not before it has committed something again.
            since, wait_s = reader.state().version, chance.uniform(0, 0.2)
            while reader.state().version == since and any(one.poll() is None for one in writers):
                clock.sleep(0.02)
            clock.sleep(wait_s)
            if kills < kills_max:
                kill(service)
                kills += 1
                service = serve(root, port)
    finally:
        kill(service)
        said = [one.communicate()[0] for one in writers]
    assert [one.returncode for one in writers] == [0] * WRITERS
    assert kills >= 2
    found = reader.scan().read_all()
    expected = {f"{w}-{t}-{n}" for w in range(WRITERS) for t in range(THREADS) for n in range(writes)}
    assert sorted(found.column("k").to_pylist()) == sorted(expected)
    assert reader.verify(files=True).sound
    print(f"{kills} kills, {sum(map(int, said))} outcomes were not known, {reader.version} entries")


def test_administration_and_maintenance_commit_through_the_service_and_not_without_it(root, tmp_path, monkeypatch):
    """Of this process the log's backend takes nothing but the first and the last entry of a table."""
    pq.write_table(pa.table({"k": ["a", "b"], "n": [1, 2]}), tmp_path / "in.parquet")
    port = unclaimed_port()
    service = serve(root, port)
    try:
        lake = lakebed.open(root, commit_via=f"http://127.0.0.1:{port}")
        table = lake.table("t")
        lake.create_table("u", lakebed.Schema({"k": "int64"}))
        monkeypatch.setattr(ObjectLog, "create", lambda *_: pytest.fail("this process wrote an entry"))
        with Pipeline(lake, launcher="in-process") as pipeline:
            table.submit(tmp_path / "in.parquet")
            pipeline.ingest(table, force=True)
            table.alter(lakebed.AddField("w", "int64"))
            pipeline.compact(table)
            pipeline.gc(table)
        lake.rename_table("u", "v")
        lake.pause("t", "gc")
    finally:
        kill(service)
    for change in (lambda: lake.resume("t"), lambda: table.set(runs_max=7)):
        with pytest.raises(StorageError, match="nothing was committed"):
            change()
    monkeypatch.undo()
    other = lakebed.open(root)
    assert (other.tables(), other.paused("t")) == (["t", "v"], {"gc"})
    assert other.table("t").count(exact=True).rows == 2
    assert other.table("t").verify(files=True).sound


if __name__ == "__main__":
    writer(*sys.argv[1:])
