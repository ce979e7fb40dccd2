"""A pinned view stays readable whatever is compacted and collected meanwhile, for as long as its pin is renewed."""

import datetime as dt
import threading

import pytest

from lakebed import clock
from lakebed.errors import Code, ContentionError, DamagedError, NotFoundError, NotRetainedError, UnsupportedFormatError
from lakebed.model.documents import encode_document
from lakebed.model.files import pin_name
from lakebed.read.snapshot.pins import Pin, read_pins
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.retention.run import collect_garbage
from tests.clocks import set_clock
from tests.raising import raises
from tests.tables.cases import compact
from tests.tables.retention.cases import Ahead, letters, made, objects, on, pins, rows, sound

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def table():
    """Entries 2, 3 and 4 add a file each; none overlaps another, so a scan opens them one after another."""
    return made("abc", "def", "ghi")


def cleaned(table):
    """Another process compacts and collects."""
    other = on(table)
    compact(other)
    return collect_garbage(other)


# -- reading ----------------------------------------------------------------------------------------------------


def test_a_scan_of_a_pinned_view_streams_on_while_others_compact_and_collect(table):
    """Each batch is of another file; before each the table is rewritten, and all garbage collected."""
    with table.pin() as snapshot:
        stream, seen = snapshot.scan(), ""
        for batch in stream:
            seen += "".join(batch.column("k").to_pylist())
            on(table).write(rows("z"))
            assert cleaned(table).pinned == 3
        assert seen == "abcdefghi"
        assert letters(snapshot) == "abcdefghi"
        assert snapshot.version == 4
    assert pins(table) == []
    report = collect_garbage(on(table))
    assert (report.files, report.pinned) == (3, 0)
    assert sound(table) == "abcdefghizzz"


def test_without_a_pin_the_same_scan_reports_that_its_files_are_gone(table):
    """The remedy is to ask again, not to restore anything."""
    stream = table.at(version=4).scan()
    stream.read_next_batch()
    assert cleaned(table).files == 3
    with pytest.raises(NotRetainedError, match=r"Table\.pin"):
        stream.read_all()


def test_a_file_that_the_table_needs_and_that_is_lost_is_another_matter(table):
    snapshot = table.at(version=4)
    name = table.files().column("url")[1].as_py().removeprefix(table.storage.url + "/")
    table.storage.delete([name])
    with pytest.raises(NotFoundError, match="restore") as raised:
        letters(snapshot)
    assert raised.value.kind == "not_found"


def test_an_older_number_can_be_pinned(table):
    with table.pin(3) as snapshot:
        assert cleaned(table).pinned == 2
        assert (snapshot.version, letters(snapshot)) == (3, "abcdef")
        with pytest.raises(NotRetainedError) as raised:
            table.at(version=3)
        assert raised.value.code is Code.VERSION_NOT_RETAINED
    with raises(Code.VERSION_NOT_RETAINED), table.pin(3):
        pytest.fail("pinned what is not kept")
    with pytest.raises(NotFoundError, match="version 99 does not exist"), table.pin(99):
        pytest.fail("pinned what is not there")
    assert pins(table) == []


def test_a_number_that_only_a_tag_keeps_can_be_pinned_and_outlives_the_tag(table):
    table.tag("early", 2)
    cleaned(table)
    with table.pin(2) as snapshot:
        table.untag("early")
        assert collect_garbage(on(table)).pinned == 1
        assert letters(snapshot) == "abc"
    assert collect_garbage(on(table)).files == 1


# -- which comes first ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "name", "call"),
    [("replace", "*/pins/*", 1), ("get", "*/log/*05.ndjson", 1)],
    ids=["before the pin", "before the look"],
)
def test_a_reader_that_is_overtaken_by_a_collection_starts_anew(table, operation, name, call):
    """Before the pin: the files are gone. Between pin and look: they are not, and the reader cannot know that."""
    with on(table, Meanwhile(table.storage, operation, name, lambda: cleaned(table), call)).pin() as snapshot:
        assert snapshot.version > 4
        assert len(pins(table)) == 1
        assert collect_garbage(on(table)).pinned == 0
        assert letters(snapshot) == "abcdefghi"
    with pytest.raises(NotRetainedError) as raised:
        table.at(version=4)
    assert raised.value.code is Code.VERSION_NOT_RETAINED


def test_a_reader_that_asks_for_a_number_that_is_given_up_meanwhile_is_refused(table):
    reader = on(table, Meanwhile(table.storage, "replace", "*/pins/*", lambda: cleaned(table)))
    with pytest.raises(NotRetainedError, match="Retained are versions"), reader.pin(4):
        pytest.fail("pinned what is deleted")
    assert pins(table) == []


def test_a_reader_that_is_always_overtaken_gives_up(table):
    class Busy(Meanwhile):
        def replace(self, name, data):
            if "/pins/" in name:
                other = on(table)
                other.write(rows("z"))
                cleaned(table)
            super().replace(name, data)

    with pytest.raises(ContentionError, match="history_s"), on(table, Busy(table.storage, "", "", None)).pin():
        pytest.fail("pinned")
    assert pins(table) == []


