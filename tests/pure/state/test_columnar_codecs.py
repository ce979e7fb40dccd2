"""How references lie in a part: the facts of a file once, beside those of the others of its partition."""

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import PartitionFile
from lakebed.model.state.columnar_codecs import REFERENCES
from lakebed.model.state.columns import Columns, Segment
from tests.pure.state.cases import new_file

PARTITIONS = st.dictionaries(
    st.integers(0, 9), st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), max_size=8
)


def partition_files(versions, partition=1):
    """A partition's files by version; every third has a run of its own in each partition, and ids are not all ASCII."""
    found = []
    for version in versions:
        new = new_file(
            f"é{version}" if version % 2 else f"f{version}", "ab", run=f"{version % 3 and version}-{partition % 2}"
        )
        found.append(PartitionFile(new.file, partition + version, bool(version % 2), new.run))
    return tuple(found)


def segment(partitions):
    return REFERENCES.pack(
        REFERENCES.encode([(partition, partition_files(n, partition)) for partition, n in sorted(partitions.items())])
    )


def test_a_file_is_there_once_and_those_of_a_partition_lie_side_by_side():
    batch = segment({2: [4], 4: [2, 4], 6: [0, 4, 2]})
    assert [[file["id"] for file in files] for files in batch["files"].to_pylist()] == [["f4"], ["f2"], ["f0"]]
    assert batch["file"].to_pylist() == [[0], [1, 0], [2, 0, 1]]


@given(PARTITIONS)
def test_a_segment_gives_back_what_went_in(partitions):
    expected = {partition: partition_files(versions, partition) for partition, versions in partitions.items()}
    if not partitions:
        return
    batch = segment(partitions)
    assert dict(Columns(REFERENCES, [Segment.of(REFERENCES, batch)])) == expected
    assert REFERENCES.pack(REFERENCES.unpack(batch)).equals(batch)


@given(PARTITIONS, PARTITIONS, st.sets(st.integers(0, 9)))
def test_a_part_rewritten_says_no_more_than_its_segmentitions(before, after, gone):
    """A file whose last partition in the part went is not there any more; one that is in both is there once."""
    changes = {
        **dict.fromkeys(gone),
        **{partition: partition_files(versions, partition) for partition, versions in after.items()},
    }
    held = (
        Columns(REFERENCES)
        .rewritten({partition: partition_files(n, partition) for partition, n in before.items()})
        .rewritten(changes)
    )
    expected = {partition: partition_files(n, partition) for partition, n in before.items()} | changes
    expected = {partition: files for partition, files in expected.items() if files is not None}
    assert dict(held) == expected
    for batch in (one.rows().batch for one in held.segments):
        said = [(file["id"], file["run"]) for file in batch["files"].flatten().to_pylist()]
        assert len(said) == len(set(said))
        assert set(said) == {(one.file.id, one.run) for files in expected.values() for one in files}
