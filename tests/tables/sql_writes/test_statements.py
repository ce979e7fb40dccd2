"""Statements that change something: what they do, once, at one version; and what they refuse, with the way to do it."""

import contextlib

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeepAll, Latest, Schema
from lakebed.clock import random_token
from lakebed.engine.change_statements import changes
from lakebed.engine.complexity import TEXT_MAX
from lakebed.errors import Code, ContentionError, Error, UsageError
from lakebed.testing.faults import Meanwhile
from tests.raising import raises
from tests.soaked import each_once
from tests.tables.retention.cases import Killed, Mortal, through


@pytest.fixture
def lake():
    made = lakebed.create(f"memory://{random_token()}")
    made.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, n INT, s VARCHAR(9), d DECIMAL(9, 2), at TIMESTAMP)")
    made.execute("INSERT INTO t (k, n, s) VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    return made


def rows(lake, query="SELECT k, n, s FROM t ORDER BY k"):
    return [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()]


# -- what they do -------------------------------------------------------------------------------------------------


COUNTED = (
    "MERGE INTO t USING (SELECT 11 AS k, 1 AS n UNION ALL SELECT 12, 2 UNION ALL SELECT 40, 3) AS b ON t.k = b.k "
    "WHEN MATCHED AND b.n = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm' "
    "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (b.k, b.n)"
)


def test_each_statement_is_one_commit_and_counts_its_rows(lake):
    table = lake.table("t")
    for statement, inserted, updated, deleted in (
        ("INSERT INTO t (k, n) VALUES (4, 4), (5, 5)", 2, 0, 0),
        ("UPDATE t SET n = n * 10 WHERE k > 1", 0, 4, 0),
        ("DELETE FROM t WHERE n >= 40", 0, 0, 2),
        ("INSERT INTO t (k, n) SELECT k + 10, n FROM t", 3, 0, 0),
        (COUNTED, 1, 1, 1),
    ):
        before = table.state().version
        report = lake.execute(statement)
        assert (report.inserted, report.updated, report.deleted) == (inserted, updated, deleted)
        assert report.rows == inserted + updated + deleted
        assert report.version == before + 1 == table.state().version
        assert report.summary.startswith(statement.split()[0])
    assert rows(lake) == [(1, 1, "a"), (2, 20, "b"), (3, 30, "c"), (12, 20, "m"), (13, 30, None), (40, 3, None)]


def test_a_statement_that_finds_no_row_commits_nothing(lake):
    version = lake.table("t").state().version
    assert lake.execute("UPDATE t SET n = 0 WHERE k > 9").rows == 0
    assert lake.execute("DELETE FROM t WHERE k > 9").rows == 0
    assert lake.table("t").state().version == version


def test_parameters_are_values_and_never_sql(lake):
    lake.execute("UPDATE t SET s = ? WHERE k = ?", parameters=["x' WHERE k = 1; --", 2])
    lake.execute("INSERT INTO t (k, s) VALUES ($k, $s)", parameters={"k": 9, "s": "?"})
    assert rows(lake, "SELECT k, s FROM t WHERE k IN (2, 9) ORDER BY k") == [(2, "x' WHERE k = 1; --"), (9, "?")]


def test_names_in_quotes_and_comments_and_words_in_texts_are_understood():
    made = lakebed.create(f"memory://{random_token()}")
    made.execute(
        '/* ; */ CREATE TABLE "my-table" (-- the key\n"the key" BIGINT, "set" VARCHAR, PRIMARY KEY ("the key"))'
    )
    made.execute("INSERT INTO lakebed.tables.\"my-table\" VALUES (1, 'where ; set'), (2, '\"')")
    made.execute(
        'UPDATE "my-table" AS "a b" SET "set" = "a b"."set" || \' where\' /* WHERE */ WHERE "a b"."the key" = 1;'
    )
    assert rows(made, 'SELECT * FROM "my-table" ORDER BY 1') == [(1, "where ; set where"), (2, '"')]
    assert made.execute('DELETE FROM "my-table" x WHERE x."set" = \'"\'').rows == 1


def test_values_arrive_exactly_or_are_refused(lake):
    lake.execute("INSERT INTO t VALUES (-9223372036854775808, NULL, 'it''s', 1234567.89, '2026-01-02T03:04:05.000006')")
    found = lake.sql("SELECT * FROM t WHERE k < 0").to_arrow().to_pylist()[0]
    assert str(found["d"]) == "1234567.89"
    assert found["at"].isoformat() == "2026-01-02T03:04:05.000006"
    version = lake.table("t").state().version
    for statement in (
        "INSERT INTO t (k, d) VALUES (9, 1.234)",
        "INSERT INTO t (k, n) VALUES (9, 2147483648)",
        "INSERT INTO t (k, n) VALUES (9, 'nine')",
        "INSERT INTO t (k, n) VALUES (9, 1.5)",
        "INSERT INTO t (k, at) VALUES (9, '2026-13-01')",
        "INSERT INTO t (k, n) VALUES (NULL, 1)",
        "UPDATE t SET n = n + 2147483647",
        "UPDATE t SET n = 'many'",
        "UPDATE t SET d = 0.001",
        "INSERT INTO t (k, n) SELECT k, s FROM t",
    ):
        with pytest.raises(lakebed.SchemaMismatchError, match=r"column|null"):
            lake.execute(statement)
    assert lake.table("t").state().version == version


def test_a_table_is_created_with_key_mode_and_settings():
    made = lakebed.create(f"memory://{random_token()}")
    made.execute(
        "CREATE TABLE IF NOT EXISTS e (dev VARCHAR(20), at TIMESTAMP WITH TIME ZONE, x DOUBLE NOT NULL, "
        "tags VARCHAR[], u uuid, PRIMARY KEY (dev)) "
        "WITH (sort_key = 'at', merge = 'latest_by_sort_key', split_rows = 1000)"
    )
    table = made.table("e")
    assert table.schema.row_key_names == ("dev",)
    assert table.schema.sort_names == ("dev", "at")
    assert [str(one.type) for one in table.schema.values] == ["double", "list<item: string>", "extension<arrow.uuid>"]
    assert [one.nullable for one in table.schema.values] == [False, True, True]
    assert table.state().merge == Latest(by="sort_key")
    assert table.settings()["split_rows"] == 1000
    aggregate = '{"mode": "aggregate", "functions": {"n": "sum"}}'
    made.execute(f"CREATE TABLE sums (k INT PRIMARY KEY, n BIGINT) WITH (merge = '{aggregate}')")
    made.execute("INSERT INTO sums VALUES (1, 2), (1, 3)")
    made.execute("INSERT INTO sums VALUES (1, 10)")
    assert rows(made, "SELECT * FROM sums") == [(1, 15)]
    made.execute("CREATE TABLE log (k INT PRIMARY KEY) WITH (merge = 'keep_all')")
    assert made.table("log").state().merge == KeepAll()


def test_a_table_of_a_query_is_there_with_all_rows_or_not_at_all(lake):
    report = lake.execute(
        "CREATE TABLE u (PRIMARY KEY (k)) AS SELECT s, k, n * 2 AS n FROM t WHERE k < 3", commit_id="c"
    )
    assert (report.rows, report.inserted) == (2, 2)
    assert rows(lake, "SELECT k, s, n FROM u ORDER BY k") == [(1, "a", 2), (2, "b", 4)]
    again = lake.execute("CREATE TABLE u (PRIMARY KEY (k)) AS SELECT s, k FROM t", commit_id="c")
    assert again.repeated
    assert again.version == report.version
    with raises(Code.TABLE_EXISTS):
        lake.execute("CREATE TABLE u (PRIMARY KEY (k)) AS SELECT k FROM t")
    assert lake.execute("CREATE TABLE IF NOT EXISTS u (PRIMARY KEY (k)) AS SELECT k FROM t").rows == 0
    with raises(Code.VALUE_NULL):
        lake.execute("CREATE TABLE v (PRIMARY KEY (k)) AS SELECT CASE WHEN k < 3 THEN k END AS k FROM t")
    assert lake.tables() == ["t", "u"]


def test_indexes_are_made_and_dropped(lake):
    lake.execute("CREATE INDEX by_s ON t (s)")
    assert lake.indexes("t") == {"by_s": ["s"]}
    lake.execute("CREATE INDEX IF NOT EXISTS by_s ON t (s)")
    with raises(Code.TABLE_EXISTS):
        lake.execute("CREATE INDEX IF NOT EXISTS by_s ON t (n)")
    lake.execute("DROP INDEX by_s")
    lake.execute("DROP INDEX IF EXISTS by_s")
    with raises(Code.TABLE_NOT_FOUND):
        lake.execute("DROP INDEX by_s")
    lake.execute("DROP TABLE t")
    lake.execute("DROP TABLE IF EXISTS t")
    assert lake.tables() == []


def test_truncate_removes_all_rows_at_once(lake):
    assert lake.execute("TRUNCATE TABLE t").rows is None
    assert rows(lake) == []


def test_a_table_is_altered(lake):
    lake.execute("ALTER TABLE t ADD COLUMN x DOUBLE, DROP COLUMN d, RENAME COLUMN n TO m, ALTER COLUMN m TYPE BIGINT")
    assert lake.table("t").schema.names == ("k", "m", "s", "at", "x")
    lake.execute("ALTER TABLE t SET (split_rows = 1000, compression = 'lz4')")
    assert lake.table("t").settings()["split_rows"] == 1000
    assert lake.execute("ALTER TABLE t RENAME TO u").table == "u"
    assert lake.tables() == ["u"]


# -- once, and at one version ---------------------------------------------------------------------------------------

MERGE = (
    "MERGE INTO t AS a USING (SELECT k + 1 AS k, n FROM t@2) AS b ON a.k = b.k WHEN MATCHED AND b.n = 1 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET n = b.n + 70 WHEN NOT MATCHED THEN INSERT (k, n) VALUES (b.k, 9)"
)

CALLS = {
    "insert": "INSERT INTO t (k, n) VALUES (1, 7), (9, 9)",
    "insert_select": "INSERT INTO t (k, n) SELECT k + 10, n FROM t",
    "update": "UPDATE t SET n = n + 100 WHERE k <= 2",
    "delete": "DELETE FROM t WHERE n < 3",
    "merge": MERGE,
    "create_as": "CREATE TABLE u (PRIMARY KEY (k)) AS SELECT * FROM t",
}


@pytest.mark.parametrize("statement", CALLS.values(), ids=CALLS)
def test_a_commit_id_does_a_statement_once(lake, statement):
    first = lake.execute(statement, commit_id="c")
    before = {name: rows(lake, f"SELECT * FROM {name} ORDER BY k") for name in lake.tables()}
    again = lake.execute(statement, commit_id="c")
    assert (again.repeated, again.rows, again.version) == (True, 0, first.version)
    assert {name: rows(lake, f"SELECT * FROM {name} ORDER BY k") for name in lake.tables()} == before


@each_once(statement=CALLS.values(), after=[False, True], change=range(1, 6))
def test_a_statement_that_was_killed_and_is_repeated_takes_effect_once(lake, statement, change, after):
    def states():
        return {name: rows(lake, f"SELECT * FROM {name} ORDER BY k") for name in lake.tables()}

    nothing = states()
    with contextlib.suppress(Killed):
        through(lake, Mortal(lake.storage, change, after=after)).execute(statement, commit_id="c")
    partly = states()
    through(lake, lake.storage).execute(statement, commit_id="c")
    whole = states()
    assert whole != nothing
    assert partly in (nothing, whole)
    assert through(lake, lake.storage).table("t").verify(files=True).sound


@pytest.mark.parametrize(
    ("statement", "meanwhile", "expected"),
    [
        ("UPDATE t SET n = n + 100 WHERE n < 3", "INSERT INTO t (k, n) VALUES (1, 5)", [(1, 5), (2, 102), (3, 3)]),
        ("DELETE FROM t WHERE n < 3", "INSERT INTO t (k, n) VALUES (1, 5)", [(1, 5), (3, 3)]),
        # A row of another key is no conflict.
        (
            "UPDATE t SET n = n + 100 WHERE n < 3",
            "INSERT INTO t (k, n) VALUES (9, 1)",
            [(1, 101), (2, 102), (3, 3), (9, 1)],
        ),
        # What a subquery read counts too.
        (
            "UPDATE t SET n = (SELECT max(n) FROM t) WHERE k = 1",
            "INSERT INTO t (k, n) VALUES (9, 50)",
            [(1, 50), (2, 2), (3, 3), (9, 50)],
        ),
        (
            "INSERT INTO t (k, n) SELECT max(k) + 1, 0 FROM t",
            "INSERT INTO t (k, n) VALUES (4, 4)",
            [(1, 1), (2, 2), (3, 3), (4, 4), (5, 0)],
        ),
    ],
)
def test_a_statement_is_done_again_if_what_it_read_was_changed(lake, statement, meanwhile, expected):
    """The other statement is committed right before the entry of the first is written."""
    other = lambda: lake.execute(meanwhile)  # noqa: E731
    storage = Meanwhile(lake.storage, "create", "tables/*/log/*", other)
    report = through(lake, storage).execute(statement)
    assert storage.happened
    assert rows(lake, "SELECT k, n FROM t ORDER BY k") == expected
    assert report.rows >= 1


def test_a_table_that_changes_all_the_time_is_a_clear_error(lake):
    count = iter(range(100))
    other = lambda: lake.execute("INSERT INTO t (k, n) VALUES (1, ?)", parameters=[next(count) % 3])  # noqa: E731
    storage = Meanwhile(lake.storage, "create", "tables/*/log/*", other, again=True)
    with pytest.raises(ContentionError, match="nothing was changed") as caught:
        through(lake, storage).execute("UPDATE t SET n = n + 100 WHERE k = 1")
    assert caught.value.code is Code.COMMIT_CONTENDED
    assert rows(lake)[0][1] < 100


# -- refused ------------------------------------------------------------------------------------------------------


TWICE = (
    "MERGE INTO t USING (SELECT 8 AS k UNION ALL SELECT 8) b ON t.k = b.k WHEN NOT MATCHED THEN INSERT (k) VALUES (b.k)"
)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE t SET k = 5", "k is a key column, and keys cannot change in place: delete the rows"),
        ("UPDATE t SET n = 1, n = 2", "column n is assigned twice"),
        ("UPDATE t SET nothing = 1", "no column 'nothing'"),
        ("UPDATE t SET n = nothing", "No field named nothing"),
        ("UPDATE t SET n = 1 FROM o WHERE o.k = t.k", "FROM in line 1, column 20 is not supported: UPDATE has no FROM"),
        ("UPDATE t SET (n, s) = (1, 2)", "assign one column at a time"),
        ("UPDATE t SET n = DEFAULT", "no defaults"),
        ("UPDATE t SET n = 1\nWERE k = 2", "syntax error"),
        ("DELETE FROM t WHERE", "at the end in line 1, column 20: expected a condition"),
        ("DELETE t", "syntax error at 't' in line 1, column 8: expected FROM"),
        ("DELETE FROM t WHERE (k = 1", r"expected '\)'"),
        ("DELETE FROM t WHERE k = 1)", "expected the end of the statement"),
        ("DELETE FROM t USING o WHERE o.k = t.k", "DELETE has no USING"),
        ("DELETE FROM t RETURNING k", "return the count of their rows"),
        ('DELETE FROM "t@2"', "only the latest version of a table changes"),
        ("DELETE FROM t@2", "only the latest version of a table changes"),
        ("DELETE FROM other.t", "all tables are in lakebed.tables"),
        ("DELETE FROM my-table", 'a name in double quotes, such as "my-…"'),
        ("DELETE FROM t; DELETE FROM t", "several statements: give one at a time"),
        ("INSERT INTO t VALUES (1)", "the query has 1 columns, and there are 5 to fill: k, n, s, d, at"),
        ("INSERT INTO t (k, k) VALUES (1, 2)", "k is there twice"),
        ("INSERT INTO t (k, x) VALUES (1, 2)", "x"),
        ("INSERT INTO t (k) VALUES (1) ON CONFLICT DO NOTHING", "INSERT replaces the rows of its keys"),
        ("INSERT INTO t DEFAULT VALUES", "no defaults"),
        ("INSERT OVERWRITE t SELECT * FROM t", "TRUNCATE the table first"),
        ("INSERT INTO t SELECT s, k, n, d, at FROM t", "column s of the query is not in its place"),
        ("INSERT INTO t (k)", "expected VALUES or SELECT"),
        ("CREATE TABLE u (k INT)", r"has no key: add PRIMARY KEY \(…\)"),
        ("CREATE TABLE u (k INT, PRIMARY KEY (x))", "key column x is not a column"),
        ("CREATE TABLE u (n INT, k INT, PRIMARY KEY (k))", "write the columns k first"),
        ("CREATE TABLE u (k INT PRIMARY KEY, n INT DEFAULT 3)", "no defaults"),
        ("CREATE TABLE u (k INT PRIMARY KEY, n INT REFERENCES t)", "the only constraints"),
        ("CREATE TABLE u (k INT PRIMARY KEY, n INTT)", "no type 'INTT'.*line 1, column 38"),
        ("CREATE TABLE u (k INT PRIMARY KEY) WITH (merge = 'newest')", "must be 'keep_all', 'latest'"),
        ("CREATE TABLE u (k INT PRIMARY KEY) WITH (split_row = 1)", "split_row"),
        ("CREATE TABLE u (k INT PRIMARY KEY, n INT) AS SELECT * FROM t", "a query, which gives all columns"),
        ("CREATE TABLE u (PRIMARY KEY (k)) AS SELECT k, NULL AS n FROM t", "has nulls and no type: cast it"),
        ("CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)", "DROP TABLE IF EXISTS"),
        ("CREATE UNIQUE INDEX i ON t (s)", "only the row key is"),
        ("CREATE VIEW v AS SELECT * FROM t", "create_view_table"),
        ("DROP TABLE t, u", "write one for each"),
        ("DROP VIEW t", "expected TABLE or INDEX"),
        ("DROP INDEX t", "is no index"),
        ("MERGE INTO t USING t AS b ON t.n = b.n WHEN MATCHED THEN DELETE", r"ON t\.k = …"),
        ("MERGE INTO t USING t AS b ON t.k = b.k OR t.k = 1 WHEN MATCHED THEN DELETE", r"ON t\.k = …"),
        ("MERGE INTO t USING (SELECT '1' AS k) b ON t.k = b.k WHEN MATCHED THEN DELETE", "compares it with string"),
        (
            "MERGE INTO t USING (SELECT 1 AS k UNION ALL SELECT 1) b ON t.k = b.k WHEN MATCHED THEN DELETE",
            r"two rows of the source have the key \(1,\)",
        ),
        (TWICE, r"two rows of the source have the key \(8,\)"),
        (
            "MERGE INTO t USING (SELECT 8 AS k) b ON t.k = b.k WHEN NOT MATCHED THEN INSERT (k) VALUES (b.k + 1)",
            "the value that ON compares it with, b.k",
        ),
        ("MERGE INTO t USING t AS b ON t.k = b.k WHEN MATCHED THEN UPDATE SET k = 1", "k is a key column"),
        ("MERGE INTO t USING t AS b ON t.k = b.k WHEN NOT MATCHED BY SOURCE THEN DELETE", "DELETE FROM … WHERE NOT"),
        (
            "MERGE INTO t USING (SELECT NULL::BIGINT k) b ON t.k = b.k WHEN NOT MATCHED THEN INSERT (k) VALUES (b.k)",
            "column k is null",
        ),
        ("ALTER TABLE t ADD COLUMN x INT NOT NULL", "may be null"),
        ("ALTER TABLE t DROP COLUMN k", "k"),
        ("ALTER TABLE t ALTER COLUMN n TYPE VARCHAR", "n"),
        ("BEGIN", "a statement is a commit of its own"),
        ("COMMIT", "a statement is a commit of its own"),
        ("ROLLBACK", "Table.restore"),
        ("RESTORE TABLE t TO VERSION AS OF 1", "lakebed restore"),
        ("OPTIMIZE t ZORDER BY (n)", "lakebed compact"),
        ("VACUUM t", "lakebed gc"),
        ("ANALYZE TABLE t", "statistics are written with the files"),
        ("CALL system.rewrite_data_files('t')", "lakebed docs words"),
        ("REFRESH TABLE t", "lakebed view refresh"),
        ("LOAD DATA INPATH 'x' INTO TABLE t", "lakebed import"),
        ("CONVERT TO DELTA t", "lakebed migrate"),
        ("CLONE t", "lakebed backup create"),
        ("CREATE TABLE u SHALLOW CLONE t", "SHALLOW .* not supported: tables are not cloned"),
        ("CREATE TABLE u CLONE t", "tables are not cloned"),
        ("CREATE TABLE u (k INT PRIMARY KEY) PARTITIONED BY (k)", "partitions are key ranges"),
        ("CREATE TABLE u (k INT PRIMARY KEY) USING delta", "one format"),
        ("CREATE TABLE u (k INT PRIMARY KEY) CLUSTER BY (k)", "sorted by the primary key"),
        ("CREATE TABLE u (k INT PRIMARY KEY) TBLPROPERTIES ('a' = 'b')", r"WITH \(setting = value\)"),
        ("CREATE SCHEMA s", "an instance has one schema"),
        ("CREATE BRANCH b", "no branches"),
        ("CREATE TAG b", "lakebed tag create"),
        ("ALTER TABLE t CREATE BRANCH b", "no branches"),
        ("ALTER TABLE t CREATE TAG b", "lakebed tag create"),
        ("ALTER TABLE t ALTER COLUMN n SET DEFAULT 3", "no defaults"),
        ("ALTER TABLE t CLUSTER BY (n)", "sorted by the primary key"),
        ("ALTER TABLE t ADD PARTITION FIELD n", "partitions are key ranges"),
        ("SELECT 1", "run it with Instance.sql"),
        ("DELET FROM t", "did you mean 'DELETE'"),
        ("", "at the end"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_way_to_do_it(lake, statement, said):
    version = lake.table("t").state().version
    with pytest.raises(Error, match=said):
        lake.execute(statement)
    assert lake.table("t").state().version == version
    assert lake.tables() == ["t"]


@pytest.mark.parametrize("mode", ["keep_all", "first"])
@pytest.mark.parametrize("statement", ["UPDATE u SET n = 1", "DELETE FROM u WHERE n = 1"])
def test_a_table_of_another_mode_takes_inserts_alone(lake, mode, statement):
    lake.execute(f"CREATE TABLE u (k INT PRIMARY KEY, n INT) WITH (merge = '{mode}')")
    lake.execute("INSERT INTO u VALUES (1, 1)")
    with pytest.raises(UsageError, match="merges by Latest") as caught:
        lake.execute(statement)
    assert caught.value.code is Code.MERGE_MODE_MISMATCH
    assert rows(lake, "SELECT * FROM u") == [(1, 1)]


@pytest.mark.parametrize(
    "statement", ["TRUNCATE t", "DROP TABLE t", "CREATE TABLE u (k INT PRIMARY KEY)", "CREATE INDEX i ON t (s)"]
)
def test_a_commit_id_for_a_statement_that_takes_none_is_refused(lake, statement):
    with pytest.raises(UsageError, match="takes none; to repeat it safely"):
        lake.execute(statement, commit_id="c")
    assert lake.tables() == ["t"]
    assert len(rows(lake)) == 3


def test_a_statement_that_is_too_long_says_what_to_do(lake):
    values = ", ".join(f"({k}, 'x')" for k in range(10))
    text = f"INSERT INTO t (k, s) VALUES {values}"
    with pytest.raises(UsageError, match=r"Table\.write") as caught:
        lake.execute(text.ljust(TEXT_MAX + 1))
    assert caught.value.code is Code.SQL_TOO_COMPLEX
    assert lake.execute(text).rows == 10


def test_queries_do_not_change_and_changes_are_distinguished():
    changing = ("insert into t", "/* x */ UPDATE t", "-- y\ndelete", "BEGIN", "merge", "alter")
    assert all(map(changes, changing))
    assert not any(map(changes, ("select 1", "WITH x", "", "'insert'", '"insert"', "explain insert", "show tables")))


def test_rows_of_batches_of_any_size_are_inserted(lake):
    lake.table("t").write(pa.table({"k": range(100, 40_100), "n": pa.array([1] * 40_000, pa.int32())}))
    assert lake.execute("INSERT INTO t (k, n) SELECT k + 1000000, n + 1 FROM t WHERE k >= 100").rows == 40_000
    assert lake.execute("UPDATE t SET n = n + 1 WHERE k >= 1000000").rows == 40_000
    assert rows(lake, "SELECT sum(n) AS n FROM t WHERE k >= 1000000") == [(120_000,)]
    assert lake.execute("DELETE FROM t WHERE k >= 100").rows == 80_000
    assert len(rows(lake)) == 3


def test_a_schema_that_is_no_result_of_create_is_not_assumed(lake):
    """A generated key is computed for inserted rows, and cannot be assigned through its input."""
    key = lakebed.Generated("date32", "cast(at as date)")
    lake.create_table("g", Schema({"day": key}, {"at": "timestamp[us]"}, {"n": "int64"}), merge=Latest())
    assert lake.execute("INSERT INTO g VALUES ('2026-01-02T03:00:00', 5)").rows == 1
    assert lake.execute("UPDATE g SET n = n + 1").rows == 1
    assert rows(lake, "SELECT n, CAST(day AS VARCHAR) AS day FROM g") == [(6, "2026-01-02")]
    with pytest.raises(UsageError, match="key"):
        lake.execute("UPDATE g SET at = '2026-01-03'")


def test_changed_rows_keep_the_values_of_columns_without_nulls():
    lake = lakebed.create(f"memory://{random_token()}")
    lake.execute("CREATE TABLE n (k BIGINT, v INT, s TEXT NOT NULL, PRIMARY KEY (k))")
    lake.execute("INSERT INTO n VALUES (1, 2, 'a'), (2, NULL, 'b'), (3, 4, 'c')")
    lake.execute("UPDATE n SET v = 7 WHERE s <> 'a'")
    lake.execute("MERGE INTO n USING (SELECT 1 AS k) x ON n.k = x.k WHEN MATCHED THEN UPDATE SET v = 8")
    found = lake.sql("SELECT k, v, s FROM n ORDER BY k").read_all()
    assert [tuple(row.values()) for row in found.to_pylist()] == [(1, 8, "a"), (2, 7, "b"), (3, 7, "c")]


@pytest.mark.parametrize("merge", ["keep_all", "first"])
def test_all_rows_of_any_table_are_deleted(merge):
    lake = lakebed.create(f"memory://{random_token()}")
    lake.execute(f"CREATE TABLE t (k INT PRIMARY KEY) WITH (merge = '{merge}')")
    lake.execute("INSERT INTO t VALUES (1), (2)")
    with raises(Code.ARGUMENT_INVALID):
        lake.execute("DELETE FROM t", commit_id="x")
    with raises(Code.MERGE_MODE_MISMATCH):
        lake.execute("DELETE FROM t WHERE k > 0")
    report = lake.execute("DELETE FROM t")
    assert (report.statement, report.rows, report.version) == ("DELETE", None, lake.table("t").version)
    assert lake.table("t").count().rows == 0
