"""Builds a release twice from its commit, compares both byte by byte, and describes it: `make release`.

Steps, each of which ends the run with what to do: the version is the same everywhere and has a section in the
changelog; nothing that users rely on is gone since the last release (scripts/interface_changes.py); the wheel and the
sdist are built twice, from two clean trees that differ in what must not matter, and the wheel once more from the sdist.
What is published is in the folder: the wheel, the sdist, the SBOM, the changes, and SHA256SUMS over all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from scripts.interface_changes import changes_since, last_release

ROOT = Path(__file__).parents[1]
SBOM = "sbom.cdx.json"


class ReleaseError(Exception):
    """Why there is no release, and what to do."""


def versions_in(root: Path) -> dict[str, str]:
    """Return the version in each place that names it."""
    patterns = {
        "pyproject.toml": r'^version = "(.+)"$',
        "src/lakebed/model/version.py": r'^VERSION = "(.+)"$',
        "deploy/helm/lakebed/Chart.yaml": r'^(?:version|appVersion): "?(.+?)"?$',
        SBOM: r'^    "component": \{.*?^      "version": "(.+?)"',
    }
    found = {}
    for place, pattern in patterns.items():
        text = (root / place).read_text("utf-8")
        versions = set(re.findall(pattern, text, re.MULTILINE | (re.DOTALL if place == SBOM else re.NOFLAG)))
        found[place] = " and ".join(sorted(versions)) or "none"
    return found


def version_of(root: Path) -> str:
    """Return the version. Raises ReleaseError if places differ."""
    found = versions_in(root)
    if len(set(found.values())) != 1:
        raise ReleaseError(f"the versions differ: {found}; set all, and run `make sbom`")
    return found["pyproject.toml"]


def changes_of(changelog: str, version: str, *, rehearse: bool) -> str:
    """Return the section of a version in the changelog. Raises ReleaseError without one, or without its date."""
    found = re.search(rf"^## \[{re.escape(version)}\] - (\S+)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section `## [{version}] - DATE`; begin one")
    if not rehearse and not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise ReleaseError(f"the section [{version}] of CHANGELOG.md has no date but {found[1]!r}; give it today's")
    if not re.search(r"^- ", found[2], re.MULTILINE):
        raise ReleaseError(f"the section [{version}] of CHANGELOG.md lists no change")
    return found[2].strip() + "\n"


def git(root: Path, *words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603, S607


def check_clean(root: Path) -> None:
    """Raise ReleaseError if files differ from the commit, which is what is built."""
    if changed := git(root, "status", "--porcelain"):
        raise ReleaseError(f"these are not in the commit that would be released; commit or remove them:\n{changed}")


def build(tree: Path, out: Path, epoch: str, *targets: str, umask: int = 0o022, **variables: str) -> dict[str, Path]:
    """Build targets from a tree; returns the files by name."""
    words = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", *words, "--directory", str(out)]
    known = os.environ | {"SOURCE_DATE_EPOCH": epoch} | variables
    ran = subprocess.run(command, cwd=tree, env=known, umask=umask, capture_output=True, text=True, check=False)  # noqa: S603
    if ran.returncode:
        raise ReleaseError(f"{shlex.join(command)} failed:\n{ran.stdout}{ran.stderr}")
    return {path.name: path for path in sorted(out.iterdir())}


def tree_of(root: Path, folder: Path) -> Path:
    """Write the files of the commit into a new folder; returns it."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, check=True, capture_output=True).stdout  # noqa: S607
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)  # noqa: S603, S607
    return folder


