"""The explanation of a read, made from the statistics of a real read.

Core type: :class:`Explanation`. Nothing is estimated: the read is carried out to its end, and its own plan and
statistics are counted. So the numbers are those of this moment, with the pages that the cache held.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.files.parquet.read_cache import ReadStatistics
    from lakebed.read.drawing.pictures import Counted, Picture
    from lakebed.read.rows.plan import QueryPlan


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a read, and its time. Steps do not overlap."""

    name: str
    seconds: float


_WHERE_ANY = ("merged", "skipped", "index")
"""Lines that are left out where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Statistics of one read of a table at ``version``. ``str()`` is text, :meth:`to_dict` is for programs.

    ``partitions`` overlap the requested keys. Of the ``files_considered``, which these partitions refer to, some were
    excluded by the bounds of their keys and some by their filters; the others were opened. A file of two partitions
    counts twice as considered or excluded, and once as opened. ``row_groups``, ``pages`` and ``size_bytes`` (stored,
    with page indexes) were read; a page in the read cache counts as a page, without bytes. ``engine`` is true if
    DataFusion read any of it: the engine counts only pages of a key column, and no row groups, pages or bytes in a
    merge of very many files. ``pages_out_by_bounds`` are pages of a key column in which the bounds of the columns that
    the predicate names exclude every row. ``keys_by_index`` are those that an index has for it; None if none was used.
    ``rows_merged`` rows of files went into merges by the mode ``merge``, because
    files overlap or hold deletes or partial rows; ``rows`` were returned.
    """

    version: int
    partitions: int
    files_considered: int
    files_out_by_bounds: int
    files_out_by_filter: int
    files_opened: int
    row_groups: int
    pages: int
    size_bytes: int
    rows: int
    rows_merged: int
    merge: str
    engine: bool
    steps: tuple[Step, ...]
    # A service of a version before does not send these.
    pages_out_by_bounds: int = 0
    keys_by_index: int | None = None

    @classmethod
    def of(cls, version: int, plan: QueryPlan, statistics: ReadStatistics) -> Explanation:
        """Return the explanation of a finished read."""
        reaching = sum(len(partition.files) for partition in plan.partitions)
        return cls(
            version=version,
            partitions=plan.partitions_met,
            files_considered=plan.files_considered,
            files_out_by_bounds=plan.files_considered - reaching,
            files_out_by_filter=statistics.files_by_filter,
            files_opened=len(statistics.files),
            row_groups=statistics.row_groups,
            pages=statistics.pages,
            pages_out_by_bounds=statistics.pages_by_bounds,
            keys_by_index=plan.keys_by_index,
            size_bytes=statistics.size_bytes,
            rows=statistics.rows,
            rows_merged=statistics.rows_merged,
            merge=str(plan.merge),
            engine=statistics.engine,
            steps=tuple(Step(name, seconds) for name, seconds in statistics.steps.items()),
        )

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(step.seconds for step in self.steps)

    def counts(self, partitions: int | None = None) -> list[Counted]:
        """Return the counts after each step, for a funnel; ``partitions`` are those of the table."""
        of_table: list[Counted] = []
        if partitions is not None:
            of_table = [("Partitions of the table", "partitions", partitions, None)]
        left_out = None if partitions is None else partitions - self.partitions
        by_bounds = self.files_considered - self.files_out_by_bounds
        return [
            *of_table,
            ("Partitions with these keys", "partitions", self.partitions, left_out),
            ("Files of these partitions", "files", self.files_considered, None),
            ("Files left by key bounds", "files", by_bounds, self.files_out_by_bounds),
            ("Files left by filters", "files", by_bounds - self.files_out_by_filter, self.files_out_by_filter),
            ("Pages read", "pages", self.pages, None),
            ("Rows returned", "rows", self.rows, None),
        ]

    def plot(self) -> Picture:
        """Return the funnel of the read as SVG: the partitions, files, pages and rows that remain after each step."""
        from lakebed.read.drawing.pictures import bars_of, funnel_picture

        return funnel_picture(bars_of(self.counts()))

    def _repr_html_(self) -> str:
        from lakebed.model.html_tables import facts, view

        merged = [("merged", f"{self.rows_merged:,} rows of files by {self.merge}")] if self.rows_merged else []
        shown = [("read", self._amounts()), ("by", "DataFusion" if self.engine else "pages"), *merged]
        shown += [
            ("time", f"{self.seconds * 1e3:.2f} ms"),
            *((s.name, f"{s.seconds * 1e3:.2f} ms") for s in self.steps),
        ]
        return view(f"A read of {self.rows:,} rows at version {self.version}", self.plot().svg, facts(shown))

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {**asdict(self), "steps": [asdict(step) for step in self.steps]}

    def lines(self) -> list[str]:
        """Return the same as lines of text."""
        left = f"{self.files_out_by_bounds:,} out by bounds, {self.files_out_by_filter:,} by filter"
        lines = {
            "at version": self.version,
            "partitions": f"{self.partitions:,}",
            "files": f"{self.files_considered:,} considered: {left}, {self.files_opened:,} opened",
            "read": self._amounts(),
            "skipped": self.pages_out_by_bounds and f"{self.pages_out_by_bounds:,} pages of keys by bounds of columns",
            "index": self.keys_by_index is not None and f"{self.keys_by_index:,} keys that may have such rows",
            "by": "DataFusion" if self.engine else "pages",
            "rows": f"{self.rows:,}",
            "merged": self.rows_merged and f"{self.rows_merged:,} rows of files by {self.merge}",
            "time": f"{self.seconds * 1e3:.2f} ms",
        }
        lines |= {f"  {step.name}": f"{step.seconds * 1e3:.2f} ms" for step in self.steps}
        return [
            f"{name:<12}{value}" for name, value in lines.items() if value or name not in ("merged", "skipped", "index")
        ]

    def _amounts(self) -> str:
        read = (self.row_groups, "row group"), (self.pages, "page"), (self.size_bytes, "byte")
        return ", ".join(count_text(*amount) for amount in read)

    def __str__(self) -> str:
        return "\n".join(self.lines())
