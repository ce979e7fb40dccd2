"""The actors that write, read and delete. Every `yield` is one request; other actors may act before it takes effect."""

from collections.abc import Callable
from typing import Literal

from ..engine import Steps, Violation
from .state import Job, State, add, close_job, collectable, drop, open_job, raise_cutoff, replace, retire_files, tag
from .store import Store

ROUNDS = 8
REPEATS = 3
SKEW = 3  # ticks that a writer's clock is ahead, for the wrong form that uses it

End = Literal["committed", "refused", "unknown", "not committed"]


def commit(store: Store, snapshot: State, resolve: Callable[[State], State | None]) -> Steps[tuple[End, State]]:
    """Validate on a snapshot, put, and validate again on the latest state after each lost race."""
    for _ in range(ROUNDS):
        after = resolve(snapshot)
        newest: State = snapshot
        if after is None:
            newest = yield (store.read_head,)
            if newest.version == snapshot.version:
                return "refused", snapshot
        else:
            answer = yield store.put_entry, after
            if answer == "won":
                return "committed", after
            newest = yield (store.read_head,)
            if answer == "unknown":
                return "unknown", newest
        snapshot = newest
    return "not committed", snapshot


def held(store: Store, name: str) -> Steps[State]:
    """Return the state that a process has held since before the schedule; after a crash, the latest."""
    snapshot = store.snapshots.pop(name, None)
    if snapshot is None:
        snapshot = yield (store.read_head,)
    return snapshot


# -- writers -----------------------------------------------------------------------------------------------------


def write(store: Store, name: str) -> Steps[None]:
    """Write a file and add it. If the outcome is unknown, retry with the same file; if it is too old, with another."""
    key = f"batch of {name}"
    snapshot = yield from held(store, name)
    for _ in range(REPEATS):
        file = store.name(key)
        last_modified: int = yield store.put_object, file
        end: End = "unknown"
        for _ in range(REPEATS):
            if end == "unknown":
                end, snapshot = yield from commit(store, snapshot, _adding(store, key, file, last_modified))
                if end == "unknown" and store.rules.unknown == "delete own files":
                    yield store.delete_object, file
        if key in snapshot.keys:
            return


def ask_again(store: Store, name: str) -> Steps[None]:
    """A writer with an unknown outcome for the oldest file, which retries late."""
    snapshot = yield from held(store, name)
    file = store.history[1].files[0].name
    yield from commit(store, snapshot, _adding(store, file, file, store.objects.get(file, 0)))


def _adding(store: Store, key: str, file: str, last_modified: int) -> Callable[[State], State | None]:
    rules = store.rules
    validated: list[State] = []

    def resolve(state: State) -> State | None:
        if not validated or rules.age == "validated again":
            validated.append(state)
            if too_old(store, state, last_modified):
                store.counts["refused for its age"] += 1
                return None
        if rules.repeat == "by file name":
            state = state._replace(keys=state.keys - {key})
        return add(state, key, file)

    return resolve


def too_old(store: Store, state: State, last_modified: int) -> bool:
    """Return whether a new file may have been swept already."""
    if store.rules.last_modified == "of the writer":
        last_modified += SKEW
    return last_modified < (state.cutoff if store.rules.cutoff == "in the log" else store.oldest_safe)


def compact(store: Store, name: str) -> Steps[None]:
    """Open a job over one or two live files, read them, write their output, commit it."""
    snapshot = yield from held(store, name)
    live = snapshot.live()
    if not live:
        return
    first: int = yield store.choose, len(live)
    job = Job(store.name(name), live[first : first + 2], store.last_modified_times[snapshot.version])
    end, snapshot = yield from commit(store, snapshot, lambda state: open_job(state, job))
    if end != "committed":
        return
    for file in job.inputs:
        yield store.get_object, file
    output = store.name(f"{name}-output")
    last_modified: int = yield store.put_object, output

    def resolve(state: State) -> State | None:
        if too_old(store, state, last_modified) and store.rules.outputs == "of open jobs only":
            if any(other.id == job.id for other in state.jobs):
                raise Violation(
                    "job for nothing", f"{job.id}: {output} is of {last_modified}, the cutoff is {state.cutoff}"
                )
            return None
        return replace(state, job, output, store.rules)

    yield from commit(store, snapshot, resolve)


