"""Those who write, read and delete. Every `yield` is one request; whatever others do may come before it."""

from collections.abc import Callable
from typing import Literal

from ..engine import Steps, Violation
from .state import Job, State, add, close_job, collectable, forget, mark_dead, open_job, raise_horizon, replace, tag
from .store import Store

ROUNDS = 8
REPEATS = 3
SKEW = 3  # how far a writer's clock is ahead, for the wrong form that asks it

End = Literal["committed", "refused", "unknown", "not committed"]


def commit(store: Store, view: State, resolve: Callable[[State], State | None]) -> Steps[tuple[End, State]]:
    """Judge on a view, put, and judge again on the newest state after each lost race."""
    for _ in range(ROUNDS):
        after = resolve(view)
        newest: State = view
        if after is None:
            newest = yield (store.read_head,)
            if newest.number == view.number:
                return "refused", view
        else:
            answer = yield store.put_entry, after
            if answer == "won":
                return "committed", after
            newest = yield (store.read_head,)
            if answer == "unknown":
                return "unknown", newest
        view = newest
    return "not committed", view


def held(store: Store, name: str) -> Steps[State]:
    """The state that a process has held since before the schedule; after a crash, the newest."""
    view = store.views.pop(name, None)
    if view is None:
        view = yield (store.read_head,)
    return view


# -- writers -----------------------------------------------------------------------------------------------------


def write(store: Store, name: str) -> Steps[None]:
    """Write a file and add it. Asks again with the same file if the outcome is unknown, with another if it is old."""
    key = f"batch of {name}"
    view = yield from held(store, name)
    for _ in range(REPEATS):
        file = store.name(key)
        stamp: int = yield store.put_object, file
        end: End = "unknown"
        for _ in range(REPEATS):
            if end == "unknown":
                end, view = yield from commit(store, view, _adding(store, key, file, stamp))
                if end == "unknown" and store.rules.unknown == "delete own files":
                    yield store.delete_object, file
        if key in view.keys:
            return


def ask_again(store: Store, name: str) -> Steps[None]:
    """A writer who was told unknown of the oldest file, and wakes up late."""
    view = yield from held(store, name)
    file = store.history[1].files[0].name
    yield from commit(store, view, _adding(store, file, file, store.objects.get(file, 0)))


def _adding(store: Store, key: str, file: str, stamp: int) -> Callable[[State], State | None]:
    rules = store.rules
    judged: list[State] = []

    def resolve(state: State) -> State | None:
        if not judged or rules.age == "judged again":
            judged.append(state)
            if too_old(store, state, stamp):
                store.counts["refused for its age"] += 1
                return None
        if rules.repeat == "by file name":
            state = state._replace(keys=state.keys - {key})
        return add(state, key, file)

    return resolve


def too_old(store: Store, state: State, stamp: int) -> bool:
    """Whether a new file may have been swept already."""
    if store.rules.stamp == "of the writer":
        stamp += SKEW
    return stamp < (state.horizon if store.rules.horizon == "in the log" else store.oldest_safe)


def compact(store: Store, name: str) -> Steps[None]:
    """Open a job over one or two live files, read them, write their output, commit it."""
    view = yield from held(store, name)
    live = view.live()
    if not live:
        return
    first: int = yield store.choose, len(live)
    job = Job(store.name(name), live[first : first + 2], store.stamps[view.number])
    end, view = yield from commit(store, view, lambda state: open_job(state, job))
    if end != "committed":
        return
    for file in job.inputs:
        yield store.get_object, file
    output = store.name(f"{name}-output")
    stamp: int = yield store.put_object, output

    def resolve(state: State) -> State | None:
        if too_old(store, state, stamp) and store.rules.outputs == "of open jobs only":
            if any(other.id == job.id for other in state.jobs):
                raise Violation("job for nothing", f"{job.id}: {output} is of {stamp}, the horizon is {state.horizon}")
            return None
        return replace(state, job, output, store.rules)

    yield from commit(store, view, resolve)


