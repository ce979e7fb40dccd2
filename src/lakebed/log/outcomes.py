"""The outcomes of a commit, as values: losing a race is not an exception. A service answers with the same values.

:func:`version_of` turns the outcomes without a version into errors, for callers that need one.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import Struct

from lakebed.errors import Code, Error, Facts
from lakebed.model.state.transactions import TooManyRuns, TooOld


class Committed(Struct, frozen=True, tag="committed"):
    """Part of entry ``version``; ``repeated``: an earlier proposal with the same request key was committed there."""

    version: int
    repeated: bool = False


class NotCommitted(Struct, frozen=True, tag="not_committed"):
    """Rejected by the state: the proposal is not in the log, and never will be.

    Programs test ``code`` and read ``facts``; ``reason`` is for people.
    """

    code: Code
    reason: str
    facts: Facts = msgspec.field(default_factory=Facts)

    def error(self, what: str) -> Error:
        """Return the error for this outcome; ``what`` names the operation in its message."""
        facts: Facts = {**self.facts, "reason": self.reason}
        return self.code(f"{what}: {self.reason}", **facts)


class Contended(Struct, frozen=True, tag="contended"):
    """Other writers won all attempts: the proposal is not in the log, and never will be."""

    attempts: int


class Crowded(Struct, frozen=True, tag="crowded"):
    """The commit queue of this process is full: the proposal was not made, and never will be in the log."""

    waiting: int


class Unknown(Struct, frozen=True, tag="unknown"):
    """The store gave no clear answer: entry ``version`` may have it, now or later. Do not delete its files.

    With a ``service``, that service gave no clear answer, and a later entry may also have it.
    """

    version: int
    service: str = ""


Outcome = Committed | NotCommitted | Contended | Crowded | Unknown | TooOld | TooManyRuns


def version_of(outcome: Outcome, what: str) -> int:
    """Return the version of a commit.

    Raises RejectedError, ContentionError or UnknownOutcomeError for other outcomes.
    """
    match outcome:
        case Committed(version):
            return version
        case NotCommitted():
            raise outcome.error(what)
        case Contended(attempts):
            raise Code.COMMIT_CONTENDED(
                f"{what}: other writers won {attempts} times in a row; nothing was changed, try again",
                attempts=attempts,
            )
        case Crowded(waiting):
            raise Code.COMMIT_QUEUE_FULL(
                f"{what}: {waiting} commits of this process already wait for the log; nothing was changed. Try "
                "again later, or write more rows with each commit",
                waiting=waiting,
            )
        case Unknown(version, service):
            entry = f"entry {version} or a later one" if service else f"entry {version}"
            raise Code.COMMIT_UNKNOWN(
                f"{what}: {service or 'the store'} stopped answering while {entry} was written; it may or may not be "
                "there. A call with a commit_id or job_id can be repeated with it, and takes effect at most once. "
                "Before a call without one is repeated, look for that entry in `lakebed history`: it might take effect "
                "twice",
                version=version,
            )
        case TooOld(base_version, request_watermark):
            raise Code.COMMIT_ID_TOO_OLD(
                f"{what}: the request was first proposed at version {base_version}, and request keys older than "
                f"version {request_watermark} are no longer kept (setting log_s). This proposal was not committed; "
                "an earlier one may have been. Look for its rows; if they are missing, write them under another "
                "request key",
                base_version=base_version,
                request_watermark=request_watermark,
            )
        case TooManyRuns():
            raise refusal(outcome, what)
        case _:
            assert_never(outcome)


def refusal(outcome: TooManyRuns, what: str) -> Error:
    """Return the error for files that were refused because a partition has too many runs."""
    return Code.RUNS_MAX_EXCEEDED(
        f"{what}: partition {outcome.partition} has {outcome.runs} runs, more than {outcome.runs_max} (setting "
        "runs_max), and reads merge all of them; nothing was changed. Compact the table (lakebed maintain), then "
        "write again; write more rows at a time; or raise the setting (0: no limit)",
        partition=outcome.partition,
        runs=outcome.runs,
        runs_max=outcome.runs_max,
    )
