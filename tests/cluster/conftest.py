"""A standalone cluster on loopback addresses: a master, two workers of one core, and drivers that come and go.

The workers have an address each, for Spark starts no second copy of a task on the host that has the first.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
import pytest

from lakebed.spark.java_runtime import java_for_spark
from tests.s3.conftest import S3Server, served
from tests.spark.jvm_options import jvm_options

TIMEOUT_S = 300
"""Nothing is asserted of time: this only ends what hangs, on however busy a machine."""
SECRET = "xh7ReMarkableSecretOfTheStorePq3"
ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
APPLICATION = ROOT / "src" / "lakebed" / "cli" / "application.py"

# Of this process and those it starts.
os.environ.setdefault("JDK_JAVA_OPTIONS", jvm_options())


def wait_for(seen: Callable[[], object], *, while_runs: subprocess.Popen[str] | None = None) -> None:
    """Wait until something has been seen to happen, without a guess at how long it takes."""
    until = time.monotonic() + TIMEOUT_S
    while not seen():
        assert time.monotonic() < until
        assert while_runs is None or while_runs.poll() is None, "it ended before it was seen"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Store:
    """Where a test's instance lies: a bucket of its own, whose credentials are looked for afterwards."""

    server: S3Server
    url: str

    @property
    def options(self) -> dict[str, str]:
        return self.server.storage_options | {"aws_secret_access_key": SECRET}


@dataclass(slots=True)
class Driver:
    """A driver that does one thing after another."""

    process: subprocess.Popen[str]
    busy: bool = False

    def begin(self, verb: str, store: Store, **arguments: object) -> None:
        call = {"verb": verb, "url": store.url, "options": store.options, "arguments": arguments}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        self.busy = True

    def end(self) -> dict:
        """What came of it."""
        line = self.process.stdout.readline()
        assert line, "the driver died"
        self.busy = False
        return json.loads(line)

    def do(self, verb: str, store: Store, **arguments: object) -> dict:
        self.begin(verb, store, **arguments)
        return self.end()


