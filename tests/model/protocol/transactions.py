"""Resolves a transaction against a state, or returns why it is refused. Pure.

A `Change` is only valid for the state it was resolved against: the committer resolves again after each lost race.
"""

from typing import NamedTuple, assert_never

from .rows import DataFile, within
from .rules import Rules
from .state import (
    AddFile,
    Change,
    CloseJob,
    Job,
    Join,
    OpenJob,
    Remove,
    Replace,
    Split,
    TableState,
    Transaction,
    cut,
    reaches,
)


class Refusal(NamedTuple):
    """Why a transaction is not valid on a state."""

    reason: str


def resolve(transaction: Transaction, state: TableState, rules: Rules) -> Change | Refusal:
    """Return the effect of the transaction on this state, with files and partitions named explicitly. An empty effect
    is refused.
    """
    effect = transaction.effect
    match effect:
        case AddFile(file=file):
            return Change(transaction, adds=references_of(file, state, rules))
        case OpenJob(job=job):
            refusal = _refuse_job(job, state, rules)
            return refusal or Change(transaction, opens=job)
        case Replace():
            return _resolve_replace(transaction, effect, state, rules)
        case CloseJob(job_id=job_id):
            if state.job(job_id) is None:
                return Refusal("no such open job")
            return Change(transaction, closes=job_id)
        case Split(min=lower, max=upper, at=at, seen=seen):
            if state.partition(lower, upper) is None:
                return Refusal("no such partition")
            return Change(transaction, cuts=(at,), carried=seen if rules.split == "carries references" else None)
        case Join(at=at):
            refusal = _refuse_join(at, state, rules)
            return refusal or Change(transaction, joins=at)
        case Remove():
            return _resolve_remove(transaction, effect, state, rules)
        case _:
            assert_never(effect)


def references_of(file: DataFile, state: TableState, rules: Rules) -> tuple[tuple[int, DataFile], ...]:
    """Return a reference in each partition that the file reaches."""
    return tuple(
        [(partition.min, file) for partition in state.partitions if reaches(file, partition.min, partition.max, rules)]
    )


def _overlap(job: Job, lower: int, upper: int) -> bool:
    return job.min < upper and lower < job.max


def _refuse_job(job: Job, state: TableState, rules: Rules) -> Refusal | None:
    """A job may open iff its range is one current partition that refers to all its inputs, or current partitions inside
    its range have every row of its inputs, or it has one input and one of them refers to it; and no open job has one of
    its inputs there.

    A job replaces all its inputs or none in each partition of its range. If it were enough that each input is still
    somewhere in the range, the planned partition could have been split meanwhile and one of the inputs merged away in
    one half; the job's output would bring that input's rows back there. If every row is present, nothing was merged
    away; a single input has no other input whose rows its output could bring back.
    """
    several = len(job.inputs) > 1
    partition = state.partition(job.min, job.max)
    inside = [partition for partition in state.partitions if job.min <= partition.min and partition.max <= job.max]
    for file in job.inputs:
        held = [one for one in inside if file in one.references]
        counted = 0
        for one in held:
            counted |= within(file.rows, one.min, one.max)
        if not held:
            return Refusal("an input is gone")
        if rules.open_range == "every row counts" and partition is None and several and counted != file.rows:
            return Refusal("a row of an input does not count")
    if rules.open_inputs == "in no open job":
        for other in state.jobs:
            if _overlap(other, job.min, job.max) and any(file in other.inputs for file in job.inputs):
                return Refusal("an input is in another open job")
    return None


def _resolve_replace(transaction: Transaction, effect: Replace, state: TableState, rules: Rules) -> Change | Refusal:
    """Return the effect partition by partition over the current partitions inside the job's range: a partition with an
    input loses it and gains the output.

    A partition without inputs was emptied by a removal since: it gets nothing, or the removed rows would reappear.
    """
    job = state.job(effect.job.id)
    if job is None:
        if rules.late_commit == "refused":
            return Refusal("no such open job")
        job = effect.job
    drops: list[tuple[int, DataFile]] = []
    adds: list[tuple[int, DataFile]] = []
    for partition in state.partitions:
        if partition.min < job.min or job.max < partition.max:
            continue
        held = [file for file in partition.references if file in job.inputs]
        drops.extend((partition.min, file) for file in held)
        gains = {
            "partition by partition": bool(held),
            "original partition": partition.min == job.min,
            "every partition in range": True,
        }[rules.replace]
        if gains and effect.output is not None and reaches(effect.output, partition.min, partition.max, rules):
            adds.append((partition.min, effect.output))
    if not drops:
        return Refusal("no input is left")
    return Change(transaction, drops=tuple(drops), adds=tuple(adds), closes=job.id)


def _refuse_join(at: int, state: TableState, rules: Rules) -> Refusal | None:
    """Two partitions may be joined iff no open job overlaps either and no file of just one of them reaches into the
    other.
    """
    upper = next((partition for partition in state.partitions if partition.min == at), None)
    lower = next((partition for partition in state.partitions if partition.max == at), None)
    if lower is None or upper is None:
        return Refusal("no such partition")
    if rules.join_jobs == "none open" and any(_overlap(job, lower.min, upper.max) for job in state.jobs):
        return Refusal("a partition has an open job")
    if rules.join_files == "must not reach over":
        for one, other in ((lower, upper), (upper, lower)):
            for file in one.references:
                if file not in other.references and reaches(file, other.min, other.max, rules):
                    return Refusal("a file reaches over")
    return None


def _resolve_remove(transaction: Transaction, effect: Remove, state: TableState, rules: Rules) -> Change | Refusal:
    partitions = cut(cut(state.partitions, effect.min, rules), effect.max, rules)
    drops = tuple(
        (partition.min, file)
        for partition in partitions
        if effect.min <= partition.min and partition.max <= effect.max
        for file in partition.references
    )
    if not drops:
        return Refusal("nothing to remove")
    return Change(transaction, cuts=(effect.min, effect.max), drops=drops)
