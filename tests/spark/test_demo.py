"""`make demo` as a newcomer runs it, and every command that it ends with."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.cli import main

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_runs_beside_an_older_one_and_the_commands_it_recommends_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo-lake").mkdir()
    ran = subprocess.run(
        [sys.executable, str(DEMO)], cwd=tmp_path, capture_output=True, check=False, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    assert "this run goes to demo-lake-2" in ran.stdout
    assert not list((tmp_path / "demo-lake").iterdir())
    assert "2,512 of them have no tail number" in ran.stdout
    assert "336,776 rows equal the input as a multiset" in ran.stdout
    said = ran.stdout.partition("Go on with it:")[2]
    instance = re.search(r"export LAKEBED_INSTANCE=(\S+)", said)
    commands = re.findall(
        r"^   (\S+(?: -m lakebed\.cli)? (?:table|get|scan|report|settings|maintain) .*)$", said, re.MULTILINE
    )
    assert instance is not None
    assert len(commands) == 7
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_INSTANCE", instance[1])
    # The first as it stands; the others in this process, which has imported all of it.
    first = subprocess.run(shlex.split(commands[0]), capture_output=True, check=False, text=True, timeout=300)
    assert first.returncode == 0, first.stderr
    assert first.stdout
    for command in commands[1:]:
        words = shlex.split(command)
        given = words[1:] if words[1] != "-m" else words[3:]
        assert main(given) == 0, f"{command}: {capsys.readouterr().err}"
        assert capsys.readouterr().out, command
