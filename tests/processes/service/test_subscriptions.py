"""A subscriber of another kind than hooks, in this file alone: order, at least once, lag, parking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.read.changes.events import read_events
from lakebed.read.inspect.hooks import Delivered
from lakebed.server.service.plan import Retry
from lakebed.server.service.subscriptions import DeliveryLimits, Subscription, Subscriptions
from tests.waiting import until

DIES = 7
"""The exit code of a process that dies between a delivery and the storing of the position."""


class Copier:
    """Appends the number of each version of a table to a file; its position is another file beside it."""

    def __init__(self, table, folder, faults_max=None):
        self.id, self.table, self.title = "copier", table.id, "copier c"
        self.retry = Retry(0.001, 0.002, faults_max)
        self.ended = False
        self.source, self.copy, self.position = table, Path(folder) / "copy", Path(folder) / "position"
        self.errors, self.dies, self.tries = [], False, 0

    @property
    def versions(self):
        return [int(line) for line in self.copy.read_text().splitlines()] if self.copy.exists() else []

    def read(self, known):
        found = msgspec.json.decode(self.position.read_bytes(), type=Delivered) if self.position.exists() else known
        return found if found.version >= known.version else known

    def write(self, delivered):
        if self.dies:
            os._exit(DIES)
        self.position.write_bytes(msgspec.json.encode(delivered))
        return True

    def deliver(self, delivered, stopping):
        self.tries += 1
        until_version = self.source.state().version
        for event, digest in read_events(self.source.log, delivered.version, until_version, delivered.entry_digest):
            if stopping():
                return
            if self.errors:
                raise self.errors.pop()
            with self.copy.open("a") as copy:
                copy.write(f"{event.version}\n")
            yield event.version, digest


@pytest.fixture
def table(tmp_path):
    return lakebed.create(str(tmp_path / "lake")).create_table("t", lakebed.Schema({"k": "int64"}))


def changed(table, times):
    for number in range(times):
        table.set(log_s=86_400 + number)


def subscriptions(*subscribers, said=None, store_s=0.0):
    limits = DeliveryLimits(list_s=0.0, store_s=store_s)
    return Subscriptions(lambda: subscribers, ([] if said is None else said).append, limits)


def test_each_version_is_delivered_once_and_in_order(table, tmp_path):
    changed(table, 20)
    copier = Copier(table, tmp_path)
    subscriptions(copier).finish()
    assert copier.versions == list(range(1, 22))
    changed(table, 2)
    subscriptions(Copier(table, tmp_path)).finish()
    assert copier.versions == list(range(1, 24))


def child(root, folder):
    """Deliver, and die before the first position is stored."""
    copier = Copier(lakebed.open(root).table("t"), folder)
    copier.dies = True
    subscriptions(copier, store_s=3600.0).finish()


def test_versions_come_again_after_a_kill_between_delivery_and_position(table, tmp_path):
    """At least once: none is left out, and the order of each try is that of the log."""
    changed(table, 4)
    program = "import sys; from tests.processes.service.test_subscriptions import child; child(*sys.argv[1:])"
    for _ in range(2):
        killed = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "lake"), str(tmp_path)], check=False, timeout=120
        )
        assert killed.returncode == DIES
    copier = Copier(table, tmp_path)
    assert copier.versions
    assert not copier.position.exists()
    subscriptions(copier).finish()
    versions = copier.versions
    assert versions[-5:] == [1, 2, 3, 4, 5]
    assert set(versions) == {1, 2, 3, 4, 5}
    assert len(versions) > 5


def test_how_far_a_subscriber_is_behind_is_shown(table, tmp_path):
    changed(table, 4)
    copier = Copier(table, tmp_path)
    copier.position.write_text('{"version": 2}')
    copier.errors = [Code.HOOK_FAILED("no")] * 100
    found = subscriptions(copier)
    found.look({})
    until(lambda: found.all()[0].failures)
    (shown,) = found.all()
    assert (shown.table, shown.version, shown.error) == (table.id, 2, "no")
    assert (shown.lag({table.id: 5}), shown.lag({table.id: 1}), shown.lag({})) == (3, 0, 0)
    found.stop()


def test_a_subscriber_that_has_every_version_is_left_alone(table, tmp_path):
    """A look at it takes no request, unlike that of a subscriber whose table is not known."""
    copier = Copier(table, tmp_path)
    found = subscriptions(copier)
    found.look({})
    until(lambda: found.all()[0].version == 1 and not found._states["copier"].busy)
    for _ in range(3):
        found.look({table.id: 1})
    assert copier.tries == 1
    found.look({})
    until(lambda: copier.tries == 2)
    found.stop()


def test_a_subscriber_that_fails_by_its_own_fault_is_parked_until_a_retry_is_asked_for(table, tmp_path):
    changed(table, 1)
    said = []
    copier = Copier(table, tmp_path, faults_max=3)
    copier.errors = [Code.HOOK_FAILED("no")] * 4
    found = subscriptions(copier, said=said)

    def looked(reached):
        def look():
            found.look({table.id: 2})
            return reached()

        until(look)

    looked(lambda: found.all() and found.all()[0].parked and not found._states["copier"].busy)
    assert copier.tries == 3
    for _ in range(5):
        found.look({table.id: 2})
    assert (copier.tries, copier.versions) == (3, [])
    (shown,) = found.all()
    assert (shown.failures, shown.next_at, shown.lag({table.id: 2})) == (3, None, 2)
    assert [line.partition(":")[0] for line in said] == [
        "copier c does not take events, and is tried again",
        "copier c is parked after 3 failures",
    ]
    found.retry("copier")
    looked(lambda: found.all()[0].version == 2 and not found.all()[0].failures)
    assert copier.versions == [1, 2]
    assert said[2:] == ["copier c takes events again, after 4 failures"]
    found.stop()


def test_no_store_that_fails_parks_a_subscriber(table, tmp_path):
    copier = Copier(table, tmp_path, faults_max=2)
    copier.errors = [Code.STORE_UNAVAILABLE("gone", transient=True)] * 5
    found = subscriptions(copier)

    def delivered():
        found.look({table.id: 1})
        return found.all()[0].version == 1

    until(delivered)
    assert copier.tries == 6
    found.stop()


def test_a_view_is_as_far_behind_as_any_subscriber():
    """Its position is the version of its source, in its own log."""
    assert Subscription("view", "source", 3).lag({"source": 5}) == 2
