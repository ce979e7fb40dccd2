"""The store of a log that loses entries, and the oracle that sees all of it. Violations by name:

forked       an entry was put that does not continue the one before it in the log, or that the next one does not
cut short    a first read ended before an entry that was there from its start to its end
false alarm  a process reported a loss, and nothing was lost
"""

from collections.abc import Hashable
from typing import Literal, NamedTuple

from ..engine import Chooser, Violation, World
from .rules import Rules

Answer = Literal["created", "exists", "refused"]


class Entry(NamedTuple):
    """An entry, and the id of the one that it continues."""

    version: int
    id: str
    previous: str


START = Entry(0, "nothing", "")


class Store(World):
    """One run: the log and the entries that it has lost."""

    def __init__(self, chooser: Chooser, rules: Rules, entries: int) -> None:
        super().__init__(chooser)
        self.rules = rules
        self.past = [START]
        for version in range(1, entries + 1):
            self.past.append(Entry(version, f"e{version}", self.past[-1].id))
        self.entries = {entry.version: entry for entry in self.past[1:]}
        self.lost = 0

    # -- requests -----------------------------------------------------------------------------------------------

    def get(self, version: int) -> Entry | None:
        """Return an entry, or None."""
        return self.entries.get(version)

    def beyond(self, version: int) -> bool:
        """Return whether an entry is beyond the one after this version: a listing."""
        return any(number > version + 1 for number in self.entries)

    def newest(self) -> Entry:
        """A caller starts a read: return the newest entry that is there."""
        return self.entries[max(self.entries)] if self.entries else START

    def create(self, entry: Entry) -> Answer:
        """Put an entry at its version if none exists, on the conditions of the rules."""
        rules, version = self.rules, entry.version
        if version in self.entries:
            self.counts["race lost"] += 1
            return "exists"
        before = self.entries.get(version - 1) if version > 1 else START
        known = before is not None and (before.id == entry.previous or rules.append == "behind any entry")
        gap = self.beyond(version - 1)
        if (rules.append != "if absent" and not known) or (gap and rules.gaps == "not filled"):
            self.counts["append refused"] += 1
            return "refused"
        after = self.entries.get(version + 1)
        if before is None or before.id != entry.previous or (after is not None and after.previous != entry.id):
            raise Violation("forked", f"{entry} was put behind {before} and before {after}")
        self.entries[version] = entry
        self.counts["appended"] += 1
        return "created"

    def forget(self, count: int) -> None:
        """A fail-over: the newest entries are gone."""
        for version in sorted(self.entries)[-count:]:
            self._lose(version)

    def delete(self, version: int) -> None:
        """One entry is gone."""
        if version in self.entries:
            self._lose(version)

    def _lose(self, version: int) -> None:
        del self.entries[version]
        self.lost += 1
        self.counts["lost"] += 1

    # -- what an actor does between two requests ------------------------------------------------------------------

    def reported_lost(self) -> None:
        """A process reports that the log has lost an entry."""
        self.counts["reported lost"] += 1
        if not self.lost:
            raise Violation("false alarm", f"the log has all of {sorted(self.entries)}")

    def read_done(self, head: Entry, newest: Entry) -> None:
        """A first read that began when `newest` was the last entry is answered."""
        self.counts["reads"] += 1
        if head.version < newest.version and self.entries.get(newest.version) == newest:
            raise Violation("cut short", f"answered from {head}, {newest} was there all the time")

    def fingerprint(self) -> Hashable:
        return tuple(sorted(self.entries.items())), self.lost

    def finish(self) -> None:
        """Nothing is left to check."""
