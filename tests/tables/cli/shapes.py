"""The shapes that docs/cli-json.md promises, and whether a document has one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lakebed.model import settings

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli-json.md"

_BLOCK = re.compile(r"^```json ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_SCHEMA_FIELD = {"id": "integer", "name": "string", "type": "any", "nullable": "boolean"}


def documented() -> dict[str, Any]:
    """Every shape in the document, by the command that it belongs to."""
    return {command: json.loads(shape) for command, shape in _BLOCK.findall(DOCUMENT.read_text("utf-8"))}


def differences(document: Any, shape: Any, where: str = "") -> list[str]:
    """Where the document is not as the shape says; nothing if it is. Fields that the shape lacks differ too."""
    match shape:
        case "any":
            return []
        case str():
            return _named(document, shape, where)
        case [item]:
            if not isinstance(document, list):
                return [f"{where}: no array"]
            return [d for i, element in enumerate(document) for d in differences(element, item, f"{where}[{i}]")]
        case _:
            if not isinstance(document, dict):
                return [f"{where}: no object"]
            known = set(shape) - {"any column"}
            only = known - set(document) if known < set(shape) else known ^ set(document)
            names = [f"{where}.{name}: only on one side" for name in sorted(only)]
            return names + [
                d for n in known & set(document) for d in differences(document[n], shape[n], f"{where}.{n}")
            ]


def _named(document: Any, shape: str, where: str) -> list[str]:
    if " or " in shape:
        found = [differences(document, part, where) for part in shape.split(" or ")]
        return [] if [] in found else found[0]
    if shape == "key":
        return [] if isinstance(document, dict) else [f"{where}: no key"]
    if shape == "settings":
        return differences(
            document, {d.name: "number" if d.minimum is not None else "string" for d in settings.describe()}, where
        )
    if shape == "schema":
        groups: dict[str, Any] = {group: [_SCHEMA_FIELD] for group in ("row_key", "sort_key", "values")}
        return differences(document, {"version": "integer"} | groups, where)
    if shape in _TYPES:
        fits = isinstance(document, _TYPES[shape]) and (shape == "boolean") == isinstance(document, bool)
        return [] if fits else [f"{where}: {document!r} is no {shape}"]
    return differences(document, documented()[shape], where)
