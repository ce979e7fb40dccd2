"""Which partitions and files a query reads, as drawings: letters are keys, ``c-g`` is a file with rows from c to g."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import KeyRange, Schema
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import CreateTable, ProposeFiles, Rejected, Repeated, apply, resolve
from lakebed.read.rows.plan import plan, successive

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def key(text):
    return SCHEMA.codec.encode((text,))


def span(text):
    """``c-g`` includes both, ``c-`` and ``-g`` have one end, ``c`` is the one key, ``-`` is everything."""
    low, dash, high = text.partition("-")
    if not dash:
        return EncodedRange(key(text), successor(key(text)))
    return SCHEMA.codec.encode_range(KeyRange(low or None, high or None, max_inclusive=True))


def new_file(text):
    low, high = text.split("-")
    file = DataFile(f"file-{text}", "job-0001", 2, 200, key(low), key(high), 1, 0, "digest", 8, "footer")
    return NewFile(file, Summary((key(low), key(high)), (0, 1), 2, key(high)), text)


def table(boundaries, files):
    """A table cut at these letters, with these files, oldest first."""
    proposals = [CreateTable("table-00", SCHEMA, {}, tuple(map(key, boundaries)))]
    proposals += [ProposeFiles((new_file(text),)) for text in files.split()]
    state = TableState()
    for proposal in proposals:
        resolved = resolve(proposal, state)
        assert not isinstance(resolved, Rejected | Repeated), resolved
        state = apply(state, resolved, state.version + 1)
    return state


def drawn(planned):
    """A line a partition: its ranges by their first and last letter, a colon, its files."""
    return [
        " ".join(drawn_range(keys) for keys in partition.ranges)
        + ": "
        + " ".join(file.id.removeprefix("file-") for file in partition.files)
        for partition in planned.partitions
    ]


def drawn_range(keys):
    inside = [letter for letter in LETTERS if keys.contains(key(letter))]
    return inside[0] if len(inside) == 1 else f"{inside[0]}-{inside[-1]}"


@pytest.mark.parametrize(
    ("boundaries", "files", "asked", "expected"),
    [
        ("", "", "-", []),
        ("", "c-g", "-", ["a-z: c-g"]),
        ("", "c-g", "d", ["d: c-g"]),
        # Beyond the file's bounds on either side, and on both bounds.
        ("", "c-g", "b", []),
        ("", "c-g", "h-", []),
        ("", "c-g", "c", ["c: c-g"]),
        ("", "c-g", "g", ["g: c-g"]),
        # One file in two partitions: each partition reads its part.
        ("e", "c-g", "-", ["a-d: c-g", "e-z: c-g"]),
        ("e", "c-g", "d-e", ["d: c-g", "e: c-g"]),
        ("e", "c-g", "e", ["e: c-g"]),
        ("e", "c-g", "d", ["d: c-g"]),
        # Files are pruned one by one, and come in the order of arrival.
        ("", "c-g a-d f-k", "e", ["e: c-g"]),
        ("", "f-k c-g a-d", "g", ["g: f-k c-g"]),
        # Ranges that overlap or touch count once; the others stay apart.
        ("", "a-z", "c-g e-k", ["c-k: a-z"]),
        ("", "a-z", "e-k c-g k", ["c-k: a-z"]),
        ("", "a-z", "x c", ["c x: a-z"]),
        ("m", "a-z", "x c l-n", ["c l: a-z", "m-n x: a-z"]),
        # A range that no file reaches is left out, and so is a file that no range reaches.
        ("", "a-d t-w", "b f", ["b: a-d"]),
    ],
)
def test_a_plan_names_the_ranges_and_files_of_each_partition(boundaries, files, asked, expected):
    state = table(boundaries, files)
    assert drawn(plan(state, [span(text) for text in asked.split()])) == expected


def test_a_query_for_nothing_reads_nothing():
    state = table("m", "a-z")
    assert drawn(plan(state, [])) == []
    assert drawn(plan(state, [EncodedRange(b"b", b"b"), EncodedRange(b"c", b"a")])) == []


spans = st.tuples(st.sampled_from(LETTERS), st.sampled_from(LETTERS)).map(lambda pair: "-".join(sorted(pair)))


@given(
    boundaries=st.sets(st.sampled_from(LETTERS[1:])).map(sorted),
    files=st.lists(spans, max_size=6, unique=True),
    asked=st.lists(spans, max_size=5),
)
def test_each_asked_key_is_read_once_from_each_file_that_may_hold_it(boundaries, files, asked):
    state = table(boundaries, " ".join(files))
    planned = plan(state, [span(text) for text in asked])
    read = [
        (letter, file.id)
        for partition in planned.partitions
        for keys in partition.ranges
        for letter in LETTERS
        for file in partition.files
        if keys.contains(key(letter)) and file.reaches(EncodedRange(key(letter), successor(key(letter))))
    ]
    wanted = [
        (letter, f"file-{text}")
        for letter in LETTERS
        if any(span(each).contains(key(letter)) for each in asked)
        for text in files
        if span(text).contains(key(letter))
    ]
    assert sorted(read) == sorted(wanted)
    assert [letter for letter, _ in read] == sorted(letter for letter, _ in read)
    for partition in planned.partitions:
        position = state.partitions.position_of(partition.partition)
        assert all(state.partitions.range_at(position).covers(keys) for keys in partition.ranges)


def test_everything_is_one_range_a_partition():
    planned = plan(table("em", "a-z"), [ALL_KEYS])
    assert [partition.ranges for partition in planned.partitions] == [
        (EncodedRange(b"", key("e")),), (EncodedRange(key("e"), key("m")),), (EncodedRange(key("m"), None),)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "asked", "expected"),
    [
        ("a-d", "-", ["a-z: a-d"]),
        # A run: one part for each file, which ends where the next begins.
        ("a-d f-k p-w", "-", ["a-e: a-d", "f-o: f-k", "p-z: p-w"]),
        ("p-w a-d f-k", "g-q", ["g-o: f-k", "p-q: p-w"]),
        # Those that overlap, or share a key, are one part; also by way of a third.
        ("a-d d-k", "-", ["a-z: a-d d-k"]),
        ("a-d c-k j-m n-p", "-", ["a-m: a-d c-k j-m", "n-z: n-p"]),
        ("a-w b-c e-f x-y", "-", ["a-w: a-w b-c e-f", "x-z: x-y"]),
        # One that the range does not reach tells nothing.
        ("a-d c-k f-m", "l", ["l: f-m"]),
    ],
)
def test_files_that_do_not_overlap_are_read_one_after_another(files, asked, expected):
    data_files = [new_file(text).file for text in files.split()]
    parts = successive(data_files, span(asked))
    assert [
        f"{drawn_range(keys)}: " + " ".join(file.id.removeprefix("file-") for file in part) for keys, part in parts
    ] == expected
