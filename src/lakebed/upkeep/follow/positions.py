"""Positions in a source, which the commit ids of its changes carry.

A source has one or more streams, each with growing positions: the log sequence numbers of PostgreSQL, the offsets of a
partition of Kafka. A batch of changes is committed to a table with a commit id that names the source and, for each
stream, the position after the last change. So the positions up to which a table has the changes are part of its state,
and become visible together with the rows.

Core types: :data:`Positions`; :func:`commit_id` and :func:`applied`, its inverse. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Positions = Mapping[int, int]
"""The position after the last change of each stream, by the stream's number."""

_FORM = re.compile(r"follow (?P<source>\S+) (?P<positions>\d+@\d+(?:,\d+@\d+)*)", re.ASCII)


def commit_id(source: str, positions: Positions) -> str:
    """Return the commit id of changes of a source, an id without spaces, up to these positions."""
    return f"follow {source} {','.join(f'{stream}@{at}' for stream, at in sorted(positions.items()))}"


def applied(commit_ids: Iterable[str], source: str) -> dict[int, int]:
    """Return the positions up to which a table has the changes of a source, from all of its commit ids."""
    begin = f"follow {source} "
    found: dict[int, int] = {}
    for one in commit_ids:
        if one.startswith(begin) and (match := _FORM.fullmatch(one)) is not None:
            for text in match["positions"].split(","):
                stream, _, at = text.partition("@")
                found[int(stream)] = max(found.get(int(stream), 0), int(at))
    return found
