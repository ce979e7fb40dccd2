"""Keys, key ranges and moments as the JSON of requests. Pure.

JSON has fewer types than keys: bytes become hex digits; decimals, UUIDs, dates and times become text; so do NaN and
infinity. The service parses each by the type of its field, as it does the words of a command line.

Errors: BadKeyError for what no key can be, UsageError for a moment that names none. Source: docs/http.md.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lakebed.errors import Code
from lakebed.model.checks import is_whole, shown
from lakebed.model.key_type import Word
from lakebed.model.key_types import word_of
from lakebed.model.keys import KeyRange
from lakebed.model.state.time_travel import check_tag, check_time, given_moment


def key_document(key: Sequence[Any]) -> list[Word]:
    """Return the values of a key, or of its first fields."""
    return [_key_word(value) for value in key]


def by_document(by: Any) -> dict[str, Word] | None:
    """Return values by field."""
    if by is None:
        return None
    if not isinstance(by, Mapping) or not by:
        raise Code.ARGUMENT_INVALID(f"by = {shown(by)}: must be values by field, such as {{'tailnum': 'N14228'}}")
    return {name: _key_word(value) for name, value in by.items()}


def keys_document(keys: Any) -> list[list[Word]]:
    """Return many keys: tuples, or plain values if the key has one field."""
    if isinstance(keys, str | bytes) or not hasattr(keys, "__iter__"):
        raise Code.KEY_TYPE_MISMATCH(f"keys are a list of tuples, or Arrow data, not {shown(keys)}")
    return [key_document(key) if isinstance(key, tuple | list) else [_key_word(key)] for key in keys]


def _key_word(value: Any) -> Word:
    if hasattr(value, "item") and not isinstance(value, np.datetime64):
        # Another value of NumPy.
        value = value.item()
    if value is None:
        raise Code.KEY_NULL("a value of a key is null, which no key has")
    word = word_of(value)
    if word is None:
        raise Code.KEY_TYPE_MISMATCH(
            f"{shown(value)} is not a value of a key: those are numbers, text, bytes, UUIDs and times"
        )
    return word


def ranges_document(ranges: Sequence[KeyRange]) -> list[dict[str, Any]]:
    """Key ranges."""
    documents = []
    for one in ranges:
        if not isinstance(one, KeyRange):
            raise Code.ARGUMENT_INVALID(f"not a KeyRange: {shown(one)}; for the rows of a key use get")
        bounds = {"from": one.min, "to": one.max}
        document: dict[str, Any] = {name: key_document(key) for name, key in bounds.items() if key is not None}
        if one.max_inclusive:
            document["to_inclusive"] = True
        documents.append(document)
    return documents


def moment_text(moment: Any, version: int | None, time: dt.datetime | str | None, tag: str | None) -> str:
    """Return a version, a time or a tag as one text.

    Raises UsageError unless one of them is given, by its name or not.
    """
    return _moment_text(**given_moment(moment, version=version, time=time, tag=tag))


def _moment_text(version: Any = None, time: Any = None, tag: Any = None) -> str:
    if version is not None:
        if not is_whole(version):
            raise Code.ARGUMENT_INVALID(f"version = {shown(version)}: must be a whole number")
        return str(version)
    return check_time(time).isoformat() if time is not None else check_tag(tag)


def end_document(name: str, moment: Any) -> int | str:
    """Return an end of a change feed: a version, a time, or a text that names one of these or a tag.

    Raises UsageError.
    """
    if isinstance(moment, str) or is_whole(moment):
        return moment
    if not isinstance(moment, dt.datetime):
        raise Code.ARGUMENT_INVALID(f"{name} = {shown(moment)}: must be a version, a tag, or a time")
    return check_time(moment).isoformat()


def given(document: dict[str, Any]) -> dict[str, Any]:
    """Return the members that have a value."""
    return {name: value for name, value in document.items() if value is not None}
