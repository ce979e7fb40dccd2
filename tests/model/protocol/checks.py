"""The invariants, checked whenever the log grows and whenever a caller gets an outcome.

The oracle reads the log in the store and the intent of each transaction, not how it was resolved: the rows a write
added, the range a removal emptied. From these it derives the rows that a reader must see. Violations by name:

    overwritten          an entry was replaced
    gap                  an entry was put beyond the next version
    committed twice      a request key took effect a second time (P2)
    rows lost            a partition does not show a row that was added and not removed (P1)
    rows doubled         a partition shows a row twice (P2)
    rows risen           a partition shows a row that was removed
    not tiled            the partitions leave a gap or overlap
    false committed      reported "committed", but the entry does not have the key
    false refusal        reported "rejected", but the key is in the log, or the transaction would have been valid on
                         every state that the log has had since it was proposed
    false not committed  reported "not committed" or "rejected", but the attempt is in the log, then or later
    views differ         two replicas at one version have different states (P4)
    stuck                an actor waits for ever
"""

from ..engine import Violation
from .rows import KEYS, keys_of, within
from .rules import Rules
from .state import AddFile, Entry, Remove, TableState, Transaction, apply_change, apply_entry
from .transactions import Refusal, resolve

RIGHT = Rules()


def visible_rows(state: TableState, rules: Rules) -> int:
    """Return the result of a scan of every partition: each reads only its own references, cut to its range.

    Raises `Violation` if a row shows twice or the partitions do not tile the key space.
    """
    seen = 0
    boundary = 0
    for partition in state.partitions:
        if partition.min != boundary or partition.max <= partition.min:
            raise Violation("not tiled", f"a partition at {partition.min} where {boundary} was due")
        boundary = partition.max
        for file in partition.references:
            rows = within(file.rows, partition.min, partition.max) if rules.read == "slice" else file.rows
            if seen & rows:
                raise Violation("rows doubled", f"keys {keys_of(seen & rows)} through {file} at {state.version}")
            seen |= rows
    if boundary != KEYS:
        raise Violation("not tiled", f"the last partition ends at {boundary}")
    return seen


class Oracle:
    """Follows the log on the side of the store and computes the rows that every reader must see."""

    def __init__(self, start: TableState, rules: Rules) -> None:
        self.rules = rules
        self.states = [start]
        self.entries: list[Entry] = []
        self.keys: dict[str, int] = {}
        self.attempts: set[str] = set()
        self.denied: set[str] = set()
        self.rows = visible_rows(start, Rules())

    def grown(self, version: int, entry: Entry) -> None:
        """Entry `version` is now in the store."""
        if version <= len(self.entries):
            raise Violation("overwritten", f"{self.entries[version - 1].id} by {entry.id} at {version}")
        if version > len(self.entries) + 1:
            raise Violation("gap", f"{entry.id} at {version}, the log ends at {len(self.entries)}")
        for change in entry.changes:
            key, attempt = change.transaction.key, change.transaction.attempt
            if key in self.keys:
                raise Violation("committed twice", f"{key} at {self.keys[key]} and {version}")
            if attempt in self.denied:
                raise Violation("false not committed", f"{attempt} is in entry {version}")
            self.keys[key] = version
            self.attempts.add(attempt)
            effect = change.transaction.effect
            if isinstance(effect, AddFile):
                self.rows |= effect.file.rows
            elif isinstance(effect, Remove):
                self.rows &= ~within(self.rows, effect.min, effect.max)
        self.entries.append(entry)
        self.states.append(apply_entry(self.states[-1], entry, self.rules))
        self._check_rows()

    def _check_rows(self) -> None:
        state = self.states[-1]
        seen = visible_rows(state, self.rules)
        if lost := self.rows & ~seen:
            raise Violation("rows lost", f"keys {keys_of(lost)} at {state.version}")
        if risen := seen & ~self.rows:
            raise Violation("rows risen", f"keys {keys_of(risen)} at {state.version}")

    def reported(self, transaction: Transaction, base: int, end: str, version: int) -> None:
        """The caller of a transaction, proposed when the log was at `base`, got its outcome."""
        key, attempt = transaction.key, transaction.attempt
        if end == "committed":
            if self.keys.get(key) != version:
                raise Violation("false committed", f"{key} at {version}")
        elif end == "rejected":
            if key in self.keys:
                raise Violation("false refusal", f"{key} is in entry {self.keys[key]}")
            if not self._refusable(transaction, base):
                raise Violation("false refusal", f"{attempt}: never so since {base}")
            self.denied.add(attempt)
        elif end == "not committed":
            if attempt in self.attempts:
                raise Violation("false not committed", f"{attempt} is in entry {self.keys[key]}")
            self.denied.add(attempt)

    def _refusable(self, transaction: Transaction, base: int) -> bool:
        """Return whether some state since the proposal, also within an entry, refuses the transaction under the right
        rules.
        """
        state = self.states[base]
        if isinstance(resolve(transaction, state, RIGHT), Refusal):
            return True
        for version in range(base + 1, len(self.states)):
            for change in self.entries[version - 1].changes:
                state = apply_change(state, change, version, self.rules)
                if isinstance(resolve(transaction, state, RIGHT), Refusal):
                    return True
        return False

    def viewed(self, snapshot: TableState, process: str) -> None:
        """A process holds this state."""
        if snapshot.version >= len(self.states) or snapshot != self.states[snapshot.version]:
            raise Violation("views differ", f"{process} at {snapshot.version}")
