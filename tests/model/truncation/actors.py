"""The actors on a truncated log: the requests of each to the store, and their order.

Every `yield` is one request; other actors may act before it takes effect. The order of two requests is often essential:
each side writes before it reads.
"""

from typing import Literal, NamedTuple

from ..engine import Steps, Violation
from .rules import KEPT
from .store import EMPTY, Record, State, Store

ROUNDS = 12  # of a loop that restarts because others were faster; no schedule needs half of it
ATTEMPTS = 4
PUTS = 2
REPEATS = 3
AHEAD = 2  # versions above its own that a process finds where names are visited in another order


class Outcome(NamedTuple):
    """The outcome of a commit, its version if committed, and the resulting state of the process."""

    end: Literal["committed", "not committed", "rejected", "unknown"]
    version: int
    snapshot: State


class Request(NamedTuple):
    """A transaction to commit: a request key and the head at its first proposal; an actor that drops keys gives the
    watermark.
    """

    key: str
    base: int
    request_watermark: int = 0


# -- following ---------------------------------------------------------------------------------------------------


def open_log(store: Store) -> Steps[State]:
    """Return the newest readable checkpoint; the empty state if there is none. The log start determines whether it is
    valid.
    """
    versions = yield (store.list_checkpoints,)
    for version in versions:
        state: State | None = yield store.read_checkpoint, version
        if state is not None:
            return state
    return EMPTY


def held(store: Store, name: str) -> Steps[State]:
    """Return the state that a process has held since before the schedule; one that restarts after a crash opens the
    log.
    """
    snapshot = store.snapshots.pop(name, None)
    return (yield from follow(store, (yield from open_log(store)))) if snapshot is None else snapshot


def follow(store: Store, snapshot: State) -> Steps[State]:
    """Return the state at the head: read entries until one is missing, then the log start, once for all of them.

    No entry above the log start was ever deleted. So a log start read last and not above the initial state proves that
    each entry read since is valid, and that the missing one has never existed.
    """
    rules = store.rules
    before = (yield (store.read_log_start,)) if "floor before" in (rules.missing, rules.found) else 0
    for _ in range(ROUNDS):
        start = snapshot
        entry: State | None = yield store.get, snapshot.version + 1
        while entry is not None:
            if entry.previous != snapshot.id:
                break
            snapshot = entry
            entry = yield store.get, snapshot.version + 1
        after = 0
        if rules.missing == "floor after" or (rules.found == "floor after" and snapshot is not start):
            after = yield (store.read_log_start,)
        found = (
            {"floor after": after, "floor before": before, "believed": 0}[rules.found] if snapshot is not start else 0
        )
        missing = {"floor after": after, "floor before": before, "is the head": 0}[rules.missing]
        if found <= start.version and missing <= snapshot.version:
            if entry is not None:
                raise Violation("chain broken", f"{entry.id} does not continue {snapshot.id}")
            return snapshot
        store.counts["opened again"] += 1
        snapshot = yield from open_log(store)
        before = after
    raise Violation("shut out", f"no way to the head of the log from {snapshot.version}")


def follow_listed(store: Store, snapshot: State) -> Steps[State]:
    """Return the state at the head, of a process that looks by one listing first, and follows if that proves nothing.

    Each name is visited at a time of its own. An entry may be deleted after that, and one put in its place by a process
    that slept, before it is read. So the log start is read after the entries, as when they are read one by one.
    """
    form = store.rules.listing
    listed = yield from _list_entries(store, snapshot.version, backwards=form == "after the head, in any order")
    first = snapshot.version + 1
    if form != "after the head, in any order" and snapshot.version:
        if snapshot.version not in listed:
            return (yield from follow(store, snapshot))
        store.counts["listed"] += 1
    later = [version for version in listed if version >= first]
    gap = next((index for index, version in enumerate(later) if version != first + index), len(later))
    if gap < len(later) and form != "up to the first gap":
        return (yield from follow(store, snapshot))
    head = snapshot
    for version in later[:gap]:
        entry: State | None = yield store.get, version
        if entry is None or entry.previous != head.id:
            return (yield from follow(store, snapshot))
        head = entry
    if head is not snapshot and form != "without the log start":
        log_start: int = yield (store.read_log_start,)
        if log_start > snapshot.version:
            return (yield from follow(store, snapshot))
    return head


def _list_entries(store: Store, begin: int, *, backwards: bool) -> Steps[list[int]]:
    """Return the versions of a listing from a version on, ascending."""
    listed: list[int] = []
    if backwards:
        for visited in range(begin + AHEAD, begin - 1, -1):
            entry: State | None = yield store.get, visited
            listed += [] if entry is None else [visited]
        return sorted(listed)
    version: int | None = yield store.next_from, begin
    while version is not None:
        listed.append(version)
        version = yield store.next_from, version + 1
    return listed


# -- committing --------------------------------------------------------------------------------------------------


def commit(store: Store, name: str, snapshot: State, request: Request) -> Steps[Outcome]:
    """Bring a request to an outcome, from a snapshot that may be old."""
    rules = store.rules
    attempts: list[str] = []
    for _ in range(ATTEMPTS):
        record = snapshot.record_of(request.key)
        if record is not None:
            return Outcome("committed", record.version, snapshot)
        if request.base < snapshot.request_watermark:
            # It is unknown whether an attempt before this call took effect.
            return Outcome("unknown" if rules.too_old == "unknown" else "rejected", 0, snapshot)
        entry = _entry(store, name, snapshot, request)
        attempts.append(entry.id)
        before = (yield (store.read_log_start,)) if rules.created == "floor before" else 0
        answer = yield from _put(store, entry)
        if answer == "unclear":
            return Outcome("unknown", 0, snapshot)
        if answer in ("created", "ours"):
            log_start = yield from _log_start_after(store, answer, before)
            if entry.version > log_start:
                return Outcome("committed", entry.version, entry)
            if rules.own_entry == "published when created":
                store.viewed(entry)
            store.counts["woke below the log start"] += 1
            if rules.below_log_start == "not committed":
                store.reported_not_committed(request.key, attempts)
                return Outcome("not committed", 0, snapshot)
        snapshot = yield from follow(store, snapshot)
    if snapshot.record_of(request.key) is None and request.base >= snapshot.request_watermark:
        store.reported_not_committed(request.key, attempts)
    return Outcome("unknown", 0, snapshot)


