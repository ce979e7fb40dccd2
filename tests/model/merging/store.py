"""The latest state, and the oracle: the meaning of the log, key by key. Violations by name:

wrong answer       the rows of a reader differ from the log, or rows change where no row was written or removed
under the fence    a write that was proposed before a fenced removal is committed into its range
erased rows kept   a file made after a fenced removal has rows that were erased
false refusal      a write was refused without a reason

The oracle keeps every row of a key as it was written, in log order, and merges them all for each query. A change of the
filter restarts it from the rows in the files: the remaining hidden rows depend on earlier compactions, and the only
promise is that nothing changes afterwards.
"""

from collections.abc import Callable, Hashable

from ..engine import Chooser, Violation, World
from .rows import KEYS, Kind, Mode, Row, merged
from .rules import Rules
from .state import (
    Fence,
    File,
    Partition,
    State,
    add,
    fit,
    remove,
    restore,
    set_filter,
    set_mode,
    stored,
    visible,
    within,
)

RIGHT = Rules()

Written = dict[int, tuple[Row, ...]]


class Store(World):
    """One run of a table that merges rows."""

    def __init__(self, chooser: Chooser, rules: Rules, files: tuple[File, ...], mode: Mode) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.head = State(0, mode=mode)
        self.written: Written = {}
        self.remembered: dict[int, Written] = {}
        self.erased: set[Row] = set()
        self.fences: list[Fence] = []
        for file in files:
            self.add(file.name, file.rows, file.rows, self.head.version)
        # As left by earlier jobs and joins.
        self.head = self.head._replace(partitions=(Partition(0, KEYS, tuple(files)),)) if files else self.head

    # -- requests -----------------------------------------------------------------------------------------------

    def look(self) -> State:
        """Return the latest state, to plan on it."""
        return self.head

    def remember(self) -> State:
        """Return the latest state, to restore it."""
        self.remembered[self.head.version] = dict(self.written)
        return self.head

    def add(self, name: str, given: tuple[Row, ...], rows: tuple[Row, ...], base: int) -> str:
        """Commit a write first proposed when the log was at `base`: `given` rows, merged into `rows`."""
        after = add(self.head, name, rows, base, self.rules)
        late = any(f.min <= row.key < f.max and base < f.version for f in self.fences for row in rows)
        if isinstance(after, str):
            if not late and fit(rows, self.head.mode) and base >= self.head.mode_version:
                raise Violation("false refusal", f"{name}: {after}")
        else:
            if late:
                raise Violation("under the fence", f"{name} of {base}")
            for row in given:
                self.written[row.key] = (*self.written.get(row.key, ()), row)
        return self._settle("add", after)

    def remove(self, lower: int, upper: int, fence: int) -> str:
        """Remove a range; permanently if `fence` is 1."""
        if fence:
            held = {file for partition in self.head.partitions for file in partition.files}
            held.update(file for job in self.head.jobs for file in job.inputs)
            self.fences.append(Fence(lower, upper, self.head.version + 1))
            self.erased.update(row for file in held for row in within(file, lower, upper))
        for key in range(lower, upper):
            self.written.pop(key, None)
        wall = fence or (self.rules.unfenced == "refuses older")
        return self._settle("remove", remove(self.head, Fence(lower, upper, int(wall))))

    def restore(self, target: State) -> str:
        """Restore a recorded version."""
        after = restore(self.head, target, self.rules)
        if not isinstance(after, str):
            self.written = dict(self.remembered[target.version])
            if target.filter.version != self.head.filter.version:
                self._start_from(target)
            back = {row for partition in target.partitions for row in stored(partition)}
            self.erased -= back
        return self._settle("restore", after)

    def filter(self, parity: int | None) -> str:
        """Show other keys."""
        after = set_filter(self.head, parity)
        if not isinstance(after, str):
            self._start_from(after)
        return self._settle("filter", after)

    def set_mode(self, mode: Mode) -> str:
        """Merge by another mode."""
        after = set_mode(self.head, mode, self.rules)
        if not isinstance(after, str) and self.rules.mode_rows == "none":
            self.written = {}
        return self._settle("mode", after)

    def commit(self, name: str, transaction: Callable[[State], State | str]) -> str:
        """Commit a transaction that writes and removes no row."""
        return self._settle(name, transaction(self.head))

    def commit_outputs(self, transaction: Callable[[State], State | str], made: tuple[File, ...]) -> str:
        """Commit a job."""
        after = transaction(self.head)
        if not isinstance(after, str) and (kept := self.erased.intersection(row for file in made for row in file.rows)):
            raise Violation("erased rows kept", f"{sorted(kept)}")
        return self._settle("replace", after)

    # -- what must hold -----------------------------------------------------------------------------------------

    def _start_from(self, state: State) -> None:
        self.written = {}
        for partition in state.partitions:
            for row in stored(partition):
                self.written[row.key] = (*self.written.get(row.key, ()), row)

    def _settle(self, name: str, after: State | str) -> str:
        if isinstance(after, str):
            self.counts[f"{name} refused: {after}"] += 1
            return after
        self.counts[f"{name} committed"] += 1
        self.head = after
        if (seen := visible(after, self.rules)) != (expected := self._expected(after)):
            raise Violation("wrong answer", f"{seen}, not {expected}, after {name} at {after.version}")
        return ""

    def _expected(self, state: State) -> dict[int, Row]:
        expected = {}
        for key in range(KEYS):
            row = merged(self.written.get(key, ()), state.mode, RIGHT).get(key)
            if row is not None and row.kind is not Kind.DELETE and state.filter.shows(row, state.mode, self.rules):
                expected[key] = row._replace(kind=Kind.WHOLE)
        return expected

    def finish(self) -> None:
        """No check is left."""

    def fingerprint(self) -> Hashable:
        return (
            self.head,
            tuple(sorted(self.written.items())),
            frozenset(self.erased),
            tuple(self.fences),
            tuple((version, tuple(sorted(rows.items()))) for version, rows in sorted(self.remembered.items())),
        )
