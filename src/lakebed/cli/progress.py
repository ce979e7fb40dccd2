"""What a command prints to stderr beside errors: progress, and the log; and the pipeline of a long command.

stdout has the answer alone. Py4J is silenced, since it logs errors before it raises them, and an error about a missing
PySpark names the way of the command without Spark, if there is one. Errors: those of the pipeline.

The library logs by the loggers ``lakebed.…`` of :mod:`logging` and installs no handlers; this module does, by ``-v``,
``-vv``, ``--quiet`` and ``--log-format``. Work that the library measures (:mod:`lakebed.storage.telemetry`) is logged
when it ends, by a logger of its name such as ``lakebed.commit``: with ``-v`` commits, reads, checkpoints and
collections, with ``-vv`` each request to the store as well.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed import clock
from lakebed.errors import UsageError
from lakebed.jobs.progress_bar import ProgressBar
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed import Pipeline, Progress
    from lakebed.cli.invocation import Invocation
    from lakebed.storage.telemetry import Ended, Labels


def command_bar(what: str, *, in_bytes: bool = False) -> ProgressBar:
    """Return the progress bar of a command on stderr: a bar on a terminal, otherwise a line at intervals."""
    context = click.get_current_context(silent=True)
    return ProgressBar(what, in_bytes=in_bytes, quiet=context is not None and context.obj.quiet)


@contextlib.contextmanager
def open_pipeline(cli: Invocation, launcher: str | None = None) -> Iterator[Pipeline]:
    """The pipeline of the instance, with Spark where ``launcher`` says.

    Raises UsageError where PySpark is needed and not installed.
    """
    # Py4J logs errors before it raises them, and one Ctrl-C would become several tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_by_py4j)
    with _with_advice(), optional_imports():
        from lakebed import Pipeline

        with Pipeline(cli.instance(), launcher=launcher, progress=None) as pipeline:
            yield pipeline


@contextlib.contextmanager
def _with_advice() -> Iterator[None]:
    """Where PySpark is missing, the error also says how to do without it."""
    try:
        yield
    except UsageError as error:
        context = click.get_current_context(silent=True)
        if error.facts.get("module") != "pyspark" or context is None:
            raise
        if not any("--in-process" in param.opts for param in context.command.params):
            raise
        advice = "give --in-process, which needs no Spark"
        raise error.restated(f"{error.message}; or {advice}") from error.__cause__


def _not_by_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def report_line(report: Any) -> str:
    """Return a report as text, after the name of its table and the committed version, if any."""
    at = "" if report.version is None else f" at version {report.version}"
    return f"table {report.table}{at}: {report.summary}"


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr; yields the function that updates it."""
    with command_bar(what) as bar:
        yield lambda progress: progress.show(bar)


_STEPS = ("storage_request",)
"""Spans of which one command has many."""


def log_to_stderr(*, verbosity: int, quiet: bool, log_format: str) -> None:
    """Log to stderr: errors if ``quiet``, else warnings, with ``verbosity`` 1 what is done, with 2 each step."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(_JsonLines() if log_format == "json" else _TextLines())
    logger = logging.getLogger("lakebed")
    logger.handlers = [stream]
    logger.propagate = False
    logger.setLevel(level)
    if level < logging.WARNING and telemetry.sink is None:
        telemetry.install(_SpanLog())


class _TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.default_msec_format = "%s.%03d"


class _JsonLines(logging.Formatter):
    """JSON lines of ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, the facts and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        document: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        document["message"] = record.getMessage()
        document |= getattr(record, "facts", {})
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


class _SpanLog:
    """A sink of telemetry that logs each span at its end."""

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Do nothing: single values are for metrics."""

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:
        """Note the time; what is returned logs the span."""
        del nests
        logger = logging.getLogger(f"lakebed.{name}")
        level = logging.DEBUG if name in _STEPS else logging.INFO
        if not logger.isEnabledFor(level):
            return None
        began_s = clock.monotonic_s()

        def ended(error: BaseException | None) -> None:
            facts = {**labels, "seconds": round(clock.monotonic_s() - began_s, 6)}
            text = ", ".join(f"{key}={value}" for key, value in facts.items())
            said = text if error is None else f"{text}: {type(error).__name__}: {error}"
            logger.log(level, "%s", said, extra={"facts": facts})

        return ended
