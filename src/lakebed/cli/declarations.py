"""Declarations: files that say which tables an instance is to have, for ``lakebed apply`` and ``lakebed dump``.

A file is YAML, JSON or TOML; docs/apply.md specifies it. :func:`read_declaration` checks it as a whole, and names the
line of what is wrong (in TOML the key); :func:`declaration_of` is the inverse for an instance. What a file leaves out
it says nothing about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed import settings
from lakebed.errors import Code, Error, UsageError
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.merge_modes import KEEP_ALL, MergeMode, check_mode, mode_of, stored_mode
from lakebed.model.schema import Schema
from lakebed.model.suggestions import did_you_mean

if TYPE_CHECKING:
    import lakebed

Keys = tuple[str | int, ...]
"""Where in a file a value stands: ``("tables", "readings", "schema")``."""

_TOP = ("settings", "tables")
_OF_TABLE = ("schema", "merge", "online", "settings", "tags")


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table as it is to be; None for what the file does not mention."""

    name: str
    schema: Schema
    merge: MergeMode = KEEP_ALL
    online: bool | None = None
    settings: Mapping[str, Any] | None = None
    tags: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that a file declares; ``where`` is the place of a value, for messages."""

    where: Callable[[Keys], str]
    settings: Mapping[str, Any] | None = None
    tables: Mapping[str, DeclaredTable] = field(default_factory=dict)

    def wrong(self, keys: Keys, text: str) -> Error:
        """The error for a value of the file."""
        return Code.ARGUMENT_INVALID(f"{self.where(keys)}: {text}")


def read_declaration(path: Path) -> Declaration:
    """The declaration in a file. Raises NotFoundError, UsageError."""
    from lakebed.formats.input_file import read_text

    text = read_text(path)
    document, lines = _parsed(path, text)

    def where(keys: Keys) -> str:
        known = next((keys[:n] for n in range(len(keys), 0, -1) if keys[:n] in lines), ())
        line = f":{lines[known]}" if known in lines else ""
        return f"{path}{line}: {'.'.join(map(str, keys)) or 'the file'}"

    found = Declaration(where)
    _check_names(found, (), document, _TOP)
    tables = document.get("tables") or {}
    if not isinstance(tables, dict):
        raise found.wrong(("tables",), "must map names of tables to what they are")
    declared = {name: _table(found, ("tables", name), value) for name, value in tables.items()}
    return Declaration(where, _settings(found, ("settings",), document.get("settings")), declared)


def declaration_of(lake: lakebed.Instance) -> tuple[dict[str, Any], list[str]]:
    """The document that declares an instance as it is, and what it cannot declare."""
    tables: dict[str, Any] = {}
    left_out = []
    for name in lake.tables():
        state = lake.table(name).state()
        if state.view is not None:
            left_out.append(f"{name} is a view")
            continue
        if state.filter_version:
            left_out.append(f"the filter of {name}")
        table: dict[str, Any] = {"schema": state.created.declaration()}
        if (mode := stored_mode(state.merge)) is not None:
            table["merge"] = mode
        table["online"] = lake.is_online(name)
        table["settings"] = dict(state.settings)
        table["tags"] = dict(state.tags)
        tables[name] = table
    return {"settings": dict(lake.catalog().defaults), "tables": tables}, left_out


def yaml_text(document: Mapping[str, Any]) -> str:
    """The document as YAML. Raises UsageError if PyYAML is not installed."""
    with optional_imports():
        import yaml
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text


def _table(found: Declaration, keys: Keys, given: Any) -> DeclaredTable:
    _check_names(found, keys, given, _OF_TABLE)
    name = str(keys[-1])
    if "schema" not in given:
        raise found.wrong(keys, "a table needs a schema, with row_key, sort_key and values")
    schema = _checked(found, (*keys, "schema"), lambda: Schema.from_json(given["schema"]))
    merge = _checked(found, (*keys, "merge"), lambda: check_mode(mode_of(given.get("merge")), schema))
    online = given.get("online")
    if not isinstance(online, bool | None):
        raise found.wrong((*keys, "online"), f"must be true or false, not {online!r}")
    tags = given.get("tags")
    if tags is not None and not (isinstance(tags, dict) and all(_is_version(one) for one in tags.values())):
        raise found.wrong((*keys, "tags"), "must map names to versions, which are whole numbers")
    return DeclaredTable(
        name, schema, merge, online, _settings(found, (*keys, "settings"), given.get("settings")), tags
    )


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _settings(found: Declaration, keys: Keys, given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise found.wrong(keys, "must map names of settings to values")
    valid: dict[str, Any] = {}
    for name, value in given.items():
        valid |= _checked(found, (*keys, name), partial(settings.validate, {name: value}))
    return valid


def _checked(found: Declaration, keys: Keys, make: Callable[[], Any]) -> Any:
    """What ``make`` returns; an error of it names the place in the file."""
    try:
        return make()
    except UsageError as error:
        raise Code(error.code)(f"{found.where(keys)}: {error.message}", **error.facts) from None


def _check_names(found: Declaration, keys: Keys, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise found.wrong(keys, f"must map {', '.join(known)} to values")
    for name in given:
        if name not in known:
            text = f"unknown key {name!r}; keys: {', '.join(known)}{did_you_mean(str(name), known)}"
            raise found.wrong((*keys, name), text)


# -- files ---------------------------------------------------------------------------------------------------------


def _parsed(path: Path, text: str) -> tuple[Any, dict[Keys, int]]:
    """The document, and the line of each of its keys as far as they are known."""
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
