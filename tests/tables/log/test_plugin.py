"""A package supplies a log backend by an entry point: it keeps the contract, and instances keep their logs in it."""

from __future__ import annotations

import importlib
import sys
import tomllib

import pyarrow as pa
import pytest

import lakebed
from lakebed.clock import random_token
from lakebed.errors import Code, UsageError
from lakebed.log.backends.backend import LogBackend
from lakebed.log.locations import GROUP
from lakebed.testing.logs import LogConformance, LogUrl
from tests import pages

PACKAGE = '''
"""Logs in the memory of a process: the smallest backend that keeps the contract."""

import threading
from datetime import UTC, datetime

from lakebed.log.backends.backend import LogBackend
from lakebed.log.backends.backend import Rise, encode_log_start
from lakebed.storage.contract import PutOutcome

NOT_A_FUNCTION = 1
LOCATIONS = {}
LOCK = threading.Lock()


def open_logs(url, instance, storage_options):
    return Logs(LOCATIONS.setdefault((url, instance), {}))


class Logs:
    def __init__(self, logs):
        self.logs = logs

    def open(self, prefix):
        return Log(self.logs.setdefault(prefix, {}), prefix)

    def prefixes(self):
        return iter([prefix for prefix, items in self.logs.items() if set(items) - {0}])

    def check(self):
        pass


class Log(LogBackend):
    """Items by version: bytes and time; the log start is item 0."""

    def __init__(self, items, name):
        self.items, self.name = items, name

    def create(self, version, data, previous=""):
        with LOCK:
            if version in self.items:
                return PutOutcome.EXISTS
            self.items[version] = data, self.now()
            return PutOutcome.CREATED

    def get(self, version):
        return self.items[version][0] if version and version in self.items else None

    def last_modified(self, version):
        return self.items[version][1] if version and version in self.items else None

    def now(self):
        return datetime.now(UTC)

    def versions(self):
        return iter([version for version in list(self.items) if version])

    def log_start(self):
        return self.items.get(0, (0,))[0]

    def advance_log_start(self, expected, to):
        found = self.log_start()

        def put(data):
            with LOCK:
                if self.log_start() != expected:
                    return PutOutcome.EXISTS
                self.items[0] = (to,)
                return PutOutcome.CREATED

        return Rise(self.name, expected, to).carry_out(encode_log_start(found) if found else None, put, lambda: 0)

    def remove(self, versions):
        for version in versions:
            self.items.pop(version, None)
'''
POINTS = """
[lakebed.log_backends]
plugged = plugged_logs:open_logs
number = plugged_logs:NOT_A_FUNCTION
broken = plugged_logs:absent
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a log backend, installed for this test."""
    site = tmp_path / "site"
    info = site / "plugged_logs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "plugged_logs.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-logs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    yield site
    sys.modules.pop("plugged_logs", None)


class TestPlugin(LogConformance):
    @pytest.fixture
    def location(self, package):
        return LogUrl(f"plugged://{random_token()}")


def test_an_instance_keeps_its_logs_in_the_backend_of_a_package(package, tmp_path):
    url = f"plugged://{random_token()}"
    lake = lakebed.create(str(tmp_path / "lake"), log_url=url)
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": [2, 1]}))
    again = lakebed.open(str(tmp_path / "lake"), log_url=url)
    assert again.table("t").scan().read_all().to_pylist() == [{"k": 1}, {"k": 2}]
    assert again.table("t").verify().sound
    logs = sys.modules["plugged_logs"].LOCATIONS[url, lake.id]
    assert sorted(logs) == ["catalog", f"tables/{table.id}"]
    folders = {path.name for path in (tmp_path / "lake").rglob("*")}
    assert "checkpoints" in folders
    assert "log" not in folders


def test_the_page_on_instances_has_the_group_and_the_number_of_methods():
    (block,) = pages.blocks("docs/instances.md", "toml")
    ((group, points),) = tomllib.loads(block.text)["project"]["entry-points"].items()
    assert (group, list(points)) == (GROUP, ["etcd"])
    assert len(LogBackend.__abstractmethods__) == 8
    text = (pages.ROOT / "docs/instances.md").read_text("utf-8")
    assert "implements eight methods" in " ".join(text.split())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("unplugged://here", "unknown scheme unplugged://"),
        ("number://here", r"log backend 'number' \(plugged_logs:NOT_A_FUNCTION\) is int, not a function"),
        ("broken://here", "log backend 'broken' cannot be loaded from plugged_logs:absent: .*; repair the package"),
    ],
)
def test_a_scheme_that_no_package_opens_is_refused(package, tmp_path, url, says):
    with pytest.raises(UsageError, match=says) as refused:
        lakebed.create(str(tmp_path / "lake"), log_url=url)
    assert refused.value.code is Code.URL_SCHEME_UNKNOWN
    assert not (tmp_path / "lake").exists()


def test_a_password_in_the_url_of_a_package_is_refused_and_not_shown(package, tmp_path):
    with pytest.raises(UsageError) as refused:
        lakebed.create(str(tmp_path / "lake"), log_url="plugged://me:sesame@here")
    assert refused.value.code is Code.URL_HAS_CREDENTIALS
    assert "sesame" not in str(refused.value)


def test_two_packages_that_open_one_scheme_are_refused(package, tmp_path):
    info = package / "other_logs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-logs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lakebed.log_backends]\nplugged = other_logs:open_logs\n")
    with pytest.raises(UsageError, match=r"several installed packages .* \(other_logs:open_logs, plugged_logs"):
        lakebed.create(str(tmp_path / "lake"), log_url="plugged://here")
