"""Interfaces × tricks: whatever is read, and however it is asked for, hidden rows and columns do not show."""

import json
import shutil

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Latest, Schema
from lakebed.errors import AccessError, Code, NotFoundError, UsageError
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import Role
from lakebed.server.security.sql import run_statement

SECRETS = ("666", "hidden-note", "123-45", "tenant", "note")
"""What no answer and no error may have: a value and the ssn of a hidden row, and the names of hidden columns."""

ROLE = Role(
    "reader_a",
    Permission.READ,
    frozenset({"t", "m"}),
    where="tenant = 'a'",
    hidden=frozenset({"tenant", "note"}),
    masks=(("ssn", "'***'"), ("score", "NULL")),
)
PART = Principal("part", (ROLE,))
ROWS = {
    "k": [1, 2, 3, 4, 5, 6],
    "n": [10, 666, 30, 0, 50, 666],
    "tenant": ["a", "b", "a", "b", "a", None],
    "note": ["x", "hidden-note", "y", "hidden-note", "z", "hidden-note"],
    "ssn": ["123-45-1", "123-45-2", "123-45-3", "123-45-4", "123-45-5", "123-45-6"],
    "score": [1, 2, 3, 4, 5, 6],
}
SCHEMA = Schema(
    {"k": "int64"}, values={"n": "int64", "tenant": "string", "note": "string", "ssn": "string", "score": "int64"}
)
SHOWN = [{"k": k, "n": n, "ssn": "***", "score": None} for k, n in ((1, 10), (3, 30), (5, 50))]


@pytest.fixture(scope="module", params=["one file", "overlapping files", "merged by Latest"])
def lake(request, tmp_path_factory):
    """A test that writes to it takes a copy."""
    made = lakebed.create(str(tmp_path_factory.mktemp("restricted") / "lake"))
    merge = {"merge": Latest()} if request.param == "merged by Latest" else {}
    table = made.create_table("t", SCHEMA, **merge)
    rows = pa.table(ROWS, schema=SCHEMA.arrow)
    if request.param == "one file":
        table.write(rows)
    else:
        table.write(rows.take([0, 3, 4]))
        table.write(rows.take([1, 2, 5]))
    if merge:
        # A row of tenant a that is now one of tenant b: `raw` and older versions show what it was.
        moved = {**ROWS, "tenant": ["a"] * 6, "n": [7] * 6, "note": ["x"] * 6, "ssn": ["9"] * 6}
        table.write(pa.table(moved, schema=SCHEMA.arrow).slice(1, 1))
        table.write(rows.slice(1, 1))
    made.create_table("u", Schema({"k": "int64"}))
    return made


@pytest.fixture
def part(lake):
    return PART.readable(lake.table("t"))


def shown(found):
    rows = found.read_all() if hasattr(found, "read_all") else found
    return rows.to_pylist()


def sql(lake, text):
    return run_statement(PART, lake, text, None)


# -- interfaces that give rows: each as a function of a predicate ------------------------------------------------------

INTERFACES = {
    "scan": lambda lake, part, where: shown(part.scan(where=where)),
    "scan reverse": lambda lake, part, where: shown(part.scan(where=where, reverse=True)),
    "scan limit": lambda lake, part, where: shown(part.scan(where=where, limit=2)),
    "scan columns": lambda lake, part, where: shown(part.scan(where=where, columns=["n"])),
    "scan range": lambda lake, part, where: shown(part.scan(KeyRange(2, 6), where=where)),
    "scan raw": lambda lake, part, where: shown(part.scan(where=where, raw=True)),
    "scan of a version": lambda lake, part, where: shown(part.at(version=part.version).scan(where=where)),
    "sql": lambda lake, part, where: shown(sql(lake, f"SELECT * FROM t WHERE {where}")),
    "sql count": lambda lake, part, where: shown(sql(lake, f"SELECT count(*) AS n FROM t WHERE {where}")),
    "sql case": lambda lake, part, where: shown(sql(lake, f"SELECT sum(CASE WHEN {where} THEN n END) AS n FROM t")),
    "sql subquery": lambda lake, part, where: shown(
        sql(lake, f"SELECT n FROM t AS o WHERE EXISTS (SELECT 1 FROM t WHERE {where} AND t.k = o.k)")
    ),
    "sql join": lambda lake, part, where: shown(
        sql(lake, f"SELECT l.n FROM t AS l JOIN (SELECT * FROM t WHERE {where}) AS r ON l.k = r.k")
    ),
    "sql raw": lambda lake, part, where: shown(sql(lake, f'SELECT * FROM "t$raw" WHERE {where}')),
    "sql version": lambda lake, part, where: shown(sql(lake, f'SELECT * FROM "t@{part.version}" WHERE {where}')),
}
TRICKS = [
    "n = 666",
    "1000 / n > 0",
    "1 / (n - 666) < 5",
    "CASE WHEN n = 666 THEN 1 / (n - 666) ELSE 1 END = 1",
    "cast(cast(n AS text) || CASE WHEN n = 666 THEN 'x' ELSE '' END AS bigint) > 0",
    "k = 2",
    "k IN (2, 4, 6)",
    "tenant = 'b'",
    "note LIKE 'hidden%'",
    "note IS NOT NULL OR true",
    "ssn LIKE '123%'",
    "ssn = '123-45-1'",
    "score = 1",
    "score > 0 OR ssn <> '***'",
    "true) OR (true",
    "true) --",
    "true OR k > 0",
]


