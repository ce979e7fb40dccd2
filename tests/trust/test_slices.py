"""The harnesses of `make trust` find what they are made to find, add up, and their page is that of their results."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.trust import damaged_entries, power_cuts, seeded_bugs, slices
from tests.trust.__main__ import due, in_process, main
from tests.trust.histories import Read, Written, anomalies
from tests.trust.page import PAGE, page_of
from tests.trust.results import Result, Slice, read_results, write_results
from tests.trust.targets import BY_ID, TARGETS, UNITS, Target
from tests.variants import planted


def test_no_power_cut_after_up_to_three_calls_loses_or_tears_an_object():
    done, chance = Slice(), random.Random(1)
    for steps in power_cuts.ALL_STEPS:
        power_cuts.check_steps(steps, chance, done, laid_out=0.002)
    assert done.findings == []
    assert done.units > 10_000
    assert done.events["images read by the store"] > 10


def test_no_power_cut_loses_an_acknowledged_row():
    done = Slice()
    power_cuts.lake_cuts(random.Random(3), done)
    assert done.findings == []


@pytest.mark.parametrize(("name", "variant"), seeded_bugs.STORE, ids=lambda value: value if type(value) is str else "")
def test_a_store_that_syncs_too_little_is_found(name, variant):
    """Within the sequences of one and two calls."""
    bug = seeded_bugs.SeededBug(name, "power cuts", "images", variant, seeded_bugs._cut, 56)
    assert bug.units_to_find() is not None


def test_damaged_objects_of_the_log_are_reported_or_read_right():
    done = damaged_entries.damaged(1, 1)
    assert done.findings == []
    assert done.events["reported"] > 200


def test_a_digest_that_is_not_compared_is_found():
    with planted(dict(seeded_bugs.LOG)["digests of entries are not compared"]):
        assert seeded_bugs._entries(0)[1]


def test_a_process_that_is_killed_at_a_named_point_leaves_all_or_nothing():
    """The slice forks, so it runs in a process without the threads of other tests."""
    program = "from tests.trust.crash_points import crash_points; print(crash_points(0, kills=3).to_json())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=slices.ROOT)
    done = Slice.from_json(ran.stdout)
    assert done.findings == []
    assert done.events["kill -9: local disk"] >= 3


def test_a_seed_has_the_same_trace_in_a_process_of_another_hash_seed():
    assert slices.determinism(4, count=1).findings == []


@pytest.mark.parametrize(
    ("written", "seen", "log", "anomaly"),
    [
        ([Written("a", 0, 1, 2)], [], {}, "a was acknowledged as 2, and is None"),
        ([Written("a", 0, 1, 2)], [], {"a": 3}, "a was acknowledged as 2, and is 3"),
        ([Written("a", 0, 1, None, refused=True)], [], {"a": 2}, "a was refused, and is 2"),
        ([], [Read(0, 2, ())], {"a": 2}, "lacks {'a'}"),
        ([], [Read(0, 1, ("a",))], {"a": 2}, "has {'a'}"),
        ([], [Read(0, 2, ("a", "a"))], {"a": 2}, "has some twice"),
        ([Written("a", 0, 1, 2)], [Read(2, 1, ())], {"a": 2}, "began after a was acknowledged"),
    ],
)
def test_an_anomaly_of_a_history_is_found(written, seen, log, anomaly):
    assert anomaly in " ".join(anomalies(written, seen, log))


def test_a_history_of_several_orders_has_no_anomaly():
    written = [Written("a", 0, 9, 2), Written("b", 1, 2, 3), Written("c", 1, 2, None), Written("d", 3, 4, None)]
    seen = [Read(0, 1, ()), Read(2.5, 3, ("a", "b")), Read(3, 4, ("a", "b", "c"))]
    assert anomalies(written, seen, {"a": 2, "b": 3, "c": 4}) == []


# -- the runner -------------------------------------------------------------------------------------------------


def target(**quota):
    return Target("T1", "asked", "runs", 1, 1, lambda _: Slice(), quota=quota)


def test_a_fault_that_fired_too_rarely_fails_a_run():
    result = Result(units=100, events=Counter({"cut": 9, "kill": 30}))
    assert target(cut=(UNITS, 0.05)).too_rare(result) == []
    assert target(cut=(UNITS, 0.1)).too_rare(result) == ["T1: cut: 9, at least 10 expected"]
    assert target(cut=("kill", 0.5)).too_rare(result) == ["T1: cut: 9, at least 15 expected"]
    assert target(never=(UNITS, 0.01)).too_rare(result) == []


def test_a_slice_that_hangs_is_killed_and_is_a_finding():
    done, seconds, _ = in_process(BY_ID["T6"], 0, hang_s=0.5)
    assert (done.units, done.findings) == (0, ["slice 0 hung for 0.5 s"])
    assert seconds >= 0.5


def test_a_target_is_due_until_its_slices_are_begun_or_it_has_done_enough():
    endless, limited = target(), replace(target(), id="T2", rounds=3, ci=10, release=20)
    results = {"T2": Result(slices=2, units=10)}

    def ids(until, begun):
        return [one.id for one in due([endless, limited], Counter(T1=9, T2=begun), results, until)]

    assert ids(None, 2) == ids("release", 2) == ["T1", "T2"]
    assert ids("ci", 2) == ids(None, 3) == ["T1"]
    results["T1"] = Result(units=1)
    assert ids("ci", 2) == []


def test_a_run_counts_every_slice_once_however_many_run_at_once(tmp_path):
    """The time is over once the first slices have begun, which end all the same."""
    program = (
        "import tests.trust.__main__ as m, pathlib, sys; folder = pathlib.Path(sys.argv[1]); results = {};"
        "m.read_results = lambda: results; m.write_results = lambda _: None; m.PAGE = folder / 'page.md';"
        "found = m.run(0.01, ['T2'], 'ci', 2); print(found, results['T2'].slices, results['T2'].units)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, cwd=slices.ROOT
    )
    lines = [line.split() for line in ran.stdout.splitlines() if line.startswith("T2 ")]
    findings, count, units = map(int, ran.stdout.split()[-3:])
    assert sorted(line[1] for line in lines) == [f"{seed}:" for seed in range(count)]
    assert sum(int(line[2].replace(",", "")) for line in lines) == units
    assert findings == 0
    assert (tmp_path / "page.md").exists()


def test_nights_add_up(tmp_path):
    first, second = Slice(3, Counter({"cut": 1}), [], {"a": 1}), Slice(4, Counter({"cut": 2}), ["lost"], {"b": 2})
    results = {"T9": Result()}
    results["T9"].add(Slice.from_json(first.to_json()), 0, "one", 1.0, 0.5)
    write_results(results, tmp_path / "results.json")
    results = read_results(tmp_path / "results.json")
    results["T9"].add(second, 1, "two", 1.0, 0.5)
    found = results["T9"]
    assert (found.slices, found.units, found.events["cut"], found.facts) == (2, 7, 3, {"a": 1, "b": 2})
    assert (found.first_revision, found.last_revision, found.cpu_s) == ("one", "two", 1.0)
    assert [(finding.seed, finding.detail, finding.revision) for finding in found.open_findings] == [(1, "lost", "two")]


def test_the_page_is_that_of_the_results():
    """`python -m tests.trust page` writes it."""
    assert PAGE.read_text("utf-8") == page_of(read_results())


def test_results_are_of_targets():
    assert set(read_results()) <= set(BY_ID)
    assert len({one.id for one in TARGETS}) == len(TARGETS)


def test_the_table_of_seeded_bugs_is_as_long_as_it_says():
    count = len(seeded_bugs.BUGS) + len(seeded_bugs.FORMS)
    assert -(-count // seeded_bugs.BUGS_EACH) == slices.SEEDED_ROUNDS
    assert len(seeded_bugs.BUGS) >= 40
    names = [(bug.harness, bug.name) for bug in seeded_bugs.BUGS]
    assert len(set(names)) == len(names)


def test_an_unknown_target_is_refused_with_those_that_there_are(capsys):
    """A run of no target would end at once, as if all had been well."""
    with pytest.raises(SystemExit) as left:
        main(["run", "--minutes", "0", "--only", "T1,T99"])
    assert left.value.code == 2
    assert "no target T99; targets: T1, T2, " in capsys.readouterr().err
