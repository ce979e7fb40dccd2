"""``lakebed write`` and ``lakebed schema infer`` as a newcomer meets them: a table from a file, in one attempt."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import Code
from tests.tables.cli.conftest import Cli
from tests.terminals import set_stdin

USERS = "id;name;born\n1;Ann;1990-01-31\n2;Bob;NA\n"


@pytest.fixture
def lake(cli: Cli) -> Cli:
    assert cli("init").code == 0
    return cli


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(USERS)
    return path


def test_the_first_table_takes_one_command(lake: Cli, users: Path) -> None:
    ran = lake("write", "users", users, "--key", "id")
    assert ran.out == (
        "table users created: id int64 (row key), name string, born date32[day]\n"
        "table users at version 2: 2 rows added\n"
    )
    assert f"{users}: CSV with delimiter ';', quote \", a header, UTF-8; types detected from all 2 rows" in ran.err
    assert "null: 'NA' and empty cells" in ran.err
    assert lake("get", "users", "2", "--json").json == {"id": 2, "name": "Bob", "born": None}
    again = lake("write", "users", users, "--key", "id", "--commit-id", "monday")
    assert again.out == "table users at version 3: 2 rows added\n"
    repeated = lake("write", "users", users, "--commit-id", "monday")
    assert repeated.out == "table users at version 3: seen before: nothing added\n"


def test_a_table_that_does_not_exist_needs_a_key(lake: Cli, users: Path) -> None:
    ran = lake("write", "users", users)
    assert (ran.code, ran.out) == (4, "")
    assert "--key" in ran.err
    ran = lake("write", "users", users, "--key", "idd")
    assert ran.code == 2
    assert "'idd' is not in the data" in ran.err
    assert lake("table", "list").out == ""


def test_the_name_of_a_table_is_checked_before_its_file_is_read(lake: Cli, users: Path) -> None:
    ran = lake("write", "my users", users, "--key", "id")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("lakebed: not a table name: 'my users'")


def test_keys_that_a_table_does_not_have_are_refused(lake: Cli, users: Path) -> None:
    assert lake("write", "users", users, "--key", "id").code == 0
    ran = lake("write", "users", users, "--key", "idd")
    assert ran.code == 2
    assert "table users exists with the row key id and no sort key; leave out --key and --sort-key" in ran.err
    assert lake("count", "users", "--json").json["rows"] == 2


def test_a_table_whose_first_rows_are_refused_is_not_left_behind(lake: Cli, users: Path) -> None:
    users.write_text("id,n\n1,5\n,6\n")
    ran = lake("write", "users", users, "--key", "id")
    assert ran.code == 3
    assert f"{users}, line 3: column id is null" in ran.err
    users.write_text("id,n\n")
    assert "types of its columns are unknown; give them" in lake("write", "users", users, "--key", "id").err
    assert lake("table", "list").out == ""


@pytest.mark.parametrize("other", ["replaces the table", "submits a file"])
def test_a_failed_first_write_keeps_a_table_that_another_process_uses(
    lake: Cli, url: str, users: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    def fail(table: lakebed.Table, *_: object) -> NoReturn:
        instance = lakebed.open(url)
        if other == "submits a file":
            pq.write_table(pa.table({"id": [1]}), users.with_suffix(".parquet"))
            instance.table("users").submit(users.with_suffix(".parquet"))
        else:
            schema = table.schema
            instance.drop_table("users")
            instance.create_table("users", schema).write([{"id": 1, "name": "Ann", "born": None}])
        raise Code.SOURCE_DAMAGED("the file is damaged")

    monkeypatch.setattr("lakebed.cli.write._write", fail)
    assert "the file is damaged" in lake("write", "users", users, "--key", "id").err
    table = lakebed.open(url).table("users")
    assert (table.count().rows, table.requests().num_rows) == ((0, 1) if other == "submits a file" else (1, 0))


def test_standard_input_is_a_file(lake: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(data: bytes) -> None:
        set_stdin(monkeypatch, io.TextIOWrapper(io.BytesIO(data)))

    pipe(gzip.compress(USERS.encode()))
    assert lake("write", "users", "-", "--key", "id", "--json").json["rows_added"] == 2
    pipe(b'{"id": 3, "name": "Cid"}\n')
    assert lake("write", "users", "-").code == 0
    pipe(b"id\nx\n")
    ran = lake("write", "users", "-")
    assert "standard input, line 2, column id: 'x' is not int64" in ran.err
    pipe(b"")
    assert "standard input: the file is empty" in lake("write", "users", "-").err


def test_options_say_what_would_be_detected(lake: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\t'007'\t31.01.2026 10:00\tnix\n")
    words = ["--format", "csv", "--delimiter", "tab", "--quote", "'", "--names", "id,code,at,n", "--null", "nix"]
    words += ["--date-format", "%d.%m.%Y %H:%M", "--timezone", "Europe/Berlin", "--type", "n=int32"]
    words += ["--decimal-point", ","]
    assert lake("write", "t", path, "--key", "id", *words).code == 0
    assert lake("get", "t", "1", "--json").json == {
        "id": 1, "code": "007", "at": "2026-01-31T09:00:00.000000Z", "n": None,
    }  # fmt: skip
    for wrong, says in (
        (["--delimiter", "ab"], "delimiter 'ab': must be one ASCII character"),
        (["--decimal-point", ",", "--delimiter", ","], "delimiter and decimal point are both ','"),
        (["--date-format", "nonsense"], "date format 'nonsense' has no directive; give a format of whole dates"),
        (["--date-format", "100%%"], "date format '100%%' has no directive"),
        (["--date-format", "%d.%m. %H:%M"], "date format '%d.%m. %H:%M' has no year"),
        (["--timezone", "Mars"], "unknown time zone 'Mars'"),
        (["--encoding", "klingon"], "unknown encoding 'klingon'"),
        (["--type", "n"], "not of the form NAME=VALUE"),
        (["--header", "--names", "a"], "files without a header"),
    ):
        ran = lake("write", "t", path, *wrong)
        assert ran.code == 2
        assert says in ran.err


def test_columns_that_the_table_lacks_are_left_out_if_asked(lake: Cli, users: Path) -> None:
    assert lake("write", "users", users, "--key", "id").code == 0
    users.write_text("id,colour\n5,1\n6,red\n")
    assert "extra column colour" in lake("write", "users", users).err
    assert lake("write", "users", users, "--ignore-extra").code == 0


def test_a_schema_can_be_looked_at_saved_and_used(lake: Cli, users: Path, tmp_path: Path) -> None:
    ran = lake("schema", "infer", users)
    assert ran.out.splitlines()[1:] == [
        "  id    int64        1, 2",
        "  name  string       Ann, Bob",
        "  born  date32[day]  1990-01-31, NA",
    ]
    ran = lake("schema", "infer", users, "--key", "id", "--sort-key", "name")
    schema = {"row_key": {"id": "int64"}, "sort_key": {"name": "string"}, "values": {"born": "date32[day]"}}
    assert json.loads(ran.out) == schema
    (tmp_path / "schema.json").write_text(ran.out)
    assert lake("table", "create", "a", "--schema", tmp_path / "schema.json").code == 0
    assert lake("table", "create", "b", "--schema-from", users, "--key", "id").code == 0
    assert "--key" in lake("schema", "infer", users, "--sort-key", "name").err


def test_without_a_name_the_instance_is_the_folder_lake(
    cli: Cli, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEBED_INSTANCE")
    monkeypatch.chdir(tmp_path)
    ran = cli("table", "list")
    assert ran.code == 2
    assert "There is none at ./lake: make it with `lakebed init`" in ran.err
    assert cli("init").out == f"created an instance at {(tmp_path / 'lake').as_uri()}\n"
    assert "2 rows added" in cli("write", "users", users.name, "--key", "id").out
    assert cli("table", "list").out == "users\n"
    assert "already" in cli("init").err
    (tmp_path / "config" / "lakebed").mkdir(parents=True)
    (tmp_path / "config" / "lakebed" / "config.toml").write_text('default = "elsewhere"')
    assert "elsewhere" in cli("table", "list").err


def test_a_folder_that_holds_the_instance_gives_the_other_files(lake: Cli, users: Path, url: str) -> None:
    assert "2 rows added" in lake("write", "users", users.parent, "--key", "id", "--sort-key", "name").out
    assert "2 rows added" in lake("write", "users", users.parent).out
    assert "2 rows added" in lake("write", "users", users.parent / "**" / "*.*[vt]").out
    for item in (url, f"{url}/**/*.parquet"):
        ran = lake("write", "users", item)
        assert ran.code == 2
        assert "has only files of the instance" in ran.err
    assert lake("count", "users", "--json").json["rows"] == 6


# -- JSON -----------------------------------------------------------------------------------------------------------


ARRAY = '\ufeff[{"id": 1, "at": "2026-01-31"},\n\n {"id": 2,\n  "tags": ["a]", "b{"]} ]\n'


def test_a_json_file_may_be_one_array(lake: Cli, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(ARRAY)
    assert "in.json: JSON; types detected from all 2 rows" in lake("write", "t", path, "--key", "id").err
    assert lake("get", "t", "2", "--json").json == {"id": 2, "at": None, "tags": ["a]", "b{"]}
    path.write_bytes(gzip.compress(b"[]"))
    assert "0 rows added" in lake("write", "t", path).out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"id": 1},\n{"id": "x"}]', "line 2, column id: 'x' is not int64"),
        ('[{"id": 1},\n{"id": 2}', "line 2 is not JSON: expected ']' here"),
        ('[{"id": 1},\n\n{"id": 2', "line 3 is not JSON: Expecting ',' delimiter"),
        ('[{"id": 1},\n7]', "line 2: 7 is not a JSON object"),
        ('[{"id": 1}\n{"id": 2}]', "line 2 is not JSON: expected ']' here, not '{\"id\": 2}]'"),
        ('[{"id": NaN}]', "line 1 is not JSON: NaN is not JSON"),
        ('[{"id": 1}]\n[{"id": 2}]', "line 2 is not JSON: there is more after the end of the array"),
        ('[{"id": 1},\n{"id": 2, "s": "\udcff"}]', "line 2 is not JSON: 'utf-8' codec can't decode byte 0xff"),
        ('[{"id": 1},\n{"id": null}]', "line 2: column id is null"),
        ('{"id": 1}\n[{"id": 2}]', "line 2: [{'id': 2}] is not a JSON object"),
    ],
)
def test_an_array_that_is_wrong_is_refused_with_the_line(lake: Cli, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"id": 0}\n')
    assert lake("write", "t", path, "--key", "id").code == 0
    path.write_bytes(text.encode(errors="surrogateescape"))
    ran = lake("write", "t", path)
    assert ran.code != 0
    assert says in ran.err
    assert lake("count", "t", "--json").json["rows"] == 1


def test_options_for_csv_are_refused_where_no_file_is_csv(lake: Cli, users: Path, tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    pq.write_table(pa.table({"id": [1], "at": ["2026-01-31T12:00:00Z"]}), path)
    for command in (["write", "users", path, "--key", "id"], ["schema", "infer", path]):
        ran = lake(*command, "--delimiter", ";", "--null", "NA")
        assert ran.code == 2
        assert "users.parquet is Parquet, and these options are for CSV: delimiter, null; leave them out" in ran.err
    assert lake("table", "list").out == ""
    lines = tmp_path / "users.jsonl"
    lines.write_text('{"id": 1}\n')
    assert "is JSON, and these options are for CSV: timezone" in lake("schema", "infer", lines, "--timezone", "UTC").err
    assert lake("write", "users", users, lines, "--key", "id", "--delimiter", ";").code == 0


def test_a_table_made_of_a_file_with_types_has_the_types_that_are_given(lake: Cli, tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(pa.table({"id": [1], "at": ["2026-01-31T12:00:00Z"]}), path)
    instant = ["--key", "id", "--type", "at=timestamp[us, tz=UTC]"]
    refused = lake("write", "visits", path, *instant)
    assert refused.code == 3
    assert "column at is string; the table has timestamp[us, tz=UTC]" in refused.err
    assert lake("write", "visits", path, *instant, "--cast", "at").code == 0
    assert lake("get", "visits", "1", "--json").json == {"id": 1, "at": "2026-01-31T12:00:00.000000Z"}
    unknown = lake("schema", "infer", path, "--type", "att=int64")
    assert "no column att, for which a type is given; it has id, at" in unknown.err