@pytest.mark.parametrize("interface", INTERFACES)
def test_no_trick_shows_a_hidden_row_or_value_at_any_interface(lake, part, interface):
    for trick in TRICKS:
        try:
            rows = INTERFACES[interface](lake, part, trick)
        except (UsageError, AccessError) as error:
            # Nothing is evaluated over a hidden row, so only what no row allows may fail: an unknown column, a syntax.
            text = error.message.replace(trick, "").replace(trick.split(" ")[0], "")
            rows = []
        else:
            text = json.dumps(rows, default=str)
        assert not [secret for secret in (*SECRETS, "zero", "Cast") if secret in text], (trick, text)
        if "count" not in interface and "case" not in interface:
            assert {row["n"] for row in rows} <= ({10, 30, 50, 7} if "raw" in interface else {10, 30, 50}), trick


# -- interfaces without a predicate --------------------------------------------------------------------------------


def test_rows_are_what_the_policy_shows(lake, part):
    assert shown(part.scan()) == SHOWN
    assert shown(part.scan(reverse=True)) == SHOWN[::-1]
    assert shown(part.scan(limit=2)) == SHOWN[:2]
    assert shown(part.scan(limit=0)) == []
    assert part.to_arrow().schema.names == ["k", "n", "ssn", "score"]
    assert pa.table(part).to_pylist() == SHOWN
    assert shown(part.scan(columns=["ssn"])) == [{"ssn": "***"}] * 3
    assert shown(part.scan(columns=["score"], where="ssn = '***'")) == [{"score": None}] * 3


def test_a_key_of_a_hidden_row_is_as_one_that_is_not_there(part):
    assert part.get(1).to_pylist() == SHOWN[:1]
    assert part.get(2) == part.get(99)
    assert part.get_many([1, 2, 5, 6]).to_pylist() == [SHOWN[0], SHOWN[2]]
    assert part.get(1, columns=["score"]).to_pylist() == [{"score": None}]


def test_counts_samples_and_prefixes_are_of_visible_rows(part):
    assert (part.count().rows, part.count().exact, part.count(KeyRange(2, 3)).rows) == (3, True, 0)
    assert part.sample(100, seed=1).to_pylist() == SHOWN
    assert part.sample(2, columns=["n"], seed=1).num_rows == 2
    assert part.prefixes(1).to_pylist() == [{"k": 1}, {"k": 3}, {"k": 5}]
    assert part.prefixes(1, limit=1).to_pylist() == [{"k": 1}]


def test_hidden_columns_are_not_there(lake, part):
    assert part.schema.names == ("k", "n", "ssn", "score")
    for read in (
        lambda: part.scan(columns=["note"]),
        lambda: part.get(1, columns=["note"]),
        lambda: part.scan(where="note = 'x'"),
        lambda: part.changes(0, columns=["note"]),
        lambda: sql(lake, "SELECT note FROM t"),
        lambda: sql(lake, "SELECT missing FROM t"),
        lambda: part.scan(columns=["missing"]),
        lambda: part.scan(where="missing = 1"),
    ):
        with pytest.raises(UsageError) as caught:
            read()
        assert "tenant" not in caught.value.message
        assert (
            "note" not in caught.value.message.replace("'note'", "").replace("note = 'x'", "").split("field named")[0]
        )