@pytest.mark.parametrize("marks", ["its own", "another's"])
def test_pins_are_read_after_the_state_whose_marks_are_acted_upon(table, marks):
    """A pin after the plan, or after the marks were made, and before the pins are read, keeps its files."""
    compact(table)
    if marks == "another's":
        dying = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "delete", "*/data/*")]))
        with pytest.raises(Exception, match="injected"):
            collect_garbage(on(table, dying))
    held = []

    def pin_late():
        pin = Pin(table.storage, table.id)
        pin.put(4)
        held.append(pin)

    operation = ("list", "*/pins") if marks == "another's" else ("create", "*/log/*")
    report = collect_garbage(on(table, Meanwhile(table.storage, *operation, pin_late)))
    assert (report.files, report.pinned) == (0, 3)
    (pin,) = held
    pin.__exit__(None, None, None)
    assert collect_garbage(on(table)).files == 3


# -- life and death ---------------------------------------------------------------------------------------------


def test_a_pin_is_dead_by_the_stores_clock_alone(table, monkeypatch):
    """However wrong the clocks of the reader and of the collector are."""
    with table.pin():
        true = clock.now
        for wrong in (dt.timedelta(days=3650), -dt.timedelta(days=3650)):
            set_clock(monkeypatch, now=lambda wrong=wrong: true() + wrong)
            assert read_pins(table.storage, table.id).versions == {4}
        ahead = Ahead(table.storage, HOUR + dt.timedelta(seconds=60))
        dead = read_pins(ahead, table.id)
        assert (dead.versions, list(dead.dead)) == (frozenset(), pins(table))
        almost = Ahead(table.storage, HOUR - dt.timedelta(seconds=600))
        assert read_pins(almost, table.id).versions == {4}


def test_a_collector_that_is_held_up_takes_no_living_pin_for_dead(table):
    """Between its look at the clock and its list of pins, hours may pass: the pins are renewed meanwhile."""
    pin = Pin(table.storage, table.id)
    pin.put(4)
    with pin:
        clocked = Meanwhile(table.storage, "list", "*/pins", lambda: pin.put(3), call=2)
        assert read_pins(clocked, table.id, timeout_s=0).versions == {3}


def test_the_reader_of_a_dead_pin_gets_an_error_and_never_fewer_rows(table):
    """The pin is deleted with the files; the next renewal holds again what is left."""
    with table.pin() as snapshot:
        report = None
        compact(on(table))
        report = collect_garbage(on(table, Ahead(table.storage, HOUR + dt.timedelta(seconds=60))))
        assert (report.files, report.pinned) == (3, 0)
        assert pins(table) == []
        with pytest.raises(NotRetainedError) as raised:
            letters(snapshot)
        assert raised.value.code is Code.DATA_FILE_NOT_RETAINED
        with pytest.raises(NotRetainedError) as raised:
            snapshot.get("a")
        assert raised.value.code is Code.DATA_FILE_NOT_RETAINED


def test_a_pin_is_renewed_and_a_renewal_that_fails_is_tried_again_soon():
    """The first two renewals fail; of a time-out of a second, the third still comes in time."""
    table = made("abc")
    refusing = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "replace", "*/pins/*", calls={2, 3})]))
    renewed = threading.Event()
    watched = Meanwhile(refusing, "replace", "*/pins/*", renewed.set, call=4)
    with Pin(watched, table.id, timeout_s=1) as pin:
        pin.put(1)
        first = table.storage.last_modified(pins(table)[0])
        assert renewed.wait(120)
        while table.storage.last_modified(pins(table)[0]) == first:
            clock.sleep(0.01)
    assert refusing.fired[Fault.FAIL_BEFORE] == 2
    assert pins(table) == []


def test_a_renewal_that_is_under_way_when_the_reader_ends_does_not_outlive_it():
    table = made("abc")
    renewing, go = threading.Event(), threading.Event()

    def held_up():
        renewing.set()
        assert go.wait(120)

    with Pin(Meanwhile(table.storage, "replace", "*/pins/*", held_up, call=2), table.id, timeout_s=1) as pin:
        pin.put(1)
        assert renewing.wait(120)
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "lakebed-pin")
        threading.Timer(0.1, go.set).start()
    thread.join(120)
    assert pins(table) == []


def test_a_reader_that_ends_while_the_store_is_away_raises_its_own_error(table):
    away = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "delete", "*/pins/*")]))
    with pytest.raises(ZeroDivisionError), on(table, away).pin():
        raise ZeroDivisionError
    assert away.fired[Fault.FAIL_BEFORE] == 1
    later = Ahead(table.storage, HOUR + dt.timedelta(seconds=60))
    collect_garbage(on(table, later), dry_run=True)
    assert len(pins(table)) == 1
    collect_garbage(on(table, later))
    assert pins(table) == []


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{", DamagedError),
        (encode_document({"table": "another", "version": 2}), DamagedError),
        (b'{"format":2,"features":["ranges"],"table":"","version":2}\n', UnsupportedFormatError),
    ],
)
def test_nothing_is_deleted_past_a_living_pin_that_cannot_be_read(table, data, error):
    """What it holds is not known; when it is dead, it holds nothing."""
    compact(table)
    name = pin_name(table.id, clock.new_id())
    table.storage.replace(name, data)
    with pytest.raises(error, match="pins/"):
        collect_garbage(table)
    assert len(objects(table)) == 8
    later = Ahead(table.storage, HOUR + dt.timedelta(seconds=60))
    assert collect_garbage(on(table, later)).files == 3
    assert pins(table) == []


def test_what_is_no_pin_is_left_alone(table):
    stray = f"tables/{table.id}/pins/README.txt"
    table.storage.replace(stray, b"?")
    later = Ahead(table.storage, 10 * HOUR)
    collect_garbage(on(table, later))
    assert table.storage.get(stray) == b"?"
