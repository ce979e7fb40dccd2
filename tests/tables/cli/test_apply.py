"""``lakebed apply`` and ``dump``."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from tests.tables.cli.conftest import Cli

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
@pytest.mark.parametrize("declared", ["lake", "whole"])
def test_what_is_dumped_makes_the_same_instance(  # noqa: PLR0917 - fixtures
    cli: Cli, request: pytest.FixtureRequest, tmp_path: Path, declared: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    cli("apply", request.getfixturevalue(declared), "--yes")
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
    assert "cannot ask whether to make 2 changes" in ran.err
    assert cli("apply", lake, "--prune", "--yes").out.splitlines() == [
        "- table prices: drop field price",
        "- drop table readings and its rows",
        "2 changes made",
    ]
    assert lakebed.open(url).tables() == ["prices"]


def test_an_index_that_the_file_lacks_goes_by_itself_or_with_its_table(cli: Cli, url: str, lake: Path) -> None:
    cli("init")
    cli("apply", lake, "--yes")
    instance = lakebed.open(url)
    instance.create_index("by_reading", table="readings", on=["reading"])
    assert cli("apply", lake, "--prune", "--yes").out.splitlines() == ["- drop index by_reading", "1 change made"]
    assert lakebed.open(url).indexes("readings") == {}
    instance.create_index("by_reading", table="readings", on=["reading"])
    prices = "{schema: {row_key: {id: int64}, values: {price: float}}, merge: {mode: latest, by: arrival}}"
    lake.write_text(f"tables: {{prices: {prices}}}", "utf-8")
    ran = cli("apply", lake, "--prune", "--yes")
    assert ran.out.splitlines() == ["- drop table readings and its rows", "1 change made"]
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
        (
            "tables:",
            "tabels:",
            ":3: tabels: unknown key 'tabels'; keys: settings, tables, views, indexes, roles; did you mean 'tables'?",
        ),
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


WHOLE = """\
tables:
  readings:
    schema:
      row_key: {place: string, sensor: int32}
      sort_key: {at: "timestamp[us, tz=UTC]"}
      values: {reading: double, note: string}
    filter: reading > 0
    age_off: {at: 3650d12h}
  events:
    schema: {row_key: {id: int64}, values: {ms: int64}}
    age_off: {ms: 30d of ms}
views:
  places:
    source: readings
    select: SELECT place, count(*) AS readings FROM source GROUP BY place
    row_key: [place]
    merge: {mode: aggregate, functions: {readings: sum}}
    tags: {first: 1}
roles:
  ulm:
    tables: [readings]
    where: place = 'Ulm'
    masks: {note: "'***'"}
  loader: {permission: write}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.yaml"
    path.write_text(WHOLE, "utf-8")
    return path


def test_views_filters_and_roles_are_declared_too(cli: Cli, url: str, whole: Path) -> None:
    cli("init")
    planned = cli("apply", whole, "--plan").out.splitlines()
    assert planned == [
        "+ create table readings: place, sensor, at, reading, note",
        "- table readings: only rows with reading > 0, age-off after 87,612 hours by at",
        "+ create table events: id, ms",
        "- table events: age-off after 30 days by ms",
        "+ create view places of readings: SELECT place, count(*) AS readings FROM source GROUP BY place",
        "+ tag version 1 of places as first",
        "+ create role ulm: permission read, tables readings, where place = 'Ulm', masks note = '***'",
        "+ create role loader: permission write",
        "8 changes planned",
    ]
    assert cli("apply", whole, "--yes").out.splitlines()[-1] == "8 changes made"
    assert cli("apply", whole, "--yes", "--prune").out == "no changes\n"
    shown = cli("table", "show", "readings", "--json").json
    assert (shown["filter"], shown["age_off"]["age_s"]) == ("reading > 0", 3650 * 86_400 + 43_200)
    assert lakebed.open(url).table("places").state().view is not None
    roles = {role["name"]: role for role in cli("role", "list", "--json").json["roles"]}
    assert (roles["ulm"]["where"], roles["loader"]["permission"]) == ("place = 'Ulm'", "write")


def test_filters_and_roles_change_and_go(cli: Cli, whole: Path) -> None:
    cli("init")
    cli("apply", whole, "--yes")
    changed = WHOLE.replace("filter: reading > 0", "filter: null").replace("3650d12h", "10d").replace("Ulm", "Bonn")
    whole.write_text(changed.replace("  loader: {permission: write}\n", ""), "utf-8")
    assert cli("apply", whole, "--yes").out.splitlines() == [
        "- table readings: no filter, age-off after 10 days by at",
        "+ change role ulm: permission read, tables readings, where place = 'Bonn', masks note = '***'",
        "2 changes made",
    ]
    assert cli("apply", whole, "--yes").out == "no changes\n"
    assert cli("apply", whole, "--yes", "--prune").out.splitlines()[0] == "- drop role loader"
    # What the file does not mention stays.
    whole.write_text(WHOLE.split("roles:", maxsplit=1)[0].replace("    age_off: {ms: 30d of ms}\n", ""), "utf-8")
    assert cli("apply", whole, "--yes", "--prune").out.splitlines()[:-1] == [
        "- table readings: only rows with reading > 0, age-off after 87,612 hours by at"
    ]
    assert cli("table", "show", "events", "--json").json["age_off"]["age_s"] == 30 * 86_400
    assert [role["name"] for role in cli("role", "list", "--json").json["roles"]] == ["ulm"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("age_off: {at: 3650d12h}", "age_off: 30d", ":8: tables.readings.age_off: must map one field to an age"),
        ("3650d12h", "soon", ":8: tables.readings.age_off: --age-off at=soon: give an age"),
        ("filter: reading > 0", "filter: 3", ":7: tables.readings.filter: SetFilter(3)"),
        ("    source: readings\n", "", ":13: views.places.source: a view needs a source"),
        ("row_key: [place]", "row_key: place", ":16: views.places.row_key: must be a list"),
        ("source: readings", "source: reading", ":14: views.places.source: there is no table reading"),
        ("  places:", "  events:", ":13: views.events: there is a table of that name"),
        ("permission: write", "permission: own", ":24: roles.loader: permission 'own'"),
        ("tables: [readings]", "tables: [writings]", ":21: roles.ulm.tables: there is no table writings"),
        ("masks: {note", "hide: {note", ":23: roles.ulm.hide: unknown key 'hide'"),
        ("roles:", "roles: [", ":21: not YAML"),
    ],
)
def test_what_is_wrong_with_views_filters_and_roles_is_named(
    cli: Cli, whole: Path, old: str, new: str, said: str
) -> None:
    cli("init")
    whole.write_text(WHOLE.replace(old, new, 1), "utf-8")
    ran = cli("apply", whole, "--yes")
    assert ran.code == 2
    assert f"{whole}{said}" in ran.err
    assert cli("table", "list").out == ""


def test_a_view_is_not_changed_but_dropped_and_made_again(cli: Cli, whole: Path) -> None:
    cli("init")
    cli("apply", whole, "--yes")
    for old, new, said in (
        ("count(*)", "count(note)", "this cannot be changed: drop the view, and apply again"),
        ("views:\n  places:", "  places:\n    schema: {row_key: {k: string}}\nviews:\n  others:", "places is a view"),
        ("functions: {readings: sum}", "functions: {readings: max}", "which cannot be changed"),
    ):
        whole.write_text(WHOLE.replace(old, new, 1), "utf-8")
        ran = cli("apply", whole, "--yes")
        assert ran.code == 2
        assert said in ran.err