def test_sql_sees_the_same_rows_in_every_form(lake):
    for text, rows in {
        "SELECT * FROM t ORDER BY k": SHOWN,
        "SELECT count(*) AS n FROM t": [{"n": 3}],
        "SELECT max(n) AS n, min(ssn) AS s FROM t": [{"n": 50, "s": "***"}],
        "SELECT count(*) AS n FROM t AS a, t AS b": [{"n": 9}],
        "SELECT count(*) AS n FROM t WHERE k = 2": [{"n": 0}],
        "SELECT n FROM t WHERE k IS NOT NULL ORDER BY n": [{"n": 10}, {"n": 30}, {"n": 50}],
        "SELECT rank() OVER (ORDER BY n) AS r FROM t WHERE k = 5": [{"r": 1}],
        "SELECT (SELECT max(n) FROM t) AS n": [{"n": 50}],
        "WITH w AS (SELECT * FROM t) SELECT sum(n) AS n FROM w": [{"n": 90}],
        "SELECT n FROM t UNION SELECT n FROM t ORDER BY n": [{"n": 10}, {"n": 30}, {"n": 50}],
        "SELECT 1 AS one FROM t LIMIT 2": [{"one": 1}] * 2,
    }.items():
        assert shown(sql(lake, text)) == rows, text


def test_sql_does_not_know_other_tables(lake):
    with pytest.raises(NotFoundError) as caught:
        sql(lake, "SELECT * FROM u")
    assert "tables: t" in caught.value.message
    with pytest.raises(NotFoundError) as raised:
        sql(lake, 'SELECT * FROM "u$raw"')
    assert raised.value.code is Code.TABLE_NOT_FOUND


def test_changes_are_those_of_visible_rows(lake, tmp_path):
    lake.close()
    copy = lakebed.open(str(shutil.copytree(lake.url.removeprefix("file://"), tmp_path / "lake")))
    table = copy.table("t")
    part, since = PART.readable(table), table.state().version
    table.write(pa.table({**ROWS, "k": [11, 12, 13, 14, 15, 16]}, schema=SCHEMA.arrow))
    table.remove(KeyRange(0, 4))
    found = shown(part.changes(since))
    assert [(one["_change"], one["k"], one["ssn"]) for one in found] == [
        ("insert", 11, "***"),
        ("insert", 13, "***"),
        ("insert", 15, "***"),
        ("delete", 1, "***"),
        ("delete", 3, "***"),
    ]
    text = json.dumps([found, shown(part.changes(0))])
    assert not [secret for secret in SECRETS if secret in text]
    with pytest.raises(AccessError, match="where of changes"):
        part.changes(since, where="n > 0")


@pytest.mark.parametrize(
    "interface",
    [
        "lazy_polars", "to_duckdb", "register", "history", "history_rows", "state", "log", "reader", "storage",
        "write", "delete", "remove", "alter", "verify", "commit", "failures", "requests", "submit",
        "set", "tag", "restore", "attach",
    ],
)  # fmt: skip
def test_what_is_of_all_rows_and_what_writes_is_refused(part, interface):
    for one in (part, part.snapshot(), part.at(version=part.version)):
        with pytest.raises(AccessError, match="is of all rows"):
            getattr(one, interface)


@pytest.mark.parametrize("read", ["files", "partitions", "splits", "explain"])
def test_a_read_of_all_rows_is_refused(part, read):
    for one in (part, part.snapshot(), part.at(version=part.version)):
        with pytest.raises(AccessError, match="is of all rows"):
            getattr(one, read)()


def test_every_read_of_a_table_is_restricted_or_refused():
    """A read that is added to tables is closed until it is thought of here."""
    from lakebed.table.restricted_table import RestrictedTable

    ours = {name for name in dir(RestrictedTable) if not name.startswith("_")}
    assert ours == {
        "version", "schema", "snapshot", "at", "pin", "get", "get_many", "scan", "count", "sample", "prefixes",
        "to_arrow", "to_pandas", "to_polars", "changes", "explain", "files", "partitions", "splits", "columns",
        "head",
    }  # fmt: skip