def close(store: Store, name: str) -> Steps[None]:
    """Close an open job as past its deadline; its task may still be running."""
    view: State = yield (store.read_head,)
    if view.jobs:
        chosen: int = yield store.choose, len(view.jobs)
        job = view.jobs[chosen]
        yield from commit(store, view, lambda state: close_job(state, job.id))


# -- readers -----------------------------------------------------------------------------------------------------


def read_pinned(store: Store, name: str) -> Steps[None]:
    """Pin the state that is held, look whether it is retained still, and read all its files."""
    rules = store.rules
    view = yield from held(store, name)
    for _ in range(ROUNDS):
        newest = view
        if rules.pin == "look, then pin":
            newest = yield (store.read_head,)
        yield store.put_pin, name, view.number
        if rules.pin == "pin, then look":
            newest = yield (store.read_head,)
        lost = newest.retained_from > view.number
        if rules.pinned == "by what is there":
            lost = False
            for file in view.live():
                lost = lost or not (yield store.get_object, file)
        if not lost:
            break
        store.counts["pin refused"] += 1
        view = newest
        if rules.pinned == "by what is there":
            view = yield (store.read_head,)
    for file in view.live():
        if not (yield store.get_object, file):
            raise Violation("pinned deleted", f"{file} of {view.number}")
    store.counts["read with a pin"] += 1
    yield store.drop_pin, name


def put_tag(store: Store, name: str) -> Steps[None]:
    """Tag the state that is held, so that it can be read for ever."""
    rules = store.rules
    view = yield from held(store, name)
    number = view.number

    def resolve(state: State) -> State | None:
        judged_on = {"retained, at commit": state, "retained, when planned": view}.get(rules.tag)
        return None if judged_on is not None and number < judged_on.retained_from else tag(state, number)

    yield from commit(store, view, resolve)


# -- deletion ----------------------------------------------------------------------------------------------------


def collect(store: Store, name: str) -> Steps[None]:
    """Mark dead, read the pins, delete what no pinned state needs, forget it. The rest waits for the next round."""
    rules = store.rules
    view = yield from held(store, name)
    planned = collectable(view)
    early: tuple[int, ...] | None = None
    if rules.collect != "mark, pins, delete":
        early = yield (store.read_pins,)
    if rules.collect == "pins, delete, mark":
        for file in _doomed(view, planned, early or ()):
            yield store.delete_object, file

    def resolve(state: State) -> State | None:
        return mark_dead(state, planned if rules.mark == "tags when planned" else collectable(state))

    if planned:
        yield from commit(store, view, resolve)
    if rules.others_marks == "pins before" and early is None:
        early = yield (store.read_pins,)
    view = yield (store.read_head,)  # others may have marked files too, and died
    dead = tuple(file.name for file in view.files if file.dead)
    pins: tuple[int, ...] = (yield (store.read_pins,)) if early is None else early
    doomed = _doomed(view, dead, pins)
    for file in doomed:
        yield store.delete_object, file
    if doomed:
        yield from commit(store, view, lambda state: forget(state, doomed))


def _doomed(state: State, names: tuple[str, ...], pins: tuple[int, ...]) -> tuple[str, ...]:
    """Of these files, those that no state from the least pin on needs."""
    return tuple(f.name for f in state.files if f.name in names and not any(pin < f.dropped for pin in pins))


def sweep(store: Store, name: str) -> Steps[None]:
    """List, commit the horizon, read the state again, delete what is older and on no record."""
    rules = store.rules
    view = yield from held(store, name)
    objects: tuple[tuple[str, int], ...] = yield (store.list_objects,)
    stamps = sorted({stamp for _, stamp in objects})
    if not stamps:
        return
    chosen: int = yield store.choose, len(stamps)
    horizon = stamps[chosen] + 1
    store.oldest_safe = max(store.oldest_safe, horizon)
    if rules.horizon == "in the log":
        end, _ = yield from commit(store, view, lambda state: raise_horizon(state, horizon, rules))
        if end != "committed":
            return
    if rules.known == "read after the horizon":
        view = yield (store.read_head,)
    limit = horizon if rules.swept == "older than T" else horizon + 1
    for file, stamp in objects:
        if stamp < limit and view.file(file) is None:
            store.counts["orphan swept"] += 1
            yield store.delete_object, file
