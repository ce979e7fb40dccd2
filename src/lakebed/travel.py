"""Which log number a number, a time or a tag means, and whether the table can still be read there.

A time is a time of the store's clock. The version at a time is fixed once the clock has passed it: before that, an
entry may still come. So a time that the clock has not reached is not there yet.

Pure but for the stamps of a few entries, which the caller knows how to ask for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakebed.checks import TAG_NAME, check_request_key, check_text, check_whole_number, is_whole, shown
from lakebed.errors import NotFoundError, NotRetainedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.state.table import TableState

_NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)


def check_tag(name: Any) -> str:
    """The name, if a tag may have it; not one that reads as a number. Raises UsageError."""
    if not isinstance(name, str) or not TAG_NAME.fullmatch(name) or name.isdigit():
        raise UsageError(
            f"not a tag: {shown(name)}; use 1 to 128 of A-Z a-z 0-9 _ . and -, not beginning with . or -, "
            "and not digits alone",
            tag=name,
        )
    return name


def moment_in(text: str) -> dict[str, Any]:
    """What a text such as ``--at`` names, as the arguments of ``Table.at``: a number, a time or a tag."""
    if _NUMBER.fullmatch(text):
        return {"number": int(text)}
    # No tag has a colon, and every time of day has one.
    return {"time": text} if ":" in text else {"tag": text}


def check_time(time: Any) -> datetime:
    """The moment that is meant, aware. Raises UsageError for what is no time, or one without a time zone."""
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else time
        # Also for what has a time zone that does not tell its offset.
        offset = moment.utcoffset()
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"time = {shown(time)}: must be a datetime or ISO 8601, such as 2026-01-31T12:00:00Z"
        ) from error
    if not isinstance(moment, datetime) or offset is None:
        raise UsageError(f"time = {shown(time)}: say in which time zone, such as 2026-01-31T12:00:00Z")
    return moment


def locate(
    state: TableState,
    stamp_of: Callable[[int], datetime],
    *,
    number: int | None = None,
    time: datetime | str | None = None,
    tag: str | None = None,
) -> int:
    """The log number that is meant. ``stamp_of`` is asked for about log2(head) entries if it is a time.

    Raises UsageError unless exactly one is given and of its type, NotFoundError, NotRetainedError.
    """
    if sum(given is not None for given in (number, time, tag)) != 1:
        raise UsageError("give exactly one of number, time and tag")
    if tag is not None:
        return _tagged(state, tag)
    found = _at_time(state, stamp_of, time) if time is not None else number
    if not is_whole(found, -(2**63)):
        raise UsageError(f"number = {shown(number)}: must be a whole number")
    if not 1 <= found <= state.number:
        raise NotFoundError(f"there is no number {found}: the table has 1 to {state.number}", number=found)
    if not state.retains(found):
        raise NotRetainedError(
            f"number {found} cannot be read any more: files of it are deleted. Kept are the numbers from "
            f"{state.retained_from} to {state.number}{_and_tags(state)}; the setting history_s and tags keep more",
            number=found,
            retained_from=state.retained_from,
        )
    return found


def committed_at(state: TableState, name: str, request_key: str | None) -> int | None:
    """The number at which a request of that key was committed; None: it was not, or it has no key.

    ``name`` is what the caller calls the key. Raises UsageError for a value that cannot be one.
    """
    if request_key is None:
        return None
    check_request_key(name, request_key)
    return state.answered(request_key)


def based_on(state: TableState, request_key: str | None, base_number: int | None) -> int:
    """The base number of a request that is offered first in this state, or was in an older one.

    Raises UsageError for one that is no whole number, is not there yet, or that nobody can repeat.
    """
    check_whole_number("base_number", base_number)
    if base_number is None:
        return state.number
    if request_key is None:
        raise UsageError(
            f"base_number = {base_number} goes with a commit id or job id: without one nothing is repeated"
        )
    if base_number > state.number:
        raise UsageError(f"base_number = {base_number}: there are numbers up to {state.number}", number=base_number)
    return base_number


def _tagged(state: TableState, tag: str) -> int:
    check_text("tag", tag)
    if tag not in state.tags:
        names = ", ".join(sorted(state.tags)) or "none"
        raise NotFoundError(f"the table has no tag {tag!r}; its tags: {names}", tag=tag)
    return state.tags[tag]


def _at_time(state: TableState, stamp_of: Callable[[int], datetime], time: datetime | str) -> int:
    moment = check_time(time)
    # Entries are created one after another, so their stamps ascend with their numbers. Older ones may be trimmed.
    first = max(1, state.retained_from)
    found = bisect_left(range(first, state.number + 1), x=True, key=lambda number: stamp_of(number) > moment)
    if not found:
        text = f"is of {stamp_of(first).isoformat()}, after {moment.isoformat()}"
        if first == 1:
            raise NotFoundError(f"the table was created later: its first entry {text}")
        raise NotRetainedError(
            f"the oldest number that is kept, {first}, {text}; the setting history_s and tags keep more",
            retained_from=first,
        )
    return first - 1 + found


def _and_tags(state: TableState) -> str:
    tagged = sorted({number for number in state.tags.values() if number < state.retained_from})
    return f", and {', '.join(map(str, tagged[:5]))}{'…' if len(tagged) > 5 else ''} by tags" if tagged else ""
