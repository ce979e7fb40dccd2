"""Sidecars: there before the entry that names them, checked at each read, and swept if none ever will."""

import json
import threading
from itertools import count

import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import Schema
from lakebed.errors import Code, DamagedError, StorageError
from lakebed.log import entry as entries
from lakebed.log.entry import NAMED_WITHIN
from lakebed.log.log_limits import LIMITS
from lakebed.log.outcomes import Committed, NotCommitted, Unknown
from lakebed.log.queue import Ticket
from lakebed.model.files import (
    checkpoint_name,
    entry_name,
    log_start_name,
    parse_sidecar_name,
    sidecar_folder,
    sidecar_name,
)
from lakebed.model.state.columns import Columns
from lakebed.model.state.transactions import AlterSettings, CreateTable, ProposeFiles, ProposeSplit
from lakebed.read.inspect.history import history_rows
from lakebed.read.inspect.verification import verify
from lakebed.storage.retries import ATTEMPTS_MAX
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Meanwhile, Rule
from tests.documents import rewritten
from tests.pure.state.cases import SCHEMA, key, new_file
from tests.tables.log import cases
from tests.tables.log.cases import LOG, Overtaken

FOLDER = sidecar_folder(LOG)
LETTERS = "abcdefgh"


FEW = replace(LIMITS, inline_references=3)
"""Four references are a long list."""


def log_on(storage):
    return cases.log_on(storage, limits=FEW)


def commit_group(log, tickets):
    """What a leader does, but for the waiting."""
    put = log.local._commit_group(tickets)
    if put is not None:
        log.local._report_proven(put)


def long(name, letters=LETTERS):
    """A proposal of a file that reaches a partition for each letter."""
    return ProposeFiles((new_file(name, letters),))


def table_on(store):
    """A log of a table with a partition for each letter."""
    log = log_on(store)
    assert log.commit(CreateTable("table-00", SCHEMA, {}, tuple(map(key, LETTERS[1:])))) == Committed(1)
    return log


def names(store):
    return sorted(found.name for found in store.list(FOLDER))


def more(log, entries_more):
    """So many further entries."""
    for _ in range(entries_more):
        assert isinstance(log.commit(AlterSettings({"page_rows": 500})), Committed)


def kinds(store):
    return [finding.kind for finding in verify(log_on(store), "table-00", "t", None).findings if finding.damage]


# -- written and read -------------------------------------------------------------------------------------------


def test_a_long_list_is_put_beside_the_entry_and_before_it(store):
    """The header names it, the line claims it, and followers have the state of the writer."""
    counting = CountingStorage(store)
    log = table_on(counting)
    counting.clear()
    assert log.commit(long("f1")) == Committed(2)
    assert log.commit(long("f2", "ab")) == Committed(3)
    (sidecar,) = log.read(2).entry.sidecars
    name = sidecar_name(LOG, 2, sidecar.digest)
    assert counting.names["create"] == [name, entry_name(LOG, 2), entry_name(LOG, 3)]
    assert sidecar == entries.SidecarReference(2, entries.digest_of(store.get(name)), 8, len(store.get(name)))
    (document,) = log.read(2).entry.documents
    claim = json.loads(document)["references"]
    assert claim == {"sidecar": sidecar.digest, "references": 8, "partitions": 8, "rows": 8}
    store.delete([checkpoint_name(LOG)])
    assert log_on(store).follow() == log.head.state
    assert set(log.at(2).state.files) == {"f1"}


def test_the_name_of_a_sidecar_is_read_back_and_no_other():
    name = sidecar_name(LOG, 7, "0123456789abcdef" * 2)
    assert parse_sidecar_name(LOG, name) == (7, "0123456789abcdef" * 2)
    assert parse_sidecar_name("tables/table-01", name) is None
    assert parse_sidecar_name(LOG, name.replace("abc", "ABC")) is None
    assert parse_sidecar_name(LOG, f"{FOLDER}/7-{'0' * 32}.arrow") is None


