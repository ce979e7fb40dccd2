"""``write --partial``, ``write --row-kind`` and ``delete`` on the command line."""

import json

import pytest

import lakebed


@pytest.fixture
def schema(tmp_path, url):
    """A schema file, and an instance to use it in."""
    lakebed.create(url)
    path = tmp_path / "users.json"
    fields = {"row_key": {"k": "string"}, "sort_key": {"at": "int64"}, "values": {"a": "int64", "b": "string"}}
    path.write_text(json.dumps(fields), "utf-8")
    return path


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.fixture
def users(cli, schema, put):
    assert cli("table", "create", "users", "--schema", schema, "--merge", "latest").code == 0
    assert cli("write", "users", put("users.csv", "k,at,a,b\nann,0,1,x\nbob,0,2,y\nann,0,3,z\n")).code == 0
    return "users"


def rows(cli, table="users"):
    return [(row["k"], row["a"], row["b"]) for row in cli("--json", "scan", table).lines]


def test_rows_are_upserted_changed_in_part_and_deleted(cli, users, put):
    assert rows(cli) == [("ann", 3, "z"), ("bob", 2, "y")]
    assert cli("write", users, put("b.csv", "k,at,b\nann,0,new\neve,0,e\n"), "--partial").code == 0
    assert rows(cli) == [("ann", 3, "new"), ("bob", 2, "y"), ("eve", None, "e")]
    cdc = put("cdc.csv", "op,k,at,a,b\nu,bob,0,9,w\nd,eve,,,\nc,zoe,0,1,q\n")
    assert cli("write", users, cdc, "--row-kind", "op").code == 0
    assert rows(cli) == [("ann", 3, "new"), ("bob", 9, "w"), ("zoe", 1, "q")]
    ran = cli("delete", users, "zoe")
    assert (ran.code, ran.out) == (0, f"table users at version {5}: 1 key deleted\n")
    assert cli("delete", users, "--where", "a > 5", "--yes").out.endswith("1 key deleted\n")
    assert rows(cli) == [("ann", 3, "new")]
    assert cli("delete", users, "--keys", put("keys.csv", "ann\nnobody\n"), "--commit-id", "d").out.endswith(
        "2 keys deleted\n"
    )
    assert cli("delete", users, "ann", "--commit-id", "d").out.endswith("nothing was deleted now\n")
    assert rows(cli) == []


def test_files_with_other_columns_are_partial_each_by_its_own(cli, users, put):
    first, second = put("1.csv", "k,at,a\nann,0,7\n"), put("2.csv", "k,at,b\nann,0,seven\nbob,0,two\n")
    assert cli("write", users, first, second, "--partial", "--commit-id", "w").code == 0
    assert cli("write", users, first, second, "--partial", "--commit-id", "w").code == 0
    assert rows(cli) == [("ann", 7, "seven"), ("bob", 2, "two")]


def test_a_column_that_only_a_partial_write_has_becomes_a_field(cli, users, put):
    assert cli("settings", "set", users, "schema_growth=add").code == 0
    assert cli("write", users, put("c.csv", "op,k,at,c\nu,ann,0,C\n"), "--partial", "--row-kind", "op").code == 0
    found = cli("--json", "scan", users).lines
    assert [(row["k"], row["a"], row["c"]) for row in found] == [("ann", 3, "C"), ("bob", 2, None)]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["delete", "users"], 2, "give one of"),
        (["delete", "users", "ann", "--where", "a = 1"], 2, "exclude each other"),
        (["delete", "users", "--where", "a = 1"], 2, "cannot ask whether to delete rows of users"),
        (["delete", "users", "--where", "a +", "--yes"], 2, "not a predicate"),
        (["delete", "users", "ann", "0"], 3, "key"),
    ],
)
@pytest.mark.usefixtures("users")
def test_a_delete_that_names_nothing_or_too_much_is_refused(cli, words, code, said):
    ran = cli(*words)
    assert ran.code == code, ran.err
    assert said in ran.err
    assert len(rows(cli)) == 2


def test_a_table_of_another_mode_takes_no_marker(cli, schema, put):
    assert cli("table", "create", "t", "--schema", schema, "--merge", "first").code == 0
    file = put("a.csv", "op,k,at\nc,ann,0\n")
    for words in (["delete", "t", "ann"], ["write", "t", file, "--partial"], ["write", "t", file, "--row-kind", "op"]):
        ran = cli(*words)
        assert ran.code == 2
        assert "merges by Latest" in ran.err
