"""Filters and age-off in the state: what is refused and why, how the cut moves, and what goes without being read."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakebed import AgeOff, Schema, SetFilter
from lakebed.errors import Code, UsageError
from lakebed.model.files import encode_bounds
from lakebed.model.merge_modes import Aggregate, First, KeepAll, Latest
from lakebed.model.row_filters import RowFilter, cut_in, filter_of, filter_sql, stored_filter
from lakebed.model.state import codec
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    CreateTable,
    DropExpired,
    OpenJob,
    ProposeCut,
    ProposeExpiry,
    ProposeFiles,
    ProposeFilter,
    ProposeOutput,
    ProposeRestore,
    ProposeSchema,
    RaiseWatermark,
    Rejected,
    Repeated,
    SetMerge,
    Watermark,
    resolve,
)
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, RenameField, WidenField
from tests.pure.state.cases import drawn, job, new_file, step, through_an_image

SCHEMA = Schema(
    {"k": "string", "day": "date32"},
    sort_key={"at": "timestamp[ms]"},
    values={
        "n": pa.field("n", pa.int32(), nullable=False),
        "s": pa.field("s", pa.string(), nullable=True),
        "late": "timestamp[us]",
    },
)
DAY_US = 86_400_000_000
MODES = [KeepAll(), Latest(), Latest(by="sort_key"), First(), Aggregate({"n": "sum", "s": "max", "late": "max"})]


def created(mode=None, schema=SCHEMA):
    return step(TableState(), CreateTable("table-00", schema, {}, (), mode or KeepAll()))


def change(state, *changes, columns=(), day=100):
    fields = tuple(state.created.by_name[name] for name in columns)
    return ProposeFilter(changes, fields, day * DAY_US)


def refused(state, proposal, code):
    found = resolve(proposal, state)
    assert isinstance(found, Rejected), found
    assert found.code is code
    return found.reason


def of_days(name, first, last, letters="ab", markers=0):
    """A file whose rows have days (the second key field) and times (the sort key) of these days since 1970."""
    schema, new = SCHEMA, new_file(name, letters)
    bounds = encode_bounds(
        [
            (schema.row_key[1], first, last),
            (schema.sort_key[0], first * 86_400_000, last * 86_400_000 + 86_399_999),
        ]
    )
    return replace(new, file=replace(new.file, bounds=bounds, markers=markers))


def add(state, *files):
    return step(state, ProposeFiles(files, base_version=state.version))


def test_a_filter_and_an_age_off_are_kept_with_the_version_that_set_them():
    state = created()
    both = change(state, SetFilter("n > 3"), AgeOff("at", days=30), columns=("n",))
    after = step(state, both)
    ids = {field.name: field.id for field in SCHEMA.fields}
    assert after.row_filter == RowFilter("n > 3", (ids["n"],), ids["at"], 30 * 86_400)
    assert (after.filter_version, after.age_off_cut_us) == (2, 70 * DAY_US)
    assert through_an_image(after) == after
    transaction = resolve(both, state)
    encoded = codec.encode_transaction(transaction)
    assert codec.decode_transaction(encoded.document, encoded.sidecars) == transaction
    # One leaves the other as it is.
    ended = step(after, change(after, SetFilter(None)))
    assert (ended.row_filter.predicate, ended.row_filter.columns, ended.age_off_cut_us) == ("", (), 70 * DAY_US)
    ended = step(after, change(after, AgeOff(None)))
    assert (ended.row_filter, ended.age_off_cut_us) == (RowFilter("n > 3", (ids["n"],)), 0)
    assert through_an_image(ended) == ended
    assert isinstance(resolve(change(ended, AgeOff(None)), ended), Repeated)


def test_a_state_without_a_filter_is_stored_as_before():
    stored = json.loads(json.dumps(stored_filter(RowFilter())))
    assert stored is None
    assert filter_of(stored) == RowFilter()


@given(
    st.builds(RowFilter, st.just("a = 1"), st.lists(st.integers(1, 9), max_size=3).map(tuple)),
    st.sampled_from([{}, {"age_field": 3, "age_s": 7}, {"age_field": 3, "age_s": 7, "unit": "ms"}]),
)
def test_a_stored_filter_is_read_back(predicate, aged):
    for found in (replace(predicate, **aged), RowFilter(**aged)):
        assert filter_of(json.loads(json.dumps(stored_filter(found)))) == found


STORED = {"predicate": "n > 3", "columns": [1], "age_field": 3, "age_s": 7, "unit": "ms"}


@pytest.mark.parametrize(
    "wrong",
    [
        [], "n > 3", {"predicate": "", "age_field": 0, "age_s": 0}, {"predicate": None}, {"columns": ["n"]},
        {"columns": "n"}, {"age_field": 0}, {"age_s": 0}, {"age_field": -3}, {"age_s": 1.5}, {"unit": "days"},
    ],
    ids=str,
)  # fmt: skip
def test_a_document_that_is_no_filter_is_an_error(wrong):
    with pytest.raises(UsageError) as caught:
        filter_of({**STORED, **wrong} if isinstance(wrong, dict) else wrong)
    assert caught.value.code == "filter_invalid"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: AgeOff("at"), "at least a second"),
        (lambda: AgeOff("at", days=20_000), "fifty years"),
        (lambda: AgeOff("at", days=-1), "whole number"),
        (lambda: AgeOff("at", hours=1.5), "whole number"),
        (lambda: AgeOff("at", days=1, unit="min"), "unit"),
        (lambda: AgeOff(None, days=1), "has no age"),
        (lambda: AgeOff(7, days=1), "name of a field"),
        (lambda: SetFilter(""), "predicate"),
        (lambda: SetFilter(7), "predicate"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_when_it_is_made(build, said):
    with pytest.raises(UsageError, match=said):
        build()


def test_ages_add_up():
    assert AgeOff("at", days=1, hours=2, seconds=3).age_s == 93_603


# -- limits of merge modes ----------------------------------------------------------------------------------------

ALLOWED = {
    "k": set(MODES),
    "day": set(MODES),
    "at": {KeepAll(), MODES[-1]},
    "n": {KeepAll()},
    "late": {KeepAll()},
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", ALLOWED)
def test_a_filter_names_only_fields_that_decide_alike_before_and_after_a_merge(mode, name):
    state = created(mode)
    proposal = change(state, SetFilter(f"{name} IS NOT NULL"), columns=(name,))
    if mode in ALLOWED[name]:
        assert step(state, proposal).row_filter.predicate
    else:
        reason = refused(state, proposal, Code.FILTER_CHANGE_REJECTED)
        assert repr(name) in reason
        assert "key fields only (k, day" in reason


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", ["day", "at", "late"])
def test_rows_age_off_only_by_a_field_that_decides_alike_before_and_after_a_merge(mode, name):
    state = created(mode)
    proposal = change(state, AgeOff(name, days=30))
    if mode in ALLOWED[name] or (name == "at" and mode == Latest(by="sort_key")):
        assert step(state, proposal).age_off_cut_us == 70 * DAY_US
    else:
        assert repr(name) in refused(state, proposal, Code.FILTER_CHANGE_REJECTED)


@pytest.mark.parametrize("mode", MODES[1:], ids=str)
def test_a_mode_that_forbids_the_filter_is_refused(mode):
    state = created()
    for filtered in (change(state, SetFilter("n > 3"), columns=("n",)), change(state, AgeOff("late", days=1))):
        reason = refused(step(state, filtered), SetMerge(mode), Code.FILTER_CHANGE_REJECTED)
        assert "merges rows" in reason
    allowed = step(state, change(state, SetFilter("k > 'a'"), AgeOff("day", days=3), columns=("k",)))
    assert step(allowed, SetMerge(mode)).merge == mode


def test_an_age_off_by_a_field_that_holds_no_time_is_refused():
    state = created()
    for wrong, said in (
        (AgeOff("s", days=1), "timestamp, a date or an integer"),
        (AgeOff("x", days=1), "no field 'x'"),
        (AgeOff("n", days=1), "unit"),
        (AgeOff("at", days=1, unit="ms"), "only an integer"),
    ):
        assert said in refused(state, change(state, wrong), Code.FILTER_CHANGE_REJECTED)
    assert step(state, change(state, AgeOff("n", days=1, unit="s"))).row_filter.unit == "s"


# -- with the schema ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("altered", [DropField("n"), RenameField("n", "m"), WidenField("n", "int64")])
def test_a_field_that_a_filter_names_stays_as_it_is(altered):
    state = created()
    filtered = step(state, change(state, SetFilter("n > 3"), columns=("n",)))
    reason = refused(filtered, ProposeSchema((altered,)), Code.SCHEMA_CHANGE_REJECTED)
    assert "SetFilter(None)" in reason
    free = step(filtered, change(filtered, SetFilter(None)))
    assert step(free, ProposeSchema((altered,))).created.version == 2


def test_the_field_of_an_age_off_may_be_renamed_and_not_dropped_or_widened():
    state = created()
    filtered = step(state, change(state, AgeOff("n", days=1, unit="s")))
    for altered in (DropField("n"), WidenField("n", "int64")):
        assert "AgeOff(None)" in refused(filtered, ProposeSchema((altered,)), Code.SCHEMA_CHANGE_REJECTED)
    renamed = step(filtered, ProposeSchema((RenameField("n", "m"), AddField("n", "string"))))
    assert filter_sql(renamed.row_filter, renamed.created, 5_000_000) == '"m" >= 5'


def test_other_changes_of_the_schema_leave_a_filter_as_it_is():
    state = created()
    filtered = step(state, change(state, SetFilter("n > 3"), columns=("n",)))
    altered = step(filtered, ProposeSchema((AddField("w", "int8"), DropField("s"), AllowNulls("n"))))
    assert altered.row_filter == filtered.row_filter


def test_a_filter_over_a_field_that_changed_meanwhile_is_refused():
    state = created()
    late = change(state, SetFilter("n > 3"), columns=("n",))
    altered = step(state, ProposeSchema((WidenField("n", "int64"),)))
    assert "meanwhile" in refused(altered, late, Code.FILTER_CHANGE_REJECTED)


# -- the cut ------------------------------------------------------------------------------------------------------


def test_the_cut_only_rises_and_in_steps():
    state = created()
    aged = step(state, change(state, AgeOff("at", days=30)))
    hour = DAY_US // 24
    assert isinstance(resolve(ProposeCut(100 * DAY_US + hour - 1), aged), Repeated)
    assert isinstance(resolve(ProposeCut(99 * DAY_US), aged), Repeated)
    raised = step(aged, ProposeCut(100 * DAY_US + hour))
    assert raised.age_off_cut_us == 70 * DAY_US + hour
    assert through_an_image(raised) == raised
    # Jobs that were opened before the cut rose are not refused for it.
    assert raised.filter_version == 2


def test_a_cut_follows_from_the_age_in_force_when_it_is_committed():
    """Another process shortened or ended the age-off meanwhile: the time that was proposed says nothing of an age."""
    state = created()
    aged = step(state, change(state, AgeOff("at", days=30)))
    longer = step(aged, change(aged, AgeOff("at", days=90)))
    assert longer.age_off_cut_us == 10 * DAY_US
    assert step(longer, ProposeCut(101 * DAY_US)).age_off_cut_us == 11 * DAY_US
    ended = step(aged, change(aged, AgeOff(None)))
    assert isinstance(resolve(ProposeCut(101 * DAY_US), ended), Repeated)
    refused(ended, RaiseWatermark(Watermark.AGE_OFF_CUT, 5), Code.PROPOSAL_OUTDATED)


def test_a_clock_that_is_behind_does_not_lower_the_cut():
    state = created()
    aged = step(state, change(state, AgeOff("at", days=30)))
    shorter = step(aged, change(aged, AgeOff("at", days=29), day=98))
    assert shorter.age_off_cut_us == 70 * DAY_US


@pytest.mark.parametrize(
    ("schema_type", "unit", "cut_us", "least"),
    [
        ("timestamp[s]", "", 1_500_000, 2),
        ("timestamp[s]", "", 2_000_000, 2),
        ("timestamp[ms, tz=UTC]", "", 1_500_001, 1_501),
        ("timestamp[us]", "", 1_500_001, 1_500_001),
        ("timestamp[ns]", "", 1_500_001, 1_500_001_000),
        ("date32", "", DAY_US - 1, 0),
        ("date32", "", DAY_US + 1, 1),
        ("int64", "s", 1_500_000, 2),
        ("int32", "ms", 1_500_001, 1_501),
    ],
)
def test_a_cut_in_the_unit_of_its_field(schema_type, unit, cut_us, least):
    field = Schema({"t": schema_type} if schema_type != "x" else {}).row_key[0]
    assert cut_in(field, unit, cut_us) == least


# -- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_that_was_opened_before_a_change_of_the_filter_is_refused():
    """It may have dropped rows that the table shows again."""
    state = add(created(), of_days("f1", 1, 2))
    state = step(state, OpenJob(job("j1", "f1")))
    changed = step(state, change(state, SetFilter("n > 3"), columns=("n",)))
    reason = refused(changed, ProposeOutput("j1", (new_file("f2", "a"),)), Code.PROPOSAL_OUTDATED)
    assert "filter" in reason
    fresh = step(step(state, ProposeOutput("j1", (new_file("f3", "ab"),))), OpenJob(job("j2", "f3")))
    assert drawn(step(fresh, ProposeOutput("j2", (new_file("f4", "ab"),)))) == ["f4:2"]


def test_a_job_that_is_open_when_the_cut_rises_commits():
    state = step(created(), change(created(), AgeOff("at", days=30)))
    state = step(add(state, of_days("f1", 90, 91)), OpenJob(job("j1", "f1")))
    raised = step(state, ProposeCut(200 * DAY_US))
    assert drawn(step(raised, ProposeOutput("j1", (new_file("f2", "a"),)))) == ["f2:1"]


# -- files that are wholly past -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["day", "at"])
def test_files_that_are_wholly_past_go_in_one_entry(name):
    state = add(created(), of_days("old", 1, 69), of_days("edge", 69, 70), of_days("new", 80, 81), new_file("any", "c"))
    aged = step(state, change(state, AgeOff(name, days=30)))
    found = resolve(ProposeExpiry(), aged)
    assert found == DropExpired((("old", 1),))
    encoded = codec.encode_transaction(found)
    assert codec.decode_transaction(encoded.document, encoded.sidecars) == found
    after = step(aged, ProposeExpiry())
    assert drawn(after) == ["edge:2 new:2 any:1"]
    assert after.files["old"].dropped == after.version
    assert isinstance(resolve(ProposeExpiry(), after), Repeated)


def test_the_first_row_key_field_is_known_by_the_bounds_of_keys():
    schema = Schema({"at": "int64", "k": "string"}, values={"n": "int64"})
    state = created(schema=schema)
    new = new_file("f1", "ab")
    for last, goes in ((69, True), (70, False)):
        low, high = (schema.codec.encode_key((day * 86_400, "a")) for day in (1, last))
        file = replace(new.file, min_key=low, max_key=high)
        held = step(state, ProposeFiles((replace(new, file=file),), base_version=1))
        aged = step(held, change(held, AgeOff("at", days=30, unit="s")))
        assert isinstance(resolve(ProposeExpiry(), aged), DropExpired) == goes


@pytest.mark.parametrize("changes", [(), (AgeOff("late", days=30),), (SetFilter("n > 3"),)])
def test_no_file_goes_without_an_age_off_by_a_key_field(changes):
    state = add(created(), of_days("old", 1, 2))
    filtered = step(state, change(state, *changes, columns=("n",))) if changes else state
    assert isinstance(resolve(ProposeExpiry(), filtered), Repeated)


def test_where_rows_are_merged_only_the_oldest_files_go():
    """An older file that stays could show rows that the newer one replaced, once the age-off is ended."""
    state = created(Latest(by="sort_key"))
    state = add(state, of_days("f1", 1, 2), of_days("f2", 1, 90), of_days("f3", 1, 2))
    aged = step(state, change(state, AgeOff("at", days=30)))
    assert drawn(step(aged, ProposeExpiry())) == ["f2:2 f3:2"]
    empty = created(Latest(by="sort_key"))
    marked = step(empty, change(empty, AgeOff("at", days=30)))
    marked = add(marked, of_days("f1", 1, 2, markers=1), of_days("f2", 1, 2))
    assert isinstance(resolve(ProposeExpiry(), marked), Repeated)


def test_a_job_over_a_file_that_goes_commits_what_is_left():
    state = add(created(), of_days("old", 1, 2), of_days("new", 80, 81))
    state = step(state, change(state, AgeOff("day", days=30)))
    state = step(step(state, OpenJob(job("j1", "old", "new"))), ProposeExpiry())
    assert drawn(step(state, ProposeOutput("j1", (new_file("f3", "ab"),)))) == ["f3:2"]


def test_a_version_from_before_an_expiry_is_restored_with_its_files():
    state = add(created(), of_days("old", 1, 2))
    later = step(step(state, change(state, AgeOff("day", days=30))), ProposeExpiry())
    assert drawn(later) == [""]
    restored = step(later, ProposeRestore(state))
    assert drawn(restored) == ["old:2"]
    assert restored.row_filter == later.row_filter


# -- partial rows -------------------------------------------------------------------------------------------------


def test_rows_with_deletes_or_partial_rows_do_not_begin_to_age_off_by_the_sort_key():
    """A young partial row would have values of an old row until a compaction drops that."""
    state = add(created(Latest(by="sort_key")), of_days("f1", 1, 2, markers=1))
    aged = change(state, AgeOff("at", days=30))
    assert "partial rows" in refused(state, aged, Code.FILTER_CHANGE_REJECTED)
    assert step(state, change(state, AgeOff("day", days=30))).row_filter.age_s
    empty = created(Latest(by="sort_key"))
    aged = step(empty, aged)
    late = ProposeFiles((of_days("f2", 90, 91, markers=1),), base_version=1)
    assert "write it again" in refused(aged, late, Code.MERGE_CHANGED)
    assert drawn(add(aged, of_days("f2", 90, 91, markers=1))) == ["f2:2"]
    assert drawn(step(aged, ProposeFiles((of_days("f2", 90, 91),), base_version=1))) == ["f2:2"]
    # It may become longer while there are deletes.
    marked = add(aged, of_days("f2", 90, 91, markers=1))
    assert step(marked, change(marked, AgeOff("at", days=60))).row_filter.age_s == 60 * 86_400
