"""Schema growth: new fields for unknown columns, if the setting ``schema_growth`` is ``add``.

:meth:`Growth.layout` looks at the columns of sources before their rows are read. Files are then written with the new
fields, and name them (:attr:`~lakebed.model.files.NewFile.added`); the commit of the files adds the fields in the same
entry (:mod:`lakebed.model.state.transactions.schema_growth`).

Rules. A new field is a nullable value field with the canonical type of its column, or a dictionary of it. A column of
type null adds nothing. A column that has a field is conformed to it, never the other way round. No I/O here.

Core types: :class:`Growth`. Errors: SchemaMismatchError names source, column and types. Source: docs/decisions/0044.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code, UsageError
from lakebed.model import types
from lakebed.model.settings import SchemaGrowth
from lakebed.model.state.transactions.schema_growth import new_field, with_fields
from lakebed.write.conformer import check_case

if TYPE_CHECKING:
    from lakebed.files.parquet.layout import Layout
    from lakebed.model.schema import Field, Schema
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class Growth:
    """A table that accepts new columns; ``used_ids`` are the ids of all fields that it ever had."""

    used_ids: frozenset[int]

    @classmethod
    def of(cls, state: TableState, settings: Settings) -> Growth | None:
        """Return the growth of a table; None for one that refuses unknown columns."""
        if settings.schema_growth is not SchemaGrowth.ADD:
            return None
        return cls(frozenset(field.id for schema in state.schemas for field in schema.fields))

    def layout(self, layout: Layout, sources: Iterable[tuple[str, pa.Schema]], read: Collection[str] = ()) -> Layout:
        """Return the layout with the fields that :meth:`fields` finds, if there are any."""
        added = self.fields(layout.schema, sources, read)
        return replace(layout, schema=with_fields(layout.schema, added), added=added) if added else layout

    def fields(
        self, schema: Schema, sources: Iterable[tuple[str, pa.Schema]], read: Collection[str] = ()
    ) -> tuple[Field, ...]:
        """Return a new field for each column of the sources that has none, in the order in which they are first seen.

        ``read`` are columns that fields of other names are read from. Columns of one name in several sources are one
        field, of the widest of their types.

        Raises SchemaMismatchError for types of one column that no type holds, for a name that differs from that of a
        missing field by case only, and for a name or type that no field has.
        """
        known = {*schema.names, *read}
        kinds: dict[str, tuple[pa.DataType, str]] = {}
        for source, columns in sources:
            check_case(columns.names, known, source)
            for column in columns:
                if column.name in known or pa.types.is_null(column.type):
                    continue
                kind = types.of_field(column.type)
                before, first = kinds.get(column.name, (kind, source))
                wide = _widest(before, kind)
                if wide is None:
                    raise Code.COLUMN_TYPE_MISMATCH(
                        f"{source}: column {column.name} is {kind}, and in {first} it is {before}; one field cannot "
                        "hold both",
                        column=column.name,
                        source=source,
                        found=str(kind),
                        expected=str(before),
                    )
                kinds[column.name] = wide, first if wide == before else source
        used = {*self.used_ids, *(field.id for field in schema.fields)}
        added: list[Field] = []
        for name, (kind, source) in kinds.items():
            added.append(_field(name, kind, used, source))
            used.add(added[-1].id)
        return tuple(added)


def _widest(before: pa.DataType, kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_dictionary(kind) != pa.types.is_dictionary(before):
        kind, before = types.canonical(kind), types.canonical(before)
    if before == kind or types.can_become(kind, before):
        return before
    return kind if types.can_become(before, kind) else types.widest(before, kind)


def _field(name: str, kind: pa.DataType, used: Collection[int], source: str) -> Field:
    try:
        if types.is_untyped(kind):
            raise Code.TYPE_UNSUPPORTED(
                f"column {name} cannot be {kind}: its items are all null. Add the field with Table.alter, with the "
                "type that they will have",
                column=name,
            )
        return new_field(name, kind, used)
    except UsageError as error:
        raise Code.COLUMN_UNEXPECTED(
            f"{source}: no field can be added for column {name!a}: {error.message}", columns=[name], source=source
        ) from error
