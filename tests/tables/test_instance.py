"""Instances, the catalog and tables: names, races for them, settings, and what is refused."""

import json
import threading

import pytest

import lakebed
from lakebed import (
    ExistsError,
    NotFoundError,
    RejectedError,
    Schema,
    UnsafeStoreError,
    UnsupportedFormatError,
    UsageError,
)
from lakebed.cli.run import main
from lakebed.errors import Code
from lakebed.model.state.transactions import AlterSettings
from lakebed.storage import probe
from lakebed.testing.faults import Meanwhile
from tests.tables.retention.cases import through
from tests.variants import creates_over, planted

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


def test_an_instance_is_made_once_and_opened_anywhere(tmp_path):
    """By path or by URL; a second creation and an opening of nothing are refused."""
    made = lakebed.create(str(tmp_path / "lake"))
    assert lakebed.open(f"file://{tmp_path}/lake").id == made.id
    with pytest.raises(ExistsError, match="already"):
        lakebed.create(str(tmp_path / "lake"))
    with pytest.raises(NotFoundError, match="lakebed init"):
        lakebed.open(str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_an_instance_that_is_closed_writes_no_more_and_is_used_again(tmp_path):
    """The checkpoint of a table without a handle is waited for, and its folder can be removed."""
    begun, gate, written = threading.Event(), threading.Event(), []

    def write():
        begun.set()
        assert gate.wait(120)
        written.append(True)

    made = lakebed.create(str(tmp_path / "lake"))
    with through(made, Meanwhile(made.storage, "replace", "tables/*/checkpoints/*", write)) as lake:
        lake.create_table("t", SCHEMA).write([{"k": "a", "v": 1}])
        assert begun.wait(120)
        assert not written
        threading.Timer(0.1, gate.set).start()
    assert written
    assert not [one for one in threading.enumerate() if one.name == "lakebed-checkpoint"]
    assert lake["t"].count().rows == 1


def test_an_instance_of_a_newer_format_is_refused(lake, tmp_path):
    """By number, before anything else is read."""
    marker = tmp_path / "lake" / "instance.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 99}))
    with pytest.raises(UnsupportedFormatError, match="format 99"):
        lakebed.open(lake.url)


def test_a_store_that_ignores_create_if_absent_is_refused(tmp_path):
    """Two writers could both believe that they won."""
    with planted(creates_over), pytest.raises(UnsafeStoreError) as raised:
        lakebed.create(str(tmp_path / "lake"))
    assert raised.value.code is Code.CREATE_NOT_EXCLUSIVE
    assert probe
    assert not (tmp_path / "lake" / "instance.json").exists()


def test_tables_are_created_renamed_and_dropped(lake):
    """Another process sees each step."""
    other = lakebed.open(lake.url)
    lake.create_table("one", SCHEMA)
    held = other.table("one")
    lake.rename_table("one", "two")
    assert other.tables() == ["two"]
    assert other.table("two").id == held.id
    lake.drop_table("two")
    assert other.tables() == []
    with pytest.raises(NotFoundError, match="none yet"):
        other.table("two")
    with pytest.raises(RejectedError, match="dropped"):
        held.set(page_rows=500)


def test_a_table_takes_the_name_of_another_in_one_commit(lake):
    """At no version of the catalog is the name missing, and the table that had it is dropped."""
    old = lake.create_table("one", SCHEMA)
    old.write([{"k": "old"}])
    lake.create_index("by_k", table="one", on=["k"])
    new = lake.create_table("two", SCHEMA)
    new.write([{"k": "new"}])
    before = lake.catalog().version
    with pytest.raises(ExistsError, match="one"):
        lake.rename_table("two", "one")
    lake.drop_index("by_k")
    lake.rename_table("two", "one", replace=True)
    assert lake.catalog().version == before + 2  # the index, and both names at once
    other = lakebed.open(lake.url)
    assert other.tables() == ["one"]
    assert other.table("one").to_arrow().column("k").to_pylist() == ["new"]
    with pytest.raises(RejectedError, match="dropped"):
        old.write([{"k": "late"}])
    lake.rename_table("one", "free", replace=True)
    assert lake.tables() == ["free"]


def test_a_replaced_table_takes_its_indexes_along(lake):
    lake.create_table("one", SCHEMA)
    lake.create_index("by_k", table="one", on=["k"])
    lake.create_table("two", SCHEMA)
    lake.rename_table("two", "one", replace=True)
    assert lake.tables() == ["one"]


def test_a_table_is_not_replaced_by_itself_or_by_one_that_is_not_there(lake):
    lake.create_table("one", SCHEMA)
    with pytest.raises(ExistsError, match="one"):
        lake.rename_table("one", "one", replace=True)
    with pytest.raises(NotFoundError, match="two"):
        lake.rename_table("two", "one", replace=True)
    with pytest.raises(UsageError, match="replace"):
        lake.rename_table("one", "two", replace="yes")
    assert lake.tables() == ["one"]


def test_a_dropped_table_is_not_read_by_another_process(lake):
    """Whose handle knew it before; a table that takes its name is another one."""
    lake.create_table("one", SCHEMA).write([{"k": "a"}])
    held = lakebed.open(lake.url).table("one")
    assert held.get("a").num_rows == 1
    lake.drop_table("one")
    lake.create_table("one", SCHEMA)
    reads = [
        lambda: held.get("a"), lambda: held.get_many(["a"]), lambda: held.scan().read_all(), held.count, held.to_arrow,
        held.snapshot, lambda: held.at(version=2), lambda: held.changes(since=0).read_all(), lambda: held.explain("a"),
        lambda: held.sample(1), lambda: held.pin().__enter__(),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(NotFoundError, match="the table was dropped at version 3"):
            read()


def test_a_name_is_won_once(lake):
    """By creation and by renaming."""
    lake.create_table("one", SCHEMA)
    lake.create_table("two", SCHEMA)
    with pytest.raises(ExistsError, match="one"):
        lakebed.open(lake.url).create_table("one", SCHEMA)
    with pytest.raises(ExistsError, match="one"):
        lake.rename_table("two", "one")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a.b", "-x", "x" * 300, "ü", "a b", None, "a\n"])
def test_a_bad_table_name_is_refused(lake, name):
    """Names never become paths, and are safe to type in SQL and shells."""
    with pytest.raises(UsageError, match="not a table name"):
        lake.create_table(name, SCHEMA)


def test_split_points_cut_partitions_and_bad_ones_are_refused(lake):
    """Values of the first field, or tuples of the first fields, in any order."""
    schema = Schema({"a": "string", "b": "int64"})
    table = lake.create_table("t", schema, split_points=[("m", 5), "c"])
    assert table.partitions().column("min").to_pylist() == [None, {"a": "c", "b": None}, {"a": "m", "b": 5}]
    with pytest.raises(UsageError, match="different"):
        lake.create_table("u", schema, split_points=["c", "c"])
    assert lake.tables() == ["t"]


def test_settings_are_the_tables_own_then_the_instances_then_lakebeds(lake):
    """None takes a value back."""
    table = lake.create_table("t", SCHEMA, settings={"page_rows": 500})
    lake.set(page_rows=700, file_bytes=10**6)
    assert (table.settings()["page_rows"], table.settings()["file_bytes"]) == (500, 10**6)
    table.set(page_rows=None)
    assert lakebed.open(lake.url).table("t").settings()["page_rows"] == 700
    lake.set(page_rows=None)
    assert lakebed.open(lake.url).table("t").settings()["page_rows"] == 1000


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pages": 1}, "unknown setting"),
        ({"page_rows": 1}, "between"),
        ({"page_rows": "x"}, "number"),
        ({"page_rows": True}, "number"),
    ],
)
def test_a_bad_setting_is_refused_before_anything_is_stored(lake, changes, says):
    """Naming the setting, the value and the bounds."""
    table = lake.create_table("t", SCHEMA)
    before = table.version
    with pytest.raises(UsageError, match=says):
        table.set(**changes)
    with pytest.raises(UsageError, match=says):
        lake.create_table("u", SCHEMA, settings=changes)
    assert table.version == before
    assert lake.tables() == ["t"]


