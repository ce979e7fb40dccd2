"""The messages of Flight SQL, as classes of the protobuf runtime.

Names and field numbers are those of ``FlightSql.proto`` and ``Flight.proto`` of Apache Arrow (Apache-2.0), of which
this module has the part that the service uses. They are defined in a table, so that building Lakebed needs no protobuf
compiler. The classes belong to a descriptor pool of their own: another library in the process may have loaded the whole
file under the same names.

A command, an action and most results travel inside ``google.protobuf.Any``: :func:`unpacked`, :func:`packed`.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from lakebed.errors import Code

PACKAGE = "arrow.flight.protocol.sql"

_TYPE_URL = "type.googleapis.com/"

_Proto = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "bool": _Proto.TYPE_BOOL,
    "int32": _Proto.TYPE_INT32,
    "int64": _Proto.TYPE_INT64,
    "uint32": _Proto.TYPE_UINT32,
}

_FILTER = (("optional string", "catalog", 1), ("optional string", "db_schema_filter_pattern", 2))
_OF_TABLE = (("optional string", "catalog", 1), ("optional string", "db_schema", 2), ("string", "table", 3))
_HANDLE = (("bytes", "prepared_statement_handle", 1),)
_QUERY = (("string", "query", 1), ("optional bytes", "transaction_id", 2))

_MESSAGES: dict[str, tuple[tuple[str, str, int], ...]] = {
    "CommandGetSqlInfo": (("repeated uint32", "info", 1),),
    "CommandGetXdbcTypeInfo": (("optional int32", "data_type", 1),),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": _FILTER,
    "CommandGetTables": (
        *_FILTER,
        ("optional string", "table_name_filter_pattern", 3),
        ("repeated string", "table_types", 4),
        ("bool", "include_schema", 5),
    ),
    "CommandGetTableTypes": (),
    "CommandGetPrimaryKeys": _OF_TABLE,
    "CommandGetExportedKeys": _OF_TABLE,
    "CommandGetImportedKeys": _OF_TABLE,
    "CommandGetCrossReference": (
        ("optional string", "pk_catalog", 1),
        ("optional string", "pk_db_schema", 2),
        ("string", "pk_table", 3),
        ("optional string", "fk_catalog", 4),
        ("optional string", "fk_db_schema", 5),
        ("string", "fk_table", 6),
    ),
    "CommandStatementQuery": _QUERY,
    "CommandStatementUpdate": _QUERY,
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "TicketStatementQuery": (("bytes", "statement_handle", 1),),
    "ActionCreatePreparedStatementRequest": _QUERY,
    "ActionCreatePreparedStatementResult": (
        *_HANDLE,
        ("bytes", "dataset_schema", 2),
        ("bytes", "parameter_schema", 3),
    ),
    "ActionClosePreparedStatementRequest": _HANDLE,
    "DoPutPreparedStatementResult": (("optional bytes", "prepared_statement_handle", 1),),
    "DoPutUpdateResult": (("int64", "record_count", 1),),
    "TableDefinitionOptions": (("int32", "if_not_exist", 1), ("int32", "if_exists", 2)),
    "CommandStatementIngest": (
        ("TableDefinitionOptions", "table_definition_options", 1),
        ("string", "table", 2),
        ("optional string", "schema", 3),
        ("optional string", "catalog", 4),
        ("bool", "temporary", 5),
        ("optional bytes", "transaction_id", 6),
        ("repeated Option", "options", 1000),
    ),
    # An entry of the map `options`.
    "Option": (("string", "key", 1), ("string", "value", 2)),
    "ActionCancelQueryRequest": (("bytes", "info", 1),),
    "ActionCancelQueryResult": (("int32", "result", 1),),
    # Of Flight itself.
    "CancelFlightInfoRequest": (("FlightInfo", "info", 1),),
    "CancelFlightInfoResult": (("int32", "status", 1),),
    "FlightInfo": (("repeated FlightEndpoint", "endpoint", 3),),
    "FlightEndpoint": (("Ticket", "ticket", 1),),
    "Ticket": (("bytes", "ticket", 1),),
}
"""The fields of each message: cardinality and type, name, number. An enum is its number, as on the wire."""


class TableExists:
    """``CommandStatementIngest.TableDefinitionOptions``: the action if the table exists, and if it does not."""

    CREATE_IF_ABSENT = 1
    FAIL = 1
    APPEND = 2
    REPLACE = 3


CANCELLED, NOT_CANCELLABLE = 1, 3
"""``CancelStatus`` of Flight, and ``CancelResult`` of Flight SQL."""


def _add_field(message: Any, spelled: str, name: str, number: int) -> None:
    cardinality, _, kind = spelled.rpartition(" ")
    added = message.field.add(name=name, number=number)
    added.label = _Proto.LABEL_REPEATED if cardinality == "repeated" else _Proto.LABEL_OPTIONAL
    if kind in _KINDS:
        added.type = _KINDS[kind]
    else:
        added.type, added.type_name = _Proto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    if cardinality == "optional":
        # Presence of a plain field in proto3: a oneof of this field alone.
        message.oneof_decl.add(name=f"_{name}")
        added.proto3_optional, added.oneof_index = True, len(message.oneof_decl) - 1


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="lakebed/flight_sql.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for one in fields:
            _add_field(message, *one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


def message(name: str, **fields: Any) -> Any:
    """Make a message of Flight SQL, by its name in the specification."""
    return _CLASSES[name](**fields)


def parsed(name: str, data: bytes) -> Any:
    """Parse the message of that name. Raises UsageError for invalid bytes."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise Code.REQUEST_INVALID(f"the bytes of {name} are not those of a message: {error}") from None


def packed(name: str, **fields: Any) -> bytes:
    """Return the bytes of a message inside ``Any``."""
    content = message(name, **fields).SerializeToString()
    data: bytes = any_pb2.Any(type_url=f"{_TYPE_URL}{PACKAGE}.{name}", value=content).SerializeToString()
    return data


def unpacked(data: bytes) -> tuple[str, Any]:
    """Return the name of the message inside ``Any``, and the message. Raises UsageError for anything else."""
    try:
        found = any_pb2.Any.FromString(data)
    except DecodeError:
        found = any_pb2.Any()
    package, _, name = found.type_url.removeprefix(_TYPE_URL).rpartition(".")
    if package != PACKAGE:
        raise Code.REQUEST_INVALID("not a command, ticket or action of Flight SQL, which is what is spoken here")
    if name not in _CLASSES:
        raise Code.REQUEST_INVALID(f"{name} of Flight SQL is not supported; `lakebed docs flight-sql` lists what is")
    return name, parsed(name, found.value)
