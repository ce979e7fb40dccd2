"""Finds statements in which DataFusion 55 would take one column for another of the same name.

Its physical optimizer moves filters down to the tables, and on the way finds their columns by name. Where a join, or
what is above it, has two columns of one name (``x.day`` and ``y.day``), a filter of one becomes a filter of the other,
and rows are lost or come in excess (its issues 25264 and 25296). The logical optimizer knows columns by their tables,
and has already moved down what may be. So nothing is lost but time if these filters stay where they are:

* Filters that a statement makes while it runs, from ORDER BY with LIMIT, the built side of a hash join, ``min`` and
  ``max``, each have an option.
* Conditions of the statement have none, but pass hash joins only: without these, the engine joins by sorting. A filter
  right above a join does not go by the places of its columns if the join is swapped, or has an expression as its key.

Rule: too many statements may be found, never too few.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from datafusion.common import DFSchema

if TYPE_CHECKING:
    from datafusion.plan import LogicalPlan

HASH_JOIN = "datafusion.optimizer.prefer_hash_join"
_WHILE_RUNNING = {
    "Sort": "datafusion.optimizer.enable_topk_dynamic_filter_pushdown",
    "Join": "datafusion.optimizer.enable_join_dynamic_filter_pushdown",
    "Aggregate": "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown",
}
"""The options for the filters that nodes make while they run."""


class _Condition(Enum):
    """What becomes of the columns of a condition that is moved down to a node."""

    NONE = 0
    KEPT = 1
    MISTAKEN = 2


def options_off(optimized: LogicalPlan, *, has_hidden: bool) -> tuple[str, ...]:
    """Return the options to switch off for the statement of an optimized plan.

    ``has_hidden`` says that the plan has subqueries inside expressions, which the bindings do not show.
    """
    if has_hidden and " Join: " in optimized.display_indent():
        return (HASH_JOIN, *_WHILE_RUNNING.values())
    return tuple(sorted(set(_mistaken(optimized))))


def _mistaken(plan: LogicalPlan) -> Iterator[str]:
    """Return the options of filters that may take one column for another."""
    waiting = [(plan, frozenset[str](), _Condition.NONE)]
    while waiting:
        node, made, condition = waiting.pop()
        variant = node.to_variant()
        kind = type(variant).__name__
        if kind == "Join" and "full" in str(variant.join_type()).lower():
            # No condition passes it.
            condition = _Condition.NONE
        if _has_same_names(variant):
            yield from made
            if condition is _Condition.KEPT:
                condition = _Condition.MISTAKEN
        below = node.inputs()
        if condition is _Condition.MISTAKEN and (kind == "Filter" or not below):
            yield HASH_JOIN
        if kind == "Filter":
            condition = _Condition.KEPT
        elif kind == "Aggregate" and condition is _Condition.KEPT and not _has_grouping_sets(variant):
            # The logical optimizer has moved down the conditions of groups, and no other passes.
            condition = _Condition.NONE
        made |= {_WHILE_RUNNING[kind]} if kind in _WHILE_RUNNING else frozenset()
        waiting += [(one, made, condition) for one in below]


def _has_grouping_sets(aggregate: Any) -> bool:
    """Return whether groups are of several sets of columns: only the physical optimizer moves conditions below them."""
    return any(one.variant_name() == "GroupingSet" for one in aggregate.group_by_exprs())


def _has_same_names(variant: Any) -> bool:
    """Return whether two columns of a node's output may have one name: what is before the last dot may be a table."""
    schema = variant.schema() if hasattr(variant, "schema") else None
    # DESCRIBE has a schema of another kind.
    names = [name.rpartition(".")[2] for name in schema.field_names()] if isinstance(schema, DFSchema) else []
    return len(set(names)) < len(names)
