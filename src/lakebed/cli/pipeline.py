"""The pipeline of a command: started when it is needed, stopped when the command ends, and quiet about itself."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.instance import Instance
    from lakebed.spark import Launcher, Pipeline


@contextlib.contextmanager
def open_pipeline(instance: Instance, launcher: Launcher | str | None) -> Iterator[Pipeline]:
    """The pipeline of an instance. Raises UsageError where PySpark is needed and not installed."""
    # The bridge to Spark logs what it is about to raise, and of one Ctrl-C makes several faults with tracebacks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_the_bridge)
    try:
        from lakebed.spark import Pipeline

        with Pipeline(instance, launcher=launcher) as pipeline:
            yield pipeline
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pandas"):
            raise
        raise UsageError(f"this needs {error.name}, which is not installed: pip install 'lakebed[spark]'") from error


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
