"""Ctrl-C at any point of a call leaves no folder and no thread, the table is valid, and the next call works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Pipeline, clock
from lakebed.errors import Error
from lakebed.files.parquet.open_files import copies_folder
from tests.interrupts import interrupted_at
from tests.machine import set_temporary_folder
from tests.waiting import until
from tests.workers import in_process

ROWS = 600
KEPT = {"lakebed-checkpoint", "lakebed-segments"}
"""Threads for which no call waits."""


def rows(first: int) -> pa.Table:
    numbers = list(range(first, first + ROWS))
    return pa.table({"k": [f"{n % 7}" for n in numbers], "n": numbers})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary folders."""
    # Made once per process.
    copies_folder()
    folder = tmp_path / "scratch"
    folder.mkdir()
    set_temporary_folder(monkeypatch, folder)
    return folder


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline of a table with several rows of one key."""
    lake = lakebed.create(tmp_path / "lake")
    table = lake.create_table("t", lakebed.Schema({"k": "string", "n": "int64"}, {}, {}), merge=lakebed.Latest())
    for first in (0, ROWS // 2):
        table.write(rows(first))
    with in_process(lake) as pipeline:
        # Starts the workers before the test's folder becomes the temporary folder.
        pipeline.compact("t", strategy="full")
        yield pipeline


def write(pipeline: Pipeline) -> None:
    pipeline.instance.table("t").write(rows(0))


def scan(pipeline: Pipeline) -> None:
    pipeline.instance.table("t").scan(reverse=True).read_all()


def compact(pipeline: Pipeline) -> None:
    pipeline.compact("t", strategy="full")


def export(pipeline: Pipeline) -> None:
    pipeline.export("t", f"{pipeline.instance.url}-{clock.random_token()}")


# PyArrow's ParquetWriter is deleted before it has all its attributes.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("call", "step"), [(write, 3), (scan, 3), (compact, 13), (export, 13)])
def test_an_interrupted_call_leaves_nothing_behind(
    pipeline: Pipeline, folder: Path, call: Callable[[Pipeline], None], step: int
) -> None:
    """At every third of some thousand points in the code, and at fewer if workers are killed and others started."""
    before = {thread.name for thread in threading.enumerate()} | KEPT
    place, interrupted = 0, True
    while interrupted:
        if call is compact:
            write(pipeline)
        try:
            interrupted = interrupted_at(place, partial(call, pipeline))
        except Error as error:
            # Python's rmtree closes a folder twice if the interrupt comes just after the first time.
            if "Bad file descriptor" not in error.message:
                raise
        except RuntimeError as error:
            # Python's Condition.wait releases its lock twice if the interrupt comes just after the first time.
            if str(error) != "release unlocked lock":
                raise
        assert not list(folder.iterdir()), place
        # A thread that never begins is not alive: Python keeps its lock if the interrupt comes while it is started.
        until(lambda: {thread.name for thread in threading.enumerate() if thread.is_alive()} <= before)
        place += step
    assert place > 3 * step
    write(pipeline)
    compact(pipeline)
    table = pipeline.instance.table("t")
    assert table.scan().read_all().num_rows == ROWS + ROWS // 2
    assert not table.state().jobs
