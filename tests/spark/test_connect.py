"""The data source through Spark Connect, as a client of a server of its own."""

import subprocess
import sys

import pytest

from tests.spark.cases import SPARK


@pytest.mark.slow
def test_a_client_of_spark_connect_reads_writes_and_streams(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect's client needs lakebed[connect]")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect", str(tmp_path / "lake"), str(tmp_path / "checkpoint")],
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    said = ["read 10", "ranges ['v10', 'v11', 'v12', 'v13', 'v14']", *(["stream 100"] if SPARK >= (4, 2) else [])]
    assert ran.stdout.splitlines() == said
