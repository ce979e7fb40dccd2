"""Starts and ends Spark sessions.

A session that is started in this process runs tasks with this Python and binds to the loopback address; on a cluster,
tasks run with the Python that ``PYSPARK_PYTHON`` names, or else the one at the same path as this. Its settings are
printed to stderr once. Settings given to ``spark-submit`` take precedence. A session on a Spark Connect server needs no
Java here. Only the DataFrame API is used, so that it works.

Errors: UsageError if there is no Java, no client for Spark Connect, or no answer from the master.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.arrays import recognise_pandas
from lakebed.model.checks import check_method
from lakebed.spark.class_archive import archive_options, archive_path
from lakebed.spark.java_runtime import Java, java_for_spark
from lakebed.system import survives_forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("lakebed.spark")

LOCAL_MASTER = "local[*,4]"
"""All cores, and four attempts a task: plain ``local[*]`` never tries one twice."""


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Pieces are compressed before Spark sees them.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # … and carry digests that are checked on arrival.
    "spark.shuffle.checksum.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_DRIVER_SETTINGS = {
    # The heap holds no rows, only pieces on their way: a few of 32 MiB a core.
    "spark.driver.memory": "2g",
}
_JVM_OPTIONS = (
    # A JVM compiles in two stages. By default it begins the second, expensive one after a tenth of these calls.
    # Rows do not enter the JVM, and planning runs once a job: up to the end of a first import it took 21 core-s, and 12
    # with these, of more rows. Imports of CSV, whose rows do enter it, did not take longer.
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_LOCAL_SETTINGS = {
    # Needed on a machine whose own name does not resolve; and no other machine may connect.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_PYTHON_WORKERS = {
    # On a cluster the executors' Python may find Lakebed only once a task has begun.
    "spark.python.daemon.module": "lakebed.spark.worker_daemon"
}
_SPAWNED_WORKERS = {
    # Each task starts a Python of its own.
    "spark.python.use.daemon": "false"
}

_CONNECT_S = 30
"""How long a Spark Connect server may take to accept the connection."""

_LOGGING = Path(__file__).with_name("log4j2.properties")


def active_session() -> SparkSession | None:
    """Return the active session of this thread, if any."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def has_ended(session: SparkSession) -> bool:
    """Return whether the JVM of a session here is gone, or its context has stopped. False for Spark Connect."""
    context = getattr(session, "_sc", None)
    if context is None:
        return False
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001 - there is no public way
    except Exception:  # noqa: BLE001 - whatever the bridge to a dead JVM raises
        return True


