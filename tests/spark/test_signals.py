"""Ctrl-C and SIGTERM at several moments of a command on Spark: it says what it committed, and leaves no process.

Each is a process with a JVM of its own. A SIGTERM while an import sends files: tests/cluster/test_cluster.py. An
interrupt of one on a Spark Connect server: tests/cluster/test_connect.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lakebed
from tests.spark.commands import alive, counted, is_spark, slow_to_import
from tests.waiting import until

STOPPING = "lakebed: stopping …; again to stop hard\n"


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    return slow_to_import(tmp_path)


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
from lakebed.cli import main
sys.exit(main())
"""

SLOW_COMMIT = """
from lakebed.table.table import Table
commit = Table.try_commit
def slow(self, proposal):
    if type(proposal).__name__ == "ProposeFiles":
        print("committing", file=sys.stderr, flush=True)
        time.sleep(1)
    return commit(self, proposal)
Table.try_commit = slow
"""

STUCK = """
from lakebed.jobs.interrupt import Stop
Stop.cancel = lambda self: time.sleep(600)
"""


class Child:
    """The command line in a process of its own, which does not ignore signals."""

    def __init__(self, instance: lakebed.Instance, mark: Path, *words: str, before: str = "") -> None:
        self.mark = str(mark)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before), *words, "--master", "local[2,4]"],
            env=os.environ | {"LAKEBED_TEST": self.mark, "LAKEBED_INSTANCE": instance.url},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=mark,
        )  # fmt: skip
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def signal_at(self, text: str, number: signal.Signals) -> None:
        until(lambda: text in self.said or self.process.poll() is not None)
        self.process.send_signal(number)

    def end(self) -> str:
        """Its last words, after it has ended as one that was interrupted, and nothing of it is left."""
        assert self.process.wait(300) == 130, self.said
        self._reader.join()
        until(lambda: not alive(self.mark))
        assert "Traceback" not in self.said
        assert "\tat " not in self.said, "a stack trace of Java"
        assert self.said.count(STOPPING) == 1
        return self.said.splitlines()[-1]


def test_ctrl_c_while_spark_starts_ends_quietly(instance: lakebed.Instance, tmp_path: Path) -> None:
    child = Child(instance, tmp_path, "import", "t", "in")
    # Its JVM is there, and will need seconds more until it answers.
    until(lambda: any(map(is_spark, alive(child.mark))))
    child.process.send_signal(signal.SIGINT)
    assert child.end() == "lakebed: interrupted: nothing was committed"
    assert instance.table("t").scan().read_all().num_rows == 0


def test_a_commit_that_has_begun_is_finished_and_reported(instance: lakebed.Instance, tmp_path: Path) -> None:
    child = Child(instance, tmp_path, "import", "t", "in", before=SLOW_COMMIT)
    child.signal_at("committing", signal.SIGTERM)
    version = instance.table("t").state().version
    assert child.end().endswith(" rows added; nothing else was changed")
    table = instance.table("t")
    assert f"lakebed: interrupted: committed, up to version {table.state().version}: 20,000 rows added" in child.said
    assert table.version == version + 1
    assert counted(table.scan().read_all()) == counted(pq.read_table(tmp_path / "in"))


def test_a_second_signal_ends_everything_at_once(instance: lakebed.Instance, tmp_path: Path) -> None:
    child = Child(instance, tmp_path, "import", "t", "in", before=STUCK)
    child.signal_at("Starting Spark", signal.SIGINT)
    child.signal_at(STOPPING, signal.SIGINT)
    assert child.end().startswith("lakebed: stopped hard; `lakebed history` lists what was committed.")
