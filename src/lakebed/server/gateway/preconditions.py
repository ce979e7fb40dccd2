"""Conditions and ranges of requests for objects. Pure.

Rules: of several ranges, of a unit other than bytes, and of what is no range, the whole object is sent, as RFC 9110
allows. Dates that are none are ignored, and a condition on an entity tag makes one on a date of the same kind
irrelevant.

Errors: S3Error. Source: RFC 9110, sections 13 and 14; GetObject in the API reference of Amazon S3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from lakebed.server.gateway.s3_errors import S3Error

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class Representation:
    """What conditions are about: an object's size, entity tag without quotes, and time."""

    size_bytes: int
    tag: str
    last_modified: datetime

    def headers(self) -> dict[str, str]:
        """Return the headers that every answer about the object has."""
        return {
            "ETag": f'"{self.tag}"',
            "Last-Modified": format_datetime(self.last_modified.astimezone(UTC), usegmt=True),
            "Accept-Ranges": "bytes",
        }


def is_unmodified(header: Callable[[str], str | None], representation: Representation) -> bool:
    """Return whether the client has the object already. Raises S3Error for a condition that does not hold."""
    match, since = header("if-match"), _date(header("if-unmodified-since"))
    modified = representation.last_modified.replace(microsecond=0)
    is_another = match is not None and not _matches(match, representation.tag)
    is_newer = match is None and since is not None and modified > since
    if is_another or is_newer:
        raise S3Error("PreconditionFailed", "a condition of the request does not hold: the object is another")
    none_match, after = header("if-none-match"), _date(header("if-modified-since"))
    if none_match is not None:
        return _matches(none_match, representation.tag)
    return after is not None and modified <= after


def asked_range(header: Callable[[str], str | None], representation: Representation) -> tuple[int, int] | None:
    """Return the asked bytes of the object as ``[begin, end)``; None: all.

    Raises S3Error for a range that has no byte of the object.
    """
    condition = header("if-range")
    if condition is not None and not _matches(condition, representation.tag):
        return None
    match = _RANGE.fullmatch(header("range") or "")
    if match is None:
        return None
    size = representation.size_bytes
    if match[3] is not None:
        begin, end = max(0, size - int(match[3])), size
    else:
        begin, end = int(match[1]), size if match[2] is None else min(int(match[2]) + 1, size)
        if match[2] is not None and int(match[2]) < begin:
            return None
    if begin >= end:
        raise S3Error(
            "InvalidRange", f"the object has {size} bytes, and none in this range", {"Content-Range": f"bytes */{size}"}
        )
    return begin, end


def _matches(condition: str, tag: str) -> bool:
    given = [one.strip().removeprefix("W/").strip('"') for one in condition.split(",")]
    return tag in given or "*" in given


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC) if text else None
    except (TypeError, ValueError, OverflowError):
        return None
