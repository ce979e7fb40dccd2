"""No flipped bit of a file on a store changes an answer without an error, whether it is fetched whole or in ranges."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.files.parquet.open_files import FetchLimits
from lakebed.model.files import data_name, summary_name
from tests.adversarial.flips import (
    FLAT,
    INTERFACES,
    Finding,
    Flip,
    Region,
    files_of,
    make,
    opened,
    regions,
    try_interfaces,
)
from tests.adversarial.test_flips import INTERFACES_A_FLIP, SEED, TABLES, shown
from tests.adversarial.test_flips_elsewhere import all_bytes, attach
from tests.s3.conftest import served

MANY = int(os.environ.get("LAKEBED_FLIPS", "20000")) // 20


@dataclass(frozen=True, slots=True)
class Store:
    """The root of an instance in a bucket, how to open it, and the answer of each interface for each table."""

    root: str
    options: dict[str, Any]
    answers: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """Both tables on a server in this process."""
    with served() as server:
        root, options = f"{server.new_bucket()}/lake", {"storage_options": server.storage_options}
        make(root, **options)
        answers = {}
        for name in TABLES:
            with opened(root, name, **options) as (lake, table):
                answers[name] = {interface: read(lake, table) for interface, read in INTERFACES.items()}
        yield Store(root, options, answers)


RANGES_ALONE = FetchLimits(copy_bytes=0, tail_bytes=4 * 1024)
"""Every file is too large to be fetched whole, or together with its footer."""


def stored_regions(table: Any) -> list[Region]:
    found = []
    for file in files_of(table):
        name = data_name(table.id, file)
        found += regions(table.storage.get(name), table.schema, name)
        if file.summarised:
            name = summary_name(table.id, file)
            found.append(Region("summary", name, ((0, len(table.storage.get(name))),)))
    return found


def flipped(store: Store, flips: int, interfaces_a_flip: int, *, by_ranges: bool) -> tuple[list[Finding], int]:
    chance = random.Random(SEED)
    findings: list[Finding] = []
    reported = 0
    for name in TABLES:
        with opened(store.root, name, **store.options) as (_, table):
            among = stored_regions(table)
        backoff = itertools.cycle(INTERFACES)
        for _ in range(flips // len(TABLES)):
            flip = Flip.any_of(among, chance)
            with opened(store.root, name, **store.options) as (lake, table):
                if by_ranges:
                    table.reader._files.limits = RANGES_ALONE
                content = table.storage.get(flip.region.object)
                table.storage.replace(flip.region.object, flip.of(content))
                interfaces = list(itertools.islice(backoff, interfaces_a_flip))
                found, errors = try_interfaces(lake, table, interfaces, store.answers[name], flip, by_ranges=by_ranges)
                table.storage.replace(flip.region.object, content)
            findings += found
            reported += errors
    return findings, reported


def test_no_flipped_bit_of_a_copied_file_goes_unnoticed(store: Store) -> None:
    findings, reported = flipped(store, 4, INTERFACES_A_FLIP, by_ranges=False)
    assert not findings, shown(findings)
    assert reported > 1


def test_no_flipped_bit_of_a_file_that_is_read_by_ranges_goes_unnoticed(store: Store) -> None:
    findings, reported = flipped(store, 10, INTERFACES_A_FLIP, by_ranges=True)
    assert not findings, shown(findings)
    assert reported > 2


def test_a_file_attached_to_a_store_is_verified_by_ranges(store: Store, tmp_path: Path) -> None:
    lake = lakebed.open(store.root, **store.options)
    attach(lake.create_table("attached", FLAT), tmp_path, with_digests=True)
    with opened(store.root, "attached", **store.options) as (lake, table):
        table.reader._files.limits = RANGES_ALONE
        answers = {
            interface: INTERFACES[interface](lake, table)
            for interface in ("get", "scan_range", "sql_all", "to_duckdb", "count_exact")
        }
        among = all_bytes(table)
        reader = table.snapshot().reader
        assert all(reader.open(file, FLAT).blocks is not None for file in files_of(table))
    chance = random.Random(SEED)
    findings, reported = [], 0
    for _ in range(6):
        flip = Flip.any_of(among, chance)
        with opened(store.root, "attached", **store.options) as (lake, table):
            table.reader._files.limits = RANGES_ALONE
            content = table.storage.get(flip.region.object)
            table.storage.replace(flip.region.object, flip.of(content))
            found, errors = try_interfaces(lake, table, list(answers), answers, flip, by_ranges=True)
            table.storage.replace(flip.region.object, content)
        findings += found
        reported += errors
    assert not findings, shown(findings)
    assert reported > 3


@pytest.mark.slow
def test_no_flipped_bit_of_very_many_on_a_store_goes_unnoticed_through_any_interface(store: Store) -> None:
    findings, _ = flipped(store, MANY, len(INTERFACES), by_ranges=True)
    assert not findings, shown(findings)
