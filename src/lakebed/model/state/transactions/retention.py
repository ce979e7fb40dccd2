"""Deletes files in two steps, raises watermarks, and sets tags. Pure.

A file is retired by one transaction and purged by another; its object is deleted in between. A retired file can never
be referenced again, so the deletion may be repeated after a crash. Tags are checked when the transaction is resolved,
so a tag that was set after the plan keeps its files. A watermark only rises, and refuses everything from before it,
which makes a later deletion safe. Source: decision 0013; tests/model/deletion.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.state.fields import Id, Positive, StoredAsIs, TagName, Whole
from lakebed.model.state.transactions.add_files import committed_file
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated
from lakebed.model.wording import count_text, did_you_mean

if TYPE_CHECKING:
    from lakebed.errors import Facts
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState


class RetireFiles(StoredAsIs, frozen=True, tag="retire_files"):
    """Retire files without a reference, the first step of a deletion: they can never be referenced again.

    Files that a tag needs are left out at the commit.
    """

    files: tuple[Id, ...]

    def resolve(self, state: TableState) -> RetireFiles | Rejected:
        """Return the files that no tag needs; rejected if one is referenced or retired already."""
        for name in self.files:
            committed = state.files.get(name)
            if committed is None or committed.references or committed.retired:
                text = f"file {name} is purged, referenced or retired already; plan again"
                return Rejected(Code.PROPOSAL_OUTDATED, text, {"file": name})
        # Checked here and not in the plan: a tag may have been set since.
        free = [name for name in self.files if not state.tagged(state.files[name])]
        return RetireFiles(tuple(free)) if free else Rejected(Code.RETAINED_BY_TAG, "tags need all of these files")

    def apply(self, state: TableState) -> TableState:
        """Return the state with the files retired; versions that need one are no longer retained."""
        retired = {name: replace(committed_file(state, name), retired=True) for name in self.files}
        gone_at = max((committed.dropped or 0 for committed in retired.values()), default=0)
        return replace(
            state,
            files=state.files.updated(retired),
            earliest_retained_version=max(state.earliest_retained_version, gone_at),
        )

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the number of files."""
        return Description(count_text(len(self.files), "file"))


class PurgeFiles(StoredAsIs, frozen=True, tag="purge_files"):
    """Purge retired files whose objects are deleted, the last step of a deletion."""

    files: tuple[Id, ...]

    def resolve(self, state: TableState) -> PurgeFiles | Rejected:
        """Return self if all files are retired."""
        alive = [name for name in self.files if name not in state.files or not state.files[name].retired]
        if alive:
            return Rejected(Code.PROPOSAL_INVALID, f"files not retired: {', '.join(alive[:3])}", {"file": alive[0]})
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state without the files."""
        for name in self.files:
            committed_file(state, name)
        return replace(state, files=state.files.updated({}, self.files))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the number of files."""
        return Description(count_text(len(self.files), "file"))


class Watermark(Enum):
    """A limit of a table that only rises. The value is the name of the field of the state."""

    EARLIEST_RETAINED_VERSION = "earliest_retained_version"
    """The least version whose files are all kept. Retiring files raises it too."""

    REQUEST_WATERMARK = "request_watermark"
    """Request keys with a lower base version are dropped, and proposals with one are no longer validated."""

    ORPHAN_CUTOFF = "orphan_cutoff_us"
    """A last-modified time of the data's store: no older file may be added, so older orphans may be deleted."""

    AGE_OFF_CUT = "age_off_cut_us"
    """Rows with an earlier time are hidden, if the table has an age-off. A change of the age-off resets it."""


