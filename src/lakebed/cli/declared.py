"""``lakebed apply`` and ``dump``: make an instance as a file declares it, and write the file of an instance.

The plan is the list of changes that lead from the instance to the declaration; a second ``apply`` of the same file
plans nothing. Each change is committed by itself: after an error the changes before it stay, and a repeat does the
others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.declarations import Declaration, DeclaredTable, declaration_of, read_declaration, yaml_text
from lakebed.cli.grammar import Invocation, command
from lakebed.cli.render import count_text
from lakebed.cli.row_formats import json_text
from lakebed.model import types
from lakebed.model.merge_modes import stored_mode
from lakebed.model.type_names import name_of
from lakebed.state.transactions.schema_changes import AddField, AllowNulls, DropField, SchemaChange, WidenField

if TYPE_CHECKING:
    import lakebed
    from lakebed.model.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change: what it is, in words, whether something is lost by it, and how it is made."""

    text: str
    make: Callable[[], object]
    loses: bool = False


@command
@click.argument("file", metavar="FILE", type=Path, help="A declaration: .yaml, .json or .toml (docs/apply.md).")
@click.option("--plan", "plan_only", is_flag=True, help="Print the changes, and make none.")
@click.option("--prune", is_flag=True, help="Also drop tables, fields, settings and tags that the file does not have.")
@options.yes
def apply(cli: Invocation, *, file: Path, plan_only: bool, prune: bool, yes: bool) -> None:
    """Make the instance as a file declares it, after it showed the changes and asked.

    A file declares tables, schemas, merge modes, settings and tags. What it does not mention is left alone, unless
    --prune is given. Keys and merge modes of tables cannot be changed; a field is renamed by `lakebed table alter`.
    `lakebed dump` writes the file of an instance.
    """
    declaration = read_declaration(file)
    changes = list(_plan(cli.instance(), declaration, prune=prune))
    lines = [f"{'-' if change.loses else '+'} {change.text}" for change in changes]
    if changes and not plan_only:
        if not yes:
            options.check_answerable(f"{count_text(len(changes), 'change')} by {file}")
            print("\n".join(lines), file=sys.stderr)
            options.ask_for("apply", f"This makes {count_text(len(changes), 'change')}", "the word apply")
        for change in changes:
            change.make()
    listed = [{"change": change.text, "loses": change.loses} for change in changes]
    summary = f"{count_text(len(changes), 'change')} {'planned' if plan_only else 'made'}" if changes else "no changes"
    cli.out.document({"changes": listed, "made": bool(changes) and not plan_only}, [*lines, summary])


