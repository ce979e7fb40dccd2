"""Makes columns nullable for joins of sorted rows in DataFusion 55.

Such a join evaluates the condition of an outer join beside its equalities over rows that it fills up with nulls, under
the schema of its inputs: a column there that is ``not null``, such as a key, fails the statement. Hash joins do not.

Core: :func:`with_nullable_columns`. Rule: only for statements with outer joins, because the engine skips no pages by
conditions on such columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion import functions, lit

from lakebed.engine.datafusion import column

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr

_OUTER_JOIN = re.compile(r" (?:Left|Right|Full) Join: ")


def has_outer_join(plan_text: str) -> bool:
    """Return whether a logical plan has an outer join."""
    return _OUTER_JOIN.search(plan_text) is not None


def with_nullable_columns(rows: DataFrame) -> DataFrame:
    """Return the same rows, of columns that the engine takes for nullable."""
    fields = list(rows.schema())
    if all(field.nullable for field in fields):
        return rows
    return rows.select(*(column(field.name) if field.nullable else _nullable(field) for field in fields))


def _nullable(field: pa.Field) -> Expr:
    """Return a column as nullable. Functions drop the metadata that marks an extension type, so the alias sets it."""
    found = functions.nullif(column(field.name), lit(None))
    if isinstance(field.type, pa.BaseExtensionType):
        return found.alias(field.name, metadata={"ARROW:extension:name": field.type.extension_name})
    return found.alias(field.name)
