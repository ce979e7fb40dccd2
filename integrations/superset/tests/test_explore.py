"""Databases, datasets and charts of Superset over tables of Lakebed."""

import csv
import datetime as dt
import io
from collections import Counter

import pytest
from sales import COUNT, ROWS

FILLED = [row for row in ROWS if row["at"] is not None]
NUMERIC, STRING, TEMPORAL, BOOLEAN = range(4)


def test_a_wrong_url_says_why(superset, tmp_path):
    for url, word in (
        (f"lakebed:///{tmp_path}/nowhere", "nowhere"),
        ("lakebed+http://:t@127.0.0.1:1", "127.0.0.1:1"),
    ):
        asked = {"database_name": "wrong", "sqlalchemy_uri": url}
        found = superset.call("POST", "database/test_connection/", 400, json=asked)
        assert word in found["errors"][0]["message"]
        assert found["errors"][0]["extra"]["engine_name"] == "Lakebed"


def test_a_database_has_one_schema_with_its_tables(superset, database):
    assert superset.call("GET", f"database/{database}/schemas/?q=(force:!t)") == {"result": ["tables"]}
    found = superset.call("GET", f"database/{database}/tables/?q=(force:!t,schema_name:tables)")["result"]
    assert {(one["value"], one["type"]) for one in found} >= {("sales", "table"), ("shops", "table")}


def test_a_table_has_its_columns_and_a_statement(superset, database):
    found = superset.call("GET", f"database/{database}/table_metadata/?name=sales&schema=tables")
    assert {one["name"]: one["longType"] for one in found["columns"]} == {
        "id": "BIGINT", "shop": "VARCHAR", "price": "DECIMAL(10, 2)", "at": "TIMESTAMP", "sold": "TIMESTAMP",
        "there": "timestamp[ns, tz=Europe/Berlin]", "day": "DATE", "time": "TIME", "tags": "ARRAY",
        "spot": "struct<x: double, y: double>", "fresh": "BOOLEAN", "amount": "FLOAT", "ref": "uuid", "doc": "JSON",
        "raw": "BLOB", "small": "TINYINT", "hash": "BIGINT UNSIGNED", "kind": "dictionary<string>",
        "vector": "fixed_size_list<float>[2]",
    }  # fmt: skip
    assert found["selectStar"].endswith("LIMIT 100")
    assert len(superset.sql(database, found["selectStar"], queryLimit=100)["data"]) == 100


def test_a_dataset_knows_what_its_columns_are_for(superset, dataset):
    found = superset.call("GET", f"dataset/{dataset}")["result"]
    assert {one["column_name"]: one["type_generic"] for one in found["columns"]} == {
        "id": NUMERIC, "shop": STRING, "price": NUMERIC, "at": TEMPORAL, "sold": TEMPORAL, "there": TEMPORAL,
        "day": TEMPORAL, "time": TEMPORAL, "tags": STRING, "spot": None, "fresh": BOOLEAN, "amount": NUMERIC,
        "ref": STRING, "doc": STRING, "raw": None, "small": NUMERIC, "hash": NUMERIC, "kind": STRING, "vector": None,
    }  # fmt: skip
    assert found["main_dttm_col"] == "at"
    assert len(found["time_grain_sqla"]) == 19
    values = superset.call("GET", f"datasource/table/{dataset}/column/shop/values/")["result"]
    assert set(values) == {"oslo", "rome", "it's", None}


SUM = {"expressionType": "SIMPLE", "column": {"column_name": "amount"}, "aggregate": "SUM", "label": "total"}


def by_grain(column, grain):
    return {
        "timeGrain": grain,
        "columnType": "BASE_AXIS",
        "sqlExpression": column,
        "label": "t",
        "expressionType": "SQL",
    }


def day(at):
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def week(at):
    return dt.timedelta(days=at.weekday())


