"""Sessions start from the archive of Spark's classes that `make test` has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.spark.class_archive import archive_path
from lakebed.spark.java_runtime import java_for_spark


def test_a_session_loads_classes_from_the_archive(spark):
    archive = archive_path(java_for_spark())
    if not archive.exists():
        pytest.skip("no archive was made")
    jvm = spark.sparkContext._jvm
    options = list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert f"-XX:SharedArchiveFile={archive}" in options
    # What a class is loaded from cannot be asked, but the archive is mapped.
    pid = jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()
