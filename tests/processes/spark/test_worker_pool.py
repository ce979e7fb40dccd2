"""Tasks in worker processes: results in order, errors as values, and no process that outlives its use.

The work is ``eval``: each task is a Python expression.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakebed import Error, UsageError
from lakebed.jobs.interrupt import Stop, call, current_stop
from lakebed.jobs.worker_pool import BESIDE_BYTES, WorkerPool, available_cores, available_memory_bytes
from tests.waiting import until

ROOT = Path(__file__).parents[3]
PID = "__import__('os').getpid()"
DIE = "__import__('os').kill(__import__('os').getpid(), 9)"
SLEEP = "__import__('time').sleep(600)"
MIB = 2**20


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """For all tests that leave it usable, which also says that it is after whatever they did to its workers."""
    pool = WorkerPool(2)
    yield pool
    pool.close()


def run(pool: WorkerPool, *expressions: str) -> list[Any]:
    return pool.run(expressions, eval, Any, Stop(), memory_limit_bytes=MIB)


def is_gone(pid: int) -> bool:
    """Also one that ended and was not waited for: its parent was killed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_task_that_fails_has_its_error_as_result(pool: WorkerPool) -> None:
    good, bad, worse = run(pool, "1", "1 / 0", "__import__('lakebed').DamagedError('torn', name='x')")
    assert (good, str(bad)) == (1, "ZeroDivisionError: division by zero")
    assert isinstance(worse, Error), "what JSON cannot hold is an error of its task too"


def test_a_task_whose_worker_is_killed_has_that_as_result_and_the_others_go_on(pool: WorkerPool) -> None:
    first, killed, ended, last = run(pool, "1", DIE, "__import__('os')._exit(7)", "2")
    assert (first, last) == (1, 2)
    assert "was killed (SIGKILL), as the system does when memory is short; use fewer workers" in str(killed)
    assert killed.facts["exit_code"] == -9
    assert "died with exit code 7" in str(ended)
    assert run(pool, "3", "4", "5") == [3, 4, 5]


def test_a_worker_that_was_killed_while_idle_costs_no_task(pool: WorkerPool) -> None:
    (pid,) = run(pool, PID)
    os.kill(pid, signal.SIGKILL)
    # Not before all of its threads have ended can it be waited for.
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None)
    assert run(pool, "1") == [1]


def test_a_closed_pool_runs_nothing() -> None:
    pool = WorkerPool(1)
    pool.close()
    with pytest.raises(UsageError, match="the pipeline is closed"):
        run(pool, "1")


