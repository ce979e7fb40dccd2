"""Run the targets for as long as it is given, add up what they did, and write the page: ``make trust MINUTES=30``.

``python -m tests.trust run [--minutes N] [--only T3,T5] [--until ci] [--jobs N]``: slices, each in a process of its own
and by default one for each core at once, the target first that has had the least of its share; with ``--until`` only
those that have not yet done what is asked in continuous integration, or of a release. Exits with 1 if a slice found
something, hung or died, or if an event was too rare.
``python -m tests.trust slice TARGET SEED`` runs one slice again. ``python -m tests.trust page`` writes the page alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tests.trust.page import PAGE, page_of
from tests.trust.results import Result, Slice, read_results, write_results
from tests.trust.slices import ROOT, traces
from tests.trust.targets import BY_ID, TARGETS, Target

HANG_S = 7_200
"""The longest that a slice may take. Those of T20 take half an hour, the others at most a few minutes."""

MARK = "SLICE "


def _revision() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT
    ).stdout.strip()


def in_process(target: Target, seed: int, hang_s: float = HANG_S) -> tuple[Slice, float, float]:
    """Run a slice in a process of its own; return it, and the seconds and the seconds of CPU that it took."""
    command = [sys.executable, "-m", "tests.trust", "slice", target.id, str(seed)]
    begun, cpu_s = time.monotonic(), 0.0
    # A group of its own: a slice that hangs has servers and children.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        out, said = process.communicate(timeout=hang_s)
        lines = [line for line in out.splitlines() if line.startswith(MARK)]
        done = Slice(findings=[f"slice {seed} died with {process.returncode}: {said[-1_500:]}"])
        if lines:
            used, _, made = lines[0][len(MARK) :].partition(" ")
            done, cpu_s = Slice.from_json(made), float(used)
    except subprocess.TimeoutExpired:
        done = Slice(findings=[f"slice {seed} hung for {hang_s} s"])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return done, time.monotonic() - begun, cpu_s


def _used_s() -> float:
    """Return the seconds of CPU of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def due(
    targets: Sequence[Target], begun: Counter[str], results: Mapping[str, Result], until: str | None
) -> list[Target]:
    """Return the targets that have a slice left, and have not yet done what the column ``until`` asks, unless None."""

    def is_due(target: Target) -> bool:
        has_slices = target.rounds is None or begun[target.id] < target.rounds
        units = results.get(target.id, Result()).units
        return has_slices and (until is None or units < getattr(target, until))

    return [target for target in targets if is_due(target)]


def run(minutes: float, only: list[str], until: str | None, jobs: int) -> int:
    """Run slices, ``jobs`` at once, until the time is over; return the number of findings of this run.

    ``until`` is the column of the table that says when a target has done enough; None: never.
    """
    end, revision, findings = time.monotonic() + 60 * minutes, _revision(), 0
    results = read_results()
    begun = Counter({name: result.slices for name, result in results.items()})
    spent: Counter[str] = Counter()
    chosen = [target for target in TARGETS if (target.id in only if only else not target.by_itself)]
    running: dict[Future[tuple[Slice, float, float]], tuple[Target, int]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while True:
            waiting = due(chosen, begun, results, until)
            if waiting and len(running) < jobs and time.monotonic() < end:
                target = min(waiting, key=lambda one: spent[one.id] / one.weight)
                running[pool.submit(in_process, target, begun[target.id])] = target, begun[target.id]
                begun[target.id] += 1
                # Its seconds are known when it ends. Without this, the first slices would be of one target.
                spent[target.id] += 1
                continue
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                target, seed = running.pop(future)
                done, seconds, cpu_s = future.result()
                spent[target.id] += round(seconds)
                results.setdefault(target.id, Result()).add(done, seed, revision, seconds, cpu_s)
                write_results(results)
                findings += len(done.findings)
                print(f"{target.id} {seed}: {done.units:,} {target.unit} in {seconds:.0f} s", flush=True)
                for finding in done.findings:
                    print(f"  FOUND {finding[:1_000]}", flush=True)
    rare = [line for target in chosen if target.id in results for line in target.too_rare(results[target.id])]
    print("\n".join(f"  TOO RARE {line}" for line in rare))
    PAGE.write_text(page_of(results), "utf-8")
    return findings + len(rare)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command, of the process if none is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--minutes", type=float, default=30)
    running.add_argument("--only", default="", help="targets, such as T3,T5")
    running.add_argument("--until", choices=["ci", "release"], default=None, help="leave out what has done so much")
    running.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="slices at once")
    again = commands.add_parser("slice")
    again.add_argument("target", choices=sorted(BY_ID))
    again.add_argument("seed", type=int)
    replayed = commands.add_parser("trace")
    replayed.add_argument("seeds", type=int, nargs="+")
    commands.add_parser("page")
    given = parser.parse_args(arguments)
    if given.command == "run":
        only = [one for one in given.only.split(",") if one]
        if unknown := [one for one in only if one not in BY_ID]:
            parser.error(f"no target {', '.join(unknown)}; targets: {', '.join(BY_ID)}")
        if given.jobs < 1:
            parser.error(f"--jobs {given.jobs}: must be at least 1")
        return 1 if run(given.minutes, only, given.until, given.jobs) else 0
    if given.command == "page":
        PAGE.write_text(page_of(read_results()), "utf-8")
    elif given.command == "trace":
        print(traces(given.seeds))
    else:
        # Kills end processes, not machines; power cuts are a model of their own.
        os.fsync = lambda _descriptor: None  # type: ignore[assignment]
        made = BY_ID[given.target].run(given.seed).to_json()
        print(f"{MARK}{_used_s():.1f} {made}", file=sys.__stdout__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
