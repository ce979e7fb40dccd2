"""What a pipeline tells of its progress, from worker processes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Pipeline, Progress, UsageError
from tests.terminals import Terminal

WORKERS = "in-process[1]"


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    table = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "int64"}))
    for first in (0, 10):
        table.write(pa.table({"k": range(first, first + 10)}))
    return table


def test_a_callback_of_the_pipeline_is_called_for_every_call(table: lakebed.Table, tmp_path: Path) -> None:
    made: list[Progress] = []
    with Pipeline(lakebed.open(str(tmp_path / "lake")), launcher=WORKERS, progress=made.append) as pipeline:
        pipeline.compact("t", strategy="full")
        assert {one.phase for one in made} == {"merge"}
        assert (made[0].rows_done, made[-1].rows_done, made[-1].rows_total) == (0, 20, 20)
        calls = len(made)
        own: list[Progress] = []
        pipeline.export("t", str(tmp_path / "out"), progress=own.append)
        assert {one.phase for one in own} == {"export"}
        assert len(made) == calls


def test_by_default_a_bar_is_shown_on_a_terminal(table: lakebed.Table, tmp_path: Path) -> None:
    terminal, log = Terminal(), io.StringIO()
    with Pipeline(lakebed.open(str(tmp_path / "lake")), launcher=WORKERS) as pipeline:
        with contextlib.redirect_stderr(log):
            pipeline.export("t", str(tmp_path / "one"))
        with contextlib.redirect_stderr(terminal):
            pipeline.export("t", str(tmp_path / "two"))
    assert log.getvalue() == ""
    assert "export t: export" in terminal.getvalue()
    assert "export t: 20 rows in" in terminal.getvalue()


def test_a_progress_that_is_no_function_is_refused(table: lakebed.Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="progress = 7: must be a function, None, or 'auto'"):
        Pipeline(lakebed.open(str(tmp_path / "lake")), progress=7)  # type: ignore[arg-type]
