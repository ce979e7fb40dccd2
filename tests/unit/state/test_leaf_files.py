"""What leaves refer to: like a dictionary of lists, over any base, and no look at the base without need."""

from hypothesis import given
from hypothesis import strategies as st

from lakebed.files import LeafFile
from lakebed.state import leaf_files
from lakebed.state.columns import Columns
from lakebed.state.forms import REFERENCES
from lakebed.state.leaf_files import LeafFiles
from tests.unit.state.cases import new_file

LEAVES = st.integers(1, 4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "again", "rest"]), st.sets(LEAVES), st.integers(0, 2)), max_size=12
)


def held(name, rows=2):
    new = new_file(name, "ab")
    return LeafFile(new.file, rows, rows == 2, new.run)


@given(STEPS)
def test_whatever_comes_and_goes_each_state_stays_what_it_was(steps):
    made = [(LeafFiles(), {})]
    for number, (what, leaves, place) in enumerate(steps):
        files, model = made[-1]
        model = {leaf: list(every) for leaf, every in model.items()}
        if what == "add":
            came = {leaf: [held(f"f{number}", leaf), held(f"g{number}")] for leaf in leaves}
            files = files.added(came)
            for leaf, every in came.items():
                model[leaf] = [*model.get(leaf, ()), *every]
        elif what == "drop":
            gone = {leaf: {model[leaf].pop(place % len(model[leaf])).file.id} for leaf in leaves if model.get(leaf)}
            files = files.dropped(gone)
        elif what == "again":
            # As a chain does, which only gives them another run.
            again = {leaf: model[leaf].pop(place % len(model[leaf])) for leaf in leaves if model.get(leaf)}
            files = files.dropped({leaf: {one.file.id} for leaf, one in again.items()})
            files = files.added({leaf: [one] for leaf, one in again.items()})
            for leaf, one in again.items():
                model[leaf].append(one)
        else:
            then = made[max(0, len(made) - 1 - place)][0]
            base = then.base if isinstance(then.base, Columns) else Columns(REFERENCES)
            rested = files.resting_on(then.rested(base.rewritten(then.changes)), then)
            assert (rested is files) == (then.base is not files.base)
            assert then is not files or dict(rested.changes) == {}
            files = rested
        made.append((files, {leaf: every for leaf, every in model.items() if every}))
    for files, model in (*made, *reversed(made)):
        assert dict(files) == {leaf: tuple(every) for leaf, every in model.items()}
        assert len(files) == len(model)
        assert set(files) == set(model)
        assert [leaf in files for leaf in range(6)] == [leaf in model for leaf in range(6)]


class Unread(dict):
    """A base that must not be asked."""

    def __getitem__(self, leaf):
        raise AssertionError(leaf)

    get = __contains__ = __getitem__


def test_a_leaf_that_did_not_change_is_put_together_once():
    base = Columns(REFERENCES).rewritten({1: (held("f1"),), 2: (held("f2"),)})
    files = LeafFiles(base)
    first = files[1]
    later = files.added({2: [held("f3")]})
    assert later[1] is first
    assert [one.file.id for one in later[2]] == ["f2", "f3"]
    assert [one.file.id for one in files[2]] == ["f2"]


def test_no_more_is_at_hand_than_the_bound(monkeypatch):
    monkeypatch.setattr(leaf_files, "AT_HAND_MAX", 3)
    files = LeafFiles(Columns(REFERENCES).rewritten({leaf: (held("f1"),) for leaf in range(10)}))
    for leaf in range(10):
        assert files[leaf] == (held("f1"),)
        assert len(files._at_hand._held) <= 3


def test_to_add_a_file_is_not_to_look_at_the_leaf():
    files = LeafFiles(Unread()).added({1: [held("f1")], 2: [held("f1")]}).added({1: [held("f2")]})
    assert set(files.changes) == {1, 2}


def test_what_is_at_hand_stays_so_when_the_state_rests_on_new_columns():
    base = Columns(REFERENCES).rewritten({1: (held("f1"),), 2: (held("f2"),)})
    files = LeafFiles(base).added({2: [held("f3")]})
    first, second = files[1], files[2]
    rested = files.rested(Unread())
    assert (rested[1], rested[2]) == (first, second)
    later = files.added({1: [held("f4")]}).resting_on(rested, files)
    assert later[2] is second
    assert later[1] == (*first, held("f4"))
