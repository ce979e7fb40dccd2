"""``lakebed apply`` and ``dump``."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from tests.unit.cli.conftest import Cli

LAKE = """\
settings:
  split_rows: 1000
tables:
  readings:
    schema:
      row_key: {place: string, sensor: int32}
      sort_key:
        at: "timestamp[us, tz=UTC]"
      values: {reading: double, note: string}
    settings: {page_rows: 512}
    online: false
    tags: {first: 1}
  prices:
    schema: {row_key: {id: int64}, values: {price: float}}
    merge: {mode: latest, by: arrival}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    path = tmp_path / "lake.yaml"
    path.write_text(LAKE, "utf-8")
    return path


def test_a_declaration_is_applied_once_and_then_changes_nothing(cli: Cli, url: str, lake: Path) -> None:
    cli("init")
    planned = cli("apply", lake, "--plan")
    assert (planned.code, planned.out.splitlines()) == (
        0,
        [
            "+ instance: split_rows = 1000",
            "+ create table readings: place, sensor, at, reading, note",
            "+ tag version 1 of readings as first",
            "+ create table prices: id, price",
            "4 changes planned",
        ],
    )
    assert lakebed.open(url).tables() == []
    assert cli("apply", lake, "--yes").out.splitlines()[-1] == "4 changes made"
    assert cli("apply", lake, "--yes").out == "no changes\n"
    table = lakebed.open(url).table("readings")
    assert table.schema.declaration()["sort_key"] == {"at": "timestamp[us, tz=UTC]"}
    assert (table.settings()["page_rows"], table.settings()["split_rows"], table.tags()) == (512, 1000, {"first": 1})
    assert not lakebed.open(url).is_online("readings")


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_is_dumped_makes_the_same_instance(
    cli: Cli, lake: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    cli("apply", lake, "--yes")
    dumped = tmp_path / f"dumped.{form}"
    dumped.write_text(cli("dump", "--as", form).out, "utf-8")
    assert cli("apply", dumped, "--yes", "--prune").out == "no changes\n"
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "other"))
    cli("init")
    assert cli("apply", dumped, "--yes").code == 0
    assert cli("dump", "--as", form).out == dumped.read_text("utf-8")


def test_changes_of_a_table(cli: Cli, url: str, lake: Path) -> None:
    cli("init")
    cli("apply", lake, "--yes")
    lake.write_text(LAKE.replace("price: float", "price: double, note: string"), "utf-8")
    ran = cli("apply", lake, "--yes")
    assert ran.out.splitlines() == [
        "+ table prices: widen price from float to double",
        "+ table prices: add field note (string)",
        "2 changes made",
    ]
    assert lakebed.open(url).table("prices").schema.names == ("id", "price", "note")


def test_nothing_is_dropped_without_prune(cli: Cli, url: str, lake: Path, tmp_path: Path) -> None:
    cli("init")
    cli("apply", lake, "--yes")
    lake.write_text("tables: {prices: {schema: {row_key: {id: int64}}, merge: {mode: latest, by: arrival}}}", "utf-8")
    assert cli("apply", lake, "--yes").out == "no changes\n"
    ran = cli("apply", lake, "--prune")
    assert ran.code == 2
    assert "cannot confirm: 2 changes" in ran.err
    assert cli("apply", lake, "--prune", "--yes").out.splitlines() == [
        "- table prices: drop field price",
        "- drop table readings and its rows",
        "2 changes made",
    ]
    assert lakebed.open(url).tables() == ["prices"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int32", "integer", ":5: tables.readings.schema: not a type: 'integer'"),
        ("values: {reading", "value: {reading", ":5: tables.readings.schema: "),
        ("split_rows: 1000", "split_row: 1", ":2: settings.split_row: unknown setting 'split_row'"),
        ("split_rows: 1000", "split_rows: few", ":2: settings.split_rows: split_rows must be"),
        ("online: false", "online: maybe", ":11: tables.readings.online: must be true or false, not 'maybe'"),
        ("online: false", "onlin: false", ":11: tables.readings.onlin: unknown key 'onlin'"),
        ("tags: {first: 1}", "tags: {first: one}", ":12: tables.readings.tags: must map names to versions"),
        ("by: arrival", "by: chance", ":15: tables.prices.merge: "),
        ("online: false", "online: [", ":13: not YAML: "),
        ("online: false", "online: true\n    online: false", ":12: tables.readings.online is there twice"),
        ("tables:", "tabels:", ":3: tabels: unknown key 'tabels'; keys: settings, tables; did you mean 'tables'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(cli: Cli, lake: Path, old: str, new: str, said: str) -> None:
    cli("init")
    lake.write_text(LAKE.replace(old, new, 1), "utf-8")
    ran = cli("apply", lake, "--yes")
    assert ran.code == 2
    assert f"{lake}{said}" in ran.err
    assert cli("table", "list").out == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sensor: int32", "sensor: int64", "schema.row_key: the table has place (string), sensor (int32)"),
        ("reading: double", "reading: int64", "the field is double, and cannot become int64"),
        ("    merge: {mode: latest, by: arrival}\n", "", "which cannot be changed"),
        ("first: 1", "first: 2", "tag first stands at version 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_changes_nothing(cli: Cli, lake: Path, old: str, new: str, said: str) -> None:
    cli("init")
    cli("apply", lake, "--yes")
    before = cli("dump").out
    lake.write_text(LAKE.replace(old, new, 1).replace("1000", "2000"), "utf-8")
    ran = cli("apply", lake, "--yes")
    assert ran.code == 2
    assert said in ran.err
    assert cli("dump").out == before


def test_a_declaration_in_toml(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lake.toml"
    path.write_text('[tables.t.schema]\nrow_key = { k = "string" }\n', "utf-8")
    cli("init")
    assert cli("apply", path, "--yes").out.splitlines() == ["+ create table t: k", "1 change made"]
    path.write_text("[tables.t\n", "utf-8")
    assert "not TOML: " in cli("apply", path).err
