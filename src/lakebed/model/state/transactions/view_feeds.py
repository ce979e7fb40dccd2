"""Feeds views: tables filled from the committed rows of another table, once for each of its versions. Pure.

A view records the version of its source up to which it has the rows. A feed adds files of later rows in one entry with
the version that they lead to, and only if it begins at the recorded version. So no row is added twice if two processes
feed the view at the same time, or one repeats a feed of unknown outcome. Only feeds add or remove rows of a view.

If rows of the source went or changed, a feed replaces all rows of some key ranges of the view: a removal of the ranges
and the new files are in the same entry. Between two feeds nothing changes the rows of a view, so ranges that were read
at the recorded version have the same rows at the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.files import NewFile
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.fields import Id, StoredAsIs, Whole
from lakebed.model.state.transactions.add_files import AddFiles, ProposeFiles
from lakebed.model.state.transactions.removals import ProposeRemoval, RemoveRange
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated, TooManyRuns, TooOld

if TYPE_CHECKING:
    from lakebed.model.state.reference_lists import ReferenceCounts
    from lakebed.model.state.table_state import TableState, ViewSource
    from lakebed.model.state.transactions.schema_changes import AlterSchema


class ProposeFeed(Struct, frozen=True, tag_field="type", tag="propose_feed"):
    """Files with the rows of the source after its version ``since``, up to ``until``.

    They replace the rows of the view in the ``replaced`` ranges, with ``anew`` all rows. ``base_version`` is that of
    the view when the feed began. The feed of an index says below which ``sequence`` number it has entries of all files
    of the source; 0: of a view. The entries of the files with the ids ``covered`` were added before
    (:class:`ProposeEntries`).
    """

    files: tuple[NewFile, ...]
    base_version: Whole
    since: Whole
    until: Whole
    anew: bool = False
    replaced: tuple[EncodedRange, ...] = ()
    sequence: Whole = 0
    covered: tuple[Id, ...] = ()

    def resolve(
        self, state: TableState
    ) -> tuple[RemoveRange | AlterSchema | AddFiles | AdvanceView, ...] | Rejected | Repeated | TooOld | TooManyRuns:
        """Return the files and the version, preceded by the removal of the rows that they replace."""
        if refused := self._refused(state):
            return refused
        now = replace(state, view=None)
        steps: list[RemoveRange | AlterSchema | AddFiles | AdvanceView] = []
        if ranges := (ALL_KEYS,) if self.anew else self.replaced:
            removed = ProposeRemoval(ranges).resolve(now)
            if isinstance(removed, Rejected):
                return removed
            if isinstance(removed, RemoveRange):
                steps.append(removed)
                now = removed.apply(now)
        if self.files:
            added = ProposeFiles(self.files, base_version=self.base_version).resolve(now)
            if isinstance(added, Rejected | Repeated | TooOld | TooManyRuns):
                return added
            steps += added if isinstance(added, tuple) else (added,)
        built = 0 if state.view is None or state.view.index is None else state.view.index.built
        advance = AdvanceView(self.until, self.sequence, self.until if self.anew or not built else built)
        return (*steps, advance if self.sequence else AdvanceView(self.until))

    def _refused(self, state: TableState) -> Rejected | Repeated | None:
        if state.view is None:
            return Rejected(Code.PROPOSAL_INVALID, "the table is no view")
        if bool(self.sequence) != (state.view.index is not None):
            return Rejected(Code.PROPOSAL_INVALID, "the feed is not of this kind of view")
        added = () if state.view.index is None else state.view.index.files
        if state.view.version == self.since and (self.anew or {*self.covered} <= {*added}):
            return None
        if state.view.version == self.until and not self.anew:
            return Repeated(state.version)
        return _fed_meanwhile(state.view, self.since)


class ProposeEntries(Struct, frozen=True, tag_field="type", tag="propose_entries"):
    """A part of a feed of an index: files with the entries of those files of its source that have the ids ``covered``.

    ``since`` is the version of the source that the index has, before and after. ``base_version`` is as for a feed.
    """

    files: tuple[NewFile, ...]
    base_version: Whole
    since: Whole
    covered: tuple[Id, ...]

    def resolve(
        self, state: TableState
    ) -> tuple[AlterSchema | AddFiles | AdvanceView, ...] | Rejected | Repeated | TooOld | TooManyRuns:
        """Return the files, and that the index has the entries; none of them may be there."""
        if state.view is None or state.view.index is None:
            return Rejected(Code.PROPOSAL_INVALID, "the table is no index")
        fed, index = state.view, state.view.index
        if fed.version != self.since or not {*self.covered}.isdisjoint(index.files):
            return _fed_meanwhile(fed, self.since)
        steps: list[AlterSchema | AddFiles | AdvanceView] = []
        if self.files:
            added = ProposeFiles(self.files, base_version=self.base_version).resolve(replace(state, view=None))
            if isinstance(added, Rejected | Repeated | TooOld | TooManyRuns):
                return added
            steps += added if isinstance(added, tuple) else (added,)
        return (*steps, AdvanceView(fed.version, index.sequence, index.built, (*index.files, *self.covered)))


def _fed_meanwhile(fed: ViewSource, since: int) -> Rejected:
    text = (
        f"the view was fed meanwhile: it has version {fed.version} of its source, and this feed began at {since}; "
        "refresh it again"
    )
    return Rejected(Code.PROPOSAL_OUTDATED, text, {"version": fed.version})


EARLIER_MAX = 32
"""Earlier versions that an index knows: those of the last feeds, and fewer of those before."""


def _thinned(earlier: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Leave out every second of the older half, but not the first, if there are too many."""
    if len(earlier) <= EARLIER_MAX:
        return earlier
    half = EARLIER_MAX // 2
    return (*earlier[:half:2], *earlier[half:])


class AdvanceView(StoredAsIs, frozen=True, tag="advance_view", omit_defaults=True):
    """Record that the view has the rows of its source up to this version.

    Of an index also ``sequence``, ``built`` and ``files`` (:class:`~lakebed.model.state.table_state.IndexCoverage`).
    """

    version: Whole
    sequence: Whole = 0
    built: Whole = 0
    files: tuple[Id, ...] = ()

    def apply(self, state: TableState) -> TableState:
        """Return the state with the version, which may be lower than before if the view was restored and fed again."""
        if state.view is None:
            raise Code.TRANSACTION_IMPOSSIBLE(f"entry {state.version} feeds a table that is no view")
        index = state.view.index
        if index is not None:
            earlier = () if self.built != index.built else index.earlier
            if self.built == index.built and self.version > state.view.version:
                earlier = _thinned((*earlier, (state.view.version, index.sequence)))
            index = replace(index, sequence=self.sequence, built=self.built, files=self.files, earlier=earlier)
        return replace(state, view=replace(state.view, version=self.version, index=index))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the version of the source."""
        return Description(f"to version {self.version} of the source")
