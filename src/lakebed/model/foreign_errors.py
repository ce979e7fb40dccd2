"""Errors of other libraries, told as errors of Lakebed: the one way, for the few places where their code is called.

An engine raises plain exceptions, Arrow's own, and panics, which are no Exception at all; a stream of rows raises
whatever its producer likes; a module that is not installed is missing at its import. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakebed.errors import Code, Error

PASSED = (Error, StopIteration, MemoryError)
"""Errors that are not the library's: raised as they are."""

EXTRAS = {
    "boto3": "dynamodb",
    "botocore": "dynamodb",
    "duckdb": "duckdb",
    "grpc": "connect",
    "pandas": "spark",
    "polars": "polars",
    "psycopg": "sql",
    "py4j": "spark",
    "pyspark": "spark",
    "sqlalchemy": "sql",
}
"""Which extra of Lakebed brings a module."""

_SAID_CHARACTERS = 500


@contextmanager
def told(as_error: Callable[[BaseException], Error]) -> Iterator[None]:
    """Raise what a library raises inside the block as ``as_error`` makes it; interrupts and exits pass."""
    try:
        yield
    except PASSED:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise as_error(error) from error


def is_panic(error: BaseException) -> bool:
    """Whether an engine written in Rust broke off: a fault of its own, or damage that it stumbled over."""
    return type(error).__name__ == "PanicException"


def said(error: BaseException) -> str:
    """The error's own words on one line; its type where it has none."""
    try:
        text = " ".join(str(error).split()).removeprefix("DataFusion error: ").rstrip(".")
    except Exception:  # noqa: BLE001 - the words are made by foreign code, too
        text = ""
    return text[:_SAID_CHARACTERS] or type(error).__name__


@contextmanager
def extras() -> Iterator[None]:
    """Say how to install what is missing, where a module that an extra brings is imported inside the block."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        extra = EXTRAS[module]
        raise Code.PACKAGE_MISSING(
            f"this needs {module}, which is not installed: pip install 'lakebed[{extra}]'", module=module, extra=extra
        ) from error