def _entry(store: Store, name: str, snapshot: State, request: Request) -> State:
    """Return the next entry, with the state after it."""
    store.attempts += 1
    version = snapshot.version + 1
    records = snapshot.records
    if request.request_watermark:
        records = tuple(record for record in records if record.base >= request.request_watermark)
    if store.rules.records == "the last one":
        records = records[-1:]
    records = (*records, Record(request.key, request.base, version))
    line = max(snapshot.request_watermark, request.request_watermark)
    return State(version, f"{name}.{store.attempts}", snapshot.id, request.key, records, line)


def _put(store: Store, entry: State) -> Steps[str]:
    """Put an entry: "created", "ours" if the existing one is ours, "another's" or "unclear"."""
    for _ in range(PUTS):
        answer: str = yield store.create, entry
        if answer == "created":
            return answer
        if answer == "exists":
            found: State | None = yield store.get, entry.version
            if found is not None:  # else it is truncated: put again, to win a version that is below the log start
                return "ours" if found.id == entry.id else "another's"
    return "unclear"


def _log_start_after(store: Store, answer: str, before: int) -> Steps[int]:
    """Return the log start with which to check an entry of ours."""
    rules = store.rules
    if answer == "ours" and rules.exists_as_ours == "believed":
        return 0
    if rules.created == "floor after":
        log_start: int = yield (store.read_log_start,)
        return log_start
    return before


# -- clients -----------------------------------------------------------------------------------------------------


def write(store: Store, name: str, keys: tuple[str, ...]) -> Steps[None]:
    """Commit each key, retrying while the outcome is open. After a crash it proposes all of them again."""
    snapshot = yield from held(store, name)
    for key in keys:
        for _ in range(REPEATS):
            base = store.bases.setdefault(key, snapshot.version)
            if store.rules.base == "of this attempt":
                base = snapshot.version
            outcome = yield from commit(store, name, snapshot, Request(key, base))
            snapshot = outcome.snapshot
            if outcome.end == "committed":
                store.reported_committed(key, outcome.version)
            elif outcome.end == "rejected":
                store.reported_not_committed(key, [key])
            else:
                continue
            break
    store.snapshots[name] = snapshot


def read(store: Store, name: str, polls: int) -> Steps[None]:
    """A long-lived reader: follows the log on each poll."""
    snapshot = yield from held(store, name)
    for _ in range(polls):
        head: int = yield (store.look_at_head,)
        snapshot = yield from follow(store, snapshot)
        store.read_done(snapshot, head)
    store.snapshots[name] = snapshot


def arrive(store: Store, name: str) -> Steps[None]:
    """A process that has opened a checkpoint, and looks for the first time."""
    snapshot = yield from held(store, name)
    head: int = yield (store.look_at_head,)
    snapshot = yield from follow_listed(store, snapshot)
    store.read_done(snapshot, head)
    store.snapshots[name] = snapshot


def drop(store: Store, name: str) -> Steps[None]:
    """Drop the request keys of proposals below some version."""
    snapshot = yield from held(store, name)
    back: int = yield store.choose, 2
    if snapshot.version > back:
        key = f"forget {name}"
        base = store.bases.setdefault(key, snapshot.version)
        yield from commit(store, name, snapshot, Request(key, base, snapshot.version - back))


def truncate(store: Store, name: str, rounds: int) -> Steps[None]:
    """Write a checkpoint, and truncate the log up to the second newest that can be read back."""
    rules = store.rules
    snapshot = yield from held(store, name)
    for _ in range(rounds):
        snapshot = yield from follow(store, snapshot)
        yield store.put_checkpoint, snapshot
        good = yield from _good_checkpoints(store)
        if len(good) < (2 if rules.checkpoints == "two" else 1):
            continue
        target = good[-1]
        if rules.created == "no log start, the last entries kept":
            target = min(target, snapshot.version - KEPT)
        log_start: int = yield (store.read_log_start,)
        if target <= log_start:
            continue
        if rules.delete == "before the log start":
            yield from _delete(store, log_start, target)
        if (yield store.swap_log_start, log_start, target) and rules.delete == "behind the log start":
            yield from _delete(store, log_start, target)


def _good_checkpoints(store: Store) -> Steps[list[int]]:
    """Return the versions of the newest checkpoints, as many as truncation needs."""
    rules = store.rules
    good: list[int] = []
    for version in (yield (store.list_checkpoints,)):
        if rules.checkpoint == "believed" or (yield store.read_checkpoint, version) is not None:
            good.append(version)
        if len(good) == (2 if rules.checkpoints == "two" else 1):
            break
    return good


def _delete(store: Store, log_start: int, target: int) -> Steps[None]:
    for version in range(log_start + 1, target + 1):
        yield store.delete, version
    for version in (yield (store.list_checkpoints,)):
        if version < target:
            yield store.delete_checkpoint, version


def rot(store: Store) -> Steps[None]:
    """The medium, which may damage a checkpoint at any time."""
    yield (store.rot,)
