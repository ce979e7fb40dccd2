"""Where the tasks of a pipeline run: the launcher of what the caller gave.

Spark's executor lies above this folder, which needs no Spark, so it is found by the name of its module. An entry point
of the package would do the same, and would be missing where Lakebed is on the path without being installed, as on a
driver that got it by ``--py-files``. Another executor is given as its :class:`~lakebed.jobs.executor.Launcher`.
"""

from __future__ import annotations

import logging
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lakebed.errors import Code
from lakebed.jobs.executor import Launcher
from lakebed.jobs.this_thread import ThisThread
from lakebed.jobs.worker_pool import InProcess
from lakebed.model.checks import check_method, shown

SPARK = "lakebed.spark.spark_executor"

_LOG = logging.getLogger("lakebed.jobs")

_IN_PROCESS = re.compile(r"in-process(?:\[(\d{1,9})\])?")
_OF_SPARK = re.compile(r"yarn|local(-cluster)?(\[[^]]*\])?|[a-z][a-z0-9]*://.+")
"""Masters of Spark, also of a cluster manager that it has as a plug-in, and servers of Spark Connect."""


def launcher_of(given: Launcher | str | None, session: Any = None) -> Launcher:
    """Return the launcher of a Spark session, or else of a text: ``in-process``, ``in-process[workers]``,
    ``this-thread``, a Spark Connect server's ``sc://`` URL, or a master of Spark.

    None is Spark, or where PySpark is not installed worker processes, which is logged as a warning. Raises UsageError.
    """
    if session is not None:
        return _spark("Given", session)
    if given is None and find_spec("pyspark") is None:
        _LOG.warning("PySpark is not installed: tasks run in worker processes of this machine (launcher in-process)")
        return InProcess()
    if given is None:
        return _spark("launcher_of", None)
    if not isinstance(given, str):
        check_method("launcher", given, "executor", "launcher, or the text of one")
        return given
    if given == "this-thread":
        return ThisThread()
    if within := _IN_PROCESS.fullmatch(given):
        return InProcess(None if within[1] is None else int(within[1]))
    if _OF_SPARK.fullmatch(given) is None:
        raise Code.ARGUMENT_INVALID(
            f"launcher = {shown(given)}: give in-process, in-process[4], this-thread, a master of Spark such as "
            "local[*], yarn or spark://host:7077, or sc://host:15002 for Spark Connect"
        )
    return _spark("launcher_of", given)


def _spark(maker: str, argument: Any) -> Launcher:
    launcher: Launcher = getattr(import_module(SPARK), maker)(argument)
    return launcher
