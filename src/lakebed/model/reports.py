"""What work on a table did, as a value: a sentence for people, and facts for the record of the run.

Each kind of work has a report, which what shows or records it asks. A sentence names neither the table nor the version,
which stand beside it everywhere. Pure.

Core types: :class:`WorkReport`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.model.html_tables import FactsView
from lakebed.model.wording import count_text, size_text

if TYPE_CHECKING:
    from lakebed.errors import Error


class WorkReport(FactsView):
    """The result of work on a table that ended without an exception. ``version`` is that of its last commit, if any."""

    __slots__ = ()

    version: int | None

    @property
    def summary(self) -> str:
        """The result as a sentence, without a full stop."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do: the run leaves no record."""
        return False

    @property
    def error(self) -> Error | None:
        """The first error of a part of the work that failed, which a call raises once the others are done."""
        return None

    @property
    def failure(self) -> Error | None:
        """The error for the record of the run, which is then one that failed."""
        return self.error

    @property
    def unfinished(self) -> str | None:
        """Why no more of the work was begun; None: all that was due was."""
        return None

    @property
    def crowded_out(self) -> bool:
        """Whether a part was refused because a partition has too many runs: it can be done after a compaction."""
        return False

    @property
    def parts(self) -> tuple[WorkReport, ...]:
        """The reports of the steps of the work."""
        return (self,)

    @property
    def committed(self) -> int | None:
        """The version to record with the run."""
        return self.version

    @property
    def done(self) -> tuple[int | None, int | None]:
        """The rows and bytes to record as done; None: those of the last progress."""
        return None, None


class AddedFiles(WorkReport):
    """The result of work that adds the rows of a source. ``repeated``: its job id was committed before."""

    __slots__ = ()

    rows: int
    files: int
    size_bytes: int
    repeated: bool

    @property
    def done(self) -> tuple[int, int]:
        """The rows that were added, and the bytes of their files."""
        return self.rows, self.size_bytes

    def added(self, verb: str, rows_written: int) -> str:
        """Return what was added as a text; ``rows_written`` are fewer than the rows if equal keys were merged."""
        if self.repeated:
            return f"{verb}ed before; nothing was added"
        if self.version is None:
            return f"no rows to {verb}; nothing was added"
        return (
            f"{count_text(self.rows, 'row')} {verb}ed{files_text(self.rows, rows_written, self.files, self.size_bytes)}"
        )


class ExportedFiles(WorkReport):
    """The result of work that writes rows to ``files`` below ``url``; no table is changed."""

    __slots__ = ()

    url: str
    rows: int
    files: int
    size_bytes: int

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        written = files_text(self.rows, self.rows, self.files, self.size_bytes)
        return f"{count_text(self.rows, 'row')} exported{written} to {self.url}"

    @property
    def committed(self) -> None:
        """None: nothing was committed."""
        return None

    @property
    def done(self) -> tuple[int, int]:
        """The rows that were written, and the bytes of their files."""
        return self.rows, self.size_bytes


def files_text(rows: int, rows_written: int, files: int, size_bytes: int) -> str:
    """Return the files that rows became, and how many rows these have if rows with equal keys were merged."""
    merged = "" if rows_written == rows else f", merged to {rows_written:,},"
    return f"{merged} as {count_text(files, 'file')} of {size_text(size_bytes)}"
