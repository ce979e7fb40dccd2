"""Launchers, and calls that a driver in another process carries out. The driver here is a plain Python: no Spark."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import lakebed
from lakebed import Error, Schema, UnknownOutcomeError, UsageError
from lakebed.maintenance.compaction.job_batches import FailedMerge
from lakebed.maintenance.compaction.plan import Skipped
from lakebed.maintenance.compaction.run import CompactionReport
from lakebed.spark import Local, Pipeline, Remote, Submit
from lakebed.spark.launcher import launcher_of
from lakebed.spark.submission import Call, decode_report, encode_report, report_of
from lakebed.spark.wire import dump, load

PLAIN = Submit((sys.executable,))
SECRET = "not-for-everyone"


@pytest.fixture
def instance(tmp_path: Path) -> lakebed.Instance:
    made = lakebed.create(tmp_path / "lake")
    made.create_table("t", Schema({"k": "string"}, {}, {"n": "int64"}))
    return made


def calls_left(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "lake" / "calls").rglob("*") if path.is_file()]


# -- launchers --------------------------------------------------------------------------------------------------


def test_a_text_is_a_master_or_a_connect_server() -> None:
    assert launcher_of(None) == Local()
    assert launcher_of("spark://host:7077") == Local("spark://host:7077")
    assert launcher_of("sc://host:15002") == Remote("sc://host:15002")
    assert launcher_of(PLAIN) is PLAIN


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("spark-submit --name 'two words'", ["spark-submit", "--name", "two words", "p.py", "a", "b"]),
        (("spark-submit",), ["spark-submit", "p.py", "a", "b"]),
        (
            "gcloud submit {program} --region x -- {arguments}",
            ["gcloud", "submit", "p.py", "--region", "x", "--", "a", "b"],
        ),
        ("run {program} -v", ["run", "p.py", "-v", "a", "b"]),
    ],
)
def test_program_and_arguments_stand_where_the_command_says(command: Any, words: list[str]) -> None:
    assert Submit(command).words("p.py", ("a", "b")) == words


def test_a_command_of_no_words_is_refused() -> None:
    with pytest.raises(UsageError, match="no command"):
        Submit("").words("p.py", ())


# -- calls ------------------------------------------------------------------------------------------------------


def test_a_report_comes_back_as_it_would_from_here(instance: lakebed.Instance, tmp_path: Path) -> None:
    here, there = Pipeline(instance), Pipeline(instance, launcher=PLAIN)
    assert there.compact("t") == here.compact("t")
    assert there.maintain(instance.table("t")) == here.maintain("t")
    assert calls_left(tmp_path) == []


def test_an_error_comes_back_as_what_it_was(instance: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="no compaction strategy 'none'"):
        Pipeline(instance, launcher=PLAIN).compact("t", strategy="none")


def test_a_driver_that_leaves_no_answer_leaves_the_outcome_unknown(instance: lakebed.Instance, tmp_path: Path) -> None:
    """And a job id, for to repeat it must not add the rows twice."""
    with pytest.raises(UnknownOutcomeError, match="false ended with code 1") as caught:
        Pipeline(instance, launcher=Submit("false")).bulk_import("t", tmp_path / "in")
    assert f"repeat it with the job id {caught.value.facts['job_id']}" in str(caught.value)
    assert calls_left(tmp_path) == []


def test_a_command_that_does_not_exist_is_named(instance: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="cannot start no-such-submit: No such file"):
        Pipeline(instance, launcher=Submit("no-such-submit")).compact("t")


def test_what_cannot_travel_is_refused(instance: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="source: a object cannot be handed to a driver in another process"):
        Pipeline(instance, launcher=PLAIN).bulk_import("t", object())


def test_there_is_no_session_where_drivers_are_submitted(instance: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="its launcher submits a driver"):
        _ = Pipeline(instance, launcher=PLAIN).session


def test_storage_options_travel_by_neither_command_line_nor_store(instance: lakebed.Instance, tmp_path: Path) -> None:
    """A script in place of `spark-submit` writes down what it was given."""
    script = tmp_path / "submit"
    script.write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" > words\nenv > variables\ncat lake/calls/*/* > call\nexit 1\n'
    )
    script.chmod(0o755)
    instance.storage_options["token"] = SECRET
    with pytest.raises(UnknownOutcomeError):
        Pipeline(instance, launcher=Submit((str(script),))).compact("t")
    words, variables, call = ((tmp_path / name).read_text() for name in ("words", "variables", "call"))
    assert SECRET in variables
    assert (SECRET in words, SECRET in call) == (False, False)
    assert json.loads(call)["method"] == "compact"


def test_calls_that_were_left_behind_go_with_the_next(instance: lakebed.Instance, tmp_path: Path) -> None:
    old, young = (tmp_path / "lake" / "calls" / name for name in ("call-old1", "call-young"))
    for folder, age_days in ((old, 8), (young, 6)):
        instance.storage.create(f"calls/{folder.name}/request.json", b"{}")
        then = (folder / "request.json").stat().st_mtime - age_days * 86_400
        os.utime(folder / "request.json", (then, then))
    with pytest.raises(UnknownOutcomeError):
        Pipeline(instance, launcher=Submit("false")).compact("t")
    assert calls_left(tmp_path) == [young / "request.json"]


def test_a_call_of_another_version_is_refused() -> None:
    call = Call("compact", {"table": "t"})
    assert Call.from_json(load(dump(call.to_json()))) == call
    with pytest.raises(UsageError, match=r"the call is of Lakebed 9\.9"):
        Call.from_json(call.to_json() | {"version": "9.9"})


def test_only_what_is_meant_to_be_submitted_can_be(instance: lakebed.Instance) -> None:
    class Other(Pipeline):
        def close_all(self) -> None:
            """Not to be called from afar."""

    assert report_of(Other.close_all) is None
    assert {"bulk_import", "compact", "maintain"} <= set(SUBMITTED)


# -- reports ----------------------------------------------------------------------------------------------------

SUBMITTED = {name: report_of(method) for name, method in vars(Pipeline).items() if report_of(method) is not None}


def test_a_report_with_everything_in_it_travels() -> None:
    report = CompactionReport(
        table="t", partitions=1, jobs=1, concatenated=0, files_in=2, files_out=3, rows=4, bytes_in=5, bytes_out=6,
        version=None, skipped=(Skipped(7, "open"),),
        failed=(FailedMerge(8, lakebed.DamagedError("bad", name="x")),), released=("j",),
        waits=None,
    )  # fmt: skip
    back = decode_report(CompactionReport, load(dump(encode_report(report))))
    assert back.failed[0].error.facts == {"name": "x"}
    assert type(back.failed[0].error) is lakebed.DamagedError
    assert repr(back) == repr(report)


@pytest.mark.parametrize("name", SUBMITTED)
def test_every_report_is_made_of_what_travels(name: str) -> None:
    """Numbers, texts, errors, and tuples and dataclasses of them; what is added later is found here."""
    pending, seen = [SUBMITTED[name]], set()
    while pending:
        kind = pending.pop()
        if is_dataclass(kind) and kind not in seen:
            seen.add(kind)
            pending += get_type_hints(kind).values()
        elif get_args(kind):
            pending += get_args(kind)
        elif kind is not Ellipsis and kind not in seen:
            assert kind in (int, float, str, bool, type(None)) or issubclass(kind, Error), kind
