"""One broker of Kafka for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker, Registry


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    if "KAFKA" not in os.environ:
        pytest.skip("KAFKA names no folder of Kafka: run `make test-kafka`")
    made = Broker.make()
    yield made
    made.remove()


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.close()