class RaiseWatermark(Struct, frozen=True):
    """Raise a watermark; rejected if it would not rise."""

    mark: Watermark
    value: int

    def resolve(self, state: TableState) -> RaiseWatermark | Rejected:
        """Return self if the watermark may rise to the value."""
        name = self.mark.value
        stands = getattr(state, name)
        if self.value <= stands:
            return Rejected(Code.PROPOSAL_OUTDATED, f"{name} stands at {stands} already; it only rises")
        match self.mark:
            case Watermark.EARLIEST_RETAINED_VERSION | Watermark.REQUEST_WATERMARK:
                if self.value > state.version:
                    text = f"{name} cannot be {self.value}; the newest version is {state.version}"
                    return Rejected(Code.PROPOSAL_INVALID, text)
            case Watermark.ORPHAN_CUTOFF:
                # The output of such a job could be rejected for its age once the work is done.
                earlier = sorted(job.id for job in state.jobs.values() if job.began_us < self.value)
                if earlier:
                    text = f"job {earlier[0]} is open and began before that cutoff; try again when it is closed"
                    return Rejected(Code.JOB_CONFLICT, text, {"job": earlier[0]})
            case Watermark.AGE_OFF_CUT:
                if not state.row_filter.age_field:
                    return Rejected(Code.PROPOSAL_OUTDATED, "the table has no age-off")
            case _:
                assert_never(self.mark)
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the watermark. A request watermark also drops request keys, and fences."""
        if self.value <= getattr(state, self.mark.value):
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} lowers {self.mark.value} to {self.value}; it only rises"
            )
        raised: dict[str, Any] = {self.mark.value: self.value}
        if self.mark is Watermark.REQUEST_WATERMARK:
            # Rows of a request that is older than a fence never pass it, however late they are ingested.
            oldest = min((request.base_version for request in state.open_requests.values()), default=state.version)
            raised["fences"] = tuple(
                fence
                for fence in state.fences
                if fence.version > min(self.value, oldest) or fence.stops(state.jobs.values())
            )
            raised["requests"] = state.requests.at_least("base_version", self.value)
        return replace(state, **raised)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the watermark and its value."""
        return Description(f"{self.mark.value} to {self.value}")

    def document(self, _sidecars: Sidecars) -> RaiseWatermarkDocument:
        """Return the document that the log stores."""
        return RaiseWatermarkDocument(self.mark.value, self.value)


class RaiseWatermarkDocument(Struct, frozen=True, tag_field="type", tag="raise_watermark"):
    """The stored document; see docs/format.md. The watermark is text here, so an unknown one shows a newer format."""

    mark: str
    value: Whole

    def transaction(self, _sidecars: SidecarData) -> RaiseWatermark:
        """Return the transaction of this document. Raises UnsupportedFormatError for an unknown watermark."""
        try:
            return RaiseWatermark(Watermark(self.mark), self.value)
        except ValueError:
            raise Code.FORMAT_TOO_NEW(f"a mark {self.mark!r}: written by a newer Lakebed; upgrade to read it") from None


class SetTag(StoredAsIs, frozen=True, tag="set_tag"):
    """Tag a version: its files and its checkpoint are kept while the tag exists."""

    name: TagName
    version: Positive

    def resolve(self, state: TableState) -> SetTag | Rejected | Repeated:
        """Return self if the version is retained and no other tag has the name."""
        facts: Facts = {"tag": self.name, "version": self.version}
        tagged = state.tags.get(self.name)
        if tagged is not None:
            if tagged == self.version:
                return Repeated(state.version)
            text = f"tag {self.name} stands at version {tagged} already; drop it first, or choose another name"
            return Rejected(Code.TAG_EXISTS, text, facts)
        if not 1 <= self.version <= state.version:
            text = f"there is no version {self.version}; the newest is {state.version}"
            return Rejected(Code.PROPOSAL_INVALID, text, facts)
        if not state.retains(self.version):
            kept = f"kept are those from version {state.earliest_retained_version} on"
            return Rejected(Code.TAG_VERSION_DELETED, f"files of version {self.version} are deleted; {kept}", facts)
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the tag."""
        return replace(state, tags={**state.tags, self.name: self.version})

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the name and the version."""
        return Description(f"{self.name} at version {self.version}")


class RemoveTag(StoredAsIs, frozen=True, tag="remove_tag"):
    """Remove a tag."""

    name: TagName

    def resolve(self, state: TableState) -> RemoveTag | Rejected:
        """Return self if the tag exists."""
        if self.name in state.tags:
            return self
        names = ", ".join(sorted(state.tags)) or "none"
        text = f"there is no tag {self.name}; its tags: {names}{did_you_mean(self.name, state.tags)}"
        return Rejected(Code.TAG_MISSING, text, {"tag": self.name})

    def apply(self, state: TableState) -> TableState:
        """Return the state without the tag."""
        return replace(state, tags={name: version for name, version in state.tags.items() if name != self.name})

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the name."""
        return Description(self.name)
