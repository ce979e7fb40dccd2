"""Those who use a log that is trimmed: what each asks of the store, and in which order.

Every `yield` is one request; whatever others do may come before it. The order of two requests is often the whole point:
each side writes before it reads.
"""

from typing import Literal, NamedTuple

from ..engine import Steps, Violation
from .rules import KEPT
from .store import EMPTY, Record, State, Store

ROUNDS = 12  # of anything that starts over because others were faster; no schedule needs half of it
ATTEMPTS = 4
PUTS = 2
REPEATS = 3


class Outcome(NamedTuple):
    """How a commit ended, at which number if it is committed, and the state its process holds now."""

    end: Literal["committed", "not committed", "rejected", "unknown"]
    number: int
    view: State


class Request(NamedTuple):
    """What somebody wants committed: a request key and the head at its first offer; who drops keys says up to where."""

    key: str
    base: int
    forget_line: int = 0


# -- following ---------------------------------------------------------------------------------------------------


def open_log(store: Store) -> Steps[State]:
    """The newest snapshot that can be read; the empty state if there is none. Whether it will do, the floor tells."""
    numbers = yield (store.list_snapshots,)
    for number in numbers:
        state: State | None = yield store.read_snapshot, number
        if state is not None:
            return state
    return EMPTY


def held(store: Store, name: str) -> Steps[State]:
    """The state that a process has held since before the schedule; one that starts after a crash opens the log."""
    view = store.views.pop(name, None)
    return (yield from follow(store, (yield from open_log(store)))) if view is None else view


def follow(store: Store, view: State) -> Steps[State]:
    """The state at the head: reads entries until one is missing, then the floor, once for all of them.

    Above the floor nothing was ever deleted. So a floor read last and not above the state that we set out from proves
    each entry read since, and that the missing one has never been there.
    """
    rules = store.rules
    before = (yield (store.read_floor,)) if "floor before" in (rules.missing, rules.found) else 0
    for _ in range(ROUNDS):
        start = view
        entry: State | None = yield store.get, view.number + 1
        while entry is not None:
            if entry.previous != view.id:
                break
            view = entry
            entry = yield store.get, view.number + 1
        after = 0
        if rules.missing == "floor after" or (rules.found == "floor after" and view is not start):
            after = yield (store.read_floor,)
        found = {"floor after": after, "floor before": before, "believed": 0}[rules.found] if view is not start else 0
        missing = {"floor after": after, "floor before": before, "is the head": 0}[rules.missing]
        if found <= start.number and missing <= view.number:
            if entry is not None:
                raise Violation("chain broken", f"{entry.id} does not continue {view.id}")
            return view
        store.counts["opened again"] += 1
        view = yield from open_log(store)
        before = after
    raise Violation("shut out", f"no way to the head of the log from {view.number}")


# -- committing --------------------------------------------------------------------------------------------------


def commit(store: Store, name: str, view: State, request: Request) -> Steps[Outcome]:
    """Bring a request to an outcome, from a view that may be old."""
    rules = store.rules
    attempts: list[str] = []
    for _ in range(ATTEMPTS):
        record = view.record_of(request.key)
        if record is not None:
            return Outcome("committed", record.number, view)
        if request.base < view.forget_line:
            # Whether an attempt before this call took effect cannot be told any more.
            return Outcome("unknown" if rules.too_old == "unknown" else "rejected", 0, view)
        entry = _entry(store, name, view, request)
        attempts.append(entry.id)
        before = (yield (store.read_floor,)) if rules.created == "floor before" else 0
        answer = yield from _put(store, entry)
        if answer == "unclear":
            return Outcome("unknown", 0, view)
        if answer in ("created", "ours"):
            floor = yield from _floor_after(store, answer, before)
            if entry.number > floor:
                return Outcome("committed", entry.number, entry)
            if rules.own_entry == "published when created":
                store.viewed(entry)
            store.counts["woke below the floor"] += 1
            if rules.below_floor == "not committed":
                store.told_not_committed(request.key, attempts)
                return Outcome("not committed", 0, view)
        view = yield from follow(store, view)
    if view.record_of(request.key) is None and request.base >= view.forget_line:
        store.told_not_committed(request.key, attempts)
    return Outcome("unknown", 0, view)


