"""Resolving: an offer and the state as it is now give a transaction, or a refusal. Pure.

The rules that random models broke when they were stated more simply (tests/model/protocol):

* A writer names files, never leaves: its files are mapped onto the leaves in force, again after every lost race.
* A split names the leaf and the keys, never references: what arrived meanwhile moves too.
* A reference is left out only if the file's bounds or two exact ranks prove that no row is there, never because an
  estimate is 0. Shares of a count sum to the whole.
* A job commits leaf by leaf over the leaves now inside its range: a leaf that still holds inputs of it loses those and
  gains the outputs that reach it; a leaf that holds none gets nothing; none at all is a refusal. A closed job commits
  nothing. A job is opened over exactly one leaf in force that refers to all of its inputs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from lakebed.files import Reference
from lakebed.keys import EncodedRange
from lakebed.state.evolution import resolve_changes
from lakebed.state.transactions import (
    AddFiles,
    AlterSettings,
    CloseJob,
    CreateTable,
    DropTable,
    ForgetFiles,
    MarkDead,
    OfferFiles,
    OfferOutput,
    OfferSchema,
    OfferSplit,
    OfferTag,
    OpenJob,
    Rejected,
    RemoveTag,
    Repeated,
    Replace,
    SetTag,
    SplitLeaf,
    Transaction,
)
from lakebed.summaries import Summary, shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.files import NewFile
    from lakebed.state.table import TableState
    from lakebed.state.transactions import Offer


def resolve(offer: Offer, state: TableState) -> Transaction | Rejected | Repeated:
    """The transaction that the offer means in this state, or why it is refused."""
    if isinstance(offer, CreateTable):
        return offer if state.number == 0 else Rejected("the table exists already")
    if state.number == 0:
        return Rejected("the table does not exist yet")
    if state.dropped:
        return Rejected("the table has been dropped")
    match offer:
        case OfferFiles():
            return _resolve_files(offer, state)
        case OfferOutput():
            return _resolve_output(offer, state)
        case OfferSplit():
            return _resolve_split(offer, state)
        case OpenJob():
            return _resolve_open(offer, state)
        case CloseJob():
            return offer if offer.job in state.jobs else Rejected(f"job {offer.job} is not open")
        case MarkDead():
            return _resolve_dead(offer, state)
        case ForgetFiles():
            alive = [f for f in offer.files if f not in state.files or not state.files[f].dead]
            return Rejected(f"files not marked dead: {', '.join(alive[:3])}") if alive else offer
        case OfferTag():
            return _resolve_tag(offer, state)
        case RemoveTag():
            return offer if offer.name in state.tags else Rejected(f"there is no tag {offer.name}")
        case OfferSchema():
            return resolve_changes(offer, state.schemas)
        case AlterSettings() | DropTable():
            return offer
        case _:
            assert_never(offer)


def _refused_files(files: Sequence[NewFile], state: TableState) -> Rejected | None:
    names = [new.file.id for new in files]
    known = [name for name in names if name in state.files]
    if known or len(set(names)) != len(names):
        return Rejected(f"file {known[0] if known else 'twice in one transaction'} is in the table already")
    for new in files:
        # Any version that the table had will do: readers find fields by their ids.
        if not 1 <= new.file.schema_version <= len(state.schemas):
            return Rejected(
                f"file {new.file.id} was written for schema version {new.file.schema_version}; the table has versions "
                f"1 to {len(state.schemas)}"
            )
    return None


def _resolve_files(offer: OfferFiles, state: TableState) -> AddFiles | Rejected | Repeated:
    if offer.request_key is not None and offer.request_key in state.requests:
        return Repeated(state.requests[offer.request_key])
    if refused := _refused_files(offer.files, state):
        return refused
    references = [r for new in offer.files for r in _references(new, state, EncodedRange())]
    return AddFiles(tuple(new.file for new in offer.files), tuple(references), offer.request_key)


def _references(new: NewFile, state: TableState, within: EncodedRange) -> list[Reference]:
    """One reference for each leaf inside ``within`` that the file reaches, with the rows it has there."""
    file, leaves = new.file, state.leaves
    first, last = leaves.position(file.min_key), leaves.position(file.max_key)
    counts = shares(new.summary, leaves.boundaries[first:last])
    references = []
    for position, (rows, exact) in zip(range(first, last + 1), counts, strict=True):
        if (rows or not exact) and within.covers(leaves.range_at(position)):
            references.append(Reference(file.id, leaves.ids[position], rows, exact, new.run))
    return references


def _resolve_open(offer: OpenJob, state: TableState) -> OpenJob | Rejected:
    job = offer.job
    if job.id in state.jobs:
        return Rejected(f"job {job.id} is open already")
    if not job.inputs:
        return Rejected(f"job {job.id} has no inputs")
    # One leaf, as it is now, with all of the inputs. Anything looser doubles rows: planned on a leaf that was split
    # meanwhile, an input that another job has merged away in one half would come back there with the output.
    position = state.leaves.position(job.keys.min)
    if state.leaves.range_at(position) != job.keys:
        return Rejected(f"the leaf of job {job.id} is gone: it was split; plan again")
    held = {r.file for r in state.references_of(state.leaves.ids[position])}
    gone = [name for name in job.inputs if name not in held]
    if gone:
        return Rejected(f"input {gone[0]} of job {job.id} is not referenced there any more; plan again")
    for other in state.jobs.values():
        shared = set(other.inputs) & set(job.inputs)
        if shared and not other.keys.intersect(job.keys).empty:
            return Rejected(f"input {min(shared)} belongs to open job {other.id}")
    return OpenJob(replace(job, opened=state.number + 1))


def _resolve_output(offer: OfferOutput, state: TableState) -> Replace | Rejected:
    job = state.jobs.get(offer.job)
    if job is None:
        return Rejected(f"job {offer.job} is not open: it was closed, or committed before")
    if refused := _refused_files(offer.files, state):
        return refused
    inputs = set(job.inputs)
    oldest = min((new.file.schema_version for new in offer.files), default=len(state.schemas))
    newer = [name for name in job.inputs if name in state.files and state.files[name].file.schema_version > oldest]
    if newer:
        return Rejected(f"the output of job {offer.job} has not all fields of its input {newer[0]}; plan again")
    drop: list[tuple[str, int]] = []
    served: set[int] = set()
    for position in state.leaves.overlapping(job.keys):
        leaf = state.leaves.ids[position]
        held = [(r.file, leaf) for r in state.references_of(leaf) if r.file in inputs]
        if held and job.keys.covers(state.leaves.range_at(position)):
            drop += held
            served.add(leaf)
    if not drop:
        return Rejected(f"none of the inputs of job {offer.job} is referenced any more")
    references = [r for new in offer.files for r in _references(new, state, job.keys) if r.leaf in served]
    used = {r.file for r in references}
    files = tuple(new.file for new in offer.files if new.file.id in used)
    return Replace(offer.job, tuple(drop), files, tuple(references))


def _resolve_split(offer: OfferSplit, state: TableState) -> SplitLeaf | Rejected:
    position = state.leaves.position_of(offer.leaf)
    if position is None:
        return Rejected(f"leaf {offer.leaf} is gone: it was split before")
    keys = state.leaves.range_at(position)
    ascending = all(a < b for a, b in zip((keys.min, *offer.keys), offer.keys, strict=False))
    if not offer.keys or not ascending or (keys.max is not None and offer.keys[-1] >= keys.max):
        return Rejected(f"the keys to split leaf {offer.leaf} at do not ascend strictly inside it")
    parts = state.leaves.split(offer.leaf, offer.keys)
    references: list[Reference] = []
    for reference in state.references_of(offer.leaf):
        found = _split_shares(reference, offer, state, keys)
        for index, (rows, exact) in enumerate(found):
            part = parts.range_at(position + index)
            reaches = state.files[reference.file].file.reaches(part)
            if (rows or not exact) and reaches:
                references.append(replace(reference, leaf=parts.ids[position + index], rows=rows, exact=exact))
    return SplitLeaf(offer.leaf, offer.keys, tuple(references))


def _split_shares(
    reference: Reference, offer: OfferSplit, state: TableState, keys: EncodedRange
) -> list[tuple[int, bool]]:
    """The rows of one reference in each part of its leaf; they sum to what the reference had."""
    file = state.files[reference.file].file
    edges = [keys.min, *offer.keys]
    summary = offer.summaries.get(reference.file)
    if summary is None:
        # Arrived after the split was planned: even shares over the parts that its bounds reach.
        summary = Summary((file.min_key,), (0,), file.rows, file.max_key)
    ranks = [summary.rank(edge) for edge in edges]
    ranks.append((summary.rows, True) if keys.max is None else summary.rank(keys.max))
    counts = [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]
    if all(exact for _, exact in counts):
        return counts
    return _scaled(counts, reference.rows)


def _scaled(counts: Sequence[tuple[int, bool]], rows: int) -> list[tuple[int, bool]]:
    """Shares of ``rows`` in proportion to the counts; one proved exact keeps its flag only if it stays as it was."""
    total = sum(count for count, _ in counts)
    shared: list[tuple[int, bool]] = []
    passed = given = 0
    for index, (count, exact) in enumerate(counts):
        passed += count
        # With nothing to go by, everything even.
        upto = rows * passed // total if total else rows * (index + 1) // len(counts)
        shared.append((upto - given, exact and upto - given == count))
        given = upto
    return shared


def _resolve_dead(offer: MarkDead, state: TableState) -> MarkDead | Rejected:
    for name in offer.files:
        committed = state.files.get(name)
        if committed is None or committed.references or committed.dead:
            return Rejected(f"file {name} is forgotten, referenced or dead already; plan again")
    # Judged here and not when it was planned: a tag may have come since.
    free = [name for name in offer.files if not state.tagged(state.files[name])]
    return MarkDead(tuple(free)) if free else Rejected("tags need all of these files")


def _resolve_tag(offer: OfferTag, state: TableState) -> SetTag | Rejected | Repeated:
    number = state.number if offer.number is None else offer.number
    held = state.tags.get(offer.name)
    if held is not None:
        if held == offer.number:
            return Repeated(state.number)
        return Rejected(f"tag {offer.name} stands at number {held} already; remove it first")
    if not 1 <= number <= state.number:
        return Rejected(f"there is no number {number}; the newest is {state.number}")
    if not state.retains(number):
        return Rejected(f"files of number {number} are deleted; kept are those from number {state.retained_from} on")
    return SetTag(offer.name, number)