def test_a_stored_setting_that_is_unknown_is_refused_and_not_ignored(lake):
    table = lake.create_table("t", SCHEMA)
    table.commit(AlterSettings({"pages": 5}))
    with pytest.raises(UnsupportedFormatError, match="pages is unknown: set by a newer Lakebed"):
        table.settings()


def test_a_table_goes_offline_and_back(lake):
    """The catalog remembers."""
    lake.create_table("t", SCHEMA)
    lake.set_online("t", False)
    assert not lakebed.open(lake.url).is_online("t")
    lake.set_online("t", True)
    assert lake.is_online("t")


def test_the_log_may_live_elsewhere(tmp_path):
    """Data and checkpoints under the root, entries under log_url."""
    made = lakebed.create(str(tmp_path / "lake"), log_url=str(tmp_path / "logs"))
    made.create_table("t", SCHEMA)
    assert lakebed.open(made.url).tables() == ["t"]
    made._catalog.wait_for_checkpoint()
    assert {path.parent.name for path in (tmp_path / "lake").rglob("*.ndjson")} == {"latest"}
    assert {path.parent.name for path in (tmp_path / "logs").rglob("*.ndjson")} == {"log"}


def test_a_folder_with_other_files_is_asked_about_first(tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"such as photos/cat\.jpg: choose an empty folder"):
        lakebed.create(str(tmp_path))
    assert main(["init", str(tmp_path)]) == 2
    assert "--among-others" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cat.jpg", "photos"]
    assert main(["init", str(tmp_path), "--among-others"]) == 0
    with pytest.raises(ExistsError) as raised:
        lakebed.create(str(tmp_path))
    assert raised.value.code is Code.INSTANCE_EXISTS


def test_a_table_may_be_offline_from_the_start(tmp_path):
    """No maintenance begins between its creation and the call that takes it offline."""
    instance = lakebed.create(str(tmp_path / "instance"))
    instance.create_table("t", lakebed.Schema({"k": "int64"}), online=False)
    instance.create_table("u", lakebed.Schema({"k": "int64"}))
    again = lakebed.open(instance.url)
    assert (again.is_online("t"), again.is_online("u")) == (False, True)
    again.set_online("t", True)
    assert again.is_online("t")
    with pytest.raises(UsageError, match="online"):
        instance.create_table("v", lakebed.Schema({"k": "int64"}), online="no")


def test_an_instance_of_format_1_is_refused_by_name(tmp_path):
    """And says what to do: this version reads none of its objects."""
    lakebed.create(tmp_path / "lake")
    mark = tmp_path / "lake" / "instance.json"
    mark.write_bytes(mark.read_bytes().replace(b'"format":2', b'"format":1'))
    with pytest.raises(UnsupportedFormatError, match=r"instance\.json .* is of storage format 1, .* export the tables"):
        lakebed.open(tmp_path / "lake")