@dataclass(slots=True)
class Cluster:
    """A master and its workers. ``folder`` holds all that any of them, or a driver, writes."""

    folder: Path
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    driver: Driver | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Of masters, workers and drivers. Nothing tells the workers' Python where Lakebed lies."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {
            "JAVA_HOME": java_for_spark().home,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "128m",
            # Not by SPARK_CONF_DIR: a folder of its own in the class path would keep JVMs from the class archive.
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {self._properties} pyspark-shell",
        }

    @property
    def _properties(self) -> Path:
        """The settings of drivers."""
        return self.folder / "spark.properties"

    def start(self) -> None:
        self._configure()
        self._launch("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        wait_for(lambda: self._said("master", r"Starting Spark master at (spark://\S+)"))
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")[1]
        for worker, address in (("one", "127.0.0.1"), ("two", "127.0.0.2")):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / "work" / worker))
            words = ("--host", address, *size, self.url)
            self._launch(worker, "org.apache.spark.deploy.worker.Worker", *words, SPARK_LOCAL_IP=address)
        wait_for(lambda: all(self._said(worker, "Successfully registered") for worker in ("one", "two")))

    def _configure(self) -> None:
        settings = {
            "spark.executor.memory": "512m",
            # Tells what happened: executors lost, tasks tried again.
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (self.folder / "events").as_uri(),
            # A task that takes two seconds more than it should is started once more on the other executor.
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.task.duration.threshold": "2s",
            # Where these tests' own Lakebed lies, which need not be installed.
            "spark.executorEnv.PYTHONPATH": str(ROOT / "src"),
        }
        for name in ("events", "work"):
            (self.folder / name).mkdir()
        self._properties.write_text("\n".join(f"{name} {value}" for name, value in settings.items()))

    def _launch(self, name: str, *words: str, **variables: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [str(SPARK_HOME / "bin" / "spark-class"), words[0], "--webui-port", "0", *words[1:]]
            environment = self.environment | variables
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _said(self, name: str, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, (self.folder / f"{name}.log").read_text(errors="replace"))

    def submit(
        self,
        *words: str,
        command: Sequence[str],
        report: Path,
        store: Store,
        application: Sequence[str] = (str(APPLICATION),),
        properties: Path | None = None,
        master: str | None = None,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start ``spark-submit`` with these words, and the application with a command on the store's instance.

        ``properties`` are its settings, in place of those of all drivers. It gets one executor, which is enough where
        none is killed, and takes longer to start than its tasks; none with another ``master``, such as ``local[1]``.
        """
        self.stop_driver()
        line = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master or self.url]
        line += ["--conf", "spark.cores.max=1"]
        line += ["--properties-file", str(properties or self._properties)]
        line += [*words, *application, "--instance", store.url, *command, "--report", str(report)]
        surroundings = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "src"),
            "LAKEBED_STORAGE_OPTIONS": json.dumps(store.options),
        }
        with (self.folder / "submit.log").open("ab") as log:
            return subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
                env=self.environment | surroundings | variables,
            )  # fmt: skip

    def any_driver(self) -> Driver:
        """The driver of all tests; another one if the last was killed, or is still at what a test gave up."""
        if self.driver is not None and (self.driver.busy or self.driver.process.poll() is not None):
            self.stop_driver()
        if self.driver is None:
            log = (self.folder / "driver.log").open("ab")
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.driver", self.url],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env=self.environment | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            )  # fmt: skip
            log.close()
            self.driver = Driver(process)
        return self.driver

    def executor(self, worker: int) -> psutil.Process:
        """The executor of a worker; it runs one task at a time, in Python processes below it."""
        for process in psutil.Process(self.processes[1 + worker].pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    return process
        raise AssertionError("no executor")

    def events(self) -> list[dict]:
        """What Spark has written about the drivers' applications so far, in any order."""
        lines = [line for path in self.logs("events") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.endswith("}")]

    def logs(self, folder: str = "") -> list[Path]:
        """Every file that was written by anything that runs here, but for blocks on their way."""
        files = [path for path in (self.folder / folder).rglob("*") if path.is_file()]
        return [path for path in files if self.folder / "local" not in path.parents]

    def stop_driver(self) -> None:
        """Have the driver let go of the cluster's cores."""
        if self.driver is not None:
            self.driver.process.kill()
            self.driver.process.wait()
            self.driver.process.stdin.close()
            self.driver.process.stdout.close()
            self.driver = None

    def stop(self) -> None:
        self.stop_driver()
        for process in reversed(self.processes):
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
            process.send_signal(signal.SIGKILL)
            process.wait()


def reported(path: Path) -> dict:
    """The report of a command; of one that ran or runs."""
    return json.loads(path.read_text())


def forms_of(secret: str) -> list[bytes]:
    """A secret as it might lie in a file: plain, as hex digits, and as base64 at any offset."""
    text = secret.encode()
    coded = [base64.b64encode(b"x" * shift + text)[(shift + 2) // 3 * 4 : -4] for shift in range(3)]
    return [text, text.hex().encode(), *coded]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server in this process."""
    with served() as server:
        yield server


@pytest.fixture
def store(s3_server: S3Server) -> Store:
    return Store(s3_server, f"{s3_server.new_bucket()}/lake")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of a process; started by the first. Afterwards no log has the secret of a store."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
    assert not [path for path in cluster.logs() if any(form in path.read_bytes() for form in forms_of(SECRET))]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lakebed as `pip wheel` makes it."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=120)
    return next(folder.glob("lakebed-*.whl"))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A virtual environment that has what Lakebed needs, as links, and not Lakebed."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    needed = Path(sysconfig.get_paths()["purelib"])
    (site_packages(folder) / "needed.pth").write_text(f"{needed}\n")
    found = subprocess.run([str(folder / "bin" / "python"), "-c", "import pyarrow, lakebed"], capture_output=True,
                           text=True, check=False, cwd=tmp_path, env={}, timeout=120).stderr  # fmt: skip
    assert found.endswith("ModuleNotFoundError: No module named 'lakebed'\n")
    return folder


def site_packages(environment: Path) -> Path:
    return next((environment / "lib").glob("python*/site-packages"))
