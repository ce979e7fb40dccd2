"""What a value may be: the predicates that the public methods and the codecs share, and the errors of the former.

A value that enters a log is checked twice by the same predicates: where a caller gives it (a UsageError that names the
argument), and where a document is written or read (:mod:`lakebed.state.fields`). Python takes ``True`` for 1 and JSON
has no types of its own, so a check is of the type as well as of the range. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from lakebed.errors import Code

INT64_MAX = 2**63 - 1
"""Every number in a log fits this: readers keep them in columns of int64."""

REQUEST_KEY_CHARACTERS_MAX = 1_024
"""The state keeps every request key for ``log_s``."""

ID = re.compile(r"[0-9a-z][0-9a-z-]{0,63}", re.ASCII)
"""Ids are parts of object names. A reader accepts shorter ones than writers make."""

TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}", re.ASCII)
TAG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)

_SHOWN_CHARACTERS = 80


def is_text(value: Any) -> TypeGuard[str]:
    """A text that UTF-8 can hold: half of a surrogate pair it cannot."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def is_id(value: Any) -> TypeGuard[str]:
    """An id as it stands in object names."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


def are_texts(values: Any) -> bool:
    """A list or tuple of texts."""
    return isinstance(values, list | tuple) and all(map(is_text, values))


def are_names(values: Any) -> bool:
    """A mapping of texts to texts."""
    return isinstance(values, Mapping) and are_texts([*values, *values.values()])


def is_whole(value: Any, least: int = 0, most: int = INT64_MAX) -> TypeGuard[int]:
    """A whole number of that range; a boolean is none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def shown(value: Any) -> str:
    """The value as an error message shows it, whatever it is: short, and on one line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything, and it is the value that is at fault
        text = f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def check_text(name: str, value: Any) -> None:
    """Raises UsageError for an argument that is no text, or one that UTF-8 cannot hold."""
    if not is_text(value):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a text (UTF-8), not {type(value).__name__}")


def check_flag(name: str, value: Any) -> None:
    """Raises UsageError for an argument that is neither True nor False."""
    if not isinstance(value, bool):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be True or False")


def check_whole_number(name: str, value: Any) -> None:
    """Raises UsageError for an argument that is neither None nor a whole number from 0 on (int64)."""
    if value is not None and not is_whole(value):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a whole number, 0 or more")


def check_seconds(name: str, value: Any) -> None:
    """Raises UsageError for an argument that is neither None nor a number of seconds from 0 on; it may be infinite."""
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value) or value < 0:
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a number of seconds, 0 or more")


def check_request_key(name: str, value: Any) -> None:
    """Raises UsageError for an argument that is no request key: a text of 1 to 1,024 characters.

    An empty text is mostly a variable that was not set: two intentions would pass for one.
    """
    if not is_text(value) or not 1 <= len(value) <= REQUEST_KEY_CHARACTERS_MAX:
        raise Code.ARGUMENT_INVALID(
            f"{name} = {shown(value)}: must be a text of 1 to {REQUEST_KEY_CHARACTERS_MAX:,} characters (UTF-8)"
        )
