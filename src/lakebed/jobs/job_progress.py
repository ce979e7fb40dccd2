"""The progress of a call of a pipeline: what executors report, and who is shown it.

Core types: :class:`Progress`, :class:`CallProgress`, :class:`CombinedProgress`. Nothing depends on progress.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.jobs.progress_bar import ProgressBar, is_interactive
from lakebed.model.checks import shown

if TYPE_CHECKING:
    from lakebed.table.tracker.recorder import RunHandle


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call in its ``phase``: rows done of all rows (0 if unknown), and tasks done of all known tasks.
    ``rows_done`` never decreases within a phase.
    """

    rows_done: int
    rows_total: int
    phase: str = ""
    tasks_done: int = 0
    tasks_total: int = 0

    def show(self, bar: ProgressBar) -> None:
        """Show it on a progress bar."""
        tasks = (self.tasks_done, self.tasks_total)
        bar.update(self.rows_done, self.rows_total or None, phase=self.phase, tasks=tasks)


Callback = Callable[[Progress], None]


def in_phase(progress: Callback | None, phase: str) -> Callback | None:
    """Return the callback, with the name of the phase added to its argument."""
    return None if progress is None else lambda made: progress(replace(made, phase=made.phase or phase))


def watching(run: RunHandle, progress: Callback | None = None) -> Callback:
    """Return a callback that passes progress to the record of a run and to its caller."""

    def report(made: Progress) -> None:
        run.progress(rows_done=made.rows_done, rows_total=made.rows_total)
        if progress is not None:
            progress(made)

    return report


class CallProgress:
    """Reports the progress of calls to a callback, or with AUTO to a bar if the output is interactive."""

    AUTO = "auto"

    def __init__(self, given: Callback | str | None) -> None:
        if given is not None and given != self.AUTO and not callable(given):
            raise Code.ARGUMENT_INVALID(f"progress = {shown(given)}: must be a function, None, or 'auto'")
        self._given = given
        self.callback: Callback | None = given if callable(given) else None

    @contextlib.contextmanager
    def shown(self, what: str) -> Iterator[None]:
        """Show the progress of the call in the block, of which ``what`` is the name."""
        if self._given != self.AUTO or not is_interactive():
            yield
            return
        with ProgressBar(what) as bar:
            self.callback = lambda made: made.show(bar)
            try:
                yield
            finally:
                self.callback = None


class CombinedProgress:
    """Adds up the progress of several sets of tasks that run at once."""

    def __init__(self, progress: Callback, rows_total: int) -> None:
        self._progress = progress
        self._rows_total = rows_total
        self._done: list[int] = []
        self._reporting = threading.Lock()

    def part(self) -> Callback:
        """Return the callback of one of them, whose rows count from 0."""
        with self._reporting:
            place = len(self._done)
            self._done.append(0)

        def report(progress: Progress) -> None:
            with self._reporting:
                self._done[place] = progress.rows_done
                self._progress(Progress(min(sum(self._done), self._rows_total), self._rows_total))

        return report
