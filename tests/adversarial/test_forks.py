"""A child that is forked from a process which used the engine or an object store answers, or says what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SLOW = pytest.mark.slow
PROGRAM = Path(__file__).with_name("forked_calls.py")
ENGINE = dict.fromkeys(
    ("count", "scan", "where", "sample", "sql", "delete", "changes", "generated"), "process_forked"
) | {"custom": "merge_function_failed"}
"""The calls that use the engine, and their errors; the others answer in any child."""


def said(*arguments):
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROGRAM.parents[2])
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forks") / "lake"
    said(folder, "make")
    return folder


@pytest.mark.parametrize("used", [pytest.param("scan", marks=SLOW), "where", pytest.param("sql", marks=SLOW)])
def test_a_child_of_a_process_that_used_the_engine_is_asked_to_spawn(folder, used):
    answers = json.loads(said(folder, used))
    assert answers == {name: ENGINE.get(name, "done") for name in answers}


def test_a_child_of_a_process_that_only_opened_an_instance_does_everything(folder):
    assert set(json.loads(said(folder, "nothing")).values()) == {"done"}
