"""What every test shares: marks by folder, and how hard Hypothesis tries."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from lakebed.storage import disk_space
from tests.lakes import lake, memory_lake  # noqa: F401 - fixtures of all tests
from tests.waiting import join_checkpoints

# A run of `make test` has to end; examples that take long (a store, a file) are not a fault of the test.
settings.register_profile("default", max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2000, print_blob=True)
settings.load_profile("default")

# Tests kill processes, not machines: what they write need not survive a loss of power, and waiting for the disk is what
# most of them did longest. tests/processes/storage/test_local.py holds which files and folders are made safe, and when.
os.fsync = lambda _descriptor: None

# An instance on local disk reserves files with disk space, for when the disk is full. They took nine tenths of the time
# to create an instance, and tests create thousands: here each reserves one.
RESERVE_FILES, disk_space.RESERVE_FILES = disk_space.RESERVE_FILES, 1

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The user's credentials, proxies, instance, and the colours and width of the terminal must not reach a test.
PERSONAL = {"columns", "lines", "no_color", "force_color", "pager", "lakebed_instance", "lakebed_pager"}
PERSONAL |= {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
for _name in list(os.environ):
    if _name.startswith(("AWS_", "AZURE_", "GOOGLE_", "OTEL_")) or _name.lower() in PERSONAL:
        del os.environ[_name]
# NumPy, which every process imports with PyArrow, would start a thread for each core.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# A test that shows something to a terminal shows it to this one; TERM=dumb has neither bars nor bold headings.
os.environ["TERM"] = "xterm-256color"

MARK_BY_FOLDER = {
    "cluster": pytest.mark.spark,
    "spark": pytest.mark.spark,
    "s3": pytest.mark.s3,
    "postgres": pytest.mark.postgres,
}

# A file runs in one process. Those that take longest begin first: the other processes would wait for one that began
# last. In the order of what they take on an idle machine.
LONGEST_FIRST = (
    "cluster/test_cluster.py",
    "spark/test_random_tables.py",
    "spark/test_service.py",
    "cluster/test_connect.py",
    "spark/test_signals.py",
    "spark/test_demo.py",
    # The session's Python processes for the data source end when they had nothing to do for a minute.
    "spark/test_datasource.py",
    "spark/test_filters.py",
    "spark/test_key_types_on_spark.py",
    "spark/test_interfaces.py",
    "spark/test_growth.py",
    "spark/test_streaming.py",
    "spark/test_merging.py",
    "spark/test_examples.py",
    "spark/test_pages.py",
    "spark/test_refused_rows.py",
    "adversarial/test_memory.py",
    "adversarial/test_statement_limits.py",
    "adversarial/test_memory_bombs.py",
    "service/test_restarts.py",
    "service/test_commit_via.py",
    "postgres/test_follow_service.py",
    "pipeline/test_import.py",
    "s3/test_second_process.py",
    "interop/test_read_in_place.py",
    "golden/test_kit.py",
    "postgres/test_follow.py",
    "s3/test_dynamodb.py",
    "service/test_submitted_queries.py",
    "pipeline/test_in_process.py",
    "adversarial/test_view_retractions.py",
    "golden/test_releases.py",
    "service/test_object_gateway.py",
    "processes/test_house.py",
    "adversarial/test_random_predicates.py",
    "adversarial/test_random_tables.py",
    "adversarial/test_hidden_rows.py",
    "tables/read/test_page_bounds.py",
    "service/test_protection.py",
    "processes/cli/test_process.py",
    "adversarial/test_every_call.py",
    "processes/log/test_through_service.py",
    "adversarial/test_statements.py",
    "service/test_flight_sql.py",
    "service/test_client.py",
    "tables/read/test_merged_reads.py",
    "tables/test_alter.py",
    "processes/web/test_request_authentication.py",
    "adversarial/test_merging_machine.py",
    "adversarial/test_python_values.py",
    "adversarial/test_text_values.py",
    "adversarial/test_flips_on_s3.py",
    "model/test_models.py",
    "interop/test_second_reader.py",
    "tables/log/test_simulation.py",
    "tables/sorting/test_range_pieces.py",
    "tables/read/test_reads.py",
    "tables/retention/test_truncation.py",
    "s3/test_logs.py",
    "processes/cli/test_completion_in_shells.py",
    "service/test_sandbox.py",
    "processes/read/test_filters.py",
    "adversarial/test_values.py",
    "adversarial/test_counts.py",
    "pipeline/test_crashes.py",
    "s3/test_storage.py",
    "tables/security/test_restricted.py",
    "processes/rewrite/test_run.py",
    "processes/web/test_pages_query.py",
    "s3/test_query.py",
    "service/test_http_docs.py",
    "processes/spark/test_worker_pool.py",
    "processes/merging/test_custom.py",
    "golden/test_instance.py",
    "service/test_spare_workers.py",
    "service/test_openapi.py",
    "processes/export/test_run.py",
    "adversarial/test_kills.py",
    "postgres/test_server.py",
)


# Files of tests/spark whose tests start JVMs of their own. The others use the session of their process.
OWN_JVMS = {"test_connect.py", "test_demo.py", "test_service.py", "test_signals.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many workers as cores, since many tests wait: for processes, servers, terminals, and threads."""
    return 2 * (os.cpu_count() or 1)


