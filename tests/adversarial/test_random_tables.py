"""Random tables compared with a plain model through every interface that reads; a failure names its seed and steps.

For more seeds: ``python -m tests.adversarial.test_random_tables FIRST_SEED LAST_SEED``, as ``make soak`` does.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakebed.engine import predicate
from lakebed.files.parquet import file_writer
from lakebed.read.rows import merged_rows
from lakebed.read.rows.request import ReadRequest
from tests.adversarial.random_tables.history import READS, play, shrunk
from tests.adversarial.random_tables.readers import Reader, Ways, export, scan, ways
from tests.variants import Planted, planted

STEPS, SOAKED_STEPS = range(10), range(16)
SEEDS = (8, 11, 17, 19, 23)
"""Seeds with every merge mode, way to read and reader, in tables of few files: a table with a file per row takes five
times as long."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ways(tmp_path_factory.mktemp("random")) as found:
        yield found


@pytest.mark.parametrize("seed", SEEDS)
def test_every_reader_shows_the_rows_of_a_plain_model(opened: Ways, seed: int) -> None:
    play(opened, seed, STEPS)


_below = merged_rows.MergeSchemas.below


def below_with_predicate(self: Any, request: ReadRequest, files: Any) -> ReadRequest:
    """Evaluate the predicate below the merge, where it hides the rows that replace others."""
    below, where = _below(self, request, files), request.where
    names = below.names if where is None else tuple(dict.fromkeys((*below.names, *where.columns)))
    return replace(below, where=where, names=names)


PLANTED: dict[str, tuple[Any, str, Any, Reader, int, list[int]]] = {
    "a predicate is true of every row": (
        predicate, "is_true", lambda rows, _: pa.array([True] * rows.num_rows), scan, 3, [0],
    ),
    "the rows of a key after the first NaN go into a second file, which is not exported": (
        file_writer, "_bounds_floats", lambda layout, first: not file_writer._has_nan(layout.schema, first),
        export, 31, [0],
    ),
    "a row that a newer one replaces is shown, as the newer one is left out before the merge": (
        merged_rows.MergeSchemas, "below", below_with_predicate, scan, 73, [0, 1],
    ),
}  # fmt: skip
"""Planted bugs: a function, its replacement, and a reader, a seed and steps that show it. If the random choices change,
others do.
"""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(opened: Ways, bug: str) -> None:
    module, name, wrong, reader, seed, steps = PLANTED[bug]
    play(opened, seed, steps, [reader])
    with planted(lambda: [Planted(module, name, wrong)]), pytest.raises(AssertionError):
        play(opened, seed, steps, [reader])


def failure(opened: Ways, seed: int, steps: Sequence[int]) -> BaseException | None:
    """Return the failure of a history, if any."""
    try:
        play(opened, seed, steps)
    except Exception as error:  # noqa: BLE001 - it is printed with its history
        return error
    return None


def soak(first: int, last: int) -> int:
    """Play the histories of some seeds; print each kind of failure with the fewest steps, and return their number."""
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ways(Path(folder)) as opened:
        for seed in range(first, last):
            error = failure(opened, seed, SOAKED_STEPS)
            if error is None:
                continue
            kind = f"{type(error).__name__}: {str(error)[:40]} {error.__notes__[:-1][-1:]}"
            seen[kind] += 1
            if seen[kind] == 1:
                steps = shrunk(lambda some, seed=seed: failure(opened, seed, some) is not None, SOAKED_STEPS)
                error = failure(opened, seed, steps) or error
                print("".join(traceback.format_exception(error)[-6:]), flush=True)
    print(f"{last - first} histories, {READS.total():,} reads, failures: {dict(seen)}")
    return seen.total()


if __name__ == "__main__":
    sys.exit(1 if soak(*map(int, sys.argv[1:])) else 0)
