"""How references lie in a part: the facts of a file once, beside those of the others of its leaf."""

from hypothesis import given
from hypothesis import strategies as st

from lakebed.files import LeafFile
from lakebed.state.columns import Columns, Part
from lakebed.state.forms import REFERENCES
from tests.unit.state.cases import new_file

LEAVES = st.dictionaries(
    st.integers(0, 9), st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), max_size=8
)


def leaf_files(numbers, leaf=1):
    """A leaf's files by number; every third has a run of its own in each leaf, and ids are not all ASCII."""
    found = []
    for number in numbers:
        new = new_file(f"é{number}" if number % 2 else f"f{number}", "ab", run=f"{number % 3 and number}-{leaf % 2}")
        found.append(LeafFile(new.file, leaf + number, bool(number % 2), new.run))
    return tuple(found)


def part(leaves):
    return REFERENCES.pack(REFERENCES.encode([(leaf, leaf_files(n, leaf)) for leaf, n in sorted(leaves.items())]))


def test_a_file_is_there_once_and_those_of_a_leaf_lie_side_by_side():
    batch = part({2: [4], 4: [2, 4], 6: [0, 4, 2]})
    assert [[file["id"] for file in files] for files in batch["files"].to_pylist()] == [["f4"], ["f2"], ["f0"]]
    assert batch["file"].to_pylist() == [[0], [1, 0], [2, 0, 1]]


@given(LEAVES)
def test_a_part_gives_back_what_went_in(leaves):
    expected = {leaf: leaf_files(numbers, leaf) for leaf, numbers in leaves.items()}
    if not leaves:
        return
    batch = part(leaves)
    assert dict(Columns(REFERENCES, [Part.of(REFERENCES, batch)])) == expected
    assert REFERENCES.pack(REFERENCES.unpack(batch)).equals(batch)


@given(LEAVES, LEAVES, st.sets(st.integers(0, 9)))
def test_a_part_rewritten_says_no_more_than_its_leaves(before, after, gone):
    """A file whose last leaf in the part went is not there any more; one that is in both is there once."""
    changes = {**dict.fromkeys(gone), **{leaf: leaf_files(numbers, leaf) for leaf, numbers in after.items()}}
    held = Columns(REFERENCES).rewritten({leaf: leaf_files(n, leaf) for leaf, n in before.items()}).rewritten(changes)
    expected = {leaf: leaf_files(n, leaf) for leaf, n in before.items()} | changes
    expected = {leaf: files for leaf, files in expected.items() if files is not None}
    assert dict(held) == expected
    for batch in (one.rows().batch for one in held.parts):
        said = [(file["id"], file["run"]) for file in batch["files"].flatten().to_pylist()]
        assert len(said) == len(set(said))
        assert set(said) == {(one.file.id, one.run) for files in expected.values() for one in files}
