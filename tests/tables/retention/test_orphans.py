"""What was written and never committed is swept; what is committed, or may yet be, is never touched."""

import datetime as dt
import threading

import pytest

from lakebed import clock
from lakebed.errors import Code, DamagedError, RejectedError
from lakebed.log.last_modified_times import to_us
from lakebed.log.log_limits import LIMITS
from lakebed.model.files import data_folder, data_object, entry_name, table_prefix
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob, RaiseWatermark, Watermark
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from lakebed.upkeep.compaction.run import compact as run_compaction
from lakebed.upkeep.compaction.run import prepare, release_jobs, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from tests.clocks import set_clock
from tests.orphans import delete_orphans
from tests.raising import raises
from tests.tables.cases import compact
from tests.tables.retention.cases import Ahead, Killed, Mortal, made, nothing_is_left_over, objects, on, rows, sound

DAY = dt.timedelta(days=1)


@pytest.fixture
def table():
    return made("ab", "cd")


def orphaned(table, text="yz"):
    """A write that dies before its entry: two objects that nothing names."""
    with pytest.raises(Killed):
        on(table, Mortal(table.storage, 1, after=False)).write(rows(text))


def swept(table):
    """Ten objects are too few for two orphans to be few."""
    return delete_orphans(on(table), force=True)


def horizon_of(table):
    return on(table).state().orphan_cutoff_us


# -- what goes --------------------------------------------------------------------------------------------------


def test_an_orphan_goes_with_its_summary_and_nothing_else_does(table):
    compact(table)
    orphaned(table)
    assert len(objects(table)) == 8
    report = swept(table)
    assert (report.orphans, report.objects, report.unknown, report.held_by) == (2, 8, 0, None)
    assert report.size_bytes > 0
    assert len(objects(table)) == 6
    assert nothing_is_left_over(table)
    assert sound(table) == "abcd"
    assert collect_garbage(table).files == 2


def test_a_file_that_is_marked_dead_is_on_record(table):
    """Whether it goes is for the pins to say."""
    with table.pin():
        compact(table)
        assert collect_garbage(on(table)).pinned == 2
        assert swept(table).orphans == 0
    assert collect_garbage(on(table)).files == 2


def test_what_is_younger_than_the_horizon_stays(table):
    orphaned(table)
    table.set(orphan_age_s=3600)
    assert swept(table).orphans == 0
    assert delete_orphans(on(table, Ahead(table.storage, dt.timedelta(minutes=50))), force=True).orphans == 0
    assert delete_orphans(on(table, Ahead(table.storage, dt.timedelta(minutes=70))), force=True).orphans == 2


def test_older_is_strictly_less_where_a_file_is_swept_and_where_it_is_refused(table):
    """Two files may have one last-modified time. With the cutoff there the younger orphan stays, and a writer may add
    its own."""
    orphaned(table)

    def sweep_up_to_the_newest():
        latest = max(
            listed.last_modified for listed in table.storage.list(data_folder(table.id)) if "parquet" in listed.name
        )
        table.commit(RaiseWatermark(Watermark.ORPHAN_CUTOFF, to_us(latest)))
        assert delete_orphans(on(table, Clocked(table.storage, latest)), force=True).orphans == 2

    on(table, Meanwhile(table.storage, "create", "*/log/*", sweep_up_to_the_newest)).write(rows("ef"))
    assert sound(table) == "abcdef"
    assert nothing_is_left_over(table)


class Clocked(Ahead):
    """A store whose clock stands still."""

    def now(self):
        return self.by


def test_with_nothing_to_sweep_no_writer_is_refused(table):
    """No entry, and so no cutoff."""
    report = swept(table)
    assert (report.orphans, report.version) == (0, None)
    assert horizon_of(table) == 0


def test_a_dry_run_changes_nothing(table):
    orphaned(table)
    before = objects(table)
    report = delete_orphans(table, dry_run=True)
    assert (report.orphans, report.dry_run, report.version) == (2, True, None)
    assert report.doubts
    assert objects(table) == before
    assert horizon_of(table) == 0


def test_temporaries_of_dead_puts_go_too(tmp_path):
    table = made("ab", url=str(tmp_path))
    folder = tmp_path / "tables" / table.id / "data"
    left = folder / f".f.parquet.{'a' * 32}"
    left.write_bytes(b"torn")
    (folder / ".keep").touch()
    assert delete_orphans(table, dry_run=True).temporaries == 0
    table.set(orphan_age_s=3600)
    assert delete_orphans(table).temporaries == 0
    table.set(orphan_age_s=0)
    table.log.wait_for_checkpoint()
    assert delete_orphans(table).temporaries == 1
    assert not left.exists()
    assert (folder / ".keep").exists()


# -- the brake --------------------------------------------------------------------------------------------------


def test_more_orphans_than_a_twentieth_need_force():
    """40 objects of 20 files, and 2 or 4 orphans."""
    table = made(*(["a"] * 20))
    orphaned(table)
    assert delete_orphans(table).orphans == 2
    orphaned(table)
    orphaned(table)
    with pytest.raises(RejectedError, match="4 of 44 objects are orphans, more than 5% or 10,000"):
        delete_orphans(table)
    assert len(objects(table)) == 44
    assert delete_orphans(table, force=True).orphans == 4


