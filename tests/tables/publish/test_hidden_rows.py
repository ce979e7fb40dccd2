"""Which rows of which files count: one small table for each cause."""

from __future__ import annotations

import datetime as dt
import io
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

pytest.importorskip("pyiceberg")

import lakebed
from lakebed import AgeOff, Aggregate, First, KeepAll, KeyRange, Latest, Pipeline, Schema, SetFilter
from lakebed.errors import Code, RejectedError
from lakebed.files.parquet.bloom_filters import HashedKeys
from lakebed.model.files import data_name
from lakebed.model.settings import Strategy
from lakebed.model.state.transactions import ProposeSplit
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.publish import hidden_rows, superseded
from lakebed.upkeep.publish.deletes import position_deletes, read_position_deletes
from lakebed.upkeep.publish.hidden_rows import LiveFiles, live_files
from tests.tables.cases import rewritten
from tests.variants import Planted, planted

SCHEMA = Schema({"k": "string"}, {"at": "int64"}, {"v": "int64"})


def made(lake, merge, **options):
    table = lake.create_table("t", SCHEMA, merge=merge, **options)
    # Keys are looked up in small tables too.
    table.reader.limits = structs.replace(table.reader.limits, merged_rows_a_key=0)
    return table


def write(table, keys, at=0, v=0, **options):
    columns = {"k": list(keys), "at": [at] * len(keys), "v": range(v, v + len(keys))}
    return table.write(pa.table(columns), **options)


def split(table, letter):
    key = table.schema.codec.encode_key((letter,))
    partitions = table.state().partitions
    table.commit(ProposeSplit({partitions.ids[partitions.position(key)]: (key,)}))


def compact_all(table, meanwhile=None, strategy=Strategy.FULL):
    """Merge all files; take a step before the result is committed."""

    def run(tasks):
        with tempfile.TemporaryDirectory() as scratch:
            done = [run_merge_task(task, table.storage, Path(scratch)) for task in tasks]
        if meanwhile is not None:
            meanwhile()
        return done

    compact(table, prepare(table, strategy), run, cores=1)


def found(table, known=None):
    table.state()
    return live_files(table, table.log.head, known)


def keys_hidden(table, live):
    """Return the letters of each file in the order of commits, hidden ones in upper case."""
    texts = []
    for one in sorted(live.files.values(), key=lambda one: table.state().files[one.file.id].sequence_lo):
        data = table.storage.get(data_name(table.id, one.file))
        letters = pq.read_table(io.BytesIO(data), columns=["k"]).column("k").to_pylist()
        texts.append("".join(c.upper() if row in one.hidden else c for row, c in enumerate(letters)))
    return texts


def follow(table, steps):
    """Take each step; return what is hidden after it, which is the same from version to version and anew."""
    known, seen = found(table), []
    for step in steps:
        step()
        known = found(table, known)
        anew = found(table)
        assert keys_hidden(table, known) == keys_hidden(table, anew)
        seen.append(keys_hidden(table, known))
    return seen


def test_a_file_of_several_partitions_is_whole_and_listed_once(memory_lake):
    table = made(memory_lake, KeepAll())
    seen = follow(table, [lambda: write(table, "abcdef"), lambda: split(table, "c"), lambda: split(table, "e")])
    assert seen == [["abcdef"]] * 3


def test_a_removed_range_hides_a_slice_and_a_restore_shows_it(memory_lake):
    table = made(memory_lake, KeepAll())
    write(table, "abcdef")
    version = table.version
    seen = follow(
        table,
        [
            lambda: table.remove(KeyRange("b", "d")),
            lambda: table.remove(KeyRange("e", "f")),
            lambda: table.restore(version=version),
        ],
    )
    assert seen == [["aBCdef"], ["aBCdEf"], ["abcdef"]]


def test_a_file_is_gone_with_its_last_reference(memory_lake):
    table = made(memory_lake, KeepAll())
    write(table, "ab")
    known = found(table)
    (name,) = known.files
    table.remove(KeyRange("a", "c"))
    after = found(table, known)
    assert (dict(after.files), after.changed, after.gone) == ({}, frozenset(), {name})


