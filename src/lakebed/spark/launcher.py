"""Where a pipeline's tasks run: on which Spark, driven by which process, or on this machine without Spark.

* :class:`Local`: this process is the driver, of a session on a master. Without a master it is the one that
  ``spark-submit`` started this process with, or else all cores of this machine.
* :class:`Remote`: the driver is a Spark Connect server; this process plans and commits, and needs no Java.
* :class:`InProcess`: no Spark and no Java; this process drives worker processes on this machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakebed.model.checks import check_text

LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts a task: plain ``local[*]`` never tries one twice."""


@dataclass(frozen=True, slots=True)
class Local:
    """A session in this process on ``master``; None: where ``spark-submit`` says, or else on this machine."""

    master: str | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """A session on the Spark Connect server at ``url``, ``sc://host:port/;token=…``."""

    url: str


@dataclass(frozen=True, slots=True)
class InProcess:
    """No Spark: tasks run in at most ``workers`` processes of this machine, by default one a core.

    Each task may use its table's ``memory_limit_bytes`` and 300 MiB beside it. ``memory_bytes`` bounds what the tasks
    that run at once may use together, by default 80% of the memory of the machine or container: fewer run at once if
    that is less than ``workers`` of them need. A bulk import and :meth:`Pipeline.read` need Spark.
    """

    workers: int | None = None
    memory_bytes: int | None = None


Launcher = Local | Remote | InProcess

_IN_PROCESS = re.compile(r"in-process(?:\[(\d{1,9})\])?")


def launcher_of(given: Launcher | str | None) -> Launcher:
    """The launcher of a text: ``in-process``, ``in-process[workers]``, the ``sc://`` URL of a server, or a master."""
    if given is None:
        return Local()
    if isinstance(given, Launcher):
        return given
    check_text("launcher", given)
    if within := _IN_PROCESS.fullmatch(given):
        return InProcess(None if within[1] is None else int(within[1]))
    return Remote(given) if given.startswith("sc://") else Local(given)
