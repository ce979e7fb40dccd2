"""What a service says while it maintains tables."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.progress import log_to_stderr
from lakebed.cli.serve import Upkeep
from lakebed.model.state.transactions import RaiseWatermark, Watermark
from lakebed.server.service.plan import ServiceLimits

SAID = "table t: gc failed at 100% of its work"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_line_of_a_service_has_its_time(tmp_path: Path, log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(verbosity=0, quiet=False, log_format=log_format)
    upkeep = Upkeep(maintains=True, launcher="in-process", memory_bytes=None, limits=ServiceLimits(), idle_s=1.0)
    upkeep.service(lakebed.create(str(tmp_path)))._report(SAID)
    (line,) = capsys.readouterr().err.splitlines()
    if log_format == "json":
        assert re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.", json.loads(line)["time"])
        assert json.loads(line)["message"] == SAID
    else:
        assert re.fullmatch(rf"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d\d\d WARNING lakebed.service: {SAID}", line)


def test_a_submitted_file_that_is_left_out_fails_the_command(cli, table, url, tmp_path):
    """It is never ingested unless someone acts, so a script has to see it."""
    pq.write_table(pa.table({"k": [1]}), tmp_path / "old.parquet")
    os.utime(tmp_path / "old.parquet", (0, 0))
    found = lakebed.open(url).table(table)
    found.set(page_rows=100)
    found.commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, 1))
    ran = cli("requests", "submit", table, tmp_path / "old.parquet")
    assert (ran.code, "1 file left out" in ran.err, "give --again" in ran.err) == (3, True, True)
    assert found.requests().num_rows == 0
