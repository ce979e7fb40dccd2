"""Tables that accepted values which their types do not allow: read as far as possible, reported with a remedy, and
repaired.
"""

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

import lakebed
from lakebed import DamagedError, Schema, UsageError, clock
from lakebed.errors import Code
from lakebed.model import validity
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep import repair
from lakebed.upkeep.publish.run import current, publish
from lakebed.upkeep.splitting.run import split
from tests.adversarial.test_rows import compact_by_merge, decimals, lists, text
from tests.tables.retention.cases import on
from tests.variants import Planted, planted

SCHEMA = Schema({"k": "string"}, {"s": "string"}, {"v": "string", "l": pa.list_(pa.string())})


def _unchecked():
    """Such values are written, as by versions that did not refuse them."""
    yield Planted(validity, "invalid", lambda column: None)


@pytest.fixture
def poisoned(tmp_path):
    """Make tables as before such rows were refused, with valid files, if any, around the given one."""

    def make(schema, rows, sound, **options):
        table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, **options)
        table.write(sound)
        with planted(_unchecked):
            table.write(rows)
        table.write(sound)
        return table

    return make


def rows(k=b"b", s=b"1", v=b"v", item=b"i"):
    """Return three rows, the middle one with these bytes."""
    return pa.table({"k": text(b"a", k, b"m"), "s": text(b"1", s, b"1"), "v": text(b"v", v, b"v"),
                     "l": lists(text(b"i", item, b"i"), 0, 1, 2, 3)})  # fmt: skip


def scanned(table):
    return table.scan().read_all().to_pylist()


def test_text_is_mended_in_place_across_partitions_and_the_table_is_read_and_compacted_again(poisoned):
    table = poisoned(SCHEMA, rows(v=b"v\xff", item=b"\xc3"), rows(), split_points=["b", "c"])
    before = table.version
    with pytest.raises(DamagedError, match="run `lakebed table repair`"):
        scanned(table)
    with pytest.raises(DamagedError, match="run `lakebed table repair`"):
        compact_by_merge(table)
    (found,) = repair.find(table)
    assert (found.rows, found.in_keys, found.columns) == (1, 0, ("v", "l"))
    report = repair.repair(table)
    assert (report.mended, report.removed, report.failed, report.skipped) == (1, 0, (), ())
    assert repair.find(table) == ()
    assert repair.repair(table).version is None
    found = scanned(table)
    assert [(row["k"], row["v"], row["l"]) for row in found if row["k"] == "b"].count(("b", "v\ufffd", ["\ufffd"])) == 1
    assert len(found) == 9
    compact_all(table)
    assert sorted(map(str, scanned(table))) == sorted(map(str, found))
    assert table.verify(files=True).sound
    assert table.at(version=before).count(exact=True).rows == 9


def compact_all(table):
    compact_by_merge(table, jobs=3)


def test_rows_beside_an_invalid_one_are_read_as_before(poisoned):
    """In columns of plain text; the engine returns no page of a nested column with an invalid value."""
    flat = Schema({"k": "string"}, {"s": "string"}, {"v": "string"})
    table = poisoned(flat, rows(v=b"\xff").drop_columns("l"), rows().drop_columns("l"))
    assert table.get("a").num_rows == table.get("b").num_rows == 3
    assert table.count(exact=True).rows == 9


def test_rows_with_an_invalid_key_are_taken_out_into_a_file_that_can_be_written_again(poisoned, tmp_path):
    table = poisoned(SCHEMA, rows(k=b"\xfe\xff", s=b"\xff", v=b"\xff"), rows(), split_points=["b", "c"])
    version = table.version
    with pytest.raises(UsageError, match=r"1 rows have an invalid value in a key.*name a folder"):
        repair.repair(table)
    assert table.version == version
    report = repair.repair(table, tmp_path / "out")
    assert (report.mended, report.removed) == (0, 1)
    (path,) = report.removed_files
    removed = pq.read_table(path)
    assert removed.to_pylist() == [{"k": "\ufffd\ufffd", "s": "\ufffd", "v": "\ufffd", "l": ["i"]}]
    assert len(scanned(table)) == 8
    table.write(removed)
    assert len(scanned(table)) == 9
    assert table.get("\ufffd\ufffd").num_rows == 1


def test_a_sort_key_is_mended_and_its_row_goes_where_it_then_belongs(poisoned):
    schema = Schema({"k": "string"}, {"s": "string"})
    rows_given = pa.table({"k": text(b"a", b"a", b"a"), "s": text(b"1", b"\xf4\xff", b"\xee\x80\x80")})
    table = poisoned(schema, rows_given, pa.table({"k": ["a"], "s": ["0"]}))
    assert repair.repair(table).mended == 1
    assert [row["s"] for row in scanned(table)] == ["0", "0", "1", "\ue000", "\ufffd\ufffd"]


