"""Splits the partitions of a table that are too large, and joins small ones. Moves no data.

A split reads summaries, and the pages at the cuts in each file that is cut, so the counts of all parts are exact. Many
partitions are split by one commit. Each partition is considered once per call; a part that is still too large is cut by
the next call.

Core types: :class:`SplitReport`, :class:`JoinReport`.

Errors: DamagedError for a summary, or for a file whose summary is gone; those of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.log.outcomes import NotCommitted, Outcome, version_of
from lakebed.model.html_tables import FactsView
from lakebed.model.reports import WorkReport
from lakebed.model.state.transactions import ProposeJoin, ProposeSplit
from lakebed.model.state.transactions.partition_changes import bounds_of_cuts
from lakebed.model.wording import count_text
from lakebed.read.rows.summaries import exact_at, load_summaries
from lakebed.upkeep.splitting.plan import CompactFirst, LargePartition, NotSplit, SplitAt, choose, due, small

if TYPE_CHECKING:
    from lakebed.model.key_summaries import Summary
    from lakebed.table.table import Table

FILES_AT_ONCE = 1_000
"""Maximum files of the partitions that one commit splits. Their summaries are in memory, up to 0.1 MB each."""

REFERENCES_AT_ONCE = 100_000
"""Maximum references of one commit, unless it splits a single partition: a sidecar of half a megabyte."""


@dataclass(frozen=True, slots=True)
class SplitPartitionReport(FactsView):
    """A partition that was cut, and the number of its parts."""

    partition: int
    parts: int


@dataclass(frozen=True, slots=True)
class SplitReport(WorkReport):
    """The result of splitting. ``version`` is that of the last commit, None if nothing was split."""

    table: str
    split: tuple[SplitPartitionReport, ...]
    not_split: tuple[NotSplit, ...]
    version: int | None

    @property
    def compact_first(self) -> tuple[int, ...]:
        """Partitions that can be split once they are compacted."""
        return tuple(skipped.partition for skipped in self.not_split if isinstance(skipped, CompactFirst))

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return f"{count_text(len(self.split), 'partition')} cut"

    @property
    def idle(self) -> bool:
        """Whether nothing was committed."""
        return self.version is None


@dataclass(frozen=True, slots=True)
class NotJoined:
    """Small neighbours that were not joined, and why."""

    partitions: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class JoinReport(WorkReport):
    """The result of joining: the groups of partitions that became one each. ``version`` is that of the last commit."""

    table: str
    joined: tuple[tuple[int, ...], ...]
    not_joined: tuple[NotJoined, ...]
    version: int | None

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return f"{count_text(len(self.joined), 'group')} of partitions became one each"

    @property
    def idle(self) -> bool:
        """Whether nothing was committed."""
        return self.version is None


def split(table: Table, references_at_once: int = REFERENCES_AT_ONCE) -> SplitReport:
    """Cut every partition that exceeds a limit, if its summaries allow it.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; partitions cut before stay cut.
    """
    planned = due(table.state(), table.settings_in_force())
    report = split_at_keys(table, planned.large, choose, references_at_once)
    return replace(report, not_split=(*planned.waiting, *report.not_split))


def split_at_keys(
    table: Table,
    large: Sequence[LargePartition],
    choose: Callable[[LargePartition, Sequence[Summary]], SplitAt | NotSplit],
    references_at_once: int = REFERENCES_AT_ONCE,
) -> SplitReport:
    """Cut partitions at the keys that ``choose`` returns for the summaries of their files. Raises as :func:`split`."""
    boundaries = table.log.head.state.partitions.boundaries
    done: list[SplitPartitionReport] = []
    not_split: list[NotSplit] = []
    version: int | None = None
    for group in _at_once(large, references_at_once):
        files = dict.fromkeys(file for partition in group for file in partition.files)
        summaries = load_summaries(table.storage, table.id, files, table.schema, cuts=boundaries)
        chosen = [choose(partition, [summaries[file.id] for file in partition.files]) for partition in group]
        cuts = [one for one in chosen if isinstance(one, SplitAt)]
        summaries = _exact(table, cuts, summaries)
        not_split += [one for one in chosen if not isinstance(one, SplitAt)]
        for tried, outcome in _proposed(table, cuts, summaries):
            if isinstance(outcome, NotCommitted):
                not_split += [NotSplit(cut.partition, outcome.reason) for cut in tried]
            else:
                version = version_of(outcome, f"table {table.name}")
                done += [SplitPartitionReport(cut.partition, len(cut.keys) + 1) for cut in tried]
    return SplitReport(table.name, tuple(done), tuple(not_split), version)


def _exact(table: Table, cuts: Sequence[SplitAt], summaries: dict[str, Summary]) -> dict[str, Summary]:
    """Return the summaries with the exact ranks of the cuts, and of the ends of the partitions that are cut."""
    state = table.log.head.state
    bounds = bounds_of_cuts({cut.partition: cut.keys for cut in cuts}, state)
    return exact_at(bounds, summaries, table.reader, state.created)


def join(table: Table) -> JoinReport:
    """Join each group of small neighbours into one partition, unless a file prevents it.

    Raises ContentionError, UnknownOutcomeError, StorageError: the log; partitions joined before stay joined.
    """
    done: list[tuple[int, ...]] = []
    not_joined: list[NotJoined] = []
    version: int | None = None
    for group in small(table.state(), table.settings_in_force()):
        outcome = table.try_commit(ProposeJoin(group.partitions))
        if isinstance(outcome, NotCommitted):
            not_joined.append(NotJoined(group.partitions, outcome.reason))
        else:
            version = version_of(outcome, f"table {table.name}")
            done.append(group.partitions)
    return JoinReport(table.name, tuple(done), tuple(not_joined), version)


def _at_once(large: Sequence[LargePartition], references_max: int) -> Iterator[list[LargePartition]]:
    """Return the partitions in groups that are split together."""
    group: list[LargePartition] = []
    files: set[str] = set()
    references = 0
    for partition in large:
        names = {file.id for file in partition.files}
        more = len(names) * partition.parts
        if group and (len(files | names) > FILES_AT_ONCE or references + more > references_max):
            yield group
            group, files, references = [], set(), 0
        group.append(partition)
        files |= names
        references += more
    if group:
        yield group


def _proposed(
    table: Table, cuts: Sequence[SplitAt], summaries: dict[str, Summary]
) -> Iterator[tuple[Sequence[SplitAt], Outcome]]:
    """Propose the cuts together; if refused, one by one, so that a missing partition does not stop the others."""
    if not cuts:
        return
    outcome = table.try_commit(ProposeSplit({cut.partition: cut.keys for cut in cuts}, summaries))
    if not isinstance(outcome, NotCommitted) or len(cuts) == 1:
        yield cuts, outcome
        return
    for cut in cuts:
        yield [cut], table.try_commit(ProposeSplit({cut.partition: cut.keys}, summaries))
