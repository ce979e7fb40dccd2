"""``lakebed token``, as far as people read what it prints; test_json.py has its documents."""

from tests.tables.cli.conftest import Cli


def test_the_first_token_says_that_services_do_not_ask_for_it_before_they_are_restarted(cli: Cli) -> None:
    cli("init")
    created = cli("token", "create", "ann", "--role", "read")
    assert "a running service answers without a token until it is restarted" in created.err
    assert created.out.startswith("lakebed_")
    second = cli("token", "create", "bob", "--role", "read").err
    assert second.endswith("\na running service accepts it after 30 seconds at most\n")
