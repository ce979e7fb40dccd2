"""Deep verification finds and locates every fault of a file, and continues after it."""

from __future__ import annotations

import dataclasses
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Deep, KeyRange, Latest, Schema, StorageError, UsageError, clock
from lakebed.errors import Code
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.ranks import RankNotes
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.files import DataFile, NewFile, data_name, encode_bounds, summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.row_kinds import RowKind, with_hidden
from lakebed.model.state.transactions import ProposeFiles
from lakebed.storage.digests import digest_bytes
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage
from lakebed.upkeep.splitting.run import split
from lakebed.write.run import send_run

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double", "note": "string"})


def rows(begin, end):
    versions = list(range(begin, end))
    return pa.table(
        {
            "k": [f"key-{version // 3:06d}" for version in versions],
            "n": versions,
            "v": [version / 7 for version in versions],
            "note": [None if version % 5 else f"note {version}" for version in versions],
        },
        schema=pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.float64()), ("note", pa.string())]),
    )


@pytest.fixture
def table(lake, monkeypatch):
    """Three files, one of which has a summary, in several partitions."""
    monkeypatch.setattr("lakebed.model.files.SUMMARY_BYTES_MIN", 20_000)
    made = lake.create_table("t", SCHEMA, split_points=[("key-001000",)], settings={"split_rows": 10_000})
    made.write(rows(0, 20_000))
    made.write(rows(20_000, 20_300))
    made.write(rows(20_300, 20_600))
    split(made)
    return made


def kinds(report):
    return [finding.kind for finding in settled(report)]


def settled(report):
    """Return the findings that do not depend on timing: a checkpoint is written in the background, and may be missing
    yet.
    """
    return [finding for finding in report.findings if finding.kind != "checkpoint_missing"]


def what(table):
    """Return the text of the first finding of damage."""
    return next(finding.what for finding in table.verify(deep=True).findings if finding.damage)


def largest(table):
    return max(table.state().referenced().values(), key=lambda file: file.size_bytes)


def test_a_sound_table_has_no_findings_and_all_of_it_was_read(table):
    findings = []
    report = table.verify(deep=Deep(progress=lambda *done: findings.append(done)))
    assert kinds(report) == []
    assert report.sound
    files = table.state().referenced().values()
    size_bytes = sum(file.size_bytes for file in files)
    read = report.checked
    assert (read.files, read.of_files, read.size_bytes, read.of_bytes) == (3, 3, size_bytes, size_bytes)
    assert (read.rows, read.seed) == (20_600, None)
    assert (findings[0], findings[-1]) == ((0, size_bytes), (size_bytes, size_bytes))
    assert table.verify(deep=True).checked == read
    assert table.verify(files=True).checked is None


