"""The tools of a release, on this project and on small packages of a name that are released several times."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import interface_changes, release
from scripts.release import ReleaseError

ROOT = Path(__file__).parents[2]
CHANGES = "# Changelog\n\n## [0.10.0] - unreleased\n\n- One.\n\n## [0.9.0] - 2026-11-30\n\n### Added\n\n- Two.\n"
SBOM = """{
  "metadata": {
    "component": {
      "name": "lakebed",
      "version": "0.9.0"
    }
  }
}
"""
CHART = 'apiVersion: v2\nversion: 0.9.0\nappVersion: "0.9.0"\n'


def run(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    words = ("git", *named, *words[1:]) if words[0] == "git" else words
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


KEPT = "class Table:\n    def get(self, key, limit=None):\n        pass\n\n\ndef open(url):\n    pass\n"
PROJECT = {
    "pyproject.toml": (
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "lakebed"\nversion = "0.9.0"\nrequires-python = ">=3.11"\n'
        '[tool.hatch.build]\ninclude = ["src", "sbom.cdx.json"]\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/lakebed"]\nsbom-files = ["sbom.cdx.json"]\n'
    ),
    "src/lakebed/__init__.py": '__all__ = ["Table"]\nfrom lakebed.table import Table, open\n',
    "src/lakebed/table.py": KEPT,
    "src/lakebed/model/version.py": 'VERSION = "0.9.0"\n',
    "deploy/helm/lakebed/Chart.yaml": CHART,
    "sbom.cdx.json": SBOM,
    "CHANGELOG.md": CHANGES,
    "docs/cli-json.md": '```json table list\n{"tables": ["string"], "count": "integer"}\n```\n',
    "docs/deprecations.md": "| name | since | in its place |\n|---|---|---|\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, PROJECT)
    run(tmp_path, "git", "init", "-q", str(folder))
    commit(folder)
    return folder


def commit(folder: Path, *tags: str) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-q", "--allow-empty", "-m", "a")
    for tag in tags:
        run(folder, "git", "tag", tag)


# -- building ---------------------------------------------------------------------------------------------------------


def test_a_release_has_equal_builds_their_description_and_checksums(project: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "dist", tmp_path / "seen"
    lines = release.release(project, out, rehearse=False, attest_with=f"sh -c 'echo $0 >>{seen}'")
    names = [
        "lakebed-0.9.0-py3-none-any.whl",
        "lakebed-0.9.0.cdx.json",
        "lakebed-0.9.0.changes.md",
        "lakebed-0.9.0.tar.gz",
    ]
    assert sorted(path.name for path in out.iterdir()) == sorted([*names, "SHA256SUMS"])
    assert [line.split()[1] for line in lines] == names
    assert "OK" in run(out, "sha256sum", "--check", "SHA256SUMS")
    assert (out / names[2]).read_text() == "### Added\n\n- Two.\n"
    assert [Path(line).name for line in seen.read_text().split()] == [*names, "SHA256SUMS"]
    with zipfile.ZipFile(out / names[0]) as wheel:
        assert wheel.read("lakebed-0.9.0.dist-info/sboms/sbom.cdx.json") == (project / "sbom.cdx.json").read_bytes()
    with pytest.raises(ReleaseError, match="nothing may be published"):
        release.release(project, out, rehearse=False, attest_with="false")


HOOK = """
import os, time
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        with open(os.path.join(self.root, "src/lakebed/made.py"), "w") as file:
            file.write({what})
