"""Finds the version for a number, a time or a tag, and checks that it is retained.

Times are by the store's clock. The version at a time is final once the clock has passed that time: before then, another
entry may be committed. Pure, except that the caller passes a function that reads the last-modified times of a few
entries.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from lakebed.errors import Code
from lakebed.model.checks import TAG_NAME, check_request_key, check_text, check_whole_number, is_whole, shown
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.model.state.table_state import TableState

_TIME = "2026-01-31T12:00:00Z"
_NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def check_tag(name: Any) -> str:
    """Return the name if it is a valid tag; digits alone are not. Raises UsageError."""
    if not isinstance(name, str) or not TAG_NAME.fullmatch(name) or name.isdigit():
        raise Code.NAME_INVALID(
            f"not a tag: {shown(name)}; use 1 to 128 of A-Z a-z 0-9 _ . and -, not beginning with . or -, "
            "and not digits alone",
            tag=name,
        )
    return name


def moment_in(moment: Any) -> dict[str, Any]:
    """Return the argument of ``Table.at`` for a version, a time, or a text that gives a version, time or tag, as
    ``--at``.

    Raises UsageError for a value of another type.
    """
    if isinstance(moment, datetime):
        return {"time": moment}
    if is_whole(moment, -(2**63)):
        return {"version": moment}
    if not isinstance(moment, str):
        raise Code.ARGUMENT_INVALID(f"{shown(moment)} is no moment: give a version, a tag, or a time such as {_TIME}")
    if _NUMBER.fullmatch(moment):
        return {"version": int(moment)}
    # No tag has a colon; every time of day has one. A date may be a tag: only the table can tell (argument_of).
    return {"time": moment} if ":" in moment else {"tag": moment}


def given_moment(moment: Any, **named: Any) -> dict[str, Any]:
    """Return the one argument of ``Table.at`` given by name or as a moment. Raises UsageError for both, or none."""
    given = {name: value for name, value in named.items() if value is not None}
    given |= {} if moment is None else {"moment": moment}
    if len(given) != 1:
        raise Code.ARGUMENTS_CONFLICT(
            "give exactly one of version, time and tag, or one of them without its name, as in at(12) or at('audited')"
        )
    return given if moment is None else moment_in(moment)


def is_day(text: Any) -> TypeGuard[str]:
    """Return whether a text is a date, such as 2026-01-31, which as a time is its midnight in UTC."""
    if not isinstance(text, str) or not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def argument_of(state: TableState, moment: Any, **named: Any) -> dict[str, Any]:
    """Return the one argument of :func:`locate` given by name or as a moment. A text with a date means the tag of that
    name, if the table has it, and else the time.
    """
    given = given_moment(moment, **named)
    unnamed = given.get("tag") if moment is not None else None
    return {"time": unnamed} if is_day(unnamed) and unnamed not in state.tags else given


def check_time(time: Any) -> datetime:
    """Return the time as an aware datetime. Raises UsageError if it is not a time or has no time zone."""
    try:
        text = f"{time}T00:00:00Z" if is_day(time) else time
        moment = datetime.fromisoformat(text) if isinstance(text, str) else time
        # Also None for a time zone without an offset.
        offset = moment.utcoffset()
    except (ValueError, TypeError, AttributeError) as error:
        raise Code.ARGUMENT_INVALID(
            f"time = {shown(time)}: must be a datetime or ISO 8601, such as 2026-01-31T12:00:00Z"
        ) from error
    if not isinstance(moment, datetime) or offset is None:
        raise Code.ARGUMENT_INVALID(f"time = {shown(time)}: needs a time zone, such as 2026-01-31T12:00:00Z")
    return moment


def locate(
    state: TableState,
    last_modified_of: Callable[[int], datetime],
    *,
    version: int | None = None,
    time: datetime | str | None = None,
    tag: str | None = None,
) -> int:
    """Return the version for a version, time or tag. For a time, ``last_modified_of`` is called for about log2(head)
    entries.

    Raises UsageError unless exactly one argument is given, with a valid type; NotFoundError; NotRetainedError.
    """
    if sum(given is not None for given in (version, time, tag)) != 1:
        raise Code.ARGUMENTS_CONFLICT("give exactly one of version, time and tag")
    if tag is not None:
        return _tagged(state, tag)
    found = _at_time(state, last_modified_of, time) if time is not None else version
    if not is_whole(found, -(2**63)):
        raise Code.ARGUMENT_INVALID(f"version = {shown(version)}: must be a whole number")
    if not 1 <= found <= state.version:
        raise Code.VERSION_NOT_FOUND(
            f"version {found} does not exist: the table has versions 1 to {state.version}", version=found
        )
    if not state.retains(found):
        raise Code.VERSION_NOT_RETAINED(
            f"version {found} is no longer retained. Retained are versions {state.earliest_retained_version} to "
            f"{state.version}{_and_tags(state)}; keep more with tags or a larger history_s",
            version=found,
            earliest_retained_version=state.earliest_retained_version,
        )
    return found


def committed_at(state: TableState, name: str, request_key: str | None) -> int | None:
    """Return the version at which a request with that key was committed; None if it was not, or has no key.

    ``name`` is the name of the caller's argument. Raises UsageError for an invalid key.
    """
    if request_key is None:
        return None
    check_request_key(name, request_key)
    return state.answered(request_key)


def based_on(state: TableState, request_key: str | None, base_version: int | None) -> int:
    """Return the base version of a request: the given one of an earlier attempt, else the version of this state.

    Raises UsageError if it is not a whole number, is above the latest version, or is given without a request key.
    """
    check_whole_number("base_version", base_version)
    if base_version is None:
        return state.version
    if request_key is None:
        raise Code.ARGUMENT_INVALID(f"base_version = {base_version} needs a commit id or job id")
    if base_version > state.version:
        raise Code.ARGUMENT_INVALID(
            f"base_version = {base_version}: the latest version is {state.version}", version=base_version
        )
    return base_version


def _tagged(state: TableState, tag: str) -> int:
    check_text("tag", tag)
    if tag not in state.tags:
        names = ", ".join(sorted(state.tags)) or "none"
        text = f"the table has no tag {tag!r}; its tags: {names}"
        text += did_you_mean(tag, state.tags) or "; a time is written as 2026-01-31T12:00:00Z"
        raise Code.TAG_NOT_FOUND(text, tag=tag)
    return state.tags[tag]


def _at_time(state: TableState, last_modified_of: Callable[[int], datetime], time: datetime | str) -> int:
    moment = check_time(time)
    # Entries are created one after another, so their last-modified times ascend with their versions. Older entries may
    # be truncated.
    first = max(1, state.earliest_retained_version)
    found = bisect_left(range(first, state.version + 1), x=True, key=lambda version: last_modified_of(version) > moment)
    if not found:
        text = f"is of {last_modified_of(first).isoformat()}, after {moment.isoformat()}"
        if first == 1:
            raise Code.VERSION_NOT_FOUND(f"the table was created later: its first entry {text}")
        raise Code.VERSION_NOT_RETAINED(
            f"the earliest retained version, {first}, {text}; keep more with tags or a larger history_s",
            earliest_retained_version=first,
        )
    return first - 1 + found


def _and_tags(state: TableState) -> str:
    tagged = sorted({version for version in state.tags.values() if version < state.earliest_retained_version})
    return f", and {', '.join(map(str, tagged[:5]))}{'…' if len(tagged) > 5 else ''} by tags" if tagged else ""
