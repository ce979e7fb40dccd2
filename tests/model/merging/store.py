"""The newest state, and the oracle: what the log means, key by key. Violations by name:

wrong answer       a reader sees another row than the latest one in log order, or none, or one that is gone
under the fence    a write that was proposed before a fenced removal is committed into its range
erased rows kept   a file made after a fenced removal holds rows that were erased
false refusal      a write was refused though no fence is in its way
"""

from collections.abc import Callable, Hashable

from ..engine import Chooser, Violation, World
from .rules import Rules
from .state import KEYS, Fence, File, Partition, Row, State, add, remove, visible, within


class Store(World):
    """One run of an ordered table."""

    def __init__(self, chooser: Chooser, rules: Rules, files: tuple[tuple[Row, ...], ...]) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.head = State(0, (Partition(0, KEYS, ()),))
        self.truth: dict[int, str] = {}
        self.erased: set[Row] = set()
        self.fences: list[Fence] = []
        for index, rows in enumerate(files):
            self.add(f"f{index}", rows, index)

    # -- requests -----------------------------------------------------------------------------------------------

    def look(self) -> State:
        """The newest state, to plan on."""
        return self.head

    def add(self, name: str, rows: tuple[Row, ...], base: int) -> str:
        """Commit a write that was first proposed when the log was at `base`."""
        after = add(self.head, name, rows, base, self.rules)
        late = any(f.min <= row.key < f.max and base < f.version for f in self.fences for row in rows)
        if isinstance(after, str):
            if not late:
                raise Violation("false refusal", f"{name}: {after}")
        else:
            if late:
                raise Violation("under the fence", f"{name} of {base}")
            for row in rows:
                self.truth.pop(row.key, None)
                if not row.deletes:
                    self.truth[row.key] = row.label
        return self._settle("add", after)

    def remove(self, lower: int, upper: int, fence: int) -> str:
        """Remove a range; for good if `fence` is 1."""
        if fence:
            held = {file for partition in self.head.partitions for file in partition.files}
            held.update(file for job in self.head.jobs for file in job.inputs)
            self.fences.append(Fence(lower, upper, self.head.version + 1))
            self.erased.update(row for file in held for row in within(file, lower, upper))
        for key in range(lower, upper):
            self.truth.pop(key, None)
        wall = fence or (self.rules.unfenced == "refuses older")
        return self._settle("remove", remove(self.head, Fence(lower, upper, int(wall))))

    def commit(self, name: str, transaction: Callable[[State], State | str]) -> str:
        """Commit what changes no answer: jobs, splits, joins."""
        return self._settle(name, transaction(self.head))

    def commit_output(self, transaction: Callable[[State], State | str], output: File | None) -> str:
        """Commit a job."""
        after = transaction(self.head)
        if not isinstance(after, str) and output is not None and (retained := self.erased.intersection(output.rows)):
            raise Violation("erased rows kept", f"{sorted(retained)} in {output.name}")
        return self._settle("replace", after)

    # -- what must hold -----------------------------------------------------------------------------------------

    def _settle(self, name: str, after: State | str) -> str:
        if isinstance(after, str):
            self.counts[f"{name} refused: {after}"] += 1
            return after
        self.counts[f"{name} committed"] += 1
        self.head = after
        if (seen := visible(after)) != self.truth:
            raise Violation("wrong answer", f"{seen}, not {self.truth}, after {name} at {after.version}")
        return ""

    def finish(self) -> None:
        """Nothing is left to check."""

    def fingerprint(self) -> Hashable:
        return self.head, tuple(sorted(self.truth.items())), frozenset(self.erased), tuple(self.fences)