def test_a_decimal_becomes_null_and_where_none_may_be_its_row_is_taken_out(poisoned, tmp_path):
    kind = pa.decimal128(3, 1)
    for nullable in (True, False):
        schema = Schema({"k": "int64"}, {}, {"d": pa.field("d", kind, nullable)})
        rows_given = pa.table({"k": [1, 2], "d": decimals(kind, 15, 1000)})
        make = lakebed.create(str(tmp_path / f"lake-{nullable}"))
        table = poisoned(schema, rows_given, pa.table({"k": [3], "d": decimals(kind, 5)})) if nullable else None
        if table is None:
            table = make.create_table("t", schema)
            with planted(_unchecked):
                table.write(rows_given)
        report = repair.repair(table, tmp_path / "out")
        assert (report.mended, report.removed) == ((1, 0) if nullable else (0, 1))
        assert {row["k"]: row["d"] for row in scanned(table)}.get(2) is None
        assert {row["k"]: row["d"] for row in scanned(table)}[1] == Decimal("1.5")


def test_a_file_that_a_job_works_on_is_left_alone_and_said_so(poisoned, tmp_path):
    table = poisoned(SCHEMA, rows(k=b"b\xff"), rows())
    state = table.state()
    (partition,) = state.partitions.ids
    ids = tuple(file.id for file in state.files_of(partition))
    table.commit(OpenJob(Job(clock.new_id(), state.partitions.range_at(0), ids, "", 60, 0)))
    report = repair.repair(table, tmp_path / "out")
    assert report.version is None
    assert "belongs to open job" in report.skipped[0].reason
    assert not list((tmp_path / "out").iterdir())


def test_a_repair_that_fails_changes_nothing_and_leaves_no_file_of_rows(poisoned, tmp_path):
    table = poisoned(SCHEMA, rows(k=b"b\xff"), rows())
    full = FaultyStorage(table.storage, FaultPlan([Rule(Fault.FULL, "send", "*/data/*")]))
    report = repair.repair(on(table, full), tmp_path / "out")
    assert [one.error.code for one in report.failed] == [Code.STORE_FULL]
    assert (report.version, report.removed, report.removed_files) == (None, 0, ())
    assert not list((tmp_path / "out").iterdir())
    assert not table.state().jobs
    assert table.count(exact=True).rows == 9


def test_the_command_line_says_what_it_would_do_and_does_it(poisoned, tmp_path, capsys):
    from lakebed.cli import main

    poisoned(SCHEMA, rows(k=b"b\xff"), rows())
    words = ["--instance", str(tmp_path / "lake"), "table", "repair", "t"]
    assert main([*words, "--dry-run"]) == 0
    assert "1 invalid row in k, 1 to be taken out" in capsys.readouterr().out
    assert main(words) == 2
    assert "--removed" in capsys.readouterr().err
    assert main([*words, "--removed", str(tmp_path / "out")]) == 0
    assert "0 rows mended, 1 row taken out" in capsys.readouterr().out
    assert main(words) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_partitions_that_were_cut_at_invalid_keys_are_shown_compacted_and_read(poisoned, tmp_path):
    """Each boundary stays, and is shown as the least text that is not below it."""
    keys = [b"a", b"b\xff", b"b\xff\xff", b"c\xed\xa0\x80", b"\xf5", b"\xff", b"\xff\xff", b"\xff\xff\xff"]
    rows_given = pa.table({"k": text(*keys)})
    sound = pa.table({"k": ["a", "b\U0010ffff", "c", "c\ud7ff", "c\ue000", "d", "\U0010ffff"]})
    table = poisoned(Schema({"k": "string"}), rows_given, sound.slice(0, 0), settings={"split_rows": 3})
    assert split(table).split
    table.write(sound)
    table.write(sound)
    assert table.partitions().num_rows > 2
    report = repair.repair(table, tmp_path / "out")
    assert (report.removed, report.failed) == (7, ())
    compact_by_merge(table, jobs=None)
    wanted = sorted([*sound.column("k").to_pylist() * 2, "a"])
    assert [row["k"] for row in scanned(table)] == wanted
    for k in sound.column("k").to_pylist():
        assert table.get(k).num_rows == wanted.count(k)
        assert table.scan(lakebed.KeyRange((k,))).read_all().num_rows == sum(other >= k for other in wanted)


@given(st.binary(max_size=8), st.lists(st.text(max_size=4), max_size=10))
def test_a_bound_that_is_no_text_parts_texts_as_its_bytes_do(content, texts):
    codec = Schema({"k": "string"}).codec
    (least,) = codec.decode_bound(codec.fields[0].key_type.encode(content)).values
    # Above some bytes, the only text is one that is too long for a key.
    for one in [*texts, least] if len(least) < 2_000 else texts:
        assert (one.encode() >= content) == (one >= least)


