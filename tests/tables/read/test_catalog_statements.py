"""Statements about tables: what there is, what it is made of, and what writes instead."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import NotFoundError, Schema, UsageError
from lakebed.clock import random_token


@pytest.fixture(scope="module")
def lake():
    made = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "string"}, {"n": "int64"}, {"x": "double", 'Odd "name"': pa.list_(pa.int64())})
    rows = {"k": ["a", "a", "b"], "n": [1, 2, 3], "x": [1.5, None, 2.5], 'Odd "name"': [[1], None, []]}
    made.create_table("flights", schema).write(pa.table(rows))
    made.create_table("my-table", Schema({"id": "binary"}))
    return made


def rows(lake, statement):
    return lake.sql(statement).to_arrow().to_pylist()


@pytest.mark.parametrize("statement", ["SHOW TABLES", "show tables;", " SHOW /* all */ TABLES ; "])
def test_show_tables(lake, statement):
    assert rows(lake, statement) == [{"table_name": "flights"}, {"table_name": "my-table"}]


FIELDS = [
    ("k", "string", "NO", "row key"),
    ("n", "int64", "NO", "sort key"),
    ("x", "double", "YES", None),
    ('Odd "name"', "list<int64>", "YES", None),
]


@pytest.mark.parametrize(
    "statement",
    [
        "DESCRIBE flights",
        "desc flights;",
        'DESCRIBE TABLE "flights"',
        "SHOW COLUMNS FROM flights",
        "describe flights@2",
    ],
)
def test_describe(lake, statement):
    assert [tuple(row.values()) for row in rows(lake, statement)] == FIELDS


def test_the_engine_describes_queries(lake):
    assert rows(lake, "DESCRIBE SELECT n FROM flights")[0]["column_name"] == "n"


def test_summarize(lake):
    found = {row["column_name"]: row for row in rows(lake, "SUMMARIZE flights")}
    assert list(found) == [name for name, *_ in FIELDS]
    x = found["x"]
    assert (x["min"], x["max"], x["approx_unique"], x["avg"], x["count"]) == ("1.5", "2.5", 2, 2.0, 3)
    assert x["null_percentage"] == pytest.approx(33.33)
    assert (found["k"]["min"], found["k"]["max"], found["k"]["avg"]) == ("a", "b", None)
    assert rows(lake, "SUMMARIZE SELECT k FROM flights WHERE n > 1")[0]["count"] == 2
    assert rows(lake, "SUMMARIZE SELECT 1")[0]["max"] == "1"
    empty = rows(lake, 'SUMMARIZE "my-table"')[0]
    assert (empty["count"], empty["min"], empty["null_percentage"]) == (0, None, None)


EXTREMES = {
    "date32": ([-(2**31), 2932897], ["-5877641-06-23", "+10000-01-01"]),
    "timestamp[s]": ([-(10**12), 10**12], ["-29719-04-05 22:13:20", "+33658-09-27 01:46:40"]),
    "timestamp[ms]": ([500, 1500], ["1970-01-01 00:00:00.500", "1970-01-01 00:00:01.500"]),
    "timestamp[us, tz=UTC]": ([-(2**62), 0], ["-144169-06-28 09:59:32.612096Z", "1970-01-01 00:00:00Z"]),
    "timestamp[ns]": ([0, 1], ["1970-01-01 00:00:00", "1970-01-01 00:00:00.000000001"]),
    "timestamp[ns, tz=Europe/Berlin]": ([-1, 10**9], ["1969-12-31 23:59:59.999999999Z", "1970-01-01 00:00:01Z"]),
    "time64[ns]": ([1, 10**9], ["00:00:00.000000001", "00:00:01"]),
    "time32[s]": ([0, 86399], ["00:00:00", "23:59:59"]),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_a_summary_has_times_that_python_has_not(kind):
    numbers, texts = EXTREMES[kind]
    lake = lakebed.create(f"memory://{random_token()}")
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": kind}))
    wanted = table.schema.arrow.field("v").type
    stored = pa.array(numbers, pa.int32() if wanted.bit_width == 32 else pa.int64())
    table.write(pa.table({"k": [1, 2], "v": stored.view(wanted)}))
    (found,) = rows(lake, "SUMMARIZE SELECT v FROM t")
    assert [found["min"], found["max"], found["approx_unique"], found["count"]] == [*texts, 2, 2]


def test_a_summary_has_durations():
    lake = lakebed.create(f"memory://{random_token()}")
    (found,) = rows(lake, "SUMMARIZE SELECT arrow_cast(9223372036854775807, 'Duration(Second)') AS d")
    assert found["max"] == "9223372036854775807 s"


def test_information_schema(lake):
    tables = rows(lake, "SELECT table_name, table_type FROM information_schema.tables ORDER BY table_name")
    assert tables == [{"table_name": name, "table_type": "BASE TABLE"} for name in ("flights", "my-table")]
    columns = (
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'flights' ORDER BY ordinal_position"
    )
    assert [row["column_name"] for row in rows(lake, columns)] == [name for name, *_ in FIELDS]
    # A table may have the name of one of them.
    lake.create_table("columns", Schema({"k": "string"})).write(pa.table({"k": ["flights"]}))
    joined = "SELECT count(*) AS n FROM information_schema.columns c JOIN columns o ON k = table_name WHERE k > 'a'"
    assert rows(lake, joined) == [{"n": 4}]
    lake.drop_table("columns")


def test_information_schema_tells_tables_from_views_and_indexes():
    lake = lakebed.create(f"memory://{random_token()}")
    lake.create_table("flights", Schema({"k": "string"}, values={"n": "int64"}))
    lake.create_index("by_n", table="flights", on=["n"])
    lake.create_view_table("large", source="flights", select="SELECT k, n FROM source WHERE n > 1", row_key=["k"])
    types = rows(lake, "SELECT table_name, table_type FROM information_schema.tables ORDER BY table_name")
    assert [tuple(row.values()) for row in types] == [("by_n", "INDEX"), ("flights", "BASE TABLE"), ("large", "VIEW")]


def test_explain_and_explain_analyze_are_the_engines(lake):
    assert {row["plan_type"] for row in rows(lake, "EXPLAIN SELECT * FROM flights")} == {
        "logical_plan",
        "physical_plan",
    }
    assert "output_rows=2" in rows(lake, "EXPLAIN ANALYZE SELECT * FROM flights WHERE k = 'a'")[0]["plan"]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("INSERT INTO flights VALUES ('a')", "INSERT changes tables: run it with Instance.execute"),
        ("update flights set n = 1", "UPDATE changes tables: run it with Instance.execute"),
        ("-- all\nDELETE FROM flights", "DELETE changes tables: run it with Instance.execute"),
        ("CREATE TABLE t (a int)", "CREATE changes tables: run it with Instance.execute"),
        ("DROP TABLE flights", "DROP changes tables: run it with Instance.execute"),
        ("ALTER TABLE flights ADD COLUMN y int", "ALTER changes tables: run it with Instance.execute"),
        ("COPY flights TO 'x.csv'", "not COPY: use `lakebed export`"),
        ("BEGIN", "not BEGIN: a statement is a commit of its own"),
        ("SHOW ALL", "of SHOW there are SHOW TABLES and SHOW COLUMNS FROM"),
    ],
)
def test_a_statement_that_does_more_is_refused_with_what_does_it(lake, statement, says):
    with pytest.raises(UsageError) as caught:
        lake.sql(statement)
    assert says in str(caught.value)


@pytest.mark.parametrize("statement", ["DESCRIBE nowhere", "SUMMARIZE nowhere", "SHOW COLUMNS FROM nowhere"])
def test_a_table_that_is_not_there_is_refused_with_those_that_are(lake, statement):
    with pytest.raises(NotFoundError, match="no table named 'nowhere'; the instance's tables: flights, my-table"):
        lake.sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM flights VERSION AS OF 2",
        "SELECT * FROM flights TIMESTAMP as  of '2026-01-01'",
        "SELECT * FROM flights FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00' WHERE n = 1",
    ],
)
def test_versions_named_as_elsewhere_are_refused_with_how_they_are_named_here(lake, statement):
    with pytest.raises(UsageError, match=r'named with an @, in place of AS OF: FROM flights@12, .*"flights@2026-'):
        lake.sql(statement)


def test_as_of_may_be_text_or_a_name(lake):
    assert rows(lake, "SELECT n AS of FROM flights@2 WHERE k <> 'as of 2' ORDER BY n LIMIT 1") == [{"of": 1}]


def test_the_history_of_a_table_is_not_described(lake):
    with pytest.raises(UsageError, match=r"use Table.history \(`lakebed history`\)"):
        lake.sql("DESCRIBE HISTORY flights")
