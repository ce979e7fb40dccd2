"""Compaction strategies: they choose the runs of a partition to merge, and those that need no merge. Pure: no I/O.

A strategy considers the runs of one partition that no open job merges, smallest first, and chooses those to merge
together. It counts runs, not files, and their bytes inside the partition. Runs of the target size
(``compaction_run_bytes``) are left out, so that large runs are not rewritten repeatedly:

* ``basic``: every full batch of ``compaction_batch_runs`` runs, the smallest first; the rest waits for more runs.
* ``size-ratio``: runs of like size. A set of runs is of like size if all but the largest together have at least
  ``compaction_ratio`` times its bytes, so that each row is merged into a run several times larger, and rewritten
  logarithmically often. The largest runs are left out until the others are of like size; if these exceed a batch, every
  window of a batch that is of like size is a job. With a ratio of three at least four runs are merged.
* ``by-bytes``: the smallest runs that together reach the target size. Each row is rewritten once; until then a query
  merges as many runs as make up the target.
* ``full``: all runs, however large. A single run is left alone however many files it has: they do not overlap, so a
  merge would not make any query faster.

Before any of them, runs that do not overlap are *concatenated*: they become one run without a merge. A table whose keys
grow with time is therefore hardly ever rewritten. Runs of files that are small on average are merged instead.

If a strategy finds nothing, :func:`overdue` bounds the number of runs. When all jobs have been done, a partition has at
most :data:`RUNS_MAX` runs, whatever the settings and the load. Under size-ratio with a ratio r it has fewer than

    2 + log(r * compaction_run_bytes / smallest run) / log(1 + 1/r) + size of the partition / compaction_run_bytes

which is 78 runs of less than 1 GiB by default, and the larger ones.

In tables that merge rows, the order of arrival limits the runs that may be merged together:
:mod:`lakebed.upkeep.compaction.neighbours`.

Core types: :class:`Run`, :data:`Batch`.

Source of basic and size-ratio: Sleeper; docs/decisions/0022 for what differs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, assert_never

from lakebed.model.settings import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.model.files import PartitionFile
    from lakebed.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted sequence of rows inside a partition.

    ``size_bytes`` counts its files in proportion to their rows inside. ``concatenated`` is the number of runs of the
    partition that it consists of.
    """

    held: tuple[PartitionFile, ...]
    rows: int
    exact: bool
    size_bytes: int
    min_key: bytes
    max_key: bytes
    concatenated: int = 1

    @staticmethod
    def of(held: Iterable[PartitionFile], concatenated: int = 1) -> Run:
        """Return the run of these references."""
        every = tuple(held)
        return Run(
            every,
            rows=sum(one.rows for one in every),
            exact=all(one.exact for one in every),
            size_bytes=sum(one.file.size_bytes * one.rows // one.file.rows for one in every),
            min_key=min(one.file.min_key for one in every),
            max_key=max(one.file.max_key for one in every),
            concatenated=concatenated,
        )


Batch = tuple[Run, ...]
"""Runs to merge into one."""

RUNS_MAX = 256
"""A partition with more runs is compacted under any strategy. By-bytes had 230 after a day (docs/performance.md)."""


def runs_of(held: Iterable[PartitionFile]) -> list[Run]:
    """Return the runs of a partition, in the order in which their first files arrived."""
    named: dict[str, list[PartitionFile]] = {}
    for reference in held:
        named.setdefault(reference.run, []).append(reference)
    return list(map(Run.of, named.values()))


def concatenated(runs: Iterable[Run], size_bytes_min: int) -> list[Run]:
    """Return the runs after concatenating those that do not overlap, as few as possible.

    Runs that share a key are not concatenated: rows of this key would be sorted within each run but not across them. A
    run whose files average less than ``size_bytes_min`` is not concatenated either.
    """
    apart: list[Run] = []
    groups: list[list[Run]] = []
    # In the order of least keys, each run is appended to the group that ends first: this makes the fewest groups.
    ends: list[tuple[bytes, int]] = []
    for run in sorted(runs, key=lambda run: (run.min_key, run.max_key)):
        if run.size_bytes < size_bytes_min * len(run.held):
            apart.append(run)
            continue
        if ends and ends[0][0] < run.min_key:
            _, index = heapq.heappop(ends)
            groups[index].append(run)
        else:
            index = len(groups)
            groups.append([run])
        heapq.heappush(ends, (run.max_key, index))
    return apart + [Run.of((one for run in links for one in run.held), len(links)) for links in groups]


def batches(strategy: Strategy, runs: Sequence[Run], settings: Settings) -> list[Batch]:
    """Return the batches of runs that the strategy merges: disjoint, of two or more runs, smallest first."""
    least_first = sorted(runs, key=lambda run: run.size_bytes)
    if strategy is Strategy.FULL:
        return [tuple(least_first)] if len(runs) > 1 else []
    small = [run for run in least_first if run.size_bytes < settings.compaction_run_bytes]
    match strategy:
        case Strategy.BASIC:
            return _basic(small, settings.compaction_batch_runs)
        case Strategy.SIZE_RATIO:
            return _size_ratio(small, settings.compaction_batch_runs, settings.compaction_ratio)
        case Strategy.BY_BYTES:
            return by_bytes(small, settings.compaction_run_bytes)
        case _:
            assert_never(strategy)


def of_like_size(sizes: Sequence[int], ratio: float) -> int:
    """Return the largest number of these ascending sizes such that all but the largest sum to ``ratio`` times the
    largest.

    0 if not even two do.
    """
    passed = list(accumulate(sizes, initial=0))
    count = len(sizes)
    while count > 1 and ratio * sizes[count - 1] > passed[count - 1]:
        count -= 1
    return count if count > 1 else 0


def overdue(strategy: Strategy, runs: Sequence[Run], settings: Settings) -> list[Batch]:
    """Return what to merge if :func:`batches` finds nothing, so that the number of runs stays bounded.

    A batch of ``compaction_batch_runs`` may be too small for ``compaction_ratio``: four runs, of which three must have
    three times the bytes of the fourth, must have exactly one size. Runs that are of like size only together are then
    merged as by basic. Above RUNS_MAX runs, or half of the setting ``runs_max`` (above which writes are refused), the
    smallest runs are merged, however large they are, so that half of that bound remains: each row is merged again only
    after as many more runs.
    """
    least_first = sorted(runs, key=lambda run: run.size_bytes)
    if strategy is Strategy.SIZE_RATIO:
        small = [run for run in least_first if run.size_bytes < settings.compaction_run_bytes]
        alike = of_like_size([run.size_bytes for run in small], settings.compaction_ratio)
        alike_batches = _basic(small[:alike], settings.compaction_batch_runs)
        if alike_batches:
            return alike_batches
    bound = runs_bound(settings)
    if len(least_first) <= bound:
        return []
    return [tuple(least_first[: len(least_first) - max(1, bound // 2) + 1])]


def runs_bound(settings: Settings) -> int:
    """Return the number of runs of a partition above which some are merged whatever their sizes."""
    return min(RUNS_MAX, max(1, settings.runs_max // 2)) if settings.runs_max else RUNS_MAX


def _basic(small: Sequence[Run], batch: int) -> list[Batch]:
    return [tuple(small[start : start + batch]) for start in range(0, len(small) - batch + 1, batch)]


def _size_ratio(small: Sequence[Run], batch: int, ratio: float) -> list[Batch]:
    count = of_like_size([run.size_bytes for run in small], ratio)
    if count <= batch:
        return [tuple(small[:count])] if count else []
    passed = list(accumulate((run.size_bytes for run in small), initial=0))
    selected: list[Batch] = []
    begin = 0
    while begin + batch <= count:
        end = begin + batch
        if ratio * small[end - 1].size_bytes <= passed[end - 1] - passed[begin]:
            selected.append(tuple(small[begin:end]))
            begin = end
        else:
            begin += 1
    return selected


def by_bytes(small: Sequence[Run], target_bytes: int) -> list[Batch]:
    """Return batches of as many successive runs as together reach the target."""
    selected: list[Batch] = []
    batch: list[Run] = []
    size_bytes = 0
    for run in small:
        batch.append(run)
        size_bytes += run.size_bytes
        if size_bytes >= target_bytes:
            selected.append(tuple(batch))
            batch, size_bytes = [], 0
    return selected
