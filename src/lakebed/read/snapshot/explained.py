"""Runs a read to its end, and returns its statistics. Core function: :func:`explained`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.checks import check_flag, check_whole_number
from lakebed.model.keys import KeyRange

if TYPE_CHECKING:
    from lakebed.read.rows.explain import Explanation
    from lakebed.read.snapshot.snapshot import Readable


def explained(  # noqa: PLR0913 - the options of a scan
    readable: Readable,
    selection: Sequence[Any],
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
    *,
    reverse: bool,
) -> Explanation:
    """As :meth:`lakebed.read.snapshot.snapshot.Readable.explain`."""
    from lakebed.files.parquet.read_cache import ReadStatistics
    from lakebed.read.rows.explain import Explanation

    seen = ReadStatistics()
    with seen.step("probe"):
        now = readable.snapshot()
    if now is readable:
        # A snapshot does not probe the log.
        seen.steps.clear()
    are_ranges = {isinstance(one, KeyRange) for one in selection}
    if len(are_ranges) > 1:
        raise Code.ARGUMENTS_CONFLICT("explain takes the values of one key, or KeyRange values, not both")
    check_whole_number("limit", limit)
    check_flag("reverse", reverse)
    with seen.step("plan"):
        ranges = [now.point(selection)] if are_ranges == {False} else now.encoded(selection)
        planned, predicate = now.planned(ranges, where)
    names = now.schema.project(columns)
    for _ in now.reader.scan(planned, names, limit, where=predicate, reverse=reverse, statistics=seen):
        pass
    return Explanation.of(now.version, planned, seen)
