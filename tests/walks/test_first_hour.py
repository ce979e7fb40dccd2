"""What a new user does first, from the built wheel: `make test-walks`."""

from __future__ import annotations

import json
import shutil

import pytest
from moto.server import ThreadedMotoServer

from tests import pages
from tests.walks.conftest import Environment


def test_the_wheel_alone_runs_the_example_of_the_readme(environment):
    (example,) = pages.blocks("README.md", "python")
    program = example.replace(("/tmp/lake", "lake")).text
    program += "\nprint(lakebed.__file__)\nprint(flights.get('N14228').to_pylist())"
    home, rows = environment.run("python", "-c", program).splitlines()
    assert home.startswith(str(environment.folder))
    assert rows == "[{'tailnum': 'N14228', 'at': 2, 'origin': 'EWR'}]"
    missing = "import importlib.util as u; print([m for m in ('pandas', 'pyspark', 'boto3') if u.find_spec(m)])"
    assert environment.run("python", "-c", missing) == "[]\n"


def test_a_first_table_in_the_shell(environment):
    instance = {"LAKEBED_INSTANCE": str(environment.work / "lake")}
    (environment.work / "users.csv").write_text("id,name\n2,bob\n1,ann\n", "utf-8")
    (environment.work / "schema.json").write_text(
        json.dumps({"row_key": {"id": "int64"}, "values": {"name": "string"}}), "utf-8"
    )
    environment.run("lakebed", "init", **instance)
    environment.run("lakebed", "table", "create", "users", "--schema", "schema.json", **instance)
    environment.run("lakebed", "write", "users", "users.csv", **instance)
    assert environment.run("lakebed", "get", "users", "2", **instance).split() == ["id", "name", "2", "bob"]
    assert "2 rows" in environment.run("lakebed", "table", "show", "users", **instance)
    environment.run("lakebed", "maintain", "--once", "--in-process", "--workers", "1", **instance)
    assert "create if absent" in environment.run("lakebed", "doctor", **instance)
    assert environment.run("lakebed", "docs", "tutorial").startswith("# Tutorial")


def test_a_table_on_s3(environment):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = {
            "LAKEBED_INSTANCE": "s3://bucket/lake",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        make = "import urllib.request as u; u.urlopen(u.Request('{}/bucket', method='PUT'))".format(
            store["AWS_ENDPOINT_URL"]
        )
        environment.run("python", "-c", make)
        environment.run("lakebed", "init", **store)
        assert "create if absent" in environment.run("lakebed", "doctor", **store)
        (environment.work / "schema.json").write_text('{"row_key": {"id": "int64"}}', "utf-8")
        (environment.work / "ids.csv").write_text("id\n7\n", "utf-8")
        environment.run("lakebed", "table", "create", "t", "--schema", "schema.json", **store)
        environment.run("lakebed", "write", "t", "ids.csv", **store)
        assert environment.run("lakebed", "scan", "t", **store).split() == ["id", "7"]
    finally:
        server.stop()


def without_java(folder):
    """A PATH with the programs that Spark's scripts need, and no Java."""
    folder.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "nice", "cat", "grep", "sed", "uname", "mktemp", "rm", "id"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return str(folder)


SPARK = """
import lakebed, pyarrow as pa, pyarrow.parquet as pq
import lakebed.spark.java_runtime as java_runtime
java_runtime._JAVA_HOMES = ()  # where the system has its own
from lakebed.spark import Pipeline
pq.write_table(pa.table({"k": [3, 1, 2]}), "rows.parquet")
lake = lakebed.create("lake")
lake.create_table("t", lakebed.Schema({"k": "int64"}))
with Pipeline(lake, launcher="local[1]") as pipeline:
    print(pipeline.bulk_import("t", "rows.parquet").rows, pipeline.session._jvm.System.getProperty("java.home"))
print(lake.table("t").to_arrow()["k"].to_pylist())
"""


@pytest.mark.spark
def test_an_import_on_spark_where_the_system_has_no_java(installed, tmp_path):
    environment = Environment(installed("spark", "java"), tmp_path)
    path = without_java(tmp_path / "bin")
    imported, rows = environment.run("python", "-c", SPARK, PATH=path, JAVA_HOME="").splitlines()
    count, home = imported.split()
    assert (count, rows) == ("3", "[1, 2, 3]")
    assert home.startswith(str(environment.folder))
