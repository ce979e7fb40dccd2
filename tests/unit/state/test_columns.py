"""Rows by key as columns: like a dictionary, whatever is rewritten, and no more rewritten than changed."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import DamagedError
from lakebed.files import CommittedFile
from lakebed.state import columns
from lakebed.state.columns import Columns, Part
from lakebed.state.image import FILES, REQUESTS
from lakebed.state.layers import Layers
from lakebed.state.table import Answer
from tests.unit.state.cases import new_file

KEYS = st.one_of(st.text(max_size=3), st.sampled_from(["", "a", "ab", "b\U0001f600", "é"]))
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.builds(Answer, st.integers(0, 99), st.integers(0, 9))))


def read_again(held):
    """Through Arrow's stored form: sliced buffers must not matter."""
    parts = []
    for part in held.parts:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, part.batch.schema) as writer:
            writer.write_batch(part.batch)
        parts.append(Part(held.form, pa.ipc.open_file(sink.getvalue()).get_batch(0)))
    return Columns(held.form, parts)


@given(st.lists(CHANGES, max_size=6), st.integers(1, 5))
def test_any_changes_in_any_order_give_what_a_dictionary_has(rounds, part_rows):
    held, model = Columns(REQUESTS), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PART_ROWS", part_rows)
        for changes in rounds:
            held = held.rewritten(changes)
            model = {k: v for k, v in {**model, **changes}.items() if v is not None}
            assert dict(held) == model == dict(read_again(held))
            assert list(held) == sorted(model)
            assert len(held) == len(model)
            assert all((key in held) == (key in model) for key in ["", "a", "ab", "zz", *changes])
            assert all(part.batch.num_rows < 2 * part_rows + 1 for part in held.parts)


def test_parts_that_no_change_touches_are_the_very_same(monkeypatch):
    monkeypatch.setattr(columns, "PART_ROWS", 10)
    held = Columns(REQUESTS).rewritten({f"{n:03d}": Answer(n, 0) for n in range(100)})
    assert len(held.parts) == 10

    changed = held.rewritten({"055": Answer(0, 0), "056": None})
    grown = changed.rewritten({"100": Answer(1, 0)})

    assert [a is b for a, b in zip(held.parts, changed.parts, strict=True)] == [True] * 5 + [False] + [True] * 4
    assert grown.parts[:10] == changed.parts
    assert len(grown.parts) == 11


def test_only_rows_with_a_value_in_a_column_are_looked_at():
    files = {f"f{n}": CommittedFile(new_file(f"f{n}", "ab").file, n, n, 1, dropped=n or None) for n in range(5)}
    layers = Layers(Columns(FILES).rewritten(files)).updated({"f9": files["f3"], "f1": files["f0"]}, ["f2"])

    assert sorted(c.dropped for c in layers.having("dropped")) == [3, 3, 4]


def test_what_is_less_goes_and_parts_that_lose_nothing_are_the_very_same(monkeypatch):
    monkeypatch.setattr(columns, "PART_ROWS", 10)
    held = Columns(REQUESTS).rewritten({f"{n:03d}": Answer(n, n) for n in range(40)})

    left = held.at_least("base_number", 15)

    assert dict(left) == {f"{n:03d}": Answer(n, n) for n in range(15, 40)} == dict(read_again(left))
    assert left.parts[1:] == held.parts[2:]


def test_what_is_no_part_is_damage():
    rows = Columns(REQUESTS).rewritten({"a": Answer(1, 0), "b": Answer(2, 0)}).parts[0].batch
    with pytest.raises(DamagedError):
        Part(FILES, rows)
    with pytest.raises(DamagedError):
        Part(REQUESTS, rows.slice(0, 0))
    with pytest.raises(DamagedError, match="overlap"):
        Columns(REQUESTS, [Part(REQUESTS, rows), Part(REQUESTS, rows)])
