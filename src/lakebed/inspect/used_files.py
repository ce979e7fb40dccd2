"""The data files that a table uses, for a verification of their objects: which, how much of each, and a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.model.files import data_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.findings import Finding
    from lakebed.model.keys import EncodedRange
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class Used:
    """A data file, and what the partitions that refer to it take of it."""

    file: DataFile
    slices: tuple[tuple[EncodedRange, PartitionFile], ...]

    @property
    def rows(self) -> int:
        """Rows of the table that it holds."""
        return sum(held.rows for _, held in self.slices)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """Which files were read: so many of ``of_files``, with so many bytes and rows; chosen by ``seed``, if not all."""

    files: int
    of_files: int
    size_bytes: int
    of_bytes: int
    rows: int
    seed: int | None


def used_files(state: TableState) -> list[Used]:
    """All files that partitions refer to."""
    found: dict[str, list[tuple[EncodedRange, PartitionFile]]] = {}
    for position, partition in enumerate(state.partitions.ids):
        keys = state.partitions.range_at(position)
        for held in state.held_by(partition):
            found.setdefault(held.file.id, []).append((keys, held))
    return [Used(slices[0][1].file, tuple(slices)) for slices in found.values()]


def sampled(used: Sequence[Used], share: float, seed: int) -> list[Used]:
    """Files by chance, until they have that share of all bytes; at least one, if there is one. Pure."""
    chance = clock.chance(seed)
    # By their ids, so that a seed chooses the same files wherever the partitions lie.
    order = sorted(used, key=lambda one: one.file.id)
    chance.shuffle(order)
    wanted = share * sum(one.file.size_bytes for one in used)
    found: list[Used] = []
    for one in order:
        if sum(other.file.size_bytes for other in found) >= wanted:
            break
        found.append(one)
    return found


def placed(finding: Finding, used: Used, state: TableState, storage: Storage) -> Finding:
    """The finding with the file that it is about, and what that holds."""
    codec, file = state.created.codec, used.file
    finding = replace(finding, remedy=finding.remedy + _still_readable(file, state)) if finding.damage else finding
    return replace(
        finding,
        file=file.id,
        object=storage.object_url(data_name(state.table, file)),
        min_key=codec.decode_values(file.min_key),
        max_key=codec.decode_values(file.max_key),
        rows=used.rows,
    )


def _still_readable(file: DataFile, state: TableState) -> str:
    """Where else the rows of a file are: in those that it was merged from, until they are collected."""
    added = state.files[file.id].added
    merged = (one for one in state.files.values() if one.dropped == added and not one.retired and one.file is not None)
    if (
        added > 1
        and state.retains(added - 1)
        and any(one.facts.max_key >= file.min_key and one.facts.min_key <= file.max_key for one in merged)
    ):
        return f"; its rows can still be read as they were before it was made, at version {added - 1}: tag that version"
    return ""
