"""Table state of the protocol model, the changes an entry holds, and how a replica applies them.

Everything here is an immutable value. `apply` is total and deterministic: it only cuts, joins, drops and adds what the
change names, so replicas that read the same log agree. It never refuses: whether a transaction is valid was decided
before its entry was put (`transactions.py`), and the create-if-absent put proves that nothing came in between.
"""

from typing import NamedTuple

from .rows import DataFile, estimated_rows, proven_empty
from .rules import Rules


class Leaf(NamedTuple):
    """A key range in force, `[min, max)`, and its references: each stands for all rows of its file in the range.

    A leaf is known by its min, so the lower half of a split leaf keeps the name.
    """

    min: int
    max: int
    references: tuple[DataFile, ...]


class Job(NamedTuple):
    """An open job: the range it was planned for and the references it will replace. A mark on nothing."""

    id: str
    min: int
    max: int
    inputs: tuple[DataFile, ...]


class AddFile(NamedTuple):
    """Add a file, with a reference in every leaf it reaches."""

    file: DataFile


class OpenJob(NamedTuple):
    """Put a job on record, so that its inputs are its own."""

    job: Job


class Replace(NamedTuple):
    """Commit a job: its inputs go, its output (none if it would be empty) comes, the record closes."""

    job: Job
    output: DataFile | None


class CloseJob(NamedTuple):
    """Drop the record of a job that failed or passed its deadline."""

    job_id: str


class Split(NamedTuple):
    """Cut the leaf `[min, max)` at a key. `seen`, what the planner saw in it, matters to a wrong form only."""

    min: int
    max: int
    at: int
    seen: tuple[DataFile, ...]


class Join(NamedTuple):
    """Make one leaf of the two that meet at a key."""

    at: int


class Remove(NamedTuple):
    """Drop every reference in `[min, max)`, cutting leaves at both ends."""

    min: int
    max: int


Effect = AddFile | OpenJob | Replace | CloseJob | Split | Join | Remove


class Transaction(NamedTuple):
    """An effect somebody wants.

    `key` is the request key: what the user means as one thing. A repeat has the same key, another attempt, and may name
    other files.
    """

    key: str
    attempt: str
    effect: Effect


class Change(NamedTuple):
    """A transaction resolved against one state: leaves (by their min) and files named outright."""

    transaction: Transaction
    cuts: tuple[int, ...] = ()
    carried: tuple[DataFile, ...] | None = None  # wrong form: the references a split gives its halves
    joins: int | None = None
    drops: tuple[tuple[int, DataFile], ...] = ()
    adds: tuple[tuple[int, DataFile], ...] = ()
    opens: Job | None = None
    closes: str | None = None


class Entry(NamedTuple):
    """One numbered object of the log. The id tells whose it is."""

    id: str
    changes: tuple[Change, ...]

    def attempts(self) -> tuple[str, ...]:
        return tuple([change.transaction.attempt for change in self.changes])

    def __hash__(self) -> int:
        """By what is wanted. How that was resolved follows from the log before, and an id only tells entries apart."""
        return hash(tuple([change.transaction for change in self.changes]))


class Recorded(NamedTuple):
    """A request key that has taken effect, and where."""

    key: str
    attempt: str
    number: int


class TableState(NamedTuple):
    """The table at one log number."""

    number: int
    leaves: tuple[Leaf, ...]
    jobs: tuple[Job, ...] = ()
    recorded: tuple[Recorded, ...] = ()

    def __hash__(self) -> int:
        """By its number: at one number there is one state, or the oracle has found out."""
        return self.number

    def record_of(self, key: str) -> Recorded | None:
        for recorded in self.recorded:
            if recorded.key == key:
                return recorded
        return None

    def job(self, job_id: str) -> Job | None:
        return next((job for job in self.jobs if job.id == job_id), None)

    def leaf(self, lower: int, upper: int) -> Leaf | None:
        return next((leaf for leaf in self.leaves if leaf.min == lower and leaf.max == upper), None)


def reaches(file: DataFile, lower: int, upper: int, rules: Rules) -> bool:
    """Whether a leaf over `[lower, upper)` needs a reference to the file."""
    if rules.left_out == "estimated empty":
        return estimated_rows(file, lower, upper) > 0
    return not proven_empty(file, lower, upper)


def cut(
    leaves: tuple[Leaf, ...], at: int, rules: Rules, carried: tuple[DataFile, ...] | None = None
) -> tuple[Leaf, ...]:
    """Split the leaf that has `at` inside; every reference then in it goes to each half it reaches."""
    for place, leaf in enumerate(leaves):
        if leaf.min < at < leaf.max:
            moved = leaf.references if carried is None else carried
            halves = [
                Leaf(lower, upper, tuple([file for file in moved if reaches(file, lower, upper, rules)]))
                for lower, upper in ((leaf.min, at), (at, leaf.max))
            ]
            return (*leaves[:place], *halves, *leaves[place + 1 :])
    return leaves


def join(leaves: tuple[Leaf, ...], at: int) -> tuple[Leaf, ...]:
    """Make one leaf of the two that meet at `at`; a file that both refer to is referred to once."""
    result: list[Leaf] = []
    for leaf in leaves:
        if leaf.min == at and result:
            lower = result.pop()
            references = lower.references + tuple(f for f in leaf.references if f not in lower.references)
            result.append(Leaf(lower.min, leaf.max, references))
        else:
            result.append(leaf)
    return tuple(result)


def _edit(leaf: Leaf, change: Change) -> Leaf:
    references = leaf.references
    if change.drops:
        dropped = [file for at, file in change.drops if at == leaf.min]
        references = tuple([file for file in references if file not in dropped])
    return Leaf(leaf.min, leaf.max, references + tuple([file for at, file in change.adds if at == leaf.min]))


def apply_change(state: TableState, change: Change, number: int, rules: Rules) -> TableState:
    """The state after one change of entry `number`."""
    leaves = state.leaves
    for at in change.cuts:
        leaves = cut(leaves, at, rules, change.carried)
    if change.joins is not None:
        leaves = join(leaves, change.joins)
    if change.drops or change.adds:
        named = {at for at, _ in (*change.drops, *change.adds)}
        leaves = tuple([_edit(leaf, change) if leaf.min in named else leaf for leaf in leaves])
    jobs = state.jobs
    if change.closes is not None:
        jobs = tuple(job for job in jobs if job.id != change.closes)
    if change.opens is not None:
        jobs = (*jobs, change.opens)
    recorded = Recorded(change.transaction.key, change.transaction.attempt, number)
    return TableState(number, leaves, jobs, (*state.recorded, recorded))


def apply_entry(state: TableState, entry: Entry, rules: Rules) -> TableState:
    """The state after the next entry of the log."""
    number = state.number + 1
    for change in entry.changes:
        state = apply_change(state, change, number, rules)
    return state
