"""The files of a dropped table go when no process can be reading them; nothing else of the instance does."""

import datetime as dt

import pytest

import lakebed
from lakebed import clock
from lakebed.errors import Code, ExistsError, RejectedError, StorageError
from lakebed.model.files import table_prefix
from lakebed.model.state.catalog import PurgeTable
from lakebed.model.state.transactions import CreateTable
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.retention.orphans import delete_dropped
from tests.tables.retention.cases import AT_ONCE, SCHEMA, Ahead, Killed, Mortal, letters, objects, on, rows, through

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def instance():
    made = lakebed.create(f"memory://{clock.random_token()}")
    made.set(**AT_ONCE)
    made.create_table("retained", SCHEMA).write(rows("ab"))
    made.create_table("gone", SCHEMA).write(rows("cd"))
    return made


def looked_at(instance):
    return [(table.objects, table.waiting) for table in delete_dropped(instance).tables]


def test_the_files_of_a_dropped_table_go_and_its_log_refuses_on(instance):
    """A process that slept through the drop, and holds an older state, still gets the error."""
    gone, late = instance.table("gone"), instance.unnamed(instance.table("gone").id)
    late.state()
    instance.drop_table("gone")
    assert [table.waiting for table in delete_dropped(instance, dry_run=True).tables] == [None]
    assert len(objects(gone)) == 2
    assert looked_at(instance) == [(2, None)]
    assert objects(gone) == []
    with pytest.raises(RejectedError, match="dropped"):
        late.write(rows("ef"))
    assert objects(gone) == []
    with pytest.raises(Killed):
        on(late, Mortal(late.storage, 1, after=False)).write(rows("gh"))
    assert looked_at(instance) == [(2, None)]
    assert looked_at(instance) == []
    assert letters(instance.table("retained")) == "ab"
    assert instance.table("retained").verify(files=True).sound
    assert instance.create_table("gone", SCHEMA).write(rows("x")) == 2
    assert looked_at(instance) == []


def test_a_reader_may_end_what_it_began(instance):
    gone = instance.table("gone")
    with gone.pin() as snapshot:
        instance.drop_table("gone")
        assert looked_at(instance) == [(2, "readers hold it by pins")]
        assert letters(snapshot) == "cd"
    instance.set(history_s=3600)
    assert looked_at(instance) == [(2, "it was dropped too short a time ago")]
    instance.set(history_s=0)
    assert looked_at(instance) == [(2, None)]


def test_a_drop_that_was_interrupted_is_finished(instance):
    """The catalog's entry is there, that of the table's own log is not."""
    gone = instance.table("gone")
    instance._change(PurgeTable(gone.id), "gone")
    (table,) = delete_dropped(instance, dry_run=True).tables
    assert "interrupted" in table.waiting
    assert letters(gone) == "cd"
    instance.set(history_s=3600)
    assert looked_at(instance) == [(2, "it was dropped too short a time ago")]
    with pytest.raises(RejectedError, match="dropped"):
        on(gone).write(rows("ef"))
    instance.set(history_s=0)
    assert looked_at(instance) == [(2, None)]
    assert objects(gone) == []


def test_a_drop_that_another_process_finishes_meanwhile_succeeds(instance):
    gone, storage = instance.table("gone"), instance.storage

    def collect():
        assert looked_at(lakebed.open(storage.url)) == [(2, None)]

    through(instance, Meanwhile(storage, "create", "tables/*/log/*", collect)).drop_table("gone")
    assert objects(gone) == []


def test_a_drop_that_the_store_interrupts_says_what_is_left_to_do(instance):
    full = FaultyStorage(instance.storage, FaultPlan([Rule(Fault.FULL, "create", "tables/*/log/*")]))
    with pytest.raises(StorageError, match=r"disk is full .*Table gone is out of the catalog.*`lakebed gc` finishes"):
        through(instance, full).drop_table("gone")
    assert instance.tables() == ["retained"]
    assert looked_at(instance) == [(2, None)]


def test_a_table_that_is_neither_named_nor_dropped_is_left_alone(instance):
    """A catalog that was restored from an older copy."""
    table = instance.unnamed(clock.new_id())
    table.commit(CreateTable(table.id, SCHEMA, {}, ()))
    table.write(rows("xy"))
    ((count, waiting),) = looked_at(instance)
    assert count == 2
    assert "not dropped" in waiting
    assert letters(table) == "xy"


