"""Where a pipeline's tasks run: on which Spark, driven by which process, or on this machine without Spark.

* :class:`Local`: this process is the driver, of a session on a master. Without a master it is the one that
  ``spark-submit`` started this process with, or else all cores of this machine.
* :class:`Remote`: the driver is a Spark Connect server; this process plans and commits, and needs no Java.
* :class:`Submit`: a command such as ``spark-submit`` starts a driver for each call that needs Spark, which may bring
  up a cluster for that one job and let it go. See :mod:`lakebed.spark.submission`.
* :class:`InProcess`: no Spark and no Java; this process drives worker processes on this machine.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from lakebed.errors import UsageError
from lakebed.model.checks import check_text

LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts a task: plain ``local[*]`` never tries one twice."""

PROGRAM = "{program}"
ARGUMENTS = "{arguments}"


@dataclass(frozen=True, slots=True)
class Local:
    """A session in this process on ``master``; None: where ``spark-submit`` says, or else on this machine."""

    master: str | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """A session on the Spark Connect server at ``url``, ``sc://host:port/;token=…``."""

    url: str


@dataclass(frozen=True, slots=True)
class Submit:
    """A driver for each call, started by ``command``: words, or one text that is parted as a shell does.

    The driver's program and its arguments take the place of the words ``{program}`` and ``{arguments}``, or stand at
    the end. The command must not end before the driver has.
    """

    command: tuple[str, ...] | str

    def words(self, program: str, arguments: tuple[str, ...]) -> list[str]:
        """The whole command line. Raises UsageError if there is no command."""
        given = shlex.split(self.command) if isinstance(self.command, str) else list(self.command)
        if not given:
            raise UsageError("no command to start a driver with; give one such as 'spark-submit --master yarn'")
        given += [PROGRAM] if PROGRAM not in given else []
        given += [ARGUMENTS] if ARGUMENTS not in given else []
        return [
            word
            for each in given
            for word in (arguments if each == ARGUMENTS else (program if each == PROGRAM else each,))
        ]


@dataclass(frozen=True, slots=True)
class InProcess:
    """No Spark: tasks run in at most ``workers`` processes of this machine, by default one a core.

    For what one machine can do in the time there is. A bulk import and :meth:`Pipeline.read` need Spark.
    """

    workers: int | None = None


IN_PROCESS = "in-process"

Launcher = Local | Remote | Submit | InProcess


def launcher_of(given: Launcher | str | None) -> Launcher:
    """A launcher from a text: ``in-process``, the URL of a Spark Connect server (``sc://…``), or else a master."""
    if given == IN_PROCESS:
        return InProcess()
    if given is None:
        return Local()
    if isinstance(given, Launcher):
        return given
    check_text("launcher", given)
    return Remote(given) if given.startswith("sc://") else Local(given)
