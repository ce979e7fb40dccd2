"""Merge modes and views on the command line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Aggregate, First, KeepAll, Latest

SCHEMA = {"row_key": {"k": "string"}, "sort_key": {"at": "int64"}, "values": {"n": "int64"}}


@pytest.fixture
def folder(tmp_path, cli):
    assert cli("init").code == 0
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    pq.write_table(pa.table({"k": ["a", "a", "b"], "at": [1, 2, 1], "n": [1, 2, 3]}), tmp_path / "rows.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "mode", "shown"),
    [
        ([], KeepAll(), None),
        (["--merge", "keep-all"], KeepAll(), None),
        (["--merge", "latest"], Latest(), "latest by arrival"),
        (["--merge", "latest-by-sort-key"], Latest(by="sort_key"), "latest by sort_key"),
        (["--merge", "first"], First(), "first"),
        (["--aggregate", "n=sum"], Aggregate({"n": "sum"}), "aggregate sum of n"),
    ],
)
def test_a_table_is_created_with_a_merge_mode_that_show_tells(cli, folder, words, mode, shown):
    assert cli("table", "create", "t", "--schema", folder / "schema.json", *words).code == 0
    assert lakebed.open(folder / "lake").table("t").state().merge == mode
    said = cli("table", "show", "t").out
    assert ("rows with equal keys" in said) == (shown is not None)
    assert shown is None or f"rows with equal keys: {shown}\n" in said
    assert cli("table", "show", "t", "--json").json["merge"] == (None if shown is None else mode_document(mode))


def mode_document(mode):

    return json.loads(json.dumps(mode.document()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--merge", "latest", "--aggregate", "n=sum"], "--merge and --aggregate"),
        (["--aggregate", "n=median"], "median"),
        (["--aggregate", "x=sum"], "'x'"),
        (["--aggregate", "n"], "--aggregate"),
        (["--merge", "newest"], "newest"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(cli, folder, url, words, said):
    ran = cli("table", "create", "t", "--schema", folder / "schema.json", *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert lakebed.open(url).tables() == []


def test_a_view_is_created_and_refreshed(cli, folder, url):
    cli("table", "create", "t", "--schema", folder / "schema.json")
    cli("write", "t", folder / "rows.parquet")
    query = "SELECT k, count(*) AS rows, max(n) AS n FROM source GROUP BY k"
    words = ["--source", "t", "--select", query, "--key", "k", "--aggregate", "rows=sum", "--aggregate", "n=max"]
    assert cli("view", "create", "v", *words).out == "created view v of table t; `lakebed view refresh v` feeds it\n"
    assert cli("view", "refresh", "v").out == "view v at version 2: 3 rows of t read; it has version 2\n"
    assert cli("get", "v", "a", "--json").lines == [{"k": "a", "rows": 2, "n": 2}]
    assert cli("view", "refresh", "v").out == "view v at version 2: nothing to do; it has version 2 of t\n"
    cli("remove", "t", "--prefix", "a", "--yes")
    assert cli("view", "refresh", "v").out == "view v at version 3: 0 rows of t read; it has version 3\n"
    assert cli("get", "v", "a", "--json").lines == []
    assert cli("view", "refresh", "v", "--anew", "--json").json["rows_read"] == 1
    assert cli("get", "v", "a", "--json").lines == []
    assert cli("table", "show", "v", "--json").json["view"]["version"] == 3
    assert "a view of table" in cli("table", "show", "v").out


def test_a_refresh_of_a_table_and_a_view_of_a_bad_query_are_refused(cli, folder):
    cli("table", "create", "t", "--schema", folder / "schema.json")
    assert "no view" in cli("view", "refresh", "t").err
    ran = cli("view", "create", "v", "--source", "t", "--select", "SELECT k FROM source LIMIT 1", "--key", "k")
    assert (ran.code, "LIMIT" in ran.err) == (2, True)