BEGIN = {
    "PT1S": lambda at: at,
    "PT5S": lambda at: at.replace(second=at.second // 5 * 5),
    "PT30S": lambda at: at.replace(second=at.second // 30 * 30),
    "PT1M": lambda at: at.replace(second=0),
    "PT5M": lambda at: at.replace(second=0, minute=at.minute // 5 * 5),
    "PT10M": lambda at: at.replace(second=0, minute=at.minute // 10 * 10),
    "PT15M": lambda at: at.replace(second=0, minute=at.minute // 15 * 15),
    "PT30M": lambda at: at.replace(second=0, minute=at.minute // 30 * 30),
    "PT1H": lambda at: at.replace(second=0, minute=0),
    "PT6H": lambda at: at.replace(second=0, minute=0, hour=at.hour // 6 * 6),
    "P1D": day,
    "P1W": lambda at: day(at) - week(at),
    "1969-12-28T00:00:00Z/P1W": lambda at: day(at) - dt.timedelta(days=(at.weekday() + 1) % 7),
    "1969-12-29T00:00:00Z/P1W": lambda at: day(at) - week(at),
    "P1W/1970-01-03T00:00:00Z": lambda at: day(at) + dt.timedelta(days=(5 - at.weekday()) % 7),
    "P1W/1970-01-04T00:00:00Z": lambda at: day(at) + dt.timedelta(days=6 - at.weekday()),
    "P1M": lambda at: day(at).replace(day=1),
    "P3M": lambda at: day(at).replace(day=1, month=(at.month - 1) // 3 * 3 + 1),
    "P1Y": lambda at: day(at).replace(day=1, month=1),
}


@pytest.mark.parametrize("grain", BEGIN)
def test_a_chart_groups_by_each_grain_of_time(superset, dataset, grain):
    found = superset.chart(dataset, columns=[by_grain("at", grain)], metrics=["count", SUM])["data"]
    wanted, total = Counter(), Counter()
    for row in FILLED:
        wanted[BEGIN[grain](row["at"])] += 1
        total[BEGIN[grain](row["at"])] += row["amount"]
    given = {None if one["t"] is None else dt.datetime.fromtimestamp(one["t"] / 1000, dt.UTC): one for one in found}
    assert given.pop(None)["count"] == COUNT - len(FILLED)
    assert {at.replace(tzinfo=None): one["count"] for at, one in given.items()} == wanted
    assert {at.replace(tzinfo=None): one["total"] for at, one in given.items()} == pytest.approx(total)


# Berlin's February begins an hour earlier, and so does its month of June, by two.
@pytest.mark.parametrize(("column", "zone"), [("at", 0), ("sold", 0), ("day", 0), ("there", 1)])
def test_a_chart_has_a_range_of_time_filters_an_order_and_a_limit(superset, dataset, column, zone):
    filters = [
        {"col": column, "op": "TEMPORAL_RANGE", "val": "2026-02-01 : 2026-06-01"},
        {"col": "shop", "op": "IN", "val": ["oslo", "it's"]},
        {"col": "price", "op": ">=", "val": 40.5},
        {"col": "fresh", "op": "==", "val": True},
    ]
    found = superset.chart(
        dataset,
        columns=[by_grain(column, "P1M")],
        metrics=["count"],
        filters=filters,
        row_limit=3,
        orderby=[["count", False]],
    )["data"]
    shift = dt.timedelta(hours=zone)
    wanted = Counter(
        (row["at"] + shift).month
        for row in FILLED
        if 2 <= (row["at"] + shift).month < 6 and (row["at"] + shift).year == 2026
        and row["shop"] != "rome" and row["price"] >= 40.5 and row["fresh"]
    )  # fmt: skip
    assert len(found) == 3
    assert [one["count"] for one in found] == sorted(wanted.values(), reverse=True)[:3]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([{"col": "shop", "op": "IS NULL"}], lambda row: row["shop"] is None),
        ([{"col": "shop", "op": "IS NOT NULL"}], lambda row: row["shop"] is not None),
        ([{"col": "shop", "op": "ILIKE", "val": "%O%"}], lambda row: row["shop"] in ("oslo", "rome")),
        ([{"col": "shop", "op": "NOT IN", "val": ["rome"]}], lambda row: row["shop"] in ("oslo", "it's")),
        ([{"col": "ref", "op": "==", "val": str(ROWS[9]["ref"])}], lambda row: row["id"] == 9),
        ([{"col": "hash", "op": "==", "val": str(2**63 + 9)}], lambda row: row["id"] == 9),
        ([{"col": "kind", "op": "IN", "val": ["c"]}], lambda row: row["kind"] == "c"),
        ([{"col": "small", "op": "<", "val": 10}], lambda row: row["small"] is not None and row["small"] < 10),
        ([{"col": "day", "op": "==", "val": "2026-01-03"}], lambda row: row["day"] == dt.date(2026, 1, 3)),
    ],
)  # fmt: skip
def test_a_filter_finds_the_rows_that_python_finds(superset, dataset, filters, wanted):
    found = superset.chart(dataset, columns=["id"], filters=filters)["data"]
    assert {one["id"] for one in found} == {row["id"] for row in ROWS if wanted(row)}


def test_a_chart_keeps_the_greatest_series(superset, dataset):
    found = superset.chart(
        dataset, columns=[by_grain("at", "P1M"), "shop"], metrics=[SUM], series_columns=["shop"], series_limit=1,
        series_limit_metric=SUM, order_desc=True, filters=[{"col": "shop", "op": "IS NOT NULL"}],
    )["data"]  # fmt: skip
    totals = Counter()
    for row in FILLED:
        totals[row["shop"]] += row["amount"]
    assert {one["shop"] for one in found} == {totals.most_common(1)[0][0]}


def test_a_chart_of_own_sql_and_its_download(superset, dataset):
    metric = {"expressionType": "SQL", "sqlExpression": "sum(price) / count(*)", "label": 'mean, "exact"'}
    asked = {"columns": ["shop"], "metrics": [metric], "filters": [{"col": "shop", "op": "IS NOT NULL"}]}
    text = superset.chart(dataset, form="csv", **asked)
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    mean = Counter()
    for shop in ("oslo", "rome", "it's"):
        prices = [float(row["price"]) for row in FILLED if row["shop"] == shop]
        mean[shop] = sum(prices) / len(prices)
    assert {row["shop"]: float(row['mean, "exact"']) for row in rows} == pytest.approx(mean, rel=1e-4)
    broken = superset.call(
        "POST", "chart/data", 400,
        json={"datasource": {"id": dataset, "type": "table"}, "force": True, "queries": [
            {"columns": [], "metrics": [{"expressionType": "SQL", "sqlExpression": "sum(nope)", "label": "x"}]}]},
    )  # fmt: skip
    assert "No field named nope" in str(broken)


def test_samples_have_values_of_each_type(superset, dataset):
    found = superset.chart(dataset, kind="samples", row_limit=1000)
    assert found["rowcount"] == COUNT
    rows = {one["id"]: one for one in found["data"]}
    assert rows[7] == {"id": 7} | dict.fromkeys(ROWS[0].keys() - {"id"})
    one = rows[8]
    assert one["ref"] == str(ROWS[8]["ref"])
    assert one["hash"] == 2**63 + 8
    assert (one["price"], one["amount"], one["fresh"], one["kind"]) == (2.0, 4.0, True, "c")
    assert one["doc"] == '{"a": [1, null]}'
    assert one["tags"] == '["a", null]'
    moment = ROWS[8]["sold"].timestamp() * 1000
    assert one["at"] == one["sold"] == one["there"] == moment
    assert one["time"] == "08:00:08"


def test_a_query_is_a_dataset(superset, database):
    asked = {
        "database": database, "schema": "tables", "table_name": f"named {database}",
        "sql": "SELECT s.id, s.sold, c.city FROM sales s LEFT JOIN shops c ON s.shop = c.name",
    }  # fmt: skip
    made = superset.call("POST", "dataset/", 201, json=asked)["id"]
    columns = superset.call("GET", f"dataset/{made}")["result"]["columns"]
    assert {one["column_name"]: one["type_generic"] for one in columns} == {
        "id": NUMERIC, "sold": TEMPORAL, "city": STRING
    }  # fmt: skip
    found = superset.chart(made, columns=["city"], metrics=["count"])["data"]
    oslo = sum(row["shop"] == "oslo" for row in ROWS)
    assert {one["city"]: one["count"] for one in found} == {"Oslo": oslo, None: COUNT - oslo}