def test_functions_and_pins(part):
    with pytest.raises(AccessError) as raised:
        part.scan(apply=lambda rows: rows)
    assert raised.value.code is Code.PERMISSION_MISSING
    with part.pin() as pinned:
        assert shown(pinned.scan()) == SHOWN


# -- policies that do not fit ------------------------------------------------------------------------------------------


def restricted(lake, **rules):
    return Principal("p", (Role("r", Permission.READ, frozenset({"t"}), **rules),)).readable(lake.table("t"))


@pytest.mark.parametrize(
    "rules",
    [
        {"where": "missing = 1"},
        {"where": "1 / (n - 666) > 7"},
        {"where": "n > "},
        {"hidden": frozenset({"missing"})},
        {"hidden": frozenset({"k"})},
        {"masks": (("k", "1"),)},
        {"masks": (("ssn", "n"),)},
        {"masks": (("n", "'x'"),)},
        {"masks": (("n", "1 / 0"),)},
    ],
)
def test_a_policy_that_does_not_fit_shows_nothing(lake, rules):
    for read in (
        lambda part: shown(part.scan()),
        lambda part: part.get_many([1, 2, 3, 4, 5, 6]),
        lambda part: part.count(),
        lambda part: shown(part.changes(0)),
    ):
        with pytest.raises(AccessError) as caught:
            read(restricted(lake, **rules))
        assert "666" not in caught.value.message


def test_a_mask_of_null_makes_a_column_nullable(tmp_path):
    lake = lakebed.create(str(tmp_path))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": pa.field("v", pa.int64(), nullable=False)}))
    table.write(pa.table({"k": [1], "v": [2]}))
    part = restricted(lake, masks=(("v", "NULL"),))
    assert part.to_arrow().to_pylist() == [{"k": 1, "v": None}]
    assert part.schema.arrow.field("v").nullable


def test_many_rows_are_copied_for_the_engine(tmp_path):
    lake = lakebed.create(str(tmp_path))
    table = lake.create_table("t", SCHEMA)
    count = 30_000
    rows = {
        "k": range(count),
        "n": [i % 7 for i in range(count)],
        "tenant": ["a" if i % 3 else "b" for i in range(count)],
        "note": ["hidden-note"] * count,
        "ssn": ["123-45"] * count,
        "score": range(count),
    }
    table.write(pa.table(rows, schema=SCHEMA.arrow))
    visible = [i for i in range(count) if i % 3]
    assert shown(sql(lake, "SELECT count(*) AS n, max(ssn) AS s, count(score) AS c FROM t")) == [
        {"n": len(visible), "s": "***", "c": 0}
    ]
    assert shown(sql(lake, f"SELECT count(*) AS n FROM t WHERE k > {count // 2} AND 7 / (n + k % 3) > 0"))[0]["n"] > 0
    assert shown(sql(lake, "SELECT a.k FROM t AS a JOIN t AS b ON a.k = b.k WHERE a.k < 4 ORDER BY 1")) == [
        {"k": 1},
        {"k": 2},
    ]


def test_information_schema_has_the_columns_that_masks_leave(tmp_path):
    """The engine asks for its rows while it plans, and evaluates the masks before."""
    lake = lakebed.create(str(tmp_path))
    values = {"s": "string", "n": "int64", "day": "date32", "price": "decimal128(8, 2)", "hidden": "int64"}
    lake.create_table("t", Schema({"k": "int64"}, values=values)).write(pa.table({"k": [1], "n": [5]}))
    masks = (("s", "'***'"), ("n", "1 + 1"), ("day", "DATE '2000-01-01'"), ("price", "CAST(1 AS DECIMAL(8, 2))"))
    reader = Principal(
        "reader", (Role("part", Permission.READ, frozenset({"t"}), masks=masks, hidden=frozenset({"hidden"})),)
    )
    described = "SELECT column_name, data_type FROM information_schema.columns ORDER BY ordinal_position"
    for _ in range(2):
        found = run_statement(reader, lake, described, None).read_all()["column_name"].to_pylist()
        assert found == ["k", "s", "n", "day", "price"]
    joined = "SELECT n, count(*) AS c FROM t, information_schema.columns GROUP BY n"
    assert run_statement(reader, lake, joined, None).read_all().to_pylist() == [{"n": 2, "c": 5}]
    tables = "SELECT table_name FROM information_schema.tables"
    assert run_statement(reader, lake, tables, None).read_all()["table_name"].to_pylist() == ["t"]