def close(store: Store, name: str) -> Steps[None]:
    """Close an open job as past its deadline; its task may still be running."""
    snapshot: State = yield (store.read_head,)
    if snapshot.jobs:
        chosen: int = yield store.choose, len(snapshot.jobs)
        job = snapshot.jobs[chosen]
        yield from commit(store, snapshot, lambda state: close_job(state, job.id))


# -- readers -----------------------------------------------------------------------------------------------------


def read_pinned(store: Store, name: str) -> Steps[None]:
    """Pin the held state, check that it is still retained, and read all its files."""
    rules = store.rules
    snapshot = yield from held(store, name)
    for _ in range(ROUNDS):
        newest = snapshot
        if rules.pin == "look, then pin":
            newest = yield (store.read_head,)
        yield store.put_pin, name, snapshot.version
        if rules.pin == "pin, then look":
            newest = yield (store.read_head,)
        lost = newest.earliest_retained_version > snapshot.version
        if rules.pinned == "by what is there":
            lost = False
            for file in snapshot.live():
                lost = lost or not (yield store.get_object, file)
        if not lost:
            break
        store.counts["pin refused"] += 1
        snapshot = newest
        if rules.pinned == "by what is there":
            snapshot = yield (store.read_head,)
    for file in snapshot.live():
        if not (yield store.get_object, file):
            raise Violation("pinned deleted", f"{file} of {snapshot.version}")
    store.counts["read with a pin"] += 1
    yield store.drop_pin, name


def put_tag(store: Store, name: str) -> Steps[None]:
    """Tag the held state, so that it can always be read."""
    rules = store.rules
    snapshot = yield from held(store, name)
    version = snapshot.version

    def resolve(state: State) -> State | None:
        validated_on = {"retained, at commit": state, "retained, when planned": snapshot}.get(rules.tag)
        return (
            None
            if validated_on is not None and version < validated_on.earliest_retained_version
            else tag(state, version)
        )

    yield from commit(store, snapshot, resolve)


# -- deletion ----------------------------------------------------------------------------------------------------


def collect(store: Store, name: str) -> Steps[None]:
    """Retire, read the pins, delete the files that no pinned state needs, and purge them. The rest waits for the next
    round.
    """
    rules = store.rules
    snapshot = yield from held(store, name)
    planned = collectable(snapshot)
    early: tuple[int, ...] | None = None
    if rules.collect != "mark, pins, delete":
        early = yield (store.read_pins,)
    if rules.collect == "pins, delete, mark":
        for file in _doomed(snapshot, planned, early or ()):
            yield store.delete_object, file

    def resolve(state: State) -> State | None:
        return retire_files(state, planned if rules.mark == "tags when planned" else collectable(state))

    if planned:
        yield from commit(store, snapshot, resolve)
    if rules.others_marks == "pins before" and early is None:
        early = yield (store.read_pins,)
    snapshot = yield (store.read_head,)  # other actors may have marked files too, and died
    retired = tuple(file.name for file in snapshot.files if file.retired)
    pins: tuple[int, ...] = (yield (store.read_pins,)) if early is None else early
    doomed = _doomed(snapshot, retired, pins)
    for file in doomed:
        yield store.delete_object, file
    if doomed:
        yield from commit(store, snapshot, lambda state: drop(state, doomed))


def _doomed(state: State, names: tuple[str, ...], pins: tuple[int, ...]) -> tuple[str, ...]:
    """Return those of the files that no state from the least pin on needs."""
    return tuple(f.name for f in state.files if f.name in names and not any(pin < f.dropped for pin in pins))


def sweep(store: Store, name: str) -> Steps[None]:
    """List, commit the cutoff, read the state again, delete older objects that are not on record."""
    rules = store.rules
    snapshot = yield from held(store, name)
    objects: tuple[tuple[str, int], ...] = yield (store.list_objects,)
    last_modified_times = sorted({last_modified for _, last_modified in objects})
    if not last_modified_times:
        return
    chosen: int = yield store.choose, len(last_modified_times)
    cutoff = last_modified_times[chosen] + 1
    store.oldest_safe = max(store.oldest_safe, cutoff)
    if rules.cutoff == "in the log":
        end, _ = yield from commit(store, snapshot, lambda state: raise_cutoff(state, cutoff, rules))
        if end != "committed":
            return
    if rules.known == "read after the cutoff":
        snapshot = yield (store.read_head,)
    limit = cutoff if rules.swept == "older than T" else cutoff + 1
    for file, last_modified in objects:
        if last_modified < limit and snapshot.file(file) is None:
            store.counts["orphan swept"] += 1
            yield store.delete_object, file
