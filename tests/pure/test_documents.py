"""JSON is read by one function, which knows what can be wrong with it."""

import pytest

from lakebed.errors import Code, DamagedError
from lakebed.model.documents import dump, load, reading


def test_what_is_written_is_read():
    document = {"a": [1, 2.5, None, True, "ä\0"], "b": {}}
    assert load(dump(document)) == document
    assert load('"text"') == "text"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"NaN", b"[Infinity]", b"-Infinity", b"\xff", b"\xef\xbb\xbf{}", b"1" * 5_000, b"[" * 100_000, b"{}{}"],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_json_is_one_kind_of_error(data):
    with pytest.raises(ValueError):
        load(data)


def test_numbers_that_json_has_not_are_not_written():
    for version in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            dump(version)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k"),
        IndexError(),
        TypeError(),
        ValueError(),
        AttributeError(),
        RecursionError(),
        Code.ARGUMENT_INVALID("u"),
    ],
)
def test_a_document_that_makes_no_sense_is_damage(error):
    with pytest.raises(DamagedError, match="not a thing") as raised, reading("not a thing", name="it"):
        raise error
    assert raised.value.facts == {"name": "it"}
    assert raised.value.__cause__ is error


def test_damage_and_newer_formats_are_reported_as_such():
    for error in (Code.OBJECT_DAMAGED("d"), Code.FORMAT_TOO_NEW("f")):
        with pytest.raises(type(error), match=error.message), reading("not a thing"):
            raise error
