"""Encodes and decodes JSON documents, and raises the error for malformed ones.

All JSON that is read from a store or a user is parsed here or by a typed msgspec decoder. Code that reads fields of a
document does so inside :func:`reading`, which turns all its errors into one DamagedError. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from lakebed.errors import Code, UsageError

UNREADABLE = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError,
    msgspec.MsgspecError,
)  # fmt: skip
"""The errors of interpreting a malformed document."""


def dump(document: Any) -> bytes:
    """Compact JSON, UTF-8, keys in the order given. Raises ValueError for NaN, which msgspec would write as null."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def load(data: bytes | str) -> Any:
    """Parse bytes in UTF-8 as JSON. Raises ValueError if they are not JSON, or nested too deep."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


@contextmanager
def reading(what: str, **facts: Any) -> Iterator[None]:
    """Turn errors of interpreting a document in the block into a DamagedError whose message begins with ``what``.

    Errors about damage or a newer format pass unchanged.
    """
    try:
        yield
    except UNREADABLE as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        raise Code.DOCUMENT_DAMAGED(f"{what} ({said[:300]})", **facts) from error
