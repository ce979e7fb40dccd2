"""The messages against the bytes that other implementations write, and bytes that are none of them."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2

from lakebed.errors import UsageError
from lakebed.server.flight import catalog_answers, messages


def wire(number: int, kind: int, data: bytes) -> bytes:
    """A field as the protobuf encoding has it; below 16 the tag is one byte."""
    return bytes([number << 3 | kind]) + (bytes([len(data)]) if kind == 2 else b"") + data


def test_fields_are_where_the_specification_has_them():
    assert messages.message("CommandStatementQuery", query="x").SerializeToString() == wire(1, 2, b"x")
    tables = messages.parsed(
        "CommandGetTables",
        wire(1, 2, b"c") + wire(3, 2, b"%") + wire(4, 2, b"A") + wire(4, 2, b"B") + wire(5, 0, b"\x01"),
    )
    assert (tables.catalog, tables.table_name_filter_pattern, list(tables.table_types)) == ("c", "%", ["A", "B"])
    assert tables.include_schema
    assert not tables.HasField("db_schema_filter_pattern")
    option = b"\xc2\x3e" + bytes([6]) + wire(1, 2, b"a") + wire(2, 2, b"b")  # field 1000, of a map
    ingest = messages.parsed("CommandStatementIngest", wire(1, 2, wire(2, 0, b"\x02")) + wire(2, 2, b"t") + option)
    assert (ingest.table, ingest.table_definition_options.if_exists) == ("t", messages.TableExists.APPEND)
    assert [(one.key, one.value) for one in ingest.options] == [("a", "b")]


def test_a_command_travels_inside_any():
    data = messages.packed("CommandStatementQuery", query="SELECT 1")
    assert any_pb2.Any.FromString(data).type_url.endswith("/arrow.flight.protocol.sql.CommandStatementQuery")
    name, command = messages.unpacked(data)
    assert (name, command.query) == ("CommandStatementQuery", "SELECT 1")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "not a command"),
        (b"\xff\xff", "not a command"),
        (any_pb2.Any(type_url="type.googleapis.com/a.b.C").SerializeToString(), "not a command"),
        (
            any_pb2.Any(
                type_url="type.googleapis.com/arrow.flight.protocol.sql.CommandStatementSubstraitPlan"
            ).SerializeToString(),
            "not supported",
        ),
        (
            any_pb2.Any(
                type_url="type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery", value=b"\x0a\xff"
            ).SerializeToString(),
            "not those of a message",
        ),
    ],
)
def test_anything_else_is_refused(data, match):
    with pytest.raises(UsageError, match=match):
        messages.unpacked(data)


def test_facts_of_the_service_come_by_number():
    some = catalog_answers.facts({0, 9, 99_999})
    assert some.to_pylist() == [{"info_name": 0, "value": "Lakebed"}, {"info_name": 9, "value": True}]
    everything = catalog_answers.facts(set())
    assert everything.column(0).to_pylist() == sorted(everything.column(0).to_pylist())
    everything.validate(full=True)
