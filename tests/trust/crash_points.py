"""Named crash points: a process is killed with SIGKILL there, and another finds all done or nothing, and goes on.

All that Lakebed leaves behind it leaves by calls to a store or to a log. So the points of an operation at which a
process can die, as another process can tell them apart, lie before its calls, and behind those that change something.
A point is named by the operation, the call, the kind of object, and how often there was such a call: ``upsert: before
create tables/*/log/* 1``. Calls of the log in a database are points as well.

A slice is one operation on one kind of place: local disk, a server of S3, and the log in PostgreSQL or in a server of
DynamoDB. Each kill is of a child of its own, which is forked from a process that has used no store.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.clock import random_token
from lakebed.table import instance as instances
from lakebed.table.instance import Instance
from lakebed.testing.faults import CountingStorage
from tests.adversarial import test_every_call as calls
from tests.postgres.cluster import PASSWORD, Cluster
from tests.trust.results import Slice

KILLS = 12
"""Points of one operation in a slice; the next slice of the operation goes on behind them."""

RECOVERY_S = 10.0
"""How soon another process must have done the operation again, on a machine that does nothing else."""

LOADED = 6
"""How many times as long it may take on a busy one."""

CHANGING = frozenset({"create", "replace", "replace_if", "send", "delete", "advance_log_start", "remove"})
PARTS = (
    (re.compile(r"\d{20}"), "N"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}"), "*"),
    (re.compile(r"(?<=sidecars/)[^/]+"), "*"),
    (re.compile(r"(?<=segments/)[^/]+"), "*"),
    (re.compile(r"[0-9a-f]{32}"), "*"),
)


def kind_of(name: str) -> str:
    """Return the kind of an object: its name without numbers and identities."""
    for pattern, instead in PARTS:
        name = pattern.sub(instead, name)
    return name


# -- places -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance lies."""

    url: str
    options: dict[str, str] = field(default_factory=dict)
    log_url: str | None = None

    def create(self) -> Instance:
        """Make an instance whose garbage goes at once."""
        lake = lakebed.create(self.url, storage_options=self.options, log_url=self.log_url)
        lake.set(history_s=0, orphan_age_s=0, log_s=0)
        return lake

    def open(self) -> Instance:
        """Open it as another process."""
        return lakebed.open(self.url, storage_options=self.options, log_url=self.log_url)


def _serve(says: Any) -> None:
    """The child that serves S3 and DynamoDB."""
    from tests.s3.conftest import served

    with served() as server:
        says.send((server.endpoint, server.storage_options))
        says.recv()


@contextlib.contextmanager
def _moto() -> Iterator[tuple[str, dict[str, str]]]:
    """Serve in a process of its own: one that has threads must not be forked."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(60)
        process.kill()


def _new_bucket(endpoint: str) -> str:
    from urllib.request import Request, urlopen

    from tests.s3.conftest import _UNSIGNED

    name = f"test-{random_token()[:12]}"
    with urlopen(Request(f"{endpoint}/{name}", method="PUT", headers={"Authorization": _UNSIGNED}), timeout=120):
        return f"s3://{name}"


@contextlib.contextmanager
def _on_disk(folder: Path) -> Iterator[Callable[[], Place]]:
    yield lambda: Place(f"{folder}/{random_token()}")


@contextlib.contextmanager
def _on_s3(folder: Path) -> Iterator[Callable[[], Place]]:
    with _moto() as (endpoint, options):
        yield lambda: Place(f"{_new_bucket(endpoint)}/lake", options)


@contextlib.contextmanager
def _in_postgresql(folder: Path) -> Iterator[Callable[[], Place]]:
    os.environ["PGPASSWORD"] = PASSWORD
    cluster = Cluster.make()
    try:
        yield lambda: Place(f"{folder}/{random_token()}", log_url=cluster.url())
    finally:
        cluster.remove()


@contextlib.contextmanager
def _in_dynamodb(folder: Path) -> Iterator[Callable[[], Place]]:
    with _moto() as (endpoint, options):
        keys = {name: options[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
        log_url = f"dynamodb://test-{random_token()[:12]}?region=us-east-1&endpoint_url={endpoint}"
        os.environ.update({name.upper(): value for name, value in keys.items()})
        yield lambda: Place(f"{folder}/{random_token()}", log_url=log_url)


PLACES = {"local disk": _on_disk, "S3 server": _on_s3, "PostgreSQL": _in_postgresql, "DynamoDB stand-in": _in_dynamodb}
SPARK = {"bulk import", "migrate on Spark", "stream"}
"""Operations whose tasks open the store again, by its address, and so make calls that no watch sees."""

OPERATIONS = [name for name in calls.OPERATIONS if name not in SPARK]


# -- points -----------------------------------------------------------------------------------------------------


class Watch:
    """Counts the calls of a process by kind, and kills it at one of them; None: at none."""

    def __init__(self, fatal: str | None) -> None:
        self.fatal = fatal
        self.seen: dict[str, int] = {}
        self.points: list[str] = []

    def around(self, call: str, name: str, effect: Callable[[], Any]) -> Any:
        """Make a call; the process may end before it, or behind it."""
        point = f"{call} {kind_of(name)}"
        self.seen[point] = self.seen.get(point, 0) + 1
        point = f"{point} {self.seen[point]}"
        self._reach(f"before {point}")
        done = effect()
        if call in CHANGING:
            self._reach(f"after {point}")
        return done

    def _reach(self, point: str) -> None:
        self.points.append(point)
        if point == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


class WatchedStorage(CountingStorage):
    """A store whose calls are points."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        super().__init__(inner)
        self.watch = watch

    def create(self, name: str, data: bytes) -> Any:
        return self.watch.around("create", name, lambda: self.inner.create(name, data))

    def replace(self, name: str, data: bytes) -> None:
        self.watch.around("replace", name, lambda: self.inner.replace(name, data))

    def replace_if(self, name: str, version: Any, data: bytes) -> Any:
        return self.watch.around("replace_if", name, lambda: self.inner.replace_if(name, version, data))

    def send(self, name: str, path: Path) -> Any:
        return self.watch.around("send", name, lambda: self.inner.send(name, path))

    def delete(self, names: Any) -> None:
        for name in names:
            self.watch.around("delete", name, lambda name=name: self.inner.delete([name]))

    def _count(self, operation: Any, name: str) -> None:
        self.watch.around(operation, name, lambda: None)


