"""``lakebed apply`` and ``dump``: bring an instance into the state that a file declares, and write such a file.

A file is YAML, JSON or TOML; docs/apply.md specifies it. :func:`read_declaration` checks it as a whole, and names the
line of what is wrong (in TOML the key); :func:`declaration_of` is the inverse for an instance. A file has no effect on
what it does not mention. The plan is the list of changes that lead from the instance to the declaration; a second
``apply`` of the same file plans nothing. Each change is committed separately: after an error the earlier changes
remain, and a repeat makes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.access import check_role_fits, listed_value
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code, Error, NotFoundError, UsageError
from lakebed.model import settings, types
from lakebed.model.checks import are_names, are_texts
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.json_values import json_text
from lakebed.model.merge_modes import KEEP_ALL, MergeMode, check_mode, mode_of
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter, age_field
from lakebed.model.schema import Schema
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, SchemaChange, WidenField
from lakebed.model.type_names import name_of
from lakebed.model.wording import count_text, did_you_mean, duration_text

if TYPE_CHECKING:
    import lakebed
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState
    from lakebed.server.security.roles import Role


Keys = tuple[str | int, ...]
"""Where in a file a value stands: ``("tables", "readings", "schema")``."""

_TOP = ("settings", "tables", "views", "indexes", "roles")
_OF_ANY = ("merge", "online", "settings", "tags", "filter", "age_off")
_OF_TABLE = ("schema", *_OF_ANY)
_OF_VIEW = ("source", "select", "row_key", "sort_key", *_OF_ANY)
_OF_INDEX = ("table", "on")
_OF_ROLE = ("permission", "tables", "where", "hidden", "masks")


@dataclass(frozen=True, slots=True)
class DeclaredView:
    """The source of a view, and its keys."""

    source: str
    select: str
    row_key: Sequence[str]
    sort_key: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DeclaredIndex:
    """The table of an index, and its fields."""

    table: str
    on: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A declared table or view: it has a schema or a ``view``. None for parts that the file does not mention;
    ``filters`` are a SetFilter, an AgeOff or both, if it mentions them.
    """

    keys: Keys
    name: str
    schema: Schema | None
    view: DeclaredView | None = None
    merge: MergeMode = KEEP_ALL
    online: bool | None = None
    settings: Mapping[str, Any] | None = None
    tags: Mapping[str, int] | None = None
    filters: tuple[FilterChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that a file declares; ``where`` is the place of a value, for messages."""

    where: Callable[[Keys], str]
    settings: Mapping[str, Any] | None = None
    tables: Mapping[str, DeclaredTable] = field(default_factory=dict)
    roles: Mapping[str, Role] | None = None
    indexes: Mapping[str, DeclaredIndex] = field(default_factory=dict)

    def wrong(self, keys: Keys, text: str) -> Error:
        """Return the error for a value of the file."""
        return Code.ARGUMENT_INVALID(f"{self.where(keys)}: {text}")


def read_declaration(path: Path) -> Declaration:
    """Return the declaration in a file. Raises NotFoundError, UsageError."""
    from lakebed.files.formats.input_file import read_text

    text = read_text(path)
    document, lines = _parsed(path, text)

    def where(keys: Keys) -> str:
        known = next((keys[:n] for n in range(len(keys), 0, -1) if keys[:n] in lines), ())
        line = f":{lines[known]}" if known in lines else ""
        return f"{path}{line}: {'.'.join(map(str, keys)) or 'the file'}"

    found = Declaration(where)
    _check_declared_keys(found, (), document, _TOP)
    groups = {group: _group(found, group, document) for group in _TOP[1:]}
    declared = {name: _declared_table(found, ("tables", name), value) for name, value in groups["tables"].items()}
    for name, value in groups["views"].items():
        if name in declared:
            raise found.wrong(("views", name), "there is a table of that name in the file")
        declared[name] = _view(found, ("views", name), value)
    indexes = {name: _index(found, ("indexes", name), value) for name, value in groups["indexes"].items()}
    for name in indexes:
        if name in declared:
            raise found.wrong(("indexes", name), "there is a table or view of that name in the file")
    roles = {name: _role(found, ("roles", name), value) for name, value in groups["roles"].items()}
    return Declaration(
        where,
        _settings(found, ("settings",), document.get("settings")),
        declared,
        None if document.get("roles") is None else roles,
        indexes,
    )


def _group(found: Declaration, group: str, document: Mapping[str, Any]) -> dict[str, Any]:
    given = document.get(group)
    if not isinstance(given, dict | None):
        raise found.wrong((group,), f"must map names of {group} to what they are")
    return given or {}


def declaration_of(lake: lakebed.Instance) -> dict[str, Any]:
    """Return the document that declares an instance as it is."""
    from lakebed.server.security.stored import roles_of

    groups: dict[str, dict[str, Any]] = {"tables": {}, "views": {}}
    indexes: dict[str, dict[str, Any]] = {}
    for name in lake.tables():
        state = lake.table(name).state()
        indexes |= {index: {"table": name, "on": on} for index, on in lake.indexes(name).items()}
        if state.view is not None and state.view.index is not None:
            continue
        found: dict[str, Any]
        if state.view is None:
            group, found = "tables", {"schema": state.created.declaration()}
        else:
            keys = {key: [f.name for f in getattr(state.created, key)] for key in ("row_key", "sort_key")}
            group, found = "views", {"source": source_name(lake, state), "select": state.view.select, **keys}
        if (mode := state.merge.document()) is not None:
            found["merge"] = mode
        found["online"] = lake.is_online(name)
        found["settings"] = dict(state.settings)
        found["tags"] = dict(state.tags)
        if state.row_filter.predicate:
            found["filter"] = state.row_filter.predicate
        if (aged := age_of(state)) is not None:
            found["age_off"] = {aged[0]: aged[1]}
        groups[group][name] = found
    document = {"settings": dict(lake.catalog().defaults), "tables": groups["tables"]}
    document |= {"views": groups["views"]} if groups["views"] else {}
    document |= {"indexes": dict(sorted(indexes.items()))} if indexes else {}
    roles = {name: role_document(role) for name, role in roles_of(lake.storage).items()}
    return document | ({"roles": roles} if roles else {})


def role_document(role: Role) -> dict[str, Any]:
    """Return a role as a file declares it, without default values."""
    return {key: value for key, value in role.to_json().items() if value and key != "name"}


def source_name(lake: lakebed.Instance, state: TableState) -> str:
    """Return the name of the table that feeds a view; its id if it was dropped."""
    assert state.view is not None
    try:
        return lake.named(state.view.table).name
    except NotFoundError:
        return state.view.table


def age_of(state: TableState) -> tuple[str, str] | None:
    """Return the field and the age of a table's age-off, as they are written; None without."""
    field = age_field(state.row_filter, state.created)
    if field is None:
        return None
    days, rest = divmod(state.row_filter.age_s, 86_400)
    hours, seconds = divmod(rest, 3_600)
    parts = ((days, "d"), (hours, "h"), (seconds, "s"))
    unit = f" of {state.row_filter.unit}" if state.row_filter.unit else ""
    return field.name, "".join(f"{count}{name}" for count, name in parts if count) + unit


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return the document as YAML. Raises UsageError if PyYAML is not installed."""
    with optional_imports():
        import yaml
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text


def _declared_table(found: Declaration, keys: Keys, given: Any) -> DeclaredTable:
    _check_declared_keys(found, keys, given, _OF_TABLE)
    if "schema" not in given:
        raise found.wrong(keys, "a table needs a schema, with row_key, sort_key and values")
    schema = _with_place(found, (*keys, "schema"), lambda: Schema.from_json(given["schema"]))
    merge = _with_place(found, (*keys, "merge"), lambda: check_mode(mode_of(given.get("merge")), schema))
    return _declared(found, keys, given, DeclaredTable(keys, str(keys[-1]), schema, merge=merge))


def _view(found: Declaration, keys: Keys, given: Any) -> DeclaredTable:
    _check_declared_keys(found, keys, given, _OF_VIEW)
    for key in ("source", "select"):
        if not isinstance(given.get(key), str):
            raise found.wrong((*keys, key), "a view needs a source, the name of a table, and a select, a query in SQL")
    names = {key: given.get(key) or [] for key in ("row_key", "sort_key")}
    for key, value in names.items():
        if not are_texts(value) or (key == "row_key" and not value):
            raise found.wrong((*keys, key), "must be a list of columns of the query, such as [origin, day]")
    view = DeclaredView(given["source"], given["select"], **names)
    merge = _with_place(found, (*keys, "merge"), lambda: mode_of(given.get("merge")))
    return _declared(found, keys, given, DeclaredTable(keys, str(keys[-1]), None, view, merge))


def _index(found: Declaration, keys: Keys, given: Any) -> DeclaredIndex:
    _check_declared_keys(found, keys, given, _OF_INDEX)
    if not isinstance(given.get("table"), str) or not are_texts(given.get("on") or 0) or not given["on"]:
        raise found.wrong(keys, "an index has a table, its name, and on, a list of columns of it, such as [tailnum]")
    return DeclaredIndex(given["table"], given["on"])


def _declared(found: Declaration, keys: Keys, given: Any, table: DeclaredTable) -> DeclaredTable:
    """Return the table with what tables and views have in common."""
    online = given.get("online")
    if not isinstance(online, bool | None):
        raise found.wrong((*keys, "online"), f"must be true or false, not {online!r}")
    tags = given.get("tags")
    if tags is not None and not (isinstance(tags, dict) and all(_is_version(one) for one in tags.values())):
        raise found.wrong((*keys, "tags"), "must map names to versions, which are whole numbers")
    filters: list[FilterChange] = []
    if "filter" in given:
        filters.append(_with_place(found, (*keys, "filter"), lambda: SetFilter(given["filter"])))
    if "age_off" in given:
        filters.append(_with_place(found, (*keys, "age_off"), lambda: _age_off(found, keys, given["age_off"])))
    settings = _settings(found, (*keys, "settings"), given.get("settings"))
    return replace(table, online=online, settings=settings, tags=tags, filters=tuple(filters))


def _age_off(found: Declaration, keys: Keys, given: Any) -> AgeOff:
    from lakebed.cli.merging import age_off_of

    if given is None:
        return AgeOff(None)
    if not isinstance(given, dict) or len(given) != 1 or not are_names(given):
        raise found.wrong((*keys, "age_off"), "must map one field to an age, such as {at: 30d}, or be null")
    ((name, age),) = given.items()
    return age_off_of(name, age)


def _role(found: Declaration, keys: Keys, given: Any) -> Role:
    from lakebed.server.security.roles import Role

    _check_declared_keys(found, keys, given, _OF_ROLE)
    whole: dict[str, Any] = {"permission": "read", "tables": None, "where": "", "hidden": [], "masks": {}}
    return _with_place(found, keys, lambda: Role.from_json(whole | given | {"name": str(keys[-1])}))  # type: ignore[no-any-return]


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _settings(found: Declaration, keys: Keys, given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise found.wrong(keys, "must map names of settings to values")
    valid: dict[str, Any] = {}
    for name, value in given.items():
        valid |= _with_place(found, (*keys, name), partial(settings.validate, {name: value}))
    return valid


def _with_place(found: Declaration, keys: Keys, make: Callable[[], Any]) -> Any:
    """Return what ``make`` returns; an error of it names the place in the file."""
    try:
        return make()
    except UsageError as error:
        raise Code(error.code)(f"{found.where(keys)}: {error.message}", **error.facts) from None


def _check_declared_keys(found: Declaration, keys: Keys, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise found.wrong(keys, f"must map {', '.join(known)} to values")
    for name in given:
        if name not in known:
            text = f"unknown key {name!r}; keys: {', '.join(known)}{did_you_mean(str(name), known)}"
            raise found.wrong((*keys, name), text)


# -- files ---------------------------------------------------------------------------------------------------------


def _parsed(path: Path, text: str) -> tuple[Any, dict[Keys, int]]:
    """Return the document, and the line of each of its keys as far as they are known."""
    match path.suffix:
        case ".toml":
            import tomllib

            try:
                return tomllib.loads(text), {}
            except tomllib.TOMLDecodeError as error:
                raise Code.ARGUMENT_INVALID(f"{path}: not TOML: {error}") from error
        case ".yaml" | ".yml" | ".json":
            return _from_yaml(path, text)
        case other:
            raise Code.FORMAT_UNKNOWN(f"{path}: a declaration is named .yaml, .yml, .json or .toml, not {other!r}")


def _from_yaml(path: Path, text: str) -> tuple[Any, dict[Keys, int]]:
    """YAML, and JSON, which is YAML as well."""
    with optional_imports():
        import yaml
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = path if mark is None else f"{path}:{mark.line + 1}"
        raise Code.ARGUMENT_INVALID(f"{place}: not YAML: {getattr(error, 'problem', error)}") from error
    lines: dict[Keys, int] = {}
    for keys, line in _lines(root, ()):
        if keys in lines:
            raise Code.ARGUMENT_INVALID(f"{path}:{line}: {'.'.join(map(str, keys))} is there twice")
        lines[keys] = line
    return ({} if document is None else document), lines


def _lines(node: Any, keys: Keys) -> Iterator[tuple[Keys, int]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inside = (*keys, key.value)
            yield inside, key.start_mark.line + 1
            yield from _lines(value, inside)


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
    help="A declaration: .yaml, .json or .toml (`lakebed docs apply`).",
)
@click.option("--plan", "plan_only", is_flag=True, help="Print the changes without making them.")
@click.option(
    "--prune",
    is_flag=True,
    help="Also drop tables, views, indexes, fields, settings, tags and roles that the file lacks.",
)
@options.yes
def apply(cli: Invocation, *, file: Path, plan_only: bool, prune: bool, yes: bool) -> None:
    """Bring the instance into the state that a file declares; asks first.

    A file declares tables, views and indexes, their schemas, merge modes, filters, settings and tags, and roles. What
    it does not mention is left unchanged, unless --prune is given. Keys, merge modes and the queries of views cannot be
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
    for name, index in declaration.indexes.items():
        yield from _index_changes(lake, name, index, declaration)
    yield from _role_changes(lake, declaration, prune=prune)
    if prune:
        gone = [name for name in there if name not in declaration.tables and name not in declaration.indexes]
        table_of = {index: name for name in there for index in lake.indexes(name)}
        for name in gone:
            if name not in table_of:
                yield PlannedChange(f"drop table {name} and its rows", partial(lake.drop_table, name), loses=True)
            elif table_of[name] not in gone:  # The others go with their tables.
                yield PlannedChange(f"drop index {name}", partial(lake.drop_index, name), loses=True)


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


def _index_changes(
    lake: lakebed.Instance, name: str, index: DeclaredIndex, declaration: Declaration
) -> Iterator[PlannedChange]:
    there = name in lake.tables()
    if index.table not in declaration.tables and index.table not in lake.tables():
        text = f"there is no table {index.table}, and none is declared"
        raise declaration.wrong(("indexes", name, "table"), text)
    if there and (index.table not in lake.tables() or lake.indexes(index.table).get(name) != list(index.on)):
        text = f"{name} is something else, which cannot be changed: drop it, and apply again"
        raise declaration.wrong(("indexes", name), text)
    if not there:
        text = f"create index {name} of {index.table}: {', '.join(index.on)}"
        yield PlannedChange(text, partial(lake.create_index, name, table=index.table, on=index.on))


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
                said.append(f"age-off after {duration_text(change.age_s)} by {field}")
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
    for one in wanted.values:
        if one.name not in fields:
            yield f"add field {one.name} ({name_of(one.returned_type)})", AddField(one.name, one.returned_type)
        else:
            yield from _field_changes(fields[one.name], one, declaration, (*keys, "values", one.name))
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
