"""The pipeline on a Spark Connect server: the client has no Java."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.spark import Remote, session
from tests.cluster.conftest import ROOT, SPARK_HOME, TIMEOUT_S, wait_for

pytest.importorskip("grpc", reason="lakebed[connect] is not installed")

ROWS = pa.table({"k": [f"k{i * 7919 % 3000:05}" for i in range(3000)], "n": range(3000)})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with two cores; its tasks find Lakebed where this process does."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2,4]", "--driver-memory", "512m"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (tmp_path_factory.mktemp("connect") / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log)

    def listens() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, while_runs=process)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_import_and_compaction_run_on_a_connect_server(server: str, tmp_path: Path) -> None:
    """CSV is a DataFrame on its way, and is staged; what was staged is Parquet for the shuffle."""
    table = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    pa.csv.write_csv(ROWS, tmp_path / "in.csv")
    table.write(ROWS)

    commands = [["import", "t", str(tmp_path / "in.csv"), "--format", "csv"], ["compact", "t", "--strategy", "full"]]
    program = "import json, sys; from lakebed.cli import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    process = subprocess.run(
        [sys.executable, "-c", program, json.dumps([[*words, "--master", server, "--json"] for words in commands])],
        env=os.environ | {"LAKEBED_INSTANCE": str(tmp_path / "lake"), "JAVA_HOME": "/nowhere", "PATH": "/nowhere"},
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    imported, end = json.JSONDecoder().raw_decode(process.stdout)
    assert imported["rows"] == 3000
    assert json.loads(process.stdout[end:])["partitions"] == 1
    assert sorted(table.scan().read_all()["n"].to_pylist()) == sorted([*range(3000), *range(3000)])


def test_an_interrupted_import_cancels_its_jobs_on_the_server_and_says_what_it_committed(
    server: str, tmp_path: Path
) -> None:
    table = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    table.set(page_rows=1000)
    # Large enough that the import cannot be at its commit when the signal comes.
    pq.write_table(pa.concat_tables([ROWS] * 2000), tmp_path / "in.parquet")
    process = subprocess.Popen(
        [sys.executable, "-m", "lakebed.cli", "import", "t", "in.parquet", "--master", server],
        env=os.environ | {"LAKEBED_INSTANCE": str(tmp_path / "lake")},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    while "Starting Spark" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=TIMEOUT_S)[1]
    assert process.returncode == 130, said + rest
    assert rest.endswith("lakebed: stopping …; again to stop hard\nlakebed: interrupted: nothing was committed\n")
    assert table.state().version == 2
    assert "Traceback" not in rest


def test_a_server_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CONNECT_S", 1)
    with pytest.raises(lakebed.UsageError, match=r"sc://127\.0\.0\.1:1 \(no answer in 1 s\)"):
        Remote("sc://127.0.0.1:1").start()
