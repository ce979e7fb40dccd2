"""Splitting the leaves of a table that are too large, and joining small ones. Moves no data.

A split reads summaries, and the pages at the cuts in each file that is cut, so that the counts of all parts are exact.

Many leaves are split by one commit. Leaves are looked at once a call; the parts of one cut are of the right size as far
as its summaries tell, and what turns out otherwise is cut by the next call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.log.outcomes import NotCommitted, Outcome, number_of
from lakebed.objects import load_summaries
from lakebed.query.cutting import exact_at
from lakebed.splitting.plan import CompactFirst, LargeLeaf, NotSplit, SplitAt, choose, due, small
from lakebed.state.resolve_leaves import bounds_of_cuts
from lakebed.state.transactions import OfferJoin, OfferSplit

if TYPE_CHECKING:
    from lakebed.summaries import Summary
    from lakebed.table import Table

FILES_AT_ONCE = 1_000
"""Files of the leaves that one commit splits: their summaries are held, up to 0.1 MB each."""

REFERENCES_AT_ONCE = 100_000
"""References that one commit of a split makes at most, if it is not of one leaf: a side object of half a megabyte."""


@dataclass(frozen=True, slots=True)
class SplitLeafReport:
    """A leaf that was cut, and into how many."""

    leaf: int
    parts: int


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What splitting did. ``number`` is the log number of the last commit, None if there was nothing to do."""

    table: str
    split: tuple[SplitLeafReport, ...]
    not_split: tuple[NotSplit, ...]
    number: int | None

    @property
    def compact_first(self) -> tuple[int, ...]:
        """Leaves that can be split once they are compacted."""
        return tuple(found.leaf for found in self.not_split if isinstance(found, CompactFirst))


@dataclass(frozen=True, slots=True)
class NotJoined:
    """Small neighbours that stay apart, and why."""

    leaves: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class JoinReport:
    """What joining did: the leaves that were made one, group by group. ``number`` is as that of a split."""

    table: str
    joined: tuple[tuple[int, ...], ...]
    not_joined: tuple[NotJoined, ...]
    number: int | None


def split(table: Table) -> SplitReport:
    """Cut every leaf that exceeds a limit, as far as can be known where to.

    Raises:
        DamagedError: a summary, or a file whose summary is gone, is damaged.
        ContentionError, UnknownOutcomeError, StorageError: the log; leaves cut before stay cut.
    """
    found = due(table.state(), table.settings_in_force())
    report = cut_leaves(table, found.large, choose)
    return replace(report, not_split=(*found.waiting, *report.not_split))


def cut_leaves(
    table: Table, large: Sequence[LargeLeaf], choose: Callable[[LargeLeaf, Sequence[Summary]], SplitAt | NotSplit]
) -> SplitReport:
    """Cut leaves where ``choose`` says, given the summaries of their files. Raises as :func:`split`."""
    boundaries = table.log.head.state.leaves.boundaries
    done: list[SplitLeafReport] = []
    not_split: list[NotSplit] = []
    number: int | None = None
    for some in _at_once(large):
        files = dict.fromkeys(file for leaf in some for file in leaf.files)
        summaries = load_summaries(table.storage, table.id, files, table.schema, cuts=boundaries)
        chosen = [choose(leaf, [summaries[file.id] for file in leaf.files]) for leaf in some]
        cuts = [one for one in chosen if isinstance(one, SplitAt)]
        summaries = _exact(table, cuts, summaries)
        not_split += [one for one in chosen if not isinstance(one, SplitAt)]
        for tried, outcome in _offered(table, cuts, summaries):
            if isinstance(outcome, NotCommitted):
                not_split += [NotSplit(cut.leaf, outcome.reason) for cut in tried]
            else:
                number = number_of(outcome, f"table {table.name}")
                done += [SplitLeafReport(cut.leaf, len(cut.keys) + 1) for cut in tried]
    return SplitReport(table.name, tuple(done), tuple(not_split), number)


def _exact(table: Table, cuts: Sequence[SplitAt], summaries: dict[str, Summary]) -> dict[str, Summary]:
    """The summaries with the exact ranks of the cuts, and of the ends of the leaves that are cut."""
    view = table.newest(max_staleness=math.inf)
    bounds = bounds_of_cuts({cut.leaf: cut.keys for cut in cuts}, view.state)
    return exact_at(bounds, summaries, view.reader, view.schema)


def join(table: Table) -> JoinReport:
    """Make one leaf of each group of small neighbours, where no file keeps them apart.

    Raises ContentionError, UnknownOutcomeError, StorageError: the log; leaves joined before stay joined.
    """
    done: list[tuple[int, ...]] = []
    not_joined: list[NotJoined] = []
    number: int | None = None
    for group in small(table.state(), table.settings_in_force()):
        outcome = table.try_commit(OfferJoin(group.leaves))
        if isinstance(outcome, NotCommitted):
            not_joined.append(NotJoined(group.leaves, outcome.reason))
        else:
            number = number_of(outcome, f"table {table.name}")
            done.append(group.leaves)
    return JoinReport(table.name, tuple(done), tuple(not_joined), number)


def _at_once(large: Sequence[LargeLeaf]) -> Iterator[list[LargeLeaf]]:
    """The leaves as they are split together, some at a time."""
    some: list[LargeLeaf] = []
    files: set[str] = set()
    references = 0
    for leaf in large:
        names = {file.id for file in leaf.files}
        more = len(names) * leaf.parts
        if some and (len(files | names) > FILES_AT_ONCE or references + more > REFERENCES_AT_ONCE):
            yield some
            some, files, references = [], set(), 0
        some.append(leaf)
        files |= names
        references += more
    if some:
        yield some


def _offered(
    table: Table, cuts: Sequence[SplitAt], summaries: dict[str, Summary]
) -> Iterator[tuple[Sequence[SplitAt], Outcome]]:
    """The cuts offered together; one by one if that is refused, for a leaf that is gone must not hold the others up."""
    if not cuts:
        return
    outcome = table.try_commit(OfferSplit({cut.leaf: cut.keys for cut in cuts}, summaries))
    if not isinstance(outcome, NotCommitted) or len(cuts) == 1:
        yield cuts, outcome
        return
    for cut in cuts:
        yield [cut], table.try_commit(OfferSplit({cut.leaf: cut.keys}, summaries))
