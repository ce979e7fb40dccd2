"""``lakebed write`` with files that differ: a table takes what all of them need, or the error says what to do."""

from __future__ import annotations

import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.write.input_files import inferred_together
from tests.tables.cli.conftest import Cli


@pytest.fixture
def lake(cli: Cli) -> Cli:
    assert cli("init").code == 0
    return cli


def files(folder: Path, **texts: str) -> list[str]:
    """Files of these names, ``a_csv`` for ``a.csv``, and texts."""
    made = []
    for name, text in texts.items():
        path = folder / name.replace("_", ".")
        path.write_text(text)
        made.append(str(path))
    return made


def rows(lake: Cli) -> list[Any]:
    return [json.loads(line) for line in lake("scan", "t", "--json").out.splitlines()]


def types(lake: Cli) -> dict[str, str]:
    schema = lake("table", "show", "t", "--json").json["schema"]
    return {field["name"]: field["type"] for group in ("row_key", "values") for field in schema[group]}


def test_a_table_has_the_columns_of_all_files_with_the_widest_types(lake: Cli, tmp_path: Path) -> None:
    given = files(tmp_path, a_csv="id,v\n1,1\n", b_csv="id,v\n2,1.5\n", c_csv="id,v,w\n3,,x\n", d_csv="id,v\n")
    made = lake("write", "t", *given, "--key", "id")
    assert made.code == 0, made.err
    assert f"{given[0]} and 2 other files: CSV" in made.err
    assert types(lake) == {"id": "int64", "v": "double", "w": "string"}
    assert rows(lake) == [
        {"id": 1, "v": 1.0, "w": None},
        {"id": 2, "v": 1.5, "w": None},
        {"id": 3, "v": None, "w": "x"},
    ]


def test_a_column_of_json_that_is_null_in_the_first_file_has_the_type_of_another(lake: Cli, tmp_path: Path) -> None:
    given = files(tmp_path, a_json='{"id":1,"v":null,"n":null}', b_json='{"id":2,"v":{"x":1},"n":null}', c_json="[]")
    assert lake("write", "t", *given, "--key", "id").code == 0
    assert types(lake) == {"id": "int64", "v": {"struct": [["x", "int64", True]]}, "n": "string"}


def test_a_folder_may_begin_with_files_without_rows(lake: Cli, tmp_path: Path) -> None:
    files(tmp_path, a_json="", b_json="[]", c_csv="id,v\n", d_csv="id,v\n1,2\n")
    assert lake("write", "t", str(tmp_path), "--key", "id").code == 0
    assert rows(lake) == [{"id": 1, "v": 2}]


