"""What a new user does first, from the built wheel: `make test-walks`."""

from __future__ import annotations

import re
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


COMFORTS = """
import builtins, dataclasses, datetime as dt, json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pydantic

before = dict(globals())
from lakebed import *
shadowed = [name for name in globals() if name in before and globals()[name] is not before[name] and name != "before"]
assert not shadowed and open is builtins.open and not [n for n in globals() if n not in before and hasattr(builtins, n)]
import lakebed


@dataclasses.dataclass
class Reading:
    sensor: str
    at: dt.datetime
    celsius: float | None


class Model(pydantic.BaseModel):
    sensor: str
    at: dt.datetime
    celsius: float | None


def first(table):
    return table.get("a")["celsius"].to_pylist()


def main():
    lake = lakebed.create("lake", exist_ok=True)
    assert lakebed.create("lake", exist_ok=True).tables() == []
    types = {"sensor": "string", "at": "timestamp[us]", "celsius": "double"}
    arrow = pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us")), ("celsius", pa.float64())])
    made = [Schema.of(source, key="sensor", sort_key="at") for source in (types, Reading, Model, arrow)]
    print([schema.names for schema in made] == [made[0].names] * 4, [str(f.type) for f in made[1].fields])
    assert Schema.from_json(json.loads(json.dumps(made[0].to_json()))) == made[0]
    table = lake.create_table("readings", made[0], if_not_exists=True)
    assert lake.create_table("readings", made[0], if_not_exists=True).id == table.id
    assert "readings" in lake and "nothing" not in lake and list(lake) == ["readings"] and len(lake) == 1
    lake["readings"].write([Reading("a", dt.datetime(2026, 1, 31), 3.5)])
    lake["readings"].write([{"sensor": "a", "at": dt.datetime(2026, 2, 1), "celsius": None}], commit_id="one")
    lake["readings"].write({"sensor": ["b"], "at": [dt.datetime(2026, 2, 1)], "celsius": [4.5]})
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        print([pool.submit(first, one).result() for one in (table, table.snapshot(), table.at(version=2))])
    print(lake.sql("SELECT count(*) AS n FROM readings WHERE sensor = ?", parameters=["a"]).to_arrow().to_pylist())
    try:
        connect("http://localhost:1")
    except UsageError as error:
        print(error)


if __name__ == "__main__":
    main()
"""


def test_the_comforts_of_python(installed, tmp_path):
    environment = Environment(installed(others=["pydantic"]), tmp_path)
    (environment.work / "comforts.py").write_text(COMFORTS, "utf-8")
    schemas, workers, counted, refused = environment.run("python", "comforts.py").splitlines()
    assert schemas == "True ['string', 'timestamp[us]', 'double']"
    assert workers == "[[3.5, None], [3.5, None], [3.5]]"
    assert counted == "[{'n': 2}]"
    assert "lakebed[client]" in refused


def test_the_tutorial_from_beginning_to_end(installed, tmp_path):
    """With what the page installs: no Spark, and the pandas of today."""
    (command,) = pages.blocks("docs/tutorial.md", "sh")
    others = re.search(r"pip install lakebed ([\w ]+)", command.text)[1].split()
    environment = Environment(installed(others=others), tmp_path)
    blocks = [block.text.replace("/tmp/lake", "lake") for block in pages.blocks("docs/tutorial.md", "python")]
    (environment.work / "tutorial.py").write_text("\n".join(blocks) + "\nprint(flights.count())\n", "utf-8")
    assert "336776" in environment.run("python", "tutorial.py")
    shown = environment.run("lakebed", "--instance", "lake", "maintain", "--all", "--in-process")
    assert "flights" in shown
    assert "N14228" in environment.run("lakebed", "--instance", "lake", "get", "flights", "N14228")


def test_a_first_table_in_the_shell(environment):
    """One attempt: the table is made of the file."""
    instance = {"LAKEBED_INSTANCE": str(environment.work / "lake")}
    (environment.work / "users.csv").write_text("id,name,since\n2,bob,2024-05-01\n1,ann,2023-02-28\n", "utf-8")
    environment.run("lakebed", "init", **instance)
    assert "since date32" in environment.run("lakebed", "write", "users", "users.csv", "--key", "id", **instance)
    shown = environment.run("lakebed", "get", "users", "2", **instance)
    assert shown.split() == ["id", "name", "since", "2", "bob", "2024-05-01"]
    more = "id,name,since\n3,eve,2025-01-01\n"
    environment.run("lakebed", "write", "users", "-", "--format", "csv", stdin=more, **instance)
    assert "3 rows" in environment.run("lakebed", "table", "show", "users", **instance)
    counted = environment.run("lakebed", "sql", "SELECT count(*) AS n FROM users", "--format", "csv", **instance)
    assert counted.split() == ["n", "3"]
    environment.run("lakebed", "maintain", "--all", "--in-process", "--workers", "1", **instance)
    environment.run("lakebed", "restore", "users", "--to", "2", "--yes", **instance)
    assert environment.run("lakebed", "count", "users", **instance).split()[0] == "2"
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
        (environment.work / "ids.csv").write_text("id\n7\n", "utf-8")
        environment.run("lakebed", "write", "t", "ids.csv", "--key", "id", **store)
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
from lakebed import Pipeline
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
