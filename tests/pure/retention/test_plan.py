"""What may be deleted: entry n of these tables is stamped n minutes after noon."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakebed.model.keys import ALL_KEYS
from lakebed.model.settings import Settings
from lakebed.model.state.transactions import (
    AlterSettings,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeRemoval,
    RaiseWatermark,
    RetireFiles,
    Watermark,
)
from lakebed.upkeep.retention.plan import LogPlan, cutoff, plan_files, plan_log, request_watermark, unpinned
from tests.pure.state.cases import job, new_file, step, table

AT_ONCE = Settings(log_s=0, history_s=0)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def minute(version):
    return NOON + timedelta(minutes=version)


def merged(state, inputs, output):
    """Compact the inputs into one file: two entries, and the inputs lose their references at the second."""
    rows = sum(state.references_of(1)[place].rows for place, file in enumerate(state.files_of(1)) if file.id in inputs)
    state = step(state, OpenJob(job("job-" + output, *inputs)))
    return step(state, ProposeOutput("job-" + output, (new_file(output, "ab".ljust(rows, "b")),)))


@pytest.fixture
def state():
    """f1, f2 dropped by entry 4; f3, f4 by entry 7; f5 referenced."""
    found = step(table(), ProposeFiles((new_file("f1", "ab"), new_file("f2", "a"))))
    found = merged(found, ["f1", "f2"], "f3")
    found = step(found, ProposeFiles((new_file("f4", "b"),)))
    return merged(found, ["f3", "f4"], "f5")


def drawn(state, before):
    found = plan_files(state, minute, before)
    retired, due = (" ".join(f.file.id for f in files) for files in (found.retired, found.due))
    return f"retired: {retired}; due: {due}; waiting: {found.waiting}"


def test_a_file_may_go_once_the_entry_that_dropped_it_is_old_enough(state):
    assert drawn(state, minute(3)) == "retired: ; due: ; waiting: 4"
    assert drawn(state, minute(4)) == "retired: ; due: f1 f2; waiting: 2"
    assert drawn(state, minute(6)) == "retired: ; due: f1 f2; waiting: 2"
    assert drawn(state, minute(7)) == "retired: ; due: f1 f2 f3 f4; waiting: 0"


def test_what_is_referenced_never_goes(state):
    assert "f5" not in drawn(state, minute(10**6))


def test_what_an_earlier_round_marked_is_not_marked_again(state):
    marked = step(state, RetireFiles(("f1",)))
    # What went in the same entry is as old.
    assert drawn(marked, minute(3)) == "retired: f1; due: f2; waiting: 2"


def test_a_pin_holds_what_its_number_refers_to_and_nothing_else(state):
    """f1, f2 come in 2; f3 takes their place in 4; f4 comes in 5; f5 takes the place of both in 7."""
    due = plan_files(state, minute, minute(7)).due
    free = {pin: " ".join(c.file.id for c in unpinned(due, {pin})) for pin in range(1, 8)}
    assert free == {
        1: "f1 f2 f3 f4",
        2: "f3 f4",
        3: "f3 f4",
        4: "f1 f2 f4",
        5: "f1 f2",
        6: "f1 f2",
        7: "f1 f2 f3 f4",
    }
    assert unpinned(due, {3, 5}) == ()


def test_only_retired_files_are_deletable_and_none_before_the_pins_are_read(state):
    marked = step(state, RetireFiles(("f1", "f3")))

    def deletable(pins):
        return " ".join(c.facts.id for c in plan_files(marked, minute, minute(7), pins).deletable)

    assert (deletable(None), deletable({}), deletable({5})) == ("", "f1 f3", "f1")


def test_a_log_is_truncated_to_an_old_checkpoint_below_another(state):
    assert plan_log(state, [3, 6], minute, minute(9), AT_ONCE) == LogPlan(retain=True, truncate_to=3)
    assert plan_log(state, [7], minute, minute(9), AT_ONCE) == LogPlan(retain=False, truncate_to=None)
    hour = Settings(log_s=3600, history_s=0)
    assert plan_log(state, [3, 6], minute, minute(62), hour) == LogPlan(retain=True, truncate_to=None)
    assert plan_log(state, [3, 6], minute, minute(63), hour) == LogPlan(retain=True, truncate_to=3)
    assert plan_log(state, [3, 6], minute, minute(63), replace(hour, history_s=7200)).truncate_to is None


def test_files_are_kept_for_the_history_and_the_log_at_least_as_long():
    assert cutoff(minute(60), Settings(history_s=600)) == minute(50)
    assert [Settings(history_s=600, log_s=log_s).log_retention_s for log_s in (0, 600, 900)] == [600, 600, 900]


def test_few_last_modified_times_are_asked_for():
    """Each is a request."""
    state = table()
    for version in range(30):
        state = step(state, ProposeFiles((new_file(f"a{version}", "ab"), new_file(f"b{version}", "ab"))))
        state = merged(state, [f"a{version}", f"b{version}"], f"c{version}")
    asked = []
    plan_files(state, lambda version: asked.append(version) or minute(version), minute(40))
    assert len(asked) <= 6


def answered(*pairs):
    """A table whose request at entry n is named n; pairs are of a number, ascending from 2, and its base version."""
    state = table()
    for version, base in pairs:
        while state.version < version - 1:
            state = step(state, AlterSettings({}))
        state = step(state, ProposeFiles((), str(version), base))
    return state


def test_request_keys_that_are_old_enough_are_forgotten():
    """Entry 4 is not older than minute 3, so what may be a first proposal of then, at base version 3, stays on
    record."""
    state = answered((2, 1), (3, 2), (4, 3), (5, 4))
    assert [request_watermark(state, minute, minute(old), AT_ONCE) for old in (1, 2, 3, 9)] == [None, 2, 3, 5]
    assert set(step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 3)).requests) == {"4", "5"}
    assert (
        request_watermark(step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 3)), minute, minute(3), AT_ONCE)
        is None
    )
    assert request_watermark(table(), minute, minute(9), AT_ONCE) is None


def test_a_request_committed_lately_is_remembered_however_old_its_base_number():
    """A repeat soon after may begin at a newer version; and what else has such a base version stays with it."""
    state = answered((2, 1), (3, 2), (8, 2))
    assert [request_watermark(state, minute, minute(old), AT_ONCE) for old in (2, 7, 8)] == [2, 2, 8]


def test_without_the_last_modified_of_an_entry_no_age_is_made_up():
    """Entries up to 3 are truncated: that of entry 4 tells nothing of how old they are, unless it is old itself."""
    state = answered((2, 1), (3, 2), (4, 3), (5, 4))
    known = {4: minute(4), 5: minute(5)}
    assert request_watermark(state, known.get, minute(3), AT_ONCE) is None
    assert request_watermark(state, known.get, minute(4), AT_ONCE) == 4


def test_no_more_request_keys_are_kept_than_there_is_room_for():
    """However young; the lowest base version go."""
    state = answered((2, 1), (3, 2), (4, 3), (5, 1), (6, 5))
    for most, line in ((5, None), (4, 2), (3, 2), (2, 3), (1, 4)):
        assert request_watermark(state, minute, minute(0), AT_ONCE, requests_max=most) == line
    assert set(step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 3)).requests) == {"4", "6"}


def test_the_line_is_not_raised_for_every_key():
    """Of eighty minutes that keys are remembered, ten more pass; a fence is time's as well."""
    hour = Settings(log_s=80 * 60, history_s=0)
    state = answered((2, 1), (3, 2), (4, 3), (5, 4))
    assert [request_watermark(state, minute, minute(now), hour) for now in (81, 82, 90, 91, 94)] == [
        None,
        None,
        None,
        5,
        5,
    ]
    state = step(table(), ProposeRemoval((ALL_KEYS,), fence=True))
    assert [request_watermark(state, minute, minute(now), hour) for now in (90, 91, 92)] == [None, 2, 2]
