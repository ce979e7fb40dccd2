"""The store of a truncated log, and the oracle that sees all of it.

An entry has the state after it: another model covers how a state is made of entries. A follower checks that each entry
continues its own state. Violations by name:

    overwritten          an entry was replaced
    gap                  an entry was put beyond the next version
    forked               an entry of the log continues another one than the last
    committed twice      a request key took effect a second time
    false committed      reported "committed", but the log does not have the key at that version
    false not committed  reported "not committed" or "rejected", but the attempt is in the log, then or later
    chain broken         a follower met an entry that does not continue the one before
    another history      a follower has a state that the log never had
    stale                a read returns a state older than the head at its start
    shut out             no process can open the log any more, or a follower never reaches the head
"""

from collections.abc import Hashable
from functools import partial
from typing import Literal, NamedTuple

from ..engine import Chooser, Crash, Steps, Violation, World
from .rules import Rules

Answer = Literal["created", "exists", "unclear"]
FAULTS = ("answer lost", "request late", "crash after effect", "crash, request late")


class Record(NamedTuple):
    """A request key that has taken effect: at which version, and the head at its first proposal."""

    key: str
    base: int
    version: int


class State(NamedTuple):
    """The state after an entry, and the entry: its writer, and the entry it continues. The records are in order of
    version.
    """

    version: int
    id: str
    previous: str
    key: str
    records: tuple[Record, ...] = ()
    request_watermark: int = 0

    def record_of(self, key: str) -> Record | None:
        for record in self.records:
            if record.key == key:
                return record
        return None


EMPTY = State(0, "nothing", "", "")


