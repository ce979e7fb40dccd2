"""Faults by name: what is reported, what goes on, and that nothing that was committed is lost.

Answers that a store does not give are in test_committer; what verification alone finds, in test_verification;
what is wrong with another lake's log, in test_known_holes.
"""

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import clock
from lakebed.errors import Code, DamagedError, StorageError, UnsupportedFormatError
from lakebed.log import entry as entries
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed, NotCommitted
from lakebed.model.files import checkpoint_name, entry_name
from lakebed.model.state.transactions import CloseJob, OpenJob
from lakebed.read.inspect.history import history_rows
from lakebed.read.inspect.verification import verify
from lakebed.storage import LocalStorage, connect
from lakebed.testing.faults import CountingStorage
from tests.clocks import set_clock
from tests.documents import rewritten
from tests.pure.state.cases import SCHEMA, job
from tests.tables.log.cases import LOG, adding, created, log_on

CHECKPOINT = checkpoint_name(LOG)


def filled(store, count=3):
    """Entries 1 to count + 1."""
    log = created(store)
    for n in range(count):
        assert log.commit(adding(f"f{n}")) == Committed(n + 2)
    return log


def kinds(store, log=None):
    """What verification finds, as a process that knows nothing yet."""
    return [finding.kind for finding in verify(log or log_on(store), "table-00", "t", None).findings]


def rebodied(data, *documents):
    """An entry with other transactions, as a writer would have made it."""
    body = b"".join(entries.dump(document) + b"\n" for document in documents)
    return rewritten(data, body, count=len(documents))


