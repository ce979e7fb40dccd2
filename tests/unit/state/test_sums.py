"""What leaves hold, in numbers: the same over the parts of a snapshot, over changes, and over both."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakebed.files import CommittedFile, LeafFile
from lakebed.state.columns import Columns
from lakebed.state.forms import REFERENCES
from lakebed.state.leaf_files import LeafFiles
from lakebed.state.sums import file_sizes, leaf_sums, sums_of, table_rows
from lakebed.state.table import TableState
from tests.unit.state.cases import new_file

HELD = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=4, unique_by=lambda one: one[0]
)
LEAVES = st.dictionaries(st.integers(1, 5), HELD)


FILES = {f"f{number}": CommittedFile(1, 1, 1, references=max(1, number)) for number in range(5)}
"""Of one leaf: so the first two are referenced by all leaves that they reach, as far as this says."""


def leaf_files(facts):
    """File number, rows in the leaf, exact; files 1 and 2 are one run."""
    files = [new_file(f"f{number}", "abcd"[: 1 + number % 4], run=f"{max(2, number)}").file for number in range(5)]
    return [LeafFile(files[number], rows, exact, f"{max(2, number)}") for number, rows, exact in facts]


@given(LEAVES, LEAVES, st.sets(st.integers(1, 5)))
def test_sums_are_those_of_one_leaf_after_another(before, came, gone):
    below = {leaf: tuple(leaf_files(facts)) for leaf, facts in before.items() if facts}
    changes = {leaf: leaf_files(facts) for leaf, facts in came.items()}
    for base in (below, Columns(REFERENCES).rewritten(below)):
        files = LeafFiles(base).dropped({leaf: {one.file.id for one in below[leaf]} for leaf in gone if leaf in below})
        state = TableState(references=files.added(changes))
        every = [one for held in state.references.values() for one in held]
        assert leaf_sums(state) == {leaf: sums_of(leaf, held) for leaf, held in state.references.items()}
        assert file_sizes(state) == {one.file.id: one.file.size_bytes for one in every}
        assert all(type(size) is int for size in file_sizes(state).values())
        assert all(type(value) in {int, bool} for sums in leaf_sums(state).values() for value in sums)
        assert table_rows(replace(state, files=FILES)) == added_up(every)


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
    held = (LeafFile(file, 2**31 - 1, True, "r"),)
    state = TableState(references=LeafFiles(Columns(REFERENCES).rewritten({1: held})))
    assert leaf_sums(state)[1].size_bytes == 2**40 * (2**31 - 1) // 2**31