def test_newer_rows_hide_older_ones_and_deletes_hide_both(memory_lake):
    table = made(memory_lake, Latest())
    seen = follow(
        table,
        [
            lambda: write(table, "abcd"),
            lambda: write(table, "bd"),
            lambda: table.delete(["a", "d"]),
            lambda: write(table, "a"),
            lambda: compact_all(table),
        ],
    )
    assert seen == [["abcd"], ["aBcD", "bd"], ["ABcD", "bD", "AD"], ["ABcD", "bD", "AD", "a"], ["abc"]]


def test_by_first_the_older_row_stays(memory_lake):
    table = made(memory_lake, First())
    seen = follow(table, [lambda: write(table, "abcd"), lambda: write(table, "bde"), lambda: write(table, "ef")])
    assert seen == [["abcd"], ["abcd", "BDe"], ["abcd", "BDe", "Ef"]]


def test_by_sort_key_a_late_row_is_hidden_and_of_equals_the_first(memory_lake):
    table = made(memory_lake, Latest(by="sort_key"))
    seen = follow(
        table,
        [
            lambda: write(table, "abc", at=5),
            lambda: write(table, "a", at=4),
            lambda: write(table, "b", at=5),
            lambda: table.delete(pa.table({"k": ["c"], "at": [7]})),
            lambda: write(table, "c", at=6),
            lambda: write(table, "c", at=7),
        ],
    )
    assert seen[-1] == ["aBC", "A", "b", "C", "C", "c"]


def test_the_output_of_a_compaction_is_hidden_by_files_behind_it(memory_lake):
    table = made(memory_lake, Latest())
    write(table, "abcd")
    write(table, "bc")
    seen = follow(table, [lambda: compact_all(table, lambda: write(table, "cd"))])
    assert seen == [["abCD", "cd"]]


def test_what_a_rewrite_erased_hides_nothing_any_more(memory_lake):
    table = made(memory_lake, Latest())
    write(table, "ab")
    write(table, "ab", v=10)
    version = table.version
    steps = [
        lambda: rewritten(table, delete_where="k = 'b'"),
        lambda: write(table, "a"),
        lambda: table.restore(version=version),
    ]
    assert follow(table, steps) == [["A", "a"], ["A", "A", "a"], ["AB", "ab"]]


@pytest.mark.parametrize("mode", [First(), Latest(by="sort_key")], ids=str)
def test_what_older_files_hide_stays_hidden_in_a_compacted_file(memory_lake, mode):
    """The first row counts, or the one with the greatest sort key: both are in the older file, which is larger."""
    table = made(memory_lake, mode)
    table.set(compaction_batch_runs=2)
    write(table, "ab" + "".join(map(chr, range(0x4E00, 0x5000))), at=5)
    steps = [
        lambda: write(table, "bc", at=1),
        lambda: write(table, "cd", at=1),
        lambda: compact_all(table, strategy=Strategy.BASIC),
    ]
    assert [seen[1:] for seen in follow(table, steps)][::2] == [["Bc"], ["Bcd"]]


def _restores_forgotten():
    """Nothing says that rows were restored."""
    between = hidden_rows._Changes.between
    yield Planted(hidden_rows._Changes, "between", lambda *args: structs.replace(between(*args), rewritten=()))


def test_a_restore_shows_what_a_later_row_had_hidden(memory_lake):
    table = made(memory_lake, Latest())
    write(table, "abc")
    version = table.version
    write(table, "b")
    known = found(table)
    table.restore(version=version)
    assert keys_hidden(table, found(table, known)) == ["abc"]
    with planted(_restores_forgotten):
        assert keys_hidden(table, found(table, known)) == ["aBc"]


def test_files_without_page_indexes_are_read_by_row_groups(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = made(lake, KeepAll())
    rows = pa.table({"k": list("abcdef"), "at": [0] * 6, "v": range(6)}, table.schema.arrow)
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=2, write_page_index=False)
    with Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.attach("t", str(tmp_path / "in.parquet"))
    seen = follow(table, [lambda: table.remove(KeyRange("b", "c")), lambda: table.alter(SetFilter("v < 4"))])
    assert seen == [["aBcdef"], ["aBcdEF"]]


