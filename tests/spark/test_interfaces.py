"""One table through all interfaces: curl writes it; curl, ADBC, DuckDB, Spark, the client and the library read it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi

import lakebed

SCHEMA = lakebed.Schema({"place": "string", "n": "int64"}, {}, {"x": "double", "day": "date32"})
COUNT = 5_000
QUERY = "SELECT place, n, x, day FROM readings ORDER BY place, n"


def made():
    numbers = pa.array(range(COUNT))
    days = pa.array([n % 365 for n in range(COUNT)], pa.int32()).cast(pa.date32())
    values = pa.array([None if n % 7 == 0 else n / 8 for n in range(COUNT)], pa.float64())
    places = pa.array([f"place {n % 13:02}" for n in range(COUNT)])
    table = pa.table([places, numbers, values, days], names=["place", "n", "x", "day"])
    return table.take(pa.array([(n * 7919) % COUNT for n in range(COUNT)]))


EXPECTED = made().sort_by([("place", "ascending"), ("n", "ascending")])


@pytest.fixture(scope="module")
def interfaces(tmp_path_factory):
    """``lakebed serve`` with both interfaces, and the table, written by curl."""
    folder = tmp_path_factory.mktemp("interfaces")
    lake = lakebed.create(str(folder / "lake"))
    command = [sys.executable, "-m", "lakebed.cli", "--instance", str(folder / "lake"), "serve"]
    process = subprocess.Popen([*command, "--port", "0", "--flight-port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        found = {}
        for line in process.stderr:
            for name, pattern in (("flight", r"Flight SQL at (\S+)"), ("http", r"serving .* at (http://\S+)")):
                if match := re.search(pattern, line):
                    found[name] = match[1]
            if len(found) == 2:
                break
        names = SimpleNamespace(lake=lake, **found)
        curl("-X", "POST", f"{names.http}/v1/tables", body={"name": "readings", "schema": SCHEMA.to_json()})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, EXPECTED.schema) as stream:
            stream.write_table(made(), max_chunksize=1_000)
        header = "Content-Type: application/vnd.apache.arrow.stream"
        address = f"{names.http}/v1/tables/readings/rows?commit_id=first"
        written = json.loads(curl("-X", "POST", "-H", header, "--data-binary", "@-", address, given=sink.getvalue()))
        assert written["version"] == lake.table("readings").state().version
        yield names
    finally:
        process.terminate()
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def curl(*words, body=None, given=None):
    if body is not None:
        words = ("-H", "Content-Type: application/json", "--data", json.dumps(body), *words)
    command = ["curl", "--silent", "--show-error", "--fail", *words]
    done = subprocess.run(command, check=False, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def same(found):
    table = found.select(EXPECTED.schema.names).cast(EXPECTED.schema).combine_chunks()
    assert table.equals(EXPECTED.combine_chunks())


def test_curl_reads_the_rows_that_curl_wrote(interfaces):
    data = curl("-H", "Accept: application/vnd.apache.arrow.stream", f"{interfaces.http}/v1/tables/readings/scan")
    same(pa.ipc.open_stream(data).read_all())
    lines = curl(f"{interfaces.http}/v1/tables/readings/scan?prefix=place%2003&limit=2").splitlines()
    first = [row for row in EXPECTED.to_pylist() if row["place"] == "place 03"][:2]
    assert [json.loads(line) for line in lines] == [{**row, "day": row["day"].isoformat()} for row in first]


def test_the_library_reads_them(interfaces):
    same(lakebed.open(interfaces.lake.url).table("readings").scan().read_all())


def test_the_python_client_reads_them(interfaces):
    with lakebed.connect(interfaces.http) as lake:
        same(lake.table("readings").scan().read_all())
        same(lake.sql(QUERY).read_all())
        keys = EXPECTED.select(["place", "n"]).slice(100, 50)
        assert lake.table("readings").get_many(keys).cast(EXPECTED.schema).equals(EXPECTED.slice(100, 50))


def test_adbc_reads_them(interfaces):
    with dbapi.connect(interfaces.flight, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(QUERY)
        same(cursor.fetch_arrow_table())


def test_duckdb_reads_them(interfaces):
    with duckdb.connect() as database:
        found = interfaces.lake.table("readings").to_duckdb(connection=database).order("place, n")
        same(found.to_arrow_table())
        # The same through the service, without access to its files.
        with dbapi.connect(interfaces.flight, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM readings")
            rows = cursor.fetch_record_batch()  # noqa: F841 - DuckDB finds it by its name
            same(database.execute("SELECT * FROM rows ORDER BY place, n").to_arrow_table())


def test_spark_reads_them(interfaces, spark):
    options = {"instance": interfaces.lake.url, "table": "readings"}
    same(spark.read.format("lakebed").options(**options).load().orderBy("place", "n").toArrow())


def test_rows_written_through_one_interface_are_read_at_once_through_the_others(interfaces):
    interfaces.lake.create_table("more", SCHEMA)
    more = pa.table({"place": ["zz"], "n": [1]})
    with dbapi.connect(interfaces.flight, autocommit=True) as connection, connection.cursor() as cursor:
        for _ in range(2):
            cursor.adbc_ingest("more", more.replace_schema_metadata({"lakebed.commit_id": "more"}), mode="append")
        cursor.execute("SELECT n FROM more WHERE place = 'zz'")
        assert cursor.fetch_arrow_table()["n"].to_pylist() == [1]
    with lakebed.connect(interfaces.http) as lake:
        assert lake.table("more").get("zz", 1).num_rows == 1
    found = curl(f"{interfaces.http}/v1/tables/more/get?key=zz&key=1")
    assert json.loads(found) == {"place": "zz", "n": 1, "x": None, "day": None}
    assert interfaces.lake.table("more").count(exact=True).rows == 1
