"""Answers drivers' requests for metadata: schemas, tables, keys, types and facts, as the Arrow tables of Flight SQL.

Flight SQL has catalogs and schemas, and an instance has neither: all tables are in ``lakebed.tables``, as in the
engine, so that ``"lakebed"."tables"."flights"`` in a statement is the table ``flights``. Facts (``GetSqlInfo``) have
the numbers of the enum ``SqlInfo``; numbers that are missing are limits which Lakebed does not have, or features that
it lacks, and drivers take a missing one as zero or no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.model.version import VERSION

if TYPE_CHECKING:
    from lakebed.server.security.principal import Principal
    from lakebed.table.instance import Instance


_FACT_LIST = pa.list_(pa.field("string_data", pa.string()))
_FACT_MAP = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_FACT_KINDS: tuple[tuple[str, pa.DataType], ...] = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", _FACT_LIST),
    ("int32_to_int32_list_map", _FACT_MAP),
)
_TEXT, _FLAG, _LONG, _INT, _TEXTS = range(5)

_FACTS = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union([pa.field(name, kind) for name, kind in _FACT_KINDS]), nullable=False),
    ]
)

_VALUES: dict[int, tuple[int, Any]] = {
    0: (_TEXT, "Lakebed"),
    1: (_TEXT, VERSION),
    2: (_TEXT, pa.__version__),
    3: (_FLAG, False),  # read-only: SQL only reads, but bulk ingest writes
    4: (_FLAG, True),  # SQL
    5: (_FLAG, False),  # Substrait
    8: (_INT, 0),  # transactions: none
    9: (_FLAG, True),  # cancellation
    10: (_FLAG, True),  # bulk ingest
    11: (_FLAG, False),  # bulk ingest in transactions
    100: (_INT, 0),  # statement handles: never time out
    101: (_INT, 0),
    500: (_FLAG, False),  # CREATE CATALOG
    501: (_FLAG, False),  # CREATE _FACTS
    502: (_FLAG, False),  # CREATE TABLE
    503: (_INT, 0),  # names are case-sensitive as they are written, for which there is no value
    504: (_TEXT, '"'),
    505: (_INT, 0),
    506: (_FLAG, True),  # all tables that are listed can be selected
    507: (_INT, 0),  # nulls sort high
    508: (_TEXTS, []),
    509: (_TEXTS, []),
    510: (_TEXTS, []),
    511: (_TEXTS, []),
    512: (_TEXTS, []),
    513: (_TEXT, "\\"),
    514: (_TEXT, ""),
    515: (_FLAG, True),  # AS
    516: (_FLAG, True),  # null || text is null
    518: (_FLAG, True),
    519: (_FLAG, False),
    520: (_FLAG, True),
    521: (_FLAG, True),
    522: (_INT, 0b11),
    523: (_FLAG, True),
    524: (_FLAG, True),
    525: (_INT, 0b11),
    526: (_INT, 0b1),
    527: (_FLAG, False),
    528: (_INT, 2),  # full outer joins
    529: (_TEXT, "schema"),
    530: (_TEXT, "procedure"),
    531: (_TEXT, "catalog"),
    532: (_FLAG, True),
    533: (_INT, 0),
    534: (_INT, 0),
    535: (_INT, 0),
    536: (_FLAG, False),
    537: (_FLAG, False),
    538: (_INT, 0b111),
    539: (_FLAG, True),
    540: (_INT, 0b11),
    **dict.fromkeys((*range(541, 556), *range(557, 562)), (_LONG, 0)),  # no limits
    556: (_FLAG, True),
    562: (_INT, 0),
    563: (_FLAG, False),
    564: (_INT, 0b1),
    565: (_FLAG, False),
    566: (_FLAG, False),
    567: (_INT, 0b11),
}


def facts(wanted: Collection[int]) -> pa.Table:
    """Return the values of these numbers, or all of them, in order; numbers without a value are left out."""
    found = [(number, *_VALUES[number]) for number in sorted(_VALUES) if not wanted or number in wanted]
    children: list[list[Any]] = [[] for _ in _FACT_KINDS]
    offsets = []
    for _, kind, value in found:
        offsets.append(len(children[kind]))
        children[kind].append(value)
    union = pa.UnionArray.from_dense(
        pa.array([kind for _, kind, _ in found], pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(values, kind) for values, (_, kind) in zip(children, _FACT_KINDS, strict=True)],
        [name for name, _ in _FACT_KINDS],
    )
    return pa.Table.from_arrays([pa.array([number for number, _, _ in found], pa.uint32()), union], schema=_FACTS)


CATALOG, SCHEMA = "lakebed", "tables"
TABLE_TYPE = "TABLE"


def _schema(**fields: str) -> pa.Schema:
    """Return a schema from names and types; a type with ``!`` is not nullable."""
    return pa.schema(
        [
            pa.field(name, pa.type_for_alias(kind.removesuffix("!")), not kind.endswith("!"))
            for name, kind in fields.items()
        ]
    )


_CATALOGS = _schema(catalog_name="string!")
_DB_SCHEMAS = _schema(catalog_name="string", db_schema_name="string!")
_TABLES = _schema(catalog_name="string", db_schema_name="string", table_name="string!", table_type="string!")
_TABLES_WITH_SCHEMA = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
_TABLE_TYPES = _schema(table_type="string!")
_PRIMARY_KEYS = _schema(
    catalog_name="string", db_schema_name="string", table_name="string!", column_name="string!", key_name="string",
    key_sequence="int32!",
)  # fmt: skip
_FOREIGN_KEYS = _schema(
    pk_catalog_name="string", pk_db_schema_name="string", pk_table_name="string!", pk_column_name="string!",
    fk_catalog_name="string", fk_db_schema_name="string", fk_table_name="string!", fk_column_name="string!",
    key_sequence="int32!", fk_key_name="string", pk_key_name="string", update_rule="uint8!", delete_rule="uint8!",
)  # fmt: skip
_TYPES = pa.schema([
    *_schema(type_name="string!", data_type="int32!", column_size="int32", literal_prefix="string",
             literal_suffix="string"),
    pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
    *_schema(nullable="int32!", case_sensitive="bool!", searchable="int32!", unsigned_attribute="bool",
             fixed_prec_scale="bool!", auto_increment="bool", local_type_name="string", minimum_scale="int32",
             maximum_scale="int32", sql_data_type="int32!", datetime_subcode="int32", num_prec_radix="int32",
             interval_precision="int32"),
])  # fmt: skip

_NULLABLE, _SEARCHABLE = 1, 3
_DATETIME = 9

# The name, the number in ODBC and JDBC, the size, the quote of literals, the code of a date or time, the radix.
_KNOWN_TYPES = (
    ("TINYINT", -6, 3, None, None, 10),
    ("BIGINT", -5, 19, None, None, 10),
    ("BINARY", -2, None, "'", None, None),
    ("DECIMAL", 3, 38, None, None, 10),
    ("INTEGER", 4, 10, None, None, 10),
    ("SMALLINT", 5, 5, None, None, 10),
    ("REAL", 7, 24, None, None, 2),
    ("DOUBLE", 8, 53, None, None, 2),
    ("VARCHAR", 12, None, "'", None, None),
    ("BOOLEAN", 16, 1, None, None, None),
    ("DATE", 91, 10, "'", 1, None),
    ("TIME", 92, 15, "'", 2, None),
    ("TIMESTAMP", 93, 29, "'", 3, None),
)


def _db_schemas(command: Any, _: Instance, __: Principal) -> pa.Table:
    found = [(CATALOG, SCHEMA)] if _is_ours(command) else []
    return _arrow_table(found, _DB_SCHEMAS)


def _tables(command: Any, instance: Instance, principal: Principal) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    if _is_ours(command) and (not command.table_types or TABLE_TYPE in command.table_types):
        names = principal.visible(instance.tables())
        names = [name for name in names if _matches(command, "table_name_filter_pattern", name)]
        rows = [(CATALOG, SCHEMA, name, TABLE_TYPE) for name in names]
        if command.include_schema:
            rows = [(*row, _schema_bytes(instance, principal, row[2])) for row in rows]
    return _arrow_table(rows, _TABLES_WITH_SCHEMA if command.include_schema else _TABLES)


def _schema_bytes(instance: Instance, principal: Principal, name: str) -> bytes:
    schema: pa.Schema = principal.readable(instance.table(name)).schema.arrow
    data: bytes = schema.serialize().to_pybytes()
    return data


def _primary_keys(command: Any, instance: Instance, principal: Principal) -> pa.Table:
    """Return the row key. Several rows may have equal row keys, but it is the only key for finding rows."""
    rows = []
    if _is_ours(command) and command.table in principal.visible(instance.tables()):
        schema = principal.readable(instance.table(command.table)).schema
        rows = [
            (CATALOG, SCHEMA, command.table, one.name, "row_key", number)
            for number, one in enumerate(schema.row_key, 1)
        ]
    return _arrow_table(rows, _PRIMARY_KEYS)


def _xdbc_types(command: Any, _: Instance, __: Principal) -> pa.Table:
    wanted = command.data_type if command.HasField("data_type") else None
    rows = []
    for name, number, size, quote, subcode, radix in _KNOWN_TYPES:
        if wanted in (None, number):
            scale = 0 if radix == 10 else None
            rows.append((
                name, number, size, quote, quote, None, _NULLABLE, name == "VARCHAR", _SEARCHABLE,
                None if radix is None else False, False, None, name, scale, 38 if name == "DECIMAL" else scale,
                number if subcode is None else _DATETIME, subcode, radix, None,
            ))  # fmt: skip
    return _arrow_table(rows, _TYPES)


def _service_facts(command: Any, _: Instance, __: Principal) -> pa.Table:
    return facts(set(command.info))


def _always(answer: pa.Table) -> _Answer:
    """Return the same answer for every caller."""
    return lambda _command, _instance, _principal: answer


_Answer = Callable[[Any, "Instance", "Principal"], pa.Table]
_foreign_keys = _always(_FOREIGN_KEYS.empty_table())
ANSWERS: dict[str, _Answer] = {
    "CommandGetCatalogs": _always(pa.table([[CATALOG]], schema=_CATALOGS)),
    "CommandGetDbSchemas": _db_schemas,
    "CommandGetTables": _tables,
    "CommandGetTableTypes": _always(pa.table([[TABLE_TYPE]], schema=_TABLE_TYPES)),
    "CommandGetPrimaryKeys": _primary_keys,
    "CommandGetExportedKeys": _foreign_keys,
    "CommandGetImportedKeys": _foreign_keys,
    "CommandGetCrossReference": _foreign_keys,
    "CommandGetXdbcTypeInfo": _xdbc_types,
    "CommandGetSqlInfo": _service_facts,
}
"""The answer to each command about the catalog."""

_SCHEMAS = {
    "CommandGetCatalogs": _CATALOGS,
    "CommandGetDbSchemas": _DB_SCHEMAS,
    "CommandGetTableTypes": _TABLE_TYPES,
    "CommandGetPrimaryKeys": _PRIMARY_KEYS,
    "CommandGetXdbcTypeInfo": _TYPES,
    "CommandGetSqlInfo": _FACTS,
}


def schema_of(name: str, command: Any) -> pa.Schema:
    """Return the columns of the answer to a command, without reading the catalog."""
    if name == "CommandGetTables":
        return _TABLES_WITH_SCHEMA if command.include_schema else _TABLES
    return _SCHEMAS.get(name, _FOREIGN_KEYS)


def _is_ours(command: Any) -> bool:
    """Return whether the command matches the only catalog and schema, by name, by pattern, or by default."""
    fields = {field.name for field in command.DESCRIPTOR.fields}
    catalog = not command.HasField("catalog") or command.catalog == CATALOG
    if "db_schema" in fields:
        return catalog and (not command.HasField("db_schema") or command.db_schema == SCHEMA)
    return catalog and _matches(command, "db_schema_filter_pattern", SCHEMA)


def _matches(command: Any, field: str, name: str) -> bool:
    """Return whether a name matches a LIKE pattern, if there is one; a backslash escapes ``%`` and ``_``."""
    if not command.HasField(field):
        return True
    signs = re.findall(r"\\?.", getattr(command, field), re.DOTALL)
    pattern = "".join(_PATTERNS.get(sign) or re.escape(sign[-1]) for sign in signs)
    return re.fullmatch(pattern, name, re.DOTALL) is not None


_PATTERNS = {"%": ".*", "_": "."}


def _arrow_table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )
