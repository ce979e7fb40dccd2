"""The catalog's changes: each is applied, survives its document, or is refused with a reason."""

import json

import pytest

from lakebed.errors import Code, DamagedError, UsageError
from lakebed.model.state.catalog import (
    CatalogState,
    CatalogTable,
    FenceCreations,
    PauseOperations,
    PurgeTable,
    RegisterTable,
    RenameTable,
    ReplaceTable,
    SetDefaults,
    SetOnline,
    apply,
    decode_change,
    decode_state,
    encode_state,
    resolve,
)
from lakebed.model.state.fields import encode
from lakebed.model.state.transactions import Rejected
from tests.raising import raises

GC, INGEST = "gc", "ingest"
STATE = CatalogState(7, {"a": CatalogTable("a", "flights")}, {"split_rows": 10}, creations_from=5)

APPLIED = {
    RegisterTable("b", "planes", 6): CatalogState(
        8, {**STATE.tables, "b": CatalogTable("b", "planes")}, STATE.defaults, 5
    ),
    RegisterTable("b", "planes", 6, online=False): CatalogState(
        8, {**STATE.tables, "b": CatalogTable("b", "planes", online=False)}, STATE.defaults, 5
    ),
    RenameTable("a", "planes"): CatalogState(8, {"a": CatalogTable("a", "planes")}, STATE.defaults, 5),
    PurgeTable("a"): CatalogState(8, {}, STATE.defaults, 5),
    SetOnline("a", online=False): CatalogState(8, {"a": CatalogTable("a", "flights", online=False)}, STATE.defaults, 5),
    PauseOperations("a", (GC, INGEST), paused=True): CatalogState(
        8, {"a": CatalogTable("a", "flights", paused=frozenset({GC, INGEST}))}, STATE.defaults, 5
    ),
    FenceCreations(): CatalogState(8, STATE.tables, STATE.defaults, 8),
}
DEFAULTS = SetDefaults({"split_rows": None, "file_bytes": 4096})

REFUSED = [
    (RegisterTable("b", "flights", 6), "a table named 'flights' exists already"),
    (RegisterTable("b", "planes", 4), "were deleted meanwhile; create the table again"),
    (RenameTable("a", "flights"), "a table named 'flights' exists already"),
    (RenameTable("b", "planes"), "the table is gone"),
    (PurgeTable("b"), "the table is gone"),
    (SetOnline("b", online=True), "the table is gone"),
    (PauseOperations("b", (GC,), paused=True), "the table is gone"),
]


@pytest.mark.parametrize("change", APPLIED, ids=repr)
def test_a_change_is_applied_and_survives_its_document(change):
    assert resolve(change, STATE) == change
    assert apply(STATE, change, 8) == APPLIED[change]
    assert decode_change(encode(change)) == change
    assert decode_state(encode_state(APPLIED[change])) == APPLIED[change]


BOTH = CatalogState(7, {**STATE.tables, "b": CatalogTable("b", "flights__new")})


def test_a_replacement_takes_the_name_and_the_other_table_out_of_the_catalog_in_one_entry():
    changes = resolve(ReplaceTable("b", "flights", "a"), BOTH)
    assert changes == (PurgeTable("a"), RenameTable("b", "flights"))
    after = BOTH
    for change in changes:
        after = apply(after, change, 8)
    assert after.tables == {"b": CatalogTable("b", "flights")}
    assert resolve(ReplaceTable("b", "gone", "a"), BOTH) == (RenameTable("b", "gone"),)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ReplaceTable("c", "flights", "a"), Code.TABLE_DROPPED),
        (ReplaceTable("b", "flights", "c"), Code.TABLE_EXISTS),
        (ReplaceTable("a", "flights", "a"), Code.TABLE_EXISTS),
    ],
    ids=repr,
)
def test_a_replacement_drops_no_table_but_the_one_that_it_names(change, code):
    assert resolve(change, BOTH).code is code


def test_a_replacement_is_never_stored():
    with raises(Code.FORMAT_TOO_NEW):
        decode_change(encode(ReplaceTable("b", "flights", "a")))


def test_a_resumption_ends_the_pause_of_what_it_names():
    paused = apply(STATE, PauseOperations("a", (GC, INGEST), paused=True), 8)
    assert apply(paused, PauseOperations("a", (GC,), paused=False), 9).tables["a"].paused == {INGEST}


def test_a_default_of_none_is_taken_back():
    assert apply(STATE, DEFAULTS, 8).defaults == {"file_bytes": 4096}
    assert decode_change(encode(DEFAULTS)) == DEFAULTS


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=repr)
def test_a_change_that_does_not_fit_is_refused_and_is_damage_in_a_log(change, reason):
    refused = resolve(change, STATE)
    assert isinstance(refused, Rejected)
    assert reason in refused.reason
    with pytest.raises(DamagedError, match="catalog entry 8 does not fit the catalog"):
        apply(STATE, change, 8)


def test_a_change_of_values_that_the_format_does_not_have_is_not_written():
    with pytest.raises(UsageError, match="nothing was written"):
        encode(RenameTable("a", 7))


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"type": "split_catalog"}, Code.FORMAT_TOO_NEW),
        ({}, Code.DOCUMENT_DAMAGED),
        ({"type": "rename_table", "table": "a"}, Code.DOCUMENT_DAMAGED),
        ({"type": "rename_table", "table": "a", "name": 7}, Code.DOCUMENT_DAMAGED),
    ],
)
def test_a_document_that_is_no_change_is_refused(document, code):
    with raises(code):
        decode_change(json.dumps(document).encode())
