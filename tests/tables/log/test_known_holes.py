"""Holes that the log of another lake is known to have, IceDB's, and that a log of numbered deltas does not.

There an entry is an object named by its writer's clock and host, it restates the files it touches as alive or dead, and
the newest statement about a file counts. Each test is one hole: its docstring says what goes wrong there, its drawing
shows that it does not here. This module has those that show on states and logs alone, test_known_holes_of_files those
that need rows in files.
"""

import datetime as dt

from msgspec.structs import replace

from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed, NotCommitted
from lakebed.model.files import checkpoint_name
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.transactions import (
    AlterSettings,
    CloseJob,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeSplit,
    RetireFiles,
)
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from tests.clocks import set_clock
from tests.pure.state.cases import drawn, job, key, new_file
from tests.tables.log.cases import LOG, Overtaken, adding, created, log_on

LOW, HIGH = EncodedRange(b"", key("m")), EncodedRange(key("m"), None)


def committed(log, *proposals):
    """Each proposal in an entry of its own, none refused."""
    for proposal in proposals:
        outcome = log.commit(proposal)
        assert isinstance(outcome, Committed), outcome
    return log


def merging(name, inputs, letters, **keys):
    """The two proposals of a merge; no letters, no output."""
    output = (new_file(name, letters),) if letters else ()
    return OpenJob(job("j-" + name, *inputs.split(), **keys)), ProposeOutput("j-" + name, output)


def read(store):
    """The table as drawn by a reader of the entries alone, which a reader of the checkpoint agrees with."""
    quick = log_on(store).follow()
    store.delete([checkpoint_name(LOG)])
    state = log_on(store).follow()
    assert state == quick
    check_invariants(state)
    return drawn(state)


def cut(store):
    """A table of two partitions, cut at m, with one file in both."""
    return committed(created(store), ProposeSplit({1: (key("m"),)}), adding("f1"))


# -- merges and removals ----------------------------------------------------------------------------------------


def test_a_merge_does_not_bring_back_what_was_removed_beside_it(store):
    """A merge states anew all that its input's log object said, so files of another partition rise from the dead."""
    log = cut(store)
    committed(log, *merging("none", "f1", "", keys=HIGH))
    assert read(store) == ["f1:~2", ""]
    committed(log, *merging("f2", "f1", "ab", keys=LOW))
    assert read(store) == ["f2:2", ""]


def test_two_merges_of_the_same_files_do_not_both_count(store):
    """Two merges of one partition at once both take effect, and every row is there twice."""
    one, two = committed(created(store), adding("f1"), adding("f2")), log_on(store)
    two.follow()
    (opened, output), (second, late) = merging("f3", "f1 f2", "aabbyyzz"), merging("f4", "f1 f2", "aabbyyzz")
    committed(one, opened)
    assert "belongs to open job" in two.commit(second).reason
    committed(one, output)
    assert "not referenced there any more" in two.commit(second).reason
    assert "not open" in two.commit(late).reason
    assert read(store) == ["f3:8"]


def test_merges_of_different_partitions_commit_side_by_side_and_neither_undoes_the_other(store):
    """Two merges of different partitions each state the other's dead files as alive."""
    one = cut(store)
    committed(one, adding("f2"))
    two = log_on(store)
    two.follow()
    (open_low, low), (open_high, high) = (
        merging("lo", "f1 f2", "aabb", keys=LOW),
        merging("hi", "f1 f2", "yyzz", keys=HIGH),
    )
    committed(one, open_low)
    committed(two, open_high)
    committed(one, low)
    committed(two, high)
    assert read(store) == ["lo:4", "hi:4"]


def test_a_partition_without_a_living_file_does_not_stop_compaction(store):
    """A partition of which nothing but dead files is left makes every merge fail, of all partitions."""
    log = committed(cut(store), adding("f2"), *merging("none", "f1 f2", "", keys=HIGH))
    committed(log, *merging("f3", "f1 f2", "aabb", keys=LOW), RetireFiles(("f1",)), adding("f4"))
    state = log.head.state
    assert drawn(state) == ["f3:4 f4:~2", "f4:~2"]
    committed(log, *merging("none-2", "f4", "", keys=HIGH), RetireFiles(("f2",)))
    merges = plan_compaction(log.head.state, Settings(), Strategy.FULL).merges
    assert [[file.id for file in merge.inputs] for merge in merges] == [["f3", "f4"]]


def test_a_worker_that_stood_still_past_its_claim_commits_nothing(store):
    """A process that stops while it holds the lock, and wakes up after another took it, writes as if it held it."""
    log = committed(created(store), adding("f1"), adding("f2"))
    (opened, output), again = merging("f3", "f1 f2", "aabbyyzz"), merging("f4", "f1 f2", "aabbyyzz")
    committed(log, opened)
    late = log_on(Overtaken(store, lambda: committed(log, CloseJob("j-f3", "past its deadline"), *again)))
    late.follow()
    assert "not open" in late.commit(output).reason
    assert late.head.state == log.head.state
    assert read(store) == ["f4:8"]


# -- clocks -----------------------------------------------------------------------------------------------------


def at(monkeypatch, hours):
    """This process believes that it is so many hours later than it is."""
    now = dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)
    set_clock(monkeypatch, now=lambda: now)