# -- entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage", ["cut", "halved", "flip", "renumbered", "foreign", "unconcatenated", "newer", "unknown type", "empty"]
)
def test_a_damaged_entry_stops_every_reader(store, damage):
    """Named by log and version; no state advances beyond it, and verification says the same."""
    filled(store, 2)
    store.delete([CHECKPOINT])
    name = entry_name(LOG, 3)
    data = store.get(name)
    changed = {
        "cut": data[:-5],
        "halved": data[: len(data) // 2],
        "flip": data.replace(b'"rows":4', b'"rows":5'),
        "renumbered": data.replace(b'"version":3', b'"version":4'),
        "foreign": data.replace(b'"log":"table-00"', b'"log":"table-01"'),
        "unconcatenated": data.replace(b'"previous":"', b'"previous":"0'),
        "newer": data.replace(b'"format":2', b'"format":3'),
        "unknown type": rebodied(data, {"type": "merge_tables"}),
        "empty": b"",
    }[damage]
    assert changed != data
    store.replace(name, changed)
    error, kind = (
        (UnsupportedFormatError, "unsupported_format")
        if damage in ("newer", "unknown type")
        else (DamagedError, "damaged")
    )
    reader = log_on(store)
    with pytest.raises(error, match="entry 3 of table-00"):
        reader.follow()
    assert reader.head.version == 2
    assert kinds(store) == ["checkpoint_missing", kind]
    store.replace(name, data)
    assert kinds(store) == ["checkpoint_missing"]


def test_damage_does_not_hide_what_lies_behind_it(store):
    """Entries behind a damaged one are checked by themselves."""
    filled(store, 8)
    for version in (3, 6, 7):
        name = entry_name(LOG, version)
        store.replace(name, store.get(name)[:-5])
    found = verify(log_on(store), "table-00", "t", None).findings
    assert [finding.what for finding in found] == [f"entry {n} of table-00 is cut short" for n in (3, 6, 7)]


def test_a_gap_is_named_and_not_filled(store):
    """A process looks past the end when it first reads the log."""
    filled(store, 4)
    gone = store.get(entry_name(LOG, 3))
    store.delete([entry_name(LOG, 3), CHECKPOINT])
    writer = log_on(store)
    for call in (writer.follow, lambda: writer.commit(adding("stray"))) * 2:
        with pytest.raises(DamagedError, match="entry 3 of table-00 is missing") as caught:
            call()
        assert caught.value.code is Code.ENTRY_MISSING
    assert kinds(store) == ["checkpoint_missing", "gap"]
    store.create(entry_name(LOG, 3), gone)
    assert writer.commit(adding("after")) == Committed(6)
    assert sorted(log_on(store).follow().files) == ["after", "f0", "f1", "f2", "f3"]


@pytest.fixture(params=["memory", "disk"])
def any_store(request, store, tmp_path):
    """Only a disk shows, with each create, what is around an entry."""
    return store if request.param == "memory" else LocalStorage(tmp_path, durability="none")


def late_for_a_gap(store, lost):
    """The log of a process that knows two entries, of which the store has eight, but one that is ``lost``."""
    other = filled(store, 1)
    late = log_on(store)
    late.follow()
    for n in range(6):
        other.commit(adding(f"g{n}"))
    store.delete([entry_name(LOG, lost)])
    return late


@pytest.mark.parametrize("came", range(1, 6))
def test_a_gap_behind_an_old_view_is_not_filled(any_store, came):
    """The first read of the process saw no gap: it looks again before its first commit."""
    lost = 2 + came
    late = late_for_a_gap(any_store, lost)
    for _ in range(2):
        with pytest.raises(DamagedError, match=f"entry {lost} of table-00 is missing") as caught:
            late.commit(adding("stray"))
        assert caught.value.code is Code.ENTRY_MISSING
    assert any_store.get(entry_name(LOG, lost)) is None


def test_a_gap_that_comes_after_the_first_commit_is_not_filled_on_disk(tmp_path):
    """A create there looks for the entry before and the one after, because that takes no request."""
    store = LocalStorage(tmp_path, durability="none")
    late = filled(store, 1)
    other = log_on(store)
    for n in range(6):
        other.commit(adding(f"g{n}"))
    store.delete([entry_name(LOG, 6)])
    for _ in range(2):
        with pytest.raises(DamagedError, match="entry 6 of table-00 is missing"):
            late.commit(adding("stray"))
    assert store.get(entry_name(LOG, 6)) is None


def test_a_reader_finds_a_gap_behind_its_old_view_after_a_while(any_store):
    """The entry before the gap is in the log, and looks like the end."""
    late = late_for_a_gap(any_store, 6)
    late.limits = LogLimits(look_s=0.0)
    with pytest.raises(DamagedError, match="entry 6 of table-00 is missing"):
        late.follow()


def test_a_wide_gap_that_was_filled_is_noticed_by_the_chain(store):
    """Of two lost entries another program wrote the first anew: a process that reads on stops behind it."""
    filled(store, 4)
    lost = {version: store.get(entry_name(LOG, version)) for version in (3, 4)}
    store.delete([*(entry_name(LOG, version) for version in lost), CHECKPOINT])
    with pytest.raises(DamagedError, match="entry 3 of table-00 is missing"):
        log_on(store).commit(adding("stray"))
    elsewhere = connect(f"memory://{clock.random_token()}")
    for version in (1, 2):
        elsewhere.create(entry_name(LOG, version), store.get(entry_name(LOG, version)))
    assert log_on(elsewhere).commit(adding("stray")) == Committed(3)
    store.create(entry_name(LOG, 3), elsewhere.get(entry_name(LOG, 3)))
    store.create(CHECKPOINT, elsewhere.get(CHECKPOINT))
    store.create(entry_name(LOG, 4), lost[4])
    with pytest.raises(DamagedError, match="entry 4 of table-00 does not follow"):
        log_on(store).follow()
    assert "damaged" in kinds(store)
    store.replace(entry_name(LOG, 3), lost[3])
    assert kinds(store) == ["forked"]
    store.delete([CHECKPOINT])
    assert sorted(log_on(store).follow().files) == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("look", ["first read", "first commit"])
def test_entries_that_come_while_a_writer_looks_past_the_end_are_no_gap(store, look):
    """Two of another process, between its probe and its look."""
    other = filled(store, 1)

    class Slow(CountingStorage):
        def list(self, prefix, after=""):
            if self.calls["list"] == ["first read", "first commit"].index(look):
                other.commit(adding("f1"))
                other.commit(adding("f2"))
            return super().list(prefix, after)

    late = log_on(Slow(store))
    late.follow()
    assert other.head.version == (4 if look == "first read" else 2)
    assert late.commit(adding("mine")) == Committed(5)
    assert sorted(log_on(store).follow().files) == ["f0", "f1", "f2", "mine"]


def test_two_entries_of_one_number_are_found_by_the_chain(store):
    """A store that lied: what one process saw as entry 3 is another's entry 3 now."""
    saw = filled(store, 2)
    store.delete([CHECKPOINT, entry_name(LOG, 3)])
    other = log_on(store)
    assert other.commit(adding("other")) == Committed(3)
    assert other.commit(adding("more")) == Committed(4)
    with pytest.raises(DamagedError, match="went back: entry 3") as caught:
        saw.follow()
    assert caught.value.code is Code.LOG_WENT_BACK
    assert "f1" in saw.head.state.files
    assert "forked" in kinds(store, saw)
    assert "forked" not in kinds(store)


def test_a_log_that_lost_its_newest_entries_is_found_by_the_checkpoint(store):
    """And by any process that has seen them."""
    log = filled(store)
    version = log.checkpoints.read().version
    store.delete([entry_name(LOG, n) for n in range(version, log.head.version + 1)])
    assert kinds(store) == ["cut_off"]
    assert kinds(store, log) == ["cut_off", "cut_off"]


def test_an_entry_of_fifty_megabytes_is_an_entry(tmp_path):
    """Refused, for it is of no use to anyone; if another wrote it, followed, shown in the history and verified."""
    store = LocalStorage(tmp_path, durability="none")
    log = filled(store, 1)
    assert log.commit(OpenJob(job("j1", "f0"))) == Committed(3)
    refused = log.commit(CloseJob("j1", "x" * 50_000_000))
    assert isinstance(refused, NotCommitted)
    assert "50,000,044 bytes of JSON, more than 16,777,216" in refused.reason
    log.limits = LogLimits(line_bytes=2**30)
    assert log.commit(CloseJob("j1", "x" * 50_000_000)) == Committed(4)
    assert log.commit(adding("after")) == Committed(5)
    assert sorted(log_on(store).follow().files) == ["after", "f0"]
    row = list(history_rows(log_on(store), "table-00"))[1]
    assert (row.type, len(row.detail)) == ("close_job", 200)
    assert kinds(store) == []


def test_foreign_files_in_the_folder_are_ignored(tmp_path):
    """Notes, a backup, a number without its zeros, a folder, a hidden file."""
    store = LocalStorage(tmp_path, durability="none")
    log = filled(store)
    folder = tmp_path / LOG / "log"
    foreign = ["notes.txt", "3.ndjson", f"{3:020d}.ndjson.bak", f"{9:021d}.ndjson"]
    for name in (*foreign, ".hidden"):
        (folder / name).write_bytes(b"not an entry")
    (folder / "old").mkdir()
    shutil.copy(folder / f"{2:020d}.ndjson", folder / "old" / f"{2:020d}.ndjson")
    assert log.commit(adding("after")) == Committed(5)
    assert log_on(store).follow() == log.head.state
    report = verify(log_on(store), "table-00", "t", None)
    assert report.sound
    assert {finding.kind for finding in report.findings} == {"foreign"}
    named = {finding.what.split()[0].removeprefix(f"{LOG}/log/") for finding in report.findings}
    assert named == {*foreign, f"old/{2:020d}.ndjson"}


# -- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("missing", "checkpoint_missing"),
        ("empty", "checkpoint_damaged"),
        ("no header", "checkpoint_damaged"),
        ("flip", "checkpoint_damaged"),
        ("cut", "checkpoint_damaged"),
        ("another table's", "checkpoint_damaged"),
    ],
)
def test_a_checkpoint_that_cannot_be_trusted_costs_only_time(store, fault, kind):
    """The log is read instead; verification says so; a later commit writes another."""
    log = filled(store, 1)
    data = store.get(CHECKPOINT)
    changed = {
        "empty": b"",
        "no header": b"{}",
        "flip": data.replace(b'"next_sequence":', b'"next_sequence":1'),
        "cut": data[:-5],
        "another table's": data.replace(b"table-00", b"table-01"),
    }
    if fault == "missing":
        store.delete([CHECKPOINT])
    else:
        store.replace(CHECKPOINT, changed[fault])
    reader = log_on(store)
    assert reader.follow() == log.head.state
    assert kinds(store) == [kind]
    assert reader.commit(adding("after")) == Committed(3)
    assert kinds(store) == []


