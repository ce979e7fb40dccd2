"""A service in a process of its own that is stopped, is killed, and is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.clock import chance
from tests.soaked import few
from tests.waiting import WAIT_S, until

SCHEMA = Schema({"key": "string"}, values={"value": "int64"})
QUICK = ["--in-process", "--workers", "1", "--follow", "0.05"]
QUICK += [f"--period={name}=0.05" for name in ("ingest", "compaction", "splitting", "gc")]


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    instance = lakebed.create(str(tmp_path / "lake"))
    settings = {"split_rows": 1000, "ingest_age_s": 0, "history_s": 0}
    return instance.create_table("flights", SCHEMA, settings=settings)


@contextmanager
def service(table: lakebed.Table) -> Iterator[subprocess.Popen[str]]:
    """A service of the table's instance that answers; it is killed at the end of the block."""
    url = table.storage.url
    command = [sys.executable, "-m", "lakebed.cli", "--instance", url, "serve", "--port", "0", *QUICK]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stderr is not None
        assert any("serving" in line for line in process.stderr)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def is_settled(table: lakebed.Table) -> bool:
    """Whether all requests are carried out, and no job of a service that died is open."""
    state = table.state()
    return not state.open_requests and not state.jobs


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"key": [f"{first + n:09d}" for n in range(count)], "value": list(range(count))})


@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGINT], 1))
def test_a_signal_ends_a_service_with_0(table: lakebed.Table, number: signal.Signals) -> None:
    for _ in range(5):
        table.write(rows(0, 10))
    with service(table) as process:
        until(lambda: table.state().jobs or len(table.state().files_of(1)) == 1)
        process.send_signal(number)
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, said
    assert table.count().rows == 50
    # What was cancelled is closed: another process can begin at once.
    assert not table.state().jobs


def test_a_second_signal_does_not_wait(table: lakebed.Table) -> None:
    with service(table) as process:
        # A stopped process takes both at once.
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 130


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    table: lakebed.Table, tmp_path: Path, kills: int
) -> None:
    draw = chance(7)
    expected = 0
    for kill in range(kills):
        with service(table) as process:
            for number in range(6):
                data = rows(10_000 * expected, 100)
                path = tmp_path / f"{kill}-{number}.parquet"
                pq.write_table(data, path)
                if number % 2:
                    table.submit(str(path))
                else:
                    table.write(data)
                expected += 1
                time.sleep(draw.uniform(0, 0.4))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    with service(table):
        until(lambda: is_settled(table))
    keys = table.to_arrow().column("key").to_pylist()
    assert len(keys) == len(set(keys)) == 100 * expected
