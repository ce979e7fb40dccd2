"""No flipped bit of a stored file changes an answer without an error, through any interface of this process."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.adversarial.flips import INTERFACES, Finding, Flip, files_of, make, opened, regions_of, try_interfaces

TABLES = ("flat", "several")
SEED = int(os.environ.get("LAKEBED_FLIPS_SEED", "12"))
MANY = int(os.environ.get("LAKEBED_FLIPS", "20000"))
INTERFACES_A_FLIP = 3
"""In the small run each flip is read through this many interfaces, in turns."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("flips") / "lake"
    make(root.as_uri())
    return root


def expected(root: Path, name: str) -> dict[str, Any]:
    """Return the answer of each interface for undamaged files."""
    with opened(root.as_uri(), name) as (lake, table):
        return {interface: read(lake, table) for interface, read in INTERFACES.items()}


first_answers = functools.cache(expected)


def flipped(root: Path, flips: int, interfaces_a_flip: int) -> tuple[list[Finding], Counter[str]]:
    """Flip bits of both tables one after another; return the findings, and the number of reads that reported each
    region.
    """
    chance = random.Random(SEED)
    findings: list[Finding] = []
    reported: Counter[str] = Counter()
    for name in TABLES:
        answers = first_answers(root, name)
        with opened(root.as_uri(), name) as (_, table):
            among = regions_of(table, root)
        backoff = itertools.cycle(INTERFACES)
        for _ in range(flips // len(TABLES)):
            flip = Flip.any_of(among, chance)
            interfaces = list(itertools.islice(backoff, interfaces_a_flip))
            with flip.on_disk(root), opened(root.as_uri(), name) as (lake, table):
                found, errors = try_interfaces(lake, table, interfaces, answers, flip)
            findings += found
            reported[flip.region.name] += errors
    return findings, reported


def shown(findings: Sequence[Finding]) -> str:
    return "\n".join(
        f"{one.interface}: {one.flip.region.name}, byte {one.flip.offset}: {one.seen}" for one in findings[:40]
    )


def test_every_interface_gives_the_same_answer_again(root: Path) -> None:
    """Otherwise a difference after a flip would prove nothing."""
    for name in TABLES:
        assert expected(root, name) == first_answers(root, name)


def test_the_files_have_all_kinds_of_regions(root: Path) -> None:
    found = set()
    for name in TABLES:
        with opened(root.as_uri(), name) as (_, table):
            assert len(files_of(table)) > 2
            found |= {region.name for region in regions_of(table, root)}
    kinds = (
        "pages",
        "headers of pages",
        "dictionary",
        "headers of dictionary",
        "offset index",
        "column index",
        "filter",
    )
    assert all(any(name.startswith(f"{kind} of ") for name in found) for kind in kinds)
    assert {"footer", "block digests", "filters of keys", "summary"} <= found


def test_no_flipped_bit_goes_unnoticed(root: Path) -> None:
    findings, reported = flipped(root, 60, INTERFACES_A_FLIP)
    assert not findings, shown(findings)
    # The flips were detected at all.
    assert sum(reported.values()) > 15


@pytest.mark.slow
def test_no_flipped_bit_of_very_many_goes_unnoticed_through_any_interface(root: Path) -> None:
    findings, reported = flipped(root, MANY, len(INTERFACES))
    assert not findings, shown(findings)
    assert all(reported[name] for name in ("footer", "block digests", "summary"))
