"""The table state of the protocol model, the changes in an entry, and how a replica applies them.

All values are immutable. `apply` is total and deterministic: it only cuts, joins, drops and adds what the change names,
so replicas that read the same log agree. It never refuses: a transaction was validated before its entry was put
(`transactions.py`), and the create-if-absent put proves that no entry came in between.
"""

from typing import NamedTuple

from .rows import DataFile, estimated_rows, proven_empty
from .rules import Rules


class Partition(NamedTuple):
    """A current key range, `[min, max)`, and its references: each stands for all rows of its file in the range.

    A partition is identified by its min, so the lower half of a split partition keeps the name.
    """

    min: int
    max: int
    references: tuple[DataFile, ...]


class Job(NamedTuple):
    """An open job: the range it was planned for and the references it will replace."""

    id: str
    min: int
    max: int
    inputs: tuple[DataFile, ...]


class AddFile(NamedTuple):
    """Add a file, with a reference in every partition it reaches."""

    file: DataFile


class OpenJob(NamedTuple):
    """Record a job, so that no other job takes its inputs."""

    job: Job


class Replace(NamedTuple):
    """Commit a job: drop its inputs, add its output (none if it would be empty), and close it."""

    job: Job
    output: DataFile | None


class CloseJob(NamedTuple):
    """Close a job that failed or passed its deadline."""

    job_id: str


class Split(NamedTuple):
    """Cut the partition `[min, max)` at a key. `seen`, the planner's view of it, is used only by a wrong form."""

    min: int
    max: int
    at: int
    seen: tuple[DataFile, ...]


class Join(NamedTuple):
    """Join the two partitions that meet at a key."""

    at: int


class Remove(NamedTuple):
    """Drop every reference in `[min, max)`, cutting partitions at both ends."""

    min: int
    max: int


Effect = AddFile | OpenJob | Replace | CloseJob | Split | Join | Remove


class Transaction(NamedTuple):
    """A requested effect.

    `key` is the request key, which identifies the user's request. A repeat has the same key, another attempt, and may
    name other files.
    """

    key: str
    attempt: str
    effect: Effect


class Change(NamedTuple):
    """A transaction resolved against one state: partitions (by their min) and files named explicitly."""

    transaction: Transaction
    cuts: tuple[int, ...] = ()
    carried: tuple[DataFile, ...] | None = None  # wrong form: the references a split gives its halves
    joins: int | None = None
    drops: tuple[tuple[int, DataFile], ...] = ()
    adds: tuple[tuple[int, DataFile], ...] = ()
    opens: Job | None = None
    closes: str | None = None


class Entry(NamedTuple):
    """One numbered object of the log. The id identifies its writer."""

    id: str
    changes: tuple[Change, ...]

    def attempts(self) -> tuple[str, ...]:
        return tuple([change.transaction.attempt for change in self.changes])

    def __hash__(self) -> int:
        """Hash of the effect. Its resolution follows from the log before, and an id only distinguishes entries."""
        return hash(tuple([change.transaction for change in self.changes]))


class Recorded(NamedTuple):
    """A request key that has taken effect, and at which version."""

    key: str
    attempt: str
    version: int


class TableState(NamedTuple):
    """The table at one version."""

    version: int
    partitions: tuple[Partition, ...]
    jobs: tuple[Job, ...] = ()
    recorded: tuple[Recorded, ...] = ()

    def __hash__(self) -> int:
        """Hash of the version: there is one state per version, or the oracle has found a violation."""
        return self.version

    def record_of(self, key: str) -> Recorded | None:
        for recorded in self.recorded:
            if recorded.key == key:
                return recorded
        return None

    def job(self, job_id: str) -> Job | None:
        return next((job for job in self.jobs if job.id == job_id), None)

    def partition(self, lower: int, upper: int) -> Partition | None:
        return next(
            (partition for partition in self.partitions if partition.min == lower and partition.max == upper), None
        )


def reaches(file: DataFile, lower: int, upper: int, rules: Rules) -> bool:
    """Return whether a partition over `[lower, upper)` needs a reference to the file."""
    if rules.left_out == "estimated empty":
        return estimated_rows(file, lower, upper) > 0
    return not proven_empty(file, lower, upper)


def cut(
    partitions: tuple[Partition, ...], at: int, rules: Rules, carried: tuple[DataFile, ...] | None = None
) -> tuple[Partition, ...]:
    """Split the partition that has `at` inside; each of its references goes to each half that it reaches."""
    for place, partition in enumerate(partitions):
        if partition.min < at < partition.max:
            moved = partition.references if carried is None else carried
            halves = [
                Partition(lower, upper, tuple([file for file in moved if reaches(file, lower, upper, rules)]))
                for lower, upper in ((partition.min, at), (at, partition.max))
            ]
            return (*partitions[:place], *halves, *partitions[place + 1 :])
    return partitions


def join(partitions: tuple[Partition, ...], at: int) -> tuple[Partition, ...]:
    """Join the two partitions that meet at `at`; a file that both refer to is referred to once."""
    result: list[Partition] = []
    for partition in partitions:
        if partition.min == at and result:
            lower = result.pop()
            references = lower.references + tuple(f for f in partition.references if f not in lower.references)
            result.append(Partition(lower.min, partition.max, references))
        else:
            result.append(partition)
    return tuple(result)


def _edit(partition: Partition, change: Change) -> Partition:
    references = partition.references
    if change.drops:
        dropped = [file for at, file in change.drops if at == partition.min]
        references = tuple([file for file in references if file not in dropped])
    return Partition(
        partition.min, partition.max, references + tuple([file for at, file in change.adds if at == partition.min])
    )


def apply_change(state: TableState, change: Change, version: int, rules: Rules) -> TableState:
    """Return the state after one change of entry `version`."""
    partitions = state.partitions
    for at in change.cuts:
        partitions = cut(partitions, at, rules, change.carried)
    if change.joins is not None:
        partitions = join(partitions, change.joins)
    if change.drops or change.adds:
        named = {at for at, _ in (*change.drops, *change.adds)}
        partitions = tuple(
            [_edit(partition, change) if partition.min in named else partition for partition in partitions]
        )
    jobs = state.jobs
    if change.closes is not None:
        jobs = tuple(job for job in jobs if job.id != change.closes)
    if change.opens is not None:
        jobs = (*jobs, change.opens)
    recorded = Recorded(change.transaction.key, change.transaction.attempt, version)
    return TableState(version, partitions, jobs, (*state.recorded, recorded))


def apply_entry(state: TableState, entry: Entry, rules: Rules) -> TableState:
    """Return the state after the next entry of the log."""
    version = state.version + 1
    for change in entry.changes:
        state = apply_change(state, change, version, rules)
    return state
