"""Other views of rows for one read: raw rows, and functions that are applied to merged rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed import Aggregate, KeepAll, KeyRange, Latest, Schema, SetFilter, UsageError
from lakebed.model.row_kinds import KIND
from tests.processes.merging.test_custom import package  # noqa: F401 - a fixture
from tests.tables.read.merging_tables import WAYS, reading_by

SCHEMA = Schema({"user": "string"}, {"score": "int64"}, {"game": "string"})


def rows(*found):
    users, scores, games = zip(*found, strict=True)
    return pa.table({"user": users, "score": scores, "game": games}, schema=SCHEMA.arrow)


def made(tmp_path, merge):
    table = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA, merge=merge)
    table.write(rows(("a", 1, "x"), ("b", 5, "x"), ("c", 2, "x")))
    table.write(rows(("a", 1, "y"), ("a", 3, "y"), ("b", 4, "y")))
    return table


@pytest.fixture
def table(tmp_path):
    return made(tmp_path, Aggregate({"game": "last"}))


@pytest.fixture(params=WAYS)
def way(request, table):
    with reading_by(table, request.param):
        yield


def highest(found):
    """The row with the highest score of each user."""
    users = found.column("user").to_pylist()
    return found.take(pa.array([place for place, user in enumerate(users) if user not in users[place + 1 :]]))


def tuples(found):
    return [tuple(row.values()) for row in found.to_pylist()]


# -- raw --------------------------------------------------------------------------------------------------------


def test_raw_rows_are_those_of_all_files(table, way):
    found = tuples(table.scan(raw=True).read_all())
    wanted = [("a", 1, "x"), ("a", 1, "y"), ("a", 3, "y"), ("b", 4, "y"), ("b", 5, "x"), ("c", 2, "x")]
    assert sorted(found) == wanted
    assert [row[:2] for row in found] == [row[:2] for row in wanted]
    assert sorted(tuples(table.get("a", raw=True))) == wanted[:3]
    assert sorted(tuples(table.get_many(["a", "c"], raw=True))) == [*wanted[:3], wanted[-1]]
    assert tuples(
        table.scan(KeyRange("b"), raw=True, where="game = 'x'", columns=["score"], reverse=True).read_all()
    ) == [
        (2,),
        (5,),
    ]
    assert len(tuples(table.scan(raw=False).read_all())) == 5


@pytest.mark.parametrize("way", WAYS)
def test_raw_rows_of_a_table_with_deletes_have_their_kind(tmp_path, way):
    table = made(tmp_path, Latest())
    table.delete(["a"])
    table.write(pa.table({"user": ["b"], "score": [9]}), partial=True)
    with reading_by(table, way):
        found = table.scan(raw=True).read_all()
        assert found.column_names == ["user", "score", "game", KIND]
        kinds = sorted((row["user"], row[KIND], row["game"]) for row in found.to_pylist() if row[KIND])
        assert kinds == [("a", 2, None), ("b", 1, None)]
        assert found.num_rows == 7
        assert sorted(kind or 0 for kind in table.get("a", raw=True)[KIND].to_pylist()) == [0, 0, 2]
        assert table.get("b").to_pylist() == [{"user": "b", "score": 9, "game": "y"}]
        assert table.get_many(["b"], raw=True, columns=["user", KIND]).num_rows == 3
        assert table.scan(raw=True, where=f"{KIND} = 2").read_all().num_rows == 1
        assert KIND not in table.scan().read_all().column_names


def test_raw_rows_are_those_before_the_filter_of_the_table(table):
    table.alter(SetFilter("user <> 'a'"))
    assert table.scan().read_all().column("user").to_pylist() == ["b", "b", "c"]
    assert table.scan(raw=True).read_all().num_rows == 6


def test_statements_name_raw_rows(tmp_path):
    table = made(tmp_path, Latest())
    version = table.version
    table.delete(["a"])
    lake = lakebed.open(tmp_path / "lake")
    assert lake.sql('SELECT count(*) AS n FROM "t$raw"').read_all().to_pylist() == [{"n": 6}]
    assert lake.sql(f'SELECT count(*) AS n FROM "t$raw@{version}"').read_all().to_pylist() == [{"n": 5}]
    text = f'SELECT user_raw."user" AS u FROM "t$raw" user_raw WHERE {KIND} = 2'
    assert lake.sql(text).read_all().to_pylist() == [{"u": "a"}]
    with pytest.raises(lakebed.NotFoundError, match="no table"):
        lake.sql('SELECT * FROM "other$raw"')


# -- apply ------------------------------------------------------------------------------------------------------


def test_a_function_is_applied_to_merged_rows_of_whole_keys(table, way):
    wanted = [("a", 3, "y"), ("b", 5, "x"), ("c", 2, "x")]
    assert tuples(table.scan(apply=highest).read_all()) == wanted
    assert tuples(table.scan(KeyRange("b"), apply=highest).read_all()) == wanted[1:]
    assert tuples(table.get("a", apply=highest)) == wanted[:1]
    assert tuples(table.get("z", apply=highest)) == []
    assert tuples(table.get_many(["a", "c"], apply=highest)) == [wanted[0], wanted[2]]
    assert tuples(table.get("a", apply=highest, columns=["game"])) == [("y",)]
    assert tuples(table.scan(apply=highest, columns=["game", "user"], limit=2).read_all()) == [("y", "a"), ("x", "b")]
    assert tuples(table.scan(apply=highest, limit=0).read_all()) == []


def test_a_predicate_applies_to_what_the_function_gives(table, way):
    assert tuples(table.scan(apply=highest, where="score < 4").read_all()) == [("a", 3, "y"), ("c", 2, "x")]
    assert tuples(table.scan(apply=highest, where="user = 'b' AND score = 4").read_all()) == []
    assert tuples(table.scan(apply=highest, where="game = 'x'", limit=1).read_all()) == [("b", 5, "x")]
    # All scores of a key reach the function, also those of files that the predicate excludes.
    assert tuples(table.scan(apply=highest, where="user = 'a' AND score = 1").read_all()) == []


def test_a_function_sees_what_the_filter_of_the_table_shows(table):
    table.alter(SetFilter("score < 5"))
    assert tuples(table.scan(apply=highest).read_all()) == [("a", 3, "y"), ("b", 4, "y"), ("c", 2, "x")]
    assert tuples(table.get("b", apply=highest)) == [("b", 4, "y")]


def test_a_function_may_keep_several_rows_with_one_key(tmp_path):
    table = made(tmp_path, KeepAll())
    found = table.scan(apply=lambda given: given.filter(pc.field("score") < 4)).read_all()
    assert sorted(tuples(found)) == [("a", 1, "x"), ("a", 1, "y"), ("a", 3, "y"), ("c", 2, "x")]


def test_an_installed_function_is_named(table, package):  # noqa: F811
    assert tuples(table.get("a", apply="top_two")) == [("a", 1, "y"), ("a", 3, "y")]
    assert tuples(table.scan(apply="top_two.2", limit=1).read_all()) == [("a", 1, "y")]
    with pytest.raises(UsageError, match="'top_three'") as caught:
        table.scan(apply="top_three")
    assert caught.value.code == "merge_function_missing"


def test_a_function_that_fails_is_an_error_of_the_read_alone(table):
    def failing(given):
        raise ValueError("no")

    for read in (
        lambda: table.scan(apply=failing).read_all(),
        lambda: table.get("a", apply=failing),
        lambda: table.get_many(["a"], apply=failing),
    ):
        with pytest.raises(UsageError, match=r"'failing' raised ValueError \(no\) for key \{'user': 'a'\}"):
            read()
    assert table.get("a").num_rows == 2


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"apply": highest, "reverse": True}, "leave out reverse"),
        ({"apply": highest, "raw": True}, "leave out raw"),
        ({"apply": 5}, "must be a function"),
        ({"apply": "highest.x"}, "a version is a number"),
        ({"raw": "yes"}, "raw"),
        ({"raw": None}, "raw"),
        ({"apply": highest, "where": "nothing = 1"}, "nothing"),
        ({"apply": highest, "columns": ["nothing"]}, "nothing"),
        ({"apply": highest, "limit": -1}, "limit"),
    ],
)
def test_what_cannot_be_applied_is_refused(table, how, reason):
    with pytest.raises(UsageError, match=reason):
        table.scan(**how)
    if not {"reverse", "where", "limit"} & set(how):
        with pytest.raises(UsageError, match=reason):
            table.get("a", **how)
