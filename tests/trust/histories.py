"""Histories of clients that write and read one table at once, checked afterwards: set-full, and prefixes of the log.

Each client has the instance for itself, over a store that fails, and does some hundred operations. What a read saw must
be exactly what was committed up to its version; a read that began after a write was acknowledged must see it; what was
acknowledged is there in the end once, and what was refused is not.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import Schema, clock
from lakebed.errors import ContentionError, RejectedError, StorageError, UnknownOutcomeError
from lakebed.table.instance import Instance
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from tests.trust.results import Slice

CLIENTS, OPERATIONS = 8, 200
FAULTS = [
    Rule(fault, "create", "*/log/*", probability=0.02, later_calls=3)
    for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CONFLICT, Fault.LATE)
]


@dataclass(frozen=True, slots=True)
class Written:
    """A write: its id, when it began and was answered, and the version; None: refused or unclear."""

    id: str
    begun: float
    ended: float
    version: int | None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A read: when it began, the version, and the ids of the rows that it saw."""

    begun: float
    version: int
    ids: tuple[str, ...]


class Client(threading.Thread):
    """One client, with what it did."""

    def __init__(self, lake: Any, name: str, seed: int) -> None:
        super().__init__(name=name)
        self.chance = random.Random(f"{seed} {name}")
        self.storage = FaultyStorage(lake.storage, FaultPlan(FAULTS, seed * CLIENTS + int(name)))
        self.table = Instance(self.storage, {"instance": lake.id}).table("t")
        self.written: list[Written] = []
        self.seen: list[Read] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do all operations."""
        try:
            for number in range(OPERATIONS):
                if self.chance.random() < 0.1:
                    self._write(f"{self.name}-{number}")
                else:
                    self._read()
        except BaseException as error:  # noqa: BLE001 - raised by the check
            self.error = error

    def _write(self, name: str) -> None:
        begun, version, refused = time.monotonic(), None, False
        try:
            version = self.table.write(pa.table({"k": [self.chance.randrange(10**6)], "id": [name]}), commit_id=name)
        except UnknownOutcomeError:
            pass
        except (ContentionError, RejectedError, StorageError):
            refused = True
        self.written.append(Written(name, begun, time.monotonic(), version, refused))

    def _read(self) -> None:
        begun = time.monotonic()
        with suppress(StorageError):
            snapshot = self.table.snapshot()
            ids = tuple(sorted(snapshot.scan().read_all()["id"].to_pylist()))
            self.seen.append(Read(begun, snapshot.version, ids))


def history(seed: int) -> Slice:
    """T15: one history."""
    done = Slice(1)
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table = lake.create_table("t", Schema({"k": "int64"}, values={"id": "string"}))
    clients = [Client(lake, str(number), seed) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        client.storage.settle()
        done.events.update({f"fault: {fault.value}": count for fault, count in client.storage.fired.items()})
        if client.error is not None:
            done.findings.append(f"history {seed}, client {client.name}: {client.error!r}")
    written = [one for client in clients for one in client.written]
    seen = [one for client in clients for one in client.seen]
    done.events.update(
        {
            "writes": len(written),
            "reads": len(seen),
            "refused": sum(one.refused for one in written),
            "unclear": sum(one.version is None and not one.refused for one in written),
        }
    )
    log = {row["request_key"]: row["version"] for row in table.history().to_pylist() if row["request_key"]}
    done.findings += [f"history {seed}: {what}" for what in anomalies(written, seen, log)]
    last = tuple(sorted(table.to_arrow()["id"].to_pylist()))
    if last != tuple(sorted(log)):
        done.findings.append(f"history {seed}: the table has {len(last)} rows, the log {len(log)} writes")
    return done


def anomalies(written: list[Written], seen: list[Read], log: dict[str, int]) -> list[str]:
    """Return what contradicts the log, which has the version of each committed write."""
    found = []
    for one in written:
        if one.version is not None and log.get(one.id) != one.version:
            found.append(f"{one.id} was acknowledged as {one.version}, and is {log.get(one.id)}")
        if one.refused and one.id in log:
            found.append(f"{one.id} was refused, and is {log[one.id]}")
    for read in seen:
        expected = tuple(sorted(name for name, version in log.items() if version <= read.version))
        if read.ids != expected:
            lost, strange = set(expected) - set(read.ids), set(read.ids) - set(expected)
            found.append(f"a read of {read.version} lacks {lost}, has {strange}, or has some twice")
        late = [
            one.id
            for one in written
            if one.version is not None and read.version < one.version and one.ended < read.begun
        ]
        found += [f"a read of {read.version} began after {name} was acknowledged as {log.get(name)}" for name in late]
    return found
