"""The wheel: built twice it is the same, and it has the pages that its own texts name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import lakebed
from lakebed.model.operations import TableOperation, operations_named
from scripts.release import versions_in

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def built(folder: Path, epoch: str) -> Path:
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(tmp_path_factory.mktemp("wheel") / "first", "1700000000")


def test_two_builds_of_one_time_are_equal_and_carry_that_time(wheel, tmp_path):
    assert built(tmp_path / "again", "1700000000").read_bytes() == wheel.read_bytes()
    assert {entry.date_time[:3] for entry in zipfile.ZipFile(wheel).infolist()} == {(2023, 11, 14)}


def test_the_wheel_lists_what_it_depends_on_in_the_locked_versions(wheel):
    """`make sbom` writes the list; a change of the version or of a lock makes it wrong."""
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/sboms/" in name)
    listed = json.loads(zipfile.ZipFile(wheel).read(name))
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["version"] == lakebed.__version__
    locks = "".join((ROOT / f"requirements{of}.lock").read_text("utf-8") for of in ("", "-build"))
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", locks, re.MULTILINE))
    found = {one["name"]: one["version"] for one in listed["components"]}
    assert {name: locked.get(name) for name in found} == found
    extras = PROJECT["optional-dependencies"].values()
    asked = [*PROJECT["dependencies"], *(item for extra in extras for item in extra)]
    names = {re.split(r"[\[<>=!~; ]", item)[0].lower().replace("_", "-") for item in asked} - {"lakebed"}
    assert names <= found.keys()


def test_the_places_of_the_version_agree():
    assert set(versions_in(ROOT).values()) == {lakebed.__version__}


def test_every_page_that_a_text_of_the_code_names_is_in_the_wheel(wheel):
    pages = {name.removeprefix("lakebed/") for name in zipfile.ZipFile(wheel).namelist()}
    source = "".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    named = set(re.findall(r"\bdocs/[a-z][\w/-]*\.md", source))
    assert "docs/import.md" in named
    assert named <= pages | {"docs/x.md"}
    assert not [name for name in pages if name.endswith((".png", ".svg")) and name.startswith("docs/")]


def test_links_of_the_readme_lead_to_files_that_there_are():
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 20
    for link in links:
        assert link.startswith(("https://", "#")) or (ROOT / link.partition("#")[0]).exists(), link


def test_nothing_names_an_address_of_the_project_that_is_not_known_to_be_one(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert "Project-URL" not in archive.read(metadata).decode()
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(path for path in (ROOT / "deploy").rglob("*"))]
    texts = {path: path.read_text("utf-8", "replace") for path in found if path.is_file()}
    assert not [path for path, text in texts.items() if re.search(r"github(usercontent)?\.com/lakebed", text)]


def test_the_extra_all_has_every_extra_but_none_of_its_own():
    extras = PROJECT["optional-dependencies"]
    (whole,) = extras["all"]
    assert sorted(re.findall(r"[a-z]+", whole.removeprefix("lakebed"))) == sorted(extras.keys() - {"all"})


def test_a_public_module_that_moved_is_found_by_its_old_name_with_a_warning():
    program = (
        "import warnings\nimport lakebed\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from lakebed.service.service import Service\n"
        "    from lakebed.snapshot.snapshot import Snapshot\n"
        "assert Service is lakebed.Service and Service.__module__ == 'lakebed.server.service.service'\n"
        "assert Snapshot.__module__ == 'lakebed.read.snapshot.snapshot'\n"
        "import importlib\n"
        "assert importlib.util.find_spec('lakebed.server.service.service').name == 'lakebed.server.service.service'\n"
        "for one in caught: print(one.category.__name__, one.message)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60)
    goes = "the old name goes with the next release"
    assert ran.stdout.splitlines() == [
        f"DeprecationWarning lakebed.service.service is now lakebed.server.service.service; {goes}",
        f"DeprecationWarning lakebed.snapshot.snapshot is now lakebed.read.snapshot.snapshot; {goes}",
    ]
    missing = subprocess.run(
        [sys.executable, "-c", "import lakebed.service.nothing"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert missing.stderr.endswith("ModuleNotFoundError: No module named 'lakebed.server.service.nothing'\n")


@pytest.mark.parametrize("name", ["ingest", "compaction", "splitting", "refresh", "gc"])
def test_an_operation_that_was_the_member_of_an_enum_is_found_with_a_warning(name):
    said = f"^TableOperation.{name.upper()} is now '{name}'; the old name goes with the next release$"
    with pytest.warns(DeprecationWarning, match=said) as warned:
        assert operations_named([getattr(TableOperation, name.upper())]) == (name,)
    assert warned[0].filename == __file__
