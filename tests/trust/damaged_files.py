"""Data files and summaries that are damaged as disks, networks and people damage them, read through every interface.

A read gives the right answer, or a DamagedError that names the object; anything else is a finding. Single flipped bits
are those of :mod:`tests.adversarial.flips`; the others change, take away or exchange whole parts of an object.
"""

from __future__ import annotations

import functools
import itertools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.adversarial.flips import INTERFACES, Finding, Flip, Region, make, opened, regions_of, try_interfaces
from tests.trust.results import Slice

TABLES = ("flat", "several")
INTERFACES_EACH = 3
HANG_S = 60.0
"""A read that takes longer counts as a hang. The target is ten seconds on a machine that does nothing else."""

BLOCK_BYTES = 512


def _sector_of_zeros(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(0, len(content), BLOCK_BYTES)
    return content[:at] + bytes(len(content[at : at + BLOCK_BYTES])) + content[at + BLOCK_BYTES :]


def _truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _longer(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.randrange(1, 100))


def _part_lost(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[:begin] + content[begin + chance.randrange(1, 200) :]


def _burst(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[:begin] + chance.randbytes(len(content[begin : begin + 16])) + content[begin + 16 :]


def _blocks_exchanged(content: bytes, chance: random.Random) -> bytes:
    blocks = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]
    if len(blocks) > 2:
        one, other = chance.sample(range(len(blocks) - 1), 2)
        blocks[one], blocks[other] = blocks[other], blocks[one]
    return b"".join(blocks)


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "sector of zeros": _sector_of_zeros,
    "truncated": _truncated,
    "bytes appended": _longer,
    "part lost": _part_lost,
    "burst of 16 bytes": _burst,
    "sectors exchanged": _blocks_exchanged,
}


@dataclass(frozen=True, slots=True)
class Replaced:
    """Other bytes in the place of an object. ``offset`` and ``region`` are for findings, as those of a flip."""

    region: Region
    content: bytes
    offset: int = 0

    @contextmanager
    def on_disk(self, root: Path) -> Iterator[None]:
        """Replace the object during the block."""
        path = root / self.region.object
        before = path.read_bytes()
        try:
            path.write_bytes(self.content)
            yield
        finally:
            path.write_bytes(before)


def _draw(root: Path, among: Sequence[Region], chance: random.Random) -> tuple[str, Any]:
    """Return a kind of damage, and the damage: half of the time a flipped bit."""
    if chance.random() < 0.5:
        return "flipped bit", Flip.any_of(among, chance)
    names = sorted({region.object for region in among})
    name = chance.choice(names)
    content = (root / name).read_bytes()
    if chance.random() < 0.15:
        others = [other for other in names if other != name and Path(other).suffix == Path(name).suffix]
        return "another file", Replaced(Region("whole", name, ()), (root / chance.choice(others)).read_bytes())
    kind = chance.choice(list(CHANGES))
    return kind, Replaced(Region("whole", name, ()), CHANGES[kind](content, chance))


@functools.cache
def _answers(root: Path, name: str) -> dict[str, Any]:
    with opened(root.as_uri(), name) as (lake, table):
        return {interface: read(lake, table) for interface, read in INTERFACES.items()}


def damaged(seed: int, count: int, only: str | None = None) -> Slice:
    """Damage objects of both tables, one after another, and read each through some interfaces in turn.

    ``only``: flip bits of regions of this name alone.
    """
    done, chance = Slice(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "lake"
        make(root.as_uri())
        for name in TABLES:
            with opened(root.as_uri(), name) as (_, table):
                among = [region for region in regions_of(table, root) if only in (None, region.name)]
            turns = itertools.cycle(chance.sample(list(INTERFACES), len(INTERFACES)))
            for _ in range(count // len(TABLES)):
                flip = only and ("flipped bit", Flip.any_of(among, chance))
                kind, damage = flip or _draw(root, among, chance)
                begun = time.monotonic()
                found, errors = _read(root, name, damage, list(itertools.islice(turns, INTERFACES_EACH)))
                if time.monotonic() - begun > HANG_S * INTERFACES_EACH:
                    done.findings.append(f"{kind} of {damage.region}: took {time.monotonic() - begun:.0f} s")
                done.units += 1
                done.events += Counter({f"damage: {kind}": 1, "reads": INTERFACES_EACH, "reported": errors})
                done.findings += [
                    f"{kind}, {one.interface}: {one.flip.region.name} of {one.flip.region.object}, "
                    f"byte {one.flip.offset}: {one.seen}"
                    for one in found
                ]
    return done


def _read(root: Path, name: str, damage: Any, interfaces: Sequence[str]) -> tuple[list[Finding], int]:
    answers = _answers(root, name)
    with damage.on_disk(root), opened(root.as_uri(), name) as (lake, table):
        return try_interfaces(lake, table, interfaces, answers, damage)
