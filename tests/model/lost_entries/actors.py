"""The actors of a log that loses entries, and casts of them. Every `yield` is one request to the store."""

from functools import partial
from typing import NamedTuple

from ..engine import Chooser, Steps, World
from .rules import Rules
from .store import START, Entry, Store

ATTEMPTS = 4


class Cast(NamedTuple):
    """The number of each actor. ``held``: the versions that the writers hold at the start, so that they do not open."""

    writers: int = 0
    readers: int = 0
    batches: int = 1
    entries: int = 3
    held: tuple[int, ...] = ()
    forgotten: int = 0
    deleted: int = 0


def read_on(store: Store, head: Entry) -> Steps[Entry | None]:
    """Return the last entry that follows; None if one does not continue the one before, which is reported."""
    while True:
        entry: Entry | None = yield store.get, head.version + 1
        if entry is None:
            return head
        if entry.previous != head.id:
            store.reported_lost()
            return None
        head = entry


def open_log(store: Store) -> Steps[Entry | None]:
    """Return the last entry of the log at the first read; None if a loss was seen, which is reported."""
    newest: Entry = yield (store.newest,)
    head = yield from read_on(store, START)
    if head is None:
        return None
    if store.rules.end == "looks past it" and (yield store.beyond, head.version):
        if store.rules.witness == "believed" or (yield store.get, head.version + 1) is None:
            store.reported_lost()
            return None
        store.counts["appended meanwhile"] += 1
    store.read_done(head, newest)
    return head


def write(store: Store, name: str, batches: int, held: int | None) -> Steps[None]:
    """Append some entries; stop where the log has lost one."""
    head = (yield from open_log(store)) if held is None else store.past[held]
    for batch in range(batches):
        for _ in range(ATTEMPTS):
            if head is None:
                return
            entry = Entry(head.version + 1, f"{name}.{batch}", head.id)
            answer = yield store.create, entry
            if answer == "created":
                head = entry
                break
            if answer == "refused":
                store.reported_lost()
                return
            head = yield from read_on(store, head)


def read(store: Store) -> Steps[None]:
    """A new process reads the log."""
    yield from open_log(store)


def fail_over(store: Store, most: int) -> Steps[None]:
    """The database goes on from a copy that lacks the newest entries."""
    count: int = yield store.choose, most
    yield store.forget, count + 1


def delete_one(store: Store, versions: int) -> Steps[None]:
    """A lifecycle rule, or a partial copy."""
    version: int = yield store.choose, versions
    yield store.delete, version + 1


def world_of(chooser: Chooser, rules: Rules, cast: Cast) -> World:
    """Return a world of this cast."""
    store = Store(chooser, rules, cast.entries)
    for index in range(cast.writers):
        held = cast.held[index] if index < len(cast.held) else None
        store.spawn(f"w{index}", partial(write, store, f"w{index}", cast.batches, held), knows=held)
    for index in range(cast.readers):
        store.spawn(f"r{index}", partial(read, store))
    if cast.forgotten:
        store.spawn("fail-over", partial(fail_over, store, cast.forgotten))
    for index in range(cast.deleted):
        store.spawn(f"deletion {index}", partial(delete_one, store, cast.entries))
    return store


def swarm(chooser: Chooser) -> Cast:
    """Return a cast drawn by the chooser."""
    below = chooser.below
    entries = 1 + below(4)
    writers = 1 + below(3)
    held = tuple(below(entries + 1) for _ in range(below(writers + 1)))
    return Cast(writers, below(3), 1 + below(2), entries, held, below(3), below(3) == 0)


FAILED_OVER = Cast(writers=2, batches=2, entries=2, held=(2, 1), forgotten=1)
DELETED = Cast(writers=1, readers=1, entries=3, held=(1,), deleted=1)
APPENDED = Cast(writers=1, readers=1, batches=2, entries=1, held=(1,))
