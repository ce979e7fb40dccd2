"""The examples of docs/http.md run as they are, in the order of the page."""

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
    # Every operation that the service describes has an example.
    assert ran.stdout.count('"openapi"') == 1
    for path in set(re.findall(r'"(/v1/[^"]*)":\{', ran.stdout)) - UNSHOWN:
        shown = re.sub(r"\\\{[a-z_]+\\\}", r"[^/?\\s\"]+", re.escape(path))
        assert re.search(shown + r"[?\"\s]", "\n".join(blocks)), f"{path} has no example"


UNSHOWN = {"/v1/catalog/commits", "/v1/tables/{table_id}/commits", "/v1/jobs/{job}", "/v1/jobs/{job}/retry"}
"""For programs of Lakebed alone; and of jobs, which the examples do not make."""
