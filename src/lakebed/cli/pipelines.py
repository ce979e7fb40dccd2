"""The pipeline of a command, and its progress bar."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.cli.progress import ProgressBar
from lakebed.model.foreign_errors import optional_imports

if TYPE_CHECKING:
    from lakebed.cli.grammar import Invocation
    from lakebed.spark import Pipeline, Progress


@contextlib.contextmanager
def open_pipeline(cli: Invocation, launcher: str | None = None) -> Iterator[Pipeline]:
    """The pipeline of the instance, with Spark where ``launcher`` says.

    Raises UsageError where PySpark is needed and not installed.
    """
    # Py4J logs what it is about to raise, and one Ctrl-C becomes several tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_by_py4j)
    with optional_imports():
        from lakebed.spark import Pipeline

        with Pipeline(cli.instance(), launcher=launcher) as pipeline:
            yield pipeline


def _not_by_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr; yields the function that updates it."""
    with ProgressBar(what) as bar:
        yield lambda progress: bar.update(progress.rows_done, progress.rows_total)
