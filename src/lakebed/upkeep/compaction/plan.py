"""Plans compactions: which runs to merge, and how a large merge is divided among tasks. Pure: no I/O.

A strategy (:mod:`lakebed.upkeep.compaction.strategies`) chooses the runs of a partition to merge into one. The
inputs of open jobs are left out. Partitions with the most runs come first, because a query merges all runs of its
partition. A partition, and the table, have at most a certain number of open jobs. No job is started while requests or
commits pile up, because merging shortens neither queue.

Small files that reach many partitions are merged whole before that, by a job over all partitions that they reach.

A batch of runs is one *job*, which is committed by one transaction. Its rows may be merged by several *tasks*, each
over a sub-range of the partition's keys, if the input is larger than one task should take, or if the planned jobs alone
would leave cores idle. The ranges of the tasks tile the partition.

In a table that merges rows, the inputs of a job are neighbours by arrival
(:mod:`lakebed.upkeep.compaction.neighbours`). A job is *complete* if no older file of the partition is left out:
it drops deletes. A partition whose only run has deletes or partial rows is therefore due for compaction as well.

Core types: :class:`CompactionPlan`, :class:`PartitionMerge`, :class:`Concatenation`, :class:`Skipped`.

*Selects files for compaction because they contain hidden rows, even if no other compaction is due. Pure: no I/O.*

* A file with rows that are past the table's age-off by more than a quarter of the age is due. So each row is rewritten
  for this at most once in a quarter of the age, and none stays longer than five quarters of it. Files with all rows
  past the age-off are not read: :class:`~lakebed.model.state.transactions.age_off.ProposeExpiry` drops them.
* The bounds of files have times only if the age-off uses a key field. With a value field, a file is due once it was
  written before the cut: most rows have times close to when they were written.
* The strategy ``full`` also selects files from before the last change of the predicate.

In a table that merges rows, a job may drop hidden rows only if no older file is left out, so all files of a partition
are merged if one is due.

*Plans merges of small files that reach many partitions: one job over all of these partitions. Pure: no I/O.*

A write of a few hundred rows over all keys makes one file, and a reference in every partition. Merged partition by
partition, a thousand such writes to 149 partitions are 12,900 jobs, each of which opens twelve files for one row of
each: opening files is the cost, not rows. Merged whole, every file is read once, and the output is again one file with
a reference in every partition. Once such outputs are large enough, their slices are merged partition by partition like
any others.

*Candidates.* No row of the file was merged away or removed in some partition: its references are exact and sum to its
rows. Its references cover less than :attr:`CompactionLimits.slice_bytes_max` each on average. No open job merges it.

*Choice.* The candidates of like size, by the rule of size-ratio over whole files, so that write amplification is the
same; all of them under ``full``. They must save :attr:`CompactionLimits.references_min` references; otherwise merging
partition by partition is as good. In a table that merges rows they are neighbours by arrival in every partition that
they reach.

Core types: :class:`WholeFiles`.

Source: docs/decisions/0030.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from lakebed.errors import Code
from lakebed.files.sorting.slice_sizes import slice_bytes
from lakebed.model.key_summaries import even_cuts
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.settings import KIB, MIB, Strategy
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.visibility import FileTimes, kept_by_jobs
from lakebed.upkeep.compaction.neighbours import (
    alike,
    concatenated_neighbours,
    markers_of,
    overdue_windows,
    stretches_of,
    windows,
)
from lakebed.upkeep.compaction.strategies import RUNS_MAX, batches, concatenated, of_like_size, overdue, runs_of
from lakebed.write.batches import BATCHES, BatchSizes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.key_summaries import Summary
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import Job, TableState
    from lakebed.upkeep.compaction.strategies import Batch, Run


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The limits of a plan."""

    slice_bytes_max: int = 256 * KIB
    """Opening a file and planning a merge over it takes as long as merging some hundred KiB."""

    references_min: int = 256
    """Minimum references saved, about twenty tasks of twelve inputs: below it, one task over several partitions saves
    little."""

    commits_waiting_max: int = 256
    """Maximum proposals that wait in this process: more than fit into one entry, so that some wait for a whole
    commit."""

    requests_open_max: int = 1_000
    """Maximum open requests. More than this are ten ingest jobs or more, which need the cores before any merge."""

    jobs_max: int = 10_000
    """Maximum open jobs of one table: the state contains them, and no cluster runs more at a time."""

    partition_jobs_max: int = 100
    """Maximum open jobs of one partition: with more, a hundred such partitions would use all ``jobs_max``."""

    share_bytes_min: int = 32 * MIB
    """Minimum input of each task of a divided merge: below it, a second file, with its footer and request, costs more
    than a core saves."""

    batches: BatchSizes = BATCHES