def test_a_checkpoint_that_is_not_what_the_entries_lead_to_is_damage(store):
    """Whole, with a good digest, and wrong: only a replay can tell."""
    log = filled(store, 3)
    version = log.checkpoints.read().version
    document = json.loads(store.get(CHECKPOINT).splitlines()[1])
    document["state"]["next_sequence"] = 99
    store.replace(CHECKPOINT, rewritten(store.get(CHECKPOINT), entries.dump(document) + b"\n"))
    report = verify(log_on(store), "table-00", "t", None)
    assert [(finding.kind, finding.damage) for finding in report.findings] == [("differs", True)]
    assert str(version) in report.findings[0].what


def test_a_checkpoint_that_a_newer_lakebed_wrote_is_not_passed_over(store):
    """Its entries may mean more than this one knows."""
    filled(store, 1)
    store.replace(CHECKPOINT, store.get(CHECKPOINT).replace(b'"format":2', b'"format":3'))
    with pytest.raises(UnsupportedFormatError, match="checkpoint of table-00"):
        log_on(store).follow()
    assert kinds(store) == ["unsupported_format"]


def test_a_checkpoint_of_another_history_is_damage(store):
    """Its digest is not that of the entry."""
    filled(store, 1)
    store.replace(CHECKPOINT, rewritten(store.get(CHECKPOINT), entry_digest="0" * 32))
    assert kinds(store) == ["forked"]


