"""An instance in Python's own words: tables by subscript, and creations that accept what is there already."""

import pytest

import lakebed
from lakebed import ExistsError, Latest, NotFoundError, Schema, UsageError
from lakebed.clock import random_token
from lakebed.errors import Code

SCHEMA = Schema({"k": "string"}, {"t": "int64"}, {"v": "double"})


@pytest.fixture
def lake():
    made = lakebed.create(f"memory://{random_token()}")
    made.create_table("b", SCHEMA)
    made.create_table("a", SCHEMA)
    return made


def test_an_instance_is_a_container_of_its_tables_by_name(lake):
    assert lake["a"] is lake.table("a")
    assert ("a" in lake, "c" in lake, 3 in lake) == (True, False, False)
    assert (list(lake), len(lake)) == (["a", "b"], 2)
    assert lake._ipython_key_completions_() == ["a", "b"]
    with pytest.raises(NotFoundError, match=r"no table named 'c'.* its tables: a, b"):
        lake["c"]


def test_an_instance_without_tables_is_true():
    assert lakebed.create(f"memory://{random_token()}")


def test_an_instance_that_is_there_is_opened_if_that_is_asked_for(tmp_path):
    made = lakebed.create(str(tmp_path), exist_ok=True)
    assert lakebed.create(str(tmp_path), exist_ok=True).id == made.id
    with pytest.raises(ExistsError) as raised:
        lakebed.create(str(tmp_path))
    assert raised.value.code is Code.INSTANCE_EXISTS
    with pytest.raises(UsageError, match="exist_ok"):
        lakebed.create(str(tmp_path), exist_ok="yes")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="holds other files"):
        lakebed.create(str(tmp_path / "other"), exist_ok=True)


def test_a_table_of_the_same_schema_is_returned_if_that_is_asked_for(lake):
    same = lake.create_table("a", Schema({"k": str}, {"t": int}, {"v": float}), if_not_exists=True)
    assert same is lake["a"]
    assert lake.create_table("c", SCHEMA, merge=Latest(), if_not_exists=True).version == 1
    assert lake.create_table("c", SCHEMA, merge=Latest(), if_not_exists=True).version == 1
    with pytest.raises(ExistsError) as raised:
        lake.create_table("a", SCHEMA)
    assert raised.value.code is Code.TABLE_EXISTS


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (Schema({"k": "string", "n": "int64"}), "the row key is (k), not (k, n); the sort key is (t), not ()"),
        (Schema({"k": "int32"}, {"t": "int64"}, {"v": "double"}), "row key field k is string, not int32."),
        (Schema({"k": "string"}, {"t": "int64"}, {"v": "float"}), "value v is double, not float."),
        (Schema({"k": "string"}, {"t": "int64"}, {"w": "double"}), "there is no value w; there is a value v as well."),
        (Schema.of({"k": str, "t": int}, key="k", sort_key="t"), "there is a value v as well."),
        (
            Schema.from_json(
                {
                    "row_key": {"k": "string"},
                    "sort_key": {"t": "int64"},
                    "values": {"v": {"type": "double", "nullable": False}},
                }
            ),
            "value v may be null.",
        ),
    ],
)
def test_a_table_of_another_schema_is_refused_with_the_difference(lake, schema, says):
    with pytest.raises(ExistsError) as caught:
        lake.create_table("a", schema, if_not_exists=True)
    assert f"a table named 'a' exists already, and it differs: {says}" in str(caught.value)


def test_a_table_that_merges_otherwise_is_refused(lake):
    with pytest.raises(ExistsError, match=r"it merges rows by KeepAll.*, not Latest"):
        lake.create_table("a", SCHEMA, merge=Latest(), if_not_exists=True)
