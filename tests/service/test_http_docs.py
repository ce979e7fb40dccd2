"""The examples of docs/http.md run as they are, in the order of the page.

That each operation has one is a test of tests/processes/test_reference_pages.py.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from tests.service.served import served

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
PREAMBLE = 'set -eo pipefail\ncurl() { command curl -sS --fail-with-body "$@"; }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An instance with the tables of the page, and a file to submit."""
    at = pa.array([dt.datetime(2026, 1, 31, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC"))
    rows = pa.table({"device": ["a", "a", "b"], "at": at, "reading": [0.5, 1.5, None], "raw": [b"\0", None, b""]})
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(
        {"device": "string"}, {"at": "timestamp[us, tz=UTC]"}, {"reading": "double", "raw": "binary"}
    )
    lake.create_table("readings", schema).write(rows)
    states = lake.create_table("states", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}), merge=lakebed.Latest())
    states.write(pa.table({"k": ["a", "b"], "n": pa.array([1, 6], pa.int64())}))
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "more.parquet")
    return tmp_path


def test_the_examples_run(folder: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    script = PREAMBLE + "echo\n".join(blocks) + "echo\n"
    with served(folder / "lake", "--allow-sources", f"{folder}/in/") as service:
        variables = {**os.environ, "URL": service.url, "SOURCES": f"{folder}/in"}
        ran = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    assert ran.stdout.count('"openapi"') == 1
