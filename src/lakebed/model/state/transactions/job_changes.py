"""Opens, commits and closes jobs: units of work over file references.

A job is opened over exactly one current partition that refers to all of its inputs, or over several that together hold
every row of its inputs. A job of one input may be opened over any partitions of which at least one refers to it,
because it cannot bring back rows of another input. A job commits partition by partition over the partitions now inside
its range. A partition that still has inputs of the job loses those and gains the outputs that reach it; a partition
without inputs is unchanged. If no partition has inputs, the commit is rejected. A closed job commits nothing. Pure.

Source: the random models in tests/model/protocol break every simpler rule.

*Rewrites: many jobs over one file each, opened in one entry, whose outputs replace the files in one entry. Pure.*

Source: docs/decisions/0050.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.files import NewFile
from lakebed.model.state.fields import FileDocument, Hex, Id, StoredAsIs, Whole, decode_bounds, encode_bounds
from lakebed.model.state.reference_lists import (
    PairList,
    ReferenceList,
    decode_pairs,
    decode_references,
    encode_pairs,
    encode_references,
)
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions.add_files import append_files, drop_references, references_to, refused_files
from lakebed.model.state.transactions.resolution import Description, Rejected, refused_change
from lakebed.model.wording import count_text, duration_text

if TYPE_CHECKING:
    from lakebed.errors import Facts
    from lakebed.model.files import DataFile, PartitionFile, Reference
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState


class ProposeJobs(Struct, frozen=True, tag_field="type", tag="propose_jobs"):
    """Claim input references for many non-conflicting jobs. Those that cannot be opened are left out at the commit."""

    jobs: tuple[Job, ...]

    def resolve(self, state: TableState) -> tuple[OpenJob, ...] | Rejected:
        """Return the jobs that may be opened over the current partitions; rejected if there is none."""
        if refused_view := refused_change(state):
            return refused_view
        resolved = [OpenJob(job).resolve(state) for job in self.jobs]
        opened = tuple([one for one in resolved if isinstance(one, OpenJob)])
        refused = (one for one in resolved if isinstance(one, Rejected))
        return opened or next(refused, Rejected(Code.PROPOSAL_INVALID, "no job is named"))


class ProposeRewrite(Struct, frozen=True, tag_field="type", tag="propose_rewrite"):
    """The outputs of all jobs of a rewrite, which become visible together or not at all; each job has one input.

    An output takes the run of its input in every partition, so runs do not change.
    """

    outputs: tuple[ProposeOutput, ...]

    @property
    def files(self) -> tuple[NewFile, ...]:
        """The files of all outputs."""
        return tuple([new for output in self.outputs for new in output.files])

    def resolve(self, state: TableState) -> tuple[Replace | CloseJob, ...] | Rejected:
        """Return a replacement for each job, or its closing if its input was removed; rejected if one is."""
        if refused := refused_change(state):
            return refused
        changes: list[Replace | CloseJob] = []
        for output in self.outputs:
            resolved = output.resolve(state)
            if isinstance(resolved, Replace):
                changes.append(_in_runs_of_input(resolved, state))
            elif resolved.code is Code.PROPOSAL_OUTDATED and not _is_input_held(output.job, state):
                changes.append(CloseJob(output.job, "its input was removed meanwhile"))
            else:
                return resolved
        return tuple(changes)


def _is_input_held(job: str, state: TableState) -> bool:
    """Return whether an input of an open job is referenced inside its range."""
    opened = state.jobs[job]
    positions = state.partitions.overlapping(opened.keys)
    return any(file.id in opened.inputs for p in positions for file in state.files_of(state.partitions.ids[p]))


def _in_runs_of_input(change: Replace, state: TableState) -> Replace:
    runs = {
        partition: next(held.run for held in state.held_by(partition) if held.file.id == file)
        for file, partition in change.drop
    }
    references = tuple([replace(one, run=runs[one.partition]) for one in change.references])
    return structs.replace(change, references=references, changes_rows=True)


class JobDocument(Struct, frozen=True, omit_defaults=True):
    """A job as it is stored."""

    id: Id
    min: Hex
    max: Hex | None
    inputs: tuple[Id, ...]
    owner: str
    deadline_s: Whole
    began_us: Whole
    opened: Whole
    complete: bool = False

    @classmethod
    def of(cls, job: Job) -> JobDocument:
        """Return the document of the job."""
        return cls(
            job.id,
            *encode_bounds(job.keys),
            job.inputs,
            job.owner,
            job.deadline_s,
            job.began_us,
            job.opened,
            job.complete,
        )

    def value(self) -> Job:
        """Return the job of this document."""
        keys = decode_bounds((self.min, self.max))
        return Job(self.id, keys, self.inputs, self.owner, self.deadline_s, self.began_us, self.opened, self.complete)


class OpenJob(Struct, frozen=True):
    """Claim input references for a job."""

    job: Job

    def resolve(self, state: TableState) -> OpenJob | Rejected:
        """Return self if the job may be opened over the current partitions."""
        job = self.job
        if job.id in state.jobs:
            return Rejected(Code.JOB_CONFLICT, f"job {job.id} is open already", {"job": job.id})
        if not job.inputs:
            return Rejected(Code.PROPOSAL_INVALID, f"job {job.id} has no inputs", {"job": job.id})
        position = state.partitions.position(job.keys.min)
        if state.partitions.range_at(position) == job.keys:
            # The partition must be a current one that has all of the inputs. A looser rule doubles rows: if a job
            # planned on a partition that was split meanwhile were opened, an input that another job merged away in one
            # half would come back there with the output.
            referenced = {r.file for r in state.references_of(state.partitions.ids[position])}
            if gone := [name for name in job.inputs if name not in referenced]:
                return _input_gone(job, gone[0])
        elif refused := _part_missing(job, state):
            return refused
        if not state.merge.keeps_all and (refused := _out_of_order(job, state)):
            return refused
        inputs = set(job.inputs)
        for other in state.jobs.values():
            # The inputs are compared first, which is faster: a rewrite has thousands of jobs.
            if (shared := inputs.intersection(other.inputs)) and not other.keys.intersect(job.keys).empty:
                text = f"input {min(shared)} belongs to open job {other.id}"
                return Rejected(Code.JOB_CONFLICT, text, {"file": min(shared), "job": other.id})
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the job open from this version on."""
        return replace(state, jobs=state.jobs.insert(self.job.id, replace(self.job, opened=state.version)))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the size of the job."""
        inputs = count_text(len(self.job.inputs), "file")
        return Description(f"over {inputs}, for {duration_text(self.job.deadline_s)}", job=self.job.id)

    def document(self, _sidecars: Sidecars) -> OpenJobDocument:
        """Return the document that the log stores."""
        return OpenJobDocument(JobDocument.of(self.job))


class OpenJobDocument(Struct, frozen=True, tag_field="type", tag="open_job"):
    """The stored document; docs/format.md describes its fields."""

    job: JobDocument

    def transaction(self, _sidecars: SidecarData) -> OpenJob:
        """Return the transaction of this document."""
        return OpenJob(self.job.value())


def _out_of_order(job: Job, state: TableState) -> Rejected | None:
    """Return why the inputs of a job cannot be merged into one run of a table that merges rows; None if they can.

    The output takes the place of the inputs. So they are in the order of each partition's list, no other reference is
    between them and, if the job is complete, none is before them. If the job covers several partitions, no reference of
    one of them may have arrived between any two inputs: it would have to be before the output in one partition and
    after it in another.
    """
    inputs = {name: index for index, name in enumerate(job.inputs)}
    spans = [state.files[name].sequence_hi for name in job.inputs if name in state.files]
    several = len(inputs) > 1 and state.partitions.range_at(state.partitions.position(job.keys.min)) != job.keys
    for position in state.partitions.overlapping(job.keys):
        partition = state.partitions.ids[position]
        listed = [one.file.id for one in state.held_by(partition)]
        places = [index for index, name in enumerate(listed) if name in inputs]
        if not places:
            continue
        facts: Facts = {"job": job.id, "partition": partition}
        between = several and any(
            min(spans) <= state.files[name].sequence_hi <= max(spans) for name in listed if name not in inputs
        )
        if between or places[-1] - places[0] >= len(places):
            text = f"the inputs of job {job.id} are not neighbours in partition {partition} by arrival; plan again"
            return Rejected(Code.PROPOSAL_OUTDATED, text, facts)
        turns = [inputs[listed[index]] for index in places]
        if turns != sorted(turns):
            text = f"the inputs of job {job.id} are not in the order of arrival that partition {partition} has"
            return Rejected(Code.PROPOSAL_INVALID, text, facts)
        if job.complete and places[0]:
            text = f"partition {partition} has files older than the inputs of job {job.id}; plan again"
            return Rejected(Code.PROPOSAL_OUTDATED, text, facts)
    return None


def _input_gone(job: Job, name: str) -> Rejected:
    text = f"input {name} of job {job.id} is not referenced there any more; plan again"
    return Rejected(Code.PROPOSAL_OUTDATED, text, {"job": job.id, "file": name})


def _part_missing(job: Job, state: TableState) -> Rejected | None:
    """Return why a job over several partitions may not be opened; None if it may.

    The job needs every row of its inputs. Exact counts prove it: those of the partitions inside the range sum to the
    rows of each input. A single input only needs one of the partitions to refer to it.
    """
    if len(job.inputs) == 1:
        inside = (p for p in state.partitions.overlapping(job.keys) if job.keys.covers(state.partitions.range_at(p)))
        if any(file.id == job.inputs[0] for p in inside for file in state.files_of(state.partitions.ids[p])):
            return None
        return _input_gone(job, job.inputs[0])
    counted = dict.fromkeys(job.inputs, 0)
    rows: dict[str, int] = {}
    for position in state.partitions.overlapping(job.keys):
        if job.keys.covers(state.partitions.range_at(position)):
            for reference in state.held_by(state.partitions.ids[position]):
                if reference.file.id in counted:
                    counted[reference.file.id] += reference.rows if reference.exact else -reference.file.rows
                    rows[reference.file.id] = reference.file.rows
    for name, count in counted.items():
        if count != rows.get(name):
            return Rejected(
                Code.PROPOSAL_OUTDATED,
                f"job {job.id} is over no single partition, and its partitions do not hold all rows of its input "
                f"{name}: a partition was split or joined, or the input was merged or removed in one; plan again",
                {"job": job.id, "file": name},
            )
    return None


class ProposeOutput(Struct, frozen=True, tag_field="type", tag="propose_output"):
    """The files that a job made of its inputs; none if no row was left.

    ``changes_rows``: they have other rows than the inputs.
    """

    job: str
    files: tuple[NewFile, ...]
    changes_rows: bool = False

    def resolve(self, state: TableState) -> Replace | Rejected:
        """Return the replacement of the inputs in the current partitions."""
        job = state.jobs.get(self.job)
        if job is None:
            return job_not_open(self.job, ": it was closed, or committed before")
        if refused := refused_files(self.files, state):
            return refused
        for fence in state.fences:
            if fence.stops((job,)):
                # The output would hold the bytes that the removal had to erase, though no reader would see them.
                text = f"version {fence.version} removed a range for good that job {job.id} reads; plan again"
                return Rejected(Code.RANGE_REMOVED, text, {"job": job.id, "version": fence.version})
        if state.filter_version >= job.opened:
            # The job may have dropped rows that the table shows again.
            text = (
                f"version {state.filter_version} changed the table's filter after job {job.id} was opened; plan again"
            )
            return Rejected(Code.PROPOSAL_OUTDATED, text, {"job": job.id, "version": state.filter_version})
        inputs = set(job.inputs)
        oldest = min((new.file.schema_version for new in self.files), default=len(state.schemas))
        drop: list[tuple[str, int]] = []
        served: set[int] = set()
        for position in state.partitions.overlapping(job.keys):
            partition = state.partitions.ids[position]
            present = [file for file in state.files_of(partition) if file.id in inputs]
            newer = [file.id for file in present if file.schema_version > oldest]
            if newer:
                text = f"the output of job {self.job} has not all fields of its input {newer[0]}; plan again"
                return Rejected(Code.PROPOSAL_OUTDATED, text, {"job": self.job, "file": newer[0]})
            if present and job.keys.covers(state.partitions.range_at(position)):
                drop += [(file.id, partition) for file in present]
                served.add(partition)
        if not drop:
            text = f"none of the inputs of job {self.job} is referenced any more"
            return Rejected(Code.PROPOSAL_OUTDATED, text, {"job": self.job})
        references = [r for new in self.files for r in references_to(new, state, job.keys) if r.partition in served]
        used = {r.file for r in references}
        files = tuple(new.file for new in self.files if new.file.id in used)
        return Replace(self.job, tuple(drop), files, tuple(references), self.changes_rows)


class Replace(Struct, frozen=True):
    """A job's commit: drop ``(file, partition)`` pairs, add files and references, close the job.

    ``changes_rows``: the new files have other rows, as those of a rewrite or a repair; a compaction changes no rows.
    """

    job: str
    drop: tuple[tuple[str, int], ...]
    files: tuple[DataFile, ...]
    references: tuple[Reference, ...]
    changes_rows: bool = False

    def apply(self, state: TableState) -> TableState:
        """Return the state in which the outputs have the sequence span of the inputs."""
        job = state.jobs.get(self.job)
        if job is None:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} commits job {self.job}, which is not open", job=self.job
            )
        # An input may be purged if all its references were removed meanwhile.
        inputs = [state.files[name] for name in job.inputs if name in state.files]
        sequence_span = min(f.sequence_lo for f in inputs), max(f.sequence_hi for f in inputs)
        going = held_pairs(state, self.drop)
        closed = replace(state, jobs=state.jobs.remove(self.job))
        if self.changes_rows and state.indexes:
            closed = replace(closed, rewritten_version=state.version)
        replaced = append_files(drop_references(closed, going), self.files, self.references, sequence_span)
        if state.merge.keeps_all:
            return replaced
        return _in_place(replaced, {partition: state.held_by(partition) for partition in going})

    def describe(self, added: ReferenceCounts, dropped: ReferenceCounts) -> Description:
        """Report the rows of the output; those of the dropped references are not on record."""
        return Description(
            f"{count_text(dropped.references, 'reference')} replaced by {added.references:,}",
            rows_added=added.rows or 0,
            rows_removed=None,
            files_added=len(self.files),
            references_dropped=dropped.references,
            bytes_added=sum(file.size_bytes for file in self.files),
            job=self.job,
        )

    def document(self, sidecars: Sidecars) -> ReplaceDocument:
        """Return the document that the log stores."""
        drop, references = encode_pairs(self.drop, sidecars), encode_references(self.references, sidecars)
        files = [FileDocument.of(file) for file in self.files]
        return ReplaceDocument(self.job, drop, files, references, self.changes_rows)


class ReplaceDocument(Struct, frozen=True, tag_field="type", tag="replace", omit_defaults=True):
    """The stored document; docs/format.md describes its fields."""

    job: Id
    drop: PairList
    files: list[FileDocument]
    references: ReferenceList
    changes_rows: bool = False

    def transaction(self, sidecars: SidecarData) -> Replace:
        """Return the transaction of this document."""
        drop, references = decode_pairs(self.drop, sidecars), decode_references(self.references, sidecars)
        return Replace(self.job, drop, tuple([one.value() for one in self.files]), references, self.changes_rows)


def held_pairs(state: TableState, pairs: Iterable[tuple[str, int]]) -> Mapping[int, list[DataFile]]:
    """Return the files of the pairs, by partition. Raises DamagedError if a partition does not have one."""
    remaining: dict[int, dict[str, DataFile]] = {}
    going: dict[int, list[DataFile]] = {}
    for name, partition in pairs:
        if partition not in remaining:
            remaining[partition] = {one.file.id: one.file for one in state.held_by(partition)}
        file = remaining[partition].pop(name, None)
        if file is None:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} drops {name} from partition {partition}, which does not hold it", file=name
            )
        going.setdefault(partition, []).append(file)
    return going


def _in_place(state: TableState, before: Mapping[int, Sequence[PartitionFile]]) -> TableState:
    """Move the outputs of a job, which are last in their partitions, to the place of the last of its inputs.

    ``before`` are the files that the partitions had.
    """
    order: dict[int, list[PartitionFile]] = {}
    for partition, old in before.items():
        now = state.held_by(partition)
        known, kept = {one.file.id for one in old}, {one.file.id for one in now}
        outputs = [one for one in now if one.file.id not in known]
        last_input = max(index for index, one in enumerate(old) if one.file.id not in kept)
        older = [one for one in old[:last_input] if one.file.id in kept]
        order[partition] = [*older, *outputs, *old[last_input + 1 :]]
    # All are dropped and added again, in their new order.
    rest = state.references.drop({partition: [one.file.id for one in files] for partition, files in order.items()})
    return replace(state, references=rest.add(order))


class CloseJob(StoredAsIs, frozen=True, tag="close_job"):
    """Close a job that failed or is past its deadline. A later commit of the job is rejected."""

    job: Id
    reason: str

    def resolve(self, state: TableState) -> CloseJob | Rejected:
        """Return self if the job is open."""
        return self if self.job in state.jobs else job_not_open(self.job)

    def apply(self, state: TableState) -> TableState:
        """Return the state without the open job."""
        return replace(state, jobs=state.jobs.discard(self.job))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the reason."""
        return Description(self.reason, job=self.job)


def job_not_open(job: str, why: str = "") -> Rejected:
    """Return the rejection of a commit of a job that is not open."""
    return Rejected(Code.JOB_NOT_OPEN, f"job {job} is not open{why}", {"job": job})
