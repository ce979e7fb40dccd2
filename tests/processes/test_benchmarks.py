"""The public benchmark, run small and over Lakebed alone: every measure runs, and what goes wrong is shown."""

import json
from dataclasses import asdict

import pytest

from benchmarks.lookup_under_ingest import __main__ as benchmark
from benchmarks.lookup_under_ingest import environments, measures, report, worker
from benchmarks.lookup_under_ingest.peers import lakebed_itself
from benchmarks.lookup_under_ingest.rows import Sizes, key_of, rows_between, some_ranges
from tests.variants import Planted, planted

SIZES = Sizes(commits=2, rows=50, gets=3, tiny=3, writers=1, writer_commits=2, processes=1, seconds=0.5)


@pytest.fixture
def peer(tmp_path):
    return lakebed_itself.Lakebed(tmp_path)


def shown(line, **figures):
    """The cell of the first line of that name, in a table of one peer."""
    made, notes = report.grid({"peer": figures}, asdict(SIZES))
    return next(row[1] for row in made if row[0].startswith(line)), notes.said


def test_the_driver_runs_a_measure_in_a_process_of_its_own_and_prints_the_table(tmp_path, capsys):
    out = tmp_path / "figures.json"
    sizes = ["--commits", "2", "--rows", "50", "--gets", "3", "--processes", "1", "--seconds", "0.5"]
    asked = ["--peers", "lakebed", "--only", "cold", "--json", str(out), "--folder", str(tmp_path), *sizes]
    assert benchmark.main(asked) == 0
    figures = json.loads(out.read_text())["peers"]["lakebed"]
    assert figures["ingest"]["commits"] == 2
    assert figures["cold"]["lookup_ms"] > 0
    assert "first lookup in a new process, ms" in capsys.readouterr().out


def test_every_measure_but_maintenance_is_there_for_lakebed(peer, tmp_path):
    found = measures.ingest(peer, SIZES)
    assert [point["commits"] for point in found["curve"]] == [1, 2]
    assert {"get", "absent", "range"} <= measures.lookups(peer, SIZES).keys()
    assert measures.upsert(peer, SIZES)["seconds"] > 0


def test_tiny_commits_tell_their_first_and_their_last(peer):
    found = measures.tiny(peer, SIZES)
    assert (found["commits"], len(found["means_ms"])) == (3, 1)
    assert peer.count() == 30


def test_a_writer_tries_again_what_was_refused_and_counts_it(peer, tmp_path):
    peer.create()
    (tmp_path / "go").touch()
    refusals = iter([OSError("busy\nmore"), None, OSError("busy")])

    class Busy:
        def __getattr__(self, name):
            return getattr(peer, name)

        def append(self, rows):
            if refusal := next(refusals, None):
                raise refusal
            peer.append(rows)

    found = measures.writer(Busy(), SIZES, 0, tmp_path / "out.json")
    assert (found["committed"], found["retries"], found["errors"]) == (2, 2, ["OSError: busy"] * 2)
    assert peer.count() == 20


def test_a_wrong_answer_is_an_error_and_no_figure(tmp_path):
    wrong = Planted(lakebed_itself.Lakebed, "get", lambda self, key: rows_between(0, 1))
    with planted(lambda: [wrong]):
        found = worker.figures_of("lakebed", "ingest", tmp_path, tmp_path / "out", asdict(SIZES))
    assert found["error"].startswith("WrongAnswer: 1 rows for user-")


def test_a_range_holds_the_rows_that_it_says():
    keys = sorted(rows_between(0, 500).column("key").to_pylist())
    for min, max, rows in some_ranges(500, 20, 10):
        assert rows == sum(min <= key < max for key in keys) > 0
    assert key_of(7) in keys


def test_what_failed_and_what_is_not_proposed_are_shown_with_their_reason():
    assert shown("upsert", upsert={"none": "no keys"}) == ("none [1]", ["no keys"])
    assert shown("maintenance", maintain={"error": "OSError: full"}) == ("error [1]", ["OSError: full"])


def test_a_measure_that_ran_out_of_time_says_how_far_it_came():
    figures = {"commits": 1, "seconds": 5.0, "commit_p50_ms": 5e3, "size_bytes": 1, "peak_mib": 1.0}
    assert shown("ingest", ingest=figures) == (
        "5.00 [1]",
        ["stopped by its time limit after 1 of 2 commits; the lines below are for these"],
    )


def test_lost_rows_are_shown():
    figures = {"committed": 2, "failed": 1, "retries": 9, "seconds": 1.0, "errors": {"Busy: x": 10}}
    assert shown("  rows lost", writers=figures | {"rows_acknowledged": 20, "rows_there": 10})[0] == "-10"
    assert shown("  failed", writers=figures | {"rows_acknowledged": 20, "rows_there": 20}) == (
        "1 / 9 [1]",
        ["10 x Busy: x"],
    )


def test_lookups_are_compared_with_lakebeds_over_as_many_commits():
    times = {"lakebed": 2.0, "a": 80.0}
    asked = {name: {"ingest": {"commits": 2}, "lookups": {"get": {"p50_ms": ms}}} for name, ms in times.items()}
    assert report.times_ours(asked) == ["1.00 x", "40.0 x"]
    assert report.times_ours(asked | {"a": asked["a"] | {"ingest": {"commits": 1}}}) == ["1.00 x", "-"]
    assert report.times_ours({"a": asked["a"]}) is None


def test_every_peer_has_its_versions_pinned():
    for name in [*benchmark.MODULES, "plot"]:
        if name != "lakebed":
            pins = (environments.REQUIREMENTS / f"{name}.txt").read_text().split()
            assert pins, name
            assert all(pin.count("==") == 1 and "/" not in pin for pin in pins), name
