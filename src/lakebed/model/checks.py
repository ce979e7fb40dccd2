"""Checks of argument values: predicates shared by public methods and codecs, and the errors of the methods. Pure.

A value that enters a log is checked twice with the same predicate: in the public method (a UsageError that names the
argument), and when a document is written or read (:mod:`lakebed.model.state.fields`). Predicates check the type as
well as the range, because Python accepts ``True`` for 1.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from lakebed.errors import Code

INT64_MAX = 2**63 - 1

STORED_MAX = 2**53 - 1
"""The limit of every number in a log: every parser of JSON reads it exactly, also one that keeps numbers as doubles."""

REQUEST_KEY_CHARACTERS_MAX = 1_024
"""Maximum length of a request key. The state keeps every request key for ``log_s``."""

ID = re.compile(r"[0-9a-z][0-9a-z-]{0,63}", re.ASCII)
"""The form of ids, which are parts of object names. Readers accept shorter ids than writers make."""

TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}", re.ASCII)
TAG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)

_SHOWN_CHARACTERS = 80


def is_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a string that UTF-8 can encode, so without a lone surrogate."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def is_id(value: Any) -> TypeGuard[str]:
    """Return whether a value is an id that is valid in object names."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


def are_texts(values: Any) -> bool:
    """Return whether a value is a list or tuple of strings that UTF-8 can encode."""
    return isinstance(values, list | tuple) and all(map(is_text, values))


def are_names(values: Any) -> bool:
    """Return whether a value is a mapping of strings to strings that UTF-8 can encode."""
    return isinstance(values, Mapping) and are_texts([*values, *values.values()])


def repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def near_names(given: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the given names that differ only by case from a known name that is not given, with that name."""
    given, known = dict.fromkeys(given), dict.fromkeys(known)
    missing = {name.casefold(): name for name in known if name not in given}
    return {name: missing[name.casefold()] for name in given if name not in known and name.casefold() in missing}


def is_whole(value: Any, least: int = 0, most: int = INT64_MAX) -> TypeGuard[int]:
    """Return whether a value is an int in ``[least, most]``, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def shown(value: Any) -> str:
    """Format a value of any type for an error message: short, and on one line."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything, and it is the value that is at fault
        text = f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def check_text(name: str, value: Any) -> None:
    """Raise UsageError unless the argument is a string that UTF-8 can encode."""
    if not is_text(value):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a text (UTF-8), not {type(value).__name__}")


def tuple_of(name: str, value: Any) -> tuple[Any, ...]:
    """Return the items of an argument that is a list or a tuple. Raises UsageError for another type."""
    if not isinstance(value, list | tuple):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a list, not {type(value).__name__}")
    return tuple(value)


def check_method(name: str, value: Any, method: str, kind: str) -> None:
    """Raise UsageError unless the argument has the method that objects of its kind have."""
    if not hasattr(value, method):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a {kind}")


def check_flag(name: str, value: Any) -> None:
    """Raise UsageError unless the argument is True or False."""
    if not isinstance(value, bool):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be True or False")


def check_whole_number(name: str, value: Any) -> None:
    """Raise UsageError unless the argument is None or an int from 0 to 2**63 - 1."""
    if value is not None and not is_whole(value):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a whole number, 0 or more")


def check_sample(rows: Any, seed: Any) -> None:
    """Raise UsageError unless the arguments are a number of rows, and a seed for the sample or None."""
    if not is_whole(rows) or not (seed is None or is_whole(seed, -INT64_MAX)):
        raise Code.ARGUMENT_INVALID(
            f"rows = {shown(rows)}, seed = {shown(seed)}: must be whole numbers; rows 0 or more"
        )


def check_seconds(name: str, value: Any) -> None:
    """Raise UsageError unless the argument is None or a number of seconds of 0 or more, which may be infinite."""
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value) or value < 0:
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(value)}: must be a number of seconds, 0 or more")


def check_request_key(name: str, value: Any) -> None:
    """Raise UsageError unless the argument is a request key: a string of 1 to 1,024 characters.

    An empty string is mostly an unset variable, and two requests with it would count as one.
    """
    if not is_text(value) or not 1 <= len(value) <= REQUEST_KEY_CHARACTERS_MAX:
        raise Code.ARGUMENT_INVALID(
            f"{name} = {shown(value)}: must be a text of 1 to {REQUEST_KEY_CHARACTERS_MAX:,} characters (UTF-8)"
        )


def check_index_fields(on: Any, include: Any) -> None:
    """Raise UsageError unless ``on`` may be the fields of an index, and there are no others to ``include``."""
    if isinstance(on, str) or not on:
        raise Code.ARGUMENT_INVALID(f"on = {shown(on)}: must be a list of fields, such as ['tailnum']")
    if include is not None:
        raise Code.ARGUMENT_INVALID(
            f"include = {shown(include)}: an index has no other columns, since each row that it finds is read from its "
            "table in any case; leave it out, and name the columns when you read: get(by=…, columns=…)"
        )