def test_workers_are_started_when_needed_and_used_again() -> None:
    pool = WorkerPool(4)
    pids = {pid for _ in range(3) for pid in run(pool, PID)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    pool.close()
    assert all(map(is_gone, pids))


def test_a_task_keeps_to_one_core_and_may_print(capfd: pytest.CaptureFixture[str]) -> None:
    pool = WorkerPool(1)
    assert run(pool, "print('loud')", "__import__('pyarrow').cpu_count()") == [None, 1]
    pool.close()
    assert capfd.readouterr().out == ""


def test_a_worker_imports_neither_pyspark_nor_pandas(pool: WorkerPool) -> None:
    """Not even with DataFusion, which makes a scalar of Arrow when it is imported."""
    imports = "__import__('lakebed.jobs.tasks'), __import__('datafusion')"
    assert run(pool, f"[{imports}, sorted({{'pyspark', 'pandas'}} & set(__import__('sys').modules))][-1]") == [[]]


def test_scratch_of_killed_workers_goes_with_the_pool() -> None:
    pool = WorkerPool(1)
    (folder,) = run(pool, "__import__('tempfile').mkdtemp()")
    assert Path(folder).is_dir()
    assert isinstance(run(pool, DIE)[0], Error)
    pool.close()
    assert not Path(folder).exists()


def test_an_interrupt_kills_the_workers_of_the_call_and_leaves_the_pool_usable(
    pool: WorkerPool, tmp_path: Path
) -> None:
    mark = tmp_path / "pids"
    asleep = f"[open({str(mark)!r}, 'a').write(str({PID}) + ' '), {SLEEP}]"
    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        until(lambda: mark.exists() and len(mark.read_text().split()) == 2)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        call(lambda: pool.run([asleep] * 5, eval, Any, current_stop(), memory_limit_bytes=MIB))
    assert caught.value.__cause__ is None, "a worker that was killed is no error of its own"
    assert all(is_gone(int(pid)) for pid in mark.read_text().split())
    assert run(pool, "1", "2", "3") == [1, 2, 3]


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    asleep = f"[open({str(mark)!r}, 'w').write(str({PID})), {SLEEP}]"
    program = (
        "from lakebed.jobs.worker_pool import WorkerPool\nfrom lakebed.jobs.interrupt import Stop\n"
        f"WorkerPool(1).run([{asleep!r}], eval, object, Stop(), memory_limit_bytes=1)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"TMPDIR": str(tmp_path)}, cwd=ROOT)
    until(lambda: mark.exists() and bool(mark.read_text()))
    parent.kill()
    parent.wait()
    until(lambda: is_gone(int(mark.read_text())))


def test_fewer_than_one_worker_or_byte_is_refused() -> None:
    for given in ({"workers": 0}, {"memory_bytes": 0}):
        (name,) = given
        with pytest.raises(UsageError, match=f"{name} = 0: must be 1 or more"):
            WorkerPool(**given)
    assert WorkerPool().cores(1) == available_cores()


@pytest.mark.parametrize(
    ("tasks_in_memory", "at_once"), [(3, 2), (2, 2), (1.9, 1), (0.1, 1)], ids=["room", "just", "for one", "for none"]
)
def test_only_as_many_tasks_run_at_once_as_memory_allows(tmp_path: Path, tasks_in_memory: float, at_once: int) -> None:
    """Over all calls: the tasks of two threads share what there is. One task always runs."""
    limit = 64 * MIB
    pool = WorkerPool(2, int(tasks_in_memory * (limit + BESIDE_BYTES)))
    assert pool.cores(limit) == at_once
    module = "__import__('importlib').import_module('tests.processes.spark.running')"
    running = f"{module}.count({str(tmp_path)!r}, %d, {at_once})"

    def call_of(numbers: range) -> list[Any]:
        return pool.run([running % n for n in numbers], eval, Any, Stop(), memory_limit_bytes=limit)

    with ThreadPoolExecutor(2) as threads:
        seen = [count for counts in threads.map(call_of, [range(3), range(3, 6)]) for count in counts]
    pool.close()
    assert len(seen) == 6
    assert max(seen) == at_once


def test_an_interrupt_ends_the_wait_for_memory(tmp_path: Path) -> None:
    pool = WorkerPool(2, 1)
    mark = tmp_path / "began"
    asleep = f"[open({str(mark)!r}, 'a').write('x'), {SLEEP}]"
    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        until(mark.exists)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        call(lambda: pool.run([asleep] * 3, eval, Any, current_stop(), memory_limit_bytes=MIB))
    assert mark.read_text() == "x"
    assert run(pool, "1") == [1]
    pool.close()


def test_the_memory_of_a_container_bounds_that_of_the_machine(tmp_path: Path) -> None:
    machine = available_memory_bytes(tmp_path)
    assert machine == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    groups = tmp_path / "sys/fs/cgroup"
    inner = groups / "pod/worker"
    inner.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/worker\n")
    (inner / "memory.max").write_text("max\n")
    assert available_memory_bytes(tmp_path) == machine
    (groups / "pod/memory.max").write_text("1000000\n")
    assert available_memory_bytes(tmp_path) == 1_000_000
    (groups / "memory").mkdir()
    (groups / "memory/memory.limit_in_bytes").write_text("900000\n")
    assert available_memory_bytes(tmp_path) == 900_000
