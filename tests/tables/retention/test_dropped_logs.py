"""What refuses late processes stays of the log of a dropped table, whichever is late and wherever a collector dies."""

import pytest

import lakebed
from lakebed import clock
from lakebed.errors import Code, Error, NotFoundError, RejectedError
from lakebed.model.files import table_prefix
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.retention.orphans import delete_dropped
from lakebed.upkeep.retention.run import gc
from tests.raising import raises
from tests.tables.retention.cases import AT_ONCE, SCHEMA, Killed, Mortal, letters, on, rows
from tests.tables.retention.test_dropped import through

WRITES = 6


@pytest.fixture
def instance():
    made = lakebed.create(f"memory://{clock.random_token()}")
    made.set(**AT_ONCE, log_s=0)
    made.create_table("retained", SCHEMA).write(rows("ab"))
    return made


@pytest.fixture
def held(instance):
    """A table that another process has open, at its last version."""
    table = instance.create_table("gone", SCHEMA)
    for number in range(WRITES):
        table.write(rows("abcdef"[number]))
    table.tag("kept")
    table.log.retain_checkpoint()
    table.log.wait_for_checkpoint()
    late = on(table)
    late.state()
    return late


@pytest.fixture
def gone(instance, held):
    """The same table, dropped since."""
    instance.drop_table("gone")
    return held


def left(table):
    """The objects of a table, below its folder."""
    prefix = table_prefix(table.id)
    return sorted(listed.name.removeprefix(f"{prefix}/") for listed in table.storage.list(prefix))


def refused(table):
    """The table says that it was dropped, to a process that has it open or that only knows its id."""
    with pytest.raises(RejectedError, match="dropped") as rejected:
        table.write(rows("x"))
    assert rejected.value.code is Code.TABLE_DROPPED
    for read in (lambda: table.get("a"), lambda: letters(table.snapshot()), lambda: table.at(tag="kept").count()):
        with pytest.raises(NotFoundError, match="dropped"):
            read()


def is_small(table):
    last = table.state().version
    assert [name for name in left(table) if not name.startswith("data/")] == [
        f"checkpoints/{last:020d}/manifest.ndjson",
        f"log/{last:020d}.ndjson",
        "log/log-start.ndjson",
    ]


def test_entries_and_checkpoints_go_and_late_processes_are_refused(instance, gone):
    others = [on(gone) for _ in range(2)]
    others[0].state()
    last = gone.state().version
    (dry,) = delete_dropped(instance, dry_run=True).tables
    (table,) = delete_dropped(instance).tables
    assert dry == table
    assert (table.objects, table.entries) == (2 * WRITES, last - 1)
    for one in (gone, *others, on(gone)):
        refused(one)
    with pytest.raises(NotFoundError) as raised:
        instance.table("gone")
    assert raised.value.code is Code.TABLE_NOT_FOUND
    delete_dropped(instance)
    is_small(gone)
    assert gc(instance).dropped.tables == ()
    assert letters(instance.table("retained")) == "ab"


def test_the_log_stays_for_its_own_retention(instance, gone):
    instance.set(log_s=3600)
    assert [(table.objects, table.entries) for table in delete_dropped(instance).tables] == [(2 * WRITES, 0)]
    assert len(list(gone.log.backend.versions())) > WRITES
    refused(on(gone))
    assert delete_dropped(instance).tables[1:] == ()
    instance.set(log_s=0)
    assert delete_dropped(instance).tables[0].entries > WRITES
    refused(on(gone))


def test_a_collector_that_dies_at_any_change_is_followed_by_one_that_ends_it(instance, gone):
    died = 0
    for change in range(1, 100):
        try:
            for after in (False, True):
                delete_dropped(through(instance, Mortal(instance.storage, change, after=after)))
        except Killed:
            died += 1
            refused(on(gone))
            continue
        break
    assert died > 3
    delete_dropped(instance)
    is_small(on(gone))
    refused(gone)


@pytest.mark.parametrize("call", range(1, 6))
@pytest.mark.parametrize("operation", ["create", "get", "delete", "list"])
def test_processes_that_begin_at_any_call_of_a_collector_are_refused(instance, gone, operation, call):
    begun = []

    def late():
        begun.append(on(gone))
        refused(begun[-1])
        refused(gone)

    delete_dropped(through(instance, Meanwhile(instance.storage, operation, f"tables/{gone.id}/*", late, call=call)))
    for table in (*begun, gone):
        refused(table)
    # The rows of a refused write were put, and go.
    delete_dropped(instance)
    delete_dropped(instance)
    is_small(on(gone))


def test_a_writer_that_slept_before_its_put_does_not_get_the_answer_that_it_wrote(instance, held):
    """Its entry lands where the log was deleted, and goes with the next collection."""
    version = held.state().version

    def drop_and_collect():
        instance.drop_table("gone")
        assert delete_dropped(instance).tables[0].entries == version

    writer = on(held, Meanwhile(held.storage, "create", f"tables/{held.id}/log/*", drop_and_collect))
    writer.state()
    with raises(Code.COMMIT_UNKNOWN, Code.TABLE_DROPPED):
        writer.write(rows("x"), commit_id="w")
    refused(writer)
    with pytest.raises(Error, match="dropped"):
        writer.write(rows("x"), commit_id="w")
    delete_dropped(instance)
    delete_dropped(instance)
    is_small(on(held))
