"""The archive of Spark's classes: where it is, and which options a JVM gets for it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from lakebed.cli import doctor
from lakebed.errors import UsageError
from lakebed.spark import class_archive, session
from lakebed.spark.class_archive import archive_options, archive_path
from lakebed.spark.java_runtime import Java

JAVA = Java("/usr/lib/jvm/x", 17, "17.0.15+6")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    monkeypatch.setattr(class_archive, "_FOLDER", folder)
    return folder


def test_a_jvm_has_no_option_without_an_archive(folder):
    assert archive_options(JAVA) == ()


def test_a_jvm_uses_the_archive_of_its_own_build(folder):
    folder.mkdir()
    archive_path(JAVA).touch()
    options = shlex.split(" ".join(archive_options(JAVA)))
    assert options[-1] == f"-XX:SharedArchiveFile={folder}/{archive_path(JAVA).name}"
    assert archive_options(Java("/usr/lib/jvm/x", 17, "17.0.16+8")) == ()


def test_a_session_that_does_not_start_names_the_archive(folder):
    folder.mkdir()
    archive_path(JAVA).touch()
    from pyspark.errors import PySparkException

    with (
        pytest.raises(UsageError, match=r"If .*a folder/spark-.*\.jsa is damaged, delete it"),
        session._start_errors("local", JAVA),
    ):
        raise PySparkException("exited")


def test_doctor_says_whether_there_is_an_archive(folder, monkeypatch):
    monkeypatch.setattr("lakebed.spark.java_runtime.find_java", lambda: JAVA)
    assert "without an archive of Spark's classes" in doctor._java_check().found
    folder.mkdir()
    archive_path(JAVA).touch()
    assert "with an archive of Spark's classes" in doctor._java_check().found


def test_what_stands_in_the_way_of_an_archive_is_one_line(folder, monkeypatch):
    folder.write_text("a file")
    monkeypatch.setattr(class_archive, "java_for_spark", lambda: JAVA)
    with pytest.raises(SystemExit, match=r"^error: no archive can be written in .*a folder: .*File exists"):
        class_archive.main([])


def test_a_word_that_is_no_option_makes_no_archive(folder, capsys):
    with pytest.raises(SystemExit):
        class_archive.main(["--all"])
    assert "unrecognized arguments: --all" in capsys.readouterr().err
    assert not folder.exists()


def test_a_jvm_takes_the_options(folder, java_home):
    folder.mkdir()
    archive_path(JAVA).touch()
    java = f"{java_home}/bin/java"
    subprocess.run([java, *shlex.split(" ".join(archive_options(JAVA)[:1])), "-version"], check=True)


@pytest.fixture
def java_home():
    try:
        return class_archive.java_for_spark().home
    except UsageError:
        pytest.skip("no Java")
