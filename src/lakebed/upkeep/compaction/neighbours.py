"""Compaction of tables that merge rows: strategies over runs in order of arrival. Pure: no I/O.

The merge of rows with equal keys depends on their order of arrival, and the output of a job takes the place of its
inputs. So the inputs are *neighbours*: no other file of the partition arrived between them (docs/decisions/0012). The
strategies of :mod:`lakebed.upkeep.compaction.strategies` become strategies over windows of neighbours:

* ``basic``: windows of exactly ``compaction_batch_runs`` runs, those of the fewest bytes first.
* ``size-ratio``: windows of like size, of at most ``compaction_batch_runs`` runs.
* ``by-bytes``: as many runs, from the oldest on, as reach ``compaction_run_bytes`` together.
* ``full``: all runs.

Runs of the target size are left out here too, except by ``full``; a window never spans one. Runs are concatenated if
they are neighbours and have neither a delete nor a partial row.

Every job leaves fewer runs, whatever its output is, so that jobs come to an end. If the order of arrival alone keeps
runs of like size apart, :func:`overdue_windows` merges the window of the fewest bytes: between runs of the target size,
a partition without a job that is due has at most as many runs as the same runs of a table that keeps all rows.

Core types: :data:`Stretch`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, assert_never

from lakebed.model.settings import Strategy
from lakebed.upkeep.compaction.strategies import Run, by_bytes, of_like_size, runs_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from lakebed.model.files import PartitionFile
    from lakebed.model.settings import Settings
    from lakebed.upkeep.compaction.strategies import Batch

Stretch = list[Run]
"""Neighbouring runs in order of arrival, none of which an open job merges."""


def stretches_of(held: Iterable[PartitionFile], busy: Collection[str]) -> list[Stretch]:
    """Return the stretches of a partition; ``busy`` are the ids of files that jobs merge.

    A run that another one interrupts, for example after a join, counts as several.
    """
    runs = [Run.of(files) for _, files in itertools.groupby(held, key=lambda one: one.run)]
    free = itertools.groupby(runs, key=lambda run: any(one.file.id in busy for one in run.held))
    return [list(stretch) for is_busy, stretch in free if not is_busy]


def markers_of(run: Run) -> int:
    """Return the number of deletes and partial rows in the files of a run."""
    return sum(one.file.markers for one in run.held)


def concatenated_neighbours(stretch: Stretch, size_bytes_min: int) -> Stretch:
    """Concatenate neighbours of the stretch that do not overlap.

    A run whose files average less than ``size_bytes_min`` is not concatenated, because it will be merged soon; neither
    is a run with deletes or partial rows.
    """
    runs: Stretch = []
    links: list[Run] = []
    spans: list[tuple[bytes, bytes]] = []

    def close() -> None:
        if links:
            runs.append(Run.of((one for run in links for one in run.held), len(links)))
        links.clear()
        spans.clear()

    for run in stretch:
        if run.size_bytes < size_bytes_min * len(run.held) or markers_of(run):
            close()
            runs.append(run)
            continue
        if not _apart(spans, run):
            close()
        links.append(run)
        insort(spans, (run.min_key, run.max_key))
    close()
    return runs


def _apart(spans: Sequence[tuple[bytes, bytes]], run: Run) -> bool:
    """Return whether a run overlaps none of these ascending, disjoint spans of keys."""
    index = bisect_left(spans, (run.min_key, run.max_key))
    above = index == len(spans) or run.max_key < spans[index][0]
    return above and (index == 0 or spans[index - 1][1] < run.min_key)


def windows(strategy: Strategy, stretches: Sequence[Stretch], settings: Settings) -> list[Batch]:
    """Return the windows that the strategy merges: disjoint, each of two or more neighbours in order of arrival."""
    if strategy is Strategy.FULL:
        return [tuple(stretch) for stretch in stretches if len(stretch) > 1]
    selected: list[Batch] = []
    for runs in _small(stretches, settings):
        match strategy:
            case Strategy.BASIC:
                selected += _lightest(runs, settings.compaction_batch_runs)
            case Strategy.SIZE_RATIO:
                selected += _size_ratio(runs, settings.compaction_batch_runs, settings.compaction_ratio)
            case Strategy.BY_BYTES:
                selected += by_bytes(runs, settings.compaction_run_bytes)
            case _:
                assert_never(strategy)
    return selected


def overdue_windows(strategy: Strategy, stretches: Sequence[Stretch], settings: Settings) -> list[Batch]:
    """Return what to merge if :func:`windows` finds nothing, to bound the number of runs; see
    :func:`lakebed.upkeep.compaction.strategies.overdue`.
    """
    if strategy is Strategy.SIZE_RATIO:
        ratio, batch = settings.compaction_ratio, settings.compaction_batch_runs
        selected: list[Batch] = []
        for runs in _small(stretches, settings):
            parts = alike([run.size_bytes for run in runs], ratio)
            # More runs than a batch, no batch of which is of like size.
            selected += [window for part in parts for window in _lightest(runs[part.start : part.stop], batch)]
            count = of_like_size(sorted(run.size_bytes for run in runs), ratio)
            if count and not parts:
                selected += _lightest(runs, min(count, batch))[:1]
        if selected:
            return selected
    bound = runs_bound(settings)
    total = sum(map(len, stretches))
    if total <= bound:
        return []
    longest = max(stretches, key=len)
    count = min(len(longest), total - max(1, bound // 2) + 1)
    return _lightest(longest, count)[:1] if count > 1 else []


def alike(sizes: Sequence[int], ratio: float) -> list[range]:
    """Return the longest windows of like size, ascending: all but the largest come to ``ratio`` times the largest.

    If a window is not of like size, neither is any window inside it with the same largest size.
    """
    parts_alike = []
    parts = [range(len(sizes))]
    while parts:
        part = parts.pop()
        if len(part) < 2:
            continue
        largest = max(part, key=sizes.__getitem__)
        if ratio * sizes[largest] <= sum(sizes[part.start : part.stop]) - sizes[largest]:
            parts_alike.append(part)
        else:
            parts += [range(largest + 1, part.stop), range(part.start, largest)]
    return parts_alike


def _small(stretches: Iterable[Stretch], settings: Settings) -> Iterator[Stretch]:
    """Return the neighbours that are smaller than the target size."""
    for stretch in stretches:
        for is_small, runs in itertools.groupby(
            stretch, key=lambda run: run.size_bytes < settings.compaction_run_bytes
        ):
            if is_small:
                yield list(runs)


def _size_ratio(runs: Stretch, batch: int, ratio: float) -> Iterator[Batch]:
    for part in alike([run.size_bytes for run in runs], ratio):
        if len(part) <= batch:
            yield tuple(runs[part.start : part.stop])
        else:
            window = runs[part.start : part.stop]
            yield from _lightest(window, batch, lambda sizes: of_like_size(sorted(sizes), ratio) == len(sizes))


def _lightest(runs: Stretch, count: int, allowed: Callable[[Sequence[int]], bool] = lambda _: True) -> list[Batch]:
    """Return disjoint windows of ``count`` runs: the fewest bytes first and, of equal ones, the oldest first."""
    sizes = [run.size_bytes for run in runs]
    passed = list(itertools.accumulate(sizes, initial=0))
    starts = sorted(range(len(runs) - count + 1), key=lambda start: passed[start + count] - passed[start])
    taken = [False] * len(runs)
    selected: list[Batch] = []
    for start in starts:
        if not any(taken[start : start + count]) and allowed(sizes[start : start + count]):
            taken[start : start + count] = [True] * count
            selected.append(tuple(runs[start : start + count]))
    return selected
