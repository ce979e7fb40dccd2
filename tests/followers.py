"""Followers that are killed, and followers that services run, for the tests of every source."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Sequence

import psutil

from lakebed.storage.contract import Storage
from lakebed.upkeep.follow.follow_record import read_record
from lakebed.upkeep.follow.positions import Positions
from lakebed.upkeep.follow.run import SourceFollower
from tests.waiting import until

SERVICE_OPTIONS = ("--followers", "--no-maintenance")
"""The options of a service that runs followers and nothing else."""


class EndedError(Exception):
    """The end of a follower."""


class Ending(SourceFollower):
    """A follower that ends after its first commit, before it could record and confirm it, as if killed."""

    opened = False

    def record(self, positions: Positions) -> None:
        if self.opened:
            raise EndedError
        self.opened = True
        super().record(positions)


def kill_at_random(words: Sequence[str], kills: int, least_s: float, most_s: float) -> None:
    """Start a follower and kill it after a random time, as often as is said; none may have failed before."""
    for _ in range(kills):
        killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(random.uniform(least_s, most_s))
        killed.kill()
        _, said = killed.communicate()
        assert "Error" not in said, said


def holder_of(storage: Storage, name: str) -> psutil.Process:
    """Return the process that follows, once the record of the follower names it."""

    def found() -> int:
        record = read_record(storage, name)
        pid = 0 if record is None or not record.holder else int(record.holder.split(":")[3])
        return pid if pid and psutil.pid_exists(pid) else 0

    return psutil.Process(until(found))
