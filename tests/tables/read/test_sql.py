"""SQL over tables: the answers that plain lists give, from no more than the keys asked for; and nothing but reads."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pytest
from datafusion import DataFrame
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import KeyRange, Schema
from lakebed.clock import random_token
from lakebed.errors import Code, Error, NotFoundError, UsageError
from lakebed.read.rows.row_stream import RowStream
from lakebed.read.sql.query import SqlEngine
from tests.raising import raises
from tests.tables.cases import compact

FLIGHTS = Schema(row_key={"tailnum": "string", "at": "int64"}, values={"origin": "string", "delay": "int32"})


def memory_lake():
    return lakebed.create(f"memory://{random_token()}")


def flight(tailnum, at, origin="EWR", delay=None):
    return {"tailnum": tailnum, "at": at, "origin": origin, "delay": delay}


def rows(*records, schema=FLIGHTS):
    return pa.Table.from_pylist(list(records), schema=schema.arrow)


@pytest.fixture
def flights(memory_lake):
    table = memory_lake.create_table("flights", FLIGHTS, split_points=["N3"])
    table.write(rows(flight("N1", 1, delay=5), flight("N2", 2, "LGA"), flight("N5", 3)))
    table.write(rows(flight("N1", 4, "JFK"), flight("N2", 5), flight("N9", 6, "LGA", -3)))
    return table


def answer(lake, statement):
    return lake.sql(statement).read_all().to_pylist()


@pytest.fixture
def wide(memory_lake):
    over_files(memory_lake)


def over_files(lake):
    """Every statement is run over files, as with more rows than are read into memory."""
    lake.sql_engine()[0].in_memory_rows = 0


@pytest.fixture
def through(request):
    if request.param == "files":
        request.getfixturevalue("wide")


# -- answers ----------------------------------------------------------------------------------------------------


def test_a_query_gives_arrow_rows_of_the_tables_types(memory_lake, flights):
    found = memory_lake.sql("SELECT * FROM flights WHERE tailnum = 'N1' ORDER BY at")
    assert isinstance(found, RowStream)
    assert found.read_all().equals(rows(flight("N1", 1, delay=5), flight("N1", 4, "JFK")))


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("SELECT count(*) AS n FROM flights", [{"n": 6}]),
        ("SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin ORDER BY origin",
         [{"origin": "EWR", "n": 3}, {"origin": "JFK", "n": 1}, {"origin": "LGA", "n": 2}]),
        ("SELECT at FROM flights WHERE tailnum LIKE 'N%' AND at > 2.5 AND delay IS NULL ORDER BY at DESC LIMIT 2",
         [{"at": 5}, {"at": 4}]),
        ("SELECT count(delay) AS n FROM flights WHERE tailnum IN ('N1', 'N9')", [{"n": 2}]),
        ("SELECT a.at x, b.at y FROM flights a JOIN flights b USING (tailnum) WHERE a.tailnum='N2' AND a.at < b.at",
         [{"x": 2, "y": 5}]),
        ("SELECT at FROM flights WHERE tailnum = (SELECT max(tailnum) FROM flights)", [{"at": 6}]),
        ("WITH late AS (SELECT * FROM flights WHERE tailnum > 'N4') SELECT count(*) AS n FROM late", [{"n": 2}]),
        ("SELECT at FROM flights WHERE tailnum = 'N1' UNION ALL SELECT at FROM flights WHERE tailnum = 'N9' ORDER BY 1",
         [{"at": 1}, {"at": 4}, {"at": 6}]),
        ("SELECT flights.at FROM flights WHERE flights.tailnum = 'N9' AND 1 = 2", []),
        ("SELECT tailnum, rank() OVER (ORDER BY at DESC) n FROM flights WHERE tailnum BETWEEN 'N5' AND 'N9' ORDER BY n",
         [{"tailnum": "N9", "n": 1}, {"tailnum": "N5", "n": 2}]),
        ("SELECT 1 + 1 AS two", [{"two": 2}]),
        ("SELECT value FROM range(2)", [{"value": 0}, {"value": 1}]),
        ("SELECT count(*) AS n FROM (SELECT tailnum, at FROM flights LIMIT 4)", [{"n": 4}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("through", ["memory", "files"], indirect=True)
def test_a_query_is_answered_the_same_from_memory_and_from_files(memory_lake, flights, statement, wanted, through):
    assert answer(memory_lake, statement) == wanted


def test_several_tables_are_joined(memory_lake, flights):
    planes = memory_lake.create_table("planes", Schema(row_key={"tailnum": "string"}, values={"seats": "int64"}))
    planes.write(pa.table({"tailnum": ["N1", "N2"], "seats": [50, 180]}))
    found = answer(
        memory_lake,
        "SELECT at, seats FROM flights JOIN planes ON flights.tailnum = planes.tailnum WHERE seats > 100 ORDER BY at",
    )
    assert found == [{"at": 2, "seats": 180}, {"at": 5, "seats": 180}]


def test_names_are_taken_as_they_are_written(memory_lake):
    schema = Schema(row_key={"Key": "int64"}, values={"some.value": "int64"})
    memory_lake.create_table("My-Table", schema).write(pa.table({"Key": [1], "some.value": [2]}))
    assert answer(memory_lake, 'SELECT Key, "some.value" FROM "My-Table" WHERE Key = 1') == [
        {"Key": 1, "some.value": 2}
    ]
    with pytest.raises(UsageError, match=r"No field named key.*My-Table"):
        memory_lake.sql('SELECT key FROM "My-Table"')


def test_rows_that_were_merged_away_or_removed_do_not_come_back(memory_lake, flights, wide):
    flights.remove(KeyRange.prefix("N2"), KeyRange(("N9",), ("N9", 7)))
    assert answer(memory_lake, "SELECT tailnum, at FROM flights ORDER BY at") == [
        {"tailnum": "N1", "at": 1}, {"tailnum": "N5", "at": 3}, {"tailnum": "N1", "at": 4},
    ]  # fmt: skip


def test_files_of_older_schemas_are_read_as_the_newest_has_their_rows(memory_lake, flights, wide):
    flights.alter(
        lakebed.RenameField("delay", "late"), lakebed.AddField("gate", "string"), lakebed.WidenField("late", "int64")
    )
    flights.write(pa.table({"tailnum": ["N1"], "at": [9], "origin": ["EWR"], "late": [2**40], "gate": ["B1"]}))
    assert answer(memory_lake, "SELECT at, late, gate FROM flights WHERE tailnum = 'N1' ORDER BY at") == [
        {"at": 1, "late": 5, "gate": None},
        {"at": 4, "late": None, "gate": None},
        {"at": 9, "late": 2**40, "gate": "B1"},
    ]  # fmt: skip


def test_seconds_which_parquet_does_not_know_stay_seconds(memory_lake, wide):
    table = memory_lake.create_table("t", Schema(row_key={"s": "timestamp[s, tz=UTC]"}, values={"v": "int64"}))
    table.write(pa.table({"s": pa.array([5, 6], pa.timestamp("s", "UTC")), "v": [1, 2]}))
    found = memory_lake.sql("SELECT s FROM t WHERE s > '1970-01-01T00:00:05Z'").read_all()
    assert found.schema.field("s").type == pa.timestamp("s", "UTC")
    assert found.to_pylist() == [{"s": dt.datetime(1970, 1, 1, 0, 0, 6, tzinfo=dt.UTC)}]


def test_an_empty_table_has_no_rows(memory_lake):
    memory_lake.create_table("t", FLIGHTS)
    assert answer(memory_lake, "SELECT * FROM t") == []
    assert answer(memory_lake, "SELECT count(*) AS n FROM t WHERE tailnum = 'x'") == [{"n": 0}]


def test_a_root_that_the_engine_cannot_read_is_queried_too():
    lake = memory_lake()
    over_files(lake)
    lake.create_table("t", FLIGHTS).write(rows(flight("N1", 1), flight("N2", 2)))
    assert answer(lake, "SELECT count(*) AS n FROM t") == [{"n": 2}]


# -- as it was --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["memory", "files"], indirect=True)
def test_a_table_is_read_as_it_was(memory_lake, flights, through):
    flights.tag("first", 2)
    first = [{"n": 3}]
    assert answer(memory_lake, "SELECT count(*) AS n FROM flights@2") == first
    assert answer(memory_lake, 'SELECT count(*) AS n FROM "flights@2"') == first
    assert answer(memory_lake, "SELECT count(*) AS n FROM flights@first") == first
    assert answer(memory_lake, "SELECT count(*) AS n FROM flights") == [{"n": 6}]
    new = "SELECT f.at FROM flights f LEFT ANTI JOIN flights@2 b ON f.at = b.at WHERE f.tailnum = 'N1'"
    assert answer(memory_lake, new) == [{"at": 4}]
    for named, column in [("flights@2", '"flights@2".at'), ("flights@2 AS flights", "flights.at")]:
        assert answer(memory_lake, f"SELECT {column} FROM {named} WHERE tailnum = 'N5'") == [{"at": 3}]


def test_a_table_is_read_as_of_a_time(memory_lake, flights):
    moment = dt.datetime.now(dt.UTC).isoformat()
    assert answer(memory_lake, f'SELECT count(*) AS n FROM "flights@{moment}"') == [{"n": 6}]


def test_a_moment_that_is_not_there_is_an_error(memory_lake, flights):
    with pytest.raises(NotFoundError, match="version 99 does not exist"):
        memory_lake.sql("SELECT * FROM flights@99")
    with pytest.raises(NotFoundError, match="no tag 'x'"):
        memory_lake.sql("SELECT * FROM flights@x")
    with pytest.raises(UsageError, match="time zone"):
        memory_lake.sql('SELECT * FROM "flights@2026-01-31T12:00:00"')


@pytest.mark.parametrize("name", ["planes", "planes@2", '"planes@2026-01-31T12:00:00Z"'])
def test_a_table_that_is_not_there_was_not_there_either(memory_lake, flights, name):
    with pytest.raises(NotFoundError, match="no table named 'planes'; the instance's tables: flights"):
        memory_lake.sql(f"SELECT * FROM {name}")


@pytest.mark.parametrize("name", ["planes.flights", '"planes".flights@2'])
def test_tables_are_in_no_other_schema(memory_lake, flights, name):
    with pytest.raises(NotFoundError, match=r"no table named 'planes\.flights"):
        memory_lake.sql(f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    "clause", ["AT (VERSION => 2)", "at(tag => 'x')", "AT (TIMESTAMP => '2026-01-31T12:00:00Z') f"]
)
def test_the_clause_of_earlier_versions_is_an_error_with_the_name_to_write(memory_lake, flights, clause):
    with pytest.raises(UsageError, match='"flights@12", "flights@audited" or "flights@2026-01-31T12:00:00Z"'):
        memory_lake.sql(f"SELECT * FROM flights {clause}")


@pytest.mark.parametrize(
    ("clause", "says"),
    [
        ("TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not supported: use LIMIT"),
        ("Tablesample(10 percent) CROSS JOIN (SELECT 1)", "TABLESAMPLE is not supported"),
        ("f SAMPLE (10)", "SAMPLE"),
        ("PREWHERE tail = 'a'", "PREWHERE is not supported: write WHERE"),
        ("START WITH tail = 'a' CONNECT BY tail = tail", "START WITH is not supported"),
        ("connect /* it */ by tail = tail", "CONNECT BY is not supported: write WITH RECURSIVE"),
        ("PARTITION (p0)", "PARTITION"),
        ("GROUP BY tail WITH ROLLUP", "WITH ROLLUP is not supported: write GROUP BY ROLLUP"),
        ("GROUP BY tail with\ncube", "WITH CUBE is not supported: write GROUP BY CUBE"),
        ("GROUP BY tail WITH TOTALS", "WITH TOTALS"),
    ],
)
def test_a_clause_that_the_engine_would_overlook_is_refused(memory_lake, flights, clause, says):
    for statement in (
        f"SELECT count(*) AS n FROM flights {clause}",
        f"SELECT * FROM (SELECT count(*) AS n FROM flights {clause})",
        f"WITH q AS (SELECT count(*) AS n FROM flights {clause}) SELECT * FROM q",
        f"SELECT * ILIKE 'n' FROM flights {clause}",
    ):
        with pytest.raises(UsageError, match=re.escape(says) if "ILIKE" not in statement else "is not supported"):
            memory_lake.sql(statement)
    with pytest.raises(UsageError, match=re.escape(says)):
        memory_lake.create_view_table(
            "v", source="flights", select=f"SELECT tail, count(*) AS n FROM source {clause}", row_key=["tail"]
        )


@pytest.mark.parametrize("beside", ["json", "uuid", "int64", "string", "dictionary<string>", "decimal(40, 2)"])
def test_members_of_structs_are_aggregated_beside_columns_of_every_type(memory_lake, beside):
    table = memory_lake.create_table("structs", Schema({"k": "int64"}, values={"v": beside, "s": "struct<a: int64>"}))
    table.write([{"k": k, "s": None if k == 2 else {"a": k % 2}} for k in range(4)])
    assert answer(memory_lake, "SELECT count(s['a']) AS n, max(s['a']) AS a FROM structs") == [{"n": 3, "a": 1}]
    grouped = answer(memory_lake, "SELECT s['a'] AS a, count(*) AS n FROM structs GROUP BY s['a'] ORDER BY a")
    assert grouped == [{"a": 0, "n": 1}, {"a": 1, "n": 2}, {"a": None, "n": 1}]
    joined = "SELECT x.k FROM structs x JOIN structs y ON x.s['a'] = y.k ORDER BY 1"
    assert answer(memory_lake, joined) == [{"k": 0}, {"k": 1}, {"k": 3}]


def test_words_of_clauses_may_be_names_of_queries(memory_lake, flights):
    for statement in (
        "WITH cube AS (SELECT 1 AS a) SELECT a FROM cube",
        "WITH rollup (a) AS (SELECT 1) SELECT a FROM rollup",
        "WITH sample (a) AS (SELECT 1) SELECT a FROM sample",
        'SELECT "prewhere" AS a FROM (SELECT 1 AS "prewhere")',
        "SELECT count(*) OVER (PARTITION BY 1) AS a",
        "SELECT a FROM (SELECT 1 AS a) WHERE 'x' ILIKE 'X'",
    ):
        assert answer(memory_lake, statement) == [{"a": 1}]


def test_words_in_texts_and_comments_mean_nothing(memory_lake, flights):
    statement = "SELECT 'flights AT (VERSION => 12)' AS a, 'tablesample' AS \"tablesample\" -- TABLESAMPLE"
    assert answer(memory_lake, statement) == [{"a": "flights AT (VERSION => 12)", "tablesample": "tablesample"}]


# -- what is read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("tailnum = 'N1'", 2),
        ("tailnum = 'N1' AND at = 0", 0),
        ("tailnum = 'N1' AND at <= 2", 1),
        ("tailnum > 'N5'", 1),
        ("tailnum LIKE 'N9%'", 1),
        ("tailnum < 'N1' OR tailnum > 'N9'", 0),
        ("origin = 'LGA'", 2),
    ],
)
@pytest.mark.usefixtures("wide")
def test_files_that_hold_no_key_asked_for_are_not_opened(memory_lake, flights, where, files):
    opened = set()
    reader = flights.snapshot().reader
    plain = reader.open
    reader.open = lambda file, *more: opened.add(file.id) or plain(file, *more)
    memory_lake.sql(f"SELECT * FROM flights WHERE {where}").read_all()
    assert len(opened) == files


class Framed:
    """A snapshot that counts how often its rows are asked for as files."""

    def __init__(self, snapshot):
        self.snapshot = snapshot
        self.frames = 0

    def __getattr__(self, name):
        return getattr(self.snapshot, name)

    def frame(self, *given):
        self.frames += 1
        return self.snapshot.frame(*given)


@pytest.fixture
def framed(memory_lake, flights):
    """The flights, and an engine that reads them."""
    found = Framed(flights.snapshot())
    return found, SqlEngine(lambda _: found, memory_lake.tables)


def test_few_rows_are_read_past_the_engine(memory_lake, framed):
    flights, engine = framed
    for asked, count in (("WHERE tailnum = 'N1'", 2), ("LIMIT 3", 3)):
        assert engine.run(f"SELECT * FROM flights {asked}", memory_lake.sql_pool_bytes()).read_all().num_rows == count
        assert not flights.frames
    engine.run("SELECT * FROM flights WHERE origin = 'LGA' LIMIT 3", memory_lake.sql_pool_bytes()).close()
    assert flights.frames == 1


def test_few_rows_that_are_large_are_read_as_files(memory_lake, framed):
    flights, engine = framed
    engine.in_memory_bytes = 10
    found = engine.run("SELECT * FROM flights WHERE tailnum = 'N1'", memory_lake.sql_pool_bytes())
    assert found.read_all().num_rows == 2
    assert flights.frames == 1


def test_a_function_of_a_tables_name_is_no_table(memory_lake, flights):
    with pytest.raises(NotFoundError, match="no table named 'planes'"):
        memory_lake.sql("SELECT * FROM range(3), planes")


def test_a_result_streams(memory_lake, flights, wide):
    with memory_lake.sql("SELECT * FROM flights") as reader:
        assert reader.read_next_batch().num_rows > 0


def test_memory_is_bounded_by_the_setting(memory_lake, flights):
    memory_lake.set(memory_limit_bytes=64 * 1024 * 1024)
    with pytest.raises(Error, match="memory_limit_bytes"):
        memory_lake.sql(f"SELECT * FROM (SELECT array_agg(a.value || '{'x' * 1000}') FROM range(200000) a)").read_all()


def test_threads_do_not_mix_up_their_tables(memory_lake, flights):
    other = memory_lake.create_table("other", FLIGHTS)
    other.write(rows(flight("X", 1)))

    def ask(name):
        return [answer(memory_lake, f"SELECT count(*) AS n FROM {name}")[0]["n"] for _ in range(10)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, ["flights", "other"] * 2)) == [[6] * 10, [1] * 10] * 2


# -- refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO flights VALUES ('a', 1, 'b', 1)",
        "DELETE FROM flights",
        "UPDATE flights SET delay = 1",
        "DROP TABLE flights",
        "CREATE TABLE t AS SELECT * FROM flights",
        "CREATE VIEW v AS SELECT * FROM flights",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "SELECT * INTO t FROM flights",
        "COPY flights TO '/tmp/stolen.csv'",
        "COPY (SELECT 1) TO '/tmp/stolen.csv' STORED AS CSV",
        "SET datafusion.execution.batch_size = 1",
        "EXPLAIN ANALYZE INSERT INTO flights VALUES ('a', 1, 'b', 1)",
    ],
)
def test_what_does_more_than_read_is_refused(memory_lake, flights, statement):
    version = flights.snapshot().version
    with raises(Code.SQL_READ_ONLY):
        memory_lake.sql(statement).read_all()
    assert flights.snapshot().version == version


@pytest.mark.parametrize(
    "source", ["'/etc/passwd'", "'{path}'", "read_csv('{path}')", "read_parquet('{path}')", '"{path}"']
)
def test_files_are_not_read_by_their_names(memory_lake, flights, source, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with raises(Code.SQL_INVALID, Code.TABLE_NOT_FOUND):
        memory_lake.sql(f"SELECT * FROM {source.format(path=path)}")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT strange FROM flights", r"No field named strange.*flights\.tailnum, flights\.at, flights\.origin"),
        ("SELECT * FROM flights WHERE", "cannot plan the query"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("", "the text is empty"),
        ("SELECT nonsense(1)", "nonsense"),
        ("SELECT * FROM flights WHERE at = 5 / 0", "[Dd]ivide by zero"),
        ("SELECT CAST(origin AS INT) FROM flights", "Cannot cast string"),
    ],
)
def test_what_cannot_be_meant_says_what_there_is(memory_lake, flights, statement, message):
    with pytest.raises(UsageError, match=message):
        memory_lake.sql(statement).read_all()


def test_decimals_are_compared_exactly_with_texts_and_parameters(memory_lake):
    """As docs/queries.md says; a number with a point is a double, which 7228510.96 is not."""
    price = Decimal("7228510.96")
    table = memory_lake.create_table("prices", Schema({"k": "decimal(10, 2)"}, {}, {"v": "decimal(10, 2)"}))
    table.write([{"k": price, "v": price}, {"k": Decimal("1.50"), "v": Decimal("1.50")}])
    for column in ("k", "v"):
        assert len(answer(memory_lake, f"SELECT * FROM prices WHERE {column} = '7228510.96'")) == 1
        found = memory_lake.sql(f"SELECT * FROM prices WHERE {column} >= ?", parameters=[price])
        assert found.read_all().num_rows == 1


def test_a_table_that_is_not_there_is_named_with_those_that_are(memory_lake, flights):
    with pytest.raises(NotFoundError, match="no table named 'planes'; the instance's tables: flights"):
        memory_lake.sql("SELECT * FROM flights JOIN planes ON true")
    with pytest.raises(NotFoundError, match=r"no table named 'other\.flights'"):
        memory_lake.sql("SELECT * FROM other.flights")


@pytest.fixture
def on_disk(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("flights", FLIGHTS).write(rows(flight("N1", 1)))
    lake.table("flights").write(rows(flight("N2", 1)))
    return lake


def test_a_file_that_was_lost_is_named(on_disk, tmp_path):
    over_files(on_disk)
    assert answer(on_disk, "SELECT count(*) AS n FROM flights") == [{"n": 2}]
    lost = next(tmp_path.rglob("*.parquet"))
    lost.unlink()
    with pytest.raises(NotFoundError, match=lost.name):
        on_disk.sql("SELECT count(*) FROM flights").read_all()


def test_a_file_that_vanishes_before_the_plan_that_is_run_is_named(on_disk, tmp_path, monkeypatch):
    over_files(on_disk)
    lost = next(tmp_path.rglob("*.parquet"))
    start = DataFrame.execute_stream

    def too_late(frame):
        lost.unlink()
        return start(frame)

    monkeypatch.setattr(DataFrame, "execute_stream", too_late)
    with pytest.raises(NotFoundError, match=lost.name):
        on_disk.sql("SELECT count(*) FROM flights").read_all()


def test_a_file_that_is_damaged_is_named(on_disk, tmp_path):
    over_files(on_disk)
    damaged = next(tmp_path.rglob("*.parquet"))
    content = bytearray(damaged.read_bytes())
    content[4:400] = bytes(396)
    damaged.write_bytes(content)
    with pytest.raises(Error, match=damaged.name):
        on_disk.sql("SELECT * FROM flights").read_all()


# -- any table --------------------------------------------------------------------------------------------------

KEYS = st.integers(0, 12)
BATCHES = st.lists(st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=6), min_size=1, max_size=5)
CONDITIONS = st.lists(
    st.one_of(
        st.builds("{} = {}".format, st.sampled_from("abv"), KEYS),
        st.builds("{} {} {}".format, st.sampled_from("ab"), st.sampled_from(["<", ">=", "<>"]), KEYS),
        st.builds("a IN ({}, {})".format, KEYS, KEYS),
        st.builds("a BETWEEN {} AND {}".format, KEYS, KEYS),
    ),
    min_size=1,
    max_size=3,
)
PREDICATES = st.builds(str.join, st.sampled_from([" AND ", " OR "]), CONDITIONS)


@settings(max_examples=settings.default.max_examples // 5, deadline=None)
@given(
    BATCHES,
    st.lists(KEYS, max_size=2, unique=True),
    KEYS,
    PREDICATES,
    st.booleans(),
)
def test_any_table_answers_like_a_plain_list(batches, partitions, gone, where, merged):
    schema = Schema(row_key={"a": "int32", "b": "int64"}, values={"v": "int64"})
    lake = memory_lake()
    table = lake.create_table("t", schema, split_points=() if merged else sorted(partitions))
    listed = []
    for version, batch in enumerate(batches):
        records = [{"a": a, "b": b, "v": version} for a, b in batch]
        table.write(rows(*records, schema=schema))
        listed += records
    if merged and len(batches) > 1:
        compact(table)
    table.remove(KeyRange.prefix(gone))
    left = [one for one in listed if one["a"] != gone]
    python = (
        where.replace("<>", "!=").replace(" = ", " == ").replace("IN", "in").replace("AND", "and").replace("OR", "or")
    )
    wanted = [one for one in left if eval(_between(python), {}, dict(one))]
    key = lambda one: (one["a"], one["b"], one["v"])  # noqa: E731
    engine, _ = lake.sql_engine()
    for limit in (engine.in_memory_rows, 0):
        engine.in_memory_rows = limit
        assert sorted(answer(lake, f"SELECT * FROM t WHERE {where}"), key=key) == sorted(wanted, key=key)
        assert answer(lake, f"SELECT count(*) AS n FROM t WHERE {where}") == [{"n": len(wanted)}]


def _between(condition):
    """``a BETWEEN x and y`` as Python says it."""
    return re.sub(r"a BETWEEN (\d+) and (\d+)", r"(\1 <= a <= \2)", condition)
