"""Rewrites: many jobs over one file each, opened in one entry, whose outputs replace the files in one entry. Pure.

Source: docs/decisions/0050.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.state.transactions.job_changes import CloseJob, Job, OpenJob, ProposeOutput, Replace
from lakebed.model.state.transactions.resolution import Rejected
from lakebed.model.state.view_source import refused_change

if TYPE_CHECKING:
    from lakebed.model.files import NewFile
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
