"""Where a service listens."""

import pytest

import lakebed
from lakebed.server.web.server import is_loopback, listen, url_of


def test_port_0_is_a_free_one_and_a_taken_one_is_named():
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        with pytest.raises(lakebed.UsageError, match=f"cannot listen on 127.0.0.1 port {port}: .*in use"):
            listen("127.0.0.1", port)


def test_a_host_that_does_not_exist_is_named():
    with pytest.raises(lakebed.UsageError, match=r"cannot listen on host\.invalid port 0"):
        listen("host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("lake.example", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host, loopback):
    assert is_loopback(host) is loopback
