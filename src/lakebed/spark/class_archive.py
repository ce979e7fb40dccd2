"""An archive of the classes that Spark loads, from which sessions of this environment start in half the time.

    python -m lakebed.spark.class_archive

makes it, of about 180 MB, beside the packages of this environment. From then on every session that Lakebed starts
itself uses it. A JVM with a different class path silently starts without it. There is one archive for a build of Java
and a version of PySpark; archives for others are deleted. Source: JEP 350, Dynamic CDS Archives.

A session that is killed while it writes an archive leaves none, because the archive gets its name at the end.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import Code, Error
from lakebed.model.wording import size_text
from lakebed.spark.java_runtime import Java, java_for_spark
from lakebed.system import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = Path(sys.prefix) / "share" / "lakebed"

# A JVM that skips an archive, or omits a class, would report that on stdout.
_SILENT = "-Xlog:cds*=off"


def archive_path(java: Java) -> Path:
    """Return where the archive for this Java is, or would be."""
    # Not from the metadata of packages, which a PySpark of a Spark distribution does not have.
    from pyspark.version import __version__

    return _FOLDER / f"spark-{__version__}-java-{java.build}.jsa"


def archive_options(java: Java) -> tuple[str, ...]:
    """Return the options of a JVM that uses the archive, as Spark's settings take them; none if there is no archive."""
    path = archive_path(java)
    return (_SILENT, shlex.quote(f"-XX:SharedArchiveFile={path}")) if path.exists() else ()


def make_archive() -> Path:
    """Archive the classes of a session that does a little of everything; returns the path of the archive.

    Raises:
        UsageError: there is no Java, or one that cannot make archives.
        OSError: the folder of the environment cannot be written to.
    """
    from lakebed.spark.session import end_session, start_session

    java = java_for_spark()
    path = archive_path(java)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        made = folder / path.name
        # Of the driver's JVM alone: the one that puts its command together archives nothing.
        # It lives too short for its second compiler to pay.
        options = (_SILENT, "-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={made}")
        os.environ["SPARK_SUBMIT_OPTS"] = shlex.join(options)
        session = start_session("local[2,4]")
        try:
            _use(session, folder)
        finally:
            # It writes the archive at its end.
            end_session(session, within_s=300)
        if not made.exists():
            raise Code.JAVA_MISSING(
                f"Java {java.build} at {java.home} makes no archive of classes: its own (lib/server/classes.jsa) is "
                "missing. Set JAVA_HOME to a Java of your system"
            )
        with made.open("rb") as file:
            sync(file.fileno())
        for other in _FOLDER.glob("spark-*.jsa"):
            other.unlink()
        made.rename(path)
    return path


def _use(session: SparkSession, folder: Path) -> None:
    """Import, read and compact on Spark, and use Spark's own sources."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lakebed.jobs.pipeline import Pipeline
    from lakebed.model.schema import Schema
    from lakebed.table.opening import create

    pipeline = Pipeline(create(str(folder / "lake")), session)
    rows = pa.table({"key": [str(n % 997) for n in range(2000)], "n": list(range(2000))})
    pq.write_table(rows, folder / "rows.parquet")
    table = pipeline.instance.create_table("t", Schema({"key": "string"}, values={"n": "int64"}))
    pipeline.bulk_import(table, folder / "rows.parquet")
    frame = pipeline.read(table).filter("key > '5'")
    frame.groupBy("key").count().toArrow()
    frame.write.parquet(str(folder / "parquet"))
    frame.write.csv(str(folder / "csv"), header=True)
    pipeline.bulk_import(table, session.read.parquet(str(folder / "parquet")))
    pipeline.compact(table, strategy="full")


def main(words: Sequence[str] | None = None) -> None:
    """Make the archive, and print where it is. Takes no arguments."""
    described = "Archive the classes that Spark loads: sessions of this environment then start in half the time."
    argparse.ArgumentParser("python -m lakebed.spark.class_archive", description=described).parse_args(words)
    try:
        made = make_archive()
    except Error as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: no archive can be written in {_FOLDER}: {error}")
    print(f"{made} ({size_text(made.stat().st_size)})")  # noqa: T201


if __name__ == "__main__":
    main()
