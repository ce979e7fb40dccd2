"""The store in memory keeps the same contract."""

from __future__ import annotations

import pytest

from lakebed.clock import random_token
from lakebed.storage import Locality, Storage, connect
from lakebed.testing.conformance import StorageConformance


class TestMemoryStorage(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return connect(f"memory://{random_token()}")


class TestMemoryStorageBelowAPrefix(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return connect(f"memory://{random_token()}/a/b")


def test_one_name_is_one_store_and_a_path_is_a_folder_of_it() -> None:
    name = random_token()
    connect(f"memory://{name}").create("a/b/c", b"x")
    assert connect(f"memory://{name}").get("a/b/c") == b"x"
    assert connect(f"memory://{name}/a").get("b/c") == b"x"
    assert connect(f"memory://{random_token()}").get("a/b/c") is None


def test_no_other_process_sees_it() -> None:
    assert connect("memory://m").locality is Locality.MEMORY
