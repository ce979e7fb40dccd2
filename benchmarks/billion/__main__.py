"""A billion rows on one small machine: imported, upserted, read and maintained for hours, and killed every ten minutes.

    python -m benchmarks.billion --folder FOLDER [--rows 1000000000] [--hours 4] [--share 0.01] [--writers 4]
                                 [--readers 2] [--gets 20] [--partitions 200] [--kill-s 600] [--page FILE]

Rows of 40 bytes with random keys (:mod:`benchmarks.billion.rows`) are made and imported in parts, each by a bulk import
in worker processes; the partitions are cut by the planner, about ``--partitions`` of them. Then, for ``--hours``,
writers upsert ``--share`` of all rows in an hour, a batch every ten seconds each, `lakebed serve` maintains the table,
and readers get rows at random. Every ``--kill-s`` all of these processes get SIGKILL at one moment, and are started
again. At the end every row is read, and its sums are compared with those of the ledgers: nothing may be lost, doubled,
old or damaged. The log and all objects are verified as well.

The steps are ``import``, ``upsert``, ``verify`` and ``page``; ``--steps`` runs some of them, on the folder that the
others left. ``import`` goes on where it was interrupted. Disk: the folder takes about three times the bytes of the
table while it is compacted (`disk` on the page has what it took).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, TextIO

import psutil

import lakebed
from benchmarks.billion.page import IMPORT_ROWS, PLOTS, write_page
from benchmarks.billion.rows import CHUNK, ROW_BYTES, SCHEMA, Workload, make_file, stored
from benchmarks.billion.worker import Ledger, Plan
from lakebed import Pipeline
from lakebed.jobs.worker_pool import InProcess
from lakebed.model.state.sums import partition_sums
from lakebed.storage import connect
from lakebed.table.table import Table

__all__ = ["PLOTS", "main"]
STEPS = ("import", "upsert", "verify", "page")
FILE_ROWS = 5 * CHUNK
HISTORY_S = 600
SETTLE_S = 600
ROOT = Path(__file__).parents[2]


# -- import -----------------------------------------------------------------------------------------------------


def import_rows(plan: Plan, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Make the table, and import the rows in parts; a part that was imported before adds nothing."""
    lake = lakebed.create(plan.url, storage_options=plan.options) if _absent(plan) else _opened(plan)
    if "t" not in lake.tables():
        # Partitions are cut in halves or more: they end between half of this and this.
        split_rows = max(2, plan.workload.rows * 3 // (2 * asked.partitions))
        settings = {"split_rows": split_rows, "history_s": HISTORY_S, "orphan_age_s": 2 * HISTORY_S}
        lake.create_table("t", SCHEMA, merge=lakebed.Latest(), settings=settings)
    table, source = lake.table("t"), folder / "source"
    found: dict[str, Any] = {"make_s": 0.0, "import_s": 0.0, "source_bytes": 0, "disk_bytes_most": 0}
    with Pipeline(lake, launcher=InProcess(asked.workers)) as pipeline:
        for begin in range(0, plan.workload.rows, asked.import_rows):
            began_s, job = time.monotonic(), f"rows-{begin}"
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir()
            ends = min(plan.workload.rows, begin + asked.import_rows)
            with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
                jobs = [
                    pool.submit(
                        make_file, plan.workload, source / f"{first}.parquet", first, min(ends, first + FILE_ROWS)
                    )
                    for first in range(begin, ends, FILE_ROWS)
                ]
                for one in jobs:
                    one.result()
            made_s = time.monotonic()
            found["make_s"] += made_s - began_s
            found["source_bytes"] += size_of(source)
            pipeline.bulk_import(table, source, job_id=job)
            found["import_s"] += time.monotonic() - made_s
            found["disk_bytes_most"] = max(found["disk_bytes_most"], size_of(folder))
            print(
                f"{ends:,} rows: made in {made_s - began_s:,.0f} s, imported in {time.monotonic() - made_s:,.0f} s; "
                f"{len(table.state().partitions)} partitions",
                flush=True,
            )
            shutil.rmtree(source)
    found |= _shape(table) | {"table_bytes": sum(one.size_bytes for one in partition_sums(table.state()).values())}
    return found


def _absent(plan: Plan) -> bool:
    return "instance.json" not in {found.name for found in connect(plan.url, plan.options).list("")}


def _opened(plan: Plan) -> lakebed.Instance:
    return lakebed.open(plan.url, storage_options=plan.options)


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; those that go meanwhile are left out."""
    total = 0
    for found, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(found, name).stat().st_size
            except FileNotFoundError:
                continue
    return total


# -- upserts ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """The processes by name, and what is sampled of them."""

    plan: Plan
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    samples: list[dict[str, float]] = field(default_factory=list)
    kills_s: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Start the service, the writers and the readers, each the leader of a process group."""
        service = ["lakebed.cli", "--instance", self.plan.url, "serve", "--port", "0", "--in-process"]
        self._start("service", service)
        for number in range(self.plan.workload.writers):
            self._start(f"writer-{number}", ["benchmarks.billion.worker", "write", str(number), str(self.folder)])
        for number in range(self.plan.readers):
            self._start(f"reader-{number}", ["benchmarks.billion.worker", "read", str(number), str(self.folder)])

    def _start(self, name: str, arguments: list[str]) -> None:
        environment = os.environ | {"LAKEBED_STORAGE_OPTIONS": json.dumps(self.plan.options)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=log, stderr=log, cwd=ROOT, env=environment, start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """Raise RuntimeError for a process that ended by itself, with the end of its log."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise RuntimeError(
                    f"{name} ended with {process.poll()}:\n{(self.folder / f'{name}.log').read_text()[-3000:]}"
                )

    def kill(self) -> None:
        """End all of them at one moment, with the processes that they have started."""
        for process in self.running.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self.running.values():
            process.wait()
        self.running.clear()

    def settle(self) -> None:
        """Let writers end what they have begun, then readers, then the service end."""
        (self.folder / "stop").touch()
        for name, process in sorted(self.running.items(), key=lambda one: one[0] == "service"):
            if name == "service":
                process.send_signal(signal.SIGTERM)
            # A service that was still starting answers the signal with the code of interrupted commands.
            if process.wait(SETTLE_S) not in ((0, 130) if name == "service" else (0,)):
                raise RuntimeError(
                    f"{name} ended with {process.returncode}:\n{(self.folder / f'{name}.log').read_text()[-3000:]}"
                )
        self.running.clear()

    def sample(self, table: Table, since_s: float) -> None:
        """Note the shape of the table, the memory of each kind of process, and the disk that is used."""
        held = Counter[str]()
        for name, process in self.running.items():
            held[f"{name.partition('-')[0]}_bytes"] += sum(memory_of(process.pid))
        disk = {"disk_bytes": float(size_of(self.folder))}
        self.samples.append({"at_s": time.time() - since_s, **_shape(table), **held, **disk})


def memory_of(pid: int) -> Iterator[int]:
    """Yield the bytes that a process and each below it hold for themselves."""
    try:
        top = psutil.Process(pid)
        processes = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            yield process.memory_full_info().uss
        except psutil.Error:
            continue


def _shape(table: Table) -> dict[str, float]:
    sums = list(partition_sums(table.state()).values())
    return {
        "partitions": len(sums),
        "files_mean": mean(one.files for one in sums),
        "files_most": max(one.files for one in sums),
        "runs_mean": mean(one.runs for one in sums),
        "runs_most": max(one.runs for one in sums),
    }


def upsert(plan: Plan, folder: Path, hours: float, kill_s: float, sample_s: float) -> dict[str, Any]:
    """Run for so long; return the samples, the moments of kills, and what the log says was written."""
    (folder / "stop").unlink(missing_ok=True)
    table, run, began_s = _opened(plan).table("t"), Run(plan, folder), time.time()
    before = table.state().version
    try:
        run.start()
        until_s, next_kill_s, next_sample_s = began_s + hours * 3600, began_s + kill_s, began_s
        while time.time() < until_s:
            run.check()
            if time.time() >= next_sample_s:
                next_sample_s += sample_s
                run.sample(table, began_s)
            if time.time() >= next_kill_s:
                next_kill_s += kill_s
                run.kill()
                run.kills_s.append(time.time() - began_s)
                run.start()
            time.sleep(0.5)
        run.settle()
        run.sample(table, began_s)
    finally:
        run.kill()
    calls = Counter[str]()
    for path in (folder / "calls").glob("*.json"):
        for operation, count in json.loads(path.read_text()).items():
            calls[f"{path.name.partition('-')[0]} {operation}"] += count
    return {
        "began_s": began_s, "took_s": time.time() - began_s, "samples": run.samples, "kills_s": run.kills_s,
        "calls": calls, "written": written(table, before),
    }  # fmt: skip


def written(table: Table, after: int) -> dict[str, float]:
    """Return what the log has since a version: entries, bytes of upserts and of maintenance, counts by operation."""
    found = Counter[str]()
    for row in table.history_rows():
        if row.version <= after:
            break
        kind = "maintenance" if row.rewrites else "upserts"
        found[f"{kind}_bytes"] += row.bytes_added
        found[f"{kind}_files"] += row.files_added
        found[f"n {row.type}"] += 1
        found["entries"] = max(found["entries"], table.version - after)
    return dict(found)


# -- the end ----------------------------------------------------------------------------------------------------


def verify(plan: Plan, folder: Path) -> dict[str, Any]:
    """Compare every row with the ledgers, and verify the log and all objects. Raises AssertionError."""
    batches = {}
    for writer in range(plan.workload.writers):
        begun, done = Ledger.of(folder, writer).batches()
        assert begun == done, f"writer {writer} has begun {begun} batches and ended {done}: run the step upsert again"
        batches[writer] = done
    table, began_s = _opened(plan).table("t"), time.monotonic()
    found = stored(table.scan())
    read_s = time.monotonic() - began_s
    if wrong := found.differences(plan.workload.expected(batches)):
        raise AssertionError("\n".join(["the table does not have what the ledgers say:", *wrong[:20]]))
    report = table.verify(files=True)
    assert report.sound, report
    return {
        "rows": int(found.counts.sum()), "batches": sum(batches.values()), "read_s": read_s,
        "entries": report.entries, "objects": report.objects, "commit_s": sorted(
            second for writer in batches for second in Ledger.of(folder, writer).seconds()
        ),
    }  # fmt: skip


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="on the disk that is to be used; kept")
    parser.add_argument("--url", help="the instance; default: in the folder")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the store")
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--import-rows", type=int, default=IMPORT_ROWS, help="of one bulk import")
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--share", type=float, default=0.01, help="of the rows that are upserted in an hour")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two batches of a writer")
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--gets", type=float, default=20.0, help="of each reader in a second")
    parser.add_argument("--kill-s", type=float, default=600.0)
    parser.add_argument("--sample-s", type=float, default=60.0)
    parser.add_argument("--workers", type=int, help="tasks of an import at once")
    parser.add_argument("--page", type=Path, help="where the page is written, with its plots beside it")
    parser.add_argument("--note", default="", help="a sentence for the page, such as on the load of the machine")
    parser.add_argument("--steps", default=",".join(STEPS))
    return parser.parse_args(words)


def main(words: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    asked = parsed(words)
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    batch_rows = max(1, round(asked.rows * asked.share / 3600 * asked.interval / asked.writers))
    workload = Workload(asked.rows, asked.writers, batch_rows)
    options = dict(word.partition("=")[::2] for word in asked.option)
    plan = Plan(asked.url or str(folder / "lake"), options, workload, asked.interval, asked.readers, asked.gets)
    results = folder / "results.json"
    found: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    if found and found["plan"] != json.loads(json.dumps(plan_facts(asked, batch_rows))):
        print(f"{folder} has a run with other parameters: name another folder, or remove it", file=sys.stderr)
        return 2
    found["plan"] = plan_facts(asked, batch_rows)
    plan.save(folder)
    for step in asked.steps.split(","):
        print(f"{step} …", file=out, flush=True)
        if step == "import":
            found["import"] = import_rows(plan, folder, asked)
        elif step == "upsert":
            found["upsert"] = upsert(plan, folder, asked.hours, asked.kill_s, asked.sample_s)
        elif step == "verify":
            found["verify"] = verify(plan, folder)
        elif step == "page" and asked.page is not None:
            write_page(found, folder, asked.page, asked.note)
        results.write_text(json.dumps(found))
        shown = {name: value for name, value in found.get(step, {}).items() if not isinstance(value, list)}
        print(json.dumps(shown, indent=1, default=str), file=out, flush=True)
    return 0


def plan_facts(asked: argparse.Namespace, batch_rows: int) -> dict[str, Any]:
    """Return the parameters of a run that the steps must agree on."""
    names = ("rows", "import_rows", "partitions", "share", "writers", "interval", "readers", "gets")
    return {name: getattr(asked, name) for name in names} | {"batch_rows": batch_rows, "row_bytes": ROW_BYTES}


if __name__ == "__main__":
    sys.exit(main())
