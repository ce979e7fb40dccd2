"""Which partitions are cut and where, and which are joined: partitions of letters, a row a letter."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.transactions import OpenJob, ProposeFiles, ProposeJoin, ProposeOutput, ProposeSplit
from lakebed.upkeep.splitting.plan import CompactFirst, LargePartition, SplitAt, Unsplittable, choose, due, small
from tests.pure.state.cases import SCHEMA, job, key, new_file, step, table

LETTERS = "abcdefghijklmnopqrstuvwx"


def large(files, parts=2, keys=ALL_KEYS):
    rows = sum(f.file.rows for f in files)
    runs = len({f.run for f in files})
    return LargePartition(1, keys, rows, 100 * rows, runs, parts, tuple(f.file for f in files))


def chosen(*files, parts=2, keys=ALL_KEYS):
    return choose(large(files, parts, keys), [f.summary for f in files])


def shown(found):
    """The letters that begin each part but the first."""
    assert isinstance(found, SplitAt), found
    return "".join(SCHEMA.codec.decode_bound(k).values[0] for k in found.keys)


def test_a_partition_is_cut_at_the_middle_of_its_rows():
    assert shown(chosen(new_file("f", LETTERS))) == "m"
    assert shown(chosen(new_file("f", "aaaaabcd"))) == "b"


def test_several_cuts_are_made_at_once():
    assert shown(chosen(new_file("f", LETTERS), parts=4)) == "gms"


def test_rows_of_several_files_are_weighed_together():
    assert shown(chosen(new_file("f1", "abcdefgh", "run"), new_file("f2", "uv", "run"))) == "f"


def test_a_hot_key_is_alone_after_two_rounds():
    """The first cut ends below it or begins with it; the next cuts off the other side."""
    first = chosen(new_file("f", "abc" + "h" * 20 + "z"))
    assert shown(first) == "h"
    rest = chosen(new_file("f", "h" * 20 + "z"), keys=EncodedRange(first.keys[0], None))
    assert shown(rest) == "z"


def test_a_partition_of_one_key_cannot_be_split():
    found = chosen(new_file("f1", "kkkk", "run"), new_file("f2", "kk", "run"))
    assert isinstance(found, Unsplittable)
    assert "single key" in found.reason


def test_no_part_is_empty_even_if_the_least_key_is_the_hot_one():
    """The only cut there is lies above it."""
    assert shown(chosen(new_file("f", "a" * 50 + "b"))) == "b"


def test_overlapping_files_with_coarse_summaries_are_compacted_first():
    """Each notes its first key only, so the rank of any other is a guess."""
    found = chosen(new_file("f1", LETTERS, samples=""), new_file("f2", LETTERS, samples=""))
    assert isinstance(found, CompactFirst)
    assert "48 of 48 rows" in found.reason


def test_one_run_is_never_sent_to_compaction():
    """A hot key makes a large step between noted keys, yet every noted key's rank is exact."""
    assert shown(chosen(new_file("f", "abc" + "h" * 20 + "z"))) == "h"


def test_candidates_lie_inside_the_partition():
    """Files reach over the partition's ends; what they noted there is no place to cut it."""
    keys = EncodedRange(key("c"), key("g"))
    assert shown(chosen(new_file("f", LETTERS), keys=keys)) in "def"


def test_a_boundary_is_as_short_as_parts_the_keys_around_it():
    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.key_summaries import Summary

    noted = tuple(SCHEMA.codec.encode_key((name,)) for name in ("aachen-1", "aachen-2", "berlin-1", "berlin-2"))
    file = DataFile("f", "job", 4, 400, noted[0], noted[-1], 1, 0, "digest", 8, "footer")
    found = chosen(NewFile(file, Summary(noted, (0, 1, 2, 3), 4, noted[-1]), "run"))
    assert found.keys == (b"b",)


SMALL = Settings(split_rows=4, split_bytes=10_000)


def lines(state, limits=SMALL):
    found = due(state, limits)
    return [f"{partition.partition}: {partition.parts} parts" for partition in found.large] + [
        f"{wait.partition} waits: {wait.reason}" for wait in found.waiting
    ]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [("abcd", []), ("abcde", ["1: 2 parts"]), (LETTERS[:12], ["1: 4 parts"])],
    ids=["at the limit", "one row above", "three times"],
)
def test_a_partition_above_its_rows_is_due_and_its_parts_have_room_to_grow(letters, expected):
    assert lines(step(table(), ProposeFiles((new_file("f", letters),)))) == expected


def test_bytes_count_as_rows_do():
    state = step(table(), ProposeFiles((new_file("f", "abcd"),)))
    assert lines(state, Settings(split_rows=100, split_bytes=1024)) == []
    assert lines(step(state, ProposeFiles((new_file("g", LETTERS),))), Settings(split_rows=100, split_bytes=1024)) == [
        "1: 4 parts"
    ]


def test_a_partition_with_an_open_job_waits_unless_it_is_far_above_its_limit():
    """Of four times the limit, and five times; the job commits under the parts."""
    state = step(table(), ProposeFiles((new_file("f", LETTERS[:20]),)))
    state = step(state, OpenJob(job("job-1", "f")))
    assert lines(state, Settings(split_rows=5, split_bytes=10_000)) == ["1 waits: job job-1 is open in the partition"]
    assert lines(state) == ["1: 7 parts"]