def pytest_configure(config: pytest.Config) -> None:
    """Each worker collects all tests, and begins with another folder: of a new checkout, pytest writes the code of each
    file anew, which takes longer than all else in collecting it, and which the next worker finds written.
    """
    if (worker := getattr(config, "workerinput", None)) is not None:
        first = int(worker["workerid"].removeprefix("gw")) * len(config.args) // worker["workercount"]
        config.args = [*config.args[first:], *config.args[:first]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As ``--dist loadfile``, but the files of tests/spark that share a session go to one worker: to start a second
    session takes longer than to wait for the first.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            shares = file.parent.name == "spark" and file.parent.parent.name == "tests" and file.name not in OWN_JVMS
            return str(file.parent if shares else file)

    return Scheduling(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep what tests remember of log URLs from the user's own configuration, and theirs from the tests. Pytest deletes
    the folder after some more runs, also if this process is killed.
    """
    folders: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    os.environ["XDG_CONFIG_HOME"] = str(folders.mktemp("configuration"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Say for scripts/test_again.py how the run ended."""
    if not hasattr(session.config, "workerinput") and hasattr(session.config, "cache"):
        session.config.cache.set("lakebed/exit_code", int(exitstatus))  # type: ignore[union-attr]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting tests makes much and drops nothing: a third of its time went into looking for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Collect garbage less often, and leave out what was imported and collected until now: a tenth of the CPU time of
    the tests went into looking at it again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    # No statement of a test follows soon enough to need a worker that waits for it; each takes half a second to start.
    if (spare_workers := sys.modules.get("lakebed.read.sql.spare_workers")) is not None:
        spare_workers.SPARE = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the folder they lie in, so that no file can forget to, and put the longest files first, in an order
    that all workers share.

    Refuse ids that another worker would not have: xdist then runs no test at all.
    """
    if others := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"ids of tests with the address of an object, which each process has anew: {others[0]}")
    tests = Path(__file__).parent
    order = {name: number for number, name in enumerate(LONGEST_FIRST)}
    places: dict[Path, tuple[int, str]] = {}
    for item in items:
        if item.path not in places:
            name = item.path.relative_to(tests).as_posix()
            places[item.path] = (order.get(name, len(order)), name)
        if (mark := MARK_BY_FOLDER.get(item.path.relative_to(tests).parts[0])) is not None:
            item.add_marker(mark)
    items.sort(key=lambda item: places[item.path])


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each test. Pytest's own looks at all folders of before for each new one."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{next(_FOLDERS):05d}-{name}"
    folder.mkdir(mode=0o700)
    return folder


_FOLDERS = itertools.count()


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """A command that runs in this process logs to a stream that its test closes, and keeps its logs from `caplog`. A
    checkpoint that is still being written would find the folder, the sink or the faults of another test.
    """
    yield
    logger = logging.getLogger("lakebed")
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
    join_checkpoints()


@pytest.fixture(autouse=True)
def _sink_as_before_test() -> Iterator[None]:
    """A service that a test starts takes its monitor away at its end."""
    before = _sink()
    yield
    assert _sink() in {None, before}, "the test left a sink of measurements"


@pytest.fixture(autouse=True, scope="module")
def _sink_as_before_module() -> Iterator[None]:
    """A service that the tests of a module share takes its monitor away at its end."""
    yield
    assert _sink() is None, "the module left a sink of measurements"


@pytest.fixture(autouse=True, scope="module")
def _no_run_goes_on() -> Iterator[None]:
    """A run that a test left under way is recorded as alive as long as the process lives, and what has just ended is
    recorded a moment later: in the middle of a test of another module, which may forbid writes.
    """
    yield
    recorder = sys.modules.get("lakebed.table.tracker.recorder")
    for left in [] if recorder is None else list(recorder._recorders):
        # A write that is under way ends first: one that fails has its records tried again.
        with left._writing, left._changed:
            for kept in (left._running, left._notes, left._progressed, left._tasks):
                kept.clear()


def _sink() -> Any:
    """What receives measurements in this process. A test without them does not import their module."""
    telemetry = sys.modules.get("lakebed.storage.telemetry")
    return telemetry and telemetry.sink


@pytest.fixture
def whole_reserve() -> Iterator[int]:
    """Instances on local disk put aside as many files as they do elsewhere; their number."""
    few, disk_space.RESERVE_FILES = disk_space.RESERVE_FILES, RESERVE_FILES
    yield RESERVE_FILES
    disk_space.RESERVE_FILES = few


@pytest.fixture
def small_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data files of any size have a summary; those of tests are too small for one."""
    monkeypatch.setattr("lakebed.model.files.SUMMARY_BYTES_MIN", 0)