# -- writers ----------------------------------------------------------------------------------------------------


def rows(letters):
    return pa.table({"k": list(letters), "v": range(len(letters))})


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_writer_whose_clock_is_wrong_changes_neither_order_nor_times(tmp_path, monkeypatch, hours):
    """One of two is an hour off. Order is numbers, and times are the store's."""
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA)
    other = lakebed.open(table.storage.url).table("t")
    true = clock.now
    for count in range(6):
        set_clock(monkeypatch, now=lambda: true() + dt.timedelta(hours=hours))
        table.write(rows("ab"), commit_id=f"wrong {count}")
        set_clock(monkeypatch, now=true)
        other.write(rows("ab"), commit_id=f"right {count}")
    keys = [f"{clock} {count}" for count in range(6) for clock in ("wrong", "right")]
    assert other.history().column("request_key").to_pylist() == [*reversed(keys), None]
    times = other.history().column("time").to_pylist()
    assert times == sorted(times, reverse=True)
    assert other.verify().sound
    assert all(abs(true() - time) < dt.timedelta(minutes=10) for time in times)


STOPPED = """
import os, signal, sys
from lakebed.storage import LocalStorage
from lakebed.testing.faults import CountingStorage
from tests.tables.log.cases import adding, log_on

class Stopping(CountingStorage):
    def create(self, name, data):
        if "/log/" in name and not self.calls["create"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().create(name, data)

log = log_on(Stopping(LocalStorage(sys.argv[1], durability="none")))
log.follow()
print(log.commit(adding("mine", sys.argv[2])))
"""


@pytest.mark.parametrize(
    ("request_key", "outcome"),
    [("mine", Committed(4)), ("theirs", Committed(3, repeated=True))],
)
def test_a_process_stopped_between_read_and_commit_is_judged_again(tmp_path, request_key, outcome):
    """SIGSTOP before its put; meanwhile another wins the version, once with the very same request."""
    store = LocalStorage(tmp_path, durability="none")
    log = filled(store, 1)
    words = [sys.executable, "-c", STOPPED, str(tmp_path), request_key]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as stopped:
        _, status = os.waitpid(stopped.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert log.commit(adding("theirs", "theirs")) == Committed(3)
        stopped.send_signal(signal.SIGCONT)
        said, _ = stopped.communicate(timeout=60)
    assert said.strip() == str(outcome)
    expected = ["f0", "theirs"] if outcome.repeated else ["f0", "theirs", "mine"]
    assert sorted(log.follow().files) == sorted(expected)
    assert kinds(store) == []


@pytest.fixture
def open_folder():
    """A log on local disk that every user can reach."""
    root = Path(tempfile.mkdtemp(prefix="lakebed-"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def denied():
    """Takes the rights to a folder from this process; if it is root, as another user, to which rights apply."""
    user = os.geteuid()
    changed = []

    def deny(folder, mode):
        changed.append(folder)
        folder.chmod(mode)
        if user == 0:
            os.seteuid(65534)

    def allow():
        os.seteuid(user)
        for folder in changed:
            folder.chmod(0o777)

    yield deny, allow
    allow()


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["no writing", "nothing"])
def test_permission_denied_on_the_log_is_reported_and_loses_nothing(open_folder, denied, mode):
    """With the remedy, and not as if it could pass by itself; once allowed, the same process goes on."""
    deny, allow = denied
    store = LocalStorage(open_folder)
    log = filled(store, 2)
    deny(open_folder / LOG / "log", mode)
    with pytest.raises(StorageError, match="permission denied") as caught:
        log.commit(adding("refused"))
    assert caught.value.transient is False
    if not mode:
        with pytest.raises(StorageError, match="permission denied"):
            log.follow()
        with pytest.raises(StorageError, match="permission denied"):
            kinds(store)
    allow()
    assert log.commit(adding("allowed")) == Committed(4)
    assert sorted(log_on(store).follow().files) == ["allowed", "f0", "f1"]


def test_a_file_in_place_of_the_log_folder_is_reported(tmp_path):
    """Nothing is written over it."""
    store = LocalStorage(tmp_path)
    (tmp_path / LOG).mkdir(parents=True)
    (tmp_path / LOG / "log").write_bytes(b"mine")
    with pytest.raises(StorageError, match="log"):
        created(store)
    assert (tmp_path / LOG / "log").read_bytes() == b"mine"
    assert kinds(store) == ["checkpoint_missing", "gap"]
