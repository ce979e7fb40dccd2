"""Names of tables and views, as dbt and as Lakebed have them, and their columns.

An instance has one namespace of tables, which SQL calls the schema ``tables``. In that schema a relation has its own
name. In any other schema, such as ``dev``, the relation ``orders`` is the table ``dev-orders``: schemas have no hyphen,
so the name says which schema it is. Relations are rendered with ``"tables".`` before the name, which no ``WITH`` query
of a model can have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from dbt.adapters.base import BaseRelation
from dbt.adapters.base.column import Column
from dbt.adapters.contracts.relation import Policy
from dbt_common.exceptions import DbtRuntimeError

from lakebed.model.type_names import name_of

DATABASE = "lakebed"
PLAIN_SCHEMA = "tables"
VIEWS_TABLE = "dbt_views"
"""The table of an instance in which the definitions of views are."""

_SCHEMA = re.compile(r"[A-Za-z0-9_]+")


def check_schema(schema: str) -> str:
    """Return a schema's name. Raises DbtRuntimeError for one that no table's name can begin with."""
    if not _SCHEMA.fullmatch(schema):
        raise DbtRuntimeError(
            f"schema {schema!r}: use letters, digits and _ only; the tables of a schema are named SCHEMA-TABLE"
        )
    return schema


def stored_name(schema: str | None, identifier: str) -> str:
    """Return the name that a relation has in Lakebed."""
    if schema in (None, "", PLAIN_SCHEMA):
        if identifier == VIEWS_TABLE:
            raise DbtRuntimeError(f"{VIEWS_TABLE} has the definitions of the views of dbt; give the model an alias")
        return identifier
    return f"{check_schema(str(schema))}-{identifier}"


def identifier_in(schema: str, name: str) -> str | None:
    """Return what a table or view of Lakebed is called in a schema; None if it is in another one.

    The schema ``tables`` has all of them.
    """
    if schema == PLAIN_SCHEMA:
        return name
    prefix = f"{schema}-"
    return name.removeprefix(prefix) if name.startswith(prefix) else None


@dataclass(frozen=True, eq=False, repr=False)
class LakebedRelation(BaseRelation):
    """A table or a view of an instance."""

    quote_policy: Policy = field(default_factory=Policy)
    include_policy: Policy = field(default_factory=lambda: Policy(database=False))

    @property
    def stored_name(self) -> str:
        """The name in Lakebed."""
        return stored_name(self.schema, str(self.identifier))

    def render(self) -> str:
        """Return how a statement names it; for a relation without an identifier its database and schema."""
        if self.identifier is None or not self.include_policy.identifier:
            return ".".join(f'"{part}"' for part in (self.database, self.schema) if part)
        if self.is_cte or str(self.identifier).startswith("__dbt__cte__"):
            return super().render()
        return f'"{PLAIN_SCHEMA}"."{self.stored_name}"'


def sql_type(kind: pa.DataType) -> str:
    """Return how SQL names a type; Lakebed's own name for one that SQL lacks."""
    found = _SQL_TYPES.get(kind)
    if found is not None:
        return found
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        digits = {"s": "(0)", "ms": "(3)", "us": "(6)", "ns": ""}[kind.unit]
        return f"timestamp{digits} with time zone" if kind.tz else f"timestamp{digits}"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    return name_of(kind)


_SQL_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint8(): "tinyint unsigned",
    pa.uint16(): "smallint unsigned",
    pa.uint32(): "integer unsigned",
    pa.uint64(): "bigint unsigned",
    pa.float32(): "real",
    pa.float64(): "double",
    pa.string(): "varchar",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.time64("ns"): "time",
}


@dataclass
class LakebedColumn(Column):
    """A column, with its type as SQL names it."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {
        "STRING": "varchar",
        "TEXT": "varchar",
        "INTEGER": "bigint",
        "FLOAT": "double",
        "NUMERIC": "decimal",
        "TIMESTAMP": "timestamp(6)",
    }

    @classmethod
    def of(cls, one: pa.Field) -> LakebedColumn:
        """Return the column of an Arrow field."""
        return cls(one.name, sql_type(one.type))

    @property
    def data_type(self) -> str:
        """The type in SQL."""
        return self.dtype

    def is_string(self) -> bool:
        """Return whether it has texts."""
        return self.dtype.lower() in {"varchar", "text", "string"}

    def is_integer(self) -> bool:
        """Return whether it has whole numbers."""
        return self.dtype.lower().removesuffix(" unsigned") in {"tinyint", "smallint", "int", "integer", "bigint"}

    def is_numeric(self) -> bool:
        """Return whether it has decimals."""
        return self.dtype.lower().startswith(("decimal", "numeric"))

    def is_float(self) -> bool:
        """Return whether it has floating-point numbers."""
        return self.dtype.lower() in {"real", "float", "double"}

    def string_size(self) -> int:
        """Return the greatest length of a text: there is none, so that no column is ever widened."""
        return 0

    def can_expand_to(self, other_column: Any) -> bool:
        """Return whether the column has to become longer to hold another's texts: it never has."""
        return False

    @classmethod
    def string_type(cls, size: int = 0) -> str:
        """Return the type of texts."""
        return "varchar"

    @classmethod
    def numeric_type(cls, dtype: str, precision: Any, scale: Any) -> str:
        """Return the type of decimals."""
        return "decimal" if precision is None or scale is None else f"decimal({precision},{scale})"