def test_a_table_of_many_partitions_is_written_read_and_seen_as_it_was(tmp_path):
    """More partitions than a line has references."""
    made = lakebed.create(str(tmp_path / "lake"), log_url=str(tmp_path / "logs"))
    table = made.create_table("t", Schema({"k": "string"}, values={"v": "int64"}))
    table.log.limits = FEW
    table.commit(ProposeSplit({1: tuple(table.schema.codec.encode_key((letter,)) for letter in "bcdefg")}))
    first = table.write(pa.table({"k": list("abcdefg"), "v": range(7)}))
    table.write(pa.table({"k": list("abcdefg"), "v": range(7)}))
    assert len(list(table.storage.list(f"tables/{table.id}/log/sidecars"))) == 2
    again = lakebed.open(str(tmp_path / "lake")).table("t")
    assert again.scan().read_all().num_rows == 14
    assert again.at(version=first).scan().read_all().num_rows == 7
    assert again.verify(files=True).findings == ()


def test_the_log_may_lie_in_another_store_than_its_sidecars(tmp_path):
    """Verification calls neither of them foreign."""
    made = lakebed.create(str(tmp_path / "lake"), log_url=str(tmp_path / "logs"))
    table = made.create_table("t", Schema({"k": "string"}, values={"v": "int64"}))
    table.log.limits = FEW
    table.commit(ProposeSplit({1: tuple(table.schema.codec.encode_key((letter,)) for letter in "bcdefg")}))
    table.write(pa.table({"k": list("abcdefg"), "v": range(7)}))
    assert len(list((tmp_path / "lake").rglob("sidecars/*.arrow"))) == 1
    assert not list((tmp_path / "logs").rglob("*.arrow"))
    assert table.verify().findings == ()


def test_sidecars_among_the_entries_are_not_foreign_and_other_objects_are(store):
    log = table_on(store)
    log.commit(long("f1"))
    store.create(f"{FOLDER}/notes.txt", b"mine")
    assert list(log.backend.foreign()) == [f"{FOLDER}/notes.txt"]
    assert sorted(log.backend.versions()) == [1, 2]


def test_several_sidecars_of_one_entry(store):
    """A group of three, of which two have long lists."""
    log = table_on(store)
    tickets = [Ticket(proposal) for proposal in (long("f1"), long("f2", "ab"), long("f3"))]
    commit_group(log, tickets)
    assert [ticket.outcome for ticket in tickets] == [Committed(2)] * 3
    assert len(log.read(2).entry.sidecars) == len(names(store)) == 2
    store.delete([checkpoint_name(LOG)])
    assert log_on(store).follow() == log.head.state


def test_what_is_beside_an_entry_weighs_in_when_a_checkpoint_is_due(store):
    """Else a reader would have to apply any number of references that a checkpoint has already."""
    log = table_on(store)
    for version in range(60):
        log.commit(long(f"f{version}"))
    counting = CountingStorage(store)
    log_on(counting).follow()
    assert sum(name.startswith(FOLDER) for name in counting.names["get"]) < 35
    entry = log.read(2).entry
    assert entries.weight_bytes(b"12345", entry.sidecars) == 5 + 8 * entries.REFERENCE_BYTES


# -- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "another's", "empty"])
def test_an_entry_whose_sidecar_cannot_be_believed_stops_every_reader(store, damage):
    """Named with the object; no state advances beyond it, verification says the same, and a copy mends it."""
    log = table_on(store)
    log.commit(long("f1"))
    log.commit(long("f2"))
    store.delete([checkpoint_name(LOG)])
    one, two = names(store)
    data = store.get(two)
    changed = {"cut": data[:-9], "flipped": data[:99] + b"!" + data[100:], "another's": store.get(one), "empty": b""}
    assert data not in changed.values()
    store.delete([two])
    if damage != "gone":
        store.replace(two, changed[damage])
    reader = log_on(store)
    with pytest.raises(DamagedError, match=f"entry 3 of table-00: its sidecar {two} .*restore"):
        reader.follow()
    assert reader.head.version == 2
    assert kinds(store) == ["damaged"]
    store.replace(two, data)
    assert log_on(store).follow() == log.head.state
    assert kinds(store) == []


