"""New rows of groups from which rows were taken, against a model that keeps the rows of each group.

A group has rows (C), gains some (I) and loses some of both (D). The view has the aggregates of C, and gets those of I
and D. What it settles must be the aggregates of C + I - D; where these do not say them it may make a group again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakebed import Aggregate, First, KeepAll, Schema
from lakebed.upkeep.view_retraction import Settled, Unsettled, ViewRows, having, settled


def total(values: list[Any]) -> Any:
    # Python rounds sums of decimals to 28 digits.
    with localcontext(prec=60):
        return sum(values) if values else None


COLUMNS: dict[str, tuple[str, str, str, Callable[[list[Any]], Any]]] = {
    "c": ("int64", "sum", "*", len),
    "cn": ("int64", "sum", "n", len),
    "n": ("int64", "sum", "n", total),
    "u": ("uint64", "sum", "u", total),
    "m": ("decimal128(38, 2)", "sum", "m", total),
    "d": ("double", "sum", "d", total),
    "low": ("int64", "min", "n", lambda values: min(values, default=None)),
    "high": ("double", "max", "d", lambda values: max(values, default=None)),
    "every": ("bool", "all", "b", lambda values: all(values) if values else None),
    "one": ("bool", "any", "b", lambda values: any(values) if values else None),
    "bits": ("int64", "or", "p", lambda values: values[0] | values[-1] if values else None),
}
"""Type, function, the values of rows that it is of, and what it makes of those that are not null."""

VALUES: dict[str, list[Any]] = {
    "n": [None, -1, 0, 1, 2**61], "u": [None, 0, 1, 2**62], "d": [None, -0.5, 0.0, 0.25, 4.0], "b": [None, True, False],
    "m": [None, Decimal("-1.10"), Decimal("1.10"), Decimal("1e35")], "p": [None, 4],
}  # fmt: skip
Row = dict[str, Any]


def view_of(names: list[str]) -> ViewRows:
    schema = Schema({"g": "int64"}, values={name: COLUMNS[name][0] for name in names})
    mode = Aggregate({name: COLUMNS[name][1] for name in names})
    return ViewRows(schema, mode, frozenset({"c"} & {*names}), frozenset({"c", "cn"} & {*names}))


def grouped(view: ViewRows, groups: dict[int, list[Row]]) -> pa.Table:
    """Return the aggregates of groups that have rows."""
    made = []
    for group, rows in groups.items():
        made_of: Row = {"g": group}
        for name in view.mode.functions_by_field:
            _, _, of, function = COLUMNS[name]
            made_of[name] = function(
                [row if of == "*" else row[of] for row in rows if of == "*" or row[of] is not None]
            )
        made += [made_of] if rows else []
    return pa.Table.from_pylist(made, view.schema.arrow)


Settle = Callable[[ViewRows, pa.Table, pa.Table, pa.Table], Settled]


def wrong_groups(seed: int, settle: Settle = settled) -> list[str]:
    """Return what is wrong with groups of random rows; and assert that few are made again without need."""
    random = Random(seed)
    names = random.sample(sorted(COLUMNS), random.randrange(1, 5))
    view = view_of(names)
    before, came, went, left = ({group: [] for group in range(30)} for _ in range(4))
    for group in range(30):
        rows = [{of: random.choice(values) for of, values in VALUES.items()} for _ in range(random.randrange(1, 6))]
        cut = random.randrange(len(rows) + 1)
        gone = random.sample(range(len(rows)), random.randrange(1, len(rows) + 1))
        before[group], came[group] = rows[:cut], rows[cut:]
        went[group] = [rows[index] for index in gone]
        left[group] = [row for index, row in enumerate(rows) if index not in gone]
    try:
        found = settle(view, grouped(view, before), grouped(view, went), grouped(view, came))
    except (Unsettled, OverflowError):
        # A sum does not fit the view, or only one of what it had and got.
        return []
    again = {group for group in went if view.schema.codec.encode((group,)) in found.again.to_pylist()}
    known = {row["g"]: row for row in found.rows.to_pylist()}
    wanted = {row["g"]: row for row in grouped(view, left).to_pylist()}
    return [
        f"group {group}: {known.get(group)}, not {wanted.get(group)}, of {left[group]}"
        for group in set(went) - again
        if known.get(group) != wanted.get(group)
    ] + [f"group {group} is both known and made again" for group in again & set(known)]


@pytest.mark.parametrize("seed", range(150))
def test_what_is_settled_is_what_the_rows_that_are_left_make(seed: int) -> None:
    assert wrong_groups(seed) == []


def lost(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    return Settled(view.merged(pa.concat_tables([stored, added]).to_batches()), pa.array([], pa.binary()))


def twice(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    return settled(view, stored, view.merged([*taken.to_batches(), *taken.to_batches()]), added)


def not_vanishing(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    found = settled(view, stored, taken, added)
    have = pa.concat_arrays([found.again, view.keys(found.rows)])
    gone = [having(batch, view.keys(batch), have, among=False) for batch in taken.to_batches()]
    return replace(found, rows=pa.concat_tables([found.rows, view.table(gone)]))


def sums_of_nothing_are_0(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    return settled(replace(view, counts=view.counts | {"n", "u", "m"}), stored, taken, added)


def a_constant(view: ViewRows, stored: pa.Table, taken: pa.Table, added: pa.Table) -> Settled:
    return settled(replace(view, constants=frozenset({"low", "high", "d"})), stored, taken, added)


@pytest.mark.parametrize("bug", [lost, twice, not_vanishing, sums_of_nothing_are_0, a_constant])
def test_a_planted_bug_is_found(bug: Settle) -> None:
    assert any(wrong_groups(seed, bug) for seed in range(150))


def rows_of(view: ViewRows, *rows: tuple[Any, ...]) -> pa.Table:
    names = view.schema.arrow.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], view.schema.arrow)


@pytest.mark.parametrize(
    ("names", "stored", "taken", "added", "wanted"),
    [
        (["c", "n"], (9, 50), (1, 5), None, (8, 45)),
        (["c", "n"], (9, 50), (9, 50), None, "gone"),
        (["c", "n"], (9, 50), (2, 50), None, "again"),
        (["c", "n"], (9, 50), (2, 50), (2, 60), (9, 60)),
        (["c", "n"], (9, None), (1, None), None, (8, None)),
        (["c", "low", "high"], (9, 1, 8.0), (1, 2, 7.0), None, (8, 1, 8.0)),
        (["c", "low", "high"], (9, 1, 8.0), (1, 1, 7.0), None, "again"),
        (["c", "low", "high"], (9, 1, 8.0), (1, 1, 7.0), (1, 0, 3.0), (9, 0, 8.0)),
        (["c", "high"], (9, float("nan")), (1, float("nan")), None, "again"),
        (["c", "d"], (9, 1.0), (1, 0.5), None, "again"),
        (["c", "d"], (9, 1.0), (1, None), (2, 1.0), (10, 2.0)),
        (["n"], (50,), (5,), None, (45,)),
        (["n"], (50,), (50,), None, "again"),
        (["low"], (1,), (2,), None, (1,)),
        (["every", "c"], (True, 2), (True, 1), None, "again"),
        (["every", "c"], (False, 2), (True, 1), None, (False, 1)),
        (["one", "c"], (True, 2), (False, 1), None, (True, 1)),
        (["c"], None, (1,), (2,), (1,)),
        (["c"], (1,), (2,), None, "again"),
        (["u"], (2**64 - 1,), (2**63,), None, (2**63 - 1,)),
        (["n"], (-(2**63),), (2**62,), (2**62,), (-(2**63),)),
    ],
)
def test_groups_that_the_stored_row_settles(names: list[str], stored: Any, taken: Any, added: Any, wanted: Any) -> None:
    view = view_of(names)
    of = [rows_of(view, (7, *row)) if row else rows_of(view) for row in (stored, taken, added)]
    found = settled(view, *of)
    known = found.rows.to_pylist()
    if isinstance(wanted, tuple):
        assert known == [dict(zip(["g", *view.mode.functions_by_field], (7, *wanted), strict=True))]
    else:
        assert known == []
    assert len(found.again) == (wanted == "again")


def test_of_rows_that_are_all_kept_one_equal_row_goes_for_each() -> None:
    view = ViewRows(Schema({"g": "int64"}, values={"d": "double"}), KeepAll())
    stored = rows_of(view, (1, 0.5), (1, 0.5), (1, None), (1, float("nan")))
    found = settled(view, stored, rows_of(view, (1, 0.5), (1, 2.0)), rows_of(view, (1, 2.0), (1, 3.0)))
    assert str(found.rows.column("d").to_pylist()) == str([0.5, None, float("nan"), 3.0])
    with pytest.raises(Unsettled):
        settled(view, stored, rows_of(view, (1, 4.0)), rows_of(view))


def test_a_mode_that_keeps_one_row_makes_its_keys_again() -> None:
    view = ViewRows(Schema({"g": "int64"}, values={"d": "double"}), First())
    taken = view.taken(rows_of(view, (1, 0.5), (1, 2.0), (2, 1.0)).to_batches())
    found = settled(view, rows_of(view, (1, 0.5)), taken, rows_of(view, (1, 9.0)))
    assert (found.rows.num_rows, found.again.to_pylist()) == (0, view.keys(taken).to_pylist())
    assert len(found.again) == 2