@pytest.mark.parametrize(
    ("runs", "rows", "expected"),
    [
        (4, 5, ["1: 2 parts"]),
        (5, 5, ["1 waits: its 5 runs are merged first; lakebed compact merges them"]),
        (5, 16, ["1 waits: its 5 runs are merged first; lakebed compact merges them"]),
        (5, 17, ["1: 6 parts"]),
    ],
    ids=["few runs", "many runs", "four times its limit", "far above its limit"],
)
def test_a_partition_in_which_runs_pile_up_is_merged_before_it_is_split(runs, rows, expected):
    state = table()
    for number in range(runs):
        letters = LETTERS[: rows - runs + 1] if number == 0 else LETTERS[0]
        state = step(state, ProposeFiles((new_file(f"f{number}", letters),)))
    piled = Settings(split_rows=4, split_bytes=10_000, runs_max=8, compaction_strategy=Strategy.FULL)
    assert lines(state, piled) == expected


def test_a_partition_with_many_runs_of_which_none_is_due_is_split():
    state = table()
    for number in range(9):
        state = step(state, ProposeFiles((new_file(f"f{number}", LETTERS[0]),)))
    by_bytes = Settings(
        split_rows=4, split_bytes=10_000, compaction_batch_runs=2, compaction_strategy=Strategy.BY_BYTES
    )
    assert lines(state, by_bytes) == ["1: 3 parts"]


# -- small neighbours -------------------------------------------------------------------------------------------

TENTH = Settings(split_rows=40, split_bytes=10**6, join_share=0.1)
"""Neighbours of up to four rows are joined."""


def groups(state, limits=TENTH):
    """Partitions that should be one, joined by a plus; one that has to be compacted first has an exclamation mark."""
    return [
        "+".join(f"{partition}{'!' if partition in group.compact_first else ''}" for partition in group.partitions)
        for group in small(state, limits)
    ]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("a g m s", ["1+2+3+4"]),
        ("a g m ss", ["1+2+3"]),
        ("aaaa g m s", ["2+3+4"]),
        ("aaaa gggg m s", ["3+4"]),
        ("aaaaa s", ["2+3+4"]),
        ("a m", ["1+2+3+4"]),
        ("", []),
    ],
    ids=["all", "a row too many", "a full one", "two", "a large one", "empty ones", "an empty table"],
)
def test_neighbours_are_joined_as_long_as_they_are_small_together(letters, expected):
    """A file a partition; partitions begin at g, m and s."""
    state = table("g", "m", "s")
    for some in letters.split():
        state = step(state, ProposeFiles((new_file("f" + some[0], some),)))
    assert groups(state) == expected


def test_bytes_keep_neighbours_apart_as_rows_do_and_a_share_of_none_keeps_all():
    state = step(table("m"), ProposeFiles((new_file("f1", "ab"), new_file("f2", "xy"))))
    assert groups(state, Settings(split_rows=40, split_bytes=4_000)) == ["1+2"]
    assert groups(state, Settings(split_rows=40, split_bytes=3_990)) == []
    assert groups(state, Settings(split_rows=40, join_share=0)) == []


def test_a_partition_with_an_open_job_is_not_joined():
    state = step(table("g", "m"), ProposeFiles((new_file("f1", "a"), new_file("f2", "h"), new_file("f3", "x"))))
    state = step(state, OpenJob(job("j1", "f1", keys=EncodedRange(b"", key("g")))))
    assert groups(state) == ["2+3"]


def test_partitions_that_a_file_keeps_apart_are_compacted_first():
    """It was merged away in the first; the third has it still, and reaches into no other that has not."""
    state = step(table("g", "m"), ProposeFiles((new_file("f1", "ahx", samples="gm"), new_file("f2", "y"))))
    state = step(state, OpenJob(job("j1", "f1", keys=EncodedRange(b"", key("g")))))
    state = step(state, ProposeOutput("j1", (new_file("f3", "a"),)))
    assert groups(state) == ["1+2!+3!"]
    for name, file, keys in (("j2", "h", EncodedRange(key("g"), key("m"))), ("j3", "x", EncodedRange(key("m"), None))):
        state = step(state, OpenJob(job(name, "f1", keys=keys)))
        state = step(state, ProposeOutput(name, (new_file("f" + name, file),)))
    assert groups(state) == ["1+2+3"]


PARTITIONS = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", max_size=12), min_size=1, max_size=8)


@settings(max_examples=100)
@given(PARTITIONS, st.integers(2, 12), st.floats(0, 0.5), st.sets(st.sampled_from(LETTERS[1:]), max_size=8))
def test_splits_and_joins_do_not_undo_each_other(contents, split_rows, join_share, boundaries):
    """What was joined is not due for a split; and in turns they come to rest."""
    limits = Settings(split_rows=split_rows, join_share=join_share)
    state = table(*sorted(boundaries))
    files = [new_file(f"f{place}", letters) for place, letters in enumerate(contents) if letters]
    summaries = {new.file.id: new.summary for new in files}
    if files:
        state = step(state, ProposeFiles(tuple(files)))
    for _ in range(12):
        cut = [choose(partition, [summaries[f.id] for f in partition.files]) for partition in due(state, limits).large]
        cut = [one for one in cut if isinstance(one, SplitAt)]
        if cut:
            state = step(state, ProposeSplit({one.partition: one.keys for one in cut}, summaries))
        planned = small(state, limits)
        for group in planned:
            joined = state.partitions.next_id
            state = step(state, ProposeJoin(group.partitions))
            assert joined not in [large.partition for large in due(state, limits).large]
        assert not small(state, limits)
        if not cut and not planned:
            return
    raise AssertionError("splits and joins go on and on")
