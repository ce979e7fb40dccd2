"""The figures as a table: one line per measure, one column per peer; failures are in the cell or in a note below."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.lookup_under_ingest.rows import DELETED_ROWS

Peers = dict[str, dict[str, Any]]
"""The figures of each measure, for each peer."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its measure, and how its figures are formatted as a cell."""

    name: str
    measure: str
    cell: Callable[[dict[str, Any]], str]


@dataclass(slots=True)
class Notes:
    """Notes to cells, numbered in the order of their first use."""

    said: list[str] = field(default_factory=list)

    def mark(self, text: str) -> str:
        """Return the number of the text's note."""
        if text not in self.said:
            self.said.append(text)
        return f"[{self.said.index(text) + 1}]"


def number(value: float) -> str:
    """Format with three digits, and all digits before the point."""
    for digits, least in ((0, 99.95), (1, 9.995), (2, 0)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value}"


def pair(figures: dict[str, Any]) -> str:
    return f"{number(figures['p50_ms'])} / {number(figures['p99_ms'])}"


def lines(sizes: dict[str, Any]) -> list[Line]:
    """Return all lines of the table, for a benchmark of that size."""
    commits = f"{sizes['commits']:,} x {sizes['rows']:,} rows"
    tiny, ten = f"{sizes['tiny']:,} commits of 10 rows", "10 rows a commit"
    many = f"{sizes['writers']} writers, {sizes['writers'] * sizes['writer_commits']} commits"
    return [
        Line(f"ingest of {commits}, s", "ingest", lambda f: number(f["seconds"])),
        Line("  one commit, p50 ms", "ingest", lambda f: number(f["commit_p50_ms"])),
        Line("  on disk, MB", "ingest", lambda f: number(f["size_bytes"] / 1e6)),
        Line("  peak memory, MiB", "ingest", lambda f: number(f["peak_mib"])),
        Line("first lookup in a new process, ms", "cold", lambda f: number(f["lookup_ms"])),
        Line("  its imports, ms", "cold", lambda f: number(f["imports_ms"])),
        Line("lookup, p50 / p99 ms", "lookups", lambda f: pair(f["get"])),
        Line("lookup, not there", "lookups", lambda f: pair(f["absent"])),
        Line("range of 1,000 rows", "lookups", lambda f: pair(f["range"])),
        Line(f"upsert of {sizes['rows']:,} rows, half new, s", "upsert", lambda f: number(f["seconds"])),
        Line("  peak memory, MiB", "upsert", lambda f: number(f["peak_mib"])),
        Line(f"delete of about {DELETED_ROWS:,} rows, s", "delete", lambda f: number(f["seconds"])),
        Line("maintenance, s", "maintain", lambda f: number(f["seconds"])),
        Line("  lookup after it, p50 / p99 ms", "maintain", lambda f: pair(f["get"])),
        Line(f"{tiny}: first, ms", "tiny", lambda f: number(f["first_ms"])),
        Line("  last, ms", "tiny", lambda f: number(f["last_ms"])),
        Line("  on disk, MB", "tiny", lambda f: number(f["size_bytes"] / 1e6)),
        Line("  first lookup in a new process, ms", "tiny_cold", lambda f: number(f["lookup_ms"])),
        Line(f"{many}, {ten}: commits/s", "writers", lambda f: number(f["committed"] / max(f["seconds"], 1e-9))),
        Line("  failed / tried again", "writers", lambda f: f"{f['failed']} / {f['retries']}"),
        Line("  rows lost (-) or doubled (+)", "writers", lambda f: f"{f['rows_there'] - f['rows_acknowledged']:+d}"),
    ]


def shortfall(measure: str, figures: dict[str, Any], sizes: dict[str, Any]) -> str:
    """Describe what a measure did not complete in its time, or errors that did not end it; empty if there are none."""
    wanted = {"ingest": sizes["commits"], "tiny": sizes["tiny"]}.get(measure)
    if wanted is not None and figures["commits"] < wanted:
        return (
            f"stopped by its time limit after {figures['commits']} of {wanted:,} commits; the lines below are for these"
        )
    if errors := figures.get("errors"):
        return "; ".join(f"{count} x {error}" for error, count in errors.items())
    return ""


