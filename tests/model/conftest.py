"""How many random schedules the models run."""

import pytest

SCHEDULES = 8_000  # about 7 s on one core


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--protocol-schedules",
        type=int,
        default=SCHEDULES,
        help="random schedules of the protocol model (and a twentieth of that for each small cast)",
    )


@pytest.fixture
def protocol_schedules(request: pytest.FixtureRequest) -> int:
    count: int = request.config.getoption("--protocol-schedules", default=SCHEDULES)
    return count
