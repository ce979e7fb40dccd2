"""Workers that are started ahead of their statements."""

from __future__ import annotations

import os
import signal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import UsageError
from lakebed.read.sql import spare_workers as module
from lakebed.read.sql.limited import Limits
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.security.sql import run_statement, spare_workers
from tests.waiting import until

LIMITS = Limits(512 * 1024 * 1024, 60)
ADMIN = Principal.everywhere("admin", Permission.ADMIN)
PART = Principal("part", (Role("part", Permission.READ, frozenset({"t"}), where="k < 2"),))


@pytest.fixture
def lake(tmp_path: Any) -> Any:
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("t", lakebed.Schema({"k": "int64"})).write(pa.table({"k": [1, 2, 3]}))
    return made


SPARE = 2


def pids(spare: module.SpareWorkers) -> list[int]:
    def waiting() -> list[int]:
        with spare._lock:
            return [worker._worker.process.pid for worker in spare._waiting]

    return until(lambda: found if len(found := waiting()) == SPARE else None)


def test_each_statement_has_a_process_that_waited_for_it(lake: Any) -> None:
    spare = spare_workers(lake, SPARE)

    def answer(principal: Principal, statement: str) -> list[Any]:
        with run_statement(principal, lake, statement, LIMITS, spare) as rows:
            return list(rows.read_all().to_pylist())

    assert answer(ADMIN, "SELECT count(*) AS n FROM t") == [{"n": 3}]
    first, second = pids(spare)
    # They see what was committed after they were started, and what the roles of the next caller show.
    lake.table("t").write(pa.table({"k": [0]}))
    lake.create_table("later", lakebed.Schema({"k": "int64"}))
    assert answer(PART, "SELECT k FROM t ORDER BY k") == [{"k": 0}, {"k": 1}]
    assert first not in pids(spare)
    assert answer(ADMIN, "SELECT count(*) AS n FROM later") == [{"n": 0}]
    assert second not in (waiting := pids(spare))
    # The limit on memory is that of the statement, although the worker began without one.
    with pytest.raises(UsageError, match="needs more memory than memory_limit_bytes"):
        answer(ADMIN, "SELECT repeat('x', 2000000000) AS x")
    waiting = pids(spare)
    # One that died while it waited is replaced.
    os.kill(waiting[0], signal.SIGKILL)
    until(lambda: not spare._waiting[0].is_alive)
    assert answer(ADMIN, "SELECT 1 AS n") == [{"n": 1}]
    waiting = pids(spare)
    spare.end_idle()
    assert pids(spare) == waiting, "they were in use a moment ago"
    spare._taken_s -= module.IDLE_S
    spare.end_idle()
    assert not spare._waiting
    spare.close()