def test_a_sidecar_that_is_gone_does_not_hide_the_next_one(store):
    """Verification looks at those of entries that it cannot apply, too."""
    log = table_on(store)
    for version in range(4):
        log.commit(long(f"f{version}"))
    gone = [names(store)[1], names(store)[3]]
    store.delete(gone)
    found = [f for f in verify(log_on(store), "table-00", "t", None).findings if f.damage]
    assert [finding.what for finding in found] == [
        f"entry {version} of table-00: its sidecar {name} is missing"
        for version, name in zip((3, 5), gone, strict=True)
    ]


@pytest.mark.parametrize(
    "named",
    [
        None,
        {},
        [7],
        [[2, "0" * 32, 8]],
        [[2, "../" * 10 + "00", 8, 99]],
        [[3, "0" * 32, 8, 99]],
        [["2", "0" * 32, 8, 99]],
        [[2 - NAMED_WITHIN, "0" * 32, 8, 99]],
    ],
)
def test_a_header_that_names_what_cannot_be_a_sidecar_is_damage(store, named):
    """Nothing is looked for under such a name."""
    log = table_on(store)
    log.commit(long("f1"))
    data = rewritten(store.get(entry_name(LOG, 2)), sidecars=named)
    with pytest.raises(DamagedError, match="entry 2 of table-00 has an invalid header"):
        entries.decode(data, "table-00", 2, None)


def test_history_does_not_read_sidecars(store):
    """They may even be gone."""
    log = table_on(store)
    log.commit(long("f1"))
    log.commit(ProposeSplit({1: tuple(map(key, ("aa", "ab", "ac", "ad")))}))
    reader = log_on(CountingStorage(store))
    reader.follow()
    store.delete(names(store))
    rows = list(history_rows(reader, "table-00"))
    assert [(row.type, row.detail, row.rows_added) for row in rows] == [
        ("split_partitions", "partition 1 cut into 5", 0),
        ("add_files", "8 references in 8 partitions", 8),
        ("create_table", "8 partitions", 0),
    ]


# -- answers that a store gives or does not ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CONFLICT, Fault.LATE])
def test_an_unclear_put_of_a_sidecar_is_put_again(store, fault):
    table_on(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(fault, "create", "*/log/sidecars/*", calls={1, 2})]))
    log = log_on(faulty)
    assert log.commit(long("f1")) == Committed(2)
    assert faulty.fired[fault] == 2
    faulty.settle()
    assert log_on(store).follow() == log.head.state


@pytest.mark.parametrize(
    ("fault", "puts"), [(Fault.FULL, 1), (Fault.FAIL_BEFORE, ATTEMPTS_MAX), (Fault.FAIL_AFTER, ATTEMPTS_MAX)]
)
def test_without_a_sidecar_there_is_no_entry(store, fault, puts):
    """All callers get the failure, and the next commit is as good as the first."""
    table_on(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(fault, "create", "*/log/sidecars/*", calls=range(1, puts + 1))]))
    log = log_on(faulty)
    with pytest.raises(StorageError) as caught:
        log.commit(long("f1"))
    assert caught.value.facts["transient"] is (fault is not Fault.FULL)
    assert store.get(entry_name(LOG, 2)) is None
    assert log.commit(AlterSettings({"page_rows": 500})) == Committed(2)
    assert log.commit(long("f1")) == Committed(3)
    assert log_on(store).follow() == log.head.state


def test_a_crash_between_the_sidecar_and_the_entry_leaves_an_orphan_only(store):
    """The next writer commits under the same number."""
    table_on(store)
    dying = FaultyStorage(store, FaultPlan([Rule(Fault.FULL, "create", "*.ndjson")]))
    with pytest.raises(StorageError) as raised:
        log_on(dying).commit(long("f1"))
    assert raised.value.code is Code.STORE_FULL
    assert len(names(store)) == 1
    log = log_on(store)
    assert log.commit(long("f2")) == Committed(2)
    assert kinds(store) == []
    more(log, NAMED_WITHIN)
    assert log.delete_orphan_sidecars() == 1
    assert log_on(store).follow() == log.head.state


