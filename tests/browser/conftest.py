"""A service on a free port, and a Chromium that shows its pages."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from playwright.sync_api import Browser, sync_playwright

import lakebed
from lakebed.server.security.principal import Authenticator, Permission, Principal
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.server import listen, url_of
from lakebed.table.instance import Instance
from tests.browser.lake import LONG, make_lake, make_strange_lake


@contextmanager
def serving(instance: Instance, authenticator: Authenticator | None = None) -> Iterator[str]:
    """The URL of a service of an instance that it does not maintain."""
    listening = listen("127.0.0.1", 0)
    with Service(instance, maintain=False) as service:
        server = uvicorn.Server(uvicorn.Config(make_app(service, authenticator), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield url_of(listening)
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service over real data."""
    with serving(make_lake(tmp_path_factory.mktemp("browser") / "lake")) as url:
        yield url


class LongNamed:
    """Finds an admin with a long name behind every request."""

    def authenticate(self, _: str | None) -> Principal:
        """The admin."""
        return Principal.everywhere(f"user_of_{LONG}", Permission.ADMIN)


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service with long names, tables of one partition, and a user with a long name."""
    with serving(make_strange_lake(tmp_path_factory.mktemp("strange") / "lake"), LongNamed()) as url:
        yield url


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service of an instance without tables."""
    with serving(lakebed.create(str(tmp_path_factory.mktemp("empty") / "lake"))) as url:
        yield url


@pytest.fixture(autouse=True)
def _sink_as_before_test() -> None:
    """The services here run, with their monitors, until all tests have ended."""


@pytest.fixture(autouse=True, scope="module")
def _sink_as_before_module() -> None:
    """As of a test."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A Chromium without a window: that of $CHROMIUM, as `make test-browser` sets it, or of the PATH."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on the PATH: run `make test-browser`, which finds or installs one")
    with sync_playwright() as playwright:
        # A container's user is root, which Chromium's sandbox refuses; the pages are our own.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
