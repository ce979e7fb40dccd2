"""``lakebed apply`` and ``dump``: bring an instance into the state that a file declares, and write such a file.

The plan is the list of changes that lead from the instance to the declaration; a second ``apply`` of the same file
plans nothing. Each change is committed separately: after an error the earlier changes remain, and a repeat makes the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.access import check_role_fits, listed_value
from lakebed.cli.declarations import (
    Declaration,
    DeclaredTable,
    Keys,
    declaration_of,
    read_declaration,
    role_document,
    source_name,
    yaml_text,
)
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.model import types
from lakebed.model.json_values import json_text
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter, age_field, shown_age
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, SchemaChange, WidenField
from lakebed.model.type_names import name_of
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    import lakebed
    from lakebed.model.schema import Field, Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.server.security.roles import Role


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change: its description, whether something is lost by it, and how it is made."""

    text: str
    make: Callable[[], object]
    loses: bool = False


@command
@click.argument(
    "file",
    metavar="FILE",
    type=Path,
    shell_complete=completions.paths,
    help="A declaration: .yaml, .json or .toml (docs/apply.md).",
)
@click.option("--plan", "plan_only", is_flag=True, help="Print the changes without making them.")
@click.option(
    "--prune", is_flag=True, help="Also drop tables, views, fields, settings, tags and roles that the file lacks."
)
@options.yes
def apply(cli: Invocation, *, file: Path, plan_only: bool, prune: bool, yes: bool) -> None:
    """Bring the instance into the state that a file declares; asks first.

    A file declares tables and views, their schemas, merge modes, filters, settings and tags, and roles. What it does
    not mention is left unchanged, unless --prune is given. Keys, merge modes and the queries of views cannot be
    changed; a field is renamed by `lakebed table alter`. `lakebed dump` writes the file of an instance.
    """
    declaration = read_declaration(file)
    changes = list(_plan(cli.instance(), declaration, prune=prune))
    lines = [f"{'-' if change.loses else '+'} {change.text}" for change in changes]
    if changes and not plan_only:
        if not yes:
            count = count_text(len(changes), "change")
            warning = "\n".join([*lines, f"This makes {count}"])
            options.confirm(f"make {count} by {file}", warning, "apply", what="the word apply")
        for change in changes:
            change.make()
    listed = [{"change": change.text, "loses": change.loses} for change in changes]
    summary = f"{count_text(len(changes), 'change')} {'planned' if plan_only else 'made'}" if changes else "no changes"
    cli.out.document({"changes": listed, "made": bool(changes) and not plan_only}, [*lines, summary])