def _entry(store: Store, name: str, view: State, request: Request) -> State:
    """The next entry, with the state after it."""
    store.attempts += 1
    number = view.number + 1
    records = view.records
    if request.forget_line:
        records = tuple(record for record in records if record.base >= request.forget_line)
    if store.rules.records == "the last one":
        records = records[-1:]
    records = (*records, Record(request.key, request.base, number))
    line = max(view.forget_line, request.forget_line)
    return State(number, f"{name}.{store.attempts}", view.id, request.key, records, line)


def _put(store: Store, entry: State) -> Steps[str]:
    """Put an entry: "created", "ours" if it was found there, "another's" or "unclear"."""
    for _ in range(PUTS):
        answer: str = yield store.create, entry
        if answer == "created":
            return answer
        if answer == "exists":
            found: State | None = yield store.get, entry.number
            if found is not None:  # else it is trimmed: put again, to win a number that is below the floor
                return "ours" if found.id == entry.id else "another's"
    return "unclear"


def _floor_after(store: Store, answer: str, before: int) -> Steps[int]:
    """The floor to hold an entry of ours against."""
    rules = store.rules
    if answer == "ours" and rules.exists_as_ours == "believed":
        return 0
    if rules.created == "floor after":
        floor: int = yield (store.read_floor,)
        return floor
    return before


# -- clients -----------------------------------------------------------------------------------------------------


def write(store: Store, name: str, keys: tuple[str, ...]) -> Steps[None]:
    """Commit each key, asking again while the outcome is open. Started anew after a crash, it offers all again."""
    view = yield from held(store, name)
    for key in keys:
        for _ in range(REPEATS):
            base = store.bases.setdefault(key, view.number)
            if store.rules.base == "of this attempt":
                base = view.number
            outcome = yield from commit(store, name, view, Request(key, base))
            view = outcome.view
            if outcome.end == "committed":
                store.told_committed(key, outcome.number)
            elif outcome.end == "rejected":
                store.told_not_committed(key, [key])
            else:
                continue
            break
    store.views[name] = view


def read(store: Store, name: str, polls: int) -> Steps[None]:
    """A long-lived reader: follows the log whenever it is asked."""
    view = yield from held(store, name)
    for _ in range(polls):
        head: int = yield (store.look_at_head,)
        view = yield from follow(store, view)
        store.read_done(view, head)
    store.views[name] = view


def forget(store: Store, name: str) -> Steps[None]:
    """Drop the request keys of offers below some number."""
    view = yield from held(store, name)
    back: int = yield store.choose, 2
    if view.number > back:
        key = f"forget {name}"
        base = store.bases.setdefault(key, view.number)
        yield from commit(store, name, view, Request(key, base, view.number - back))


def trim(store: Store, name: str, rounds: int) -> Steps[None]:
    """Write a snapshot, and trim the log behind the second newest that can be read back."""
    rules = store.rules
    view = yield from held(store, name)
    for _ in range(rounds):
        view = yield from follow(store, view)
        yield store.put_snapshot, view
        good = yield from _good_snapshots(store)
        if len(good) < (2 if rules.snapshots == "two" else 1):
            continue
        target = good[-1]
        if rules.created == "no floor, the last entries kept":
            target = min(target, view.number - KEPT)
        floor: int = yield (store.read_floor,)
        if target <= floor:
            continue
        if rules.delete == "before the floor":
            yield from _delete(store, floor, target)
        if (yield store.swap_floor, floor, target) and rules.delete == "behind the floor":
            yield from _delete(store, floor, target)


def _good_snapshots(store: Store) -> Steps[list[int]]:
    """The numbers of the newest snapshots, as many as trimming needs."""
    rules = store.rules
    good: list[int] = []
    for number in (yield (store.list_snapshots,)):
        if rules.snapshot == "believed" or (yield store.read_snapshot, number) is not None:
            good.append(number)
        if len(good) == (2 if rules.snapshots == "two" else 1):
            break
    return good


def _delete(store: Store, floor: int, target: int) -> Steps[None]:
    for number in range(floor + 1, target + 1):
        yield store.delete, number
    for number in (yield (store.list_snapshots,)):
        if number < target:
            yield store.delete_snapshot, number


def rot(store: Store) -> Steps[None]:
    """The medium, which may spoil a snapshot at any time."""
    yield (store.rot,)
