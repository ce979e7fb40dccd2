"""The persistent mapping: like a dictionary, and nothing that was is ever changed."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.state.persistent_table import PersistentTable

KEYS = st.integers(0, 8)
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.integers()), st.sets(KEYS)), max_size=8)


@given(st.dictionaries(KEYS, st.integers()), STEPS)
def test_every_state_stays_what_it_was(base, steps):
    made = [(PersistentTable(base), dict(base))]
    for changed, gone in steps:
        layers, model = made[-1]
        leaving = [key for key in gone if key in model and key not in changed]
        model = {key: value for key, value in {**model, **changed}.items() if key not in leaving}
        made.append((layers.updated(changed, leaving), model))
    for layers, model in made:
        assert layers == model
        assert len(layers) == len(model) == len(list(layers))
        assert {key: layers.get(key) for key in range(9)} == {key: model.get(key) for key in range(9)}
        assert all((key in layers) == (key in model) for key in range(9))
        seen = {**base, **layers.changes}
        assert {key: value for key, value in seen.items() if value is not None} == model


@given(st.dictionaries(KEYS, st.integers()), STEPS, st.integers(0, 8))
def test_a_state_rests_on_what_was_written_of_an_earlier_one(base, steps, earlier):
    made = [PersistentTable(base)]
    for changed, gone in steps:
        made.append(made[-1].updated(changed, [key for key in gone if key in made[-1] and key not in changed]))
    then, now = made[min(earlier, len(made) - 1)], made[-1]
    rebased = now.rebased_onto(written := PersistentTable(dict(then)), then)
    assert rebased.base is written.base
    assert rebased == now
    assert len(rebased) == len(list(rebased)) == len(now)
    assert set(rebased.changes) <= {key for changed, gone in steps[earlier:] for key in {*changed, *gone}}
    assert PersistentTable(dict(base)).rebased_onto(written, then).base is not written.base


class Aged(NamedTuple):
    """A value with an age."""

    age: int


@given(st.dictionaries(KEYS, st.builds(Aged, st.integers(0, 9))), STEPS, st.integers(0, 9))
def test_what_is_less_goes_wherever_it_lies(base, steps, least):
    layers, model = PersistentTable(base), dict(base)
    for changed, gone in steps:
        added = {key: Aged(value % 10) for key, value in changed.items()}
        leaving = [key for key in gone if key in model and key not in changed]
        layers = layers.updated(added, leaving)
        model = {key: value for key, value in {**model, **added}.items() if key not in leaving}
    left = layers.at_least("age", least)
    assert left == {key: value for key, value in model.items() if value.age >= least}
    assert len(left) == len(list(left))
    assert layers == model


def test_what_is_not_there_cannot_go():
    layers = PersistentTable({1: "a"}).updated({}, [1])
    with pytest.raises(KeyError):
        layers.updated({}, [1])
    with pytest.raises(KeyError):
        layers.updated({2: "b"}, [3])
    assert 2 not in layers