def test_in_a_table_that_merges_rows_each_file_is_mended_alone_and_in_its_place(tmp_path):
    """Deletes and partial rows remain such, and a later row still supersedes a repaired one."""
    schema = Schema({"k": "string"}, (), {"v": "string", "w": "string"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, merge=lakebed.Latest())
    table.write(pa.table({"k": ["a", "b", "c", "d"], "v": ["1"] * 4, "w": ["1"] * 4}))
    table.delete([("d",)])
    with planted(_unchecked):
        table.write(pa.table({"k": ["a", "b"], "v": text(b"\xff", b"\xfe")}), partial=True)
    table.write(pa.table({"k": ["c"], "v": ["2"], "w": ["2"]}))
    with planted(_unchecked):
        table.write(pa.table({"k": ["b", "e"], "v": text(b"3", b"\xff"), "w": ["3", "3"]}))
    report = repair.repair(table)
    assert (report.mended, report.removed, report.failed, report.skipped) == (3, 0, (), ())
    wanted = [("a", "\ufffd", "1"), ("b", "3", "3"), ("c", "2", "2"), ("e", "\ufffd", "3")]
    assert [tuple(row.values()) for row in scanned(table)] == wanted
    state = table.state()
    assert [file.markers for file in state.files_of(state.partitions.ids[0])] == [0, 1, 2, 0, 0]
    compact_by_merge(table)
    assert [tuple(row.values()) for row in scanned(table)] == wanted


# -- what follows a table ----------------------------------------------------------------------------------------


KIND = pa.decimal128(3, 1)


@pytest.fixture
def overfull(tmp_path):
    """Make a table of keys with decimals, of which a repair takes a row out; write(k, digits) adds a row."""
    lake = lakebed.create(str(tmp_path / "lake"))

    def make(merge, nullable):
        schema = Schema({"k": "int64"}, {}, {"d": pa.field("d", KIND, nullable)})
        table = lake.create_table("t", schema, merge=merge, settings={"publish": "iceberg"})

        def write(k, digits):
            with planted(_unchecked):
                table.write(pa.table({"k": [k], "d": pa.chunked_array([decimals(KIND, digits)])}, schema.arrow))

        return lake, table, write

    return make


@pytest.mark.parametrize("nullable", [False, True])
def test_a_feed_of_changes_has_the_rows_that_a_repair_changed(overfull, nullable, tmp_path):
    _, table, write = overfull(lakebed.KeepAll(), nullable)
    write(1, 15)
    write(2, 1000)
    since = table.version
    repair.repair(table, tmp_path / "out")
    found = [(row["_change"], row["k"], row["d"]) for row in table.changes(since).read_all().to_pylist()]
    assert found == [("delete", 2, Decimal("100.0")), *([("insert", 2, None)] if nullable else [])]


def test_a_row_that_was_superseded_by_one_that_a_repair_takes_out_is_published_again(overfull, tmp_path):
    """The publication goes on from what was hidden before."""
    _, table, write = overfull(lakebed.Latest(), False)
    write(1, 15)
    write(1, 1000)
    publish(table)
    repair.repair(table, tmp_path / "out")
    publish(table)
    published = StaticTable.from_metadata(current(table).metadata_location).scan().to_arrow()
    assert published.to_pylist() == scanned(table) == [{"k": 1, "d": Decimal("1.5")}]


def test_a_view_loses_the_rows_that_a_repair_takes_out(overfull, tmp_path):
    lake, _, write = overfull(lakebed.KeepAll(), False)
    view = lake.create_view_table(
        "counts", source="t", select="SELECT k, count(*) AS n FROM source GROUP BY k",
        row_key=["k"], merge=lakebed.Aggregate({"n": "sum"}),
    )  # fmt: skip
    write(1, 15)
    write(1, 1000)
    with lakebed.Pipeline(lake, launcher=lakebed.InProcess()) as pipeline:
        pipeline.refresh("counts")
        assert [row["n"] for row in scanned(view)] == [2]
        repair.repair(lake.table("t"), tmp_path / "out")
        pipeline.refresh("counts")
    assert [row["n"] for row in scanned(view)] == [1]


def test_a_feed_over_a_repair_of_text_says_from_which_version_it_can_be_read(poisoned):
    table = poisoned(SCHEMA, rows(v=b"v\xff"), rows())
    since = table.version
    repaired = repair.repair(table).version
    with pytest.raises(DamagedError, match=f"the changes since version {repaired}"):
        table.changes(since).read_all()
    assert table.changes(repaired).read_all().num_rows == 0
    assert table.changes(since, columns=["k", "s"]).read_all().num_rows == 0