class WatchedLogs:
    """Logs in a database whose calls are points."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self.inner, self.watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, prefix: str) -> Any:
        return _WatchedLog(self.inner.open(prefix), self.watch, prefix)


class _WatchedLog:
    def __init__(self, inner: Any, watch: Watch, prefix: str) -> None:
        self.inner, self.watch, self.log = inner, watch, prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in ("create", "get", "end", "log_start", "advance_log_start", "remove", "versions"):
            return found
        return lambda *given, **named: self.watch.around(name, f"{self.log}/log", lambda: found(*given, **named))


# -- children ---------------------------------------------------------------------------------------------------


def _watched(place: Place, watch: Watch) -> Instance:
    """Open the instance as another process, whose calls are points."""
    opened = place.open()
    if place.log_url is not None:
        connect = instances.connect_logs
        instances.connect_logs = lambda *given, **named: WatchedLogs(connect(*given, **named), watch)  # type: ignore[assignment]
    storage = WatchedStorage(opened.storage, watch)
    return Instance(storage, {"instance": opened.id, "log_url": place.log_url}, place.options)


def _act(place: Place, operation: str, fatal: str | None, notes: Path) -> None:
    before, act = calls.OPERATIONS[operation]
    lake = place.create()
    before(lake)
    lake.close()
    first = calls.shown(lake)
    watch = Watch(fatal)
    notes.write_bytes(pickle.dumps((first, [])))
    act(_watched(place, watch))
    notes.write_bytes(pickle.dumps((first, watch.points)))


def _recover(place: Place, operation: str, notes: Path) -> None:
    """Check what the killed process left, do the operation again, and collect garbage."""
    first, _ = pickle.loads(notes.read_bytes())
    _, act = calls.OPERATIONS[operation]
    begun = time.monotonic()
    found = calls.shown(place.open())
    act(place.open())
    took_s = time.monotonic() - begun
    last = calls.shown(place.open())
    assert operation == "apply" or found in (first, last), "neither as before nor done"
    lake = place.open()
    assert not calls.doubled(lake), "a request was committed twice"
    for table in lake.tables():
        assert lake.table(table).verify(files=True, deep=True).sound
    assert calls.collected(lake) == last, "garbage collection changed rows"
    notes.write_bytes(pickle.dumps((took_s, found == last)))


def _in_child(work: Callable[[], None]) -> tuple[int, str]:
    """Run work in a child; return the signal that ended it, and what it raised."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            try:
                with pytest.MonkeyPatch.context() as patch:
                    calls.set_alone(patch)
                    work()
            except BaseException:  # noqa: BLE001 - said by the parent
                traceback.print_exc(file=said)
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), said.read()


def crash_points(seed: int, kills: int = KILLS) -> Slice:
    """T5: kill a process at some named points of one operation in one kind of place."""
    kinds = list(itertools.product(PLACES, OPERATIONS))
    kind, operation = kinds[seed * 7 % len(kinds)]
    turn, done = seed // len(kinds), Slice()
    with tempfile.TemporaryDirectory() as folder, PLACES[kind](Path(folder)) as new_place:
        notes = Path(folder) / "notes"
        place = new_place()
        ended, said = _in_child(lambda: _act(place, operation, None, notes))
        if said or ended:
            done.findings.append(f"{operation} on {kind} without a kill: {said[-900:]}")
            return done
        _, points = pickle.loads(notes.read_bytes())
        step = max(1, len(points) // kills)
        for point in points[turn % step :: step]:
            _kill(done, (kind, operation), new_place(), point, notes)
        done.facts[f"{kind}: {operation}"] = len(points)
    return done


def _kill(done: Slice, at: tuple[str, str], place: Place, point: str, notes: Path) -> None:
    kind, operation = at
    name = f"{operation}: {point} ({kind})"
    ended, said = _in_child(lambda: _act(place, operation, point, notes))
    if ended != signal.SIGKILL:
        # Another order of calls than before, which a thread can bring.
        done.events["points that were not reached again"] += 1
        if said:
            done.findings.append(f"{name}: {said[-900:]}")
        return
    done.units += 1
    done.events[f"kill -9: {kind}"] += 1
    done.events[f"killed: {operation}"] += 1
    ended, said = _in_child(lambda: _recover(place, operation, notes))
    if ended or said:
        done.findings.append(f"{name}: {said[-900:] or ended}")
        return
    took_s, was_done = pickle.loads(notes.read_bytes())
    done.events["done when killed" if was_done else "as before when killed"] += 1
    if took_s > RECOVERY_S * LOADED:
        done.findings.append(f"{name}: recovered after {took_s:.1f} s")
    if place.url.startswith("/"):
        shutil.rmtree(place.url)