LIMITS = CompactionLimits()

FILES_MAX = 2_000
"""Maximum inputs of one job, which bounds its record, the digests to verify and the levels of the merge."""


class _Seen(NamedTuple):
    """A file, and its rows in the partitions considered; ``rows`` is -1 if one of them has an estimate.

    ``positions`` has its position among the files of each partition, in order of arrival.
    """

    file: DataFile
    rows: int
    partitions: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return each partition with its position."""
        return zip(self.partitions, self.positions, strict=True)


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """Files to merge into one run, and the ids of the partitions that refer to any of them, in key order.

    ``oldest``: in every partition, the files among them are the oldest.
    """

    files: tuple[DataFile, ...]
    partitions: tuple[int, ...]
    keys: EncodedRange
    oldest: bool


def merge_whole(
    state: TableState,
    partitions: Sequence[int],
    settings: Settings,
    *,
    full: bool = False,
    limits: CompactionLimits = LIMITS,
) -> list[WholeFiles]:
    """Return the files to merge whole, among those in these partitions, which are all partitions with several runs."""
    if len(partitions) < 2:
        return []
    seen = _files_seen(state, partitions)
    bytes_max = limits.slice_bytes_max
    small = [one for one in seen if one.rows >= 0 and _is_small(one, bytes_max)]
    if any(state.files[one.file.id].references > len(one.partitions) for one in small):
        # Some of the references are in partitions of one run.
        seen = _files_seen(state, state.partitions.ids)
    small = [one for one in seen if _is_small(one, bytes_max) and one.rows == one.file.rows and len(one.partitions) > 1]
    if state.merge.keeps_all:
        small.sort(key=lambda one: one.file.size_bytes)
        sizes = [one.file.size_bytes for one in small]
        chosen: list[Sequence[_Seen]] = [small if full else small[: of_like_size(sizes, settings.compaction_ratio)]]
    else:
        chosen = _neighbours(state, seen, small)
        if not full:
            chosen = [part for group in chosen for part in _of_like_size(group, settings.compaction_ratio)]
    groups = [part for group in chosen for part in _in_parts(group)]
    return [_job(state, group) for group in groups if _saved(group) >= limits.references_min]


def _in_parts(group: Sequence[_Seen]) -> list[Sequence[_Seen]]:
    """Divide the group into even parts of at most ``FILES_MAX`` files."""
    count, parts = len(group), -(-len(group) // FILES_MAX)
    return [group[count * part // parts : count * (part + 1) // parts] for part in range(parts)]


def _of_like_size(group: Sequence[_Seen], ratio: float) -> list[Sequence[_Seen]]:
    parts = alike([seen.file.size_bytes for seen in group], ratio)
    return [group[part.start : part.stop] for part in parts]


def _neighbours(state: TableState, seen: Sequence[_Seen], small: Sequence[_Seen]) -> list[Sequence[_Seen]]:
    """Return the small files in order of arrival, in groups that a job may merge (docs/decisions/0012, rule 3).

    Files of a group are neighbours in every partition, and no file of one of its partitions, among all ``seen``, has a
    greatest sequence between those of two of the group. Files with equal sequences are left to merges of single
    partitions, which use the order of their lists.
    """
    wanted = {one.file.id for one in small}
    ordered = sorted((state.files[one.file.id].sequence_hi, index) for index, one in enumerate(seen))
    groups: list[list[_Seen]] = [[]]
    # The partitions of the last group, each with the position after its last file; and those of files that arrived
    # since the first of the group and are not in it.
    ends: dict[int, int] = {}
    barred: set[int] = set()
    for _, every in itertools.groupby(ordered, key=lambda one: one[0]):
        came = [seen[index] for _, index in every]
        reached = {partition for one in came for partition in one.partitions}
        if len(came) > 1 or came[0].file.id not in wanted:
            if reached.isdisjoint(ends):
                barred |= reached
            else:
                groups.append([])
                ends, barred = {}, set()
            continue
        [file] = came
        if not barred.isdisjoint(reached) or any(
            ends.get(partition, index) != index for partition, index in file.pairs
        ):
            groups.append([])
            ends, barred = {}, set()
        groups[-1].append(file)
        ends.update((partition, index + 1) for partition, index in file.pairs)
    return list(groups)


def _is_small(seen: _Seen, slice_bytes_max: int) -> bool:
    return seen.file.size_bytes < slice_bytes_max * len(seen.partitions)


def _files_seen(state: TableState, partitions: Iterable[int]) -> list[_Seen]:
    """Return the files in these partitions; files that an open job merges are treated as having an estimate."""
    busy = {name for job in state.jobs.values() for name in job.inputs}
    files: dict[str, DataFile] = {}
    rows: dict[str, int] = {}
    held_in: dict[str, list[tuple[int, int]]] = {}
    for partition in partitions:
        for index, reference in enumerate(state.held_by(partition)):
            name = reference.file.id
            if name not in files:
                files[name], rows[name], held_in[name] = reference.file, 0, []
            rows[name] = rows[name] + reference.rows if reference.exact and rows[name] >= 0 and name not in busy else -1
            held_in[name].append((partition, index))
    return [_Seen(file, rows[name], *zip(*held_in[name], strict=True)) for name, file in files.items()]


def _saved(group: Sequence[_Seen]) -> int:
    """Return the number of references that the state saves if the files are merged into one."""
    if len(group) < 2:
        return 0
    return sum(len(seen.partitions) for seen in group) - len(
        {partition for seen in group for partition in seen.partitions}
    )


def _job(state: TableState, group: Sequence[_Seen]) -> WholeFiles:
    first_indices: dict[int, int] = {}
    for partition, index in (pair for seen in group for pair in seen.pairs):
        first_indices[partition] = min(index, first_indices.get(partition, index))
    positions = sorted(
        position for partition in first_indices if (position := state.partitions.position_of(partition)) is not None
    )
    low, high = state.partitions.range_at(positions[0]), state.partitions.range_at(positions[-1])
    return WholeFiles(
        tuple(seen.file for seen in group),
        tuple(state.partitions.ids[position] for position in positions),
        EncodedRange(low.min, high.max),
        oldest=not any(first_indices.values()),
    )


AGED_SHARE = 4
"""Rows are kept for at most this fraction of the age past the age-off: 1/4."""

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The due files of a state under a strategy."""

    state: TableState
    strategy: Strategy
    times: FileTimes | None
    aged_us: int

    @classmethod
    def of(cls, state: TableState, strategy: Strategy) -> HiddenRows | None:
        """Return the due files; None if the table has no filter that jobs apply."""
        completes = not state.merge.by_sort_key
        if not state.filter_version or not kept_by_jobs(state, complete=completes):
            return None
        row_filter = state.row_filter
        aged_us = state.age_off_cut_us - row_filter.age_s * _US // AGED_SHARE if state.age_off_cut_us else 0
        return cls(state, strategy, FileTimes.of(state), aged_us)

    def due(self, partition: int, busy: Collection[str]) -> list[PartitionFile]:
        """Return a partition's files to merge for hidden rows, in order of arrival; none is in a job (``busy``)."""
        references = self.state.held_by(partition)
        if self.state.merge.keeps_all:
            return [one for one in references if one.file.id not in busy and self.is_due(one.file)]
        is_free = all(one.file.id not in busy for one in references)
        return list(references) if is_free and any(self.is_due(one.file) for one in references) else []

    def is_due(self, file: DataFile) -> bool:
        """Return whether the file is to be rewritten without its hidden rows."""
        if self.times is not None and self.times.are_known(file):
            aged = self.times.any_before(file, self.aged_us)
        else:
            aged = file.last_modified_us < self.state.age_off_cut_us
        if aged:
            return True
        if self.strategy is not Strategy.FULL or not self.state.row_filter.predicate:
            return False
        return self.state.files[file.id].added <= self.state.filter_version


