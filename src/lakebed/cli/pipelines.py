"""The pipeline of a command, and its progress bar."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.progress import ProgressBar
from lakebed.foreign import extras

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from lakebed.spark import Pipeline, Progress


@contextlib.contextmanager
def open_pipeline(arguments: argparse.Namespace) -> Iterator[Pipeline]:
    """Of the instance that is meant, with Spark where ``--master`` or ``--submit`` says, if the command has them.

    Raises UsageError where PySpark is needed and not installed.
    """
    # The bridge to Spark logs what it is about to raise, and of one Ctrl-C makes several faults with tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_the_bridge)
    with extras():
        from lakebed.spark import Pipeline

        with Pipeline(args.open_instance(arguments), launcher=args.launcher(arguments)) as pipeline:
            yield pipeline


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextlib.contextmanager
def bar(arguments: argparse.Namespace) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr, fed by what it yields."""
    command = arguments.run.__name__.removeprefix("_")
    with ProgressBar(f"{command} {arguments.table}") as bar:
        yield lambda progress: bar.update(progress.rows_done, progress.rows_total)
