"""Statements in SQL Lab."""

import csv
import io

import pytest
from sales import COUNT, ROWS

import lakebed


def test_rows_of_each_type_are_shown(superset, database):
    found = superset.sql(database, "SELECT * FROM sales WHERE id < 9 ORDER BY id")
    assert [one["id"] for one in found["data"]] == list(range(9))
    assert found["data"][7] == {"id": 7} | dict.fromkeys(ROWS[0].keys() - {"id"})
    one = found["data"][8]
    assert one["sold"] == "2026-01-03T08:00:08+00:00"
    assert one["there"] == "2026-01-03T09:00:08+01:00"
    assert (one["at"], one["day"], one["ref"]) == ("2026-01-03T08:00:08", "2026-01-03", str(ROWS[8]["ref"]))
    assert (one["price"], one["hash"]) == (2.0, 2**63 + 8)
    dates = {column["column_name"] for column in found["columns"] if column["is_dttm"]}
    assert dates == {"at", "sold", "there", "day", "time"}


def test_a_limit_is_added(superset, database):
    found = superset.sql(database, "SELECT id FROM sales", queryLimit=5)
    assert len(found["data"]) == 5
    # One more tells whether there are more.
    assert found["query"]["executedSql"].endswith("LIMIT 6")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sold AT TIME ZONE 'Europe/Berlin'", "2026-01-03T09:00:08+01:00"),
        ("date_trunc('day', at)", "2026-01-03T00:00:00"),
        ("date_trunc('day', there)", "2026-01-03T00:00:00+01:00"),
        ("at + INTERVAL '1 day'", "2026-01-04T08:00:08"),
        ("id::DOUBLE / 3 > 2.6", True),
        ("tags[1]", "a"),
        ("spot['x']", 1.5),
        ("shop || '%s'", "it's%s"),
        ("CASE WHEN price > 1 THEN 'much' END", "much"),
        ("now() > TIMESTAMP '2020-01-01 00:00:00'", True),
        ("count(*) OVER (ORDER BY id)", 1),
    ],
)
def test_an_expression_is_what_the_engine_has(superset, database, expression, value):
    (row,) = superset.sql(database, f"SELECT {expression} AS x FROM sales WHERE id = 8")["data"]
    assert row == {"x": value}


def test_the_time_of_now_has_nanoseconds(superset, database):
    (row,) = superset.sql(database, "SELECT now() AS x")["data"]
    assert row["x"].endswith("+00:00")


def test_an_old_version_is_a_table(superset, database):
    (row,) = superset.sql(database, 'SELECT count(*) AS n FROM "sales@1"')["data"]
    assert row == {"n": 0}
    (row,) = superset.sql(database, "SELECT count(*) AS n FROM tables.sales")["data"]
    assert row == {"n": COUNT}


@pytest.mark.parametrize(
    ("statement", "answer", "words"),
    [
        ("SELECT id,\n FROM WHERE sales", (422, "INVALID_SQL_ERROR"), "line 2:11"),
        ("SELECT nope FROM sales", (500, "COLUMN_DOES_NOT_EXIST_ERROR"), "sales.shop"),
        ("SELECT * FROM nowhere", (500, "TABLE_DOES_NOT_EXIST_ERROR"), "nowhere"),
        ("SELECT 1 / (id - id) FROM sales", (500, "GENERIC_DB_ENGINE_ERROR"), "Divide by zero"),
        ("INSERT INTO shops VALUES (NULL, 'x')", (500, "GENERIC_DB_ENGINE_ERROR"), "name"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(superset, database, statement, answer, words):
    status, kind = answer
    (error,) = superset.sql(database, statement, status)["errors"]
    assert error["error_type"] == kind
    assert words in error["message"]


def test_statements_change_rows(superset, database, lake):
    superset.sql(database, "INSERT INTO shops VALUES ('new', 'a'), ('newer', 'b')")
    superset.sql(database, "UPDATE shops SET city = 'c' WHERE name = 'new'; DELETE FROM shops WHERE name = 'newer'")
    query = "SELECT name, city FROM shops WHERE name LIKE 'new%'"
    assert superset.sql(database, query)["data"] == [{"name": "new", "city": "c"}]
    assert superset.sql(database, "DELETE FROM shops WHERE name = 'new'")["data"] == []
    assert lakebed.open(lake).sql(query).to_arrow().num_rows == 0


def test_a_result_is_downloaded(superset, database):
    name = f"download-{database}"[:11]
    superset.sql(database, "SELECT id, shop, price, sold, tags FROM sales WHERE id < 3 ORDER BY id", client_id=name)
    text = superset.call("GET", f"sqllab/export/{name}/")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert rows[0] == {"id": "0", "shop": "", "price": "", "sold": "", "tags": ""}
    assert rows[2] == {
        "id": "2", "shop": "it's", "price": "0.50", "sold": "2026-01-01 14:00:02+00:00", "tags": '["a", null]'
    }  # fmt: skip


def test_a_file_is_uploaded_as_a_table(superset, database, lake):
    name = f"uploaded_{database}"
    data = {
        "type": "csv", "table_name": name, "schema": "tables", "already_exists": "replace", "delimiter": ",",
        "file": (io.BytesIO(b"id,shop,price\n1,oslo,1.5\n2,,2\n"), "shops.csv"),
    }  # fmt: skip
    superset.call("POST", f"database/{database}/upload/", 201, data=data, content_type="multipart/form-data")
    found = lakebed.open(lake).sql(f"SELECT * FROM {name} ORDER BY id").to_arrow().to_pylist()
    assert found == [{"id": 1, "shop": "oslo", "price": 1.5}, {"id": 2, "shop": None, "price": 2.0}]