def test_only_what_is_known_to_be_a_data_file_goes(instance):
    gone = instance.table("gone")
    instance.drop_table("gone")
    strays = [f"tables/{gone.id}/data/notes.txt", f"tables/{gone.id}/notes.txt", "tables/notes.txt", "notes.txt"]
    for name in strays:
        instance.storage.create(name, b"?")
    assert looked_at(instance) == [(2, None)]
    assert all(instance.storage.get(name) == b"?" for name in strays)


def test_temporaries_of_the_whole_instance_go(tmp_path):
    instance = lakebed.create(str(tmp_path))
    retained = instance.create_table("retained", SCHEMA)
    retained.write(rows("ab"))
    for log in (retained.log, instance._catalog):
        log.wait_for_checkpoint()
    left = [tmp_path / f".clock.{'a' * 32}", tmp_path / "catalog" / "log" / f".2.{'b' * 32}"]
    for path in left:
        path.write_bytes(b"")
    assert delete_dropped(instance).temporaries == 0
    instance.storage = Ahead(instance.storage, 25 * HOUR)
    assert delete_dropped(instance, dry_run=True).temporaries == 0
    assert delete_dropped(instance).temporaries == 2
    assert not any(path.exists() for path in left)


def lost(instance):
    """A creation that died between its log and its name, or lost the race for it; its log."""
    table = instance.unnamed(clock.new_id())
    table.commit(CreateTable(table.id, SCHEMA, {}, ()))
    return table.log.backend


def test_the_log_of_a_creation_that_got_no_name_goes(instance):
    log = lost(instance)
    assert delete_dropped(instance, dry_run=True).logs == 1
    assert list(log.versions()) == [1]
    assert delete_dropped(instance).logs == 1
    assert list(log.versions()) == []
    assert delete_dropped(instance).logs == 0
    assert letters(instance.table("retained")) == "ab"


def test_the_checkpoint_of_a_creation_that_got_no_name_goes_with_its_log(instance):
    table = instance.unnamed(clock.new_id())
    table.commit(CreateTable(table.id, SCHEMA, {}, ()))
    table.log.tail.start_checkpoint()
    table.log.wait_for_checkpoint()
    assert len(list(instance.storage.list(table_prefix(table.id)))) > 1
    assert delete_dropped(instance).logs == 1
    assert list(instance.storage.list(table_prefix(table.id))) == []


def test_the_loser_of_a_race_for_a_name_leaves_a_log_that_goes(instance):

    def overtaken():
        lakebed.open(instance.url).create_table("new", SCHEMA).write(rows("xy"))

    with pytest.raises(ExistsError) as raised:
        through(instance, Meanwhile(instance.storage, "create", "tables/*/log/*", overtaken)).create_table(
            "new", SCHEMA
        )
    assert raised.value.code is Code.TABLE_EXISTS
    assert delete_dropped(instance).logs == 1
    assert letters(instance.table("new")) == "xy"


def test_a_young_creation_is_left_alone(instance):
    instance.set(orphan_age_s=3600)
    log = lost(instance)
    assert delete_dropped(instance).logs == 0
    assert list(log.versions()) == [1]


def test_a_creation_that_slept_through_a_sweep_is_refused_and_can_be_repeated(instance):
    lost(instance)

    def sweep():
        assert delete_dropped(lakebed.open(instance.url)).logs == 2

    with pytest.raises(RejectedError, match="create the table again"):
        through(instance, Meanwhile(instance.storage, "create", "catalog/log/*", sweep)).create_table("new", SCHEMA)
    assert instance.tables() == ["gone", "retained"]
    assert instance.create_table("new", SCHEMA).write(rows("x")) == 2


def test_a_table_whose_drop_broke_off_keeps_its_log(instance):
    """It had a name once, so a process may hold it."""
    empty = instance.create_table("empty", SCHEMA)
    instance._change(PurgeTable(empty.id), "empty")
    assert delete_dropped(instance).logs == 0
    assert list(empty.log.backend.versions()) == [1]
