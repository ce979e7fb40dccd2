"""Trimming a log: what goes, what stays readable, and what becomes of processes that slept meanwhile."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import Code, DamagedError, NotRetainedError, StorageError, UnknownOutcomeError
from lakebed.log.backends.objects import ObjectLogs
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed, Unknown
from lakebed.log.segments import STATE_CACHE
from lakebed.model.files import checkpoint_name, entry_name, segment_folder, table_prefix
from lakebed.model.keys import EncodedRange
from lakebed.model.state.table_state import Job, TableState
from lakebed.model.state.transactions import AlterSettings, ProposeFiles
from lakebed.storage import Locality, connect
from lakebed.storage.contract import PutOutcome
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.retention.plan import checkpoint_due, truncation_version
from lakebed.upkeep.retention.run import collect_garbage, truncate
from tests.pure.state.cases import new_file
from tests.raising import raises
from tests.tables.retention.cases import Ahead, on

SCHEMA = Schema({"k": "int64"}, values={"v": "string"})
AT_ONCE = {"history_s": 0, "log_s": 0}


def rows(*keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": ["x"] * len(keys)})


def keys_of(found):
    return found.scan().read_all().column("k").to_pylist()


def opened(table, storage=None):
    """The table as another process has it, over the same store or one in front of it."""
    storage = storage or table.storage
    return Table(table.id, "t", storage, ObjectLogs(storage), dict)


def entries(table):
    return sorted(table.log.backend.versions())


@pytest.fixture(params=["local", "memory"])
def table(request, tmp_path):
    url = str(tmp_path / "lake") if request.param == "local" else f"memory://{tmp_path.name}"
    storage = connect(url)
    storage.delete([listed.name for listed in storage.list("")])
    made = lakebed.create(url).create_table("t", SCHEMA, settings=AT_ONCE)
    for key in (1, 2, 3):
        made.write(rows(key))
    return made


@pytest.fixture
def truncated(table):
    """Two rounds: the first keeps version 4, the second the head of then, and truncates up to the first."""
    collect_garbage(table)
    table.write(rows(4))
    collect_garbage(table)
    table.log.wait_for_checkpoint()
    return table


# -- what is due ------------------------------------------------------------------------------------------------


def minute(version):
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(minutes=version)


@pytest.mark.parametrize(
    ("retained", "head", "before", "due"),
    [
        ([], 1, 9, False),  # nothing but its creation
        ([], 5, 0, False),  # created after
        ([], 5, 1, True),
        ([3], 5, 2, False),
        ([3], 5, 3, True),
        ([5], 5, 9, False),  # nothing new
    ],
)
def test_a_checkpoint_is_kept_when_the_last_is_old_and_something_is_new(retained, head, before, due):
    assert checkpoint_due(retained, head, minute, minute(before)) == due


@pytest.mark.parametrize(
    ("retained", "opened_at", "before", "to"),
    [
        ([], None, 99, None),
        ([4], None, 99, None),  # one is not enough
        ([4, 8], None, 3, None),  # too young
        ([4, 8], None, 4, 4),
        ([4, 8, 12], None, 99, 8),
        ([4, 8, 12], None, 7, 4),
        ([4, 8, 12], 6, 99, 4),  # a job whose deadline counts from 6
        ([4, 8, 12], 3, 99, None),
    ],
)
def test_the_cut_is_at_the_newest_old_one_with_another_above(retained, opened_at, before, to):
    job = None if opened_at is None else Job("j", EncodedRange(), ("f",), "", 1, 0, opened_at)
    state = TableState(version=20, jobs={"j": job} if job else {})
    assert truncation_version(retained, state, minute, minute(before)) == to


# -- what stays -------------------------------------------------------------------------------------------------


def test_a_truncated_table_reads_on(truncated):
    """The entries up to the log start are gone, for a process that opens it as for one that held it."""
    assert truncated.log.log_start() == 3
    assert entries(truncated)[0] == 4
    for table in (truncated, opened(truncated)):
        assert keys_of(table) == [1, 2, 3, 4]
        assert table.history().column("version").to_pylist()[-1] == 4
        assert table.verify(files=True).findings == ()
        with pytest.raises(NotRetainedError, match="Retained are versions 4"):
            table.at(version=3)
        assert keys_of(table.at(version=4)) == [1, 2, 3]
        with pytest.raises(NotRetainedError, match="earliest retained version, 4"):
            table.at(time="2001-01-01T00:00:00Z")
    assert opened(truncated).write(rows(5)) == truncated.state().version


def test_with_the_default_settings_nothing_is_truncated(table):
    table.set(history_s=None, log_s=None)
    for key in range(3):
        table.write(rows(key))
        assert collect_garbage(table).entries == 0
    assert table.log.log_start() == 0
    assert table.log.retained.versions() == []


def test_a_tag_is_readable_from_its_own_checkpoint_after_the_log_is_truncated(table):
    """And not when it is gone."""
    table.tag("early", 2)
    for key in (4, 5, 6):
        collect_garbage(table)
        table.write(rows(key))
    assert table.log.log_start() > 2
    assert keys_of(opened(table).at(tag="early")) == [1]
    assert opened(table).verify(files=True).findings == ()
    table.untag("early")
    table.write(rows(7))
    collect_garbage(table)
    assert 2 not in table.log.retained.versions()
    with raises(Code.VERSION_NOT_RETAINED):
        table.at(version=2)


def test_the_tag_whose_checkpoint_is_gone_is_found(table):
    table.tag("early", 2)
    for key in (4, 5):
        collect_garbage(table)
        table.write(rows(key))
    table.storage.delete([checkpoint_name(table_prefix(table.id), 2)])
    (finding,) = opened(table).verify().findings
    assert (finding.kind, finding.damage) == ("tag", True)
    with pytest.raises(NotRetainedError, match="no checkpoint of it is kept"):
        opened(table).at(tag="early")


@pytest.fixture
def in_parts(table):
    """No part is small enough for a manifest, and none is kept in memory, as of processes of their own."""
    table.log.limits = LogLimits(inline_bytes=0)
    bytes_max = STATE_CACHE.bytes_max
    STATE_CACHE.limit(0)
    yield
    STATE_CACHE.limit(bytes_max)


@pytest.mark.usefixtures("in_parts")
def test_kept_checkpoints_share_no_object(truncated):
    """So that nothing but their own version decides when they go."""
    prefix = table_prefix(truncated.id)
    folders = {
        version: {listed.name for listed in truncated.storage.list(segment_folder(prefix, version))}
        for version in (None, *truncated.log.retained.versions())
    }
    assert len(folders) == 3
    assert all(folders.values())
    truncated.storage.delete(folders[None])
    assert keys_of(opened(truncated)) == [1, 2, 3, 4]


@pytest.mark.usefixtures("in_parts")
def test_whatever_checkpoint_is_damaged_another_opens_the_table(truncated):
    """Two were read back before anything went; with all of them gone the error names the version that is needed."""
    prefix, versions = table_prefix(truncated.id), truncated.log.retained.versions()
    doomed = [checkpoint_name(prefix), *(checkpoint_name(prefix, version) for version in reversed(versions))]
    for name in doomed[:-1]:
        data = truncated.storage.get(name)
        truncated.storage.replace(name, data[: len(data) // 2])
        assert keys_of(opened(truncated)) == [1, 2, 3, 4]
        assert not opened(truncated).verify().sound
    truncated.storage.delete(doomed[-1:])
    with pytest.raises(DamagedError, match="truncated up to 3, and no later checkpoint"):
        opened(truncated).state()


def test_behind_a_checkpoint_that_does_not_read_back_nothing_is_truncated(table):
    collect_garbage(table)
    (retained,) = table.log.retained.versions()
    name = checkpoint_name(table_prefix(table.id), retained)
    table.storage.replace(name, table.storage.get(name)[:-20])
    table.write(rows(4))
    assert collect_garbage(table).entries == 0
    assert table.log.log_start() == 0
    assert keys_of(opened(table)) == [1, 2, 3, 4]


def test_a_kept_part_that_does_not_read_back_is_found_though_it_is_in_memory(table):
    table.log.limits = LogLimits(inline_bytes=0)
    collect_garbage(table)
    (retained,) = table.log.retained.versions()
    assert table.log.retained.read(retained) == table.log.head
    for listed in list(table.storage.list(segment_folder(table_prefix(table.id), retained))):
        table.storage.replace(listed.name, table.storage.get(listed.name)[:-20])
    table.write(rows(4))
    assert collect_garbage(table).entries == 0
    assert table.log.log_start() == 0


@pytest.mark.usefixtures("in_parts")
def test_what_a_pinned_view_rests_on_is_not_truncated(table):
    """Parts of its state are swept, and made again when they are asked for, however late."""
    table.log.limits = LogLimits(inline_bytes=0, segment_age=timedelta(seconds=-60))
    table.log.tail.start_checkpoint()
    table.log.wait_for_checkpoint()
    reader = opened(table)
    parts = {listed.name for listed in table.storage.list(segment_folder(table_prefix(table.id)))}
    with reader.pin() as snapshot:
        for key in (4, 5, 6):
            table.write(rows(key))
            collect_garbage(table)
            table.log.wait_for_checkpoint()
        collect_garbage(table)
        assert not parts & {listed.name for listed in table.storage.list(segment_folder(table_prefix(table.id)))}
        assert table.log.log_start() == 0
        assert keys_of(snapshot) == [1, 2, 3]
    collect_garbage(table)
    assert table.log.log_start() > 4


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(
    ("orphan_age_s", "least"),
    [(0, timedelta(minutes=10)), (3600, timedelta(hours=1)), (10**9, timedelta(days=1))],
    ids=["at least ten minutes", "the setting", "at most a day"],
)
def test_replaced_segments_stay_as_long_as_uncommitted_objects_and_readers_of_them_replay(table, orphan_age_s, least):
    settings = {"orphan_age_s": orphan_age_s, "history_s": 10**8, "log_s": 10**8}
    table.try_commit(AlterSettings(settings))
    table.log.tail.start_checkpoint()
    table.log.wait_for_checkpoint()
    held = opened(table).snapshot()
    for key in (4, 5, 6):
        table.write(rows(key))
        table.log.tail.start_checkpoint()
        table.log.wait_for_checkpoint()
    ages = (least - timedelta(minutes=1), least + timedelta(minutes=1))
    swept = [collect_garbage(on(table, Ahead(table.storage, age))).checkpoint_segments for age in ages]
    assert swept[0] == 0
    assert swept[1] > 0
    assert keys_of(held) == [1, 2, 3]
    assert keys_of(opened(table)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("in_parts")
def test_the_checkpoint_of_a_tag_that_is_taken_away_stays_while_a_reader_has_pinned_its_number(table):
    table.tag("early", 2)
    for key in (4, 5, 6):
        collect_garbage(table)
        table.write(rows(key))
    with opened(table).pin(version=2) as snapshot:
        table.untag("early")
        for key in (7, 8):
            collect_garbage(table)
            table.write(rows(key))
        assert keys_of(snapshot) == [1]
    collect_garbage(table)
    assert 2 not in table.log.retained.versions()


def test_where_no_log_start_can_be_kept_the_log_stays_whole(table):

    class Careless(CountingStorage):
        def replace_if(self, name, version, data):
            self.inner.replace(name, data)
            return PutOutcome.CREATED

    collector = opened(table, Careless(table.storage))
    for key in (4, 5, 6):
        assert collect_garbage(collector).log_start == 0
        table.write(rows(key))
    assert entries(table) == list(range(1, 8))
    assert table.log.retained.versions() == []


# -- processes that slept -------------------------------------------------------------------------------------


class Asleep(CountingStorage):
    """A store that one gives a request, and sleeps before it is sent, until something else has happened."""

    def __init__(self, inner, table, call, meanwhile):
        super().__init__(inner)
        self.prefix, self.call, self.meanwhile = table_prefix(table.id) + "/log/0", call, meanwhile

    def _wait(self, call, name):
        if call == self.call and name.startswith(self.prefix) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()

    def create(self, name, data):
        self._wait("create", name)
        return super().create(name, data)

    def get(self, name):
        self._wait("get", name)
        return super().get(name)


def truncate_away(table):
    for key in (10, 11, 12):
        table.write(rows(key))
        collect_garbage(table)


@pytest.mark.parametrize("call", ["get", "create"])
@pytest.mark.parametrize("key", [None, "request"])
def test_a_writer_that_slept_never_believes_in_a_number_below_the_log_start(table, call, key):
    """The answer is true, and what the writer repeats with the same request key is there once."""
    state = table.state()
    asleep = Asleep(table.storage, table, call, lambda: truncate_away(table))
    sleeper = opened(table, asleep)
    sleeper.log.follow() if call == "create" else None
    outcome = sleeper.log.commit(ProposeFiles((new_file("late", "ab"),), key))
    assert table.log.log_start() > state.version
    if call == "create":
        assert outcome == Unknown(state.version + 1)
        # The writer's entry lies below the log start, and no process reads it.
        assert state.version + 1 in entries(table)
        assert "late" not in opened(table).state().files
        outcome = sleeper.log.commit(ProposeFiles((new_file("again", "ab"),), key))
    assert isinstance(outcome, Committed)
    assert outcome.version == table.state().version
    held = [name for name in ("late", "again") if name in opened(table).state().files]
    assert len(held) == 1
    assert sleeper.state() == table.state()


def test_the_request_of_a_writer_that_slept_is_answered_by_the_state(table, monkeypatch):
    """The first put was in the log before it was truncated, though its answer was lost. Its request key is kept."""
    monkeypatch.setattr("lakebed.upkeep.retention.run.request_watermark", lambda *_: None)
    proposal = ProposeFiles((new_file("late", "ab"),), "request")
    storage = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_AFTER, "create", "*/log/*", calls=(1,))]))
    asleep = Asleep(storage, table, "create", None)
    sleeper = opened(table, asleep)
    sleeper.log.follow()
    version = table.state().version + 1
    create = asleep.create

    def once(name, data):
        outcome = create(name, data)
        if asleep.calls["create"] == 1:
            truncate_away(table)
        return outcome

    asleep.create = once
    assert sleeper.log.commit(proposal) == Committed(version)
    assert table.state().requests["request"] is not None
    assert sorted(table.state().files) == sorted(opened(table).state().files)


def test_a_reader_that_slept_neither_stays_behind_nor_follows_another_history(table):
    """Whether the next entry is gone, or another that slept as well put its own there."""
    reader, writer = opened(table), opened(table)
    reader.state(), writer.state()
    truncate_away(table)
    version = reader.version + 1
    assert table.storage.get(entry_name(table_prefix(table.id), version)) is None
    assert keys_of(reader) == keys_of(table)

    forked = opened(table)
    forked.log.tail._head = writer.log.head
    forked.log.tail.opened = forked.log.tail._may_append = True
    forked.log.tail.proven_s = float("inf")
    outcome = forked.log.commit(AlterSettings({"page_rows": 500}))
    # A local disk shows that the entry before is gone, and nothing is put there.
    forks = table.storage.locality is not Locality.DISK
    assert isinstance(outcome, Unknown if forks else Committed)
    assert (table.storage.get(entry_name(table_prefix(table.id), version)) is not None) == forks
    assert writer.state() == table.state()
    assert ("page_rows" in writer.state().settings) == (not forks)


def test_a_log_start_that_cannot_be_read_leaves_the_outcome_unknown(table):
    """The entry is there; whether it is the log's is not known."""
    plan = FaultPlan([])
    writer = opened(table, FaultyStorage(table.storage, plan))
    writer.state()
    plan.rules.append(Rule(Fault.FAIL_BEFORE, "get", "*/log-start.ndjson", probability=1.0))
    version = table.state().version + 1
    assert writer.log.commit(ProposeFiles((new_file("late", "ab"),), "request")) == Unknown(version)
    assert writer.version == version - 1
    plan.rules.clear()
    again = writer.log.commit(ProposeFiles((new_file("again", "ab"),), "request"))
    assert again == Committed(version, repeated=True)
    assert writer.state() == table.state()


