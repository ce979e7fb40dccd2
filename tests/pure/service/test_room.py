"""Room that is shared among principals: what one leaves to the others, and which is served first."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.server.service.room import Room, TakenRoom


def taken(room: Room, holder: str, count: int) -> list[TakenRoom]:
    found = [room.take(holder) for _ in range(count)]
    return [one for one in found if one is not None]


def test_one_principal_gets_three_quarters_and_the_last_one_is_for_others() -> None:
    room = Room("answers", 4)
    assert len(taken(room, "eve", 10)) == 3
    assert len(taken(room, "bob", 10)) == 1


@pytest.mark.parametrize(("capacity", "share"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (100, 75)])
def test_what_one_principal_may_have(capacity: int, share: int) -> None:
    assert len(taken(Room("answers", capacity), "eve", 200)) == share


def test_the_principal_with_least_is_served_first() -> None:
    room = Room("answers", 3, share=3)
    eve = taken(room, "eve", 2)
    taken(room, "ann", 1)
    more, bob = room.ask("eve"), room.ask("bob")
    eve[0].free()
    assert (more.done(), bob.done()) == (False, True)


def test_a_full_queue_refuses_and_says_so() -> None:
    room = Room("answers", 1, queue_max=2)
    taken(room, "eve", 1)
    room.ask("eve"), room.ask("eve")
    with pytest.raises(lakebed.ContentionError, match="no room for more answers of eve"):
        room.ask("eve")
    room.ask("bob")
    assert (room.use().waiting, room.use().refused) == (3, 1)


def test_a_small_request_does_not_overtake_a_large_one_that_has_waited_longer() -> None:
    room = Room("bytes", 100, share=100)
    first = room.take("ann", 60)
    assert first is not None
    large, small = room.ask("bob", 80), room.ask("cat", 10)
    assert not small.done()
    assert room.take("dan", 10) is None
    first.free()
    assert large.done()
    assert small.done()


def test_a_request_that_went_away_leaves_its_turn() -> None:
    room = Room("answers", 1)
    (place,) = taken(room, "eve", 1)
    gone, stays = room.ask("bob"), room.ask("bob")
    assert gone.cancel()
    place.free()
    place.free()
    assert stays.done()
    assert room.use().used == 1


Step = tuple[str, str, int]


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from(["ask", "take", "free", "leave"]), st.sampled_from("abc"), st.integers(1, 9))),
)
def test_the_room_is_never_more_than_full_and_free_room_is_given(capacity: int, steps: list[Step]) -> None:
    room = Room("answers", capacity, queue_max=100)
    share = max(1, capacity - max(1, capacity // 4))
    asked: list[Future[TakenRoom]] = []
    places: list[TakenRoom] = []
    for kind, holder, size in steps:
        if kind == "ask":
            asked.append(room.ask(holder, size))
        elif kind == "take":
            places += [place for place in [room.take(holder, size)] if place is not None]
        elif kind == "free" and places:
            places.pop(size % len(places)).free()
        elif kind == "leave" and asked:
            asked.pop(size % len(asked)).cancel()
        places += [one.result() for one in asked if one.done() and not one.cancelled()]
        asked = [one for one in asked if not one.done()]
        held = [(one.holder, one.size) for one in places if one.is_held]
        assert room.use().used == sum(size for _, size in held) <= capacity
        assert all(sum(size for name, size in held if name == one) <= share for one in "abc")
    for place in places:
        place.free()
    while waiting := [one for one in asked if not one.cancelled()]:
        given_now = [one for one in waiting if one.done()]
        assert given_now, "room is free, and no operation gets it"
        for one in given_now:
            one.result().free()
            asked.remove(one)
    assert room.use().used == 0