"""


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("repr(self.root)", r"differ in \['.*made.py'"),
        ("time.strftime('%Z')", r"differ in \['.*made.py'"),
        ("'x = 1'", None),
    ],
    ids=["a path", "a time zone", "neither"],
)
def test_builds_that_depend_on_the_machine_are_found(
    project: Path, tmp_path: Path, what: str, fault: str | None
) -> None:
    write(project, {"hatch_build.py": HOOK.format(what=what)})
    text = (project / "pyproject.toml").read_text().replace('include = ["src"', 'include = ["hatch_build.py", "src"')
    write(project, {"pyproject.toml": text + "[tool.hatch.build.hooks.custom]\n"})
    commit(project)
    if fault is None:
        release.built_twice(project, tmp_path / "scratch", "1700000000")
        return
    with pytest.raises(ReleaseError, match=fault):
        release.built_twice(project, tmp_path / "scratch", "1700000000")


def test_an_sdist_that_lacks_a_file_of_the_wheel_is_found(project: Path, tmp_path: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    write(project, {"pyproject.toml": text + '[tool.hatch.build.targets.sdist]\nexclude = ["src/lakebed/table.py"]\n'})
    commit(project)
    with pytest.raises(ReleaseError, match=r"table\.py"):
        release.built_twice(project, tmp_path / "scratch", "1700000000")


def test_a_wheel_without_its_description_is_refused(project: Path, tmp_path: Path) -> None:
    text = (project / "pyproject.toml").read_text().replace('sbom-files = ["sbom.cdx.json"]\n', "")
    write(project, {"pyproject.toml": text})
    commit(project)
    with pytest.raises(ReleaseError, match=r"whl has \[\] in place of sbom"):
        release.release(project, tmp_path / "dist", rehearse=False, attest_with="")
    assert not (tmp_path / "dist").exists()


def test_a_release_is_refused_with_what_to_do(project: Path, tmp_path: Path) -> None:
    def refused(match: str, files: dict[str, str], *, rehearse: bool = False) -> None:
        write(project, files)
        with pytest.raises(ReleaseError, match=match):
            release.release(project, tmp_path / "dist", rehearse=rehearse, attest_with="")
        write(project, {name: PROJECT[name] for name in files if name in PROJECT})

    for place, text in PROJECT.items():
        if "0.9.0" in text and place != "CHANGELOG.md":
            refused("the versions differ", {place: text.replace("0.9.0", "0.9.1")}, rehearse=True)
    one_line = CHART.replace('"0.9.0"', '"0.9.1"')
    refused("0.9.0 and 0.9.1", {"deploy/helm/lakebed/Chart.yaml": one_line}, rehearse=True)
    refused("no section `## \\[0.9.0\\]", {"CHANGELOG.md": "# Changelog\n"}, rehearse=True)
    refused("has no date but 'unreleased'", {"CHANGELOG.md": CHANGES.replace("2026-11-30", "unreleased")})
    refused("lists no change", {"CHANGELOG.md": "## [0.9.0] - 2026-11-30\n\n## [0.8.0] - x\n\n- One.\n"}, rehearse=True)
    refused("not in the commit", {"stray.txt": ""})
    assert not (tmp_path / "dist").exists()


# -- what users would miss --------------------------------------------------------------------------------------------


INTERFACES = {
    "src/lakebed/__init__.py": f"{PROJECT['src/lakebed/__init__.py']}create = open\n",
    "src/lakebed/errors.py": 'import enum\n\nCode = enum.Enum("Code", {"A": "a"})\n',
    "src/lakebed/model/documents.py": "FORMAT, FEATURES = 2, ()\n",
    "src/lakebed/server/service/service.py": "def Service(lake):\n    pass\n",
    "src/lakebed/server/web/app.py": (
        "from types import SimpleNamespace\n\n\ndef make_app(service):\n"
        "    return SimpleNamespace(openapi_schema=SimpleNamespace(to_schema=lambda: {'paths': {'/x': {'get': {}}}}))\n"
    ),
}
"""What a tree is asked for its interfaces."""


def test_a_release_in_which_users_would_miss_something_is_refused(project: Path, tmp_path: Path) -> None:
    write(project, INTERFACES)
    commit(project, "v0.8.0")
    changed = {
        "src/lakebed/table.py": KEPT.replace("def get", "def get_less"),
        "src/lakebed/errors.py": INTERFACES["src/lakebed/errors.py"].replace('"a"', '"b"'),
        "docs/cli-json.md": PROJECT["docs/cli-json.md"].replace("integer", "string"),
    }
    write(project, changed)
    commit(project)
    with pytest.raises(ReleaseError, match="users of the last release would lose") as raised:
        release.release(project, tmp_path / "dist", rehearse=True, attest_with="")
    assert re.findall(r"^\* (.+?): (\w+)", str(raised.value), re.MULTILINE) == [
        ("lakebed.Table.get", "Public"),
        ("codes", "a"),
        ("JSON of `table list`", "count"),
    ]
    assert not (tmp_path / "dist").exists()


def broken(project: Path, table: str) -> list[str]:
    before = project.parent / "before"
    shutil.copytree(project, before, dirs_exist_ok=True)
    write(project, {"src/lakebed/table.py": table})
    return list(interface_changes.broken_python(project, before, interface_changes.released(project)))


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("(self, key, limit=None, *, at=None)", []),
        ("(self, key)", ["lakebed.Table.get"]),
        ("(self, key, limit)", ["lakebed.Table.get"]),
        ("(self, key, version, limit=None)", ["lakebed.Table.get"]),
        (None, ["lakebed.Table.get"]),
    ],
    ids=["more", "a parameter less", "no default", "a parameter more", "a method less"],
)
def test_calls_that_would_fail_are_found(project: Path, call: str | None, found: list[str]) -> None:
    table = KEPT.replace("(self, key, limit=None)", call) if call else KEPT.replace("def get", "def get_less")
    assert {one.partition(":")[0] for one in broken(project, table)} == set(found)


def test_a_name_that_is_gone_is_found(project: Path) -> None:
    assert {one.partition(":")[0] for one in broken(project, KEPT.replace("open", "opened"))} == {"lakebed.open"}


def test_a_name_goes_after_two_minor_releases_that_deprecate_it(project: Path) -> None:
    page = PROJECT["docs/deprecations.md"] + "| `lakebed.Table.get` | 0.9 | `lakebed.Table.find` |\n"
    write(project, {"docs/deprecations.md": page})
    for tags, allowed in [(["v0.8.0", "v0.9.0", "v0.9.1"], False), (["v0.10.0"], True)]:
        write(project, {"src/lakebed/table.py": KEPT})
        commit(project, *tags)
        assert (broken(project, KEPT.replace("def get", "def get_less")) == []) is allowed


def test_the_last_release_is_the_newest_one_before_by_number(project: Path) -> None:
    assert interface_changes.last_release(project, "0.9.0") is None
    commit(project, "v0.9.0", "v0.9.1", "v0.10.0", "not-a-version", "v1")
    assert interface_changes.last_release(project, "0.9.0") is None
    assert interface_changes.last_release(project, "0.11.0") == "v0.10.0"
    assert interface_changes.last_release(project, "0.10.0") == "v0.9.1"


def test_calls_members_codes_and_formats_need_an_entry() -> None:
    before = {"format": 2, "features": ["a"], "http": ["GET /v1/tables", "Table.name"], "codes": ["x", "y"]}
    now = {"format": 3, "features": [], "http": ["GET /v1/tables"], "codes": ["y", "z"]}
    assert len(interface_changes.broken_interfaces(before, now, "")) == 4
    entries = "- `Table.name`, `a` and `x` are gone.\n- The storage format 3 has tea.\n"
    assert interface_changes.broken_interfaces(before, now, entries) == []
    assert interface_changes.broken_interfaces(before, before, "") == []


def test_this_project_has_interfaces_that_are_compared(tmp_path: Path) -> None:
    """A release of this tree after itself, without something that it has, loses just that."""
    now = interface_changes.interfaces_of(ROOT)
    assert {"GET /v1/tables", "POST /v1/sql"} <= set(now["http"])
    assert len(now["codes"]) > 100
    less = now | {"codes": now["codes"][1:]}
    assert interface_changes.broken_interfaces(now, less, "") == [
        f"codes: {now['codes'][0]} is gone, and the changelog does not name it"
    ]
    page = (ROOT / "docs/cli-json.md").read_text("utf-8")
    shapes = interface_changes.shapes(page)
    assert shapes["table drop", "dropped"] == "boolean"
    assert len(shapes) > 300
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "lakebed/model/keys.py"
    path.write_text(path.read_text("utf-8").replace("class KeyRange", "class KeyRangeOfBefore"), "utf-8")
    assert [path for path, _ in interface_changes.python_breakages(ROOT / "src", source)] == ["lakebed.KeyRange"]


def test_make_release_rehearses_on_this_project(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.release", "--rehearse", "--out", str(tmp_path / "dist")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "built twice with the same bytes" in ran.stdout
    assert len(list((tmp_path / "dist").iterdir())) == 5
