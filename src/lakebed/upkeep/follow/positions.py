"""Positions in a source, which the commit ids of its changes carry.

A source has one or more streams, each with growing positions: the log sequence numbers of PostgreSQL, the offsets of a
partition of Kafka. A batch of changes is committed to a table with a commit id that names the source and, for each
stream, the position after the last change. So the positions up to which a table has the changes are part of its state,
and become visible together with the rows. When all rows of a table are replaced, its positions may go back: commit ids
of a greater *generation* count alone.

Core types: :data:`Positions`; :func:`commit_id` and :func:`applied`, its inverse. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Positions = Mapping[int, int]
"""The position after the last change of each stream, by the stream's number."""

GROUP = 2**32
"""The streams of one topic have numbers from a multiple of it on, which a commit id names once."""

_FORM = re.compile(r"(?P<positions>(?:\d+\.)?\d+@\d+(?:,(?:\d+\.)?\d+@\d+)*)", re.ASCII)


def commit_id(source: str, positions: Positions, generation: int = 0) -> str:
    """Return the commit id of changes of a source, an id without spaces and ``#``, up to these positions."""
    parts, last = [], 0
    for stream, at in sorted(positions.items()):
        group, number = divmod(stream, GROUP)
        parts.append(f"{number}@{at}" if group == last else f"{group}.{number}@{at}")
        last = group
    return f"follow {source}{f'#{generation}' if generation else ''} {','.join(parts)}"


def applied(commit_ids: Iterable[str], source: str) -> tuple[dict[int, int], int]:
    """Return the positions up to which a table has the changes of a source, from all of its commit ids, and their
    generation.
    """
    begin = re.compile(rf"follow {re.escape(source)}(?:#(\d+))? {_FORM.pattern}", re.ASCII)
    found: dict[int, int] = {}
    newest = 0
    for one in commit_ids:
        if not one.startswith("follow ") or (match := begin.fullmatch(one)) is None:
            continue
        generation = int(match[1] or 0)
        if generation > newest:
            found, newest = {}, generation
        if generation < newest:
            continue
        group = 0
        for text in match["positions"].split(","):
            stream, _, at = text.partition("@")
            named, _, number = stream.rpartition(".")
            group = int(named) * GROUP if named else group
            found[group + int(number)] = max(found.get(group + int(number), 0), int(at))
    return found, newest
