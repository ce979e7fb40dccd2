"""Splits: the parts of the rows of one version, for engines that read a table with many tasks or machines at once.

A split is an address, a version and a key range. It can be pickled: a task in another process opens the instance by
its URL, and keeps it open for the next one. Together the splits of a snapshot have each of its rows once, in key order.
They follow the partitions as far as Python has the values of the bounds: neighbours whose common bound it lacks are
one split, and a bound of nanoseconds is rounded, in both alike.

Core types: :class:`Split`. Errors: those of a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.model.keys import KeyRange
from lakebed.model.types import with_inner

if TYPE_CHECKING:
    from lakebed.read.snapshot.handles import TableHandle


@dataclass(frozen=True, slots=True)
class Split:
    """The rows of a snapshot with keys in a range: about ``rows`` of them, in files of ``size_bytes``."""

    snapshot: TableHandle[Any]
    keys: KeyRange
    rows: int
    size_bytes: int

    def scan(self, *, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """Return the rows as a stream of Arrow, in key order; ``columns`` and ``where`` are as for a scan."""
        return self.snapshot.scan(self.keys, columns=columns, where=where)


def splits_of(snapshot: TableHandle[Any]) -> list[Split]:
    """Return the splits of a snapshot."""
    partitions = snapshot.partitions()
    starts = [0]
    bounds: list[tuple[Any, ...] | None] = [None]
    for index, bound in enumerate(map(_bound_values, _representable(partitions["min"].combine_chunks()))):
        if bound is not None and index:
            starts.append(index)
            bounds.append(bound)
    rows, sizes = partitions["rows"].to_pylist(), partitions["bytes"].to_pylist()
    ends = zip(starts, bounds, [*starts[1:], len(rows)], [*bounds[1:], None], strict=True)
    return [Split(snapshot, KeyRange(low, high), sum(rows[i:j]), sum(sizes[i:j])) for i, low, j, high in ends]


def _representable(bounds: pa.Array) -> pa.Array:
    """Return the bounds with times in microseconds, the finest that Python has."""

    def microseconds(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return pa.timestamp("us", kind.tz)
        return pa.time64("us") if pa.types.is_time64(kind) else with_inner(kind, microseconds)

    return bounds.cast(microseconds(bounds.type), safe=False)


def _bound_values(bound: pa.StructScalar) -> tuple[Any, ...] | None:
    """Return the values of the first fields that the bound has; None if it has none, or Python lacks one."""
    try:
        found = bound.as_py()
    except (ValueError, OverflowError):
        return None
    return None if found is None else tuple(one for one in found.values() if one is not None)
