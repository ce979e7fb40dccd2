"""Resolving what changes the leaves: splits, joins, and removals, which split first where they must. Pure.

* Leaves are joined only if no open job meets them, and every file that one of them refers to is referred to by each of
  the others that it reaches. A file that is not was merged away there, and its rows would come back.
* A removal leaves no reference that is removed in part. Where it ends inside a leaf that has rows on both sides, as far
  as bounds and exact ranks tell, the leaf is cut there. So a job that is open over the leaf finds none of its inputs in
  the part that went, and brings nothing back.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.files import Reference
from lakebed.keys import EncodedRange, iter_ranges
from lakebed.state.apply import apply
from lakebed.state.transactions import (
    JoinLeaves,
    OfferJoin,
    OfferRemove,
    OfferSplit,
    Rejected,
    RemoveRange,
    Repeated,
    SplitLeaf,
)
from lakebed.summaries import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.state.table import TableState

FENCES_MAX = 1_000
"""Every add is held against every fence. Garbage collection takes them down once they are as old as request keys."""


def resolve_split(offer: OfferSplit, state: TableState) -> SplitLeaf | Rejected:
    """A split of the leaf as it is now, or why there is none."""
    position = state.leaves.position_of(offer.leaf)
    if position is None:
        return Rejected(f"leaf {offer.leaf} is gone: it was split or joined before")
    keys = state.leaves.range_at(position)
    ascending = all(a < b for a, b in zip((keys.min, *offer.keys), offer.keys, strict=False))
    if not offer.keys or not ascending or (keys.max is not None and offer.keys[-1] >= keys.max):
        return Rejected(f"the keys to split leaf {offer.leaf} at do not ascend strictly inside it")
    parts = state.leaves.split(offer.leaf, offer.keys)
    references: list[Reference] = []
    for reference in state.references_of(offer.leaf):
        found = _split_shares(reference, offer, state, keys)
        for index, (rows, exact) in enumerate(found):
            part = parts.range_at(position + index)
            reaches = state.files[reference.file].file.reaches(part)
            if (rows or not exact) and reaches:
                references.append(replace(reference, leaf=parts.ids[position + index], rows=rows, exact=exact))
    return SplitLeaf(offer.leaf, offer.keys, tuple(references))


def _split_shares(
    reference: Reference, offer: OfferSplit, state: TableState, keys: EncodedRange
) -> list[tuple[int, bool]]:
    """The rows of one reference in each part of its leaf; they sum to what the reference had."""
    file = state.files[reference.file].file
    edges = [keys.min, *offer.keys]
    summary = offer.summaries.get(reference.file)
    if summary is None:
        # Arrived after the split was planned: even shares over the parts that its bounds reach.
        summary = Summary((file.min_key,), (0,), file.rows, file.max_key)
    ranks = [summary.rank(edge) for edge in edges]
    ranks.append((summary.rows, True) if keys.max is None else summary.rank(keys.max))
    counts = [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]
    if all(exact for _, exact in counts):
        return counts
    return _scaled(counts, reference.rows)


def _scaled(counts: Sequence[tuple[int, bool]], rows: int) -> list[tuple[int, bool]]:
    """Shares of ``rows`` in proportion to the counts; one proved exact keeps its flag only if it stays as it was."""
    total = sum(count for count, _ in counts)
    shared: list[tuple[int, bool]] = []
    passed = given = 0
    for index, (count, exact) in enumerate(counts):
        passed += count
        # With nothing to go by, everything even.
        upto = rows * passed // total if total else rows * (index + 1) // len(counts)
        shared.append((upto - given, exact and upto - given == count))
        given = upto
    return shared


def resolve_join(offer: OfferJoin, state: TableState) -> JoinLeaves | Rejected:
    """A join of the leaves as they are now, or why there is none."""
    positions = [state.leaves.position_of(leaf) for leaf in offer.leaves]
    if None in positions:
        return Rejected(f"leaf {offer.leaves[positions.index(None)]} is gone: it was split or joined before")
    found = [position for position in positions if position is not None]
    if len(found) < 2 or any(b - a != 1 for a, b in itertools.pairwise(found)):
        return Rejected(f"to join takes two or more neighbours in key order, not {list(offer.leaves)}")
    ranges = [state.leaves.range_at(position) for position in found]
    whole = EncodedRange(ranges[0].min, ranges[-1].max)
    for job in state.jobs.values():
        if not job.keys.intersect(whole).empty:
            return Rejected(f"job {job.id} is open there; join when it is closed")
    held = [{r.file: r for r in state.references_of(leaf)} for leaf in offer.leaves]
    joined: dict[str, Reference] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(held)):
        parts = [references[name] for references in held if name in references]
        file = state.files[name].file
        for leaf, references, keys in zip(offer.leaves, held, ranges, strict=True):
            if name not in references and file.reaches(keys):
                return Rejected(f"file {name} reaches into leaf {leaf}, which has no rows of it; compact first")
        rows, exact = sum(r.rows for r in parts), all(r.exact for r in parts)
        joined[name] = Reference(name, state.leaves.next_id, rows, exact, parts[0].run)
    spans = {name: (state.files[name].sequence_hi, state.files[name].sequence_lo) for name in joined}
    return JoinLeaves(
        offer.leaves, tuple(joined[name] for name in sorted(joined, key=lambda name: (spans[name], name)))
    )


def resolve_remove(offer: OfferRemove, state: TableState) -> RemoveRange | Repeated | Rejected:
    """A removal from the leaves as they are now. Nothing there to remove, and no fence: no entry."""
    ranges = tuple(iter_ranges(offer.ranges))
    if not ranges:
        return Rejected("there is no key in the ranges to remove")
    if offer.fence and len(state.fences) + len(ranges) > FENCES_MAX:
        return Rejected(f"there are {len(state.fences)} fences, at most {FENCES_MAX}; collect garbage, and try again")
    splits: list[SplitLeaf] = []
    leaves: list[int] = []
    for leaf, ends in _cuts(ranges, state).items():
        split = resolve_split(OfferSplit(leaf, ends, offer.summaries), state)
        assert isinstance(split, SplitLeaf), split
        after = apply(state, split, state.number)
        going = _inside(after, split, ranges)
        if len(going) == len(split.references):
            leaves += [leaf] if going else []
        elif going:
            splits.append(split)
            state = after
    for keys in ranges:
        for position in state.leaves.overlapping(keys):
            leaf = state.leaves.ids[position]
            if state.references_of(leaf) and keys.covers(state.leaves.range_at(position)):
                leaves.append(leaf)
    if not leaves and not offer.fence:
        return Repeated(state.number)
    return RemoveRange(ranges, offer.fence, tuple(splits), tuple(leaves))


def files_cut(ranges: Sequence[EncodedRange], state: TableState) -> list[str]:
    """The files whose summaries would sharpen the estimates that a removal has to make."""
    cuts = _cuts(tuple(iter_ranges(ranges)), state)
    held = [(state.files[r.file].file, ends) for leaf, ends in cuts.items() for r in state.references_of(leaf)]
    return list(dict.fromkeys(f.id for f, ends in held if any(f.min_key < end <= f.max_key for end in ends)))


def _cuts(ranges: Sequence[EncodedRange], state: TableState) -> dict[int, tuple[bytes, ...]]:
    """The ends of the ranges that lie strictly inside a leaf, ascending, by leaf."""
    cuts: dict[int, tuple[bytes, ...]] = {}
    for key in [end for keys in ranges for end in (keys.min, keys.max) if end is not None]:
        position = state.leaves.position(key)
        if state.leaves.range_at(position).min != key:
            leaf = state.leaves.ids[position]
            cuts[leaf] = (*cuts.get(leaf, ()), key)
    return cuts


def _inside(after: TableState, split: SplitLeaf, ranges: Sequence[EncodedRange]) -> set[int]:
    """Which references of a split, by their place among them, lie inside the ranges."""
    inside = set()
    for place, reference in enumerate(split.references):
        position = after.leaves.position_of(reference.leaf)
        assert position is not None
        if any(keys.covers(after.leaves.range_at(position)) for keys in ranges):
            inside.add(place)
    return inside