class Store(World):
    """One run: the log, its log start and checkpoints, the remaining faults, and the actual events."""

    def __init__(self, chooser: Chooser, rules: Rules, *, faults_max: int, torn_max: int, rotten_max: int) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.faults_left = faults_max
        self.torn_left = torn_max
        self.rotten_left = rotten_max
        self.entries: dict[int, State] = {}
        self.log_start = 0
        self.checkpoints: dict[int, State | None] = {}  # None: damaged
        self.history = [EMPTY]
        self.keys: dict[str, int] = {}
        self.bases: dict[str, int] = {}  # recorded by callers beside their request keys
        self.attempts = 0
        self.denied: set[str] = set()
        self.snapshots: dict[str, State] = {}

    # -- requests -----------------------------------------------------------------------------------------------

    def get(self, version: int) -> State | None:
        """Return an entry, or None."""
        return self.entries.get(version)

    def next_from(self, version: int) -> int | None:
        """Return the lowest version of an entry from this one on: a step of a listing, which visits names in order."""
        return min((one for one in self.entries if one >= version), default=None)

    def create(self, entry: State) -> Answer:
        """Put an entry at its version if none exists."""
        fault = None
        if self.faults_left:
            fault = self.chooser.fault(len(FAULTS))
        if fault is None:
            return self._land(entry)
        self.faults_left -= 1
        name = FAULTS[fault]
        self.counts[name] += 1
        if "late" in name:
            self.spawn(f"late {entry.id}", partial(self._arrive, entry), knows=entry)
        else:
            self._land(entry)
        if "crash" in name:
            raise Crash
        return "unclear"

    def land_late(self, entry: State) -> None:
        """A late put arrives, or is lost."""
        if self.chooser.below(4):
            self.counts["late put landed"] += self._land(entry) == "created"

    def read_log_start(self) -> int:
        """Return the log start: entries up to this version may be deleted."""
        return self.log_start

    def swap_log_start(self, expected: int, log_start: int) -> bool:
        """Raise the log start if it is the expected one; return whether it was."""
        if self.rules.log_start == "compare and set" and self.log_start != expected:
            self.counts["floor race lost"] += 1
            return False
        self.log_start = log_start
        self.counts["truncated"] += 1
        return True

    def delete(self, version: int) -> None:
        """Delete an entry, if it exists."""
        self.entries.pop(version, None)

    def put_checkpoint(self, state: State) -> None:
        """Write a checkpoint of a state if its version has none; its bytes may be damaged."""
        if state.version not in self.checkpoints:
            if self.rules.records == "not in checkpoints":
                state = state._replace(records=())
            torn = self.torn_left > 0 and self.chooser.below(2) == 0
            self.torn_left -= torn
            self.counts["checkpoint torn"] += torn
            self.checkpoints[state.version] = None if torn else state

    def list_checkpoints(self) -> tuple[int, ...]:
        """Return the versions of the checkpoints, newest first."""
        return tuple(sorted(self.checkpoints, reverse=True))

    def read_checkpoint(self, version: int) -> State | None:
        """Return a checkpoint; None if it is damaged or missing."""
        return self.checkpoints.get(version)

    def delete_checkpoint(self, version: int) -> None:
        """Delete a checkpoint, if it exists."""
        self.checkpoints.pop(version, None)

    def rot(self) -> None:
        """Damage one stored checkpoint."""
        versions = self.list_checkpoints()
        if versions and self.rotten_left:
            self.rotten_left -= 1
            self.counts["checkpoint rotten"] += 1
            self.checkpoints[versions[self.chooser.below(len(versions))]] = None

    def look_at_head(self) -> int:
        """A caller starts a read: return the current head."""
        return len(self.history) - 1

    # -- what truly happens -------------------------------------------------------------------------------------

    def _arrive(self, entry: State) -> Steps[None]:
        yield self.land_late, entry

    def _land(self, entry: State) -> Answer:
        version = entry.version
        if version in self.entries:
            self.counts["race lost"] += self.entries[version].id != entry.id
            return "exists"
        self.entries[version] = entry
        head = self.history[-1]
        if version <= head.version:
            self.counts["truncated version won again"] += 1
            return "created"
        if version > head.version + 1:
            raise Violation("gap", f"{entry.id} at {version}, the log ends at {head.version}")
        if entry.previous != head.id:
            raise Violation("forked", f"{entry.id} at {version} continues {entry.previous}, not {head.id}")
        if entry.key in self.keys:
            raise Violation("committed twice", f"{entry.key} at {self.keys[entry.key]} and {version}")
        if entry.id in self.denied or entry.key in self.denied:
            raise Violation("false not committed", f"{entry.id} is in the log at {version}")
        self.keys[entry.key] = version
        self.history.append(entry)
        return "created"

    def reported_committed(self, key: str, version: int) -> None:
        """A caller got "committed"."""
        self.counts["reported committed"] += 1
        if self.keys.get(key) != version:
            raise Violation("false committed", f"{key} at {version}")

    def reported_not_committed(self, key: str, names: list[str]) -> None:
        """A caller got the answer that none of these attempts, or no attempt of this key, is or will be in the log."""
        self.counts["reported not committed"] += 1
        version = self.keys.get(key)
        if version is not None and (key in names or self.history[version].id in names):
            raise Violation("false not committed", f"{key} is in the log at {version}")
        self.denied.update(names)

    def read_done(self, snapshot: State, head: int) -> None:
        """A read that began when the log was at `head` is answered from this state."""
        self.counts["reads"] += 1
        self.viewed(snapshot)
        if snapshot.version < head:
            raise Violation("stale", f"answered from {snapshot.version}, the head was {head} when asked")

    def viewed(self, snapshot: State) -> None:
        """A process holds this state."""
        version = snapshot.version
        if version >= len(self.history) or self.history[version].id != snapshot.id:
            raise Violation("another history", f"{snapshot.id} at {version}")

    def fingerprint(self) -> Hashable:
        return (
            tuple(self.entries.values()),
            tuple(self.history),
            self.log_start,
            tuple(self.checkpoints.items()),
            tuple(self.bases.items()),
            tuple(self.snapshots.items()),
            frozenset(self.denied),
            self.faults_left,
            self.torn_left,
            self.rotten_left,
        )
