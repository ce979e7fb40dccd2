"""A process that submits and ingests an inbox, and is killed at its n-th step: kill -9, by its own hand."""

from __future__ import annotations

import itertools
import os
import signal

import lakebed
from lakebed.testing.faults import CountingStorage
from lakebed.write import plan
from tests.tables.ingest.cases import ingested
from tests.tables.retention.cases import on

SYSTEM_CALLS = ("fsync", "link", "open", "rename", "replace", "unlink")
"""What a put to local disk is made of: it may end between any two of them."""


class Watched(CountingStorage):
    """A store each of whose calls is a step."""

    def __init__(self, inner, step):
        super().__init__(inner)
        self.step = step

    def _count(self, operation, name):
        self.step()


def ingest_until(step_of_death, url, inbox):
    """Submit all of the inbox and ingest it; the process does not survive the step of that number."""
    plan.JOB_FILES_MAX = 2
    steps = itertools.count(1)

    def step():
        if next(steps) == step_of_death:
            os.kill(os.getpid(), signal.SIGKILL)

    table = lakebed.open(url).table("t")
    table.state()
    for name in SYSTEM_CALLS:
        setattr(os, name, stepping(getattr(os, name), step))
    mine = on(table, Watched(table.storage, step))
    mine.submit(inbox)
    ingested(mine)


def stepping(call, step):
    """The call, as a step."""

    def stepped(*arguments, **named):
        step()
        return call(*arguments, **named)

    return stepped
