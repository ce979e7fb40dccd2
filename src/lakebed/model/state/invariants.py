"""What always holds of the state of a table, as predicates: a state that an entry leads to is checked before the entry
is written. Pure.

A predicate is a generator function: its name is that of the invariant, its docstring the rule, and what it yields are
the violations, as text. Those of :data:`OF_STATES` read a :class:`Checked`: a whole state (:func:`whole`), the rows
that a checkpoint writes anew (:func:`since_checkpoint`), or what one change touched (:class:`Transition`). Those of
:data:`OF_STEPS` compare the states before and after a change.

Rules. A check of a step takes time for what the change touched, up to a bound, and reads no segment of a checkpoint: of
a partition it reads the files that joined or left. So a step cannot see that a file which joined was there before; a
whole state shows it. A violation is a bug: resolving a proposal is meant to refuse whatever would lead to one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct, field

from lakebed.errors import Code
from lakebed.model.state.transactions import OpenJob, Replace

if TYPE_CHECKING:
    from lakebed.model.files import CommittedFile, DataFile, PartitionFile
    from lakebed.model.state.table_state import Answer, Fence, IngestRequest, Job, TableState
    from lakebed.model.state.transactions import Transaction


PARTITIONS_MAX = 256
"""Of a change that touches more partitions, so many are checked, evenly spread, and references are not counted: a
commit may reach 100,000 partitions, and takes microseconds for each."""


class Checked(Struct, frozen=True):
    """The part of a state that is checked. ``references`` are by partition, ``files`` by id; ``counts`` are the
    references that each of these files has to have. ``partitions`` are the ids whose place is checked.
    """

    state: TableState
    partitions: Iterable[int] = ()
    references: Mapping[int, Sequence[PartitionFile]] = field(default_factory=dict)
    files: Mapping[str, CommittedFile] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    jobs: Sequence[Job] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    open_requests: Sequence[IngestRequest] = ()
    rejected: Sequence[IngestRequest] = ()
    fences: Sequence[Fence] = ()
    tags: Mapping[str, int] = field(default_factory=dict)


class Transition(Struct, frozen=True):
    """A change between two states, and the part of the later one that it touched."""

    before: TableState
    after: TableState
    changes: Sequence[Transaction]

    def touched(self, partitions_max: int = PARTITIONS_MAX) -> Checked:
        """Return what the change touched: the files that joined partitions, and the rows that changed."""
        before, after = self.before, self.after
        references: dict[int, Sequence[PartitionFile]] = {}
        moved: dict[str, int] = {}
        partitions = list(after.references.changed_since(before.references))
        counted = len(partitions) <= partitions_max
        for partition in partitions[:: -(-len(partitions) // partitions_max) or 1]:
            joined, left = after.references.moves(partition, before.references)
            references[partition] = joined
            for one in joined:
                moved[one.file.id] = moved.get(one.file.id, 0) + 1
            for name in left:
                moved[name] = moved.get(name, 0) - 1
        files: dict[str, CommittedFile] = {}
        counts: dict[str, int] = {}
        # A file that moves between partitions keeps its count, and must not be left out.
        for name in moved.keys() | after.files.changed_since(before.files):
            if (committed := after.files.get(name)) is not None:
                files[name], old = committed, before.files.get(name)
                count = (0 if old is None else old.references) + moved.get(name, 0)
                counts[name] = count if counted else committed.references
        answered = after.requests.changed_since(before.requests)
        opened = after.open_requests.changed_since(before.open_requests)
        return Checked(
            after,
            range(before.partitions.next_id, after.partitions.next_id) if before.version else after.partitions.ids,
            references,
            files,
            counts,
            [after.jobs[change.job.id] for change in self.changes if isinstance(change, OpenJob)],
            {name: answer for name in answered if (answer := after.requests.get(name)) is not None},
            [request for name in opened if (request := after.open_requests.get(name)) is not None],
            after.rejected if after.rejected is not before.rejected else (),
            after.fences if after.fences is not before.fences else (),
            after.tags if after.tags is not before.tags else {},
        )


def whole(state: TableState) -> Checked:
    """Return all of a state. Linear; reads every segment."""
    references = dict(state.references.items())
    counts = Counter(one.file.id for held in references.values() for one in held)
    return Checked(
        state,
        state.partitions.ids,
        references,
        dict(state.files.items()),
        counts,
        list(state.jobs.values()),
        dict(state.requests.items()),
        list(state.open_requests.values()),
        state.rejected,
        state.fences,
        state.tags,
    )


def since_checkpoint(state: TableState) -> Checked:
    """Return what changed since the checkpoint that the state is based on: the lists of partitions are whole."""
    references = {partition: held for partition, held in state.references.changes.items() if held}
    files = {name: committed for name, committed in state.files.changes.items() if committed is not None}
    return Checked(
        state,
        references,
        references,
        files,
        {name: committed.references for name, committed in files.items()},
        list(state.jobs.values()),
        {name: answer for name, answer in state.requests.changes.items() if answer is not None},
        [request for request in state.open_requests.changes.values() if request is not None],
        state.rejected,
        state.fences,
        state.tags,
    )


def violations_of(checked: Checked) -> Iterator[str]:
    """Yield the violations of a state, each with the name of its invariant."""
    for invariant in OF_STATES:
        for found in invariant(checked):
            yield f"{named(invariant)}: {found}"


def violations_by(before: TableState, after: TableState, changes: Sequence[Transaction]) -> Iterator[str]:
    """Yield the violations by a change of one entry, each with the name of its invariant."""
    step = Transition(before, after, changes)
    yield from violations_of(step.touched())
    for invariant in OF_STEPS:
        for found in invariant(step):
            yield f"{named(invariant)}: {found}"


def check_invariants(state: TableState) -> None:
    """Raise DamagedError if the state violates an invariant. Linear; for verification and tests."""
    for violation in violations_of(whole(state)):
        raise Code.STATE_INCONSISTENT(violation)


def named(invariant: Callable[..., object]) -> str:
    """Return the name of an invariant in messages."""
    return invariant.__name__.replace("_", " ")


# -- of states: partitions and references -----------------------------------------------------------------------


def partitions_tile_the_key_space(checked: Checked) -> Iterator[str]:
    """Partitions are in key order, none is empty, and there is one more of them than boundaries."""
    partitions = checked.state.partitions
    if len(partitions.ids) != len(partitions.boundaries) + 1:
        yield f"{len(partitions.ids)} partitions have {len(partitions.boundaries)} boundaries"
        return
    for partition in checked.partitions:
        position = partitions.position_of(partition)
        if position is None or partitions.ids[position] != partition or partitions.range_at(position).empty:
            yield f"partition {partition} has no place among them"
        if partition >= partitions.next_id:
            yield f"partition {partition} has an id that has not been given out"


def references_are_of_partitions(checked: Checked) -> Iterator[str]:
    """A reference is of a partition that exists."""
    for partition, held in checked.references.items():
        if held and checked.state.partitions.position_of(partition) is None:
            yield f"references of a partition that does not exist: {partition}"


def a_partition_references_a_file_once(checked: Checked) -> Iterator[str]:
    """A partition does not refer to a file twice: its rows would be read twice."""
    for partition, held in checked.references.items():
        if len(held) > 1 and len({one.file.id for one in held}) != len(held):
            yield f"partition {partition} references a file twice"


def referenced_files_are_kept(checked: Checked) -> Iterator[str]:
    """A referenced file is one of the table, and is not retired: garbage collection deletes no file that is read."""
    files = checked.state.files
    for partition, held in checked.references.items():
        for one in held:
            committed = checked.files.get(one.file.id) or files.get(one.file.id)
            if committed is None or committed.retired:
                yield f"partition {partition} references {one.file.id}, which is purged or retired"


def referenced_files_reach_their_partition(checked: Checked) -> Iterator[str]:
    """The bounds of a file and the range of a partition that refers to it overlap."""
    partitions = checked.state.partitions
    for partition, held in checked.references.items():
        position = partitions.position_of(partition)
        if position is not None:
            keys = partitions.range_at(position)
            for one in held:
                if not one.file.reaches(keys):
                    yield f"partition {partition} references {one.file.id}, which does not reach it"


def references_have_rows_of_their_file(checked: Checked) -> Iterator[str]:
    """The rows of a reference are some of those of the file."""
    for partition, held in checked.references.items():
        for one in held:
            if not 0 <= one.rows <= one.file.rows:
                yield f"partition {partition} has {one.rows} rows of {one.file.id}, which has {one.file.rows}"


def references_agree_on_their_file(checked: Checked) -> Iterator[str]:
    """All references to a file have the same facts of it."""
    facts: dict[str, DataFile] = {}
    for partition, held in checked.references.items():
        for one in held:
            known = facts.setdefault(one.file.id, one.file)
            if known is not one.file and known != one.file:
                yield f"partition {partition} has other facts of {one.file.id} than another partition"


def runs_are_sorted(checked: Checked) -> Iterator[str]:
    """The files of one run of a partition do not overlap; they may share the key where they meet."""
    for partition, held in checked.references.items():
        if len(held) > 1:
            by_run = sorted(held, key=lambda one: (one.run, one.file.min_key, one.file.max_key))
            for first, second in pairwise(by_run):
                if first.run == second.run and first.file.max_key > second.file.min_key:
                    yield f"files {first.file.id} and {second.file.id} of run {first.run} overlap in {partition}"


# -- of states: files -------------------------------------------------------------------------------------------


def references_are_counted(checked: Checked) -> Iterator[str]:
    """A file knows the number of its references."""
    for name, committed in checked.files.items():
        if committed.references != (count := checked.counts.get(name, 0)):
            yield f"file {name} has {count} references, not {committed.references}"


def files_without_references_are_dropped(checked: Checked) -> Iterator[str]:
    """A file without references has the version that dropped the last one; a referenced file has none."""
    for name, committed in checked.files.items():
        if (committed.dropped is None) != (committed.references > 0):
            yield f"file {name}: dropped at {committed.dropped} with {committed.references} references"


def files_without_references_have_their_facts(checked: Checked) -> Iterator[str]:
    """A file without references keeps its facts, by which it is deleted; those of others are with the references."""
    for name, committed in checked.files.items():
        own = committed.file
        if (own is None) != (committed.references > 0) or (own is not None and own.id != name):
            yield f"file {name} of {committed.references} references has the wrong facts: {own}"


def retired_files_have_no_references(checked: Checked) -> Iterator[str]:
    """A retired file, which is being deleted, has no references."""
    for name, committed in checked.files.items():
        if committed.retired and committed.references:
            yield f"file {name} is retired with {committed.references} references"


def sequence_numbers_are_given_out(checked: Checked) -> Iterator[str]:
    """The sequence span of a file ascends, and ends before the next number."""
    for name, committed in checked.files.items():
        if not 0 < committed.sequence_lo <= committed.sequence_hi < checked.state.next_sequence:
            yield f"file {name} has the sequence {committed.sequence_lo} to {committed.sequence_hi}"


def files_are_of_past_versions(checked: Checked) -> Iterator[str]:
    """A file was added by a version up to this one, and dropped by that one or a later one."""
    for name, committed in checked.files.items():
        last = checked.state.version if committed.dropped is None else committed.dropped
        if not 0 < committed.added <= last <= checked.state.version:
            yield f"file {name} was added at {committed.added} and dropped at {committed.dropped}"


def files_are_of_known_schemas(checked: Checked) -> Iterator[str]:
    """A referenced file was written for a schema version of the table."""
    versions = len(checked.state.schemas)
    for held in checked.references.values():
        for one in held:
            if not 1 <= one.file.schema_version <= versions:
                yield f"file {one.file.id} is of schema version {one.file.schema_version} of {versions}"


# -- of states: the rest ----------------------------------------------------------------------------------------


def schemas_are_numbered(checked: Checked) -> Iterator[str]:
    """The schemas of a table have the versions 1, 2, 3 and so on."""
    schemas = checked.state.schemas
    if schemas and (schemas[-1].version != len(schemas) or schemas[0].version != 1):
        yield f"the last of {len(schemas)} schemas has version {schemas[-1].version}"


def jobs_have_work(checked: Checked) -> Iterator[str]:
    """An open job has inputs and keys, and was opened by a version up to this one."""
    for job in checked.jobs:
        if not job.inputs or job.keys.empty or not 0 < job.opened <= checked.state.version:
            yield f"job {job.id} has no inputs, or no keys, or was opened at {job.opened}"


def requests_are_carried_out_once(checked: Checked) -> Iterator[str]:
    """An open request has files, was submitted by a version up to this one, and is not carried out."""
    for request in checked.open_requests:
        if (
            request.id in checked.state.requests
            or not request.files
            or not 0 < request.submitted <= checked.state.version
        ):
            yield f"request {request.id} is carried out, or empty, or of version {request.submitted}"


def answers_are_of_past_versions(checked: Checked) -> Iterator[str]:
    """A request key was answered by a version up to this one, after the version at which it was proposed."""
    for name, answer in checked.answers.items():
        if not 0 <= answer.base_version < answer.version <= checked.state.version:
            yield f"request {name} of version {answer.base_version} is carried out at {answer.version}"


def rejected_requests_are_not_open(checked: Checked) -> Iterator[str]:
    """A rejected request is not open, and was rejected after it was submitted."""
    state = checked.state
    for request in checked.rejected:
        if request.id in state.open_requests or not 0 < request.submitted <= request.rejected <= state.version:
            yield f"request {request.id} is open, or was rejected at {request.rejected}"


def fences_have_keys(checked: Checked) -> Iterator[str]:
    """A fence has keys, and is of a version up to this one."""
    for fence in checked.fences:
        if fence.keys.empty or not 0 < fence.version <= checked.state.version:
            yield f"a fence of version {fence.version} over {fence.keys}"


def tags_name_past_versions(checked: Checked) -> Iterator[str]:
    """A tag names a version that the table had."""
    for name, version in checked.tags.items():
        if not 0 < version <= checked.state.version:
            yield f"tag {name} names version {version} of {checked.state.version}"


def filters_have_their_field(checked: Checked) -> Iterator[str]:
    """A cut by age has a field, and filter and merge mode were set by versions up to this one."""
    state = checked.state
    if (state.age_off_cut_us and not state.row_filter.age_field) or state.filter_version > state.version:
        yield f"a filter of version {state.filter_version} with a cut at {state.age_off_cut_us} and {state.row_filter}"
    if state.merge_version > state.version:
        yield f"a merge mode of version {state.merge_version}"


# -- of steps ---------------------------------------------------------------------------------------------------


def versions_have_no_gaps(step: Transition) -> Iterator[str]:
    """An entry leads to the next version; its changes are all of that version."""
    if step.after.version - step.before.version not in (0, 1):
        yield f"version {step.after.version} follows {step.before.version}"


def watermarks_never_fall(step: Transition) -> Iterator[str]:
    """What was refused, retired or given out stays so."""
    for name in ("earliest_retained_version", "request_watermark", "orphan_cutoff_us", "next_sequence"):
        if getattr(step.after, name) < (was := getattr(step.before, name)):
            yield f"{name} falls from {was} to {getattr(step.after, name)}"


def partition_ids_are_not_reused(step: Transition) -> Iterator[str]:
    """A partition that is new has an id that no partition had."""
    before, after = step.before.partitions, step.after.partitions
    if after is not before and after.next_id < before.next_id:
        yield f"the next partition is {after.next_id}, and was {before.next_id}"


def schemas_are_only_appended(step: Transition) -> Iterator[str]:
    """Files are read by the schemas that they were written for, so none is changed or lost."""
    before, after = step.before.schemas, step.after.schemas
    if after is not before and after[: len(before)] != before:
        yield f"the {len(before)} schemas are not the first of the {len(after)} after it"


def key_fields_stay(step: Transition) -> Iterator[str]:
    """A change of the schema leaves the key fields, by which rows are sorted."""
    before, after = step.before.schemas, step.after.schemas
    if after is not before and before and after:
        was, now = ([(one.id, one.type) for one in (*s[-1].row_key, *s[-1].sort_key)] for s in (before, after))
        if was != now:
            yield f"the key was {was} and becomes {now}"


def a_table_stays_itself(step: Transition) -> Iterator[str]:
    """The id of a table never changes, and a dropped table stays dropped."""
    before, after = step.before, step.after
    if before.version and (after.table != before.table or before.dropped):
        yield f"table {before.table}, dropped: {before.dropped}, becomes {after.table}"


def compactions_make_no_rows(step: Transition) -> Iterator[str]:
    """The output of a job has no more rows than its inputs, where all counts are exact: no row is doubled."""
    for change in step.changes:
        if isinstance(change, Replace):
            partitions = {partition for _, partition in change.drop}
            held = {(one.file.id, id_): one for id_ in partitions for one in step.before.held_by(id_)}
            dropped = [held[pair] for pair in change.drop if pair in held]
            if all(one.exact for one in dropped) and all(one.exact for one in change.references):
                rows, made = sum(one.rows for one in dropped), sum(one.rows for one in change.references)
                if made > rows:
                    yield f"job {change.job} makes {made} rows of {rows}"


OF_STATES: tuple[Callable[[Checked], Iterator[str]], ...] = (
    partitions_tile_the_key_space,
    references_are_of_partitions,
    a_partition_references_a_file_once,
    referenced_files_are_kept,
    referenced_files_reach_their_partition,
    references_have_rows_of_their_file,
    references_agree_on_their_file,
    runs_are_sorted,
    references_are_counted,
    files_without_references_are_dropped,
    files_without_references_have_their_facts,
    retired_files_have_no_references,
    sequence_numbers_are_given_out,
    files_are_of_past_versions,
    files_are_of_known_schemas,
    schemas_are_numbered,
    jobs_have_work,
    requests_are_carried_out_once,
    answers_are_of_past_versions,
    rejected_requests_are_not_open,
    fences_have_keys,
    tags_name_past_versions,
    filters_have_their_field,
)
"""The invariants of a state, and of the part of one that a change touched."""

OF_STEPS: tuple[Callable[[Transition], Iterator[str]], ...] = (
    versions_have_no_gaps,
    watermarks_never_fall,
    partition_ids_are_not_reused,
    schemas_are_only_appended,
    key_fields_stay,
    a_table_stays_itself,
    compactions_make_no_rows,
)
"""The invariants of a change: what may differ between the states before and after it."""