# -- rounds that die --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        *product(("create", "replace", "replace_if", "delete"), (Fault.FAIL_BEFORE, Fault.FAIL_AFTER)),
        *product(("get", "list"), (Fault.FAIL_BEFORE,)),
    ],
)
@pytest.mark.parametrize("table", ["memory"], indirect=True)
def test_a_round_that_dies_at_any_request_leaves_a_table_that_the_next_one_truncates(table, operation, fault):
    collect_garbage(table)
    table.write(rows(4))
    expected = keys_of(table)
    fired = 0
    for call in (1, 2, 4, 7):
        faulty = FaultyStorage(table.storage, FaultPlan([Rule(fault, operation, calls=(call,))]))
        with suppress(StorageError, UnknownOutcomeError):
            truncate(opened(table, faulty))
        fired += faulty.fired[fault]
        assert keys_of(opened(table)) == expected
        assert opened(table).verify(files=True).sound
        table.write(rows(call + 10))
        expected = [*expected, call + 10]
    assert fired
    collect_garbage(table)
    table.write(rows(99))
    collect_garbage(table)
    assert min(entries(table)) == table.log.log_start() + 1
    assert len(table.log.retained.versions()) <= 3


@pytest.mark.parametrize("table", ["memory"], indirect=True)
def test_entries_that_a_round_left_when_it_died_are_deleted_by_the_next_one(table):
    """Also where it has nothing more to truncate."""
    collect_garbage(table)
    table.write(rows(4))
    faulty = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FAIL_BEFORE, "delete", "*/log/*")]))
    with pytest.raises(StorageError, match="injected"):
        truncate(opened(table, faulty))
    table.set(log_s=3600)
    log_start = table.log.log_start()
    assert min(entries(table)) <= log_start
    truncate(opened(table))
    assert (table.log.log_start(), min(entries(table))) == (log_start, log_start + 1)


def test_a_writer_that_the_truncation_overtook_writes_after_it(table):
    """The entry before its own, whose time its own would have, is gone."""
    late = opened(table)
    late.log.limits = LogLimits(fresh_s=3600, last_modified_pause_s=0)
    late.state()
    truncate_away(table)
    assert table.log.log_start() > late.log.head.version
    outcome = late.log.commit(ProposeFiles((new_file("late", "ab"),)))
    assert outcome == Committed(table.state().version)
    assert "late" in opened(table).state().files
