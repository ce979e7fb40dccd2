"""Tables in which another program put values that their types do not allow: read as far as can be, and damage else."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import DamagedError, Schema
from lakebed.maintenance.splitting.run import split
from lakebed.model.keys import _escape
from tests.adversarial.test_rows import compact_by_merge, lists, text

SCHEMA = Schema({"k": "string"}, {"s": "string"}, {"v": "string", "l": pa.list_(pa.string())})


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """Makes tables of a writer that takes such rows: sound files, if any, around the one that is given."""

    def make(schema, rows, sound, **options):
        table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, **options)
        table.write(sound)
        with monkeypatch.context() as before:
            before.setattr("lakebed.model.validity.invalid", lambda column: None)
            table.write(rows)
        table.write(sound)
        return table

    return make


def rows(k=b"b", s=b"1", v=b"v", item=b"i"):
    """Three rows, the middle one with these bytes."""
    return pa.table({"k": text(b"a", k, b"m"), "s": text(b"1", s, b"1"), "v": text(b"v", v, b"v"),
                     "l": lists(text(b"i", item, b"i"), 0, 1, 2, 3)})  # fmt: skip


def scanned(table):
    return table.scan().read_all().to_pylist()


def test_text_that_is_not_utf8_is_damage_to_scans_and_compactions(poisoned):
    """No entry comes of it, and what was there stays."""
    table = poisoned(SCHEMA, rows(v=b"v\xff", item=b"\xc3"), rows(), split_points=["b", "c"])
    before = table.version
    for read in (scanned, compact_by_merge):
        with pytest.raises(DamagedError, match=r"UTF-?8.*restore it"):
            read(table)
    assert set(table.state().files) == set(table.at(version=before).state.files)
    kinds = {finding.kind for finding in table.verify(deep=True).findings if finding.damage}
    assert kinds == {"invalid_value"}


def test_rows_beside_an_invalid_one_are_read_as_before(poisoned):
    """In columns of plain text; the engine gives no page of a nested column that holds an invalid one."""
    flat = Schema({"k": "string"}, {"s": "string"}, {"v": "string"})
    table = poisoned(flat, rows(v=b"\xff").drop_columns("l"), rows().drop_columns("l"))
    assert table.get("a").num_rows == table.get("b").num_rows == 3
    assert table.count(exact=True).rows == 9


def test_partitions_that_were_cut_at_invalid_keys_are_shown_compacted_and_read(poisoned):
    """Each boundary stays, and is shown as the least text that is not below it."""
    keys = [b"a", b"b\xff", b"b\xff\xff", b"c\xed\xa0\x80", b"\xf5", b"\xff", b"\xff\xff", b"\xff\xff\xff"]
    rows_given = pa.table({"k": text(*keys)})
    sound = pa.table({"k": ["a", "b\U0010ffff", "c", "c\ud7ff", "c\ue000", "d", "\U0010ffff"]})
    table = poisoned(Schema({"k": "string"}), rows_given, sound.slice(0, 0), settings={"split_rows": 3})
    assert split(table).split
    table.remove(lakebed.KeyRange())
    table.write(sound)
    table.write(sound)
    assert table.partitions().num_rows > 2
    compact_by_merge(table, jobs=None)
    wanted = sorted(sound.column("k").to_pylist() * 2)
    assert [row["k"] for row in scanned(table)] == wanted
    for k in sound.column("k").to_pylist():
        assert table.get(k).num_rows == wanted.count(k)
        assert table.scan(lakebed.KeyRange((k,))).read_all().num_rows == sum(other >= k for other in wanted)


@given(st.binary(max_size=8), st.lists(st.text(max_size=4), max_size=10))
def test_a_bound_that_is_no_text_parts_texts_as_its_bytes_do(content, texts):
    codec = Schema({"k": "string"}).codec
    (least,) = codec.decode_bound(_escape(content)).values
    # Above some bytes there is no text but one that is too long for a key.
    for one in [*texts, least] if len(least) < 2_000 else texts:
        assert (one.encode() >= content) == (one >= least)
