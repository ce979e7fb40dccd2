"""Documents: JSON as bytes and back, and what to raise for one that is not as it should be.

The one door for JSON that is read from a store or a user. Python's parser takes NaN, which the format does not have,
and ends on a deep document with a RecursionError, which no handler expects. Whatever reads facts out of a document does
so inside :func:`reading`, which turns the ways in which that fails into one DamagedError. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lakebed.errors import Code, UsageError

UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError)
"""What reading facts out of a document raises if it is another one than expected, or nested too deep."""


def dump(document: Any) -> bytes:
    """Compact JSON, UTF-8, keys in the order given."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def load(data: bytes | str) -> Any:
    """The document of these bytes, which are UTF-8. Raises ValueError if they are no JSON, or nested too deep."""
    text = data if isinstance(data, str) else data.decode()
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


@contextmanager
def reading(what: str, **facts: Any) -> Iterator[None]:
    """Turn a failure to make sense of a document inside the block into a DamagedError that says ``what`` it should be.

    Errors about damage or a newer format pass as they are.
    """
    try:
        yield
    except UNREADABLE as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
        raise Code.DOCUMENT_DAMAGED(f"{what} ({said[:300]})", **facts) from error
