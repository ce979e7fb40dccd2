"""The page of a run: its figures as a table, and plots over its minutes. No measurement here."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import psutil

from benchmarks.plots import Curve, Plot

IMPORT_ROWS = 100_000_000
"""Rows of one bulk import, unless a run is given another number."""
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def latencies(folder: Path, began_s: float, took_s: float) -> list[tuple[float, float]]:
    """Return the minute and the milliseconds of each timed get of a run, in order of time."""
    found: list[tuple[float, float]] = []
    for path in folder.glob("reader-*.gets"):
        words = [line.split() for line in path.read_text().splitlines()]
        # A reader that was killed may have left half a line.
        gets = [((float(one[0]) - began_s) / 60, float(one[1])) for one in words if len(one) == 2]
        found += [get for get in gets if 0 <= get[0] <= took_s / 60]
    return sorted(found)


def by_minute(gets: list[tuple[float, float]]) -> dict[str, list[tuple[float, float]]]:
    """Return for each quantile its value in each minute."""
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in QUANTILES}
    for minute, several in groupby(gets, key=lambda one: int(one[0])):
        times = [took for _, took in several]
        for name, quantile in QUANTILES.items():
            curves[name].append((minute + 0.5, float(np.quantile(times, quantile))))
    return curves


def write_page(found: dict[str, Any], folder: Path, page: Path, note: str = "") -> None:
    """Write the page, and its plots beside it as ``NAME_*.svg``."""
    run, plan = found["upsert"], found["plan"]
    gets = latencies(folder, run["began_s"], run["took_s"])
    killed = [at / 60 for at in run["kills_s"]]
    pictures = {name: plot(run["samples"], by_minute(gets), killed) for name, plot in PLOTS.items()}
    for name, picture in pictures.items():
        (page.parent / f"{page.stem}_{name}.svg").write_text(picture.svg(), "utf-8")
    begin = (
        "Whether a table loses a row while its writers, readers and service are killed, and how fast it is meanwhile. "
        f"Written by `python -m benchmarks.billion` on {datetime.now(UTC).date()}: {psutil.cpu_count()} cores "
        f"({platform.machine()}), {psutil.virtual_memory().total / 2**30:.0f} GiB, local disk. Rows of "
        f"{plan['row_bytes']} bytes with random keys were imported. Then, for {run['took_s'] / 60:.0f} minutes, "
        f"{plan['writers']} writers upserted batches of {plan['batch_rows']:,} rows ({100 * plan['share']:.3g}% of all "
        f"rows an hour), a service maintained the table, and {plan['readers']} readers made {plan['gets']:g} gets a "
        f"second each. All of them got SIGKILL {len(killed)} times, at the dashed lines. {note}"
    )
    title = f"# {plan['rows']:,} rows on one machine, {run['took_s'] / 60:.0f} minutes"
    lines = [title, "", fill(begin, 120), "", "| what | figure |", "|---|---|"]
    lines += [*(f"| {what} | {figure} |" for what, figure in figures(found, gets)), ""]
    lines += ["## By minute", ""]
    for name, picture in pictures.items():
        lines += [f"![{picture.title}]({page.stem}_{name}.svg)", ""]
    lines += ["## What larger runs take", "", "Estimated from this run; the upserts take `--hours` more.", ""]
    lines += ["| rows | made and imported | read at the end | disk |", "|---|---|---|---|"]
    lines += [_estimate(found, rows) for rows in (100_000_000, 1_000_000_000)]
    page.write_text("\n".join([*lines, ""]), "utf-8")


def _estimate(found: dict[str, Any], rows: int) -> str:
    """Return a line of the last table. A part of the import has its source and its pieces on disk, each like the rows
    of it as stored; compaction holds each file twice for a while, and so does the history of some minutes.
    """
    times = rows / found["plan"]["rows"]
    imported_s = (found["import"]["make_s"] + found["import"]["import_s"]) * times
    part = min(1.0, IMPORT_ROWS / rows)
    table = found["import"]["table_bytes"] * times
    disk = f"{_size(table * (1 + 2 * part))} to import, {_size(2 * table)} while runs are merged"
    return f"| {rows:,} | {imported_s / 60:,.0f} min | {found['verify']['read_s'] * times / 60:,.0f} min | {disk} |"


def figures(found: dict[str, Any], gets: list[tuple[float, float]]) -> list[tuple[str, str]]:
    """Return the lines of the table."""
    made, run, checked, rows = found["import"], found["upsert"], found["verify"], found["plan"]["rows"]
    written, samples, calls = run["written"], run["samples"], run["calls"]
    times = [took for _, took in gets]
    came = written["upserts_bytes"]
    imported = f"{made['make_s']:,.0f} s, {made['import_s']:,.0f} s ({rows / made['import_s']:,.0f} rows/s)"
    memory = [f"{name} {_size(_most(samples, f'{name}_bytes'))}" for name in ("service", "writer", "reader")]
    changes = [f"{count:,.0f} {name[2:]}" for name, count in sorted(written.items()) if name.startswith("n ")]
    minutes = run["took_s"] / 60
    sound = f"{checked['entries']:,} entries and {checked['objects']:,} objects sound"
    return [
        ("rows made, and imported", f"{imported}; {made['partitions']:,} partitions"),
        ("bytes of a row in the table", f"{made['table_bytes'] / rows:.1f}"),
        ("disk during the import, most", _size(made["disk_bytes_most"])),
        ("upserts", f"{checked['batches']:,} batches in {minutes:,.1f} minutes, {_size(came)} of data files"),
        ("a batch, with all its tries", _quantiles(checked["commit_s"], lambda value: f"{value:.3g} s")),
        ("`get` of a random row", f"{len(times):,}: " + _quantiles(times, lambda value: f"{value:.3g} ms")),
        (
            "files of a partition, at the worst moment",
            f"mean {_most(samples, 'files_mean'):.1f}, most {_most(samples, 'files_most'):,.0f}",
        ),
        (
            "runs of a partition, at the worst moment",
            f"mean {_most(samples, 'runs_mean'):.1f}, most {_most(samples, 'runs_most'):,.0f}",
        ),
        ("write amplification of the upserts", f"{(came + written.get('maintenance_bytes', 0)) / came:.2f}"),
        ("memory, most", ", ".join(memory)),
        ("disk, most", _size(_most(samples, "disk_bytes"))),
        (
            "calls of writers and readers to the store",
            ", ".join(f"{count:,} {name}" for name, count in sorted(calls.items())),
        ),
        ("log", f"{written['entries']:,} entries: {', '.join(changes)}"),
        (
            "verified at the end",
            f"{checked['rows']:,} rows read in {checked['read_s']:,.0f} s: none lost, doubled, old or damaged; {sound}",
        ),
    ]


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _most(samples: list[dict[str, float]], name: str) -> float:
    return max(sample.get(name, 0) for sample in samples)


def _quantiles(values: list[float], text: Callable[[float], str]) -> str:
    return (
        ", ".join(f"{name} {text(float(np.quantile(values, q)))}" for name, q in QUANTILES.items())
        if values
        else "none"
    )


def _curves(samples: list[dict[str, float]], names: dict[str, str], unit: float = 1.0) -> list[Curve]:
    return [
        Curve(shown, [(one["at_s"] / 60, one[name] / unit) for one in samples if name in one])
        for name, shown in names.items()
    ]


Samples = list[dict[str, float]]
Minutes = dict[str, list[tuple[float, float]]]


def _gets(_: Samples, minutes: Minutes, killed: list[float]) -> Plot:
    curves = [Curve(name, points) for name, points in minutes.items()]
    return Plot("get of a random row by minute, milliseconds", "minutes", curves, log=True, marked=killed)


def _files(samples: Samples, _: Minutes, killed: list[float]) -> Plot:
    names = {"files_most": "most", "files_mean": "mean"}
    return Plot("Files of a partition", "minutes", _curves(samples, names), marked=killed)


def _memory(samples: Samples, _: Minutes, killed: list[float]) -> Plot:
    names = {"service_bytes": "service", "writer_bytes": "writers", "reader_bytes": "readers"}
    return Plot("Memory of all processes of a kind, GB", "minutes", _curves(samples, names, 1e9), marked=killed)


def _disk(samples: Samples, _: Minutes, killed: list[float]) -> Plot:
    return Plot("Disk, GB", "minutes", _curves(samples, {"disk_bytes": "all files"}, 1e9), marked=killed)


PLOTS: dict[str, Callable[[Samples, Minutes, list[float]], Plot]] = {
    "gets": _gets,
    "files": _files,
    "memory": _memory,
    "disk": _disk,
}
