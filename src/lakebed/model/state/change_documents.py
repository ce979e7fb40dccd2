"""Changes of a table's schema, merge mode and filter as documents, for requests to a service.

Core types: :data:`ChangeDocument`, a union by the member ``change``; :func:`change_document` encodes a change, and
``value`` decodes it. Field types are Arrow's names of types, or JSON for nested types. Pure.

Errors: UsageError for a value that its change does not allow.
"""

from __future__ import annotations

from typing import Any, assert_never

from msgspec import Struct

from lakebed.model import types
from lakebed.model.merge_modes import mode_of
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter
from lakebed.model.state.transactions import SetMerge
from lakebed.model.state.transactions.schema_changes import (
    AddField,
    AllowNulls,
    DropField,
    RenameField,
    SchemaChange,
    WidenField,
    check_changes,
)


class AddFieldDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="add"):
    """A new value field; a table that aggregates rows needs its aggregate function."""

    name: str
    type: str | dict[str, Any]
    function: str = ""

    def value(self) -> AddField:
        """Return the change of this document."""
        return AddField(self.name, types.from_json(self.type), self.function)


class DropFieldDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="drop"):
    """A value field to drop."""

    name: str

    def value(self) -> DropField:
        """Return the change of this document."""
        return DropField(self.name)


class RenameFieldDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="rename"):
    """A new name for a field."""

    name: str
    new_name: str

    def value(self) -> RenameField:
        """Return the change of this document."""
        return RenameField(self.name, self.new_name)


class WidenFieldDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="widen"):
    """A wider type for a value field."""

    name: str
    type: str | dict[str, Any]

    def value(self) -> WidenField:
        """Return the change of this document."""
        return WidenField(self.name, types.from_json(self.type))


class AllowNullsDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="allow_nulls"):
    """A value field that becomes nullable."""

    name: str

    def value(self) -> AllowNulls:
        """Return the change of this document."""
        return AllowNulls(self.name)


class MergeModeDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="merge"):
    """How rows with equal keys are merged, such as ``{"mode": "latest"}``; null: all rows are kept."""

    merge: dict[str, Any] | None

    def value(self) -> SetMerge:
        """Return the change of this document."""
        return SetMerge(mode_of(self.merge))


class SetFilterDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="filter"):
    """The predicate of the visible rows; null: all rows."""

    predicate: str | None

    def value(self) -> SetFilter:
        """Return the change of this document."""
        return SetFilter(self.predicate)


class AgeOffDocument(Struct, frozen=True, forbid_unknown_fields=True, tag_field="change", tag="age_off"):
    """A time field and the age in seconds from which rows are hidden; a null field ends the age-off."""

    field: str | None
    age_s: int = 0
    unit: str = ""

    def value(self) -> AgeOff:
        """Return the change of this document."""
        return AgeOff(self.field, seconds=self.age_s, unit=self.unit)


SchemaChangeDocument = (
    AddFieldDocument | DropFieldDocument | RenameFieldDocument | WidenFieldDocument | AllowNullsDocument
)
FilterChangeDocument = SetFilterDocument | AgeOffDocument
ChangeDocument = (
    AddFieldDocument | DropFieldDocument | RenameFieldDocument | WidenFieldDocument | AllowNullsDocument
    | MergeModeDocument | SetFilterDocument | AgeOffDocument
)  # fmt: skip


def schema_change_document(change: SchemaChange) -> SchemaChangeDocument:
    """Return the document of a schema change."""
    match change:
        case AddField():
            return AddFieldDocument(change.name, types.to_json(change.type), change.function)
        case DropField():
            return DropFieldDocument(change.name)
        case RenameField():
            return RenameFieldDocument(change.name, change.new_name)
        case WidenField():
            return WidenFieldDocument(change.name, types.to_json(change.type))
        case AllowNulls():
            return AllowNullsDocument(change.name)
        case _:
            assert_never(change)


def filter_change_document(change: FilterChange) -> FilterChangeDocument:
    """Return the document of a filter change."""
    if isinstance(change, SetFilter):
        return SetFilterDocument(change.predicate)
    return AgeOffDocument(change.field, change.age_s, change.unit)


def change_document(change: SchemaChange | SetMerge | FilterChange) -> ChangeDocument:
    """Return the document of a change. Raises UsageError for any other value."""
    match change:
        case SetMerge():
            return MergeModeDocument(change.mode.document())
        case SetFilter() | AgeOff():
            return filter_change_document(change)
        case _:
            (known,) = check_changes([change])
            return schema_change_document(known)
