"""What partitions refer to: like a dictionary of lists, over any base, and no look at the base without need."""

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import PartitionFile
from lakebed.model.state.columnar_codecs import REFERENCES
from lakebed.model.state.columns import Columns
from lakebed.model.state.partition_files import CACHED_MAX, PartitionFiles
from tests.pure.state.cases import new_file

PARTITIONS = st.integers(1, 4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "again", "rest"]), st.sets(PARTITIONS), st.integers(0, 2)), max_size=12
)


def held(name, rows=2):
    new = new_file(name, "ab")
    return PartitionFile(new.file, rows, rows == 2, new.run)


@given(STEPS)
def test_whatever_comes_and_goes_each_state_stays_what_it_was(steps):
    made = [(PartitionFiles(), {})]
    for version, (what, partitions, place) in enumerate(steps):
        files, model = made[-1]
        model = {partition: list(every) for partition, every in model.items()}
        if what == "add":
            came = {partition: [held(f"f{version}", partition), held(f"g{version}")] for partition in partitions}
            files = files.add(came)
            for partition, every in came.items():
                model[partition] = [*model.get(partition, ()), *every]
        elif what == "drop":
            gone = {
                partition: {model[partition].pop(place % len(model[partition])).file.id}
                for partition in partitions
                if model.get(partition)
            }
            files = files.drop(gone)
        elif what == "again":
            # As a chain does, which only gives them another run.
            again = {
                partition: model[partition].pop(place % len(model[partition]))
                for partition in partitions
                if model.get(partition)
            }
            files = files.drop({partition: {one.file.id} for partition, one in again.items()})
            files = files.add({partition: [one] for partition, one in again.items()})
            for partition, one in again.items():
                model[partition].append(one)
        else:
            then = made[max(0, len(made) - 1 - place)][0]
            base = then.base if isinstance(then.base, Columns) else Columns(REFERENCES)
            rebased = files.rebased_onto(then.rebased(base.rewritten(then.changes)), then)
            assert (rebased is files) == (then.base is not files.base)
            assert then is not files or dict(rebased.changes) == {}
            files = rebased
        made.append((files, {partition: every for partition, every in model.items() if every}))
    for files, model in (*made, *reversed(made)):
        assert dict(files) == {partition: tuple(every) for partition, every in model.items()}
        assert len(files) == len(model)
        assert set(files) == set(model)
        assert [partition in files for partition in range(6)] == [partition in model for partition in range(6)]


class Unread(dict):
    """A base that must not be asked."""

    def __getitem__(self, partition):
        raise AssertionError(partition)

    get = __contains__ = __getitem__


def test_a_partition_that_did_not_change_is_put_together_once():
    base = Columns(REFERENCES).rewritten({1: (held("f1"),), 2: (held("f2"),)})
    files = PartitionFiles(base)
    first = files[1]
    later = files.add({2: [held("f3")]})
    assert later[1] is first
    assert [one.file.id for one in later[2]] == ["f2", "f3"]
    assert [one.file.id for one in files[2]] == ["f2"]


def test_no_more_is_at_hand_than_the_bound():
    count = CACHED_MAX + 10
    files = PartitionFiles(Columns(REFERENCES).rewritten({partition: (held("f1"),) for partition in range(count)}))
    for partition in range(count):
        assert files[partition] == (held("f1"),)
        assert len(files._cache._held) <= CACHED_MAX


def test_to_add_a_file_is_not_to_look_at_the_partition():
    files = PartitionFiles(Unread()).add({1: [held("f1")], 2: [held("f1")]}).add({1: [held("f2")]})
    assert set(files.changes) == {1, 2}


def test_what_is_at_hand_stays_so_when_the_state_rests_on_new_columns():
    base = Columns(REFERENCES).rewritten({1: (held("f1"),), 2: (held("f2"),)})
    files = PartitionFiles(base).add({2: [held("f3")]})
    first, second = files[1], files[2]
    rebased = files.rebased(Unread())
    assert (rebased[1], rebased[2]) == (first, second)
    later = files.add({1: [held("f4")]}).rebased_onto(rebased, files)
    assert later[2] is second
    assert later[1] == (*first, held("f4"))
