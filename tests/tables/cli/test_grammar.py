"""What all commands have in common: their help, how they refuse words, how keys are given, and completion."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from lakebed.cli.commands import LAKEBED
from lakebed.cli.grammar import Deferred
from lakebed.cli.invocation import Invocation
from lakebed.cli.reference import every_command
from tests.tables.cli.conftest import Cli
from tests.tables.log.foreign_logs import move_log, unreached

COMMANDS = {context.command_path.removeprefix("lakebed "): command for command, context in every_command()}

LINES_OF_A_SCREEN = 76
COLUMNS_OF_A_SCREEN = 110


def groups_and_commands() -> list[str]:
    groups = [name for name, found in LAKEBED.commands.items() if isinstance(found, click.Group)]
    return ["", *groups, *COMMANDS]


@pytest.mark.parametrize("words", groups_and_commands())
def test_the_help_of_every_command_fits_a_screen(cli: Cli, words: str) -> None:
    ran = cli(*words.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: lakebed {words}".rstrip())
    lines = ran.out.splitlines()
    assert len(lines) <= LINES_OF_A_SCREEN
    assert max(map(len, lines)) <= COLUMNS_OF_A_SCREEN
    assert "--instance" in ran.out
    assert cli(*words.split(), "-h").out == ran.out


def test_a_line_of_help_in_the_list_is_the_first_of_the_command() -> None:
    def listed(group: click.Group, path: str = "") -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                found |= listed(command, f"{path}{name} ")
            else:
                assert isinstance(command, Deferred)
                found[path + name] = command.short_help
        return found

    assert listed(LAKEBED) == {path: (command.help or "").split("\n")[0] for path, command in COMMANDS.items()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hook add", "hook create"),
        ("hook remove", "hook drop"),
        ("token revoke", "token drop"),
        ("requests withdraw", "requests drop"),
        ("query cancel", "query drop"),
    ],
)
def test_an_old_name_runs_the_command_and_names_the_new_one(cli: Cli, old: str, new: str) -> None:
    ran = cli(*old.split(), "--help")
    assert (ran.code, ran.out) == (0, cli(*new.split(), "--help").out)
    assert ran.err == f"lakebed: `lakebed {old}` is now `lakebed {new}`; the old name goes away\n"
    assert not [
        path for path in COMMANDS if path.endswith((" add", " remove", " delete", " revoke", " withdraw", " cancel"))
    ]


def test_every_option_says_what_it_is_for() -> None:
    for path, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help or option.show_default, f"{path}: {option.opts}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scam"], "no command 'scam'; did you mean `lakebed scan`?"),
        (["select"], "no command 'select'; did you mean `lakebed sql`?"),
        (["alter"], "no command 'alter'; did you mean `lakebed table alter`?"),
        (["table", "creat"], "no command 'creat' of `lakebed table`; did you mean 'create'?"),
        (["tag", "add"], "no command 'add' of `lakebed tag`; did you mean 'create'?\ncommands: create, drop, list\n"),
        (["table"], "missing command"),
        (["scan", "t", "--limt", "3"], "no option '--limt'; did you mean '--limit'?\nusage: lakebed scan"),
        (["scan", "t", "--filter", "n"], "no option '--filter'; did you mean '--where'?"),
        (["scan", "t", "--filter", "n"], "\n  --where PREDICATE  In SQL"),
        (["scan", "t", "--limit", "x"], "invalid value for '--limit': 'x' is not a valid whole number"),
        (["scan", "t", "--limit", "-1"], "invalid value for '--limit': -1 is not in the range x>=0"),
        (["scan", "t", "--from", "--limit", "1"], "option '--from' requires a key"),
        (["count", "t", "--where", "n"], "no option '--where'\nusage: lakebed count"),
        (["scan", "t", "-2"], "a word that begins with a minus sign and is no option comes after `--`"),
        (["get", "t"], "give one of KEY, --keys"),
        (["get", "t", "k", "--keys", "f"], "KEY and --keys exclude each other; give one"),
        (["compact", "t", "--strategy", "magic"], "'magic' is not one of 'basic', 'size-ratio', 'by-bytes', 'full'"),
        (["table", "list", "--option", "region"], "'region' is not of the form NAME=VALUE"),
        (["sql", "SELECT 1", "--memory-limit", "1GB"], "'1GB' is not a number of bytes, such as 536870912 or 512MiB"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_wrong_words_are_named_with_a_remedy(cli: Cli, words: list[str], said: str) -> None:
    ran = cli(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.splitlines()[-1].startswith("see `lakebed")


@pytest.mark.parametrize(
    "words",
    [
        ["--from", "Ulm", "-2", "--limit", "1"],
        ["--limit", "1", "--from", "Ulm", "-2", "--to", "Ulm", "-1"],
        ["--prefix", "Ulm", "-2"],
        ["--prefix=Ulm", "--to", "Ulm", "-1"],
    ],
)
def test_keys_of_several_words_and_negative_numbers_are_options_of_a_scan(
    cli: Cli, table: str, words: list[str]
) -> None:
    assert ("Ulm", -2) in [(row["place"], row["sensor"]) for row in cli("scan", table, "--json", *words).lines]


def test_a_key_word_with_a_minus_sign_comes_after_two(cli: Cli, table: str) -> None:
    assert cli("get", table, "-x", "1").code == 2
    assert cli("get", table, "--", "-x", "1").err == "no rows with that key\n"
    assert cli("scan", table, "--prefix=-x").err == "no rows there\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("get r", ["readings"]),
        ("get readings Ulm 1 --at m", ["monday"]),
        ("get --at m", []),
        ("scan readings --columns no", ["note"]),
        ("scan readings --columns note,re", ["note,reading"]),
        ("tag drop readings mon", ["monday"]),
        ("restore readings --to mon", ["monday"]),
        ("settings set readings split_r", ["split_rows="]),
        ("settings set rea", ["readings"]),
        ("hook drop x", []),
        ("--instance nowhere get r", []),
        ("scan nothing --columns no", []),
        ("-i pro", ["prod"]),
        ("-i prod get r", ["readings"]),
    ],
)
def test_names_of_the_instance_are_completed(  # noqa: PLR0917
    cli: Cli, table: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    (tmp_path / "config.toml").write_text(f'[instances.prod]\nurl = "{url}"\n', "utf-8")
    monkeypatch.setenv("LAKEBED_CONFIG", str(tmp_path / "config.toml"))
    cli("tag", "create", table, "monday")
    *before, incomplete = line.split()
    completing = ShellComplete(LAKEBED, {"obj": Invocation()}, "lakebed", "_LAKEBED_COMPLETE")
    assert [one.value for one in completing.get_completions(before, incomplete) if one.type == "plain"] == words


def test_a_log_that_the_user_has_not_agreed_to_is_not_contacted(cli: Cli, table: str, url: str) -> None:
    completing = ShellComplete(LAKEBED, {"obj": Invocation()}, "lakebed", "_LAKEBED_COMPLETE")
    with unreached() as log_url:
        move_log(url, log_url)
        assert completing.get_completions(["get"], "r") == []
