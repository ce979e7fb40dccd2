"""An empty virtual environment with the wheel that is built from this tree, and no checkout on its path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.conftest import chromium  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and an empty folder that commands run in."""

    folder: Path
    work: Path

    def run(self, *words: str, stdin: str = "", **variables: str) -> str:
        """What a program of the environment prints; it fails if its exit code is not 0."""
        # Neither this checkout nor the environment of the tests.
        ours = ("PYTHON", "VIRTUAL", "LAKEBED")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept["PATH"] = f"{self.folder / 'bin'}:{kept['PATH']}"
        program, *arguments = words
        ran = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            input=stdin,
            cwd=self.work,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder of an environment with the wheel and extras, in the versions of the lock; others are the newest."""

    def install(*extras, others=()):
        folder = tmp_path_factory.mktemp("environment") / "venv"
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, timeout=120)
        locked = re.findall(r"^[a-z0-9.-]+==\S+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
        versions = folder.with_name("versions.txt")
        versions.write_text("\n".join(locked), "utf-8")
        wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        into = ["--quiet", "--python", folder / "bin" / "python", "--constraint", versions]
        subprocess.run([*uv, "pip", "install", *into, wanted, *others], check=True, timeout=400)
        return folder

    return install


@pytest.fixture(scope="session")
def bare(installed):
    """The environment with no extra."""
    return installed()


@pytest.fixture
def environment(bare, tmp_path):
    return Environment(bare, tmp_path)
