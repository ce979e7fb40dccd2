"""Each invariant finds a state, or a step between two states, that breaks it: for each there is a known-bad variant."""

import pytest
from msgspec.structs import replace

from lakebed import Schema
from lakebed.errors import Code, DamagedError
from lakebed.log.checkpoint import Head
from lakebed.log.group_commit import validate
from lakebed.log.log_limits import LogLimits
from lakebed.log.outcomes import Committed
from lakebed.log.queue import Ticket
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state import invariants
from lakebed.model.state.catalog import CatalogState, CatalogTable
from lakebed.model.state.catalog import violations_of as violations_of_catalog
from lakebed.model.state.invariants import (
    OF_STATES,
    OF_STEPS,
    check_invariants,
    named,
    since_checkpoint,
    violations_by,
    violations_of,
)
from lakebed.model.state.machine import TABLE
from lakebed.model.state.table_state import Answer, Fence, IngestRequest, Source
from lakebed.model.state.transactions import OpenJob, ProposeFiles, ProposeOutput, ProposeSplit, SetTag, apply, resolve
from tests.pure.state.cases import job, key, new_file, step, table, through_an_image

NO_KEYS = EncodedRange(b"b", b"a")
SOURCE = Source("file:///in.parquet", 10, "version")
REQUEST = IngestRequest("r", (SOURCE,), 0, 1, 0, 0, "")


def state():
    """Two partitions: the first has rows of both files, the second of the wide one."""
    return step(table("m"), ProposeFiles((new_file("wide", "az"), new_file("low", "bc"))))


def changed(**changes):
    """The state with other values."""
    return replace(state(), **changes)


def with_file(name, **changes):
    """The state with one of its files recorded otherwise."""
    return with_file_of(state(), name, **changes)


def with_file_of(good, name, **changes):
    return replace(good, files=good.files.updated({name: replace(good.files[name], **changes)}))


def with_references(**changes):
    """The state with other references in its ``second`` partition, or in one that it does not have."""
    good = state()
    first, second = good.partitions.ids
    held = dict(good.references.items())
    changed = {second if name == "second" else 99: of(held[first], held[second]) for name, of in changes.items()}
    return replace(good, references=held | changed)


def other_facts(_, wide):
    return tuple(one._replace(file=replace(one.file, size_bytes=1)) for one in wide)


def of_other_schema(_, wide):
    return tuple(one._replace(file=replace(one.file, schema_version=2)) for one in wide)


def with_job(**changes):
    return changed(jobs={"j": replace(job("j", "low"), **{"opened": 1, **changes})})


def with_partitions(**changes):
    """Partitions that their own constructor would refuse."""
    partitions = state().partitions
    made = object.__new__(type(partitions))
    for name in ("boundaries", "ids", "next_id", "parents", "_lower"):
        object.__setattr__(made, name, changes.get(name, getattr(partitions, name)))
    return changed(partitions=made)


def overlapping_run():
    """The state with two overlapping files in one run."""
    change = resolve(ProposeFiles((new_file("x", "bd", "run"), new_file("y", "ce", "run"))), state())
    return apply(state(), change, 3)


