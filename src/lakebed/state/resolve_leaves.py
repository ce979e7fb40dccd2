"""Resolving what changes the leaves: splits, joins, and removals, which split first where they must. Pure.

* Leaves are joined only if no open job meets them, and every file that one of them refers to is referred to by each of
  the others that it reaches. A file that is not was merged away there, and its rows would come back.
* A removal leaves no reference that is removed in part. Where it ends inside a leaf that has rows on both sides, as far
  as bounds and exact ranks tell, the leaf is cut there. So a job that is open over the leaf finds none of its inputs in
  the part that went, and brings nothing back.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lakebed.files import Reference
from lakebed.keys import EncodedRange, iter_ranges
from lakebed.state.apply import apply
from lakebed.state.transactions import (
    ChainRuns,
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

    from lakebed.files import DataFile, LeafFile
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
    for held in state.held_by(offer.leaf):
        for index, (rows, exact) in enumerate(_split_shares(held, offer, keys)):
            if (rows or not exact) and held.file.reaches(parts.range_at(position + index)):
                references.append(Reference(held.file.id, parts.ids[position + index], rows, exact, held.run))
    return SplitLeaf(offer.leaf, offer.keys, tuple(references))


def _split_shares(held: LeafFile, offer: OfferSplit, keys: EncodedRange) -> list[tuple[int, bool]]:
    """The rows of one reference in each part of its leaf; they sum to what the reference had."""
    file = held.file
    edges = [keys.min, *offer.keys]
    summary = offer.summaries.get(file.id)
    if summary is None:
        # Arrived after the split was planned: even shares over the parts that its bounds reach.
        summary = Summary((file.min_key,), (0,), file.rows, file.max_key)
    ranks = [summary.rank(edge) for edge in edges]
    ranks.append((summary.rows, True) if keys.max is None else summary.rank(keys.max))
    counts = [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]
    if all(exact for _, exact in counts):
        return counts
    return _scaled(counts, held.rows)


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


def resolve_chain(offer: ChainRuns, state: TableState) -> ChainRuns | Repeated | Rejected:
    """A chain of what the leaf refers to now; refused if a part of it is gone, or if two files of it overlap.

    An open job does not mind: it claims files, and knows of no runs.
    """
    held = {one.file.id: one for one in state.held_by(offer.leaf)}
    gone = [name for name in offer.files if name not in held]
    if gone or len(set(offer.files)) != len(offer.files) or len(offer.files) < 2:
        named = f"{gone[0]}, which leaf {offer.leaf} does not refer to" if gone else "less than two files, or one twice"
        return Rejected(f"a chain of {named}; plan again")
    links = sorted((held[name] for name in offer.files), key=lambda one: (one.file.min_key, one.file.max_key))
    if all(one.run == offer.run for one in links):
        return Repeated(state.number)
    others = (held[name] for name in held.keys() - set(offer.files))
    if any(one.run == offer.run for one in others):
        return Rejected(f"leaf {offer.leaf} has a run {offer.run} already")
    for a, b in itertools.pairwise(links):
        # Files of one run may share a key, at which the one ends and the other begins.
        if a.file.max_key > b.file.min_key or (a.file.max_key == b.file.min_key and a.run != b.run):
            return Rejected(f"files {a.file.id} and {b.file.id} overlap, and are no run together")
    return offer


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
    held = [{one.file.id: one for one in state.held_by(leaf)} for leaf in offer.leaves]
    joined: dict[str, Reference] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(held)):
        parts = [references[name] for references in held if name in references]
        file = parts[0].file
        for leaf, references, keys in zip(offer.leaves, held, ranges, strict=True):
            if name not in references and file.reaches(keys):
                return Rejected(f"file {name} reaches into leaf {leaf}, which has no rows of it; compact first")
        rows, exact = sum(one.rows for one in parts), all(one.exact for one in parts)
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


def files_cut(ranges: Sequence[EncodedRange], state: TableState) -> list[DataFile]:
    """The files whose summaries would sharpen the estimates that a removal has to make."""
    cuts = _cuts(tuple(iter_ranges(ranges)), state)
    held = [(file, ends) for leaf, ends in cuts.items() for file in state.files_of(leaf)]
    return list(dict.fromkeys(f for f, ends in held if any(f.min_key < end <= f.max_key for end in ends)))


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
