"""An operation is one file: what plans, runs, pauses, lists and shows operations asks it and names none."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import Schema, UsageError
from lakebed.cli import main
from lakebed.model import operations
from lakebed.model.operations import Lane, Pending, TableOperation
from lakebed.model.reports import WorkReport
from lakebed.server.service.service import Service
from lakebed.server.service.store_status import next_steps, status
from lakebed.server.web.app import make_app
from lakebed.table.tracker.listing import job_runs
from tests.workers import in_process, shared_workers

TAG = "sealed"


@dataclass(frozen=True, slots=True)
class SealReport(WorkReport):
    """The tag that was set, if any."""

    table: str
    version: int | None

    @property
    def summary(self):
        return "nothing to seal" if self.idle else f"tag {TAG} set"

    @property
    def idle(self):
        return self.version is None


class Sealing(TableOperation):
    """Sets a tag once a table has rows."""

    name = "sealing"
    does = "Tags the first version that has rows."
    kinds = ("seal",)
    period_s = 7.0
    lane = Lane.ROWS

    def pending(self, table):
        due = table.summary.rows and not table.record(self.name).version
        return Pending("its first rows have no tag") if due else None

    def run(self, table):
        with table.tracked(self.kinds[0]) as run:
            if TAG in table.table.tags():
                return run.reported(SealReport(table.table.name, None))
            table.table.tag(TAG)
            return run.reported(SealReport(table.table.name, table.table.version))


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(operations.OPERATIONS, Sealing.name, Sealing())
    _forget_commands()
    yield
    _forget_commands()


def _forget_commands():
    """Have the commands imported again: they know the operations that there are when they are defined."""
    for module in ("jobs", "maintenance"):
        sys.modules.pop(f"lakebed.cli.{module}", None)


@pytest.fixture
def lake(tmp_path):
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("t", Schema({"k": "string"}, values={"v": "int64"})).write(pa.table({"k": ["a"], "v": [1]}))
    return made


def test_a_call_runs_a_new_operation_and_its_run_is_on_record(lake, capsys):
    with in_process(lake) as pipeline:
        assert pipeline.maintain("t").others == (SealReport("t", 3),)
        assert pipeline.maintain("t").others == ()
    assert lake["t"].tags() == {TAG: 2}
    lake.tracker.flush()
    (run,) = [run for run in job_runs(lake.storage) if run.operation == "seal"]
    assert (run.table, run.version, run.detail) == ("t", 3, "tag sealed set")
    assert main(["--instance", lake.url, "jobs", "list", "--operation", "seal"]) == 0
    assert "tag sealed set" in capsys.readouterr().out


def test_a_service_plans_and_runs_a_new_operation(lake):
    (found,) = status(lake).tables
    assert "sealing: its first rows have no tag" in next_steps(found)
    with shared_workers():
        ended = Service(lake, launcher="in-process[1]").run_once().table("t").operation("sealing")
    assert (ended.last_outcome, ended.last_error, ended.due) == ("tag sealed set", None, None)
    assert lake["t"].tags() == {TAG: 2}
    lake.tracker.flush()
    (found,) = status(lake).tables
    assert found.operation("sealing").last_outcome == "tag sealed set"


def test_a_new_operation_is_paused_and_resumed(lake, capsys):
    assert main(["--instance", lake.url, "table", "pause", "t", "sealing"]) == 0
    assert "table t: paused: sealing" in capsys.readouterr().out
    again = lakebed.open(lake.url)
    assert again.paused("t") == {"sealing"}
    with in_process(again) as pipeline:
        assert pipeline.maintain("t").paused == ("sealing",)
    assert not lake["t"].tags()
    assert main(["--instance", lake.url, "table", "resume", "t", "sealing"]) == 0
    assert not lakebed.open(lake.url).paused("t")
    assert main(["--instance", lake.url, "table", "pause", "t", "vacuum"]) == 2
    assert "'vacuum' is not one of 'ingest'" in capsys.readouterr().err


def test_the_page_of_a_table_shows_a_new_operation(lake):
    lake.pause("t", "sealing")
    with TestClient(make_app(Service(lake, maintain=False))) as client:
        page = client.get("/tables/t", headers={"accept": "text/html"}).text
    assert '<th scope="row" title="Tags the first version that has rows.">sealing</th>' in page
    assert 'aria-label="Resume sealing"' in page


def test_a_catalog_with_an_operation_of_a_newer_lakebed_can_be_read(lake, monkeypatch):
    lake.pause("t", "sealing", "gc")
    monkeypatch.delitem(operations.OPERATIONS, "sealing")
    older = lakebed.open(lake.url)
    assert older.paused("t") == {"sealing", "gc"}
    assert [found.paused for found in status(older).tables] == [("gc", "sealing")]
    with pytest.raises(UsageError, match="unknown operation 'sealing'"):
        older.resume("t", "sealing")
    older.resume("t", "gc")
    assert older.paused("t") == {"sealing"}


def test_no_module_but_those_of_maintenance_asks_which_operation_it_is():
    names = "INGEST|COMPACTION|SPLIT|SPLITTING|JOIN|REFRESH|GC"
    kinds = "ingest|compaction|split|splitting|join|refresh|gc"
    asks = re.compile(
        rf"\bWorkKind\.({names})\b|operation (==|!=|is|is not|in) \(?['\"]({kinds})|case ['\"]({kinds})['\"]"
    )
    assert asks.search("with self.tracked(WorkKind.GC) as run:")
    assert asks.search('if operation == "gc":')
    source = Path(lakebed.__file__).parent
    asking = {path.relative_to(source) for path in source.rglob("*.py") if asks.search(path.read_text("utf-8"))}
    assert {path.as_posix() for path in asking} == {"jobs/maintain.py", "model/operations.py"}