def test_an_unknown_outcome_is_settled_with_its_sidecar(store):
    """However long that takes, and whichever process sweeps: the version is free, so nothing of it is swept."""
    table_on(store)
    silent = FaultyStorage(store, FaultPlan([Rule(Fault.FAIL_BEFORE, "create", "*.ndjson")]))
    log = log_on(silent)
    assert log.commit(long("f1")) == Unknown(2)
    other = log_on(store)
    other.follow()
    assert other.delete_orphan_sidecars() == 0
    silent.plan = FaultPlan([])
    assert log.commit(long("f2")) == Committed(3)
    assert set(log_on(store).follow().files) == {"f1", "f2"}
    assert silent.fired[Fault.FAIL_BEFORE] == LIMITS.settle_puts


def test_a_sidecar_is_not_read_again_when_the_state_comes_to_rest_on_a_checkpoint(store):
    other = table_on(store)
    faulty = FaultyStorage(store, FaultPlan([Rule(Fault.FAIL_BEFORE, "get", "*/log/sidecars/*", calls={2})]))

    def overtaken():
        other.commit(long("f1"))
        log.follow()

    log = log_on(Meanwhile(faulty, "replace", "*/checkpoints/*", overtaken))
    log.follow()
    log.tail.start_checkpoint()
    assert faulty.fired[Fault.FAIL_BEFORE] == 0
    assert isinstance(log.head.state.files.base, Columns)
    assert set(log.head.state.files.changes) == {"f1"}
    assert (log.head.version, log.follow()) == (2, other.head.state)


# -- races ------------------------------------------------------------------------------------------------------


def test_after_a_lost_race_the_same_references_are_not_put_again(store):
    """A bulk commit then takes no longer to its entry than any other, and may win."""
    other = table_on(store)
    racing = Overtaken(store, None)
    log = log_on(racing)
    log.follow()
    racing.meanwhile = lambda: more(other, 1)
    assert log.commit(long("f1")) == Committed(3)
    assert [name for name in racing.names["create"] if name.startswith(FOLDER)] == names(store)
    (sidecar,) = log.read(3).entry.sidecars
    assert sidecar.version == 2
    more(other, 2 * NAMED_WITHIN)
    assert other.delete_orphan_sidecars() == 0
    store.delete([checkpoint_name(LOG)])
    assert log_on(store).follow() == other.head.state


def test_after_a_split_that_was_faster_others_are_put_and_the_first_ones_swept(store):
    """The references are those of the partitions in force."""
    other = table_on(store)
    racing = Overtaken(store, None)
    log = log_on(racing)
    log.follow()
    racing.meanwhile = lambda: other.commit(ProposeSplit({1: (key("ab"),)}))
    assert log.commit(long("f1", LETTERS + "az")) == Committed(3)
    assert len(names(store)) == 2
    more(other, NAMED_WITHIN)
    assert other.delete_orphan_sidecars() == 1
    assert names(store) == [sidecar_name(LOG, 3, log.read(3).entry.sidecars[0].digest)]


def test_what_was_put_for_an_entry_too_far_back_is_put_again(store):
    """No sweep waits for a writer that lost so many races."""
    other = table_on(store)
    racing = Overtaken(store, None)
    log = log_on(racing)
    log.follow()
    racing.meanwhile = lambda: more(other, NAMED_WITHIN)
    assert log.commit(long("f1")) == Committed(2 + NAMED_WITHIN)
    assert [sidecar.version for sidecar in log.read(2 + NAMED_WITHIN).entry.sidecars] == [2 + NAMED_WITHIN]
    assert log.delete_orphan_sidecars() == 1
    assert log_on(store).follow() == log.head.state


# -- sweeping ---------------------------------------------------------------------------------------------------


def orphan(store, version):
    """What a writer left that died before entry ``version`` was put."""
    name = sidecar_name(LOG, version, f"{version:032x}")
    store.create(name, b"anything")
    return name


def test_an_orphan_is_swept_once_no_entry_can_name_it_and_not_before(store):
    log = table_on(store)
    name = orphan(store, 2)
    more(log, NAMED_WITHIN - 1)
    assert log.delete_orphan_sidecars() == 0
    assert names(store) == [name]
    more(log, 1)
    assert log.delete_orphan_sidecars() == 1
    assert names(store) == []


