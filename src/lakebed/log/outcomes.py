"""The outcomes of a commit, as values: losing a race is not an exception.

:func:`version_of` turns the outcomes without a version into errors, for callers that need one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from lakebed.errors import Code, Error, Facts
from lakebed.state.transactions import TooManyRuns, TooOld


@dataclass(frozen=True, slots=True)
class Committed:
    """Part of entry ``version``; ``repeated``: an earlier proposal with the same request key was committed there."""

    version: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """Rejected by the state: the proposal is not in the log, and never will be.

    Programs test ``code`` and read ``facts``; ``reason`` is for people.
    """

    code: Code
    reason: str
    facts: Facts = field(default_factory=Facts)

    def error(self, what: str) -> Error:
        """The error for this outcome; ``what`` names the operation in its message."""
        facts: Facts = {**self.facts, "reason": self.reason}
        return self.code(f"{what}: {self.reason}", **facts)


@dataclass(frozen=True, slots=True)
class Contended:
    """Other writers won all attempts: the proposal is not in the log, and never will be."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Crowded:
    """The commit queue of this process is full: the proposal was not made, and never will be in the log."""

    waiting: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The store gave no clear answer: entry ``version`` may have it, now or later. Do not delete its files."""

    version: int


Outcome = Committed | NotCommitted | Contended | Crowded | Unknown | TooOld | TooManyRuns


def version_of(outcome: Outcome, what: str) -> int:
    """The version of a commit. Raises RejectedError, ContentionError or UnknownOutcomeError for other outcomes."""
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
        case Unknown(version):
            raise Code.COMMIT_UNKNOWN(
                f"{what}: the store stopped answering while entry {version} was written; it may or may not be there. "
                "Repeat the call with the same request key, which takes effect at most once",
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
    """The error for files that were refused because a partition has too many runs."""
    return Code.RUNS_MAX_EXCEEDED(
        f"{what}: partition {outcome.partition} has {outcome.runs} runs, more than {outcome.runs_max} (setting "
        "runs_max), and reads merge all of them; nothing was changed. Compact the table (lakebed maintain), then "
        "write again; write more rows at a time; or raise the setting (0: no limit)",
        partition=outcome.partition,
        runs=outcome.runs,
        runs_max=outcome.runs_max,
    )