BROKEN_STATES = {
    invariants.partitions_tile_the_key_space: {
        "a partition too many": lambda: with_partitions(ids=(1, 2, 3)),
        "an id that is to be given out": lambda: with_partitions(next_id=2),
        "one that is lost": lambda: with_partitions(ids=(1, 7)),
    },
    invariants.references_are_of_partitions: {"of none": lambda: with_references(other=lambda a, _: a)},
    invariants.a_partition_references_a_file_once: {"twice": lambda: with_references(second=lambda _, b: b + b)},
    invariants.referenced_files_are_kept: {
        "not recorded": lambda: changed(files={}),
        "retired": lambda: with_file("low", retired=True),
    },
    invariants.referenced_files_reach_their_partition: {
        "of other keys": lambda: with_references(second=lambda a, _: a)
    },
    invariants.references_have_rows_of_their_file: {
        "too many": lambda: with_references(second=lambda _, b: tuple(one._replace(rows=3) for one in b)),
        "below 0": lambda: with_references(second=lambda _, b: tuple(one._replace(rows=-1) for one in b)),
    },
    invariants.references_agree_on_their_file: {"facts that differ": lambda: with_references(second=other_facts)},
    invariants.runs_are_sorted: {"overlapping": overlapping_run},
    invariants.references_are_counted: {"a wrong count": lambda: with_file("low", references=2)},
    invariants.files_without_references_are_dropped: {"dropped and read": lambda: with_file("low", dropped=1)},
    invariants.files_without_references_have_their_facts: {
        "of another": lambda: with_file("low", file=new_file("other", "bc").file)
    },
    invariants.retired_files_have_no_references: {"retired and read": lambda: with_file("wide", retired=True)},
    invariants.sequence_numbers_are_given_out: {
        "not yet": lambda: with_file("low", sequence_hi=3),
        "reversed": lambda: with_file("low", sequence_lo=3),
    },
    invariants.files_are_of_past_versions: {"of the future": lambda: with_file("low", added=9)},
    invariants.files_are_of_known_schemas: {"of the future": lambda: with_references(second=of_other_schema)},
    invariants.schemas_are_numbered: {"two of one version": lambda: changed(schemas=state().schemas * 2)},
    invariants.jobs_have_work: {
        "no inputs": lambda: with_job(inputs=()),
        "no keys": lambda: with_job(keys=NO_KEYS),
        "of the future": lambda: with_job(opened=9),
    },
    invariants.requests_are_carried_out_once: {
        "no files": lambda: changed(open_requests={"r": replace(REQUEST, files=())}),
        "of the future": lambda: changed(open_requests={"r": replace(REQUEST, submitted=9)}),
        "carried out": lambda: changed(open_requests={"r": REQUEST}, requests={"r": Answer(1, 0)}),
    },
    invariants.answers_are_of_past_versions: {
        "of the future": lambda: changed(requests={"r": Answer(9, 0)}),
        "before its proposal": lambda: changed(requests={"r": Answer(1, 1)}),
    },
    invariants.rejected_requests_are_not_open: {
        "open": lambda: changed(open_requests={"r": REQUEST}, rejected=(replace(REQUEST, rejected=2),)),
        "before it came": lambda: changed(rejected=(replace(REQUEST, submitted=2, rejected=1),)),
    },
    invariants.fences_have_keys: {
        "around nothing": lambda: changed(fences=(Fence(NO_KEYS, 1),)),
        "of the future": lambda: changed(fences=(Fence(ALL_KEYS, 9),)),
    },
    invariants.tags_name_past_versions: {"of the future": lambda: changed(tags={"audited": 9})},
    invariants.filters_have_their_field: {
        "a cut without a field": lambda: changed(age_off_cut_us=1),
        "a filter of the future": lambda: changed(filter_version=9),
        "a mode of the future": lambda: changed(merge_version=9),
    },
}


def compacted():
    """A step in which a job of two rows writes three."""
    before = step(state(), OpenJob(job("j", "low", keys=EncodedRange(b"", key("m")))))
    change = resolve(ProposeOutput("j", (new_file("out", "bcc"),)), before)
    return before, apply(before, change, before.version + 1), (change,)


def to(**changes):
    """A step from the state to one with other values."""
    before = replace(state(), **changes.pop("from_", {}))
    return before, replace(before, **({"version": before.version + 1} | changes)), ()


BROKEN_STEPS = {
    invariants.versions_have_no_gaps: {
        "one left out": lambda: to(version=4),
        "backwards": lambda: to(version=1),
    },
    invariants.watermarks_never_fall: {
        name: lambda name=name: to(from_={name: 9}, **{name: 8})
        for name in ("earliest_retained_version", "request_watermark", "orphan_cutoff_us", "next_sequence")
    },
    invariants.partition_ids_are_not_reused: {
        "given out again": lambda: to(partitions=replace_partitions(next_id=2)),
    },
    invariants.schemas_are_only_appended: {"lost": lambda: to(schemas=())},
    invariants.key_fields_stay: {
        "another key": lambda: to(schemas=(*state().schemas, other_key())),
    },
    invariants.a_table_stays_itself: {
        "another id": lambda: to(table="table-01"),
        "after its end": lambda: to(from_={"dropped": True}),
    },
    invariants.compactions_make_no_rows: {"a row doubled": compacted},
}


def replace_partitions(**changes):
    return with_partitions(**changes).partitions


def other_key():
    found = Schema({"key": "int64"}, values={"v": "int64"})
    return Schema(found.row_key, found.sort_key, found.values, version=2)


def cases(broken):
    return [
        pytest.param(invariant, make, id=f"{named(invariant)}: {how}")
        for invariant, variants in broken.items()
        for how, make in variants.items()
    ]


def test_every_invariant_has_a_variant_that_breaks_it():
    assert set(OF_STATES) == BROKEN_STATES.keys()
    assert set(OF_STEPS) == BROKEN_STEPS.keys()
    assert len(BROKEN_STATES) + len(BROKEN_STEPS) >= 20


def test_a_state_that_is_whole_passes():
    check_invariants(state())
    assert list(violations_of(since_checkpoint(state()))) == []


