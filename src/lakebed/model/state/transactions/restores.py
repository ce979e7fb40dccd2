"""Restores the rows of an older version of a table by its references. Pure.

A *region* is a smallest range of keys that begins and ends at boundaries both of the current partitions and of those of
the older version. A region that is one partition in both, with the same files, has the same rows and is unchanged. In
every other region the partitions of the older version replace the current ones, with their references. So each
reference has exactly the rows that it had then, whatever was split, joined, merged or removed since.

* Open jobs over a region are closed: their output is made from files of another version, and would bring back rows of
  those.
* Schema, settings, tags, fences and request keys stay. A repeat of a write that was undone is still a repeat.
* No file that is retired may be referenced again (decision 0013).

Source: decision 0046.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.files import DataFile, Reference
from lakebed.model.keys import EncodedRange
from lakebed.model.state.fields import FileDocument, Hex, Positive
from lakebed.model.state.reference_lists import ReferenceList, decode_references, encode_references
from lakebed.model.state.transactions.add_files import add_references, committed_file, drop_references
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated, refused_change
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.partitions import Region
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState


class ProposeRestore(Struct, frozen=True):
    """Restore the rows of ``target``, the table's state at an older version."""

    target: TableState

    def resolve(self, state: TableState) -> RestoreVersion | Repeated | Rejected:
        """Return the restore of the regions that differ from the current partitions; Repeated if none does."""
        if refused := refused_change(state):
            return refused
        version = self.target.version
        if not 1 <= version <= state.version or self.target.table != state.table:
            text = f"there is no version {version} of this table to restore; the newest is {state.version}"
            return Rejected(Code.PROPOSAL_INVALID, text, {"version": version})
        if self.target.merge_version != state.merge_version:
            text = (
                f"version {version} cannot be restored: version {state.merge_version} changed the merge mode from "
                f"{self.target.merge} to {state.merge}; read it as a snapshot"
            )
            return Rejected(Code.MERGE_CHANGE_REJECTED, text, {"version": version})
        regions: list[Region] = []
        references: list[Reference] = []
        files: dict[str, DataFile] = {}
        next_id = state.partitions.next_id
        for region, then in _changed_regions(state, self.target):
            regions.append(region)
            for partition in then:
                for old in self.target.held_by(partition):
                    references.append(old.reference(next_id))
                    files[old.file.id] = old.file
                next_id += 1
        if not regions:
            return Repeated(state.version)
        gone = [name for name in files if name not in state.files or state.files[name].retired]
        if gone or not state.retains(version):
            return Rejected(
                Code.VERSION_NOT_RETAINED,
                f"version {version} cannot be restored, because files of it are deleted or will be. Retained are the "
                f"versions from {state.earliest_retained_version} on and those with a tag; tag a version to keep it",
                {"version": version, "earliest_retained_version": state.earliest_retained_version},
            )
        return RestoreVersion(version, tuple(regions), tuple(files.values()), tuple(references))


def _changed_regions(state: TableState, target: TableState) -> Iterator[tuple[Region, tuple[int, ...]]]:
    """Return the regions that differ, in key order: their replacement, and the target's partitions there."""
    now, then = state.partitions, target.partitions
    shared = sorted({*now.boundaries}.intersection(then.boundaries))
    for low, high in zip([b"", *shared], [*shared, None], strict=True):
        keys = EncodedRange(low, high)
        present = tuple([now.ids[position] for position in now.overlapping(keys)])
        past = tuple([then.ids[position] for position in then.overlapping(keys)])
        if len(present) > 1 or len(past) > 1 or not _same_files(state, present[0], target, past[0]):
            yield (present, then.inside(keys)), past


def _same_files(state: TableState, present: int, target: TableState, past: int) -> bool:
    return {held.file.id for held in state.held_by(present)} == {held.file.id for held in target.held_by(past)}


class RestoreVersion(Struct, frozen=True):
    """Replaces the partitions of each region by others, which have exactly these references.

    ``files`` are those that the references name. The table has them, but its state may lack their facts if no partition
    of the region refers to them.
    """

    version: int
    regions: tuple[Region, ...]
    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]

    def apply(self, state: TableState) -> TableState:
        """Return the state with the new partitions under the next ids, by region, and jobs over regions closed."""
        partitions = state.partitions.replace_regions(self.regions)
        ranges = [_range_of(state, partitions) for partitions, _ in self.regions]
        going = {partition: state.files_of(partition) for region, _ in self.regions for partition in region}
        for file in self.files:
            if committed_file(state, file.id).retired:
                raise Code.TRANSACTION_IMPOSSIBLE(
                    f"entry {state.version} restores file {file.id}, which is retired", file=file.id
                )
        fresh = range(state.partitions.next_id, partitions.next_id)
        for reference in self.references:
            if reference.partition not in fresh:
                raise Code.TRANSACTION_IMPOSSIBLE(
                    f"entry {state.version} brings {reference.file} into partition {reference.partition} by a restore"
                )
        jobs = HashTrieMap(
            (name, job) for name, job in state.jobs.items() if all(job.keys.intersect(keys).empty for keys in ranges)
        )
        state = replace(drop_references(state, going), partitions=partitions, jobs=jobs)
        if state.indexes:
            state = replace(state, restored_version=state.version)
        return add_references(state, {file.id: file for file in self.files}, self.references)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the version and the replaced partitions. Unchanged rows are not distinguished from restored ones."""
        count = count_text(sum(len(partitions) for partitions, _ in self.regions), "partition")
        return Description(f"to version {self.version}, {count} replaced", rows_removed=None, references_dropped=None)

    def document(self, sidecars: Sidecars) -> RestoreDocument:
        """Return the document that the log stores."""
        regions = [(partitions, [key.hex() for key in keys]) for partitions, keys in self.regions]
        files = [FileDocument.of(file) for file in self.files]
        return RestoreDocument(self.version, regions, files, encode_references(self.references, sidecars))


def _range_of(state: TableState, partitions: tuple[int, ...]) -> EncodedRange:
    """Return the key range of neighbouring partitions."""
    first, last = (state.partitions.position_of(partitions[end]) or 0 for end in (0, -1))
    return EncodedRange(state.partitions.range_at(first).min, state.partitions.range_at(last).max)


class RestoreDocument(Struct, frozen=True, tag_field="type", tag="restore_version"):
    """The stored document; docs/format.md describes its fields."""

    version: Positive
    regions: list[tuple[tuple[Positive, ...], list[Hex]]]
    files: list[FileDocument]
    references: ReferenceList

    def transaction(self, sidecars: SidecarData) -> RestoreVersion:
        """Return the transaction of this document."""
        regions = tuple((partitions, tuple(map(bytes.fromhex, keys))) for partitions, keys in self.regions)
        files, references = tuple([one.value() for one in self.files]), decode_references(self.references, sidecars)
        return RestoreVersion(self.version, regions, files, references)