def test_files_without_a_byte_have_no_rows_beside_others(lake: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    files(folder, a_csv="", b_csv="id,v\n1,2\n", c_jsonl="", d_csv=" \r\n")
    (folder / "e.csv.gz").write_bytes(gzip.compress(b""))
    (folder / "f.csv").write_bytes(codecs.BOM_UTF16_LE)
    assert lake("write", "t", str(folder), "--key", "id").code == 0
    assert lake("write", "t", str(folder), "--header").code == 0
    assert rows(lake) == [{"id": 1, "v": 2}] * 2
    for given in (["a.csv"], ["e.csv.gz"], ["a.csv", "d.csv"]):
        refused = lake("write", "t", *(str(folder / name) for name in given))
        assert refused.code == 3
        assert f"{given[0]}: the file is empty; give a file with a header, or with rows" in refused.err


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_types_that_no_type_holds_are_refused_until_one_is_given(lake: Cli, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        given = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
        pq.write_table(pa.table({"id": [1], "v": [1]}), given[0])
        pq.write_table(pa.table({"id": [2], "v": ["x"]}), given[1])
    elif kind == "csv":
        given = files(tmp_path, a_csv="id,v\n1,1\n", b_csv="id,v\n2,x\n")
    else:
        given = files(tmp_path, a_json='{"id":1,"v":1}', b_json='{"id":2,"v":"x"}')
    refused = lake("write", "t", *given, "--key", "id")
    assert refused.code == 3
    assert f"{given[1]}: column v is string, and in {given[0]} it is int64; give one type" in refused.err
    advice = ["--type", "v=string", "--cast", "v"]
    assert " ".join(advice) in refused.err
    assert lake("write", "t", *given, "--key", "id", *advice).code == 0
    assert rows(lake) == [{"id": 1, "v": "1"}, {"id": 2, "v": "x"}]


MIXED = '{"id":1,"v":{"b":[1.50]}}\n{"id":2,"v":"x"}\n{"id":3,"v":2.50}\n{"id":4,"v":true}\n{"id":5,"v":null}\n'


def test_values_of_json_of_several_kinds_are_text_if_asked_for(lake: Cli, tmp_path: Path) -> None:
    (given,) = files(tmp_path, a_json=MIXED)
    refused = lake("write", "t", given, "--key", "id")
    assert (
        "line 2, column v: 'x' is not the type of the values before; say what they are, as in --type v=string"
        in refused.err
    )
    assert lake("write", "t", given, "--key", "id", "--type", "v=string").code == 0
    assert [row["v"] for row in rows(lake)] == ['{"b":[1.50]}', "x", "2.50", "true", None]
    again = lake("write", "t", given)
    assert "line 1, column v: {'b': [1.5]} is not text; casts=['v'] (--cast v) takes any value as its text" in again.err
    assert lake("write", "t", given, "--cast", "v").code == 0
    assert len(rows(lake)) == 10


def test_values_of_json_of_several_kinds_are_kept_as_json_if_asked_for(lake: Cli, tmp_path: Path) -> None:
    (given,) = files(tmp_path, a_json='{"id":1,"v":{"b":1}}\n{"id":2,"v":[1]}\n')
    assert lake("write", "t", given, "--key", "id", "--type", "v=json").code == 0
    assert [row["v"] for row in rows(lake)] == ['{"b":1}', "[1]"]


def test_a_write_in_python_takes_values_of_json_as_text_if_asked_for(tmp_path: Path) -> None:
    (given,) = files(tmp_path, a_json=MIXED)
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", Schema({"id": "int64"}, values={"v": "string"}))
    table.write(given, casts=["v"])
    assert table.get(3)["v"].to_pylist() == ["2.50"]


def test_an_empty_file_of_parquet_is_said_to_be_empty(lake: Cli, tmp_path: Path) -> None:
    (given,) = files(tmp_path, a_parquet="")
    assert "a.parquet is named .parquet but is empty" in lake("write", "t", given, "--key", "id").err


def test_what_is_detected_takes_one_line_a_column(lake: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "v": pa.array(["a\nb"], pa.string_view())}), tmp_path / "a.parquet")
    shown = lake("write", "t", str(tmp_path / "a.parquet"), "--key", "id").err
    assert "\n  v   string  a b\n" in shown


def test_a_table_that_is_made_merges_as_asked_for(lake: Cli, tmp_path: Path) -> None:
    given = files(tmp_path, a_csv="id,v\n1,1\n1,2\n", b_csv="id,v\n1,3\n")
    assert lake("write", "t", given[0], "--key", "id", "--merge", "latest").code == 0
    assert lake("write", "t", given[1], "--merge", "latest").code == 0
    assert rows(lake) == [{"id": 1, "v": 3}]
    refused = lake("write", "t", given[1], "--merge", "first")
    assert "table t merges by Latest(by='arrival'), and not by --merge: leave the option out" in refused.err


def test_a_mask_that_is_no_value_is_refused_with_its_column(lake: Cli, tmp_path: Path) -> None:
    assert lake("write", "t", *files(tmp_path, a_csv="id,v\n1,1\n"), "--key", "id").code == 0
    refused = lake("role", "create", "r", "--table", "t", "--mask", "v='***'")
    assert "--mask v: \"'***'\" is no constant of type int64" in refused.err


def test_a_table_that_another_process_creates_meanwhile_is_written_by_a_repeat(
    lake: Cli, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*given: Any) -> Any:
        lakebed.open(url).create_table("t", Schema({"id": "int64"}, {}, {"v": "int64"}))
        return inferred_together(*given)

    command = ["write", "t", *files(tmp_path, a_csv="id,v\n1,2\n"), "--key", "id"]
    with monkeypatch.context() as patch:
        patch.setattr("lakebed.write.input_files.inferred_together", slow)
        refused = lake(*command)
    assert refused.code == 2
    assert "table t was created meanwhile by another process; write again" in refused.err
    assert lake(*command).code == 0
    assert rows(lake) == [{"id": 1, "v": 2}]
