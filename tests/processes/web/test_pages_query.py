"""The page for queries."""

from __future__ import annotations

import html
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed.read.rows.explain import Explanation
from lakebed.server.security.principal import Permission, Principal, Role
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.pages.query_page import funnel_of, grid_of
from tests.soaked import chosen


def rows(browser: TestClient, **query: str) -> list[list[object]]:
    return browser.get("/query.json", params={"run": "true", **query}).json()["result"]["rows"]


def test_a_table_is_chosen_first(browser, stations):
    assert "<option>stations</option>" in browser.get("/query").text
    page = browser.get("/query?table=stations").text
    assert 'name="low.id"' in page


def test_rows_of_a_key(browser, stations):
    assert rows(browser, table="stations", **{"low.id": "gamma"}) == [["gamma", 1, None], ["gamma", 2, None]]
    page = browser.get("/query?table=stations&low.id=gamma&run=true").text
    assert '<td class="null n">null</td>' in page


def test_a_link_of_a_table_and_a_key_is_enough(browser, stations):
    assert rows(browser, table="stations", key="gamma") == [["gamma", 1, None], ["gamma", 2, None]]
    page = browser.get("/query?table=stations&key=gamma").text
    assert 'name="low.id" value="gamma"' in page
    # The link that a page offers, and the files that it offers, are of the same rows.
    asked = browser.get("/query.json?table=stations&low.id=gamma&run=true").json()
    assert asked["link"] == "/query?table=stations&key=gamma"
    for link in re.findall('href="(/query/download[^"]*)"', page):
        assert browser.get(html.unescape(link)).status_code == 200
    assert browser.get("/query/download?format=csv&table=stations&key=gamma").text.count("gamma") == 2


@pytest.mark.parametrize("key", ["a b", "ä&=?#", "'", '"><script>', "k" * 200, "0", "+", "%2F"])
def test_a_link_has_any_key_of_any_number_of_fields(lake, browser, key):
    table = lake.create_table("pairs", lakebed.Schema({"a": "string", "b": "int64"}))
    table.write(pa.table({"a": [key, key, "other"], "b": [1, 2, 1]}))
    asked = browser.get("/query.json", params={"table": "pairs", "low.a": key, "low.b": "2", "run": "true"}).json()
    assert asked["result"]["rows"] == [[key, 2]]
    by_link = browser.get(asked["link"].replace("/query?", "/query.json?")).json()
    assert by_link["result"]["rows"] == [[key, 2]]
    assert browser.get(asked["link"]).status_code == 200


@pytest.mark.parametrize("key", [["a"], ["a", "1", "2"]])
def test_a_link_with_another_number_of_fields_says_which_there_are(lake, browser, key):
    lake.create_table("pairs", lakebed.Schema({"a": "string", "b": "int64"}))
    answer = browser.get("/query", params={"table": "pairs", "key": key})
    assert answer.status_code == 400
    assert "the row key of pairs is a, b" in answer.text
    assert browser.get("/query/download", params={"format": "csv", "table": "pairs", "key": key}).status_code == 422


@pytest.mark.parametrize("name", chosen(["plain", "order", "Has-Capitals", "1st"], "order", "Has-Capitals"))
def test_an_empty_box_has_a_statement_that_runs(lake, browser, name):
    assert ">SELECT 1</textarea>" in browser.get("/query?kind=sql").text
    lake.create_table(name, lakebed.Schema({"k": "int64"})).write(pa.table({"k": [7]}))
    page = browser.get("/query?kind=sql").text
    statement = html.unescape(re.search("<textarea[^>]*>([^<]*)</textarea>", page)[1])
    assert rows(browser, kind="sql", sql=statement) == [[7]]
    assert ">SELECT 2</textarea>" in browser.get("/query?kind=sql&sql=SELECT+2").text


def test_rows_of_a_range(browser, stations):
    found = rows(browser, kind="range", table="stations", **{"low.id": "b", "high.id": "omega", "where": "at = 1"})
    assert [row[0] for row in found] == ["gamma", "omega"]
    found = rows(browser, kind="range", table="stations", reverse="true", rows="1")
    assert found == [["omega", 2, 2.5]]


def test_no_more_rows_than_asked_for(browser, stations):
    result = browser.get("/query.json?kind=range&table=stations&rows=2&run=true").json()["result"]
    assert (len(result["rows"]), result["more"]) == (2, True)
    result = browser.get("/query.json?kind=range&table=stations&rows=6&run=true").json()["result"]
    assert (len(result["rows"]), result["more"]) == (6, False)


