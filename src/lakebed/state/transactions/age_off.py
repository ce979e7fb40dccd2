"""The cut of a table's age-off rises, and files of which every row is past it go without being read. Pure.

A cut is proposed as a time, and computed from the age that is in force when it is committed. So a process that knew
another age raises it no further than it may.

Only the bounds of key fields are in the state, so a file can be known to be past if the age-off has a key field. Where
rows are merged, a file goes only if all older files of its partition go too, and it has no deletes: what is left is
then what the partition would have had without its oldest rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.model.merge_modes import KeepAll
from lakebed.model.wording import count_text
from lakebed.state.fields import Whole
from lakebed.state.reference_lists import PairList, decode_pairs, encode_pairs
from lakebed.state.transactions.add_files import dropped
from lakebed.state.transactions.job_changes import held_pairs
from lakebed.state.transactions.resolution import Description, Repeated
from lakebed.state.transactions.retention import RaiseWatermark, Watermark
from lakebed.state.visibility import FileTimes

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.state.table_state import TableState

_US = 1_000_000
_STEP_S_MAX = 3_600
_STEPS = 64


def expired(state: TableState) -> Iterator[tuple[str, int]]:
    """The references whose files are wholly past the cut, as pairs of file and partition. Linear."""
    times = FileTimes.of(state)
    if times is None or not state.age_off_cut_us:
        return
    for partition, held in state.references.items():
        files: Iterable[DataFile] = [one.file for one in held]
        if not isinstance(state.merge, KeepAll):
            files = takewhile(lambda file: not file.markers and times.all_before(file, state.age_off_cut_us), files)
        yield from ((file.id, partition) for file in files if times.all_before(file, state.age_off_cut_us))


class ProposeCut(Struct, frozen=True, tag_field="type", tag="propose_cut"):
    """Hide the rows that are too old at ``now_us``, a time of the clock of the log in microseconds since 1970."""

    now_us: Whole

    def resolve(self, state: TableState) -> RaiseWatermark | Repeated:
        """The cut that the table's age gives, unless it is so near that an entry for it would only lengthen the log."""
        due_us = cut_due(state, self.now_us)
        return Repeated(state.version) if due_us is None else RaiseWatermark(Watermark.AGE_OFF_CUT, due_us)


def cut_due(state: TableState, now_us: int) -> int | None:
    """What the cut should rise to; None if it need not: it rises in steps of 1/64 of the age, at most an hour."""
    if not state.row_filter.age_field:
        return None
    step_s = min(_STEP_S_MAX, max(1, state.row_filter.age_s // _STEPS))
    due_us = now_us - state.row_filter.age_s * _US
    return due_us if due_us >= state.age_off_cut_us + step_s * _US else None


class ProposeExpiry(Struct, frozen=True, tag_field="type", tag="propose_expiry"):
    """Drop all files that are wholly past the table's age-off."""

    def resolve(self, state: TableState) -> DropExpired | Repeated:
        """The references that go; no entry if there are none."""
        drop = tuple(expired(state))
        return DropExpired(drop) if drop else Repeated(state.version)


class DropExpired(Struct, frozen=True):
    """References ``(file, partition)`` that are dropped because all rows of the files are hidden for good."""

    drop: tuple[tuple[str, int], ...]

    def apply(self, state: TableState) -> TableState:
        """The references are gone. Jobs that are open over them stay open."""
        return dropped(state, held_pairs(state, self.drop))

    def describe(self, _added: ReferenceCounts, dropped: ReferenceCounts) -> Description:
        """The number of references; their rows are not on record."""
        text = f"{count_text(dropped.references, 'reference')} past the age-off"
        return Description(text, rows_removed=None, references_dropped=dropped.references)

    def document(self, sidecars: Sidecars) -> DropExpiredDocument:
        """As it is stored."""
        return DropExpiredDocument(encode_pairs(self.drop, sidecars))


class DropExpiredDocument(Struct, frozen=True, tag_field="type", tag="drop_expired"):
    """As docs/format.md describes it."""

    drop: PairList

    def transaction(self, sidecars: SidecarData) -> DropExpired:
        """The transaction."""
        return DropExpired(decode_pairs(self.drop, sidecars))
