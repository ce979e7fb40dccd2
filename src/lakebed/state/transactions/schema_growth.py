"""The fields that files bring along: agreed upon when the files are committed, in the same entry. Pure.

A writer whose rows have columns that the table lacks writes files with new fields, and proposes both together. Nothing
is reserved beforehand, so the writer chooses the ids of the fields itself: :func:`new_id` derives an id from the name.
Two writers that add the same column at once therefore write the same id, whatever other columns they add, and the
files of both are right.

When the files are committed, the newest schema may differ from the one they were written for. :func:`grown` adds the
fields that are still missing and takes those that are there under the same id, name and type. It rejects files that
would be misread: a name or id that was given to another field, another type, or a field that was changed. Such rows
are conformed and written again.

Core types: :class:`Grown`. Source: docs/decisions/0044.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.model.schema import FIRST_CHOSEN_ID, Field, Schema
from lakebed.state.transactions.merge_changes import unfit
from lakebed.state.transactions.resolution import Rejected
from lakebed.state.transactions.schema_changes import AddField, AlterSchema, describe

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from lakebed.errors import Facts
    from lakebed.model.files import NewFile
    from lakebed.state.table_state import TableState

_NEW_IDS = 2**29
"""Ids from 2^30 on are those of hidden columns (:mod:`lakebed.model.row_kinds`)."""


def new_id(name: str, used: Collection[int]) -> int:
    """The id of a new field of that name: the same for every writer that knows the same ``used`` ids."""
    # Needed for new fields alone, and every read of a state imports this module.
    from hashlib import sha256

    for attempt in count():
        digest = sha256(f"{attempt}:{name}".encode()).digest()
        found = FIRST_CHOSEN_ID + int.from_bytes(digest[:8]) % _NEW_IDS
        if found not in used:
            return found
    raise AssertionError


def with_fields(schema: Schema, fields: Sequence[Field]) -> Schema:
    """The schema after this one, with the fields behind the others."""
    return Schema(schema.row_key, schema.sort_key, (*schema.values, *fields), version=schema.version + 1)


def new_field(name: str, kind: pa.DataType, used: Collection[int]) -> Field:
    """A new nullable value field. Raises UsageError for a name or a type that no field can have."""
    added = AddField(name, kind)
    return Field(new_id(name, used), name, added.type, nullable=True)


@dataclass(frozen=True, slots=True)
class Grown:
    """Files as they are committed, and the transaction that adds their new fields before; None if there is none."""

    files: tuple[NewFile, ...]
    change: AlterSchema | None


def grown(files: tuple[NewFile, ...], state: TableState) -> Grown | Rejected:
    """What files with new fields come to in this state."""
    if not any(new.added for new in files):
        return Grown(files, None)
    newest = state.created
    used = {field.id for schema in state.schemas for field in schema.fields}
    missing: dict[str, Field] = {}
    for new in files:
        for field in new.added:
            held = newest.by_name.get(field.name) or missing.get(field.name)
            if held is None and field.id not in used:
                missing[field.name] = field
                used.add(field.id)
            elif refused := _refusal(field, held):
                return refused
        if refused := _changed(new, state):
            return refused
    schema = with_fields(newest, tuple(missing.values())) if missing else newest
    known = tuple(
        replace(new, file=replace(new.file, schema_version=schema.version), added=()) if new.added else new
        for new in files
    )
    words = tuple(describe(AddField(field.name, field.returned_type)) for field in missing.values())
    # A function for the new fields is not in the rows: a table that aggregates is refused here.
    if refused := unfit(state.merge, schema):
        return refused
    return Grown(known, AlterSchema(schema, words, state.merge) if missing else None)


def _refusal(field: Field, held: Field | None) -> Rejected | None:
    """Why a file's new field is not the field of that name; None if it is."""
    if held is None or held.id != field.id:
        what = "was given to another field, or dropped" if held is None else "is another field now"
        return _rejected(f"column {field.name} was new when its rows were written, and {what}", field.name)
    if held.type != field.type:
        facts: Facts = {"found": str(field.type), "expected": str(held.type)}
        return _rejected(f"column {field.name} is {field.type}; the table has {held.type} by now", field.name, facts)
    return None


def _changed(new: NewFile, state: TableState) -> Rejected | None:
    """Why a file cannot count as one of the newest schema: one of the fields that it shares with it was changed.

    Fields that it lacks are null, and those that were dropped are not read.
    """
    if new.added:
        written = {field.id: field for field in state.schemas[new.file.schema_version - 2].fields}
        for field in state.created.fields:
            before = written.get(field.id)
            if before is not None and (before.name, before.type) != (field.name, field.type):
                return _rejected(f"column {before.name} is {field.name}: {field.type} by now", before.name)
    return None


def _rejected(what: str, column: str, facts: Facts | None = None) -> Rejected:
    text = f"{what}: the schema was changed while its rows were written; write them again"
    return Rejected(Code.SCHEMA_CHANGED, text, {"column": column, **(facts or {})})
