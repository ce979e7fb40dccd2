"""What the engine raises, as errors of Lakebed: the one place that reads the engine's messages about statements. Pure.

What :func:`lakebed.model.foreign_errors.told` catches becomes the error that a
caller can act on: a statement to be changed, a limit to be raised, a fault to be reported.
"""

from __future__ import annotations

from lakebed.errors import Code, Error
from lakebed.model.foreign_errors import is_panic

_ONLY_READS = ("DDL not supported", "DML not supported", "Statement not supported")
_OF_FILES = ("Parquet error", "Object Store error", "IO error", "ObjectStore", "External error")
_TEXT_MAX = 500


def refused(error: BaseException) -> Error:
    """The error for a statement that the engine does not plan."""
    text = said(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in _ONLY_READS):
        return Code.SQL_READ_ONLY(f"SQL here only reads: {text}. Tables are changed by write, remove, alter and set")
    return Code.SQL_INVALID(f"not a query that can be run: {text}")


def failed(error: BaseException) -> Error:
    """The error for a statement that fails while it runs."""
    text = said(error)
    if (found := _known(error, text)) is not None:
        return found
    if any(mark in text for mark in ("Parquet error", "Object Store error", "IO error")):
        return Code.TEMPORARY_STORAGE_FAILED(
            f"the query could not read its files, or spill to disk, and no file is damaged: {text}"
        )
    return Code.EXPRESSION_FAILED(f"the query failed on a row: {text}")


def of_files(error: BaseException) -> bool:
    """Whether the engine may have failed for the sake of a file that it reads."""
    return _broke_off(error) or any(mark in str(error) for mark in _OF_FILES)


def _broke_off(error: BaseException) -> bool:
    # A panic of another thread of the engine's comes as a plain error.
    return is_panic(error) or "panic" in str(error)


def said(error: BaseException) -> str:
    """The engine's words, without its own names of things and its advice on its settings."""
    text = str(error).removeprefix("DataFusion error: ")
    lines = [line for line in text.splitlines() if "enable_ident_normalization" not in line]
    return " ".join(lines).replace("lakebed.tables.", "").rstrip(".")[:_TEXT_MAX]


def _known(error: BaseException, text: str) -> Error | None:
    if "Resources exhausted" in text:
        return Code.QUERY_MEMORY_EXCEEDED(
            f"the query needs more memory than memory_limit_bytes allows; raise it ({text})"
        )
    if "RecursionLimitExceeded" in text or isinstance(error, RecursionError):
        return Code.SQL_TOO_COMPLEX(
            "the statement nests brackets, CASE or NOT too deep; name parts of it by WITH, or split it"
        )
    if "Null byte" in text:
        return Code.SQL_INVALID("a column of the result has a NUL character in its name; give it another name with AS")
    if _broke_off(error):
        return Code.ENGINE_PANICKED(
            f"the query engine broke off, which is a fault of its own: {text}. Nothing was changed. Ask in another "
            "way, and report it"
        )
    return None