@pytest.mark.parametrize("flips", [25, pytest.param(5_000, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_found_and_placed(table, flips):
    """One random bit in any byte: names and sizes still match."""
    chance = random.Random(flips)
    files = list(table.state().referenced().values())
    for _ in range(flips):
        file = chance.choice(files)
        name = data_name(table.id, file)
        whole = table.storage.get(name)
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        table.storage.replace(name, bytes(data))
        assert table.verify(files=True).sound
        (finding,) = (f for f in table.verify(deep=True).findings if f.damage)
        assert (finding.kind, finding.damage, finding.file) == ("file_damaged", True, file.id)
        assert finding.object == table.storage.object_url(name)
        codec = SCHEMA.codec
        assert (finding.min_key, finding.max_key) == (
            codec.decode_values(file.min_key),
            codec.decode_values(file.max_key),
        )
        assert finding.rows == file.rows
        assert "restore the object from a copy" in finding.remedy
        table.storage.replace(name, whole)
    assert table.verify(deep=True).sound


def test_a_flip_in_a_summary_is_found(table):
    file = largest(table)
    name = summary_name(table.id, file)
    whole = table.storage.get(name)
    chance = random.Random(6)
    for _ in range(15):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        table.storage.replace(name, bytes(data))
        assert set(kinds(table.verify(deep=True))) <= {"summary_damaged", "summary_false"}
        assert not table.verify(deep=True).sound
    table.storage.replace(name, whole)


def test_one_object_that_cannot_be_read_does_not_stop_it(table):
    """Two of three: one that the store refuses, and one that is not Parquet."""
    first, second, third = table.state().referenced().values()

    class Refusing(CountingStorage):
        def fetch(self, name, *, digest=None):
            if name == data_name(table.id, first):
                raise Code.STORE_UNAVAILABLE(f"cannot fetch {name}: permission denied", transient=False)
            return super().fetch(name, digest=digest)

    table.storage.replace(data_name(table.id, second), os.urandom(second.size_bytes))
    refusing = Table(table.id, "t", Refusing(table.storage), ObjectLogs(table.storage), dict)
    report = refusing.verify(deep=True)
    assert {finding.file: finding.kind for finding in settled(report)} == {
        first.id: "file_unreadable",
        second.id: "file_damaged",
    }
    assert "permission denied" in settled(report)[0].what
    table.storage.delete([data_name(table.id, third)])
    assert sorted(kinds(refusing.verify(deep=True))) == ["file_damaged", "file_missing", "file_unreadable"]


def test_a_store_that_is_out_of_reach_is_no_damage(table):
    class Away(CountingStorage):
        def fetch(self, name, *, digest=None):
            raise Code.STORE_UNAVAILABLE("no answer", transient=True)

    with pytest.raises(StorageError, match="no answer"):
        Table(table.id, "t", Away(table.storage), ObjectLogs(table.storage), dict).verify(deep=True)


def test_a_sample_reads_its_share_and_its_seed_reads_the_same_again(lake):
    table = lake.create_table("many", SCHEMA)
    for version in range(40):
        table.write(rows(100 * version, 100 * version + 100))
    read = table.verify(deep=Deep(share=0.25)).checked
    assert 10 <= read.files <= 11
    assert (read.of_files, read.of_bytes) == (40, sum(f.size_bytes for f in table.state().referenced().values()))
    assert read.of_bytes * 0.25 <= read.size_bytes <= read.of_bytes * 0.28
    assert table.verify(deep=Deep(0.25, read.seed)).checked == read
    name = data_name(table.id, next(iter(table.state().referenced().values())))
    table.storage.replace(name, table.storage.get(name)[:-1] + b"!")
    found = sum(not table.verify(deep=Deep(0.25, seed)).sound for seed in range(60))
    assert 4 <= found <= 30


def test_digests_alone_are_checked_where_rows_are_not_asked_for(table):
    file = largest(table)
    name = data_name(table.id, file)
    whole = table.storage.get(name)
    table.storage.replace(name, whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:])
    assert kinds(table.verify(deep=Deep(rows=False))) == ["file_damaged"]


def test_an_entry_that_the_store_cannot_give_is_a_finding(table):
    """Later entries are verified separately."""

    class Refusing(CountingStorage):
        def get(self, name):
            if name.endswith(f"/log/{2:020d}.ndjson"):
                raise Code.STORE_UNAVAILABLE(f"cannot read {name}: input/output error", transient=False)
            return super().get(name)

    refusing = Table(table.id, "t", table.storage, ObjectLogs(Refusing(table.storage)), dict)
    report = refusing.verify()
    assert kinds(report) == ["unreadable"]
    assert "input/output error" in settled(report)[0].what


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), "5%", True, None])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(UsageError, match="share"):
        Deep(share)


@pytest.mark.parametrize("wanted", [{"files": 1}, {"deep": 1}, {"deep": None}, {"files": "yes"}])
def test_what_is_neither_true_nor_false_is_refused(table, wanted):
    with pytest.raises(UsageError, match="True or False"):
        table.verify(**wanted)


# -- files that were wrong when they were written ---------------------------------------------------------------


