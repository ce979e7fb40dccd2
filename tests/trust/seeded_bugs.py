"""Bugs that are planted in the real code, one at a time, and the harness that has to find each of them.

The table is :data:`BUGS`. A bug is a variant (:mod:`tests.variants`): values that stand in the place of functions while
the harness runs. Each harness is called with 0, 1, 2 … until it finds the bug; the page says how much it ran. One that
is not found within its limit means that the harness proves nothing of the kind, and fails the run. The known-bad forms
of the models are searched in the same way, and counted apart: they are no code of the product.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from lakebed.errors import Error
from lakebed.files.parquet.open_files import OpenFiles
from lakebed.log import entry
from lakebed.model import documents
from lakebed.storage import LocalStorage, local
from lakebed.storage.blocks import Blocks
from lakebed.storage.contract import PutOutcome
from tests.adversarial import test_hidden_rows, test_merging_machine, test_view_retractions
from tests.adversarial.merging_machine import MergingMachine
from tests.model.engine import run_seeds, search
from tests.model.known_bad import SEARCHED, Model, WrongForm
from tests.pure import test_view_retraction
from tests.tables.log import test_simulation
from tests.tables.log.simulation import run_seed
from tests.trust import damaged_entries, damaged_files, power_cuts
from tests.trust.results import Slice
from tests.trust.slices import MODELS
from tests.variants import Planted, Variant, instead, planted

Try = Callable[[int], tuple[int, bool]]
"""Runs a part of a harness by its number; returns how many units it ran, and whether it found something."""


@dataclass(frozen=True)
class SeededBug:
    """A bug, the harness that looks for it, how the harness runs, and within how many calls it must find the bug."""

    name: str
    harness: str
    unit: str
    plant: Variant
    attempt: Try
    calls_max: int

    def units_to_find(self) -> int | None:
        """Return how many units it took; None: not found."""
        units = 0
        with planted(self.plant):
            for number in range(self.calls_max):
                ran, found = self.attempt(number)
                units += ran
                if found:
                    return units
        return None


# -- harnesses --------------------------------------------------------------------------------------------------


def _simulated(number: int) -> tuple[int, bool]:
    with pytest.MonkeyPatch.context() as patch:
        try:
            run_seed(number, patch)
        except (AssertionError, Error) as error:
            return 1, test_simulation.is_a_finding(error)
    return 1, False


def _cut(number: int) -> tuple[int, bool]:
    done = Slice()
    power_cuts.check_steps(power_cuts.ALL_STEPS[number], random.Random(number), done)
    return done.units, bool(done.findings)


def _files(number: int) -> tuple[int, bool]:
    done = damaged_files.damaged(number, 20)
    return done.units, bool(done.findings)


def _footers(number: int) -> tuple[int, bool]:
    done = damaged_files.damaged(number, 100, "footer")
    return done.units, bool(done.findings)


def _entries(number: int) -> tuple[int, bool]:
    done = damaged_entries.damaged(number, 1)
    return done.units, bool(done.findings)


def _machine_of(bug: test_merging_machine.Bug) -> Try:
    def attempt(_number: int) -> tuple[int, bool]:
        class Machine(MergingMachine):
            modes = (bug.mode,)
            interfaces = bug.interfaces
            focused = bug.focused

        try:
            test_merging_machine.run(
                Machine, 400, phases=[Phase.generate], derandomize=True, database=None, deadline=None
            )
        except AssertionError:
            return Machine.steps, True
        return Machine.steps, False

    return attempt


def _hidden_rows_of(mode: str) -> Try:
    def attempt(_number: int) -> tuple[int, bool]:
        machine = test_hidden_rows.machine_of(mode)
        try:
            test_merging_machine.run(
                machine, 60, phases=[Phase.generate], derandomize=True, database=None, deadline=None
            )
        except AssertionError:
            return machine.steps, True
        return machine.steps, False

    return attempt


def _groups_of(bug: Any) -> Try:
    return lambda number: (1, bool(test_view_retraction.wrong_groups(number, bug)))


def _views_of(bug: Any) -> Try:
    def attempt(number: int) -> tuple[int, bool]:
        try:
            test_view_retractions.Machine(number, "latest", bug).run(40)
        except AssertionError:
            return 1, True
        return 1, False

    return attempt


# -- bugs of the store on local disk ----------------------------------------------------------------------------


def _written_in_place() -> Iterator[Planted]:
    """An object is written under its own name."""

    def create(_self: LocalStorage, target: str, data: bytes) -> PutOutcome:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)
        return PutOutcome.CREATED

    yield Planted(LocalStorage, "_create", create)


def _parents_not_synced() -> Iterator[Planted]:
    """New folders are not synced into their parents."""
    yield Planted(
        LocalStorage, "_make_parents", lambda _, directory: Path(directory).mkdir(parents=True, exist_ok=True)
    )


def _replaced_without_a_sync() -> Iterator[Planted]:
    """A replaced object is acknowledged before its folder is synced."""
    yield Planted(LocalStorage, "replace", lambda self, name, data: self._replace(self._checked_path(name), data))


def _synced_before_the_link() -> Iterator[Planted]:
    """The folder is synced before the object has its name."""
    write = LocalStorage._write_temporary

    def early(self: LocalStorage, target: str, data: bytes) -> str:
        temporary = write(self, target, data)
        sync(self, str(Path(target).parent))
        return temporary

    sync = LocalStorage._sync_directory
    yield Planted(LocalStorage, "_write_temporary", early)
    yield Planted(LocalStorage, "_sync_directory", lambda *_: None)


STORE = [
    ("file is not synced", instead(LocalStorage, "_sync", lambda *_: None)),
    ("folder is not synced", instead(LocalStorage, "_sync_directory", lambda *_: None)),
    ("object is written under its own name", _written_in_place),
    ("new folders are not synced into their parents", _parents_not_synced),
    ("replaced object is acknowledged too soon", _replaced_without_a_sync),
    ("folder is synced before the object has its name", _synced_before_the_link),
    ("sync of folders is a sync of nothing", instead(local, "sync_directory", lambda _: None)),
]
DAMAGE: list[tuple[str, Variant, Try]] = [
    ("footers are not verified", instead(OpenFiles, "_check_footer", lambda *_: None), _footers),
    ("blocks are not verified", instead(Blocks, "check", lambda *_: None), _files),
]
LOG = [
    ("digests of entries are not compared", instead(entry, "is_whole_document", lambda *_: True)),
    ("digests of documents are not compared", instead(documents, "is_whole_document", lambda *_: True)),
]


def _bugs() -> Iterator[SeededBug]:
    for form in test_simulation.WRONG_FORMS:
        yield SeededBug(_words(form), "simulation", "schedules", form, _simulated, 120)
    for name, variant in STORE:
        yield SeededBug(name, "power cuts", "images", variant, _cut, len(power_cuts.ALL_STEPS))
    for name, variant, attempt in DAMAGE:
        yield SeededBug(name, "damaged files", "damages", variant, attempt, 20)
    for name, variant in LOG:
        yield SeededBug(name, "damaged entries", "damages", variant, _entries, 20)
    for bug in test_merging_machine.BUGS:
        yield SeededBug(bug.name, "state machine", "steps", bug.plant, _machine_of(bug), 1)
    for variant, mode in (
        (test_hidden_rows._ties, "latest"),
        (test_hidden_rows._one_off, "keep all"),
        (test_hidden_rows._deletes_shown, "latest"),
    ):
        name = f"hidden rows: {_words(variant)}"
        yield SeededBug(name, "state machine", "steps", variant, _hidden_rows_of(mode), 1)
    for settle in (
        test_view_retraction.lost,
        test_view_retraction.twice,
        test_view_retraction.not_vanishing,
        test_view_retraction.sums_of_nothing_are_0,
        test_view_retraction.a_constant,
    ):
        name = f"groups of a view: {_words(settle)}"
        yield SeededBug(name, "random groups", "histories", lambda: (), _groups_of(settle), 150)
    for reading in ("Lost", "Twice", "Kept", "NeverAgain", "Added"):
        found = getattr(test_view_retractions, reading)
        yield SeededBug(f"rows of a view: {reading}", "random views", "histories", lambda: (), _views_of(found), 30)


def _words(function: Any) -> str:
    return str(function.__name__).strip("_").replace("_", " ")


BUGS = tuple(_bugs())
BUGS_EACH = 8
"""Bugs of a slice."""

FORMS = [(model, form) for model in MODELS for form in model.wrong_forms]


def seeded_bugs(seed: int) -> Slice:
    """T17: look for some of the seeded bugs of the real code; later slices look for forms of the models."""
    done = Slice()
    for number in range(seed * BUGS_EACH, min((seed + 1) * BUGS_EACH, len(BUGS) + len(FORMS))):
        if number < len(BUGS):
            bug = BUGS[number]
            label, units, unit = f"{bug.harness}: {bug.name}", bug.units_to_find(), bug.unit
        else:
            label, units, unit = _search_for(*FORMS[number - len(BUGS)])
        done.units += 1
        done.events["found" if units is not None else "not found"] += 1
        done.facts[label] = f"{units:,} {unit}" if units is not None else "not found"
        if units is None:
            done.findings.append(f"{label}: not found")
    return done


def _search_for(model: Model, form: WrongForm) -> tuple[str, int | None, str]:
    """Search for a form of a model; return its name, how much it took, and of what."""
    build = model.world_of(form.cast, form.rules)
    label = f"model {model.name}: {form.name}"
    if form.one_in is None:
        found = search(build, SEARCHED)
        return label, found.states if found.violation else None, "states"
    counts = run_seeds(range(max(1_000, 20 * form.one_in)), build)
    return label, counts.schedules if counts.bad else None, "schedules"
