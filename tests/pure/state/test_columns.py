"""Rows by key as columns: like a dictionary, whatever is rewritten, and no more rewritten than changed."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import Code, DamagedError
from lakebed.model.files import CommittedFile
from lakebed.model.state.columnar_codecs import FILES, REQUESTS
from lakebed.model.state.columns import Columns, Segment
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.table_state import Answer

SMALL_BYTES = 220
KEYS = st.one_of(st.text(max_size=3), st.sampled_from(["", "a", "ab", "b\U0001f600", "é"]))
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.builds(Answer, st.integers(0, 99), st.integers(0, 9))))


def read_again(held):
    """Through Arrow's stored form: sliced buffers must not matter."""
    segments = []
    for batch in (segment.rows().batch for segment in held.segments):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        segments.append(Segment.of(held.codec, pa.ipc.open_file(sink.getvalue()).get_batch(0)))
    return Columns(held.codec, segments)


@given(st.lists(CHANGES, max_size=6), st.integers(1, 80))
def test_any_changes_in_any_order_give_what_a_dictionary_has(rounds, segment_bytes):
    held, model = Columns(REQUESTS), {}
    for changes in rounds:
        held = held.rewritten(changes, segment_bytes)
        model = {k: v for k, v in {**model, **changes}.items() if v is not None}
        assert dict(held) == model == dict(read_again(held))
        assert list(held) == sorted(model)
        assert len(held) == len(model)
        assert all((key in held) == (key in model) for key in ["", "a", "ab", "zz", *changes])
        assert all(segment.count == 1 or segment.size_bytes < 3 * segment_bytes for segment in held.segments)


def test_segments_that_no_change_touches_are_the_very_same():
    held = Columns(REQUESTS).rewritten({f"{n:03d}": Answer(n, 0) for n in range(100)}, SMALL_BYTES)
    assert len(held.segments) == 10

    changed = held.rewritten({"055": Answer(0, 0), "056": None}, SMALL_BYTES)
    grown = changed.rewritten({"100": Answer(1, 0)}, SMALL_BYTES)

    assert [a is b for a, b in zip(held.segments, changed.segments, strict=True)] == [True] * 5 + [False] + [True] * 4
    assert grown.segments[:10] == changed.segments
    assert len(grown.segments) == 11


def test_only_rows_with_a_value_in_a_column_are_looked_at():
    files = {f"f{n}": CommittedFile(n, n, 1, dropped=n or None) for n in range(5)}
    layers = PersistentTable(Columns(FILES).rewritten(files)).updated({"f9": files["f3"], "f1": files["f0"]}, ["f2"])

    assert sorted(c.dropped for c in layers.having("dropped")) == [3, 3, 4]


def test_what_is_less_goes_and_segments_that_lose_nothing_are_the_very_same():
    held = Columns(REQUESTS).rewritten({f"{n:03d}": Answer(n, n) for n in range(40)}, SMALL_BYTES)

    left = held.at_least("base_version", 15)

    assert dict(left) == {f"{n:03d}": Answer(n, n) for n in range(15, 40)} == dict(read_again(left))
    assert left.segments[1:] == held.segments[2:]


def test_what_is_no_segment_is_damage():
    rows = Columns(REQUESTS).rewritten({"a": Answer(1, 0), "b": Answer(2, 0)}).segments[0].rows().batch
    with pytest.raises(DamagedError) as raised:
        Segment.of(FILES, rows)
    assert raised.value.code is Code.CHECKPOINT_DAMAGED
    with pytest.raises(DamagedError) as raised:
        Segment.of(REQUESTS, rows.slice(0, 0))
    assert raised.value.code is Code.CHECKPOINT_DAMAGED
    with pytest.raises(DamagedError, match="overlap"):
        Columns(REQUESTS, [Segment.of(REQUESTS, rows), Segment.of(REQUESTS, rows)])