def test_sql_runs_over_all_tables(browser, stations):
    statement = "SELECT id, count(*) AS n FROM stations GROUP BY id ORDER BY id"
    assert rows(browser, kind="sql", sql=statement) == [["alpha", 2], ["gamma", 2], ["omega", 2]]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"table": "nothing"}, "no table named"),
        ({"kind": "sql", "sql": ""}, "write a statement"),
        ({"kind": "sql", "sql": "SELECT nonsense FROM"}, "SELECT nonsense"),
        ({"kind": "range", "table": "stations", "where": "luck > 3"}, "luck"),
        ({"kind": "range", "table": "stations", "low.id": "z", "high.id": "a"}, "z"),
        ({}, "choose a table"),
    ],
)
def test_what_the_user_can_mend_is_said_beside_the_form(browser, stations, query, text):
    answer = browser.get("/query", params={"run": "true", **query})
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert text in answer.text


@pytest.mark.parametrize("query", [{"kind": "luck"}, {"rows": "0"}, {"rows": "1001"}, {"rows": "x"}])
def test_a_request_that_no_form_sends_is_refused(browser, query):
    assert browser.get("/query", params=query).status_code == 400


def test_all_rows_are_downloaded_in_each_format(browser, stations):
    def download(form: str, **query: str) -> bytes:
        answer = browser.get("/query/download", params={"format": form, "kind": "range", "table": "stations", **query})
        assert answer.status_code == 200
        return answer.content

    lines = [json.loads(line) for line in download("json", rows="1").splitlines()]
    assert len(lines) == 6
    assert lines[2] == {"id": "gamma", "at": 1, "reading": None}
    assert download("csv", **{"low.id": "o"}) == b"id,at,reading\nomega,1,2.5\nomega,2,2.5\n"
    assert pq.read_table(io.BytesIO(download("parquet", where="at = 1"))).num_rows == 3
    assert download("csv", kind="sql", sql="SELECT max(at) AS m FROM stations") == b"m\n2\n"
    assert browser.get("/query/download?format=xml&table=stations").status_code == 400
    assert browser.get("/query/download?format=csv&table=nothing").status_code == 404


def test_a_read_is_explained_as_a_funnel(browser, stations):
    page = browser.get("/query.json?table=stations&low.id=alpha&explain=true&run=true").json()
    counts = {bar["name"]: bar["count"] for bar in page["funnel"]["bars"]}
    assert counts["Partitions of the table"] == 3
    assert counts["Partitions with these keys"] == 1
    assert counts["Rows returned"] == 2


def test_a_funnel_narrows_with_what_is_left():
    took = Explanation(
        version=1, partitions=2, files_considered=50, files_out_by_bounds=30, files_out_by_filter=19, files_opened=1,
        row_groups=1, pages=3, pages_out_by_bounds=7, size_bytes=10, rows=5,
        rows_merged=0, merge="KeepAll()", engine=False, steps=(),
    )  # fmt: skip
    bars = funnel_of(took, 1000).bars
    assert [bar.count for bar in bars] == [1000, 2, 50, 20, 1, 3, 5]
    assert [bar.left_out for bar in bars] == [None, 998, None, 30, 19, None, None]
    assert bars[0].width == 600
    assert all(bar.x + bar.width / 2 == pytest.approx(300, abs=0.1) for bar in bars)
    assert ">1 file, 19 left out<" in took.plot()._repr_svg_()


def test_values_are_shown_whole_and_escaped(lake, browser):
    table = lake.create_table("odd", lakebed.Schema({"k": "binary"}, {}, {"t": "string", "at": "timestamp[ns]"}))
    text = "<img src=x onerror=alert(1)>" * 10
    table.write(pa.table({"k": [b"\x00\xff"], "t": [text], "at": pa.array([1], pa.timestamp("ns"))}))
    page = browser.get("/query?kind=range&table=odd&run=true").text
    assert "<img" not in page
    assert "00ff" in page
    assert "000000001" in page
    assert rows(browser, kind="range", table="odd")[0][1] == text


def test_a_read_that_takes_too_long_ends():
    schema = pa.schema([("n", pa.int64())])
    batch = pa.record_batch([pa.array([1])], schema)
    with pytest.raises(lakebed.errors.UsageError, match="longer than"):
        grid_of(schema, iter([batch] * 3), 10, -1)


def test_a_principal_sees_its_rows_and_no_funnel(lake, stations):
    role = Role("part", Permission.READ, frozenset({"stations"}), where="at = 1", hidden=frozenset({"reading"}))

    class FakeAuthenticator:
        def authenticate(self, _: str | None) -> Principal:
            return Principal("ann", (role,))

    with TestClient(make_app(Service(lake, maintain=False), FakeAuthenticator())) as client:
        page = client.get("/query.json?kind=range&table=stations&explain=true&run=true").json()
        assert page["result"]["rows"] == [["alpha", 1], ["gamma", 1], ["omega", 1]]
        assert page["funnel"] is None
        assert [field["name"] for field in page["fields"]] == ["id", "at"]
        found = rows(client, kind="sql", sql="SELECT count(*) FROM stations")
        assert found == [[3]]
