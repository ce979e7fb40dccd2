"""Raises the cut of a table's age-off, and drops files whose rows are all past it, without reading them. Pure.

A cut is proposed as a time, and computed from the age in force when it is committed. So a process with an outdated age
cannot raise the cut too far.

The state has only the bounds of key fields, so a file can be found to be past the cut only if the age-off uses a key
field. If rows are merged, a file is dropped only if all older files of its partition are dropped too, and it has no
deletes: the remaining rows are then those that the partition would have had without its oldest rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct

from lakebed.model.state.fields import Whole
from lakebed.model.state.reference_lists import PairList, decode_pairs, encode_pairs
from lakebed.model.state.transactions.add_files import drop_references
from lakebed.model.state.transactions.job_changes import held_pairs
from lakebed.model.state.transactions.resolution import Description, Repeated
from lakebed.model.state.transactions.retention import RaiseWatermark, Watermark
from lakebed.model.state.visibility import FileTimes
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.files import DataFile
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState

_US = 1_000_000
_STEP_S_MAX = 3_600
_STEPS = 64


def expired(state: TableState) -> Iterator[tuple[str, int]]:
    """Return the references whose files are entirely past the cut, as pairs of file and partition. Linear."""
    times = FileTimes.of(state)
    if times is None or not state.age_off_cut_us:
        return
    for partition, references in state.references.items():
        files: Iterable[DataFile] = [one.file for one in references]
        if not state.merge.keeps_all:
            files = takewhile(lambda file: not file.markers and times.all_before(file, state.age_off_cut_us), files)
        yield from ((file.id, partition) for file in files if times.all_before(file, state.age_off_cut_us))


class ProposeCut(Struct, frozen=True, tag_field="type", tag="propose_cut"):
    """Hide the rows that are too old at ``now_us``, a time of the log's clock in microseconds since 1970."""

    now_us: Whole

    def resolve(self, state: TableState) -> RaiseWatermark | Repeated:
        """Return the cut for the table's age, or Repeated if it rose too little to be worth an entry."""
        due_us = cut_due(state, self.now_us)
        return Repeated(state.version) if due_us is None else RaiseWatermark(Watermark.AGE_OFF_CUT, due_us)


def cut_due(state: TableState, now_us: int) -> int | None:
    """Return the new cut; None if it need not rise yet. It rises in steps of 1/64 of the age, at most an hour."""
    if not state.row_filter.age_field:
        return None
    step_s = min(_STEP_S_MAX, max(1, state.row_filter.age_s // _STEPS))
    due_us = now_us - state.row_filter.age_s * _US
    return due_us if due_us >= state.age_off_cut_us + step_s * _US else None


class ProposeExpiry(Struct, frozen=True, tag_field="type", tag="propose_expiry"):
    """Drop all files that are entirely past the table's age-off."""

    def resolve(self, state: TableState) -> DropExpired | Repeated:
        """Return the references to drop, or Repeated if there are none."""
        drop = tuple(expired(state))
        return DropExpired(drop) if drop else Repeated(state.version)


class DropExpired(Struct, frozen=True):
    """Drops references ``(file, partition)`` because all rows of the files are permanently hidden."""

    drop: tuple[tuple[str, int], ...]

    def apply(self, state: TableState) -> TableState:
        """Return the state without the references. Open jobs over them stay open."""
        return drop_references(state, held_pairs(state, self.drop))

    def describe(self, _added: ReferenceCounts, dropped: ReferenceCounts) -> Description:
        """Report the number of references; their rows are not on record."""
        text = f"{count_text(dropped.references, 'reference')} past the age-off"
        return Description(text, rows_removed=None, references_dropped=dropped.references)

    def document(self, sidecars: Sidecars) -> DropExpiredDocument:
        """Return the document that the log stores."""
        return DropExpiredDocument(encode_pairs(self.drop, sidecars))


class DropExpiredDocument(Struct, frozen=True, tag_field="type", tag="drop_expired"):
    """The stored document; docs/format.md describes its fields."""

    drop: PairList

    def transaction(self, sidecars: SidecarData) -> DropExpired:
        """Return the transaction of this document."""
        return DropExpired(decode_pairs(self.drop, sidecars))
