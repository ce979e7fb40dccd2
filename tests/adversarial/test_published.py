"""Random tables, published after each change: the rows of each snapshot are those that Lakebed shows of its version."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from lakebed.errors import Code, NotRetainedError, RejectedError
from lakebed.model.published_types import unpublished
from lakebed.upkeep.publish import run
from tests.adversarial.random_tables.history import History
from tests.adversarial.random_tables.readers import Ways, ways
from tests.soaked import few

STEPS = range(16)
SEEDS = (14, 28, 40, 41)
FORMATS = ("iceberg", "iceberg-3")
FOUND: Counter[str] = Counter()
"""How many versions were compared, refused, and found expired."""


def plain_rows(rows: pa.Table) -> Counter[str]:
    values = [map(repr, rows.column(name).to_pylist()) for name in sorted(rows.column_names)]
    return Counter(map(repr, zip(*values, strict=True)))


def compare(table: Any) -> None:
    """Compare each snapshot of the published table with the version of Lakebed."""
    found = run.current(table)
    assert found is not None
    iceberg = StaticTable.from_metadata(found.metadata_location)
    for snapshot in iceberg.metadata.snapshots:
        version = int(snapshot.summary["lakebed.version"])
        try:
            expected = table.at(version=version).scan().read_all()
        except NotRetainedError:
            FOUND["expired"] += 1
            continue
        rows = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert plain_rows(rows) == plain_rows(expected), f"version {version}"
        FOUND["snapshots"] += 1
    expected = table.at(version=found.version).scan().read_all()
    assert plain_rows(iceberg.scan().to_arrow()) == plain_rows(expected), f"published version {found.version}"
    tags = {name: version for name, version in table.tags().items() if name in iceberg.metadata.refs}
    for name, version in tags.items():
        rows = iceberg.scan(snapshot_id=iceberg.metadata.refs[name].snapshot_id).to_arrow()
        assert plain_rows(rows) == plain_rows(table.at(version=version).scan().read_all()), f"tag {name}"
        FOUND["tags"] += 1


def play(opened: Ways, seed: int, steps: Sequence[int] = STEPS) -> None:
    history = History(opened, seed)
    table, step = history.table, None
    try:
        if unpublished(table.schema):
            FOUND["unpublished types"] += 1
            return
        table.set(publish=FORMATS[seed % 2])
        for step in steps:
            chance = Random(f"{seed} {step}")
            try:
                history.change(chance, ["write"] if step == 0 else ())
            except RejectedError as error:
                if error.code is not Code.SCHEMA_CHANGE_REJECTED or "published as Iceberg" not in error.message:
                    raise
                # A new field of a type that Iceberg lacks.
                FOUND["unpublished types"] += 1
                break
            if table.settings_in_force().publish == "none" or chance.random() < 0.1:
                table.set(publish=chance.choice(FORMATS))
            if chance.random() < 0.3:
                # Another process, which has to read what was published.
                run._known.clear()
            try:
                run.publish(table)
            except RejectedError as error:
                if error.code is not Code.ROWS_NOT_MERGED:
                    raise
                FOUND["refused"] += 1
                continue
            compare(table)
    except BaseException as error:
        error.add_note(f"{history}, seed {seed}, step {step}")
        raise
    finally:
        opened.lake.drop_table(history.name)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with ways(tmp_path_factory.mktemp("published")) as found:
        yield found


@pytest.mark.parametrize("seed", few(SEEDS, 2))
def test_each_snapshot_has_the_rows_of_its_version(opened: Ways, seed: int) -> None:
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
