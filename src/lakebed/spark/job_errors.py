"""Errors of Spark jobs as those of Lakebed: the error of a task with its class, Spark's own with its message.

:meth:`lakebed.spark.interrupt.Stop.job` surrounds every Spark job with :func:`spark_errors`. Core types:
:class:`TaskError`.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from msgspec import msgpack

from lakebed.errors import Code, decode_error, encode_error

_MARK = "lakebed-error:"


class TaskError(Exception):
    """Carries an error out of a task in the text of Spark's exception, the only part of it that arrives."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{_MARK}{msgpack.encode(encode_error(error)).hex()}:")


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into the error that a task raised, or into one with Spark's message."""
    try:
        yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        text = str(error)
        start = text.find(_MARK)
        if start >= 0:
            begin = start + len(_MARK)
            document = msgpack.decode(bytes.fromhex(text[begin : text.index(":", begin)]))
            raise decode_error(document) from None
        if missing := _MISSING.search(text):
            raise Code.PACKAGE_MISSING(
                f"the Python that runs Spark's tasks has no {missing[1]}: install lakebed and what it needs there, "
                "or send it along (docs/clusters.md)",
                module=missing[1],
            ) from error
        if _FULL.search(text):
            raise Code.TEMPORARY_STORAGE_FAILED(
                "Spark cannot write its temporary files: the disk is full. On the machine of the task, make room "
                "on the disk of SPARK_LOCAL_DIRS (by default of TMPDIR), or point it at a larger one",
                errno=errno.ENOSPC,
            ) from error
        raise Code.SPARK_FAILED(f"Spark failed: {spark_message(error)}") from error


def is_spark_error(error: BaseException) -> bool:
    """Return whether Spark raised it: PySpark has errors of its own, and passes on some of its bridge to Java."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


_FULL = re.compile("No space left on device|Disk quota exceeded")

_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


def spark_message(error: BaseException) -> str:
    """Return the named conditions in a text with several stack traces, the cause last."""
    text = str(error).strip()
    conditions = dict.fromkeys(re.findall(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*", text))
    return ("; ".join(conditions) or (text.splitlines() or [repr(error)])[0])[:1000]
