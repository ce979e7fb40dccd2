"""Random tables at every version: the rows of the files, without the hidden ones, are the rows that Lakebed shows.

Hidden rows are found anew, and from those of the version before: both have to be the same. Files are read by PyArrow.

For more seeds: ``python -m tests.adversarial.test_hidden_rows FIRST_SEED LAST_SEED``.
"""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase
from msgspec import structs

from lakebed.errors import Code, NotRetainedError, RejectedError
from lakebed.model.files import data_name
from lakebed.table.table import Table
from lakebed.upkeep.publish import hidden_rows, superseded
from lakebed.upkeep.publish.hidden_rows import LiveFiles, live_files
from tests.adversarial.merging_interfaces import Visit
from tests.adversarial.merging_machine import MODES, MergingMachine
from tests.adversarial.random_tables.history import History
from tests.adversarial.random_tables.readers import Ways, ways
from tests.adversarial.test_merging_machine import run
from tests.soaked import chosen, few
from tests.variants import Planted, planted

STEPS = range(16)
SEEDS = (9, 33, 4, 21)
EXAMPLES = 4
FOUND: Counter[str] = Counter()
"""How many versions were compared, and refused."""


class Followed:
    """What is published of one table."""

    def __init__(self) -> None:
        self.known: LiveFiles | None = None
        self.version = 0

    def follow(self, table: Any) -> None:
        """Compare all versions since the last."""
        for version in range(self.version + 1, table.version + 1):
            try:
                self.compare(table, version)
            except NotRetainedError:
                self.known = None
            except BaseException as error:
                error.add_note(f"version {version}")
                raise
        self.version = table.version

    def compare(self, table: Any, version: int) -> None:
        head, rows = table.log.at(version), table.at(version=version).scan().read_all()
        mode = type(head.state.merge).__name__
        try:
            anew = live_files(table, head)
        except RejectedError:
            if self.known is not None:
                with pytest.raises(RejectedError) as caught:
                    live_files(table, head, self.known)
                assert caught.value.code is Code.ROWS_NOT_MERGED
            FOUND[f"{mode} refused"] += 1
            return
        FOUND[mode] += 1
        assert rows_of_files(table, head.state, anew) == Counter(texts(rows.column_names, rows.columns))
        if self.known is None:
            self.known = anew
            return
        found = live_files(table, head, self.known)
        before, after = positions(self.known), positions(found)
        assert after == positions(anew)
        assert found.changed == {name for name in after if before.get(name) != after[name]}
        assert found.gone == before.keys() - after.keys()
        FOUND["followed"] += 1
        self.known = found


def positions(found: LiveFiles) -> dict[str, list[int]]:
    return {name: list(live.hidden) for name, live in found.files.items()}


def rows_of_files(table: Any, state: Any, found: LiveFiles) -> Counter[str]:
    """Return the rows of the files that are not hidden, as texts."""
    counted: Counter[str] = Counter()
    for live in found.files.values():
        stored = pq.read_table(io.BytesIO(table.storage.get(data_name(state.table, live.file))))
        ids = {int(field.metadata[b"PARQUET:field_id"]): place for place, field in enumerate(stored.schema)}
        left = np.setdiff1d(np.arange(stored.num_rows), np.array(list(live.hidden), np.int64))
        assert len(left) == live.file.rows - len(live.hidden)
        columns = [
            stored.column(ids[field.id]).take(pa.array(left)) if field.id in ids else pa.nulls(len(left))
            for field in state.created.fields
        ]
        counted.update(texts(state.created.names, columns))
    return counted


def texts(names: Sequence[str], columns: Sequence[Any]) -> Iterator[str]:
    values = [map(repr, column.to_pylist()) for column in columns]
    return (str(dict(zip(names, row, strict=True))) for row in zip(*values, strict=True))


# -- tables of all types ----------------------------------------------------------------------------------------


def play(opened: Ways, seed: int, steps: Sequence[int] = STEPS) -> None:
    """Make the table of a seed, and compare all of its versions."""
    history, followed, step = History(opened, seed), Followed(), None
    try:
        for step in steps:
            chance = Random(f"{seed} {step}")
            history.change(chance, ["write"] if step == 0 else ())
            with history.small():
                followed.follow(history.table)
    except BaseException as error:
        error.add_note(f"{history}, seed {seed}, step {step}")
        raise
    finally:
        opened.lake.drop_table(history.name)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ways(tmp_path_factory.mktemp("hidden")) as found:
        yield found


@pytest.mark.parametrize("seed", few(SEEDS, 2))
def test_the_files_of_every_version_have_its_rows(opened: Ways, seed: int) -> None:
    play(opened, seed)


# -- deletes, partial rows, changes of the merge mode, by the machine of merged tables --------------------------------


def machine_of(mode: str) -> type[MergingMachine]:
    """Return a machine whose only interface is the comparison of all versions."""
    followed: dict[str, Followed] = {}

    def published(visit: Visit) -> None:
        if isinstance(visit.table, Table):
            # Keys are looked up in small tables too.
            reader = visit.table.reader
            reader.limits = structs.replace(reader.limits, merged_rows_a_key=0)
            followed.setdefault(visit.table.id, Followed()).follow(visit.table)

    class Machine(MergingMachine):
        modes = (mode,)
        interfaces = (published,)

    return Machine


@pytest.mark.parametrize("mode", chosen(MODES, "latest", "keep all"))
def test_merged_tables_have_the_rows_of_their_files(mode: str) -> None:
    run(machine_of(mode), EXAMPLES)


# -- planted bugs -----------------------------------------------------------------------------------------------


def _ties() -> Iterator[Planted]:
    """The first of equal rows is kept."""
    last = superseded._last
    yield Planted(superseded, "_last", lambda codes, order: last(codes, order[::-1]))


def _one_off() -> Iterator[Planted]:
    """A slice begins a row too late."""
    within = hidden_rows._Finder._rows_within

    def wrong(self: Any, *args: Any) -> range:
        rows = within(self, *args)
        return range(rows.start + (rows.start > 0), rows.stop)

    yield Planted(hidden_rows._Finder, "_rows_within", wrong)


def _deletes_shown() -> Iterator[Planted]:
    """Deletes are shown."""
    yield Planted(hidden_rows._Finder, "_hide_deletes", lambda *_: None)


@pytest.mark.parametrize(
    ("bug", "mode"),
    few(
        [
            (_ties, "latest"),
            (_one_off, "keep all"),
            (_deletes_shown, "latest"),
            (_ties, "latest by sort key"),
        ],
        3,
    ),
)
def test_a_planted_bug_is_found(bug: Any, mode: str) -> None:
    with planted(bug), pytest.raises(AssertionError):
        run(machine_of(mode), 60, phases=[Phase.generate], derandomize=True)


if __name__ == "__main__":
    failures = 0
    with tempfile.TemporaryDirectory() as folder, ways(Path(folder)) as found:
        for seed in range(*map(int, sys.argv[1:])):
            try:
                play(found, seed)
            except RejectedError as error:
                # A rewrite beside the compaction whose end it waits for.
                print(f"seed {seed}: {error}"[:200])
            except Exception:  # noqa: BLE001 - it is printed with its history
                failures += 1
                print("".join(traceback.format_exc()[-3_000:]), flush=True)
    print(dict(FOUND), f"failures: {failures}")
    sys.exit(failures)