CONCATENATED_SHARE = 8
"""Runs that do not overlap are left unchanged if their files average this fraction of ``file_bytes``: rewriting them
would make at most eight times fewer files."""

TASK_BYTES_MAX = 1024 * 1024 * 1024
"""Maximum input of one task, which is read and written again if the task is lost."""

BATCHES_PILED = 4
"""Runs pile up in a partition with more than this many batches of them: two or three wait under a steady load."""


@dataclass(frozen=True, slots=True)
class PartitionMerge:
    """Runs of one partition to merge into one. ``rows`` and ``size_bytes`` are those inside the partition.

    ``mode`` is the table's merge mode: with ``KeepAll`` the output has exactly ``rows`` rows if they are ``exact``,
    with the others at most. ``complete``: no older file has the keys, so deletes are dropped. For whole files of
    several partitions, ``partitions`` has all of them, and ``partition`` is the first.
    """

    partition: int
    keys: EncodedRange
    inputs: tuple[DataFile, ...]
    runs: int
    rows: int
    exact: bool
    size_bytes: int
    partitions: tuple[int, ...] = ()
    mode: MergeMode = KEEP_ALL
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Files of ``runs`` runs of one partition that do not overlap and become one run without a merge."""

    partition: int
    files: tuple[str, ...]
    runs: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A partition that is due but skipped, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Merges, partitions with most runs first; concatenations; and skipped partitions.

    ``whole`` are merges of whole files over several partitions. Plan again after them, because the due work in these
    partitions is not known before.
    """

    merges: tuple[PartitionMerge, ...] = ()
    concatenations: tuple[Concatenation, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    whole: tuple[PartitionMerge, ...] = ()

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose runs become fewer."""
        merged = chain.from_iterable(one.partitions or (one.partition,) for one in (*self.whole, *self.merges))
        return frozenset(chain(merged, (one.partition for one in self.concatenations)))


def check_strategy(name: str | None) -> Strategy | None:
    """Return the strategy of that name; None: the table's own. Raises UsageError for an unknown name."""
    if name is None or name in tuple(Strategy):
        return None if name is None else Strategy(name)
    raise Code.ARGUMENT_INVALID(
        f"unknown compaction strategy {name!r}; strategies: {', '.join(Strategy)}", strategy=name
    )


def plan(
    state: TableState, settings: Settings, strategy: Strategy | None = None, *, limits: CompactionLimits = LIMITS
) -> CompactionPlan:
    """Plan a compaction of this state by a strategy, by default the table's own."""
    chosen = settings.compaction_strategy if strategy is None else strategy
    hidden = HiddenRows.of(state, chosen)
    jobs = _jobs_by_partition(state)
    sums = partition_sums(state)
    room = max(0, limits.jobs_max - len(state.jobs))
    several = [
        partition
        for partition in state.partitions.ids
        if partition in sums
        and (
            sums[partition].runs > 1
            or (sums[partition].markers and _drops_markers(state))
            or (hidden is not None and hidden.due(partition, ()))
        )
    ]
    wide = merge_whole(state, several, settings, full=chosen is Strategy.FULL, limits=limits)
    together = [_merged_whole(state, one) for one in wide[:room]]
    claimed = {file.id for merge in together for file in merge.inputs}
    rules = _Rules(chosen, settings, hidden, frozenset(claimed), limits)
    room -= len(together)
    reason = f"the table has {len(state.jobs)} open jobs, and jobs planned before (limit {limits.jobs_max})"
    merges: list[PartitionMerge] = []
    concatenations: list[Concatenation] = []
    skipped: list[Skipped] = []
    # A query merges all runs of its partition, so the partition with the most runs gains most. The files of a partition
    # are decoded to plan it, so those beyond the limit are not planned.
    several.sort(key=lambda partition: -sums[partition].runs)
    for number, partition in enumerate(several):
        if len(merges) >= room:
            skipped += [Skipped(one, reason) for one in several[number:]]
            break
        found = _plan_partition(state, partition, jobs.get(partition, ()), rules)
        free = room - len(merges)
        merges += found.merges[:free]
        concatenations += found.concatenations
        skipped += found.skipped
        if len(found.merges) > free:
            skipped.append(Skipped(partition, reason))
    return CompactionPlan(tuple(merges), tuple(concatenations), tuple(skipped), tuple(together))


def _merged_whole(state: TableState, one: WholeFiles) -> PartitionMerge:
    return PartitionMerge(
        partition=one.partitions[0],
        keys=one.keys,
        inputs=one.files,
        runs=len(one.files),
        rows=sum(file.rows for file in one.files),
        exact=True,
        size_bytes=sum(file.size_bytes for file in one.files),
        partitions=one.partitions,
        mode=state.merge,
        complete=one.oldest and _may_complete(state),
    )


def whole(state: TableState, partitions: Iterable[int]) -> CompactionPlan:
    """Merge these partitions independently of strategies, so that their files then lie inside them."""
    references = {partition: state.held_by(partition) for partition in partitions}
    return CompactionPlan(
        tuple(_merge(state, partition, tuple(runs_of(every))) for partition, every in references.items() if every)
    )


def why_wait(open_requests: int, commits_waiting: int, limits: CompactionLimits = LIMITS) -> str | None:
    """Return why no job should start now; None if jobs may start. See also :func:`pressing`."""
    if open_requests > limits.requests_open_max:
        return f"{open_requests} requests are open; compaction goes on when they are {limits.requests_open_max}"
    if commits_waiting > limits.commits_waiting_max:
        most = limits.commits_waiting_max
        return f"{commits_waiting} commits wait in this process; compaction goes on when they are {most}"
    return None


def pressing(state: TableState, settings: Settings) -> bool:
    """Return whether a partition is near its limit of runs; requests then wait for compaction."""
    bound = settings.runs_max // 2
    return bound > 0 and any(state.references.exceeds(partition, bound) for partition in state.partitions.ids)


def runs_piled(settings: Settings) -> int:
    """Return the number of runs above which a partition with due merges is merged before anything else happens."""
    most = min(BATCHES_PILED * settings.compaction_batch_runs, RUNS_MAX)
    return min(most, settings.runs_max // 2) if settings.runs_max else most


def merges_due(state: TableState, partition: int, settings: Settings) -> bool:
    """Return whether the table's strategy would merge some runs of a partition without open jobs."""
    rules = _Rules(settings.compaction_strategy, settings, None, frozenset())
    return bool(_plan_partition(state, partition, (), rules).partitions)


def _jobs_by_partition(state: TableState) -> Mapping[int, Sequence[Job]]:
    """Return the open jobs that work in each partition."""
    jobs: dict[int, list[Job]] = {}
    for job in state.jobs.values():
        for position in state.partitions.overlapping(job.keys):
            jobs.setdefault(state.partitions.ids[position], []).append(job)
    return jobs


@dataclass(frozen=True, slots=True)
class _Rules:
    """What holds for the plan of every partition; ``claimed`` are the ids of files that are merged whole."""

    strategy: Strategy
    settings: Settings
    hidden: HiddenRows | None
    claimed: frozenset[str]
    limits: CompactionLimits = LIMITS


@dataclass(frozen=True, slots=True)
class _Due:
    """The runs of a partition that no job merges, after concatenation, and the batches of them to merge."""

    runs: list[Run]
    batches: list[Batch]


def _plan_partition(state: TableState, partition: int, jobs: Sequence[Job], rules: _Rules) -> CompactionPlan:
    """Plan the due merges of a partition, in which these jobs are open."""
    if jobs and rules.strategy is Strategy.FULL:
        skipped = Skipped(partition, f"job {jobs[0].id} is open in the partition")
        return CompactionPlan(skipped=(skipped,))
    busy = rules.claimed.union(*(job.inputs for job in jobs))
    due = (_due if state.merge.keeps_all else _due_neighbours)(state, partition, busy, rules)
    wanted = due.batches + _with_hidden_rows(partition, busy, due.batches, rules.hidden)
    room = max(0, rules.limits.partition_jobs_max - len(jobs))
    merged = {one.file.id for batch in wanted[:room] for run in batch for one in run.held}
    merges = tuple(_merge(state, partition, batch) for batch in wanted[:room])
    concatenations = tuple(
        Concatenation(partition, tuple(one.file.id for one in run.held), run.concatenated, run.size_bytes)
        for run in due.runs
        if run.concatenated > 1 and run.held[0].file.id not in merged
    )
    reason = f"{len(jobs)} jobs are open in the partition (limit {rules.limits.partition_jobs_max})"
    postponed = (Skipped(partition, reason),) if len(wanted) > room else ()
    return CompactionPlan(merges, concatenations, postponed)


def _due(state: TableState, partition: int, busy: Collection[str], rules: _Rules) -> _Due:
    """Return what is due in a partition of a table that keeps all rows."""
    strategy, settings = rules.strategy, rules.settings
    free = [run for run in runs_of(state.held_by(partition)) if not any(one.file.id in busy for one in run.held)]
    whole = concatenated(free, settings.file_bytes // CONCATENATED_SHARE)
    return _Due(whole, batches(strategy, whole, settings) or overdue(strategy, whole, settings))


def _due_neighbours(state: TableState, partition: int, busy: Collection[str], rules: _Rules) -> _Due:
    """Return what is due in a partition of a table that merges rows."""
    strategy, settings = rules.strategy, rules.settings
    references = state.held_by(partition)
    size_bytes_min = settings.file_bytes // CONCATENATED_SHARE
    stretches = [concatenated_neighbours(stretch, size_bytes_min) for stretch in stretches_of(references, busy)]
    whole = list(chain.from_iterable(stretches))
    if len(whole) == 1 and len(whole[0].held) == len(references) and _drops_markers(state) and markers_of(whole[0]):
        return _Due(whole, [(whole[0],)])
    return _Due(whole, windows(strategy, stretches, settings) or overdue_windows(strategy, stretches, settings))


def _with_hidden_rows(
    partition: int, busy: frozenset[str], batches: Sequence[Batch], hidden: HiddenRows | None
) -> list[Batch]:
    """Return a batch of the files that are due only for their hidden rows, excluding files of other batches."""
    if hidden is None:
        return []
    chosen = {one.file.id for batch in batches for run in batch for one in run.held}
    files = hidden.due(partition, busy | chosen)
    return [tuple(runs_of(files))] if files else []


def _merge(state: TableState, partition: int, batch: Batch) -> PartitionMerge:
    position = state.partitions.position_of(partition)
    assert position is not None
    chosen = {one.file.id for run in batch for one in run.held}
    files = state.files_of(partition)
    return PartitionMerge(
        partition=partition,
        keys=state.partitions.range_at(position),
        # In the order of the partition, which is the order of arrival.
        inputs=tuple(file for file in files if file.id in chosen),
        runs=sum(run.concatenated for run in batch),
        rows=sum(run.rows for run in batch),
        exact=all(run.exact for run in batch),
        size_bytes=sum(run.size_bytes for run in batch),
        mode=state.merge,
        complete=files[0].id in chosen and _may_complete(state),
    )


def _may_complete(state: TableState) -> bool:
    """Return whether a merge that leaves out no older file can drop anything: deletes, or rows that a filter hides."""
    hides = bool(state.filter_version) and not state.merge.keeps_all
    return _drops_markers(state) or (hides and not state.merge.by_sort_key)


def _drops_markers(state: TableState) -> bool:
    """Return whether a complete merge may drop deletes.

    With ``Latest(by="sort_key")`` they are kept: a delete with a greater sort key still hides a row that arrives later.
    """
    return state.merge.takes_markers and not state.merge.by_sort_key


def tasks_of(merge: PartitionMerge, cores: int, limits: CompactionLimits = LIMITS) -> int:
    """Return the number of tasks to divide a merge among if ``cores`` are free for it."""
    needed = -(-merge.size_bytes // TASK_BYTES_MAX)
    useful = merge.size_bytes // limits.share_bytes_min
    return max(1, needed, min(cores, useful))


def divide_merge(merge: PartitionMerge, summaries: Sequence[Summary], count: int) -> tuple[EncodedRange, ...]:
    """Divide the merge's range into at most ``count`` sub-ranges of about even rows, in key order, that tile it."""
    edges = even_cuts(summaries, count, merge.keys.min, merge.keys.max)
    lows = (merge.keys.min, *edges)
    return tuple(EncodedRange(low, high) for low, high in zip(lows, (*edges, merge.keys.max), strict=True))


def share_out(
    merge: PartitionMerge, summaries: Sequence[Summary], tasks: int, memory_limit_bytes: int
) -> list[tuple[EncodedRange, ...]]:
    """Return for each task the slices of keys that it merges in turn, each of about as much as it reads at once."""
    size_bytes = -(-merge.size_bytes // tasks)
    slices = max(1, -(-size_bytes // max(1, slice_bytes(size_bytes, memory_limit_bytes))))
    parts = divide_merge(merge, summaries, tasks * slices)
    count = min(tasks, len(parts))
    return [parts[i * len(parts) // count : (i + 1) * len(parts) // count] for i in range(count)]


def inputs_of(inputs: Iterable[DataFile], keys: EncodedRange) -> tuple[DataFile, ...]:
    """Return the inputs that may have rows in the range; a task fetches no others."""
    return tuple(file for file in inputs if file.reaches(keys))
