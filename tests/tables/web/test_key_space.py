"""The picture of a key space: which partitions are drawn as one, how wide, and in which colour."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.partitions import Partitions
from lakebed.model.state.sums import newest_files
from lakebed.read.drawing.key_space import CELLS_MAX, GROUPS_MAX, WIDTH, KeySpace, Scale, layout, part_of


def space_of(rows: list[int]) -> KeySpace:
    """A table of partitions with so many rows each, in a file each."""
    figures = np.array(rows, np.int64)
    ones = np.ones(len(rows), np.int64)
    bounds = tuple(number.to_bytes(8, "big") for number in range(1, len(rows)))
    return KeySpace(1, Partitions.at(bounds), figures, figures * 10, ones, ones, ones * 10**15)


def test_a_partition_is_as_wide_as_its_share():
    icicle = layout(space_of([10, 30, 60]), range(3), "rows", "files")
    assert [(cell.first, cell.last) for cell in icicle.cells] == [(0, 1), (1, 2), (2, 3)]
    widths = [cell.width for cell in icicle.cells]
    assert sum(widths) == pytest.approx(WIDTH, abs=0.01)
    assert widths[0] < widths[1] < widths[2]
    assert icicle.groups == ()


def test_an_empty_partition_can_be_seen():
    cells = layout(space_of([1000, 0, 1000]), range(3), "rows", "files").cells
    assert cells[1].width > 10


def test_many_partitions_are_drawn_as_few_groups_that_have_each_of_them_once():
    rows = [(number * 7919) % 1000 for number in range(132_000)]
    icicle = layout(space_of(rows), range(132_000), "rows", "files")
    assert len(icicle.groups) <= GROUPS_MAX
    assert len(icicle.cells) <= CELLS_MAX
    for cells in (icicle.groups, icicle.cells):
        assert [cell.first for cell in cells] == [0, *(cell.last for cell in cells[:-1])]
        assert cells[-1].last == 132_000
        assert sum(cell.rows for cell in cells) == sum(rows)


def test_one_partition_with_nearly_all_rows_does_not_hide_the_others():
    icicle = layout(space_of([1] * 500 + [10**9] + [1] * 500), range(1001), "rows", "files")
    assert icicle.cells[-1].last == 1001
    assert any(cell.first == 500 and cell.last == 501 for cell in icicle.cells)


def test_only_a_part_is_drawn():
    icicle = layout(space_of(list(range(100))), range(40, 44), "rows", "files")
    assert (icicle.whole.first, icicle.whole.last, icicle.whole.rows) == (40, 44, 166)


def test_the_part_of_a_range_has_the_partitions_that_share_a_key_with_it():
    space = space_of([1] * 10)
    assert part_of(space, ALL_KEYS) == range(10)
    assert part_of(space, EncodedRange((3).to_bytes(8, "big"), (5).to_bytes(8, "big"))) == range(3, 5)
    assert part_of(space, EncodedRange(b"\xff" * 9)) == range(9, 10)


def test_a_scale_without_a_difference_has_one_colour():
    assert Scale("files", 3, 3).step(3) == 1
    assert [Scale("files", 0, 12).step(value) for value in (0, 3, 11, 12, 99)] == [0, 1, 5, 5, 5]
    assert Scale("age", 10, 70).step(40) == 3
    scales = [layout(space_of([1, 2]), range(2), "rows", colour).scale for colour in ("files", "bytes", "age")]
    assert [(scale.least, scale.most) for scale in scales] == [(0, 8), (0, 20), (10**15, 10**15)]


def test_the_newest_file_of_a_partition_is_the_same_from_a_checkpoint(lake, stations):
    expected = newest_files(stations.state())
    assert set(expected) == {1, 2}
    for _ in range(70):
        stations.write(pa.table({"id": ["zulu"], "at": [1], "reading": [1.0]}))
    stations.log.wait_for_checkpoint()
    reopened = lakebed.open(lake.url).table("stations").state()
    assert reopened.references.base
    found = newest_files(reopened)
    assert {partition: found[partition] for partition in expected} == expected
    assert found == {p: max(one.file.last_modified_us for one in held) for p, held in reopened.references.items()}
    assert KeySpace.of(reopened).newest_us.tolist() == [found[partition] for partition in reopened.partitions.ids]
