"""Random tables at every version: the rows of the files, without the hidden ones, are the rows that Lakebed shows."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import Code, NotRetainedError, RejectedError
from lakebed.model.files import data_name
from lakebed.upkeep.publish.hidden_rows import LiveFiles, live_files
from tests.adversarial.random_tables.history import History
from tests.adversarial.random_tables.readers import Ways, ways

STEPS = range(20)
SEEDS = (3, 5, 7, 12, 21)
FOUND: Counter[str] = Counter()
"""How many versions were compared, and refused."""


class Followed:
    """What is published of one table: it is found from the version before, and anew."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.known: LiveFiles | None = None
        self.version = 0

    def follow(self) -> None:
        """Compare all versions since the last."""
        table = self.history.table
        for version in range(self.version + 1, table.version + 1):
            try:
                rows = table.at(version=version).scan().read_all()
                self.compare(version, rows)
            except NotRetainedError:
                self.known = None
            except BaseException as error:
                error.add_note(f"version {version}")
                raise
        self.version = table.version

    def compare(self, version: int, rows: pa.Table) -> None:
        table, head = self.history.table, self.history.table.log.at(version)
        try:
            anew = live_files(table, head)
        except RejectedError:
            if self.known is not None:
                with pytest.raises(RejectedError) as caught:
                    live_files(table, head, self.known)
                assert caught.value.code is Code.ROWS_NOT_MERGED
            FOUND[f"{self.history.model.mode} refused"] += 1
            return
        FOUND[self.history.model.mode] += 1
        assert same_rows(table, head.state, anew, rows)
        if self.known is not None:
            found = live_files(table, head, self.known)
            assert hidden_of(found) == hidden_of(anew)
            before, after = hidden_of(self.known), hidden_of(found)
            assert found.changed == {name for name in after if before.get(name) != after[name]}
            assert found.gone == before.keys() - after.keys()
            FOUND["followed"] += 1
            anew = found
        self.known = anew


def hidden_of(found: LiveFiles) -> dict[str, list[int]]:
    return {name: list(live.hidden) for name, live in found.files.items()}


def same_rows(table: Any, state: Any, found: LiveFiles, rows: pa.Table) -> bool:
    """Return whether the files have these rows and the hidden ones, read by PyArrow alone."""
    kept = [pa.Table.from_batches([], rows.schema)]
    for live in found.files.values():
        stored = pq.read_table(table.storage.folder / data_name(state.table, live.file))
        assert stored.num_rows == live.file.rows
        assert live.rows >= 0
        ids = {int(field.metadata[b"PARQUET:field_id"]): place for place, field in enumerate(stored.schema)}
        shown = np.setdiff1d(np.arange(stored.num_rows), np.array(list(live.hidden), np.int64))
        columns = []
        for field in state.created.fields:
            kind = rows.schema.field(field.name).type
            column = stored.column(ids[field.id]) if field.id in ids else pa.nulls(stored.num_rows, kind)
            columns.append(column.take(pa.array(shown)))
        kept.append((state.created.names, columns))
    return Counter(plain_rows(rows)) == sum((Counter(plain(names, columns)) for names, columns in kept[1:]), Counter())


def plain_rows(rows: pa.Table) -> Iterator[str]:
    return plain(rows.column_names, rows.columns)


def plain(names: Sequence[str], columns: Sequence[Any]) -> Iterator[str]:
    values = [map(text, column.to_pylist()) for column in columns]
    return map(repr, zip(*values, strict=True))


def text(value: Any) -> str:
    return repr(value)


def play(opened: Ways, seed: int, steps: Sequence[int] = STEPS) -> None:
    history = History(opened, seed)
    followed, step = Followed(history), None
    try:
        for step in steps:
            chance = Random(f"{seed} {step}")
            history.change(chance, ["write"] if step == 0 else ())
            with history.small():
                followed.follow()
    except BaseException as error:
        error.add_note(f"{history}, seed {seed}, step {step}")
        raise
    finally:
        opened.lake.drop_table(history.name)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ways(tmp_path_factory.mktemp("hidden")) as found:
        yield found


@pytest.mark.parametrize("seed", SEEDS)
def test_files_without_hidden_rows_have_the_rows_of_every_version(opened: Ways, seed: int) -> None:
    play(opened, seed)


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    first, last = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, ways(Path(folder)) as found:
        for seed in range(first, last):
            try:
                play(found, seed)
            except Exception:  # noqa: BLE001
                print("".join(traceback.format_exc()[-3500:]), flush=True)
                break
    print(dict(FOUND))