@command
@click.option("--as", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The form.")
def dump(cli: Invocation, *, form: str) -> None:
    """Print the declaration of the instance, as `lakebed apply` reads it."""
    document = declaration_of(cli.instance())
    as_json = form == "json"
    cli.out.document(document, [json_text(document) if as_json else yaml_text(document).rstrip("\n")])


def _plan(lake: lakebed.Instance, declaration: Declaration, *, prune: bool) -> Iterator[PlannedChange]:
    yield from _settings_changes("instance", lake.catalog().defaults, declaration.settings, lake.set, prune=prune)
    there = lake.tables()
    for name, wanted in declaration.tables.items():
        if name in there:
            yield from _table_changes(lake, wanted, declaration, prune=prune)
        else:
            yield from _creation(lake, wanted, declaration)
    yield from _role_changes(lake, declaration, prune=prune)
    if prune:
        for name in there:
            if name not in declaration.tables:
                yield PlannedChange(f"drop table {name} and its rows", partial(lake.drop_table, name), loses=True)


def _creation(lake: lakebed.Instance, wanted: DeclaredTable, declaration: Declaration) -> Iterator[PlannedChange]:
    online, view = wanted.online is not False, wanted.view
    how = {"settings": wanted.settings, "merge": wanted.merge}

    def create() -> None:
        if wanted.schema is not None:
            lake.create_table(wanted.name, wanted.schema, online=online, **how)  # type: ignore[arg-type]
        elif view is not None:
            keys = {"row_key": view.row_key, "sort_key": view.sort_key}
            lake.create_view_table(wanted.name, source=view.source, select=view.select, **keys, **how)  # type: ignore[arg-type]
            if not online:
                lake.set_online(wanted.name, online=False)

    if view is None:
        assert wanted.schema is not None
        yield PlannedChange(f"create table {wanted.name}: {', '.join(wanted.schema.names)}", create)
    else:
        if view.source not in declaration.tables and view.source not in lake.tables():
            raise declaration.wrong((*wanted.keys, "source"), f"there is no table {view.source}, and none is declared")
        yield PlannedChange(f"create view {wanted.name} of {view.source}: {view.select}", create)
    if any(change not in (SetFilter(None), AgeOff(None)) for change in wanted.filters):
        yield _filtering(lake, wanted)
    for tag, version in (wanted.tags or {}).items():
        yield _tagging(lake, wanted.name, tag, version)


def _table_changes(
    lake: lakebed.Instance, wanted: DeclaredTable, declaration: Declaration, *, prune: bool
) -> Iterator[PlannedChange]:
    table, name = lake.table(wanted.name), wanted.name
    state = table.state()
    _check_view(lake, wanted, declaration)
    if state.merge != wanted.merge:
        text = f"table {name} merges rows by {state.merge.document()}, which cannot be changed"
        raise declaration.wrong((*wanted.keys, "merge"), text)
    if wanted.schema is not None:
        for text, change in _schema_changes(state.created, wanted.schema, wanted.keys, declaration, prune=prune):
            loses = isinstance(change, DropField)
            yield PlannedChange(f"table {name}: {text}", partial(table.alter, change), loses=loses)
    if any(_differs(change, state) for change in wanted.filters):
        yield _filtering(lake, wanted)
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
            raise declaration.wrong((*wanted.keys, "tags", tag), text)
        yield _tagging(lake, name, tag, version)
    for tag in sorted(state.tags) if prune else ():
        if tag not in wanted.tags:
            yield PlannedChange(f"table {name}: drop tag {tag}", partial(table.untag, tag), loses=True)


def _check_view(lake: lakebed.Instance, wanted: DeclaredTable, declaration: Declaration) -> None:
    """Raise UsageError unless an existing table is a table, or the declared view."""
    state, view = lake.table(wanted.name).state(), wanted.view
    if state.view is None and view is None:
        return
    if state.view is None or view is None:
        is_one = "a table" if state.view is None else "a view"
        raise declaration.wrong(wanted.keys, f"{wanted.name} is {is_one}, which cannot be changed")
    keys = [[f.name for f in fields] for fields in (state.created.row_key, state.created.sort_key)]
    found = (source_name(lake, state), state.view.select, *keys)
    if found != (view.source, view.select, list(view.row_key), list(view.sort_key)):
        raise declaration.wrong(
            wanted.keys,
            f"the view is of {found[0]}, by the query {found[1]!r}, with the row key {', '.join(keys[0])} and the sort "
            f"key {', '.join(keys[1]) or '(none)'}; this cannot be changed: drop the view, and apply again",
        )


def _differs(change: FilterChange, state: TableState) -> bool:
    if isinstance(change, SetFilter):
        return (change.predicate or "") != state.row_filter.predicate
    field = age_field(state.row_filter, state.created)
    found = None if field is None else field.name
    return (change.field, change.age_s, change.unit) != (found, state.row_filter.age_s, state.row_filter.unit)


def _filtering(lake: lakebed.Instance, wanted: DeclaredTable) -> PlannedChange:
    """Return the change of the filter; rows that it hides are lost when their files are compacted."""
    said, hides = [], False
    for change in wanted.filters:
        match change:
            case SetFilter(predicate=None):
                said.append("no filter")
            case SetFilter(predicate=predicate):
                said.append(f"only rows with {predicate}")
                hides = True
            case AgeOff(field=None):
                said.append("no age-off")
            case AgeOff(field=field):
                said.append(f"age-off after {shown_age(change.age_s)} by {field}")
                hides = True
    # The table may be made by a change before this one.
    make = lambda: lake.table(wanted.name).alter(*wanted.filters)  # noqa: E731 - as above
    return PlannedChange(f"table {wanted.name}: {', '.join(said)}", make, loses=hides)


def _role_changes(lake: lakebed.Instance, declaration: Declaration, *, prune: bool) -> Iterator[PlannedChange]:
    from lakebed.server.security.stored import drop_role, put_role, roles_of

    if declaration.roles is None:
        return
    there = roles_of(lake.storage)
    for name, role in declaration.roles.items():
        for table in sorted(role.tables or ()):
            if table not in declaration.tables and table not in lake.tables():
                text = f"there is no table {table}, and none is declared"
                raise declaration.wrong(("roles", name, "tables"), text)
        if there.get(name) == role:
            continue

        def make(role: Role = role) -> None:
            for table in sorted(role.tables or ()):
                check_role_fits(role, lake.table(table).schema, table)
            put_role(lake.storage, role)

        text = ", ".join(f"{key} {listed_value(value)}" for key, value in role_document(role).items())
        yield PlannedChange(f"{'change' if name in there else 'create'} role {name}: {text}", make)
    for name in there if prune else ():
        if name not in declaration.roles:
            yield PlannedChange(f"drop role {name}", partial(drop_role, lake.storage, name), loses=True)


def _tagging(lake: lakebed.Instance, name: str, tag: str, version: int) -> PlannedChange:
    # The table may be made by a change before this one.
    return PlannedChange(f"tag version {version} of {name} as {tag}", lambda: lake.table(name).tag(tag, version))


def _schema_changes(
    there: Schema, wanted: Schema, table: Keys, declaration: Declaration, *, prune: bool
) -> Iterator[tuple[str, SchemaChange]]:
    keys = (*table, "schema")
    for group in ("row_key", "sort_key"):
        found, declared = (
            [(one.name, one.type, one.expression) for one in getattr(schema, group)] for schema in (there, wanted)
        )
        if found != declared:
            shown = ", ".join(f"{name} ({kind})" for name, kind, _ in found) or "no fields"
            raise declaration.wrong((*keys, group), f"the table has {shown}, and keys cannot be changed")
    fields = {one.name: one for one in there.values}
    for field in wanted.values:
        if field.name not in fields:
            yield f"add field {field.name} ({name_of(field.returned_type)})", AddField(field.name, field.returned_type)
        else:
            yield from _field_changes(fields[field.name], field, declaration, (*keys, "values", field.name))
    for name in fields if prune else ():
        if name not in wanted.names:
            yield f"drop field {name}", DropField(name)


def _field_changes(
    there: Field, wanted: Field, declaration: Declaration, keys: Keys
) -> Iterator[tuple[str, SchemaChange]]:
    if there.expression != wanted.expression:
        raise declaration.wrong(keys, "whether and how a field is generated cannot be changed")
    if there.returned_type != wanted.returned_type:
        found, becomes = name_of(there.returned_type), name_of(wanted.returned_type)
        if not types.can_become(there.returned_type, wanted.returned_type):
            raise declaration.wrong(keys, f"the field is {found}, and cannot become {becomes}")
        yield f"widen {there.name} from {found} to {becomes}", WidenField(there.name, wanted.returned_type)
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
