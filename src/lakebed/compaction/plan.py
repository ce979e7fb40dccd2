"""Which leaves to compact, and how a large one is shared out among tasks. Pure: no I/O.

A strategy looks at one leaf and says whether its references should become one run; there is one strategy so far:

* ``full``: every leaf that holds more than one run is merged wholly. A leaf of one run is left alone however many
  files it has: they do not overlap, so that a merge would move rows and answer no query faster.

A leaf becomes one *job*, which is committed by one ``replace``. Its rows may be merged by several *tasks*, each over a
sub-range of the leaf's keys: when the input is larger than one task should take, and when the planned jobs alone would
leave cores idle. The tasks' ranges tile the leaf, so every row goes through exactly one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import UsageError
from lakebed.keys import EncodedRange
from lakebed.state.sums import LeafSums, leaf_sums
from lakebed.summaries import even_cuts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.files import DataFile
    from lakebed.settings import Settings
    from lakebed.state.table import TableState
    from lakebed.summaries import Summary

STRATEGIES = ("full",)

SHARE_BYTES_MIN = 32 * 1024 * 1024
"""A merge of less is not shared out: a second file, with its footer and request, costs more than a core saves."""

SLICE_SHARE = 8
"""A merge plan reads an eighth of the memory limit at once: what it has read it holds to its end, some of it twice. At
each border between slices one page of every input is decoded twice, so slices are no smaller than need be."""


@dataclass(frozen=True, slots=True)
class LeafMerge:
    """All references of one leaf, to become one run. ``rows`` and ``size_bytes`` are those inside the leaf."""

    leaf: int
    keys: EncodedRange
    inputs: tuple[DataFile, ...]
    runs: int
    rows: int
    exact: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A leaf that is due and is left alone this time, and why."""

    leaf: int
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to merge, leaves with most runs first; and what has to wait."""

    merges: tuple[LeafMerge, ...]
    skipped: tuple[Skipped, ...]


def check_strategy(strategy: str | None) -> None:
    """Raise UsageError for a strategy that does not exist."""
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(f"no compaction strategy {strategy!r}; there is: {', '.join(STRATEGIES)}", strategy=strategy)


def plan(state: TableState, strategy: str | None = None) -> CompactionPlan:
    """What the strategy wants done to this state. Raises UsageError for a strategy that does not exist."""
    check_strategy(strategy)
    merges, skipped = [], []
    sums = leaf_sums(state)
    for position, leaf in enumerate(state.leaves.ids):
        held = sums.get(leaf)
        if held is None or held.runs < 2:
            continue
        merge = _leaf_merge(state, position, held)
        jobs = open_jobs(state, merge.keys)
        if jobs:
            skipped.append(Skipped(leaf, f"job {jobs[0]} is open there"))
        else:
            merges.append(merge)
    # A query merges as many runs as its leaf has, so the leaf with most of them gains most.
    merges.sort(key=lambda m: -m.runs)
    return CompactionPlan(tuple(merges), tuple(skipped))


def whole(state: TableState, leaves: Iterable[int]) -> CompactionPlan:
    """Merge these leaves, whatever a strategy thinks of them: their files then lie inside them."""
    positions = {leaf: state.leaves.position_of(leaf) for leaf in leaves}
    sums = leaf_sums(state)
    return CompactionPlan(
        tuple(_leaf_merge(state, position, sums[leaf]) for leaf, position in positions.items() if position is not None),
        (),
    )


def _leaf_merge(state: TableState, position: int, held: LeafSums) -> LeafMerge:
    return LeafMerge(
        leaf=held.leaf,
        keys=state.leaves.range_at(position),
        inputs=state.files_of(held.leaf),
        runs=held.runs,
        rows=held.rows,
        exact=held.exact,
        size_bytes=held.size_bytes,
    )


def open_jobs(state: TableState, keys: EncodedRange) -> list[str]:
    """Ids of the open jobs that work inside the range."""
    return [job.id for job in state.jobs.values() if not job.keys.intersect(keys).empty]


def tasks_of(merge: LeafMerge, settings: Settings, cores: int) -> int:
    """How many tasks should share a merge if ``cores`` are free for it."""
    needed = -(-merge.size_bytes // settings.merge_task_bytes)
    useful = merge.size_bytes // SHARE_BYTES_MIN
    return max(1, needed, min(cores, useful))


def cut(merge: LeafMerge, summaries: Sequence[Summary], count: int) -> tuple[EncodedRange, ...]:
    """The merge's range as at most ``count`` sub-ranges of about even rows, in key order, that tile it."""
    edges = even_cuts(summaries, count, merge.keys.min, merge.keys.max)
    lows = (merge.keys.min, *edges)
    return tuple(EncodedRange(low, high) for low, high in zip(lows, (*edges, merge.keys.max), strict=True))


def share_out(
    merge: LeafMerge, summaries: Sequence[Summary], tasks: int, slice_bytes: int
) -> list[tuple[EncodedRange, ...]]:
    """For each task the slices of keys that it merges one after another, each of at most about so many bytes."""
    slices = max(1, -(-merge.size_bytes // (tasks * slice_bytes)))
    parts = cut(merge, summaries, tasks * slices)
    count = min(tasks, len(parts))
    return [parts[i * len(parts) // count : (i + 1) * len(parts) // count] for i in range(count)]


def inputs_of(inputs: Iterable[DataFile], keys: EncodedRange) -> tuple[DataFile, ...]:
    """The inputs that may have rows in the range: a task fetches no other."""
    return tuple(file for file in inputs if file.reaches(keys))
