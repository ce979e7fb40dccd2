"""A long command: its progress on stderr, and the pipeline that carries it out.

stdout has the answer alone. Py4J is silenced, since it logs errors before it raises them, and an error about a missing
PySpark names the way of the command without Spark, if there is one. Errors: those of the pipeline.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.errors import UsageError
from lakebed.jobs.progress_bar import ProgressBar
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed import Pipeline, Progress
    from lakebed.cli.invocation import Invocation


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
        if any("--in-process" in param.opts for param in context.command.params):
            advice = "give --in-process, which needs no Spark"
        elif context.info_name == "import":
            advice = "add the files with `lakebed write`, which needs no Spark"
        else:
            raise
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
