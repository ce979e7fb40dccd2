"""Texts that SQL compares with a UUID column become bytes; no others do."""

import pytest

from lakebed.engine.uuid_literals import with_bytes

TEXT, BYTES = "'6f9619ff-8b86-d011-b42d-00c04fc964ff'", "X'6f9619ff8b86d011b42d00c04fc964ff'"


@pytest.mark.parametrize(
    "form",
    [
        "id = {}", "id<>{}", "t.id >= {}", '"my id" != {}', "{} = id", "{} <= t.id", "id IN ({}, {})",
        "id in ('a', {})", "NOT id NOT IN ({})", "id BETWEEN {} AND {}", "id NOT BETWEEN {} AND {} AND n = 1",
        "x = 1 AND (id = {})", "id IS DISTINCT FROM {}", "{} is not distinct from t.id", "t.id IS NOT DISTINCT FROM {}",
        "id IN ({}, NULL, {})", "id BETWEEN X'00' AND {}",
        "id not between x'00' and {} AND n = 1", "id NOT IN (f(1, (2)), {}, X'00', {})",
    ],
)  # fmt: skip
def test_a_text_beside_a_uuid_column_becomes_bytes(form):
    assert with_bytes(form.replace("{}", TEXT), {"id", "my id"}) == form.replace("{}", BYTES)


OTHERS = [
    "name = {}", "'id = ' || {}", "f({})", "id = 'abc'", "name IN ({})", "1 AND {} = name", "{}",
    "id IN (SELECT {}, name FROM t)", "id IN (f({}, {}))", "SELECT DISTINCT FROM {}", "({}, id)", ") {}",
]  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_stay(text):
    text = text.replace("{}", TEXT)
    assert with_bytes(text, {"id"}) == text
