"""Compaction of tables that merge rows: windows of neighbours by arrival, and plans that the state accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import Aggregate, Latest
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    ConcatenateRuns,
    CreateTable,
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeSplit,
    Rejected,
    resolve,
)
from lakebed.upkeep.compaction.neighbours import (
    alike,
    concatenated_neighbours,
    overdue_windows,
    stretches_of,
    windows,
)
from lakebed.upkeep.compaction.plan import LIMITS, CompactionLimits, plan
from lakebed.upkeep.compaction.strategies import RUNS_MAX, Run, of_like_size
from tests.pure.compaction.test_strategies import held
from tests.pure.state.cases import SCHEMA, job, key, new_file, step


def drawn(strategy, sizes, find=windows, **changes):
    """A line a window: the sizes of its runs. A 0 is a run that a job merges."""
    files = [held(f"f{place}", max(1, size)) for place, size in enumerate(sizes)]
    busy = {f"f{place}" for place, size in enumerate(sizes) if not size}
    found = find(strategy, stretches_of(files, busy), Settings(**changes))
    return [" ".join(str(run.size_bytes) for run in window) for window in found]


def test_basic_merges_the_lightest_windows_of_neighbours():
    assert drawn(Strategy.BASIC, [5, 1, 4, 2, 3], compaction_batch_runs=2) == ["1 4", "2 3"]
    assert drawn(Strategy.BASIC, [9, 9, 1, 1, 9], compaction_batch_runs=2) == ["1 1", "9 9"]
    assert drawn(Strategy.BASIC, [5, 1], compaction_batch_runs=3) == []


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ([], []),
        ([7, 7, 7], []),
        ([7, 7, 7, 7], ["7 7 7 7"]),
        ([100, 7, 7, 7, 7], ["7 7 7 7"]),
        ([7, 7, 100, 7, 7], []),
        ([16, 8, 4, 2, 1], []),
        ([1, 1, 1, 1, 40, 1, 1, 1, 1], ["1 1 1 1", "1 1 1 1"]),
        ([1] * 9, ["1 1 1 1", "1 1 1 1"]),
    ],
    ids=lambda value: ",".join(map(str, value)) or "none",
)
def test_size_ratio_merges_neighbours_of_like_size(sizes, merged):
    assert drawn(Strategy.SIZE_RATIO, sizes, compaction_batch_runs=4) == merged


def test_runs_of_like_size_that_others_keep_apart_are_merged_with_them():
    """In a table that keeps all rows, the four of size 1 would be merged."""
    sizes = [1, 9, 1, 2, 1, 90, 1]
    assert drawn(Strategy.SIZE_RATIO, sizes) == []
    assert drawn(Strategy.SIZE_RATIO, sizes, overdue_windows) == ["1 9 1 2"]


def test_by_bytes_merges_from_the_oldest_on():
    assert drawn(Strategy.BY_BYTES, [900, 400, 300, 1100, 600, 500], compaction_run_bytes=1024) == [
        "900 400",
        "600 500",
    ]


def test_full_merges_all_runs_between_those_that_jobs_merge():
    assert drawn(Strategy.FULL, [9000, 1, 5]) == ["9000 1 5"]
    assert drawn(Strategy.FULL, [9000, 1, 0, 5, 7, 0, 3]) == ["9000 1", "5 7"]
    assert drawn(Strategy.FULL, [9000]) == []


@pytest.mark.parametrize("strategy", [Strategy.BASIC, Strategy.SIZE_RATIO, Strategy.BY_BYTES])
def test_no_window_reaches_over_a_run_of_the_target_size_or_of_a_job(strategy):
    how = {"compaction_run_bytes": 1024, "compaction_batch_runs": 4}
    for between in (5000, 0):
        assert drawn(strategy, [600, between, 600, between, 600, between, 600], **how) == []


def test_neighbours_that_do_not_overlap_are_concatenated():
    """f1 aaa     f2 dd     f3  b       f4    ee, and f5 has a delete."""
    names = {"f1": "a-ab", "f2": "d-d", "f3": "b-b", "f4": "c-e", "f5": "x-x", "f6": "y-y"}
    runs = [Run.of([held(name, 100, span)]) for name, span in names.items()]
    deletes = replace(runs[4].held[0].file, markers=1)
    runs[4] = Run.of([runs[4].held[0]._replace(file=deletes)])
    found = concatenated_neighbours(runs, 100)
    assert [" ".join(one.file.id for one in run.held) for run in found] == ["f1 f2 f3", "f4", "f5", "f6"]
    assert concatenated_neighbours(runs, 101) == runs


def test_a_run_that_another_interrupts_is_two():
    files = [held("f1", 10, run="r"), held("f2", 10), held("f3", 10, run="r")]
    assert [len(run.held) for [*runs] in stretches_of(files, set()) for run in runs] == [1, 1, 1]


SIZES = st.lists(st.integers(1, 5000), max_size=60)


@given(SIZES, st.floats(0.1, 8))
def test_windows_of_like_size_are_the_longest(sizes, ratio):
    found = {(part.start, part.stop) for part in alike(sizes, ratio)}
    every = {
        (low, high)
        for low in range(len(sizes))
        for high in range(low + 2, len(sizes) + 1)
        if of_like_size(sorted(sizes[low:high]), ratio) == high - low
    }
    assert found == {a for a in every if not any(b != a and b[0] <= a[0] and a[1] <= b[1] for b in every)}


@given(st.sampled_from(Strategy), SIZES, st.integers(2, 15), st.floats(0.1, 8), st.data())
def test_windows_are_disjoint_neighbours_and_come_to_an_end(strategy, sizes, batch, ratio, data):
    """Merging what is planned, again and again, whatever is left of the rows."""
    settings = Settings(compaction_batch_runs=batch, compaction_ratio=ratio, compaction_run_bytes=1024)
    files = [held(f"f{place:04d}", size) for place, size in enumerate(sizes)]
    rounds = 0
    while True:
        stretches = stretches_of(files, set())
        found = windows(strategy, stretches, settings) or overdue_windows(strategy, stretches, settings)
        if not found:
            break
        rounds += 1
        for window in found:
            ids = [run.held[0].file.id for run in window]
            places = [place for place, one in enumerate(files) if one.file.id in ids]
            assert len(window) > 1
            assert places == list(range(places[0], places[0] + len(window)))
            total = sum(run.size_bytes for run in window)
            files[places[0] : places[-1] + 1] = [held(ids[-1], data.draw(st.integers(1, total)))]
    assert rounds <= max(2, len(sizes))
    assert len(files) <= RUNS_MAX
    if strategy is Strategy.SIZE_RATIO:
        small = [one.file.size_bytes for one in files if one.file.size_bytes < 1024]
        assert all(one.file.size_bytes < 1024 for one in files) <= (not of_like_size(sorted(small), ratio))


# -- plans over states ------------------------------------------------------------------------------------------


def merging(*boundaries, mode=None):
    return step(TableState(), CreateTable("table-00", SCHEMA, {}, tuple(map(key, boundaries)), mode or Latest()))


def new(name, letters, markers=0, samples="cfi"):
    found = new_file(name, letters, samples=letters + samples)
    return replace(found, file=replace(found.file, markers=markers))


def add(state, name, letters, markers=0):
    return step(state, ProposeFiles((new(name, letters, markers),), base_version=state.version))


def planned(state, strategy=Strategy.FULL, limits=LIMITS, **changes):
    found = plan(state, Settings(**changes), strategy, limits=limits)
    return [
        f"{' '.join(map(str, merge.partitions or (merge.partition,)))}: {' '.join(f.id for f in merge.inputs)}"
        + (" complete" if merge.complete else "")
        for merge in (*found.whole, *found.merges)
    ] + [f"concatenated: {' '.join(link.files)}" for link in found.concatenations]


def test_a_merge_of_the_oldest_files_is_complete_and_another_is_not():
    state = merging()
    for name in "abcd":
        state = add(state, name, "az")
    assert planned(state, Strategy.BASIC, compaction_batch_runs=2) == ["1: a b complete", "1: c d"]
    assert planned(state) == ["1: a b c d complete"]


@pytest.mark.parametrize("mode", [Latest(by="sort_key"), Aggregate({"v": "sum"})], ids=str)
def test_by_other_modes_no_merge_drops_deletes(mode):
    state = replace(merging(), merge=mode)
    state = add(add(state, "a", "az"), "b", "az", markers=1)
    assert planned(state) == ["1: a b"]
    assert planned(add(replace(merging(), merge=mode), "a", "az", markers=1)) == []


def test_the_only_run_of_a_partition_is_merged_if_it_has_deletes():
    assert planned(add(merging(), "a", "az")) == []
    for strategy in Strategy:
        assert planned(add(merging(), "a", "az", markers=1), strategy) == ["1: a complete"]
    state = add(add(merging(), "a", "az"), "b", "az", markers=1)
    assert planned(state, Strategy.BASIC) == []


def test_files_between_whole_ones_keep_them_from_being_merged_whole():
    """g2 and g3 are neighbours in all partitions, and g1 and g2 in the first one only."""
    few = CompactionLimits(references_min=1)
    state = merging("m")
    for name, letters in (("g1", "az"), ("x", "y"), ("g2", "az"), ("g3", "bz")):
        state = add(state, name, letters)
    assert planned(state, limits=few)[0] == "1 2: g2 g3"
    state = merging("m")
    for name in ("g1", "g2", "g3", "g4"):
        state = add(state, name, "az")
    assert planned(state, Strategy.SIZE_RATIO, few)[0] == "1 2: g1 g2 g3 g4 complete"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.text("abcdefghijkl", min_size=1, max_size=6), st.integers(0, 1)),
        st.tuples(st.just("compact"), st.sampled_from(Strategy), st.booleans()),
        st.tuples(st.just("split"), st.sampled_from("cfi"), st.none()),
        st.tuples(st.just("join"), st.integers(0, 3), st.none()),
    ),
    max_size=40,
)


@given(STEPS, st.integers(2, 4), st.data())
def test_every_planned_job_is_accepted_and_plans_come_to_an_end(steps, batch, data):
    settings = Settings(compaction_batch_runs=batch, file_bytes=1 << 20)
    state = merging("e")
    known: dict[str, tuple[str, int]] = {}
    for number, (what, fact, more) in enumerate(steps):
        name = f"f{number:03d}"
        match what:
            case "add":
                known[name] = fact, more
                state = add(state, name, fact, more)
            case "compact":
                state = _compacted(state, (fact, settings), known, data, leave_open=more)
            case "split":
                partition = state.partitions.ids[state.partitions.position(key(fact))]
                state = _if_allowed(state, ProposeSplit({partition: (key(fact),)}))
            case _:
                state = _if_allowed(state, ProposeJoin(state.partitions.ids[fact : fact + 2]))
    for name in state.jobs:
        state = _output(state, name, known, data)
    for strategy in (data.draw(st.sampled_from(Strategy)), Strategy.FULL):
        for _ in range(20):
            before = state
            state = _compacted(state, (strategy, settings), known, data, leave_open=False)
            if state is before:
                break
        else:
            pytest.fail("compaction does not come to an end")
    assert all(len({one.run for one in state.held_by(p)}) <= 1 for p in state.partitions.ids)
    assert not any(one.file.markers for p in state.partitions.ids for one in state.held_by(p))


def _if_allowed(state, proposal):
    return state if isinstance(resolve(proposal, state), Rejected) else step(state, proposal)


def _compacted(state, rules, known, data, *, leave_open):
    strategy, settings = rules
    found = plan(state, settings, strategy, limits=CompactionLimits(references_min=2))
    for number, link in enumerate(found.concatenations):
        state = step(state, ConcatenateRuns(link.partition, link.files, f"run-{state.version}-{number}"))
    for number, merge in enumerate(found.whole or found.merges):
        # All are accepted, in the order of the plan.
        one = job(f"j{state.version:04d}-{number}", *(file.id for file in merge.inputs), keys=merge.keys)
        state = step(state, OpenJob(replace(one, complete=merge.complete)))
        if not leave_open:
            state = _output(state, one.id, known, data)
    return state


def _output(state, name, known, data):
    """Commit the output of a job: some of the letters of its inputs that lie in its range, or none."""
    one = state.jobs[name]
    inputs = [known[file] for file in one.inputs]
    inside = {x for letters, _ in inputs for x in letters if not one.keys.intersect(exactly(x)).empty}
    left = "".join(sorted(x for x in sorted(inside) if data.draw(st.booleans())))
    markers = 0 if one.complete else max(count for _, count in inputs)
    known[f"o-{name}"] = left, markers
    return step(state, ProposeOutput(name, (new(f"o-{name}", left, markers),) if left else ()))


def exactly(letter):
    return EncodedRange(key(letter), key(letter) + b"\0")
