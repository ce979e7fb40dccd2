"""Objects, pins and the latest entry, and the violations, by name:

dangling           an entry adds or tags an object that does not exist
live deleted       an object was deleted that the latest state, or a tag, refers to
pinned deleted     a file is missing for a reader with a checked pin
job for nothing    an open job was refused for the age of its output
committed twice    a request key took effect a second time
"""

from collections.abc import Hashable
from typing import Literal

from ..engine import Chooser, Crash, Violation, World
from .rules import Rules
from .state import State, needed_by

FAULTS = ("answer lost", "request lost", "crash after effect", "crash before effect")
CHANGED = {field: f"{field} changed" for field in State._fields}
TICKS = 2  # requests in one tick: last-modified times are coarse, two objects may share one


class Store(World):
    """One run: the objects with their last-modified times, the pins, all states, and the remaining faults."""

    def __init__(self, chooser: Chooser, rules: Rules, faults_max: int) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.faults_left = faults_max
        self.history = [State()]
        self.last_modified_times = [0]  # of the entries
        self.objects: dict[str, int] = {}
        self.committed: set[str] = set()
        self.pins: dict[str, int] = {}
        self.snapshots: dict[str, State] = {}
        self.ticks = 0
        self.names = 0
        self.oldest_safe = 0  # what a wrong form uses as cutoff: a delay before now, by a clock

    def name(self, prefix: str) -> str:
        """Return a name never used before. Not a request."""
        self.names += 1
        return f"{prefix}.{self.names}"

    def read_head(self) -> State:
        """Return the latest state."""
        return self.history[-1]

    def put_entry(self, after: State) -> Literal["won", "lost", "unknown"]:
        """Put the entry that leads to this state, if its version does not exist."""
        if after.version != len(self.history):
            self.counts["race lost"] += 1
            return "lost"
        fault = self.chooser.fault(len(FAULTS)) if self.faults_left else None
        if fault is None:
            self._land(after)
            return "won"
        self.faults_left -= 1
        name = FAULTS[fault]
        self.counts[name] += 1
        if name in ("answer lost", "crash after effect"):
            self._land(after)
        if name.startswith("crash"):
            raise Crash
        return "unknown"

    def put_object(self, name: str) -> int:
        """Write an object; return its last-modified time."""
        self.objects[name] = self._last_modified()
        return self.objects[name]

    def get_object(self, name: str) -> bool:
        """Return whether the object exists."""
        return name in self.objects

    def list_objects(self) -> tuple[tuple[str, int], ...]:
        """Return all objects with their last-modified times."""
        return tuple(self.objects.items())

    def delete_object(self, name: str) -> None:
        """Delete an object, if it exists."""
        head = self.history[-1]
        if name in head.live() or any(name in needed_by(head, tag) for tag in head.tags):
            raise Violation("live deleted", f"{name} at {head.version}")
        self.counts["object deleted"] += self.objects.pop(name, None) is not None

    def put_pin(self, reader: str, version: int) -> None:
        """Pin the state of this version for a reader."""
        self.pins[reader] = version

    def drop_pin(self, reader: str) -> None:
        """Remove the pin of a reader."""
        self.pins.pop(reader, None)

    def read_pins(self) -> tuple[int, ...]:
        """Return the pinned versions."""
        return tuple(sorted(self.pins.values()))

    def _last_modified(self) -> int:
        self.ticks += 1
        return self.ticks // TICKS

    def _land(self, after: State) -> None:
        before = self.history[-1]
        for key in after.keys - before.keys:
            self.counts["added"] += 1
            if key in self.committed:
                raise Violation("committed twice", key)
            self.committed.add(key)
        new = {f.name for f in after.files} - {f.name for f in before.files}
        new.update(name for tag in after.tags - before.tags for name in needed_by(self.history[tag], tag))
        if gone := sorted(new - self.objects.keys()):
            raise Violation("dangling", f"{gone} at {after.version}")
        for what, was, now in zip(State._fields, before, after, strict=True):
            if was != now:
                self.counts[CHANGED[what]] += 1
        self.history.append(after)
        self.last_modified_times.append(self._last_modified())

    def finish(self) -> None:
        head = self.history[-1]
        for name in (*head.live(), *(name for tag in head.tags for name in needed_by(head, tag))):
            if name not in self.objects:
                raise Violation("dangling", f"{name} at the end")

    def fingerprint(self) -> Hashable:
        return (
            self.history[-1],
            tuple(self.last_modified_times),
            tuple(self.objects.items()),
            tuple(self.pins.items()),
            tuple(self.snapshots.items()),
            self.ticks,
            self.oldest_safe,
            self.faults_left,
        )
