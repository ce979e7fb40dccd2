"""The image without Docker: its Dockerfile's steps, one by one, in an empty Debian, and the service that it starts.

The base is what debootstrap makes of Debian 12 with its Python 3.11, in place of ``python:3.12-slim``, which has to be
pulled from a registry; no layers and no image are made. The rest is what Docker does: COPY, RUN as root in a root of
its own, the second stage without what the first installed, and the command as the user of the image, in namespaces of
its own, with nothing of this machine in its environment.

``LAKEBED_DEBIAN`` may name a root that debootstrap made before.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes.deploy.test_files import DEPLOY, ROOT, instructions

TOOLS = ("debootstrap", "chroot", "unshare", "ip")
PLACES = [
    Path(place) for place in ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf", "/etc/hosts")
]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS),
    reason=f"needs root and {', '.join(TOOLS)}",
)

SERVED = """
set -e
lakebed init >&2
token=$(lakebed token create me --role admin 2>/dev/null | grep -o 'lakebed_[0-9a-f]*' | head -1)
{command} & service=$!
tries=0
until {health} 2>/dev/null; do tries=$((tries + 1)); test $tries -lt 240; sleep 0.5; done
ask='import sys, urllib.request as r
q = r.Request("http://127.0.0.1:8017/v1/status", headers={{"Authorization": "Bearer " + sys.argv[1]}})
print(r.urlopen(q, timeout=60).status)'
echo answered $(python -c "$ask" "$token"), as $(id -u)
if python -c "$ask" wrong 2>/dev/null; then echo let in; exit 9; fi
kill -TERM $service
wait $service
echo ended $?
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


class Stage:
    """A root folder, and what the instructions have said so far."""

    def __init__(self, base: Path, root: Path) -> None:
        run("cp", "-a", base, root)
        self.root, self.folder, self.user = root, "/", "0"
        self.variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        self.said: dict[str, str] = {}

    def shell(self, script: str, *, isolated: bool = False) -> str:
        """Run a script as the stage's user; ``isolated``: without this machine's network and processes."""
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        inner = ["chroot", f"--userspec={self.user}:{self.user}", self.root, "env", "-i", *variables]
        words = [*map(str, inner), "sh", "-c", f"cd {self.folder} && {{\n{script}\n}}"]
        if isolated:
            apart = ["unshare", "--net", "--mount", "--pid", "--fork", f"--mount-proc={self.root}/proc"]
            words = [*apart, "sh", "-c", f"ip link set lo up && exec {shlex.join(words)}"]
        return run(*words, timeout=1200)

    def copy(self, line: str, stages: dict[str, Stage]) -> None:
        """COPY."""
        *sources, target = line.split()
        origin = ROOT
        if sources[0].startswith("--from="):
            origin = stages[sources.pop(0).partition("=")[2]].root
        into = self.root / (target if target.startswith("/") else f"{self.folder}/{target}").lstrip("/")
        for source in sources:
            found = origin / source.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(found, into / found.name)


def prepared(folder: Path) -> Path:
    """An empty Debian with Python, as the image that the Dockerfile begins with."""
    base = folder / "base"
    if made := os.environ.get("LAKEBED_DEBIAN"):
        run("cp", "-a", made, base)
    else:
        run("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", base)
    (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    return base


def with_packages(stage: Stage, line: str) -> str:
    """The line, where pip finds packages as it does on this machine."""
    found = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    for path in [*PLACES, Path(found.get("PIP_FIND_LINKS", "/nowhere"))]:
        into = stage.root / str(path).lstrip("/")
        into.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, into, dirs_exist_ok=True)
        elif path.exists():
            shutil.copy2(path, into)
    return "\n".join([*(f"export {name}={shlex.quote(value)}" for name, value in found.items()), line])


def test_the_steps_of_the_image_make_a_service_that_starts_answers_and_ends(tmp_path):
    base, stages, stage = prepared(tmp_path), {}, None
    for name, line in instructions((DEPLOY / "docker" / "Dockerfile").read_text("utf-8")):
        if name == "FROM":
            found = re.fullmatch(r"python:3\.\d+-slim(?: AS (\w+))?", line)
            assert found, line
            stage = stages[found[1] or "image"] = Stage(base, tmp_path / (found[1] or "image"))
            continue
        assert stage is not None
        match name:
            case "WORKDIR":
                stage.folder = line
                (stage.root / line.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                stage.copy(line, stages)
            case "RUN":
                stage.shell(with_packages(stage, line) if " pip " in line else line)
            case "ENV":
                given = dict(word.split("=", 1) for word in line.split())
                path = stage.variables["PATH"]
                stage.variables |= {key: value.replace("$PATH", path) for key, value in given.items()}
            case "USER":
                stage.user = line
            case _:
                stage.said[name] = line
    image = stages["image"]
    command = shlex.join([*json.loads(image.said["ENTRYPOINT"]), *json.loads(image.said["CMD"])])
    health = shlex.join(json.loads(image.said["HEALTHCHECK"].partition("CMD ")[2]))
    image.variables["LAKEBED_INSTANCE"] = "/var/lib/lakebed/instance"
    assert not (image.root / "src").exists(), "what the first stage copied is not in the image"
    said = image.shell(SERVED.format(command=command, health=health), isolated=True)
    assert f"answered 200, as {image.user}" in said
    assert "ended 0" in said