@pytest.mark.parametrize(
    "name",
    [
        "data/job-00000/notes.txt",
        "data/job-00000/019a0000-0000-7000-8000-000000000000.deletions",
        "data/019a0000-0000-7000-8000-000000000000.parquet",
        "data/job-00000/deep/019a0000-0000-7000-8000-000000000000.parquet",
        "data/job-00000/019A0000-0000-7000-8000-000000000000.parquet",
    ],
)
def test_an_object_of_no_known_kind_holds_the_sweep_and_is_never_deleted(name):
    table = made(*(["a"] * 20))
    orphaned(table)
    stray = f"{table_prefix(table.id)}/{name}"
    table.storage.create(stray, b"?")
    with pytest.raises(RejectedError, match="of no kind known here"):
        delete_orphans(table)
    report = delete_orphans(table, force=True)
    assert (report.orphans, report.unknown, report.unknown_names) == (2, 1, (stray,))
    assert stray in objects(table)


def test_a_file_on_record_under_another_name_is_not_taken_for_an_orphan(table):
    """The id is known, and the folder is not the one that the record says."""
    (first, *_) = table.state().files
    stray = data_object(table.id, "another-job", first)
    table.storage.create(stray, b"?")
    assert swept(table).unknown_names == (stray,)
    assert stray in objects(table)


def test_a_table_that_misses_a_file_is_not_swept():
    """A restore may need what lies there; force says that a person has looked."""
    table = made(*(["a"] * 20))
    orphaned(table)
    lost_id = next(iter(table.state().files))
    lost = next(name for name in objects(table) if name.endswith(f"{lost_id}.parquet"))
    table.storage.delete([lost])
    with pytest.raises(RejectedError, match=f"such as {lost}: verify"):
        delete_orphans(table)
    assert len(objects(table)) == 41


@pytest.mark.parametrize("old_view", [False, True])
def test_a_log_with_a_hole_is_not_swept(table, old_view):
    """Entries beyond the hole are not read: what they added looks like orphans. A process that read the log before does
    not look past the end again: the listing of the sweep shows it those entries.
    """
    sweeper = on(table)
    if old_view:
        sweeper.state()
    version = table.write(rows("ef"))
    table.write(rows("gh"))
    table.write(rows("ij"))
    table.log.wait_for_checkpoint()
    table.storage.delete(
        [entry_name(table_prefix(table.id), version), f"{table_prefix(table.id)}/checkpoints/latest.ndjson"]
    )
    before = objects(table)
    with pytest.raises(DamagedError) as caught:
        delete_orphans(sweeper, force=True)
    assert caught.value.code is (Code.ENTRY_DAMAGED if old_view else Code.ENTRY_MISSING)
    assert objects(table) == before


# -- late writers -----------------------------------------------------------------------------------------------


def test_a_writer_that_is_held_up_while_a_sweep_passes_is_refused_and_asked_to_write_again(table):
    """Its files are gone, its commit with them; the same write again is as good as new."""
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: swept(table)))
    with pytest.raises(RejectedError, match="write it again"):
        late.write(rows("ef"), commit_id="batch")
    assert sound(table) == "abcd"
    assert nothing_is_left_over(table)
    late.write(rows("ef"), commit_id="batch")
    assert sound(table) == "abcdef"


def test_a_writer_that_commits_before_the_cutoff_is_on_record(table):
    """The sweep has listed the files as orphans already; the writer commits before its entry."""
    orphaned(table)
    uploaded, sweeping, done = threading.Event(), threading.Event(), threading.Event()

    def wait_for_the_sweep():
        uploaded.set()
        assert sweeping.wait(120)

    def write():
        on(table, Meanwhile(table.storage, "create", "*/log/*", wait_for_the_sweep)).write(rows("gh"))
        done.set()

    def let_the_writer_go():
        sweeping.set()
        assert done.wait(120)

    threading.Thread(target=write).start()
    assert uploaded.wait(120)
    report = delete_orphans(on(table, Meanwhile(table.storage, "create", "*/log/*", let_the_writer_go)), force=True)
    assert report.orphans == 2
    assert sound(table) == "abcdgh"
    assert nothing_is_left_over(table)


# -- jobs -------------------------------------------------------------------------------------------------------


def compaction(table, tmp_path, meanwhile):
    """All of it, as the pipeline runs it; something happens when the output is written and not committed."""

    def execute(tasks):
        made_files = [run_merge_task(task, table.storage, tmp_path) for task in tasks]
        meanwhile()
        return made_files

    return run_compaction(table, prepare(table, "full"), execute, cores=1)


def test_a_compaction_under_way_is_not_refused_for_a_sweep_that_passes(table, tmp_path):
    """The cutoff stays at its beginning: the orphan of before goes, its output does not."""
    orphaned(table)
    reports = []

    def sweep():
        orphaned(table)
        reports.append(swept(table))

    report = compaction(table, tmp_path, sweep)
    assert report.partitions == 1
    (held,) = reports
    assert held.orphans == 2
    assert held.held_by is not None
    assert sound(table) == "abcd"
    again = swept(table)
    assert (again.orphans, again.held_by) == (2, None)
    assert nothing_is_left_over(table)