def put(table, stored, *, said=None, summary=None, bounds=b""):
    """Commit a file as made by a bug or another program; its digests are valid."""
    columns = {field.name: field.id for field in SCHEMA.fields}
    fields = [f.with_metadata({"PARQUET:field_id": str(columns[f.name])}) for f in stored.schema]
    stored = pa.Table.from_arrays(stored.columns, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(stored, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    return put_bytes(table, data, said or rows(0, 30), summary, bounds)


def put_bytes(table, data, said, summary=None, bounds=b""):
    file_id, job = clock.new_id(), clock.new_id()
    name = f"tables/{table.id}/data/{job}/{file_id}.parquet"
    table.storage.create(name, data)
    notes = RankNotes(SCHEMA.codec, table.state().partitions.boundaries, rows_estimate=said.num_rows)
    notes.add(said.select(["k"]).combine_chunks())
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    last_modified = table.storage.last_modified(name)
    file = DataFile(
        file_id,
        job,
        said.num_rows,
        len(data),
        notes.min_key,
        notes.max_key,
        1,
        int(last_modified.timestamp() * 1_000_000) + 1,
        digest_bytes(data),
        footer_bytes,
        digest_bytes(data[-footer_bytes:]),
        bounds,
    )
    made = summary or notes.summary()
    table.commit(ProposeFiles((NewFile(file, made, file_id),)))
    return file


def found(table, file):
    report = table.verify(deep=True)
    # A checkpoint is written while commits go on, and may not exist yet.
    findings = [finding for finding in report.findings if finding.damage]
    assert findings
    assert all(finding.file == file.id and finding.remedy for finding in findings), findings
    return [finding.kind for finding in findings]


@pytest.fixture
def empty(lake):
    return lake.create_table("bad", SCHEMA)


def changed(base, column, values, kind=None):
    at = base.schema.names.index(column)
    return base.set_column(at, column, pa.array(values, kind or base.schema.field(column).type))


def test_a_row_out_of_order_is_found(empty):
    base = rows(0, 30)
    swapped = base.take([*range(10), 20, *range(11, 20), 10, *range(21, 30)])
    file = put(empty, swapped)
    assert found(empty, file) == ["order"]
    (finding,) = settled(empty.verify(deep=True))
    assert "row 11 " in finding.what
    assert "lakebed remove" in finding.remedy


def test_rows_of_one_key_in_the_wrong_order_of_their_sort_key_are_found(empty):
    base = rows(0, 30)
    assert found(empty, put(empty, base.take([1, 0, *range(2, 30)]))) == ["order"]


def test_order_is_checked_from_batch_to_batch(empty):
    """A batch has at most 65,536 rows."""
    base = rows(0, 70_000)
    file = put(empty, base.take([*range(4_464, 70_000), *range(4_464)]), said=base)
    assert found(empty, file) == ["order"]


def test_keys_outside_of_the_bounds_are_found(empty):
    file = put(empty, rows(3, 33), said=rows(0, 30))
    assert found(empty, file) == ["bounds", "bounds"]


def test_keys_outside_of_the_bounds_are_found_among_rows_in_no_order(empty):
    base = rows(0, 30)
    assert found(empty, put(empty, changed(base, "k", ["zzz", *base["k"].to_pylist()[1:]]))) == ["order", "bounds"]


@pytest.mark.parametrize(
    ("least", "greatest", "kinds"), [(0, 29, []), (1, 29, ["field_bounds"]), (0, 28, ["field_bounds"])]
)
def test_values_outside_of_the_bounds_of_a_later_key_field_are_found(empty, least, greatest, kinds):
    base = changed(rows(0, 30), "n", range(30))
    put(empty, base, bounds=encode_bounds([(SCHEMA.sort_key[0], least, greatest)]))
    findings = [finding for finding in empty.verify(deep=True).findings if finding.damage]
    assert [finding.kind for finding in findings] == kinds
    assert all("values of n outside" in one.what and "predicate on n" in one.remedy for one in findings)


def test_a_null_key_is_found(empty):
    base = rows(0, 30)
    for column in ("k", "n"):
        values = base[column].to_pylist()
        values[7] = None
        put(empty, changed(base, column, values))
    assert kinds(empty.verify(deep=True)) == ["null_key", "null_key"]
    assert "row 7" in what(empty)


def test_text_that_is_not_utf8_is_found_in_keys_and_values(empty):
    base = rows(0, 30)
    broken = pa.array([b"note \xff" if i == 4 else b"fine" for i in range(30)], pa.binary()).view(pa.string())
    file = put(empty, base.set_column(3, "note", broken))
    assert found(empty, file) == ["invalid_value"]
    assert "row 4" in what(empty)
    keys = pa.array([text.encode() + b"\xfe" for text in base["k"].to_pylist()], pa.binary()).view(pa.string())
    other = put(empty, base.set_column(0, "k", keys))
    report = empty.verify(deep=True)
    assert "invalid_value" in [finding.kind for finding in report.findings if finding.file == other.id]


def test_a_row_count_that_is_not_the_files_is_found(empty):
    file = put(empty, rows(0, 30).slice(0, 29).slice(0, 29), said=rows(0, 30))
    assert "row_count" in found(empty, file)


def test_a_partition_that_counts_rows_wrong_is_found(lake):
    """The summary had wrong ranks of the boundaries."""
    table = lake.create_table("cut", SCHEMA, split_points=[("key-000005",)])
    boundary = table.state().partitions.boundaries[0]
    base = rows(0, 30)
    low, high = (SCHEMA.codec.encode((base["k"][i].as_py(),)) for i in (0, 29))
    wrong = Summary((low, boundary), (0, 20), 30, high)
    file = put(table, base, summary=wrong)
    assert found(table, file) == ["reference_rows", "reference_rows"]
    assert "15 rows" in what(table)


def test_a_file_that_parquet_cannot_open_is_found(empty):
    data = b"PAR1" + os.urandom(400) + (100).to_bytes(4, "little") + b"PAR1"
    file = put_bytes(empty, data, rows(0, 30))
    assert found(empty, file) == ["file_undecodable"]


def test_a_file_without_the_key_column_is_found(empty):
    file = put(empty, rows(0, 30).drop_columns(["n"]))
    assert "columns" in found(empty, file)


def test_a_summary_with_false_ranks_is_found(table):
    file = largest(table)
    name = summary_name(table.id, file)
    right = Summary.from_ipc(table.storage.get(name), name)
    off = tuple(rank + (0 < rank < right.rows - 5) for rank in right.ranks)
    table.storage.replace(name, Summary(right.keys, off, right.rows, right.max_key).to_ipc())
    assert found(table, file) == ["summary_false"]
    table.storage.replace(name, Summary(right.keys, right.ranks, right.rows + 7, right.max_key).to_ipc())
    assert found(table, file) == ["summary_damaged"]
    table.storage.delete([name])
    report = table.verify(deep=True)
    assert (kinds(report), report.sound) == (["summary_missing"], True)


def test_rows_that_can_still_be_read_elsewhere_are_reported(table, tmp_path):
    """The inputs of a merged file exist until they are collected."""
    from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task

    def execute(tasks):
        return [run_merge_task(task, table.storage, tmp_path) for task in tasks]

    before = table.version
    compact(table, prepare(table, "full"), execute, cores=1)
    (file, *_) = (f for f in table.state().referenced().values() if table.state().files[f.id].added > before)
    added = table.state().files[file.id].added
    name = data_name(table.id, file)
    table.storage.replace(name, bytes(file.size_bytes))
    (finding,) = (f for f in table.verify(deep=True).findings if f.damage)
    assert f"at version {added - 1}" in finding.remedy
    low, high = finding.min_key["k"], finding.max_key["k"]
    assert table.at(version=added - 1).scan(KeyRange((low,), (high,))).read_all().num_rows > 0


def test_rows_outside_of_the_partitions_that_refer_to_a_file_may_be_anything(lake):
    """After a removal they are superseded, and not a finding."""
    table = lake.create_table("removed", SCHEMA)
    table.write(rows(0, 3_000))
    table.remove(KeyRange(("key-000100",), ("key-000300",)))
    report = table.verify(deep=True)
    assert kinds(report) == []
    assert np.isclose(report.checked.rows, 3_000)


# -- files of a table with a merge mode ----------------------------------------------------------------------------


def put_run(table, stored, schema, markers=None, **layout):
    """Commit rows as a file, possibly with a wrong number of deletes and partial rows."""
    layout = dataclasses.replace(table.layout(), schema=schema, **layout)
    with tempfile.TemporaryDirectory() as scratch:
        run = write_run(stored.to_batches(), layout, Path(scratch), rows_estimate=stored.num_rows)
        if markers is not None:
            run = [dataclasses.replace(one, markers=markers) for one in run]
        files = send_run(table.storage, table.id, run, job=clock.new_id())
    table.commit(ProposeFiles(files))
    return files[0].file


def one_row_a_key():
    """Return 30 rows with one key each."""
    return rows(0, 90).take(list(range(0, 90, 3))).combine_chunks()


@pytest.fixture
def merging(lake):
    return lake.create_table("merging", SCHEMA, merge=Latest())


def with_deletes(base, schema, deleted):
    kinds = [int(RowKind.DELETE) if row in deleted else None for row in range(base.num_rows)]
    hidden = [pa.nulls(base.num_rows, field.type) for field in schema.fields if field.name not in base.schema.names]
    hidden[0] = pa.array(kinds, pa.int8())
    return pa.Table.from_arrays([*base.columns, *hidden], schema=schema.arrow)


def test_a_file_with_deletes_is_sound(merging):
    schema = with_hidden(SCHEMA)
    file = put_run(merging, with_deletes(one_row_a_key(), schema, {3, 7}), schema)
    assert file.markers == 2
    assert not settled(merging.verify(deep=True))


def test_a_wrong_number_of_deletes_is_found(merging):
    schema = with_hidden(SCHEMA)
    file = put_run(merging, with_deletes(one_row_a_key(), schema, {3, 7}), schema, markers=1)
    assert found(merging, file) == ["markers"]


@pytest.mark.parametrize("group_rows", [1, 7, 10_000])
def test_rows_of_one_key_that_were_not_merged_are_found(merging, group_rows):
    """Those of two row groups are checked in two batches."""
    base = one_row_a_key()
    doubled = base.take([*range(5), 4, *range(5, base.num_rows)])
    file = put_run(merging, doubled, SCHEMA, row_group_rows=group_rows)
    assert found(merging, file) == ["doubled_key"]
    (finding,) = settled(merging.verify(deep=True))
    assert "equal k, first in row 5" in finding.what