def test_a_sweep_asks_for_little(store):
    """The log start, and a listing where there is nothing; an entry for each that is named, and none for it again."""
    counting = CountingStorage(store)
    log = table_on(counting)
    more(log, 1)
    counting.clear()
    assert log.delete_orphan_sidecars() == 0
    assert counting.calls == {"list": 1, "get": 1}
    log.commit(long("f1"))
    log.commit(long("f2"))
    counting.clear()
    assert log.delete_orphan_sidecars() == 0
    assert counting.calls == {"list": 1, "get": 1}
    more(log, NAMED_WITHIN)
    counting.clear()
    assert log.delete_orphan_sidecars() == 0
    assert counting.names["get"] == [log_start_name(LOG), entry_name(LOG, 3), entry_name(LOG, 4)]
    counting.clear()
    assert log.delete_orphan_sidecars() == 0
    assert counting.calls == {"list": 1, "get": 1}


@pytest.mark.parametrize("damage", ["header", "claim", "gone"])
def test_where_an_entry_cannot_be_believed_nothing_is_swept(store, damage):
    """Its sidecars are of use again when it was restored."""
    log = table_on(store)
    log.commit(long("f1"))
    more(log, NAMED_WITHIN)
    left = orphan(store, 1)
    (digest,) = (sidecar.digest for sidecar in log.read(2).entry.sidecars)
    name, data = entry_name(LOG, 2), store.get(entry_name(LOG, 2))
    header, _, body = data.partition(b"\n")
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    if damage == "gone":
        store.delete([name])
    elif damage == "header":
        store.replace(name, header.replace(digest.encode(), other.encode()) + b"\n" + body)
    else:
        store.replace(name, header + b"\n" + body.replace(digest.encode(), other.encode()))
    sweeper = log_on(store)
    sweeper.follow()
    with pytest.raises(DamagedError, match="entry 2 of table-00"):
        sweeper.delete_orphan_sidecars()
    assert left in names(store)
    assert sidecar_name(LOG, 2, digest) in names(store)


# -- how much an entry holds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bound", "value"), [("entry_bytes", 900), ("entry_references", 20)])
def test_a_group_ends_where_its_entry_is_full_and_the_others_are_in_the_next(store, bound, value):
    """In their order; each gets the entry that it is in."""
    log = table_on(store)
    log.limits = replace(FEW, **{bound: value})
    tickets = [Ticket(long(f"f{number}")) for number in range(5)]
    commit_group(log, tickets)
    assert [ticket.outcome for ticket in tickets] == [Committed(2)] * 2 + [None] * 3
    commit_group(log, tickets[2:])
    assert [ticket.outcome for ticket in tickets] == [Committed(2)] * 2 + [Committed(3)] * 2 + [None]
    assert log_on(store).follow() == log.head.state


def test_one_transaction_is_an_entry_however_full_it_is(store):
    log = table_on(store)
    log.limits = replace(FEW, entry_bytes=1, entry_references=1)
    assert log.commit(long("f1")) == Committed(2)


def test_proposals_that_do_not_fit_an_entry_get_an_outcome_too(store):
    """Many threads, one transaction an entry: no thread sleeps for ever, and each is in an entry of its own."""
    log = table_on(store)
    log.limits = replace(FEW, entry_bytes=1)
    outcomes, fresh = [], count()

    def write():
        outcomes.extend([log.commit(long(f"f{next(fresh)}")) for _ in range(5)])

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcome.version for outcome in outcomes) == list(range(2, 42))
    assert len(log_on(store).follow().files) == 40


def test_a_transaction_that_is_far_too_long_is_refused_and_spoils_no_other(store):
    """With its size and what to do."""
    log = table_on(store)
    log.limits = replace(FEW, line_bytes=2_000)
    tickets = [Ticket(proposal) for proposal in (long("f1"), AlterSettings({"x": "y" * 2_000}), long("f2"))]
    commit_group(log, tickets)
    one, refused, two = (ticket.outcome for ticket in tickets)
    assert (one, two) == (Committed(2), Committed(2))
    assert isinstance(refused, NotCommitted)
    assert refused.reason.startswith("it is 2,0")
    assert refused.reason.endswith("more than 2,000: change less at a time")
