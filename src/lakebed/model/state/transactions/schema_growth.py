"""Adds the new fields of files to the schema, in the entry that commits the files. Pure.

A writer whose rows have columns that the table lacks writes files with new fields, and proposes both together. Ids are
not reserved beforehand, so the writer chooses the ids of the fields itself: :func:`new_id` derives an id from the name.
Two writers that add the same column at once therefore write the same id, whatever other columns they add, and both
files are valid.

When the files are committed, the newest schema may differ from the one they were written for. :func:`grow` adds the
fields that are still missing and accepts existing ones with the same id, name and type. It rejects files that would be
misread: a name or id that was given to another field, another type, or a field that was changed. The writer conforms
such rows and writes them again.

Core types: :class:`Grown`. Source: docs/decisions/0044.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.schema import FIRST_CHOSEN_ID, Field, Schema
from lakebed.model.state.transactions.merge_changes import unfit
from lakebed.model.state.transactions.resolution import Rejected
from lakebed.model.state.transactions.schema_changes import AddField, AlterSchema, describe, unpublishable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from lakebed.errors import Facts
    from lakebed.model.files import NewFile
    from lakebed.model.state.table_state import TableState

_NEW_IDS = 2**29
"""Ids from 2^30 on are those of hidden columns (:mod:`lakebed.model.row_kinds`)."""


def new_id(name: str, used: Collection[int]) -> int:
    """Return the id of a new field: the same for every writer that has read the same ``used`` ids."""
    # Needed only for new fields, and every read of a state imports this module.
    from hashlib import sha256

    for attempt in count():
        digest = sha256(f"{attempt}:{name}".encode()).digest()
        candidate = FIRST_CHOSEN_ID + int.from_bytes(digest[:8]) % _NEW_IDS
        if candidate not in used:
            return candidate
    raise AssertionError


def with_fields(schema: Schema, fields: Sequence[Field]) -> Schema:
    """Return the next schema, with the fields after the others."""
    return Schema(schema.row_key, schema.sort_key, (*schema.values, *fields), version=schema.version + 1)


def new_field(name: str, kind: pa.DataType, used: Collection[int]) -> Field:
    """Return a new nullable value field. Raises UsageError for a name or a type that no field can have."""
    added = AddField(name, kind)
    return Field(new_id(name, used), name, added.type, nullable=True)


class Grown(Struct, frozen=True):
    """Files as they are committed, and the transaction that adds their new fields first; None if there is none."""

    files: tuple[NewFile, ...]
    change: AlterSchema | None


def grow(files: tuple[NewFile, ...], state: TableState) -> Grown | Rejected:
    """Resolve files with new fields in this state."""
    if not any(new.added for new in files):
        return Grown(files, None)
    newest = state.created
    used = {field.id for schema in state.schemas for field in schema.fields}
    missing: dict[str, Field] = {}
    for new in files:
        for field in new.added:
            existing = newest.by_name.get(field.name) or missing.get(field.name)
            if existing is None and field.id not in used:
                missing[field.name] = field
                used.add(field.id)
            elif refused := _refusal(field, existing):
                return refused
        if refused := _changed(new, state):
            return refused
    schema = with_fields(newest, tuple(missing.values())) if missing else newest
    known = tuple(
        replace(new, file=replace(new.file, schema_version=schema.version), added=()) if new.added else new
        for new in files
    )
    words = tuple(describe(AddField(field.name, field.returned_type)) for field in missing.values())
    # The rows have no aggregate function for new fields, so a table that aggregates refuses them.
    if refused := unfit(state.merge, schema) or unpublishable(state, schema):
        return refused
    return Grown(known, AlterSchema(schema, words, state.merge) if missing else None)


def _refusal(field: Field, existing: Field | None) -> Rejected | None:
    """Return why a file's new field is not the existing field of that name; None if it is."""
    if existing is None or existing.id != field.id:
        reason = "was given to another field, or dropped" if existing is None else "is another field now"
        return _rejected(f"column {field.name} was new when its rows were written, and {reason}", field.name)
    if existing.type != field.type:
        facts: Facts = {"found": str(field.type), "expected": str(existing.type)}
        return _rejected(
            f"column {field.name} is {field.type}; the table has {existing.type} by now", field.name, facts
        )
    return None


def _changed(new: NewFile, state: TableState) -> Rejected | None:
    """Return why a file does not fit the latest schema: a field that they share was changed. None if it fits.

    Fields that the file lacks are null, and dropped fields are not read.
    """
    if new.added:
        written = {field.id: field for field in state.schemas[new.file.schema_version - 2].fields}
        for field in state.created.fields:
            before = written.get(field.id)
            if before is not None and (before.name, before.type) != (field.name, field.type):
                return _rejected(f"column {before.name} is {field.name}: {field.type} by now", before.name)
    return None


def _rejected(reason: str, column: str, facts: Facts | None = None) -> Rejected:
    text = f"{reason}: the schema was changed while its rows were written; write them again"
    return Rejected(Code.SCHEMA_CHANGED, text, {"column": column, **(facts or {})})
