"""Messages of logical replication: what is encoded here by the protocol's page is decoded, and nothing else."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.upkeep.follow.pgoutput import UNCHANGED, Commit, Decoder

COLUMNS = ("id", "text", "größe")

values = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))
rows = st.lists(values, min_size=3, max_size=3)
changes = st.one_of(
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("update"), st.none() | rows, rows),
    st.tuples(st.just("delete"), rows),
    st.tuples(st.just("truncate")),
)


def tuple_data(row):
    parts = [pack("!H", len(row))]
    for value in row:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + pack("!I", len(value)) + value)
    return b"".join(parts)


def message(change, oid=7):
    kind, *found = change
    if kind == "insert":
        return b"I" + pack("!I", oid) + b"N" + tuple_data(found[0])
    if kind == "update":
        old = b"" if found[0] is None else b"O" + tuple_data(found[0])
        return b"U" + pack("!I", oid) + old + b"N" + tuple_data(found[1])
    if kind == "delete":
        return b"D" + pack("!I", oid) + b"K" + tuple_data(found[0])
    return b"T" + pack("!IBI", 1, 0, oid)


def relation(oid=7, name="orders"):
    columns = b"".join(
        bytes([number == 0]) + column.encode() + b"\0" + pack("!Ii", 25, -1) for number, column in enumerate(COLUMNS)
    )
    return b"R" + pack("!I", oid) + b"public\0" + name.encode() + b"\0d" + pack("!H", len(COLUMNS)) + columns


def begin(at):
    return b"B" + pack("!qqi", at, 0, 1)


def commit(end):
    return b"C" + pack("!Bqqq", 0, end - 8, end, 1_000_000)


class Kept:
    """Keeps what a decoder calls."""

    def __init__(self):
        self.taken = []

    def insert(self, row):
        self.taken.append(("insert", row))

    def update(self, old, row):
        self.taken.append(("update", old, row))

    def delete(self, old):
        self.taken.append(("delete", old))

    def truncate(self):
        self.taken.append(("truncate",))


@given(st.lists(changes, max_size=20))
def test_changes_are_decoded_in_their_order(wanted):
    kept = Kept()
    decoder = Decoder(lambda found, at: kept)
    messages = [begin(100), relation(), *map(message, wanted), commit(200)]
    assert [decoder.take(one) for one in messages][-1] == Commit(200, 946_684_801_000_000)
    assert kept.taken == wanted
    assert not decoder.in_transaction


def test_a_relation_names_its_columns_and_those_of_its_key():
    found = []
    decoder = Decoder(lambda relation, at: found.append((relation, at)))
    for one in (begin(100), relation(), message(("insert", [None] * 3))):
        decoder.take(one)
    ((described, at),) = found
    assert at == 100
    assert (described.namespace, described.name, described.identity) == ("public", "orders", "d")
    assert [(one.name, one.identifies) for one in described.columns] == [
        ("id", True),
        ("text", False),
        ("größe", False),
    ]


def test_a_table_that_is_not_followed_is_skipped_and_asked_for_again_in_the_next_transaction():
    asked = []
    kept = Kept()

    def of(found, at):
        asked.append(at)
        return kept if at >= 200 else None

    decoder = Decoder(of)
    row = [b"1", None, b"x"]
    for one in (
        relation(),
        begin(100), message(("insert", row)), message(("insert", row)), commit(150),
        begin(200), message(("insert", row)), commit(250),
    ):  # fmt: skip
        decoder.take(one)
    assert asked == [100, 200]
    assert kept.taken == [("insert", row)]


@given(changes, st.data())
def test_a_message_that_is_cut_off_is_refused(change, data):
    whole = message(change)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    kept = Kept()
    decoder = Decoder(lambda found, at: kept)
    decoder.take(relation())
    with pytest.raises(ValueError, match=r"cut off|unknown kind"):
        decoder.take(cut)
    assert kept.taken == []


@pytest.mark.parametrize("data", [b"?", b"I" + pack("!I", 8) + b"N" + tuple_data([None])])
def test_a_message_of_another_form_is_refused(data):
    decoder = Decoder(lambda found, at: None)
    with pytest.raises(ValueError, match=r"unknown kind|not described"):
        decoder.take(data)