def cell(line: Line, figures: dict[str, Any] | None, sizes: dict[str, Any], notes: Notes) -> str:
    """Return one cell: the figure, or why there is none."""
    first = not line.name.startswith("  ")
    if figures is None:
        return "not run"
    if "none" in figures:
        return f"none {notes.mark(figures['none'])}" if first else "-"
    if "error" in figures:
        return f"error {notes.mark(figures['error'])}" if first else "-"
    # Errors of a writer are noted at its failures; those of a time limit, at the measure.
    noted = "failed" in line.name if line.measure == "writers" else first
    why = shortfall(line.measure, figures, sizes) if noted else ""
    return f"{line.cell(figures)} {notes.mark(why)}" if why else line.cell(figures)


def times_ours(peers: Peers) -> list[str] | None:
    """Return each peer's lookup time relative to Lakebed's, by the medians; None if Lakebed was not measured.

    Only for as many commits as Lakebed had: tables of fewer files are not comparable.
    """
    ours = peers.get("lakebed", {})
    if "get" not in ours.get("lookups", {}):
        return None
    ratios = []
    for theirs in peers.values():
        get = theirs.get("lookups", {}).get("get")
        comparable = get and theirs["ingest"]["commits"] == ours["ingest"]["commits"]
        ratios.append(f"{number(get['p50_ms'] / ours['lookups']['get']['p50_ms'])} x" if comparable else "-")
    return ratios


def grid(peers: Peers, sizes: dict[str, Any]) -> tuple[list[list[str]], Notes]:
    """Return the table's cells, with the names in the first line, and its notes."""
    notes = Notes()
    made = [["", *peers]]
    for line in lines(sizes):
        found = [peers[name].get(line.measure) for name in peers]
        if any(figures is not None for figures in found):
            made.append([line.name, *(cell(line, figures, sizes, notes) for figures in found)])
        if line.name.startswith("lookup, p50") and (ratios := times_ours(peers)):
            made.append(["  times as long as lakebed's (p50)", *ratios])
    return made, notes


def table(peers: Peers, sizes: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    made, notes = grid(peers, sizes)
    widths = [max(len(row[column]) for row in made) for column in range(len(made[0]))]
    text = [
        row[0].ljust(widths[0])
        + "".join(value.rjust(width + 2) for value, width in zip(row[1:], widths[1:], strict=True))
        for row in made
    ]
    return "\n".join([*text, "", *(f"[{n}] {note}" for n, note in enumerate(notes.said, 1))]).rstrip()


def markdown(peers: Peers, sizes: dict[str, Any], date: str) -> str:
    """Return the table for a page; ``date`` is that of the run."""
    cells, notes = grid(peers, sizes)
    made = [[re.sub(r"^ {2}", "… ", value).replace("|", "\\|") for value in row] for row in cells]
    rows = ["| " + " | ".join(row) + " |" for row in made]
    rows.insert(1, "|---|" + "---:|" * (len(made[0]) - 1))
    said = [f"{n}. {note}" for n, note in enumerate(notes.said, 1)]
    made_of = {name: figures["made_of"] for name, figures in peers.items() if "made_of" in figures}
    versions = [
        f"* {name}: {', '.join(' '.join(package) for package in made['packages'].items())}. {made['how']}"
        for name, made in made_of.items()
    ]
    run = (
        f"Measured on {date}: {sizes['commits']:,} commits of {sizes['rows']:,} rows; at most {sizes['gets']:,} reads "
        f"of each kind; {sizes['processes']} new processes; {sizes['seconds']:g} s a measure, four times that for the "
        "ingest."
    )
    return "\n".join([run, "", *rows, "", *said, "", *versions])
