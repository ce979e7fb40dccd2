"""How many random schedules the models run."""

import pytest

SCHEDULES = 1_000  # of each model; about 1 s on one core


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--protocol-schedules",
        type=int,
        default=SCHEDULES,
        help="random schedules of each model (and a twentieth of that for each small cast of the protocol)",
    )


@pytest.fixture
def protocol_schedules(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--protocol-schedules", default=SCHEDULES)
    return count
