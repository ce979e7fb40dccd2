"""Completion: the answers to the scripts, and the scripts in bash, zsh and fish, in a terminal as for a user."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables.cli.conftest import Cli
from tests.waiting import until

LINES = {
    "lakebed get readings Ulm 1 --at mon": "lakebed get readings Ulm 1 --at monday ",
    "lakebed scan readings --columns=no": "lakebed scan readings --columns=note ",
    "lakebed settings set readings split_r": "lakebed settings set readings split_rows=",
    "lakebed -i prod --profile=nig": "lakebed -i prod --profile=nightly ",
    "lakebed get 'rea": "lakebed get 'readings' ",
    "lakebed write readings fir": "lakebed write readings first.csv ",
    "lakebed --config=fir": "lakebed --config=first.csv ",
    "X=1 lakebed get rea": "X=1 lakebed get readings ",
    # An S3 that is not there: nothing is completed, and nothing is written into the line.
    "lakebed -i away get rea": "lakebed -i away get rea",
}
"""What is typed before Tab is pressed, and the line afterwards."""

SHELLS_OWN = {line: LINES[line] for line in list(LINES) if " --at " not in line and " --columns" not in line}
"""For zsh and fish without the options whose values are completed as others are: bash has shown what is answered."""

SHELLS = {
    "bash": ("bash", "--noprofile", "--rcfile", "{home}/rc", "-i"),
    "zsh": ("zsh", "-d", "-i"),
    "fish": ("fish", "-i"),
}

BASH = """
PS1='PROMPT:'
bind -x '"\\C-o": printf "LINE:%s:END\\n" "$READLINE_LINE"'
eval "$(lakebed completion bash)"
"""
ZSH = """
PS1='PROMPT:'
show-line() { print -r -- "LINE:$BUFFER:END" }
zle -N show-line
bindkey '^O' show-line
eval "$(lakebed completion zsh)"
"""
FISH = """
function fish_prompt; echo -n PROMPT:; end
set -g fish_greeting
bind \\co 'printf "LINE:%s:END\\n" (commandline)'
"""
"""What a user does as `lakebed completion --help` says, and Ctrl-O, which prints the line that is typed."""


ANSWERS = {
    "lakebed ta": ["plain table", "plain tag", "plain tail"],
    "lakebed table al": ["plain alter"],
    "lakebed scan t --sta": ["plain --starts-with"],
    "lakebed --instance x compact t --strategy size": ["plain size-ratio"],
    "lakebed scan t --format=cs": ["plain --format=csv"],
    "A=1 B='x y' lakebed gc --for": ["plain --force"],
    "lakebed write t ": ["file "],
    "lakebed --config=x": ["file --config="],
    "lakebed get t Ulm ": [],
}

ASKED = """
import json, os, sys
from lakebed.cli import main
for line in json.loads(sys.argv.pop()):
    os.environ["COMP_LINE"] = line
    main()
    print(chr(0))
"""
"""One process answers for all lines, for its imports take longest."""


def test_commands_options_choices_and_files_are_completed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(list(ANSWERS))],
        env=os.environ | {"_LAKEBED_COMPLETE": "bash"}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    said = (part.splitlines() for part in ran.stdout.split("\0")[:-1])
    found = [[" ".join(one.split("\t")[:2]) for one in lines if one] for lines in said]
    assert dict(zip(ANSWERS, found, strict=True)) == ANSWERS
    assert ran.stderr == ""


@pytest.fixture
def home(cli: Cli, table: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who did what `lakebed completion --help` says."""
    cli("tag", "create", table, "monday")
    home = tmp_path / "home"
    fish = home / ".config" / "fish"
    (fish / "completions").mkdir(parents=True)
    (home / "first.csv").write_text("", "utf-8")
    (home / "config.toml").write_text(
        f"""
[instances.prod]
url = "{url}"
[instances.away]
url = "s3://bucket/lake"
[instances.away.options]
endpoint = "http://127.0.0.1:9"
allow_http = "true"
region = "us-east-1"
access_key_id = "x"
secret_access_key = "y"
[profiles.nightly]
instance = "prod"
""",
        "utf-8",
    )
    (home / "rc").write_text(BASH, "utf-8")
    (home / ".zshrc").write_text(ZSH, "utf-8")
    (fish / "config.fish").write_text(FISH, "utf-8")
    (fish / "completions" / "lakebed.fish").write_text(cli("completion", "fish").out, "utf-8")
    return home


class Terminal:
    """A shell in a terminal of its own."""

    def __init__(self, shell: str, home: Path, url: str) -> None:
        words = [word.format(home=home) for word in SHELLS[shell]]
        others = {name: value for name, value in os.environ.items() if not name.startswith("LAKEBED")}
        variables = {
            "HOME": str(home),
            "ZDOTDIR": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "LAKEBED_CONFIG": str(home / "config.toml"),
            "LAKEBED_INSTANCE": url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm",
        }
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.chdir(home)
            os.execvpe(words[0], words, others | variables)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        os.set_blocking(self.descriptor, False)
        self.shown = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the pattern is shown."""

        def found() -> re.Match[str] | None:
            with contextlib.suppress(BlockingIOError):
                self.shown += os.read(self.descriptor, 65536).decode("utf-8", "replace")
            return re.search(pattern, self.shown)

        return until(found)  # type: ignore[return-value]

    def completed(self, line: str) -> str:
        """The line after it was typed, and Tab."""
        self.shown = ""
        os.write(self.descriptor, f"{line}\t\x0f\x15".encode())
        return self.wait_for("LINE:(.*):END")[1]

    def end(self) -> None:
        """End the shell."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.descriptor)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, home: Path, url: str) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        assert shell != "bash", "bash is on every system that Lakebed supports"
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal(shell, home, url)
    terminal.wait_for("PROMPT:")
    yield terminal
    terminal.end()


@pytest.mark.parametrize(
    ("terminal", "lines"),
    [("bash", LINES), ("zsh", SHELLS_OWN), ("fish", SHELLS_OWN)],
    indirect=["terminal"],
    ids=SHELLS,
)
def test_lines_are_completed_in_a_terminal(terminal: Terminal, lines: dict[str, str]) -> None:
    assert {line: terminal.completed(line) for line in lines} == lines
