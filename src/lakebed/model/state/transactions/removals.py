"""Removes key ranges, and sets fences. Pure.

No reference is removed in part. If a range ends inside a partition that has rows on both sides, by bounds and exact
ranks, the partition is cut there. So an open job over the partition finds none of its inputs in the removed part, and
brings nothing back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange, iter_ranges
from lakebed.model.state.fields import Bounds, Positive, decode_bounds, encode_bounds
from lakebed.model.state.reference_lists import ReferenceList, encode_references
from lakebed.model.state.table_state import Fence
from lakebed.model.state.transactions.add_files import drop_references
from lakebed.model.state.transactions.partition_changes import (
    ProposeSplit,
    SplitPartitions,
    StoredCuts,
    bounds_of_cuts,
    decode_split,
    encode_cuts,
    resolved_split,
)
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated, refused_change
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState

FENCES_MAX = 1_000
"""Maximum number of fences: every add is compared with every fence. Garbage collection removes them once they are as
old as request keys."""


class ProposeRemoval(Struct, frozen=True, tag_field="type", tag="propose_removal"):
    """Remove all rows in the ranges that are there at the commit. ``summaries`` as in :class:`ProposeSplit`.

    With a ``fence``, files first proposed before it, and jobs opened before it, are kept out of the ranges as well.
    """

    ranges: tuple[EncodedRange, ...]
    fence: bool = False
    summaries: Mapping[str, Summary] = msgspec.field(default_factory=dict)

    def resolve(self, state: TableState) -> RemoveRange | Repeated | Rejected:
        """Return the removal from the current partitions; Repeated if there is nothing to remove and no fence."""
        if refused := refused_change(state):
            return refused
        ranges = tuple(iter_ranges(self.ranges))
        if not ranges:
            return Rejected(Code.PROPOSAL_INVALID, "there is no key in the ranges to remove")
        if self.fence and len(state.fences) + len(ranges) > FENCES_MAX:
            text = f"there are {len(state.fences)} fences, at most {FENCES_MAX}; collect garbage, and try again"
            return Rejected(Code.LIMIT_REACHED, text)
        cuts = {}
        partitions: list[int] = []
        for partition, ends in _cuts(ranges, state).items():
            split = resolved_split(ProposeSplit({partition: ends}, self.summaries), state)
            going = _places_inside(split.apply(state), split, ranges)
            if len(going) == len(split.references):
                partitions += [partition] if going else []
            elif going:
                cuts[partition] = ends
        split = resolved_split(ProposeSplit(cuts, self.summaries), state)
        after = split.apply(state)
        for keys in ranges:
            for position in after.partitions.overlapping(keys):
                partition = after.partitions.ids[position]
                if after.references_of(partition) and keys.covers(after.partitions.range_at(position)):
                    partitions.append(partition)
        if not partitions and not self.fence:
            return Repeated(state.version)
        return RemoveRange(ranges, self.fence, split, tuple(partitions))


class RemoveRange(Struct, frozen=True):
    """A removal: first the split, if it cuts any partition; then all references of these partitions are dropped."""

    ranges: tuple[EncodedRange, ...]
    fence: bool
    split: SplitPartitions
    partitions: tuple[int, ...]

    def apply(self, state: TableState) -> TableState:
        """Return the state with the partitions empty and a fence at this version."""
        state = self.split.apply(state)
        going = {partition: state.files_of(partition) for partition in self.partitions}
        for partition, files in going.items():
            if not files:
                raise Code.TRANSACTION_IMPOSSIBLE(
                    f"entry {state.version} removes from partition {partition}, which does not exist or is empty"
                )
        fences = tuple(Fence(keys, state.version) for keys in self.ranges) if self.fence else ()
        return replace(drop_references(state, going), fences=(*state.fences, *fences))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the ranges; the dropped references and their rows are not on record."""
        emptied = count_text(len(self.partitions), "partition")
        text = f"{count_text(len(self.ranges), 'range')}, {emptied} emptied{', for good' if self.fence else ''}"
        return Description(text, rows_removed=None, references_dropped=None)

    def document(self, sidecars: Sidecars) -> RemoveRangeDocument:
        """Return the document that the log stores."""
        ranges, references = list(map(encode_bounds, self.ranges)), encode_references(self.split.references, sidecars)
        return RemoveRangeDocument(ranges, self.fence, encode_cuts(self.split.cuts), references, self.partitions)


class RemoveRangeDocument(Struct, frozen=True, tag_field="type", tag="remove_range"):
    """The stored document; docs/format.md describes its fields."""

    ranges: list[Bounds]
    fence: bool
    cuts: StoredCuts
    references: ReferenceList
    partitions: tuple[Positive, ...]

    def transaction(self, sidecars: SidecarData) -> RemoveRange:
        """Return the transaction of this document."""
        split = decode_split(self.cuts, self.references, sidecars)
        return RemoveRange(tuple(map(decode_bounds, self.ranges)), self.fence, split, self.partitions)


def bounds_of_removal(ranges: Sequence[EncodedRange], state: TableState) -> dict[str, tuple[DataFile, list[bytes]]]:
    """Return the files that a removal cuts, by id, each with the ascending keys at which to count its rows."""
    return bounds_of_cuts(_cuts(tuple(iter_ranges(ranges)), state), state)


def _cuts(ranges: Sequence[EncodedRange], state: TableState) -> dict[int, tuple[bytes, ...]]:
    """Return the ends of the ranges that lie strictly inside a partition, ascending, by partition."""
    cuts: dict[int, tuple[bytes, ...]] = {}
    for key in [end for keys in ranges for end in (keys.min, keys.max) if end is not None]:
        position = state.partitions.position(key)
        if state.partitions.range_at(position).min != key:
            partition = state.partitions.ids[position]
            cuts[partition] = (*cuts.get(partition, ()), key)
    return cuts


def _places_inside(after: TableState, split: SplitPartitions, ranges: Sequence[EncodedRange]) -> set[int]:
    """Return the positions of the references of a split that lie inside the ranges."""
    inside = set()
    for index, reference in enumerate(split.references):
        position = after.partitions.position_of(reference.partition)
        assert position is not None
        if any(keys.covers(after.partitions.range_at(position)) for keys in ranges):
            inside.add(index)
    return inside
