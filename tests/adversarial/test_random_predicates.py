"""Random predicates mean the same through every way that evaluates them: what an evaluator of exact arithmetic says.

For more: ``python -m tests.adversarial.test_random_predicates PREDICATES FIRST_SEED``, as ``make soak`` does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from lakebed.engine import complexity, predicate
from lakebed.engine.workarounds import opaque_casts, typed_literals
from lakebed.files.parquet import file_writer
from lakebed.model.time_keys import Timestamps
from lakebed.read.rows import page_bounds
from tests.adversarial.random_predicates.kinds import BY_NAME, KINDS, Kind
from tests.adversarial.random_predicates.predicates import Truth, columns_of
from tests.adversarial.random_predicates.predicates import predicate as random_predicate
from tests.adversarial.random_predicates.ways import EVERY, RARE, SOME, Opened, all_projected, opened, through
from tests.soaked import few
from tests.variants import Planted, planted

COUNTS = {"projected": 60, "every": 1, "some": 1, "rare": 1}
"""Predicates of a table by each group of ways: some 1,000 in all, each over 36 rows."""

STATEMENT_PREDICATES = 125


def predicates(chance: Random, at: Opened, key: Kind, count: int) -> list[tuple[str, list[Truth]]]:
    """Return that many random predicates with their truths for the rows."""
    found: list[tuple[str, list[Truth]]] = []
    while len(found) < count:
        one = random_predicate(chance, columns_of(chance, key), chance.choice((0, 0, 1, 2)))
        truths = one.truths(at.rows)
        if truths is not None:
            found.append((one.sql, truths))
    return found


def failures(seed: str, key: Kind, counts: dict[str, int] = COUNTS) -> Iterator[str]:
    """Return what is wrong with the answers about one random table."""
    chance = Random(f"{seed} {key.name}")
    at = opened(chance, key)
    for done in range(0, counts["projected"], STATEMENT_PREDICATES):
        count = min(STATEMENT_PREDICATES, counts["projected"] - done)
        yield from all_projected(at, predicates(chance, at, key, count))
    for group, ways in (("every", EVERY), ("some", SOME), ("rare", RARE)):
        for sql, truths in predicates(chance, at, key, counts[group]):
            yield from through(at, sql, truths, ways)


@pytest.mark.parametrize(
    "key", few([*KINDS[::4], *KINDS[1::4], *KINDS[2::4], *KINDS[3::4]], len(KINDS) // 2), ids=lambda kind: kind.name
)
def test_every_way_finds_the_rows_for_which_a_predicate_is_true(key: Kind) -> None:
    """Tables by every other kind of key are asked by projections alone: all have columns of all kinds."""
    ways = COUNTS if KINDS.index(key) % 2 else {**dict.fromkeys(COUNTS, 0), "projected": COUNTS["projected"]}
    assert list(failures("0", key, ways)) == []


PLANTED: dict[str, tuple[Any, str, Any, str, str]] = {
    "casts are in sight of the optimizer": (complexity, "with_opaque_casts", lambda text: text, "dec", "projected"),
    "parts of dates become ranges beyond the times": (opaque_casts, "_PARTS", frozenset[str](), "atns", "projected"),
    "lists are in sight of the optimizer": (complexity, "with_opaque_lists", lambda text: text, "i8", "projected"),
    "a time is cut to the unit of its column": (typed_literals, "_is_finer", lambda *_: False, "atms", "projected"),
    "constants have the engine's types": (predicate, "with_typed_literals", lambda text, _: text, "t", "every"),
    "a cast to a date keeps the order of all times": (
        Timestamps, "cast", lambda *_: lambda number: number, "tus", "every",
    ),
    "statistics that leave NaN out stay": (file_writer, "_is_bounded", lambda *_: True, "dec", "every"),
    "pages that have values are skipped": (page_bounds, "_meets", lambda bounds, _: bounds.nulls, "dec", "every"),
}  # fmt: skip
"""Planted bugs: a function or a value, its replacement, the kind of key of a table, and the ways that show it."""


FOUND_SOON = ("lists are in sight of the optimizer", "constants have the engine's types")
"""The others show in one of hundreds of predicates, and are found by tests of their own: of casts and their order,
of the units of times, of the bounds of pages and of what the writer says of NaN."""


@pytest.mark.parametrize("bug", few([*FOUND_SOON, *sorted(PLANTED.keys() - set(FOUND_SOON))], len(FOUND_SOON)))
def test_a_planted_bug_is_found(bug: str) -> None:
    module, name, wrong, key, ways = PLANTED[bug]
    try:
        with planted(lambda: [Planted(module, name, wrong)]):
            forget()
            counts = dict.fromkeys(COUNTS, 0) | {ways: 1000}
            assert next(failures("planted", BY_NAME[key], counts), None) is not None
    finally:
        forget()


def forget() -> None:
    """Forget the forms of predicates."""
    complexity._cached.cache_clear()
    predicate._predicate_or_reason.cache_clear()


def soak(count: int, first: int) -> int:
    """Check about that many predicates; print each kind of failure once, and return their number."""
    seen: Counter[str] = Counter()
    done, seed = 0, first
    while done < count:
        for key in KINDS:
            for failure in failures(str(seed), key, {"projected": 1125, "every": 100, "some": 20, "rare": 2}):
                kind = failure.partition(":")[0]
                seen[kind] += 1
                if seen[kind] <= 5:
                    print(f"seed {seed}, key {key.name}: {failure[:500]}", flush=True)
            done += 1247
        seed += 1
    print(f"{done:,} predicates over {len(KINDS) * (seed - first)} tables, failures: {dict(seen)}")
    return seen.total()


if __name__ == "__main__":
    sys.exit(1 if soak(*map(int, sys.argv[1:])) else 0)
