"""What a field may be is checked when a document is written and when it is read, by one table."""

import functools
import json
from typing import get_args

import pytest

from lakebed.errors import Code, DamagedError, Error, UnsupportedFormatError, UsageError
from lakebed.model.state import catalog, fields
from lakebed.model.state.catalog import CatalogState, CatalogTable, SetDefaults, SetOnline
from lakebed.model.state.checkpoint_codec import of_table, to_table
from lakebed.model.state.codec import decode_transaction, encode_transaction, outline
from lakebed.model.state.table_state import IngestRequest, Source
from lakebed.model.state.transactions import (
    AddFiles,
    AlterSettings,
    RemoveTag,
    SetTag,
    StoredTransaction,
    SubmitRequests,
)
from tests.golden.history import everything

TRANSACTIONS, STATES = everything()
STRANGE = [None, True, 7, -1, 2**63, 0.5, "a text", "\ud800", "../x", [], [[]], ["x", 7], {}, {"sidecar": 7}]


OPTIONAL = {"view"}
"""Fields that a document does not have if they are null."""


@functools.cache
def documents():
    """One of each type of transaction, as it is written."""
    found = [json.loads(encode_transaction(each).document) for each in TRANSACTIONS]
    return {document["type"]: document for document in found}


def as_line(document):
    """Its JSON; half of a surrogate pair is an escape in it, as another program may write it."""
    return json.dumps(document).encode()


def kinds_of(document, path=()):
    """Every place in a document, with the value there."""
    yield path, document
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in items:
        yield from kinds_of(value, (*path, name))


def with_value(document, path, value):
    """A copy of the document with another value in that place."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = with_value(document[path[0]], path[1:], value)
    return copy


def test_there_is_a_document_of_every_type():
    assert set(documents()) == {stored.__struct_config__.tag for stored in get_args(StoredTransaction)}


@pytest.mark.parametrize("name", documents())
def test_a_document_without_one_of_its_fields_is_damage(name):
    """Also where a value has a default in the program; but not of the fields of a schema, which checks itself."""
    for path, value in kinds_of(documents()[name]):
        for field in value if isinstance(value, dict) and not {"schema", "settings", "changes"} & set(path) else ():
            if field in OPTIONAL:
                continue
            mangled = with_value(documents()[name], path, {k: v for k, v in value.items() if k != field})
            with pytest.raises(DamagedError) as raised:
                decode_transaction(as_line(mangled))
            assert raised.value.code is Code.DOCUMENT_DAMAGED


def test_a_field_that_a_newer_version_added_is_ignored():
    for document in documents().values():
        assert decode_transaction(as_line(document | {"new": [1]})) == decode_transaction(as_line(document))


@pytest.mark.parametrize("name", documents())
def test_a_field_of_another_type_is_damage_and_nothing_else(name):
    """Or it may have that value: then it is read as that very value, and is written again."""
    document = documents()[name]
    assert json.loads(encode_transaction(decode_transaction(as_line(document))).document) == document
    for path, _ in kinds_of(document):
        if not path or "schema" in path[:-1]:
            continue
        for value in STRANGE:
            if value is None and path[-1] in OPTIONAL:
                continue
            strange = with_value(document, path, value)
            try:
                again = json.loads(encode_transaction(decode_transaction(as_line(strange))).document)
            except (DamagedError, UnsupportedFormatError):
                continue
            assert json.dumps(again) == json.dumps(strange), (path, value, again)


@pytest.mark.parametrize("name", documents())
def test_an_outline_of_a_strange_document_is_damage_or_tells_numbers(name):
    for path, _ in kinds_of(documents()[name]):
        for value in STRANGE if path else ():
            try:
                outlined = outline(as_line(with_value(documents()[name], path, value)))
            except Error:
                continue
            assert type(outlined.added.references) is int


def test_a_state_with_a_field_of_another_type_is_damage():
    document = json.loads(json.dumps(of_table(STATES[-2]).document))
    assert to_table(document, {}).version == STATES[-2].version
    for name in document:
        for value in (0.5, "a text", [[None]], {"x": None}):
            if name == "table" and isinstance(value, str):
                continue
            with pytest.raises(DamagedError) as raised:
                to_table(document | {name: value}, {})
            assert raised.value.code is Code.DOCUMENT_DAMAGED


@pytest.mark.parametrize(
    "transaction",
    [
        AddFiles((), (), 7, 1),
        AddFiles((), (), "key", True),
        AddFiles((), (), "key", 2**63),
        AddFiles((), (), "\ud800", 1),
        AlterSettings({"split_rows": float("nan")}),
        AlterSettings({"split_rows": True}),
        SetTag("tag", 1.0),
        SetTag("../tag", 1),
        RemoveTag(b"tag"),
        SubmitRequests((IngestRequest.new("r", (Source("/dev/zero", None, "0"),), 0),), 0),
    ],
)
def test_a_value_of_a_wrong_type_is_not_written(transaction):
    with pytest.raises(UsageError, match="nothing was written"):
        encode_transaction(transaction)


@pytest.mark.parametrize("change", [SetOnline("table-00", "no"), SetDefaults({"split_rows": float("inf")})])
def test_the_catalog_is_held_to_its_types_as_well(change):
    with pytest.raises(UsageError, match="nothing was written"):
        fields.encode(change)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "register_table", "table": "../..", "name": "t", "base_version": 0},
        {"type": "register_table", "table": "table-00", "name": 7, "base_version": 0},
        {"type": "register_table", "table": "table-00", "name": "t"},
        {"type": "set_online", "table": "table-00", "online": 1},
        {"type": "set_defaults", "changes": {"split_rows": True}},
        {"type": "purge_table"},
    ],
)
def test_a_strange_change_of_the_catalog_is_damage(document):
    with pytest.raises(DamagedError) as raised:
        catalog.decode_change(as_line(document))
    assert raised.value.code is Code.DOCUMENT_DAMAGED


def test_a_strange_state_of_the_catalog_is_damage():
    document = json.loads(
        json.dumps(catalog.encode_state(CatalogState(1, {"table-00": CatalogTable("table-00", "t")})))
    )
    assert catalog.decode_state(document).named("t")
    for name in document:
        with pytest.raises(DamagedError) as raised:
            catalog.decode_state(document | {name: "a text"})
        assert raised.value.code is Code.DOCUMENT_DAMAGED