def members(path: Path) -> dict[str, tuple[object, ...]]:
    """Return what an archive says of each of its members, with a digest of the bytes."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {
                one.filename: (one.date_time, one.external_attr, hashlib.sha256(wheel.read(one)).hexdigest())
                for one in wheel.infolist()
            }
    with tarfile.open(path) as sdist:
        files = [one for one in sdist.getmembers() if one.isfile()]
        digests = {one.name: hashlib.sha256(sdist.extractfile(one).read()).hexdigest() for one in files}
        return {one.name: (one.mtime, one.mode, one.uid, one.uname, digests[one.name]) for one in files}


def check_same(first: dict[str, Path], again: dict[str, Path]) -> None:
    """Raise ReleaseError for files of two builds that differ, with the members that do."""
    for name in sorted({*first, *again}):
        if name not in first or name not in again:
            raise ReleaseError(f"only one of two builds made {name}")
        if first[name].read_bytes() != again[name].read_bytes():
            ours, theirs = members(first[name]), members(again[name])
            differ = [one for one in sorted({*ours, *theirs}) if ours.get(one) != theirs.get(one)]
            raise ReleaseError(f"two builds of {name} differ in {differ[:10] or 'their order or compression'}")


def built_twice(root: Path, scratch: Path, epoch: str) -> dict[str, Path]:
    """Return the wheel and the sdist, after a second build and one from the sdist gave the same bytes."""
    tree = tree_of(root, scratch / "one" / "tree")
    both = ("wheel", "sdist")
    first = build(tree, scratch / "first", epoch, *both, TZ="UTC", PYTHONHASHSEED="1", LC_ALL="C")
    other = tree_of(root, scratch / "another-folder" / "of-another-length" / "tree")
    unlike = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8"}
    again = build(other, scratch / "again", epoch, *both, umask=0o077, **unlike)
    check_same(first, again)
    (sdist,) = (path for path in first.values() if path.name.endswith(".tar.gz"))
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    (unpacked,) = (scratch / "unpacked").iterdir()
    from_sdist = build(unpacked, scratch / "from-sdist", epoch, "wheel")
    check_same({name: path for name, path in first.items() if name.endswith(".whl")}, from_sdist)
    return first


def check_sbom(wheel: Path, sbom: bytes) -> None:
    """Raise ReleaseError if the wheel does not have the SBOM where PEP 770 puts it."""
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        if len(found) != 1 or archive.read(found[0]) != sbom:
            raise ReleaseError(f"{wheel.name} has {found} in place of {SBOM}")


def attest(command: str, files: list[Path]) -> None:
    """Run a command for each file, which may write more files beside it. Raises ReleaseError if it fails."""
    for path in files:
        if (code := subprocess.run([*shlex.split(command), str(path)], check=False).returncode) != 0:  # noqa: S603
            raise ReleaseError(f"{command} {path} ended with {code}: nothing may be published")


def release(root: Path, out: Path, *, rehearse: bool, attest_with: str) -> list[str]:
    """Make a release of the commit of ``root`` in the folder ``out``; returns the lines of SHA256SUMS."""
    version = version_of(root)
    changes = changes_of((root / "CHANGELOG.md").read_text("utf-8"), version, rehearse=rehearse)
    if not rehearse:
        check_clean(root)
    before = last_release(root, version)
    print(f"lakebed {version}; compared with {before or 'nothing, for it is the first release'}")
    if before is not None and (broken := changes_since(root, before, changes)):
        raise ReleaseError("users of the last release would lose:\n" + "\n".join(f"* {one}" for one in broken))
    with tempfile.TemporaryDirectory(prefix="lakebed-release-") as scratch:
        made = built_twice(root, Path(scratch), git(root, "log", "-1", "--format=%ct"))
        sbom = (root / SBOM).read_bytes()
        check_sbom(next(path for path in made.values() if path.suffix == ".whl"), sbom)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        for path in made.values():
            shutil.copyfile(path, out / path.name)
    (out / f"lakebed-{version}.cdx.json").write_bytes(sbom)
    (out / f"lakebed-{version}.changes.md").write_text(changes, "utf-8")
    files = sorted(out.iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (out / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    if attest_with:
        attest(attest_with, [*files, out / "SHA256SUMS"])
    return lines


def main() -> None:
    """Make the release that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--rehearse", action="store_true", help="allow a section without a date, and changed files")
    parser.add_argument("--attest", default="", metavar="COMMAND", help="run for each file of the release")
    given = parser.parse_args()
    try:
        lines = release(ROOT, given.out, rehearse=given.rehearse, attest_with=given.attest)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    print("\n".join(lines))
    print(f"built twice with the same bytes, in {given.out}" + (": a rehearsal" if given.rehearse else ""))


if __name__ == "__main__":
    main()
