"""An archive of the classes that Spark loads, from which the JVMs of tests start with a third of the CPU time.

    python -m tests.spark.class_archive

makes it, once for each environment (``make test-spark``). A JVM that cannot use it, because it is another Java or has
another class path, starts without it and says nothing. Source: JEP 350, Dynamic CDS Archives.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

# JVMs that live for seconds start faster than they would run. A JVM logs to stdout, which scripts of Spark read.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def jvm_options() -> str:
    """For the environment variable JDK_JAVA_OPTIONS of tests, and of the processes that they start."""
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else _SHORT_LIVED


def make() -> None:
    """Run the parts of Spark that tests use most in a JVM that archives its classes when it ends."""
    from lakebed.spark import Local
    from lakebed.spark.session import start_session

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder) / ARCHIVE.name
        os.environ["JDK_JAVA_OPTIONS"] = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made}"
        session = start_session(Local("local[2,4]"))
        numbers = session.range(0, 1000, 1, 2).selectExpr("id", "string(id % 7) AS k")
        numbers.mapInArrow(lambda batches: batches, "id long, k string").write.parquet(f"{folder}/rows")
        numbers.write.csv(f"{folder}/text", header=True)
        rows = session.read.parquet(f"{folder}/rows").repartitionByRange(2, "k")
        rows.join(session.read.csv(f"{folder}/text", header=True), "k").groupBy("k").count().toPandas()
        jvm = session.sparkContext._gateway.proc
        session.stop()
        jvm.stdin.close()
        jvm.wait()
        if made.exists():
            made.rename(ARCHIVE)


if __name__ == "__main__":
    make()
