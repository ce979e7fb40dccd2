"""The golden instance of each release is read, verified, written to and collected by the code of today.

``releases`` has an archive for each release, and none is ever changed or taken away. A release adds the golden instance
as it was then: ``cp tests/golden/instance.tar.xz tests/golden/releases/VERSION.tar.xz``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.upkeep.retention.run import gc
from tests.golden.kit import lines_of, rows_at
from tests.golden.make import ARCHIVE, FOLDER, extract

ARCHIVES = [*sorted((FOLDER / "releases").glob("*.tar.xz")), FOLDER / ARCHIVE]


def rows_of(lake):
    return {name: sorted(lines_of(rows_at(lake.table(name), None))) for name in lake.tables()}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_an_instance_of_every_release_is_read_verified_written_to_and_collected(archive: Path, tmp_path):
    root = extract(archive, tmp_path) / "lake"
    before = rows_of(lakebed.open(str(root)))
    assert len(before) > 15
    lake = lakebed.open(str(root))
    assert [(name, lake.table(name).verify(files=True, deep=True).findings) for name in before] == [
        (name, ()) for name in before
    ]
    written = 0
    for name in before:
        table = lake.table(name)
        state = table.state()
        if state.view is None and before[name]:
            table.write(table.to_arrow().slice(0, 1))
            written += 1
    assert written > 10
    after = rows_of(lake)
    assert {name for name in before if before[name]} == {name for name in after if after[name]}
    for name in before:
        lake.table(name).set(history_s=0, log_s=0)
    report = gc(lake)
    # Metadata of Iceberg name their parts by the URL where they were written.
    assert [str(error) for error in report.errors if "they were written elsewhere" not in str(error)] == []
    again = lakebed.open(str(root))
    assert rows_of(again) == after
    assert all(again.table(name).verify(files=True).sound for name in again.tables())


def test_there_is_an_instance_from_before_the_format_was_frozen():
    assert (FOLDER / "releases" / "before-0.9.0.tar.xz").exists()
