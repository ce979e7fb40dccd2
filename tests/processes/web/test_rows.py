"""Reads over HTTP, in every format."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient
from pyarrow import csv

import lakebed
from lakebed.server.web.app import RequestLimits
from lakebed.server.web.row_answers import FORMATS
from tests.tables.web.cases import ARROW, JSON_LINES, ROWS, SCHEMA, arrow_bytes, served

T = "/v1/tables/t"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with served(tmp_path_factory.mktemp("rows")) as made:
        yield made


def lines(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def error(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_reads_are_of_the_table_that_has_the_name_now(tmp_path: Path) -> None:
    """Also right after another process dropped the table, and made another of its name."""
    with served(tmp_path) as client:
        assert client.post(f"{T}/count", json={}).json()["rows"] == 4
        lake = lakebed.open(str(tmp_path / "lake"))
        for rows in range(4):
            lake.drop_table("t")
            lake.create_table("t", SCHEMA).write(ROWS.slice(0, rows))
            read = [
                lambda: len(lines(client.get(f"{T}/scan"))),
                lambda: client.post(f"{T}/count", json={}).json()["rows"],
                lambda: len(lines(client.post(f"{T}/get_many", json={"keys": [["a", 1], ["a", 2]]}))),
                lambda: client.post(f"{T}/explain", json={}).json()["rows"],
            ][rows]
            assert read() == rows
        lake.drop_table("t")
        assert error(client.get(f"{T}/get", params={"key": ["a", "1"]})) == (404, "table_not_found")


A1 = {"k": "a", "n": 1, "v": 0.5, "b": "0001"}


def test_a_key_in_the_url_has_the_types_of_the_schema(client: TestClient[Any]) -> None:
    assert lines(client.get(f"{T}/get", params={"key": ["a", "1"]})) == [A1]


def test_a_key_without_rows_gives_no_lines(client: TestClient[Any]) -> None:
    assert lines(client.get(f"{T}/get", params={"key": ["z", "1"]})) == []


def test_a_parameter_that_there_is_not_is_refused_with_those_that_there_are(client: TestClient[Any]) -> None:
    answer = client.get(f"{T}/scan", params={"limt": "10"})
    assert error(answer) == (400, "request_invalid")
    assert "'limt'" in answer.json()["error"]["message"]
    assert ", limit" in answer.json()["error"]["message"]


def test_a_key_in_json(client: TestClient[Any]) -> None:
    assert lines(client.post(f"{T}/get", json={"key": ["b", 1], "columns": ["v", "b"]})) == [{"v": "Infinity", "b": ""}]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["a"], (422, "key_length_mismatch")),
        (["a", "x"], (422, "key_unparsable")),
        (["a", str(2**63)], (422, "key_not_representable")),
        ([], (400, "request_invalid")),
    ],
)
def test_a_key_that_does_not_fit_is_refused(
    client: TestClient[Any], keys: list[str], expected: tuple[int, str]
) -> None:
    assert error(client.get(f"{T}/get", params={"key": keys})) == expected


def test_many_keys_as_json_and_as_arrow(client: TestClient[Any]) -> None:
    keys = pa.table({"k": ["c", "a"], "n": pa.array([1, 1], pa.int64())})
    by_json = lines(client.post(f"{T}/get_many", json={"keys": [["c", 1], ["a", 1]], "columns": ["k"]}))
    headers = {"content-type": ARROW}
    by_arrow = client.post(f"{T}/get_many", params={"columns": "k"}, content=arrow_bytes(keys), headers=headers)
    assert by_json == lines(by_arrow) == [{"k": "a"}, {"k": "c"}]


@pytest.mark.parametrize(
    ("query", "ks"),
    [
        ({}, ["a", "a", "b", "c"]),
        ({"from": ["b"]}, ["b", "c"]),
        ({"from": ["a", "2"], "to": ["b", "2"]}, ["a", "b"]),
        ({"prefix": ["a"]}, ["a", "a"]),
        ({"starts_with": ["c"]}, ["c"]),
        ({"where": "v > 1"}, ["b", "c"]),
        ({"limit": "1", "reverse": "true"}, ["c"]),
        ({"at": "1"}, []),
    ],
)
def test_scans(client: TestClient[Any], query: dict[str, Any], ks: list[str]) -> None:
    assert [row["k"] for row in lines(client.get(f"{T}/scan", params=query))] == ks


def test_several_ranges_count_each_row_once(client: TestClient[Any]) -> None:
    ranges = [{"prefix": ["a"]}, {"from": ["a", 2], "to": ["b", 1], "to_inclusive": True}]
    assert [row["k"] for row in lines(client.post(f"{T}/scan", json={"ranges": ranges}))] == ["a", "a", "b"]


def test_every_format_has_the_same_rows(client: TestClient[Any]) -> None:
    def sent(media_type: str) -> bytes:
        answer = client.get(f"{T}/scan", headers={"accept": media_type})
        assert answer.headers["content-type"].startswith(media_type)
        return answer.content

    with pa.ipc.open_stream(sent(ARROW)) as stream:
        assert stream.read_all().to_pydict() == ROWS.to_pydict()
    assert pq.read_table(io.BytesIO(sent("application/vnd.apache.parquet"))).to_pydict() == ROWS.to_pydict()
    assert json.loads(sent("application/json")) == [json.loads(line) for line in sent(JSON_LINES).splitlines()]
    text = sent("text/csv")
    assert csv.read_csv(io.BytesIO(text)).column("v").to_pylist() == ROWS.column("v").to_pylist()
    assert text.splitlines()[:3] == [b"k,n,v,b", b"a,1,0.5,0001", b"a,2,,"]


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("*/*", JSON_LINES),
        ("text/html, application/vnd.apache.arrow.stream;q=0.9, text/csv;q=0.1", ARROW),
        ("text/*", "text/csv"),
        (f"{JSON_LINES};q=0", None),
        ("image/png", None),
    ],
)
def test_the_header_decides_the_format(client: TestClient[Any], accept: str, found: str | None) -> None:
    answer = client.get(f"{T}/scan", headers={"accept": accept})
    if found is None:
        assert answer.status_code == 406
        assert JSON_LINES in answer.json()["error"]["message"]
    else:
        assert answer.headers["content-type"].partition(";")[0] == found


def test_counts_samples_prefixes_and_explanations(client: TestClient[Any]) -> None:
    counted = {"table": "t", "rows": 2, "exact": True, "rows_min": 2, "rows_max": 2}
    assert client.post(f"{T}/count", json={"ranges": [{"prefix": ["a"]}]}).json() == counted
    assert len(lines(client.post(f"{T}/sample", json={"rows": 2, "seed": 1}))) == 2
    assert lines(client.post(f"{T}/prefixes", json={"depth": 1})) == [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    explained = client.post(f"{T}/explain", json={"key": ["a", 1]}).json()
    assert (explained["rows"], explained["files_opened"]) == (1, 1)


def test_sql(client: TestClient[Any]) -> None:
    found = client.post("/v1/sql", json={"statement": "SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY k LIMIT 1"})
    assert lines(found) == [{"k": "a", "n": 2}]
    assert error(client.post("/v1/sql", json={"statement": "SELECT nothing FROM t"}))[0] == 400


def test_json_has_no_two_columns_of_one_name(client: TestClient[Any]) -> None:
    found = client.post("/v1/sql", json={"statement": "SELECT a.k, b.k FROM t a JOIN t b ON a.n = b.n"})
    assert error(found) == (400, "column_duplicate")


@pytest.mark.parametrize("limits", [RequestLimits(answer_rows=3), RequestLimits(answer_bytes=10)])
def test_an_answer_beyond_a_limit_is_refused(tmp_path: Path, limits: RequestLimits) -> None:
    with served(tmp_path, limits=limits) as small:
        assert error(small.get(f"{T}/scan")) == (400, "answer_limit_exceeded")


def test_what_is_not_there_is_not_found_as_json(client: TestClient[Any]) -> None:
    assert error(client.get("/v1/tables/none/scan")) == (404, "table_not_found")
    assert error(client.get(f"{T}/scan", params={"at": "9"})) == (404, "version_not_found")
    for path in ("/v1", "/v1/nothing", "/v1/nothing/more", "/v1/openapi.yaml"):
        assert error(client.get(path)) == (404, "request_invalid"), path
    assert client.put("/v1/tables").status_code == 405


def test_the_names_of_other_tables_are_not_in_the_answer(client: TestClient[Any]) -> None:
    assert "its tables" not in client.get("/v1/tables/none/scan").text


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"key": 1}', b'{"kez": []}', b"\xff", b'{"key": [[1]]}'])
def test_a_body_that_is_not_what_is_described_is_refused(client: TestClient[Any], body: bytes) -> None:
    assert error(client.post(f"{T}/get", content=body)) == (400, "request_invalid")


@pytest.mark.parametrize("path", ["/v1/sql", f"{T}/get", f"{T}/get_many", f"{T}/scan"])
@pytest.mark.parametrize(
    ("body", "words"), [(b"", "has no body"), (b"[1", "the body is not"), (b'{"x": 1}', "unknown field `x`")]
)
def test_the_answer_to_a_bad_body_says_what_is_wrong(
    client: TestClient[Any], path: str, body: bytes, words: str
) -> None:
    assert words in client.post(path, content=body).json()["error"]["message"]


def test_a_path_or_a_method_that_there_is_not_is_named(client: TestClient[Any]) -> None:
    assert "there is no /v1/nothing here" in client.get("/v1/nothing").text
    assert "PUT is no method of /v1/sql" in client.put("/v1/sql").text
    assert "parameter limit: " in client.get(f"{T}/scan?limit=x").text


@pytest.mark.parametrize("path", ["/v1/tables/%00/get", "/v1/tables/..%2f..%2fetc/get", "/v1/tables/%ff/get"])
def test_tricks_in_names_find_nothing(client: TestClient[Any], path: str) -> None:
    assert client.get(path, params={"key": "a"}).status_code == 404


def test_the_document_describes_the_api(client: TestClient[Any]) -> None:
    document = client.get("/v1/openapi.json").json()
    scan = document["paths"]["/v1/tables/{table}/scan"]["get"]
    assert set(scan["responses"]["200"]["content"]) == {one.media_type for one in FORMATS}
    assert set(document["paths"]["/v1/tables/{table}/rows"]["post"]["requestBody"]["content"]) >= {JSON_LINES, ARROW}


def test_a_list_without_rows_is_empty(client: TestClient[Any]) -> None:
    headers = {"accept": "application/json"}
    assert client.get(f"{T}/get", params={"key": ["z", "1"]}, headers=headers).json() == []