@command
@click.option("--as", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The form.")
def dump(cli: Invocation, *, form: str) -> None:
    """Print the declaration of the instance, as `lakebed apply` reads it."""
    document, left_out = declaration_of(cli.instance())
    as_json = form == "json"
    cli.out.document(document, [json_text(document) if as_json else yaml_text(document).rstrip("\n")])
    for what in left_out:
        cli.out.note(f"not in the declaration: {what}")


def _plan(lake: lakebed.Instance, declaration: Declaration, *, prune: bool) -> Iterator[PlannedChange]:
    yield from _settings_changes("instance", lake.catalog().defaults, declaration.settings, lake.set, prune=prune)
    there = lake.tables()
    for name, wanted in declaration.tables.items():
        if name in there:
            yield from _table_changes(lake, wanted, declaration, prune=prune)
        else:
            yield from _creation(lake, wanted)
    if prune:
        for name in there:
            if name not in declaration.tables:
                yield PlannedChange(f"drop table {name} and its rows", partial(lake.drop_table, name), loses=True)


def _creation(lake: lakebed.Instance, wanted: DeclaredTable) -> Iterator[PlannedChange]:
    def create() -> None:
        online = wanted.online is not False
        lake.create_table(wanted.name, wanted.schema, settings=wanted.settings, online=online, merge=wanted.merge)

    yield PlannedChange(f"create table {wanted.name}: {', '.join(wanted.schema.names)}", create)
    for tag, version in (wanted.tags or {}).items():
        yield _tagging(lake, wanted.name, tag, version)


def _table_changes(
    lake: lakebed.Instance, wanted: DeclaredTable, declaration: Declaration, *, prune: bool
) -> Iterator[PlannedChange]:
    table, name = lake.table(wanted.name), wanted.name
    state = table.state()
    if state.merge != wanted.merge:
        text = f"table {name} merges rows by {stored_mode(state.merge)}, which cannot be changed"
        raise declaration.wrong(("tables", name, "merge"), text)
    for text, change in _schema_changes(state.created, wanted, declaration, prune=prune):
        loses = isinstance(change, DropField)
        yield PlannedChange(f"table {name}: {text}", partial(table.alter, change), loses=loses)
    if wanted.online is not None and wanted.online is not lake.is_online(name):
        word, online = "online" if wanted.online else "offline", wanted.online
        yield PlannedChange(f"table {name}: {word}", partial(lake.set_online, name, online))
    yield from _settings_changes(f"table {name}", state.settings, wanted.settings, table.set, prune=prune)
    if wanted.tags is None:
        return
    for tag, version in wanted.tags.items():
        if state.tags.get(tag) == version:
            continue
        if tag in state.tags:
            text = f"tag {tag} stands at version {state.tags[tag]}; drop it first, or declare that version"
            raise declaration.wrong(("tables", name, "tags", tag), text)
        yield _tagging(lake, name, tag, version)
    for tag in sorted(state.tags) if prune else ():
        if tag not in wanted.tags:
            yield PlannedChange(f"table {name}: drop tag {tag}", partial(table.untag, tag), loses=True)


def _tagging(lake: lakebed.Instance, name: str, tag: str, version: int) -> PlannedChange:
    # The table may be made by a change before this one.
    return PlannedChange(f"tag version {version} of {name} as {tag}", lambda: lake.table(name).tag(tag, version))


def _schema_changes(
    there: Schema, wanted: DeclaredTable, declaration: Declaration, *, prune: bool
) -> Iterator[tuple[str, SchemaChange]]:
    keys = ("tables", wanted.name, "schema")
    for group in ("row_key", "sort_key"):
        found, declared = (
            [(one.name, one.type, one.expression) for one in getattr(schema, group)]
            for schema in (there, wanted.schema)
        )
        if found != declared:
            shown = ", ".join(f"{name} ({kind})" for name, kind, _ in found) or "no fields"
            raise declaration.wrong((*keys, group), f"the table has {shown}, and keys cannot be changed")
    fields = {one.name: one for one in there.values}
    for field in wanted.schema.values:
        if field.name not in fields:
            yield f"add field {field.name} ({name_of(field.type)})", AddField(field.name, field.type)
        else:
            yield from _field_changes(fields[field.name], field, declaration, (*keys, "values", field.name))
    for name in fields if prune else ():
        if name not in wanted.schema.names:
            yield f"drop field {name}", DropField(name)


def _field_changes(
    there: Field, wanted: Field, declaration: Declaration, keys: tuple[str, ...]
) -> Iterator[tuple[str, SchemaChange]]:
    if there.expression != wanted.expression:
        raise declaration.wrong(keys, "whether and how a field is generated cannot be changed")
    if there.type != wanted.type:
        found, becomes = name_of(there.type), name_of(wanted.type)
        if not types.can_become(there.type, wanted.type):
            raise declaration.wrong(keys, f"the field is {found}, and cannot become {becomes}")
        yield f"widen {there.name} from {found} to {becomes}", WidenField(there.name, wanted.type)
    if there.nullable and not wanted.nullable:
        raise declaration.wrong(keys, "the field may be null, and rows may have nulls: declare it nullable")
    if wanted.nullable and not there.nullable:
        yield f"let {there.name} be null", AllowNulls(there.name)


def _settings_changes(
    of: str, there: Mapping[str, Any], wanted: Mapping[str, Any] | None, change: Callable[..., object], *, prune: bool
) -> Iterator[PlannedChange]:
    if wanted is None:
        return
    for name, value in wanted.items():
        if there.get(name) != value:
            yield PlannedChange(f"{of}: {name} = {value}", partial(change, **{name: value}))
    for name in there if prune else ():
        if name not in wanted:
            text = f"{of}: {name} takes its default again, from {there[name]}"
            yield PlannedChange(text, partial(change, **{name: None}), loses=True)
