"""Declarations: files that list the tables, views and roles of an instance, for ``lakebed apply`` and ``dump``.

A file is YAML, JSON or TOML; docs/apply.md specifies it. :func:`read_declaration` checks it as a whole, and names the
line of what is wrong (in TOML the key); :func:`declaration_of` is the inverse for an instance. A file has no effect on
what it does not mention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code, Error, NotFoundError, UsageError
from lakebed.model import settings
from lakebed.model.checks import are_names, are_texts
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.merge_modes import KEEP_ALL, MergeMode, check_mode, mode_of
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter, age_field
from lakebed.model.schema import Schema
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    import lakebed
    from lakebed.model.state.table_state import TableState
    from lakebed.server.security.roles import Role

Keys = tuple[str | int, ...]
"""Where in a file a value stands: ``("tables", "readings", "schema")``."""

_TOP = ("settings", "tables", "views", "roles")
_OF_ANY = ("merge", "online", "settings", "tags", "filter", "age_off")
_OF_TABLE = ("schema", *_OF_ANY)
_OF_VIEW = ("source", "select", "row_key", "sort_key", *_OF_ANY)
_OF_ROLE = ("permission", "tables", "where", "hidden", "masks")


@dataclass(frozen=True, slots=True)
class DeclaredView:
    """The source of a view, and its keys."""

    source: str
    select: str
    row_key: Sequence[str]
    sort_key: Sequence[str] = ()


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
    roles = {name: _role(found, ("roles", name), value) for name, value in groups["roles"].items()}
    return Declaration(
        where,
        _settings(found, ("settings",), document.get("settings")),
        declared,
        None if document.get("roles") is None else roles,
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
    for name in lake.tables():
        state = lake.table(name).state()
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
