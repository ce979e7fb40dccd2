"""Slices of the harnesses that the tests run: models, the simulation, failing stores, damaged files, state machines.

Each function runs a part that its seed alone determines, and returns counts (:class:`~tests.trust.results.Slice`).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from lakebed.testing.faults import Fault
from tests.model.engine import run_seeds, search
from tests.model.known_bad import STATES_MAX, WITHIN_REACH, Model
from tests.model.test_models import DELETION, LOST_ENTRIES, MERGING, PROTOCOL, TRIMMING
from tests.trust.results import Slice

ROOT = Path(__file__).parents[2]

COMMITS = (PROTOCOL, MERGING)
DELETIONS = (TRIMMING, DELETION, LOST_ENTRIES)
MODELS = COMMITS + DELETIONS
MODEL_SCHEDULES = 20_000
SIMULATED = 40


def _models(models: Sequence[Model], seed: int) -> Slice:
    """Run random schedules of one of the models, in turn."""
    model, turn = models[seed % len(models)], seed // len(models)
    # Seeds below a million are those of the tests and of the soak.
    first = 1_000_000 + turn * MODEL_SCHEDULES
    found = run_seeds(range(first, first + MODEL_SCHEDULES), model.world_of(None, model.rules()))
    done = Slice(found.schedules)
    done.events.update({f"{model.name}: {name}": count for name, count in found.counts.items()})
    done.events[f"{model.name}: schedules"] += found.schedules
    if found.first_bad is not None:
        done.findings.append(f"model {model.name}, seed {found.first_bad[0]}: {found.first_bad[1]}")
    return done


def commit_models(seed: int) -> Slice:
    """T1: the models of commits and of merges."""
    return _models(COMMITS, seed)


def deletion_models(seed: int) -> Slice:
    """T14: the models of truncation, of garbage collection and of lost entries."""
    return _models(DELETIONS, seed)


def model_quota(models: Sequence[Model]) -> dict[str, tuple[str, float]]:
    """Return the least number of each event in a schedule of its model: event -> (schedules of the model, share)."""
    return {
        f"{model.name}: {name}": (f"{model.name}: schedules", per_thousand / 1_000)
        for model in models
        for name, per_thousand in model.quota.items()
    }


CASTS = [
    (model, name, cast, whole)
    for model in MODELS
    for casts, whole in ((model.tiny, True), (model.small, True), (model.large, False))
    for name, cast in casts.items()
]


def every_schedule(seed: int) -> Slice:
    """T2: every schedule of one cast, each state once; of the largest casts those within reach."""
    model, name, cast, whole = CASTS[seed % len(CASTS)]
    build: Any = model.world_of(cast, model.rules())
    found = search(build, STATES_MAX if whole else WITHIN_REACH)
    done = Slice(found.states, Counter({"casts": 1, "casts searched whole": int(found.complete)}))
    done.facts[f"{model.name}: {name}"] = {"states": found.states, "runs": found.runs, "whole": found.complete}
    if found.violation is not None:
        done.findings.append(f"model {model.name}, cast {name}: {found.violation}")
    return done


# -- the simulation of the real log -----------------------------------------------------------------------------


def simulation(seed: int) -> Slice:
    """T3 and T19: the real code in random schedules of a store that fails; clocks differ by up to twenty years."""
    from tests.tables.log.simulation import run_seed

    done = Slice()
    first = 100_000 + seed * SIMULATED
    with pytest.MonkeyPatch.context() as patch:
        for one in range(first, first + SIMULATED):
            done.units += 1
            try:
                world = run_seed(one, patch)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                done.findings.append(f"simulation, seed {one}: {type(error).__name__}: {error}")
                continue
            done.events += world.counts
            done.events.update({f"fault: {fault.value}": count for fault, count in world.faulty.fired.items()})
            done.events["fault: repeated request"] += world.storage.repeated
            done.events["fault: sleeper"] += world.storage.slept
            done.events["steps"] += world.schedule.steps
    return done


SIMULATION_FAULTS = [
    f"fault: {fault.value}" for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE, Fault.CONFLICT)
]


FULL_DISK = f"fault: {Fault.FULL.value}"
"""Rarer than the others: in half of the schedules, at calls of the log alone."""

REPLAYED = 4


def traces(seeds: Sequence[int]) -> str:
    """Return a digest of what happened in the schedules of these seeds, step by step."""
    from tests.tables.log.simulation import run_seed

    digest = hashlib.blake2b()
    with pytest.MonkeyPatch.context() as patch:
        for seed in seeds:
            digest.update("\n".join(run_seed(seed, patch).schedule.trace).encode())
    return digest.hexdigest()


def determinism(seed: int, count: int = REPLAYED) -> Slice:
    """T4: the same seeds in another process with another hash seed have the same trace."""
    seeds = list(range(200_000 + seed * count, 200_000 + (seed + 1) * count))
    command = [sys.executable, "-m", "tests.trust", "trace", *map(str, seeds)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed + 1)}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    done = Slice(len(seeds), Counter({"processes": 2}))
    if ran.stdout.strip() != traces(seeds):
        done.findings.append(f"seeds {seeds} have different traces in processes of different hash seeds")
    return done


# -- stores that fail, processes that die -----------------------------------------------------------------------

CALL_FAULTS = (None, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE, Fault.CONFLICT, Fault.FULL)


def every_call(seed: int) -> Slice:
    """T8: one fault at every call to the store of one operation, in turn."""
    from tests.adversarial import test_every_call as calls

    names = list(calls.OPERATIONS)
    name, fault = names[seed % len(names)], CALL_FAULTS[seed // len(names) % len(CALL_FAULTS)]
    label = "killed" if fault is None else fault.value
    done = Slice()
    with pytest.MonkeyPatch.context() as patch:
        calls.set_alone(patch)
        call, reached = 1, True
        while reached:
            try:
                reached = calls.fails_at(name, fault, call)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
                done.findings.append(f"{name}, {label} at call {call}: {type(error).__name__}: {error}")
            done.units += reached
            done.events[f"fault: {label}"] += reached
            call += 1
    done.facts[f"{name}, {label}"] = done.units
    return done


KILLS, PAUSES = 10, 2


def random_kills(seed: int) -> Slice:
    """T6 and T7: writers and a maintainer are killed, or stopped past every delay, at random."""
    from tests.adversarial.torture import Config, tortured

    done = Slice(KILLS, Counter({"kill -9": KILLS, "SIGSTOP past every delay": PAUSES}))
    with tempfile.TemporaryDirectory() as folder:
        config = Config(f"{folder}/lake", folder)
        try:
            done.events["commits"] += tortured(config, kills=KILLS, seed=seed, pauses=PAUSES)
        except AssertionError as error:
            done.findings.append(f"kills, seed {seed}: {error}")
    return done


# -- damage -----------------------------------------------------------------------------------------------------

DAMAGED = 200


def damaged_files(seed: int) -> Slice:
    """T10: damaged data files and summaries, each read through some interfaces in turn."""
    from tests.trust.damaged_files import damaged

    return damaged(seed, DAMAGED)


FUZZED = 500


def fuzzed(seed: int) -> Slice:
    """T12: changed files of users, and footers."""
    from tests.trust.fuzz import fuzz

    return fuzz(seed, FUZZED)


def damaged_entries(seed: int) -> Slice:
    """T11: damaged entries, checkpoints and segments through the readers of the log."""
    from tests.trust.damaged_entries import damaged

    return damaged(seed)


def power_cuts(seed: int) -> Slice:
    """T9: images of a disk after a power cut."""
    from tests.trust.power_cuts import power_cuts

    return power_cuts(seed)


def crash_points(seed: int) -> Slice:
    """T5: kills at named points."""
    from tests.trust.crash_points import crash_points

    return crash_points(seed)


def histories(seed: int) -> Slice:
    """T15: one history of eight clients."""
    from tests.trust.histories import history

    return history(seed)


SEEDED_ROUNDS = 19
"""Slices of seeded bugs and of forms of the models; a test compares it with the table, which is slow to import."""


def seeded_bugs(seed: int) -> Slice:
    """T17: some of the seeded bugs, or some forms of models."""
    from tests.trust.seeded_bugs import seeded_bugs

    return seeded_bugs(seed)


# -- the public API ---------------------------------------------------------------------------------------------

MACHINES, MACHINE_STEPS = 4, 75


def state_machine(seed: int) -> Slice:
    """T16: random steps over the public API beside a dictionary, in a table of one merge mode."""
    from hypothesis.stateful import run_state_machine_as_test

    from tests.adversarial.merging_machine import MODES, MergingMachine

    mode = list(MODES)[seed % len(MODES)]

    class Machine(MergingMachine):
        modes = (mode,)

    wanted = hypothesis.settings(
        max_examples=MACHINES, stateful_step_count=MACHINE_STEPS, database=None, deadline=None,
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    done = Slice(MACHINES)
    try:
        run_state_machine_as_test(hypothesis.seed(seed)(Machine), settings=wanted)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        done.findings.append(f"machine of {mode}, seed {seed}: {type(error).__name__}: {error}")
    done.events[f"mode: {mode}"] += MACHINES
    done.events["steps"] += Machine.steps
    return done


def random_tables(seed: int) -> Slice:
    """T16: random tables through every interface that reads, beside a plain model."""
    from tests.adversarial import test_random_tables as tables
    from tests.adversarial.random_tables.readers import ways

    done = Slice(1)
    with tempfile.TemporaryDirectory() as folder, ways(Path(folder)) as opened:
        before = tables.READS.total()
        error = tables.failure(opened, 5_000 + seed, tables.SOAKED_STEPS)
        done.events["reads"] += tables.READS.total() - before
    if error is not None:
        done.findings.append(f"random table, seed {5_000 + seed}: {type(error).__name__}: {error}")
    return done


# -- tests, counted ---------------------------------------------------------------------------------------------


def counted_tests(*words: str) -> Any:
    """Return a slice that runs the tests of some files, and counts those that passed."""

    def run(_seed: int) -> Slice:
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.trust.counting"]
            environment = {**os.environ, "TRUST_REPORT": report.name}
            subprocess.run([*command, *words], check=False, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
            found = json.loads(Path(report.name).read_text() or "{}")
        done = Slice(found.get("passed", 0), Counter({"skipped": found.get("skipped", 0)}))
        done.findings += [f"test failed: {name}" for name in found.get("failed", ["none ran"])]
        return done

    return run
