"""Where a pipeline's tasks run: on which Spark, driven by which process, or on this machine without Spark.

* :class:`Local`: this process is the driver, of a session on a master. Without a master it is the one that
  ``spark-submit`` started this process with, or else all cores of this machine.
* :class:`Remote`: the driver is a Spark Connect server; this process plans and commits, and needs no Java.
* :class:`InProcess`: no Spark and no Java; this process drives worker processes on this machine.
"""

from __future__ import annotations

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

    For what one machine can do in the time there is. A bulk import and :meth:`Pipeline.read` need Spark.
    """

    workers: int | None = None


IN_PROCESS = "in-process"

Launcher = Local | Remote | InProcess


def launcher_of(given: Launcher | str | None) -> Launcher:
    """A launcher from a text: ``in-process``, the URL of a Spark Connect server (``sc://…``), or else a master."""
    if isinstance(given, str) and given == IN_PROCESS:
        return InProcess()
    if given is None:
        return Local()
    if isinstance(given, Launcher):
        return given
    check_text("launcher", given)
    return Remote(given) if given.startswith("sc://") else Local(given)
