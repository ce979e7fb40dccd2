"""Translates exceptions of other libraries into errors of Lakebed, and finds what installed packages declare.

Engines raise plain exceptions, Arrow's own, and panics, which are not derived from Exception. A stream of rows raises
the exceptions of its producer. A missing module raises at its import. Code that calls another library wraps the call in
:func:`translate_errors`, and an optional import in :func:`optional_imports`. Pure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from lakebed.errors import Code, Error

PASSED = (Error, StopIteration, MemoryError)
"""Exceptions that are not errors of the library: raised unchanged."""

EXTRAS = {
    "anyio": "serve",
    "boto3": "aws",
    "botocore": "aws",
    "confluent_kafka": "kafka",
    "datasketches": "sketches",
    "deltalake": "migrate",
    "duckdb": "duckdb",
    "fastavro": "kafka",
    "google": "flight",
    "grpc": "connect",
    "jinja2": "serve",
    "joserfc": "serve",
    "litestar": "serve",
    "pandas": "spark",
    "opentelemetry": "otel",
    "polars": "polars",
    "prometheus_client": "serve",
    "prompt_toolkit": "shell",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyiceberg": "iceberg",
    "pyroaring": "iceberg",
    "pyspark": "spark",
    "sqlalchemy": "postgres",
    "urllib3": "client",
    "uvicorn": "serve",
    "yaml": "shell",
}
"""The extra of Lakebed that installs a module."""

_DISTRIBUTIONS = {"google": "protobuf", "grpc": "grpcio", "opentelemetry": "the SDK of OpenTelemetry"}
"""What is installed for a module of another name."""

_TEXT_CHARACTERS_MAX = 500

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences for terminals in the messages of some libraries."""


@contextmanager
def translate_errors(as_error: Callable[[BaseException], Error]) -> Iterator[None]:
    """Raise ``as_error(exception)`` for exceptions of a library inside the block; interrupts and exits pass.

    An exception that came of an interrupt inside the block is that interrupt: Python's own locks and folders raise some
    if it comes at the wrong moment.
    """
    handled = sys.exception()
    try:
        yield
    except PASSED:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if isinstance(error.__context__, KeyboardInterrupt) and error.__context__ is not handled:
            raise KeyboardInterrupt from error
        raise as_error(error) from error


def is_panic(error: BaseException) -> bool:
    """Return whether an engine written in Rust panicked, because of a bug or damaged data."""
    return type(error).__name__ == "PanicException"


def error_text(error: BaseException) -> str:
    """Return the message of an exception on one line; the name of its type if it has no message."""
    try:
        text = " ".join(_COLOURS.sub("", str(error)).split()).removeprefix("DataFusion error: ").rstrip(".")
    except Exception:  # noqa: BLE001 - foreign code makes the message, too
        text = ""
    return text[:_TEXT_CHARACTERS_MAX] or type(error).__name__


def installed_function(group: str, name: str, what: str, code: Code) -> Callable[..., Any] | None:
    """Return the function that an installed package declares as an entry point; None: none does.

    ``what`` it is, for messages. Raises an error of the code if several packages declare it, or it cannot be loaded.
    """
    from importlib.metadata import entry_points

    points = entry_points(group=group, name=name)
    values = sorted({point.value for point in points})
    if not values:
        return None
    if len(values) > 1:
        raise code(
            f"several installed packages have a {what} {name!r} ({', '.join(values)}); uninstall one of them", name=name
        )
    try:
        function: object = next(iter(points)).load()
    except Exception as error:
        raise code(
            f"the {what} {name!r} cannot be loaded from {values[0]}: {error_text(error)}; repair the package", name=name
        ) from error
    if not callable(function):
        raise code(f"the {what} {name!r} ({values[0]}) is {type(function).__name__}, not a function", name=name)
    return function


@contextmanager
def optional_imports() -> Iterator[None]:
    """Raise UsageError, with the extra to install, if an import inside the block lacks a module of :data:`EXTRAS`."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        raise package_missing(module) from error


def package_missing(module: str) -> Error:
    """Return the error for a module of :data:`EXTRAS` that is not installed."""
    extra = EXTRAS[module]
    # Spark needs an older pandas, so the extra ``spark`` selects its version. Frames need only pandas.
    alone = module == "pandas" and find_spec("pyspark") is None
    package = module if alone else f"'lakebed[{extra}]'"
    named = _DISTRIBUTIONS.get(module, module)
    return Code.PACKAGE_MISSING(
        f"this needs {named}, which is not installed: pip install {package}", module=module, extra=extra
    )
