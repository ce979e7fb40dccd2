"""The paired benchmark, run small and against this very checkout: every measure without Spark does its work."""

import re

import pyarrow as pa
import pytest

from benchmarks import compare

ROWS = 10_000


@pytest.fixture
def own_cores(monkeypatch):
    """A task keeps its process to one core; afterwards the process has its own again."""
    monkeypatch.setenv("TOKIO_WORKER_THREADS", "1")
    cores, threads = pa.cpu_count(), pa.io_thread_count()
    yield
    pa.set_cpu_count(cores)
    pa.set_io_thread_count(threads)


@pytest.mark.parametrize("name", [name for name in compare.MEASURES if name != "import"])
def test_a_turn_does_the_work_and_gives_its_times(tmp_path, own_cores, name):
    wall, cpu = compare.Side(tmp_path, ROWS).measure(name)()
    assert wall > 0
    assert cpu > 0


def test_the_driver_has_both_sides_take_turns_and_prints_a_line_a_measure(monkeypatch, capfd):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    words = [str(compare.ROOT), "--only", "get_many", "import", "--turns", "2", "--rows", str(ROWS)]
    assert compare.main(words) == 0
    printed = capfd.readouterr().out
    assert re.search(r"^get_many( +[\d.]+){3} \([\d.]+-[\d.]+\)( +[\d.]+){3} \([\d.]+-[\d.]+\)$", printed, re.MULTILINE)
    assert re.search(r"^import +left out: JAVA_HOME is not set$", printed, re.MULTILINE)


def test_a_folder_that_is_no_checkout_is_refused(capfd, tmp_path):
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path)])
    assert f"{tmp_path} is no checkout of Lakebed" in capfd.readouterr().err