def _filters_confirm_every_key():
    """Every lookup is a false positive of a filter, so only the search among the keys of a page tells."""
    yield Planted(HashedKeys, "may_be_in", lambda *_: None)


def _found_by_page_alone():
    """Another key of the page is taken for one that was looked up."""
    yield from _filters_confirm_every_key()
    yield Planted(superseded.pc, "equal", lambda *args: pa.array([True] * len(args[0]), pa.bool_()))


def test_a_key_that_is_not_there_hides_none(memory_lake):
    table = made(memory_lake, Latest())
    write(table, "ace")
    known = found(table)
    write(table, "bd")
    with planted(_filters_confirm_every_key):
        assert keys_hidden(table, found(table, known)) == ["ace", "bd"]
    with planted(_found_by_page_alone):
        assert keys_hidden(table, found(table, known)) == ["aCE", "bd"]


def test_a_filter_hides_rows_by_their_own_values_and_its_removal_shows_them(memory_lake):
    table = made(memory_lake, KeepAll())
    write(table, "abcd", v=1)
    seen = follow(
        table,
        [
            lambda: table.alter(SetFilter("v > 2")),
            lambda: write(table, "ef", v=2),
            lambda: table.alter(SetFilter(None)),
        ],
    )
    assert seen == [["ABcd"], ["ABcd", "Ef"], ["abcd", "ef"]]


def test_a_filter_is_not_evaluated_for_rows_that_no_reader_sees(memory_lake):
    table = made(memory_lake, KeepAll())
    write(table, "abc", v=0)
    table.remove(KeyRange("a", "b"))
    table.alter(SetFilter("10 / v > 6"))
    assert keys_hidden(table, found(table)) == ["AbC"]


def test_rows_age_off_by_the_cut_of_the_version(memory_lake):
    schema = Schema({"k": "string", "day": "date32"}, values={"v": "int64"})
    table = memory_lake.create_table("t", schema, merge=Latest())
    now, old = dt.datetime.now(dt.UTC).date(), dt.date(2020, 1, 1)
    table.write(pa.table({"k": list("abc"), "day": [now, old, now], "v": [1, 2, 3]}))
    before = found(table)
    assert keys_hidden(table, before) == ["abc"]
    table.alter(AgeOff("day", days=30))
    table.write(pa.table({"k": list("de"), "day": [old, now], "v": [4, 5]}))
    live = found(table, before)
    assert keys_hidden(table, live) == keys_hidden(table, found(table)) == ["aBc", "De"]


@pytest.mark.parametrize(
    ("merge", "options"), [(Aggregate({"v": "sum"}), {}), (Latest(), {"partial": True})], ids=["sums", "partial rows"]
)
def test_rows_that_are_computed_are_refused_until_they_are_compacted(memory_lake, merge, options):
    table = made(memory_lake, merge, split_points=["c"])
    write(table, "abde")
    write(table, "a" if options else "ax", **options)
    with pytest.raises(RejectedError, match=r"in 1 partition: 1 \(from the first key to c\)\. Compact") as caught:
        found(table)
    assert caught.value.code is Code.ROWS_NOT_MERGED
    compact_all(table)
    assert sum(live.file.rows - len(live.hidden) for live in found(table).files.values()) == len(
        table.scan().read_all()
    )


def test_sums_without_common_keys_need_no_compaction(memory_lake):
    table = made(memory_lake, Aggregate({"v": "sum"}))
    assert follow(table, [lambda: write(table, "ace"), lambda: write(table, "bd")]) == [["ace"], ["ace", "bd"]]


def test_what_was_published_is_enough_to_go_on(memory_lake):
    table = made(memory_lake, Latest())
    write(table, "abcd")
    write(table, "bc")
    known = found(table)
    stored = position_deletes({name: live.hidden for name, live in known.files.items()})
    again = LiveFiles.published(known.head, read_position_deletes(stored))
    write(table, "ad")
    assert keys_hidden(table, found(table, again)) == keys_hidden(table, found(table)) == ["ABCD", "bc", "ad"]
