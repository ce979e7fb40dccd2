"""The options of all JVMs that tests start, Lakebed's and others."""

from __future__ import annotations

from lakebed.spark.class_archive import archive_options
from lakebed.spark.java_runtime import java_for_spark

# JVMs that live for seconds start faster than they would run. A JVM logs to stdout, which scripts of Spark read.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")


def jvm_options() -> str:
    """For the environment variable JDK_JAVA_OPTIONS of tests, and of the processes that they start."""
    return " ".join((*_SHORT_LIVED, *archive_options(java_for_spark())))