def end_session(session: SparkSession, within_s: float = 10) -> None:
    """Stop a session that :func:`start_session` started, and end its JVM, which ``stop`` alone leaves running.

    A JVM that takes longer is killed. Also call this if the JVM has died, because PySpark would otherwise keep
    returning the dead session.
    """
    with contextlib.suppress(Exception):
        session.stop()
    if not hasattr(session, "_jsparkSession") or _GATEWAY in os.environ:
        # A server elsewhere, or the JVM of spark-submit, which ends with this process.
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way
    for owner, names in (
        (SparkContext, ("_active_spark_context", "_gateway", "_jvm")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
        (SQLContext, ("_instantiatedContext",)),
    ):
        for name in names:
            setattr(owner, name, None)
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        # A JVM that PySpark started ends with its stdin.
        process.stdin.close()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class SparkLauncher(Protocol):
    """How a session is started, as a value."""

    def start(self) -> SparkSession:
        """Start a session."""


def start_session(master: str | SparkLauncher | None = None) -> SparkSession:
    """Start a session in this process on a master; None: the one of ``spark-submit``, or else :data:`LOCAL_MASTER`.
    A launcher, such as Local, starts its own.

    Its settings are logged by ``lakebed.spark``. Raises UsageError if there is no Java that can run it, or no answer
    from the master.
    """
    if not (master is None or isinstance(master, str)):
        check_method("master", master, "start", "master of Spark, or a launcher such as Local")
        return master.start()
    with _start_shown():
        return _submitted() if master is None and _GATEWAY in os.environ else _started(master or LOCAL_MASTER)


def connect_session(url: str) -> SparkSession:
    """Start a session on the Spark Connect server at the URL.

    Raises UsageError if there is no client for Spark Connect, or no answer.
    """
    with _start_shown():
        return _connected(url)


@contextlib.contextmanager
def _start_shown() -> Iterator[None]:
    """Say on stderr that a session is started, and how long that took; nothing if errors alone are logged."""
    # PySpark gives Arrow objects of pandas.
    recognise_pandas()
    began_s = clock.monotonic_s()
    said = _LOG.isEnabledFor(logging.WARNING)
    if said and sys.stderr.isatty():
        # What follows on the terminal, such as a warning of the JVM, is written over it.
        print("Starting Spark …", end="\r", file=sys.stderr, flush=True)  # noqa: T201
    yield
    if said:
        # Reported apart, because rates of the work exclude it.
        print(f"Starting Spark … {clock.monotonic_s() - began_s:.1f} s", file=sys.stderr)  # noqa: T201


_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit`` for the Python that it starts: where its JVM listens."""


def _started(master: str) -> SparkSession:
    """Return a session whose JVM is started now."""
    local = master.startswith("local")
    settings = SETTINGS | _DRIVER_SETTINGS
    java = java_for_spark()
    java_options = (f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *_JVM_OPTIONS, *archive_options(java))
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    python = sys.executable if local else os.environ.get("PYSPARK_PYTHON", sys.executable)
    variables = {"JAVA_HOME": java.home, "PYSPARK_PYTHON": python}
    if local:
        settings |= _LOCAL_SETTINGS | (_PYTHON_WORKERS if survives_forks() else _SPAWNED_WORKERS)
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    described = ", ".join(f"{name}={value}" for name, value in settings.items())
    _LOG.info("Spark with master %s, tasks in %s, %s", master, python, described)
    with _environment(**variables), _delayed_interrupts() as kept, _start_errors(master, java):
        session = _session(settings, master)
    if kept:
        session.stop()
        raise KeyboardInterrupt
    return session


def _submitted() -> SparkSession:
    """Return the session of the JVM that ``spark-submit`` started; :data:`SETTINGS` apply where it was given none."""
    from pyspark import SparkConf, SparkContext

    # The configuration is read from that JVM, and empty before.
    SparkContext._ensure_initialized()  # noqa: SLF001 - there is no public way
    given = SparkConf()
    return _session({name: value for name, value in SETTINGS.items() if not given.contains(name)})


def _session(settings: Mapping[str, str], master: str | None = None) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakebed")
    builder = builder if master is None else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _connected(url: str) -> SparkSession:
    """Return a session of the Spark Connect server at the URL."""
    from pyspark.errors import PySparkException, PySparkImportError
    from pyspark.sql import SparkSession

    try:
        from pyspark.sql.connect.client import DefaultChannelBuilder
    except PySparkImportError as error:
        raise Code.PACKAGE_MISSING(
            f"Spark Connect needs what is not installed: pip install 'lakebed[connect]' ({error.getMessage()})"
        ) from error
    import grpc

    # What follows the address may be a token.
    with _start_errors(url.partition(";")[0]):
        # Spark's client tries for ten minutes before it fails.
        with DefaultChannelBuilder(url).toChannel() as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=_CONNECT_S)
            except grpc.FutureTimeoutError as error:
                raise PySparkException(f"no answer in {_CONNECT_S} s") from error
        return SparkSession.builder.remote(url).create()


@contextlib.contextmanager
def _start_errors(place: str, java: Java | None = None) -> Iterator[None]:
    """Raise UsageError that names the place if Spark does not start there."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        # Spark's JVM prints the details to stderr itself.
        reason = str(error).strip().partition("\n")[0]
        if java is not None and (archive := archive_path(java)).exists():
            # Java 17 does not start with one that has been cut short.
            reason = f"{reason} If {archive} is damaged, delete it."
        raise Code.SPARK_NOT_STARTED(
            f"Spark did not start at {place} ({reason}); give a master such as local[4], spark://host:7077 or yarn, or "
            "sc://host:15002 of a Spark Connect server, that can be reached from here",
            place=place,
        ) from error


def cores_of(session: SparkSession) -> int:
    """Return how many tasks the session runs at once: its default number of Spark partitions, from a small job."""
    local = re.fullmatch(r"local\[(\d+|\*)(?:,\d+)?\]", session.conf.get("spark.master", "") or "")
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
    # A cluster's executors register one by one. The first job waits for some of them, the second counts.
    _partitions_of(session)
    return _partitions_of(session)


def _partitions_of(session: SparkSession) -> int:
    from pyspark.sql import functions

    partitions = session.range(1 << 20).select(functions.spark_partition_id().alias("p"))
    return 1 + int(partitions.agg(functions.max("p")).toArrow().column(0)[0].as_py())


@contextlib.contextmanager
def _delayed_interrupts() -> Iterator[list[int]]:
    """Delay a Ctrl-C until the end of the block, and note it in the list: PySpark, if interrupted between the start of
    its JVM and the handshake, leaves a JVM behind that never ends.
    """
    kept: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield kept
        return

    def keep(number: int, _frame: object) -> None:
        kept.append(number)

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield kept
    finally:
        # Unless it failed, Spark has installed its own handler, which cancels jobs first.
        if signal.getsignal(signal.SIGINT) is keep:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables during a block: PySpark reads them when it starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
