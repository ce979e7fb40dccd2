"""``lakebed hook``."""

import pytest


@pytest.fixture
def table(cli, schema_file):
    assert cli("init").code == 0
    assert cli("table", "create", "t", "--schema", schema_file).code == 0
    return "t"


def test_a_hook_is_listed_without_its_secret_until_it_is_removed(cli, table, tmp_path):
    (tmp_path / "secret").write_text("sesame\n", "utf-8")
    words = ("hook", "create", table, "--url", "http://a.example/b", "--secret-file", tmp_path / "secret")
    added = cli(*words, "--kind", "add_files", "--json")
    assert added.code == 0
    listed = cli("hook", "list", "--json")
    (found,) = listed.json["hooks"]
    assert (found["hook"], found["table"], found["delivered"]) == (added.json["hook"], "t", 1)
    assert (found["signed"], found["kinds"], found["error"]) == (True, ["add_files"], None)
    assert "sesame" not in listed.out + cli("hook", "list").out
    assert "delivered up to version 1 of 1" in cli("hook", "list").out
    assert cli("hook", "drop", added.json["hook"]).code == 0
    assert cli("hook", "list").out == "no hooks\n"
    assert cli("hook", "drop", added.json["hook"]).code == 4


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--url", "http://a", "--command", "true"),
        ("--url", "nonsense"),
        ("--url", "http://a", "--kind", "no_such"),
        ("--url", "http://a", "--secret-file", "/no/such/file"),
        ("--command", "true", "--since", "-1"),
    ],
)
def test_a_hook_that_cannot_be_meant_is_refused(cli, table, words):
    assert cli("hook", "create", table, *words).code == 2
    assert cli("hook", "list", "--json").json == {"hooks": []}


def test_a_version_that_is_not_there_yet_is_refused(cli, table):
    assert cli("hook", "create", table, "--command", "true", "--since", 7).code == 4


def test_the_hook_of_a_dropped_table_is_still_listed(cli, table):
    assert cli("hook", "create", table, "--command", "true").code == 0
    assert cli("table", "drop", table, "--yes").code == 0
    assert "its table was dropped" in cli("hook", "list").out
