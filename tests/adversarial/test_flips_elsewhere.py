"""Files without block digests: attached ones, whose summary has them, and those of older versions."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs

import lakebed
from lakebed import clock
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.layout import SortedFile
from lakebed.model.files import data_name, summary_name
from lakebed.model.state.transactions import ProposeFiles
from lakebed.write.attach import check_sorted
from lakebed.write.run import send_run
from tests.adversarial.flips import FILES, FLAT, INTERFACES, Flip, Region, files_of, opened, rows_of, try_interfaces
from tests.adversarial.test_flips import SEED, shown

FOREIGN_FILE = {"compression": "zstd", "write_page_index": True, "write_page_checksum": True}


def attach(table: Any, folder: Path, *, with_digests: bool) -> None:
    """Add files that PyArrow wrote, as attach does without Spark; one without digests is like one of an older
    Lakebed.
    """
    for version in range(FILES):
        path = folder / f"in-{version}.parquet"
        rows = rows_of(FLAT, version).sort_by([(name, "ascending") for name in FLAT.sort_names])
        bloom = {"bloom_filter_options": {"name": {"ndv": rows.num_rows, "fpp": 0.01}}}
        pq.write_table(rows, path, max_rows_per_page=100, row_group_size=400, **FOREIGN_FILE, **bloom)
        checked = check_sorted(path, [FLAT], (), path.name)
        assert isinstance(checked, SortedFile)
        if not with_digests:
            checked = replace(checked, summary=structs.replace(checked.summary, blocks=b""))
        sent = send_run(table.storage, table.id, [checked], job=clock.new_id())
        table.commit(ProposeFiles(sent, None, table.state().version))


def read(lake: Any, table: Any) -> dict[str, Any]:
    return {interface: INTERFACES[interface](lake, table) for interface in INTERFACES if interface != "sql_range"}


def all_bytes(table: Any) -> list[Region]:
    """Return the whole of each file, including its indexes and filters, and the summaries."""
    found = []
    for file in files_of(table):
        name = data_name(table.id, file)
        content = table.storage.get(name)
        footer = read_footer(content[-file.footer_bytes :], FLAT, name, len(content))
        assert footer.blocks is None
        found.append(Region("file", name, ((0, len(content)),)))
        found.append(Region("indexes", name, (footer.indexes,)))
        chunks = [chunk for group in footer.groups for chunk in group.chunks.values()]
        found.append(Region("filters", name, tuple(chunk.bloom_filter for chunk in chunks if chunk.bloom_filter)))
        name = summary_name(table.id, file)
        found.append(Region("summary", name, ((0, len(table.storage.get(name))),)))
    return found


@pytest.mark.parametrize("with_digests", [True, False], ids=["attached", "from before"])
def test_no_flipped_bit_of_a_file_without_digests_of_its_own_goes_unnoticed(
    tmp_path: Path, *, with_digests: bool
) -> None:
    root = tmp_path / "lake"
    table = lakebed.create(root.as_uri()).create_table("flat", FLAT)
    attach(table, tmp_path, with_digests=with_digests)
    with opened(root.as_uri(), "flat") as (lake, table):
        answers = read(lake, table)
        among = all_bytes(table)
    chance = random.Random(SEED)
    findings, reported = [], 0
    for _ in range(20):
        flip = Flip.any_of(among, chance)
        interfaces = chance.sample(list(answers), 3)
        with flip.on_disk(root), opened(root.as_uri(), "flat") as (lake, table):
            found, errors = try_interfaces(lake, table, interfaces, answers, flip)
        findings += found
        reported += errors
    assert not findings, shown(findings)
    assert reported > 6
