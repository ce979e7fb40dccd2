"""What partitions hold, in numbers: the same over the parts of a checkpoint, over changes, and over both."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakebed.model.files import CommittedFile, PartitionFile
from lakebed.model.state.columnar_codecs import FILES as FILES_CODEC
from lakebed.model.state.columnar_codecs import REFERENCES
from lakebed.model.state.columns import Columns
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.sums import (
    UnreferencedFiles,
    file_sizes,
    partition_sums,
    sums_of,
    table_rows,
    unreferenced_files,
)
from lakebed.model.state.table_state import TableState
from tests.pure.state.cases import new_file

HELD = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=4, unique_by=lambda one: one[0]
)
PARTITIONS = st.dictionaries(st.integers(1, 5), HELD)


FILES = {f"f{number}": CommittedFile(1, 1, 1, references=max(1, number)) for number in range(5)}
"""Of one partition: so the first two are referenced by all partitions that they reach, as far as this says."""


def partition_files(facts):
    """File version, rows in the partition, exact; files 1 and 2 are one run."""
    files = [new_file(f"f{number}", "abcd"[: 1 + number % 4], run=f"{max(2, number)}").file for number in range(5)]
    return [PartitionFile(files[version], rows, exact, f"{max(2, version)}") for version, rows, exact in facts]


@given(PARTITIONS, PARTITIONS, st.sets(st.integers(1, 5)))
def test_sums_are_those_of_one_partition_after_another(before, came, gone):
    below = {partition: tuple(partition_files(facts)) for partition, facts in before.items() if facts}
    changes = {partition: partition_files(facts) for partition, facts in came.items()}
    for base in (below, Columns(REFERENCES).rewritten(below)):
        files = PartitionFiles(base).drop(
            {partition: {one.file.id for one in below[partition]} for partition in gone if partition in below}
        )
        state = TableState(references=files.add(changes))
        every = [one for held in state.references.values() for one in held]
        assert partition_sums(state) == {
            partition: sums_of(partition, held) for partition, held in state.references.items()
        }
        assert file_sizes(state) == {one.file.id: one.file.size_bytes for one in every}
        assert all(type(size) is int for size in file_sizes(state).values())
        assert all(type(value) in {int, bool} for sums in partition_sums(state).values() for value in sums)
        assert table_rows(replace(state, files=FILES)) == added_up(every)


UNREFERENCED = st.dictionaries(st.integers(0, 4).map("f{}".format), st.sampled_from([None, 10, 20]))


@given(UNREFERENCED, st.dictionaries(st.integers(0, 4).map("f{}".format), st.sampled_from(["gone", None, 30])))
def test_files_without_references_are_counted_in_segments_and_in_changes(before, changes):
    """A value is the bytes of a file without references, and None stands for a file with some."""

    def committed(name, size):
        facts = None if size is None else replace(new_file(name, "ab").file, size_bytes=size)
        return CommittedFile(1, 1, 1, dropped=None if size is None else 2, references=int(size is None), file=facts)

    below = {name: committed(name, size) for name, size in before.items()}
    now = {name: committed(name, size) for name, size in changes.items() if size != "gone"}
    gone = [name for name, size in changes.items() if size == "gone" and name in below]
    sizes = [one.file.size_bytes for name, one in (below | now).items() if name not in gone and one.file is not None]
    for base in (below, Columns(FILES_CODEC).rewritten(below)):
        state = TableState(files=PersistentTable(base).updated(now, gone))
        assert unreferenced_files(state) == UnreferencedFiles(len(sizes), sum(sizes))


def added_up(every):
    """Rows, and how many they may be off: a file with an estimated share has its rows, or at most those left."""
    rows = error_rows = 0
    for held in ([one for one in every if one.file.id == name] for name in FILES):
        known = sum(one.rows for one in held if one.exact)
        guesses = [one.rows for one in held if not one.exact]
        rows += known + sum(guesses)
        left = max(0, held[0].file.rows - known) if held else 0
        if guesses and held[0].file.id in {"f0", "f1"}:
            rows += left - sum(guesses)
        elif guesses:
            error_rows += max(sum(guesses), left - sum(guesses))
    return rows, error_rows


def test_shares_of_the_largest_files_do_not_overflow():
    new = new_file("f1", "ab").file
    file = type(new)(**{**{name: getattr(new, name) for name in new.__slots__}, "rows": 2**31, "size_bytes": 2**40})
    held = (PartitionFile(file, 2**31 - 1, True, "r"),)
    state = TableState(references=PartitionFiles(Columns(REFERENCES).rewritten({1: held})))
    assert partition_sums(state)[1].size_bytes == 2**40 * (2**31 - 1) // 2**31


def test_sums_are_computed_once_for_a_state_and_anew_for_the_next():
    state = TableState(references=PartitionFiles({1: tuple(partition_files([(2, 3, True)]))}))
    assert partition_sums(state) is partition_sums(state)
    added = replace(state, references=state.references.add({1: partition_files([(3, 4, True)])}))
    assert (partition_sums(state)[1].rows, partition_sums(added)[1].rows) == (3, 7)