def test_what_a_fast_clock_merged_is_seen_by_everyone_at_once(store, monkeypatch):
    """An entry from the future is passed over till its time comes, so the next merge takes the same files again."""
    log, other = committed(created(store), adding("f1"), adding("f2")), log_on(store)
    at(monkeypatch, hours=1)
    committed(log, *merging("f3", "f1 f2", "aabbyyzz"))
    at(monkeypatch, hours=0)
    assert drawn(other.follow()) == ["f3:8"]
    assert isinstance(other.commit(merging("f4", "f1 f2", "aabbyyzz")[0]), NotCommitted)
    assert read(store) == ["f3:8"]


def test_a_clock_that_is_set_back_does_not_put_a_removal_before_what_it_removes(store, monkeypatch):
    """A merge stamped before the insert it merged is overruled by that insert: both its inputs and output count."""
    log = created(store)
    at(monkeypatch, hours=0)
    opened, output = merging("f3", "f1 f2", "aabbyyzz")
    committed(log, adding("f1"), adding("f2"), opened)
    at(monkeypatch, hours=-1)
    committed(log, output)
    times = [log.read(version).entry.time for version in (4, 5)]
    assert times == sorted(times, reverse=True)
    assert read(store) == ["f3:8"]
    assert log.entry_last_modified(4) <= log.entry_last_modified(5)


def test_commits_of_one_host_in_one_instant_are_two(store, monkeypatch):
    """The second overwrites the first, whose rows were acknowledged: the name of both is the time and the host."""
    at(monkeypatch, hours=0)
    created(store)
    proposal = AlterSettings({"page_rows": 500})
    outcomes = []
    late = log_on(Overtaken(store, lambda: outcomes.append(log_on(store).commit(proposal))))
    outcomes.append(late.commit(proposal))
    assert outcomes == [Committed(2), Committed(3)]
    late = log_on(Overtaken(store, lambda: committed(log_on(store), adding("f1"))))
    assert late.commit(adding("f2")) == Committed(5)
    assert read(store) == ["f1:4 f2:4"]


def test_a_commit_is_read_in_the_instant_it_was_made(store, monkeypatch):
    """A read within the millisecond of a commit does not see it: only what is older than now counts."""
    at(monkeypatch, hours=0)
    writer, reader = created(store), log_on(store)
    assert reader.follow().version == 1
    assert writer.commit(adding("f1")) == Committed(2)
    assert drawn(writer.head.state) == ["f1:4"]
    assert drawn(reader.follow()) == ["f1:4"]


# -- readers ----------------------------------------------------------------------------------------------------


def test_a_reader_whose_checkpoint_is_swept_under_it_reads_the_entries(store):
    """Cleanup deletes log objects at once, and a reader that has just listed them fails."""
    limits = LogLimits(inline_bytes=0, segment_age=dt.timedelta(seconds=-60))
    log = committed(created(store, limits), *(adding(f"f{n}") for n in range(5)))
    manifest = store.get(checkpoint_name(LOG))

    class Swept(CountingStorage):
        """Between the reader's look at the manifest and at its parts another manifest comes, and the sweep."""

        def fetch(self, name, *, digest=None):
            while store.get(checkpoint_name(LOG)) == manifest:
                log.commit(adding(f"g{log.head.version}"))
            log.checkpoints.delete_unnamed(dt.timedelta())
            return super().fetch(name, digest=digest)

    swept = Swept(store)
    assert log_on(swept).follow() == log.head.state
    assert swept.calls["fetch"]
    assert len(list(log.backend.versions())) == log.head.version


def test_nothing_on_the_way_of_a_read_or_a_commit_rests_on_a_listing(store):
    """A listing of many pages is no picture of one moment, and a store may refuse listings."""
    blind = FaultyStorage(store, FaultPlan([Rule(Fault.FAIL_BEFORE, "list")]))
    log = committed(created(blind), *(adding(f"f{n}") for n in range(8)))
    committed(log, ProposeSplit({1: (key("m"),)}), *merging("g", "f0 f1", "aabb", keys=LOW))
    reader = log_on(blind)
    assert reader.follow() == log.head.state
    assert reader.entry_last_modified(reader.head.version) <= reader.now()
    # The first read of a process lists what follows, then what is around the end, and does without if it cannot.
    assert blind.fired[Fault.FAIL_BEFORE] == 2 * 2


# -- schemas ----------------------------------------------------------------------------------------------------


def test_a_file_of_another_schema_is_not_committed(store):
    """Files of several schemas lie side by side, and a merge of them loses a column without a word, or fails.

    Here every file names its schema version, and one that the table does not have yet is refused. How files of older
    versions are read and merged is shown with rows, in tests/tables/test_alter.py.
    """
    log = committed(created(store), adding("f1"), OpenJob(job("j1", "f1")))
    new = new_file("f2", "abyz")
    strange = (replace(new, file=replace(new.file, schema_version=2)),)
    for proposal in (ProposeFiles(strange), ProposeOutput("j1", strange)):
        assert "schema version 2" in log.commit(proposal).reason
    committed(log, ProposeOutput("j1", (new,)))
    assert read(store) == ["f2:4"]
