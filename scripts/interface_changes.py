"""What users of the last release would miss in this one: names of Python, of HTTP, of JSON, and the storage format.

A removed name of Python is refused unless the page docs/deprecations.md of two minor releases had it. Names of HTTP, of
JSON and of error codes, and a new storage format, need an entry in the section of the changelog.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakebed.model.documents import load

TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")

# Runs on either release, so it asks only for what is in both.
INTERFACES = """
import json, lakebed
from lakebed.errors import Code
from lakebed.model.documents import FEATURES, FORMAT
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
described = make_app(Service(lakebed.create("memory://release"))).openapi_schema.to_schema()
calls = [f"{method.upper()} {path}" for path, item in described["paths"].items() for method in item]
schemas = described.get("components", {}).get("schemas", {})
members = [f"{name}.{member}" for name, schema in schemas.items() for member in schema.get("properties", {})]
codes = [code.value for code in Code]
print(json.dumps({"format": FORMAT, "features": sorted(FEATURES), "http": calls + members, "codes": codes}))
"""

# What breaks calls; griffe also reports values of attributes and types of results.
BREAKS = {
    "OBJECT_REMOVED", "OBJECT_CHANGED_KIND", "PARAMETER_REMOVED", "PARAMETER_MOVED", "PARAMETER_CHANGED_KIND",
    "PARAMETER_CHANGED_REQUIRED", "PARAMETER_ADDED_REQUIRED", "CLASS_REMOVED_BASE",
}  # fmt: skip


def released(root: Path) -> list[tuple[int, int, int]]:
    """Return the versions of all tags of releases, in order."""
    tags = subprocess.run(["git", "tag", "--merged", "HEAD"], cwd=root, check=True, capture_output=True, text=True)  # noqa: S607
    found = [TAG.fullmatch(tag) for tag in tags.stdout.split()]
    return sorted((int(one[1]), int(one[2]), int(one[3])) for one in found if one)


def last_release(root: Path, version: str) -> str | None:
    """Return the tag of the newest release before a version; None if there is none."""
    this = tuple(map(int, version.split(".")))
    before = [one for one in released(root) if one < this]
    return "v{}.{}.{}".format(*before[-1]) if before else None


def changes_since(root: Path, tag: str, changes: str) -> list[str]:
    """Return what is broken since the release of a tag, and was not announced as it has to be."""
    with tempfile.TemporaryDirectory(prefix="lakebed-before-") as folder:
        archive = subprocess.run(["git", "archive", tag], cwd=root, check=True, capture_output=True).stdout  # noqa: S603, S607
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)  # noqa: S603, S607
        before = Path(folder)
        broken = list(broken_python(root, before, released(root)))
        broken += broken_interfaces(interfaces_of(before), interfaces_of(root), changes)
        old, new = (shapes((place / "docs/cli-json.md").read_text("utf-8")) for place in (before, root))
        broken += [
            f"JSON of `{name}`: {member} ({kind}) is gone or of another type; the changelog has to name `{name}`"
            for (name, member), kind in old.items()
            if new.get((name, member)) != kind and f"`{name}`" not in changes
        ]
    return broken


# -- Python -----------------------------------------------------------------------------------------------------------


def broken_python(root: Path, before: Path, tags: list[tuple[int, int, int]]) -> Iterator[str]:
    """Yield the public names that are gone or are called otherwise, if they were not deprecated for long enough."""
    allowed = may_go(deprecations(before), tags)
    for path, what in python_breakages(before / "src", root / "src"):
        if path not in allowed:
            yield f"{path}: {what}; keep it, list it in docs/deprecations.md, and let two minor releases pass"


def python_breakages(before: Path, now: Path) -> Iterator[tuple[str, str]]:
    """Yield (path, what) for each public name of ``lakebed`` that breaks its callers."""
    import griffe

    old, new = (griffe.load("lakebed", search_paths=[place], resolve_aliases=True) for place in (before, now))
    for name in sorted(public_names(old)):
        try:
            ours, theirs = resolved(old, name), resolved(new, name)
        except (KeyError, griffe.AliasResolutionError):
            yield f"lakebed.{name}", "is gone"
            continue
        for one in griffe.find_breaking_changes(ours, theirs):
            if one.kind.name in BREAKS:
                inner = one.obj.path.removeprefix(ours.path).lstrip(".")
                yield ".".join(filter(None, ("lakebed", name, inner))), one.kind.value


def public_names(package: Any) -> set[str]:
    """Return what ``lakebed.__all__`` lists, and ``open``, which it leaves out."""
    return {str(getattr(one, "name", one)).strip("'\"") for one in package.exports or ()} | {"open"}


def resolved(package: Any, name: str) -> Any:
    """Return the object of a name, behind imports."""
    found = package.members[name]
    return found.final_target if found.is_alias else found


def deprecations(root: Path) -> dict[str, tuple[int, int]]:
    """Return the deprecated names of docs/deprecations.md, with the minor version since when."""
    page = root / "docs/deprecations.md"
    rows = re.findall(
        r"^\| `([\w.]+)` \| (\d+)\.(\d+) \|", page.read_text("utf-8") if page.exists() else "", re.MULTILINE
    )
    return {name: (int(major), int(minor)) for name, major, minor in rows}


def may_go(deprecated: dict[str, tuple[int, int]], tags: list[tuple[int, int, int]]) -> set[str]:
    """Return the names that were deprecated in at least two minor releases."""
    minors = {(major, minor) for major, minor, _ in tags}
    return {name for name, since in deprecated.items() if len([one for one in minors if one >= since]) >= 2}


# -- interfaces of programs -------------------------------------------------------------------------------------------


def interfaces_of(root: Path) -> dict[str, Any]:
    """Return the storage format, the calls of HTTP with their members, and the error codes of a tree."""
    variables = os.environ | {"PYTHONPATH": str(root / "src")}
    program = [sys.executable, "-c", INTERFACES]
    ran = subprocess.run(program, env=variables, cwd=root, check=True, capture_output=True, text=True)  # noqa: S603
    return load(ran.stdout)


def broken_interfaces(before: dict[str, Any], now: dict[str, Any], changes: str) -> list[str]:
    """Return what is gone, or another storage format, without an entry in the changelog."""
    broken = [
        f"{kind}: {name} is gone, and the changelog does not name it"
        for kind in ("http", "codes", "features")
        for name in before[kind]
        if name not in now[kind] and f"`{name}`" not in changes
    ]
    if now["format"] != before["format"] and f"format {now['format']}" not in changes:
        broken.append(
            f"the storage format is {now['format']}, was {before['format']}, and the changelog does not say so"
        )
    return broken


def shapes(page: str) -> dict[tuple[str, str], str]:
    """Return the type of each member of each shape of docs/cli-json.md, by command and path."""
    blocks = re.findall(r"^```json (\S[^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return {(name, path): kind for name, text in blocks for path, kind in flat(load(text))}


def flat(shape: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, type) of each leaf."""
    match shape:
        case dict():
            for name, inner in shape.items():
                yield from flat(inner, f"{path}.{name}")
        case list():
            for inner in shape:
                yield from flat(inner, f"{path}[]")
        case _:
            yield path.lstrip("."), str(shape)