@pytest.mark.parametrize(("invariant", "broken"), cases(BROKEN_STATES))
def test_a_broken_state_is_damage_that_names_the_invariant(invariant, broken):
    made = broken()
    assert named(invariant) in {violation.partition(":")[0] for violation in violations_of(invariants.whole(made))}
    with pytest.raises(DamagedError) as caught:
        check_invariants(made)
    assert caught.value.code is Code.STATE_INCONSISTENT


@pytest.mark.parametrize(("invariant", "broken"), cases(BROKEN_STEPS))
def test_a_broken_step_names_the_invariant(invariant, broken):
    assert named(invariant) in {violation.partition(":")[0] for violation in violations_by(*broken())}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda after: with_moved(after, retired=True), invariants.referenced_files_are_kept),
        (lambda after: with_moved(after, references=7), invariants.references_are_counted),
        (lambda after: with_moved(after, sequence_hi=99), invariants.sequence_numbers_are_given_out),
        (lambda after: with_moved(after, dropped=2), invariants.files_without_references_are_dropped),
        (lambda after: replace(after, tags={"t": 99}), invariants.tags_name_past_versions),
        (lambda after: replace(after, fences=(Fence(NO_KEYS, 1),)), invariants.fences_have_keys),
    ],
)
def test_a_step_checks_what_it_touched(change, name):
    """Though it reads no segment: the states before and after are based on a checkpoint."""
    before = through_an_image(state())
    resolved = resolve(ProposeFiles((new_file("new", "cz"),)), before)
    after = apply(before, resolved, before.version + 1)
    assert list(violations_by(before, after, (resolved,))) == []
    assert named(name) in {found.partition(":")[0] for found in violations_by(before, change(after), (resolved,))}


def with_moved(after, **changes):
    return with_file_of(after, "new", **changes)


def test_a_step_counts_files_that_move_between_partitions():
    before = through_an_image(state())
    resolved = resolve(ProposeSplit({before.partitions.ids[0]: (key("b"),)}), before)
    after = apply(before, resolved, before.version + 1)
    assert list(violations_by(before, after, (resolved,))) == []
    lost = replace(after, references=after.references.drop({after.partitions.ids[0]: ["wide"]}))
    assert "references are counted: file wide has 2 references, not 3" in list(violations_by(before, lost, (resolved,)))


def test_what_a_step_did_not_touch_is_not_read_again():
    """A tag of another version is checked when it is set, and by a verification."""
    before = replace(state(), tags={"t": 99})
    resolved = resolve(SetTag("u", 1), before)
    assert resolved.name == "u"
    untouched = resolve(ProposeFiles((new_file("new", "cz"),)), before)
    assert list(violations_by(before, apply(before, untouched, 3), (untouched,))) == []
    assert list(violations_by(before, apply(before, resolved, 3), (resolved,)))


def test_the_catalog_has_invariants_of_its_own():
    table = CatalogTable("id-1", "flights")
    good = CatalogState(1, {"id-1": table}, {}, 0)
    assert list(violations_of_catalog(good)) == []
    for broken in (
        replace(good, tables={"id-1": table, "id-2": CatalogTable("id-2", "flights")}),
        replace(good, tables={"id-2": table}),
        replace(good, creations_from=9),
    ):
        assert len(list(violations_of_catalog(broken))) == 1


def test_a_proposal_that_breaks_an_invariant_is_refused_alone():
    """With a bug planted in how transactions are applied; the other proposals of the group are in the entry."""

    def buggy(state, change, version):
        after = apply(state, change, version)
        names = [file.id for file in change.files]
        return with_file_of(after, "bad", references=7) if "bad" in names else after

    group = [Ticket(ProposeFiles((new_file(name, "cz"),))) for name in ("good", "bad", "other")]
    found = validate(group, Head(2, "", state()), replace(TABLE, apply=buggy), LogLimits())
    good, bad, other = (found.outcomes[ticket] for ticket in group)
    assert (good, other) == (Committed(3), Committed(3))
    assert (bad.code, len(found.documents)) == (Code.INVARIANT_VIOLATED, 2)
    assert "references are counted: file bad has 2 references, not 7" in bad.reason
    assert "bad" not in found.state.files


def test_a_change_of_many_partitions_is_checked_in_some_of_them():
    """The time of a commit that reaches all partitions of a large table is not for its check."""
    before = table(*"cegikmoqsuwy")
    resolved = resolve(ProposeFiles((new_file("wide", "abcdefghijklmnopqrstuvwxyz"),)), before)
    after = apply(before, resolved, before.version + 1)
    assert list(violations_by(before, after, (resolved,))) == []
    touched = invariants.Transition(before, after, (resolved,)).touched(partitions_max=3)
    assert len(touched.references) == 3
    retired = with_file_of(after, "wide", retired=True)
    assert any("purged or retired" in found for found in violations_by(before, retired, (resolved,)))
