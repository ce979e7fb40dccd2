"""SQL functions of Lakebed that the engine does not have: reading and merging sketches.

``hll_estimate(sketch)`` and ``quantile(sketch, rank)`` read the binary columns of the aggregate functions ``hll`` and
``quantiles``; ``hll_union(sketch)`` and ``quantiles_union(sketch)`` are aggregates: one sketch of a group's.

Errors: those of :mod:`lakebed.sketches`, which the engine passes on as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion import Accumulator, udaf, udf

from lakebed import sketches

if TYPE_CHECKING:
    from datafusion import SessionContext


def register(context: SessionContext) -> None:
    """Make the functions known to statements of a session."""
    binary, double = pa.binary(), pa.float64()
    context.register_udf(udf(sketches.hll_estimate, [binary], double, "immutable", "hll_estimate"))
    context.register_udf(udf(_quantiles, [binary, double], double, "immutable", "quantile"))
    for name, union in (("hll_union", sketches.hll_union), ("quantiles_union", sketches.quantiles_union)):
        context.register_udaf(udaf(partial(_Union, union), binary, binary, [binary], "immutable", name))


def _quantiles(column: pa.Array, ranks: pa.Array) -> pa.Array:
    """Return the quantile of each sketch at the rank of its row; null for a rank that is null."""
    found: list[float | None] = [None] * len(column)
    by_rank: dict[float, list[int]] = {}
    for position, rank in enumerate(ranks.to_pylist()):
        if rank is not None:
            by_rank.setdefault(rank, []).append(position)
    for rank, positions in by_rank.items():
        values = sketches.quantile(column.take(pa.array(positions)), rank).to_pylist()
        for position, value in zip(positions, values, strict=True):
            found[position] = value
    return pa.array(found, pa.float64())


class _Union(Accumulator):
    """The union of sketches, of which the engine makes one for each group; null of nothing but nulls."""

    def __init__(self, union: Callable[[Sequence[bytes]], bytes]) -> None:
        self._union = union
        self._held: bytes | None = None

    def update(self, *values: pa.Array) -> None:
        found = [value for value in (self._held, *values[0].to_pylist()) if value is not None]
        self._held = self._union(found) if found else None

    def merge(self, states: list[pa.Array]) -> None:
        self.update(*states)

    def state(self) -> list[pa.Scalar]:
        return [self.evaluate()]

    def evaluate(self) -> pa.Scalar:
        return pa.scalar(self._held, pa.binary())
