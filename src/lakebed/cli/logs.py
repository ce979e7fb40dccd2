"""Logging on stderr, by ``-v``, ``-vv``, ``--quiet`` and ``--log-format``.

The library logs by the loggers ``lakebed.…`` of :mod:`logging` and installs no handlers; this module does, for the
command line. Work that the library measures (:mod:`lakebed.storage.telemetry`) is logged when it ends, by a logger of
its name such as ``lakebed.commit``: with ``-v`` commits, reads, checkpoints and collections, with ``-vv`` each request
to the store as well.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from lakebed.storage.telemetry import Ended, Labels

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
