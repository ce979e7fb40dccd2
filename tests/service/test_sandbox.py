"""Statements of callers run in a worker process, with the roles of the caller and with limits that hold."""

import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.errors import NotFoundError, UsageError
from lakebed.read.sql.limited import Limits
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.security.sql import run_statement
from tests.clocks import set_clock
from tests.machine import set_temporary_folder
from tests.soaked import few
from tests.waiting import until

LIMITS = Limits(memory_bytes=256 * 1024 * 1024, timeout_s=600.0)
HIDDEN = "hidden-note"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    made = lakebed.create(str(tmp_path_factory.mktemp("lake")))
    table = made.create_table("t", Schema({"k": "int64"}, values={"tenant": "string", "note": "string"}))
    table.write(pa.table({"k": [1, 2], "tenant": ["a", "b"], "note": ["mine", HIDDEN]}))
    made.create_table("u", Schema({"k": "int64"}))
    return made


PART = Principal(
    "part", (Role("a", Permission.READ, frozenset({"t"}), where="tenant = 'a'", hidden=frozenset({"tenant"})),)
)
READER = Principal.everywhere("reader", Permission.READ)


def test_the_worker_applies_the_roles(lake):
    assert run_statement(PART, lake, "SELECT * FROM t", LIMITS).read_all().to_pylist() == [{"k": 1, "note": "mine"}]
    assert run_statement(READER, lake, "SELECT count(*) AS n FROM t", LIMITS).read_all().to_pylist() == [{"n": 2}]
    with pytest.raises(NotFoundError, match=r"tables: t$"):
        run_statement(PART, lake, "SELECT * FROM u", LIMITS)


def test_a_principal_sees_the_tables_that_it_may_read(lake):
    assert run_statement(PART, lake, "SHOW TABLES", None).read_all().to_pylist() == [{"table_name": "t"}]
    columns = "SELECT table_name, column_name FROM information_schema.columns"
    visible = [{"table_name": "t", "column_name": name} for name in ("k", "note")]
    assert run_statement(PART, lake, columns, LIMITS).read_all().to_pylist() == visible
    assert run_statement(PART, lake, "SUMMARIZE t", LIMITS).read_all()["max"].to_pylist() == ["1", "mine"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM parquet_metadata('/etc/passwd')",
        "SELECT * FROM information_schema.df_settings",
        "SELECT * FROM information_schema.routines",
        "SHOW ALL",
        "SUMMARIZE u",
        "DESCRIBE u",
        "SUMMARIZE '/etc/passwd'",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "COPY (SELECT 1) TO '/tmp/lakebed-copied.csv'",
        "COPY t TO '/tmp/lakebed-copied.csv'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE VIEW x AS SELECT 1",
        "CREATE FUNCTION f() RETURNS int RETURN 1",
        "INSERT INTO t VALUES (3, 'a', 'x')",
        "DELETE FROM t",
        "DROP TABLE t",
        "PREPARE p AS SELECT 1",
        "SELECT 1; SELECT 2",
    ],
)
def test_a_statement_reads_tables_and_nothing_else(lake, statement):
    with pytest.raises((UsageError, NotFoundError)) as caught:
        run_statement(PART, lake, statement, None).read_all()
    assert "root:" not in caught.value.message


ENDLESS = (
    "SELECT repeat('x', 2000000000)",
    "SELECT x || random(), count(*) FROM (SELECT repeat('x', 100000) AS x FROM generate_series(1, 100000)) GROUP BY 1",
    "SELECT array_agg(a.value || repeat('y', 1000)) FROM generate_series(1, 10000000) AS a",
)


@pytest.mark.parametrize("form", ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"])
def test_a_plan_says_nothing_of_hidden_rows(lake, form):
    plan = str(run_statement(PART, lake, f"{form} SELECT * FROM t WHERE note <> 'x'", None).read_all().to_pylist())
    assert "tenant" not in plan
    assert HIDDEN not in plan
    assert "output_rows=2" not in plan


@pytest.mark.parametrize("statement", few(ENDLESS, 1))
def test_a_statement_without_end_of_memory_is_refused(lake, statement):
    with pytest.raises(UsageError, match="memory"):
        run_statement(READER, lake, statement, LIMITS).read_all()


def test_an_hour_long_statement_ends_at_its_limit_and_others_are_served(lake, monkeypatch):
    failure, passed_s = [], [0.0]
    now_s = clock.monotonic_s
    set_clock(monkeypatch, monotonic_s=lambda: now_s() + passed_s[0])

    def long():
        try:
            run_statement(
                READER,
                lake,
                "SELECT count(*) FROM generate_series(1, 10000000) AS a, generate_series(1, 10000000) AS b "
                "WHERE a.value % 7 = b.value % 11",
                Limits(memory_bytes=1 << 30, timeout_s=3600.0),
            ).read_all()
        except UsageError as error:
            failure.append(error)

    thread = threading.Thread(target=long)
    thread.start()
    assert run_statement(READER, lake, "SELECT 1 AS n", LIMITS).read_all().to_pylist() == [{"n": 1}]
    assert thread.is_alive()

    def is_over():
        passed_s[0] += 3600.0
        return not thread.is_alive()

    until(is_over)
    assert "timeout_s = 3600" in failure[0].message


def test_a_dropped_reader_ends_the_process_and_leaves_no_file(lake, tmp_path, monkeypatch):
    set_temporary_folder(monkeypatch, tmp_path)
    reader = run_statement(READER, lake, "SELECT a.value FROM generate_series(1, 100000000) AS a", LIMITS)
    reader.read_next_batch()
    assert list(tmp_path.iterdir())
    process = reader._source._worker._worker.process
    reader.close()
    assert process.wait(120) is not None
    assert list(tmp_path.iterdir()) == []