def test_a_job_that_opens_before_the_entry_of_the_horizon_holds_it_too(table):
    """Refused, the sweep chooses again: of two orphans the one goes that is older than the job."""
    orphaned(table)
    began_us = to_us(table.storage.now())
    orphaned(table)
    opened = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: claimed(table, began_us)))
    report = delete_orphans(opened, force=True)
    assert (report.orphans, report.held_by) == (2, "job-of-the-dead")
    assert len(objects(table)) == 6


def claimed(table, began_us, deadline_s=60):
    """A job of a process that will never finish it."""
    inputs = tuple(table.state().files)
    table.commit(OpenJob(Job("job-of-the-dead", ALL_KEYS, inputs, "", deadline_s, began_us)))


def test_a_job_past_its_deadline_holds_the_sweep_until_compaction_releases_it(table):
    claimed(table, to_us(table.storage.now()), deadline_s=3600)
    orphaned(table)
    report = swept(table)
    assert (report.orphans, report.held_by, report.version) == (0, "job-of-the-dead", None)
    assert release_jobs(on(table, Ahead(table.storage, DAY))) == ("job-of-the-dead",)
    assert swept(table).orphans == 2


# -- crashes and company ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
def test_a_sweep_killed_at_any_change_is_finished_by_the_next(after):
    change, died = 0, True
    while died:
        change += 1
        table = made("ab", "cd")
        orphaned(table)
        try:
            delete_orphans(on(table, Mortal(table.storage, change, after=after)), force=True)
            died = False
        except Killed:
            swept(table)
        assert nothing_is_left_over(table)
        assert sound(table) == "abcd"
    assert change == 3


@pytest.mark.parametrize("operation", ["get", "create", "list", "now", "delete"])
def test_two_sweeps_at_once_do_no_harm(operation):
    """One is overtaken by all of another, and by a write, before each of its calls in turn."""
    call, overtaken = 0, True
    while overtaken:
        call += 1
        table = made("ab", "cd")
        orphaned(table)

        def other(table=table):
            swept(table)
            on(table).write(rows("e"))

        first = on(table, Meanwhile(table.storage, operation, "*", other, call))
        delete_orphans(first, force=True)
        overtaken = first.storage.happened
        swept(table)
        assert nothing_is_left_over(table)
        assert sound(table) == ("abcde" if overtaken else "abcd")
    assert call > 1


@pytest.mark.parametrize("operation", ["get", "list"])
def test_a_sweep_overtaken_by_a_compaction_and_a_collection_does_no_harm(operation):
    """Files that it had for referenced are deleted, and not yet forgotten: no read needs them."""
    call, overtaken = 0, True
    while overtaken:
        call += 1
        table = made("ab", "cd")
        orphaned(table)

        def other(table=table):
            compact(on(table))
            with pytest.raises(Killed):
                collect_garbage(on(table, Mortal(table.storage, 2, after=True)))

        first = on(table, Meanwhile(table.storage, operation, "*", other, call))
        report = delete_orphans(first, force=True)
        assert not any("verify" in doubt for doubt in report.doubts)
        overtaken = first.storage.happened
        collect_garbage(table)
        assert nothing_is_left_over(table)
        assert sound(table) == "abcd"
    assert call > 1


def test_after_an_unknown_outcome_nothing_is_deleted(table, monkeypatch):
    """The next sweep finds the cutoff in the log, and goes on from there."""
    set_clock(monkeypatch, sleep=lambda _seconds: None)
    orphaned(table)
    lost = Rule(Fault.FAIL_AFTER, "create", "*/log/*", calls=range(1, LIMITS.settle_puts + 1))
    with raises(Code.COMMIT_UNKNOWN):
        delete_orphans(on(table, FaultyStorage(table.storage, FaultPlan([lost]))), force=True)
    assert len(objects(table)) == 6
    assert horizon_of(table) > 0
    assert swept(table).orphans == 2


@pytest.mark.parametrize("skew", [-3650 * DAY, -DAY, DAY, 3650 * DAY])
def test_a_wrong_clock_of_the_store_only_changes_when(table, skew, monkeypatch):
    """Back, and nothing goes; ahead, and uploads that run are refused. Later ones are not; other clocks: none."""
    orphaned(table)
    true = clock.now
    set_clock(monkeypatch, now=lambda: true() - skew)
    skewed = on(table, Ahead(table.storage, skew))
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: delete_orphans(skewed, force=True)))
    if skew > dt.timedelta(0):
        with pytest.raises(RejectedError, match="write it again"):
            late.write(rows("ef"))
        assert nothing_is_left_over(table)
    else:
        late.write(rows("ef"))
        assert len(objects(table)) == 8
    table.write(rows("gh"))
    assert sound(table) == ("abcdgh" if skew > dt.timedelta(0) else "abcdefgh")
