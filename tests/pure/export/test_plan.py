"""How an export is shared out: partitions of letters, a row a letter."""

import pytest

from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.transactions import ProposeFiles
from lakebed.read.rows.plan import plan
from lakebed.upkeep.export.plan import cells, parts_wanted, share_out, unweighed
from tests.pure.state.cases import SCHEMA, key, new_file, step, table

FILES = (new_file("f1", "abcdefgh"), new_file("f2", "mnop"), new_file("f3", "aamz", samples="gms"))


@pytest.fixture
def state():
    """Partitions begin at g, m and s; the last refers to f3 alone."""
    return step(table("g", "m", "s"), ProposeFiles(FILES))


def shown(cell):
    low, high = (SCHEMA.codec.decode_values(bound)["k"] if bound else "" for bound in (cell.keys.min, cell.keys.max))
    return f"{low}-{high}"


def shared(state, count, *ranges):
    """The parts as text: each its cells, with about how many rows."""
    held = cells(state, plan(state, ranges or [ALL_KEYS]))
    named = unweighed(held, count)
    summaries = {new.file.id: new.summary for new in FILES if new.file.id in named}
    return [" ".join(f"{shown(cell)}:{cell.rows}" for cell in part) for part in share_out(held, summaries, count)]


def test_each_partition_is_a_cell_and_few_parts_hold_several(state):
    assert shared(state, 1) == ["-g:8 g-m:2 m-s:5 s-:1"]
    assert shared(state, 2) == ["-g:8", "g-m:2 m-s:5 s-:1"]


def test_a_large_partition_is_cut_into_parts_of_even_rows(state):
    found = shared(state, 4)
    assert [part.partition(":")[0].partition("-")[0] for part in found] == ["", "d", "g", "o"]
    assert len(shared(state, 100)) > 8


def test_a_range_takes_the_part_of_its_partitions_that_it_meets(state):
    assert shared(state, 1, EncodedRange(key("e"), key("n"))) == ["e-g:3 g-m:2 m-n:2"]
    assert shared(state, 1, EncodedRange(key("zz"), None)) == []


def test_ranges_that_overlap_count_once(state):
    span = EncodedRange(key("m"), key("s"))
    assert shared(state, 1, span, EncodedRange(key("n"), key("s")), span) == ["m-s:5"]


def test_only_partitions_asked_for_in_part_and_large_ones_need_summaries(state):
    held = cells(state, plan(state, [ALL_KEYS]))
    assert unweighed(held, 1) == {}
    assert sorted(unweighed(held, 4)) == ["f1", "f2", "f3"]
    assert sorted(unweighed(cells(state, plan(state, [EncodedRange(key("t"), None)])), 1)) == ["f3"]


def test_counts_are_exact_where_a_partition_is_whole(state):
    assert all(cell.exact for cell in cells(state, plan(state, [ALL_KEYS])))
    assert not any(cell.exact for cell in cells(state, plan(state, [EncodedRange(key("b"), key("c"))])))


@pytest.mark.parametrize(("file_bytes", "cores", "expected"), [(10**6, 1, 1), (400, 1, 4), (10**6, 8, 1)])
def test_there_are_as_many_parts_as_their_bytes_make_files(state, file_bytes, cores, expected):
    """16 rows of 100 bytes: too few to keep idle cores busy."""
    assert parts_wanted(cells(state, plan(state, [ALL_KEYS])), file_bytes, cores) == expected
