"""What a power cut may leave of a local disk, built from the system calls that the store on local disk makes.

A *recorder* notes the calls below one folder while it lets them happen. A *disk* applies them one by one to a model of
what is durable: the bytes of a file as of its last fsync, and the entries of a folder as of its own. After any call, an
*image* is one of the states that POSIX allows a machine to find after a power cut then: of what was not synced, each
file may have lost all, or be torn, or be zeros, and each change of a folder may be there or not, those of one name in
their order. The promise: each object has the bytes that were acknowledged, or those of the call that was under way, or,
once deleted, none.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import Error
from lakebed.storage import LocalStorage, PutOutcome
from tests.system_calls import set_calls
from tests.trust.results import Slice

IMAGES_MAX = 60
"""Images after one call: all of them if there are no more, else this many at random."""

Event = tuple[str, Any, Any]
CALLS = ("open", "write", "fsync", "link", "replace", "mkdir", "unlink", "rmdir")


# -- the recorder -----------------------------------------------------------------------------------------------


class Recorder:
    """The calls that change files below a folder, in order. A path is noted relative to it."""

    def __init__(self, base: Path) -> None:
        self.base = os.path.realpath(base)
        self.events: list[Event] = []
        self.real = {name: getattr(os, name) for name in CALLS}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note calls during the block."""
        with pytest.MonkeyPatch.context() as patch:
            set_calls(patch, os, **{name: getattr(self, f"_{name}") for name in CALLS})
            yield

    def note(self, what: str, name: Any = None, value: Any = None) -> None:
        """Note what a caller did, between calls."""
        self.events.append((what, name, value))

    def _path(self, path: Any) -> str | None:
        whole = os.path.normpath(os.fspath(path))
        return whole[len(self.base) :].lstrip("/") if whole.startswith(f"{self.base}/") or whole == self.base else None

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        existed = os.path.lexists(path)
        descriptor: int = self.real["open"](path, flags, *rest, **more)
        if (place := self._path(path)) is not None and not existed and flags & os.O_CREAT:
            self.note("create", place, os.fstat(descriptor).st_ino)
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        written: int = self.real["write"](descriptor, data)
        self.note("write", os.fstat(descriptor).st_ino, bytes(data[:written]))
        return written

    def _fsync(self, descriptor: int) -> None:
        found, place = os.fstat(descriptor), self._path(Path(f"/proc/self/fd/{descriptor}").readlink())
        if stat.S_ISDIR(found.st_mode):
            if place is not None:
                self.note("sync directory", place)
        else:
            self.note("sync", found.st_ino, Path(f"/proc/self/fd/{descriptor}").read_bytes())

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        self.real["link"](source, target, **more)
        if (place := self._path(target)) is not None:
            number = Path(target).stat().st_ino
            # Bytes that another library wrote are in no noted call, and not synced.
            self.note("link", place, (number, None if self._path(source) else Path(target).read_bytes()))

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        self.real["replace"](source, target, **more)
        if (place := self._path(target)) is not None:
            self.note("rename", self._path(source), place)

    def _mkdir(self, path: Any, *rest: Any, **more: Any) -> None:
        self.real["mkdir"](path, *rest, **more)
        if self._path(path):
            self.note("mkdir", self._path(path))

    def _unlink(self, path: Any, **more: Any) -> None:
        self.real["unlink"](path, **more)
        if self._path(path):
            self.note("unlink", self._path(path))

    def _rmdir(self, path: Any, **more: Any) -> None:
        self.real["rmdir"](path, **more)
        if self._path(path):
            self.note("unlink", self._path(path))


# -- the disk ---------------------------------------------------------------------------------------------------


@dataclass
class Contents:
    """A file: its bytes, and those that are durable."""

    now: bytes = b""
    synced: bytes = b""

    def states(self, chance: random.Random) -> list[bytes]:
        """Return what may be left of it."""
        if self.now == self.synced:
            return [self.now]
        torn = self.now[: chance.randrange(1, max(2, len(self.now)))]
        return list(dict.fromkeys([self.synced, torn, bytes(len(self.now)), self.now]))


@dataclass
class Folder:
    """A folder: its entries as of its last fsync, and what changed since: names and what they stand for then."""

    durable: dict[str, Any] = field(default_factory=dict)
    pending: list[dict[str, Any]] = field(default_factory=list)

    def now(self) -> dict[str, Any]:
        """Return the entries that processes see."""
        found = dict(self.durable)
        for change in self.pending:
            found |= change
        return {name: node for name, node in found.items() if node is not None}

    def change(self, **names: Any) -> None:
        """Change entries at once; None takes a name away."""
        self.pending.append(names)

    def sync(self) -> None:
        """Make all entries durable."""
        self.durable, self.pending = self.now(), []

    def left(self, kept: Sequence[bool]) -> dict[str, Any]:
        """Return the entries with some changes of before the cut; none of a name whose earlier change is lost."""
        found, lost = dict(self.durable), set()
        for change, keep in zip(self.pending, kept, strict=True):
            if not keep or lost & change.keys():
                lost |= change.keys()
            else:
                found |= change
        return {name: node for name, node in found.items() if node is not None}


Image = dict[str, bytes]


class Disk:
    """What was written and what is durable, after some events."""

    def __init__(self) -> None:
        self.root = Folder()
        self.files: dict[int, Contents] = {}

    def at(self, path: str) -> tuple[Folder, str]:
        """Return the folder in which a path lies, and its name there."""
        folder = self.root
        *above, name = path.split("/")
        for part in above:
            folder = folder.now()[part]
        return folder, name

    def apply(self, event: Event) -> None:
        """Apply a call."""
        match event:
            case "mkdir", path, _:
                folder, name = self.at(path)
                folder.change(**{name: Folder()})
            case "create", path, number:
                self.files[number] = Contents()
                folder, name = self.at(path)
                folder.change(**{name: self.files[number]})
            case "write", number, data:
                if number in self.files:
                    self.files[number].now += data
            case "sync", number, data:
                file = self.files.setdefault(number, Contents())
                file.now = file.synced = data
            case "link", path, (number, data):
                if data is not None:
                    self.files[number] = Contents(data)
                folder, name = self.at(path)
                folder.change(**{name: self.files[number]})
            case "rename", source, target:
                folder, name = self.at(source)
                other, new = self.at(target)
                assert folder is other, "objects are renamed inside their folder"
                folder.change(**{name: None, new: folder.now()[name]})
            case "unlink", path, _:
                folder, name = self.at(path)
                folder.change(**{name: None})
            case "sync directory", path, _:
                (self.at(f"{path}/x")[0] if path else self.root).sync()

    def _folders(self) -> list[Folder]:
        """Return every folder that an image may have."""
        found, todo = [], [self.root]
        while todo:
            folder = todo.pop()
            found.append(folder)
            nodes = [*folder.durable.values(), *(node for change in folder.pending for node in change.values())]
            todo += {id(node): node for node in nodes if isinstance(node, Folder)}.values()
        return list({id(folder): folder for folder in found}.values())

    def images(self, chance: random.Random, images_max: int = IMAGES_MAX) -> Iterator[Image]:
        """Return the states that a power cut may leave now: all, or as many at random."""
        folders = self._folders()
        files = [file for file in self.files.values() if file.now != file.synced]
        choices = [list(itertools.product((True, False), repeat=len(folder.pending))) for folder in folders]
        choices = [some if len(some) <= 64 else chance.sample(some, 64) for some in choices]
        states: list[list[Any]] = [*choices, *(file.states(chance) for file in files)]
        count = 1
        for some in states:
            count *= len(some)
        drawn = (
            itertools.product(*states)
            if count <= images_max
            else ([chance.choice(some) for some in states] for _ in range(images_max))
        )
        for chosen in drawn:
            kept = {id(folder): keep for folder, keep in zip(folders, chosen, strict=False)}
            contents = {id(file): data for file, data in zip(files, chosen[len(folders) :], strict=True)}
            yield dict(_walk(self.root, "", kept, contents))


def _walk(folder: Folder, prefix: str, kept: Any, contents: Any) -> Iterator[tuple[str, bytes]]:
    for name, node in folder.left(kept[id(folder)]).items():
        if isinstance(node, Folder):
            yield from _walk(node, f"{prefix}{name}/", kept, contents)
        else:
            yield f"{prefix}{name}", contents.get(id(node), node.now)


def lay_out(image: Image, folder: Path) -> None:
    """Write an image to a folder."""
    for name, data in image.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


# -- single objects ---------------------------------------------------------------------------------------------

NAMES = ("log/1", "log/2", "data/j/f")


@dataclass(frozen=True, slots=True)
class Step:
    """A call to the store: what, and which object."""

    call: str
    name: str


STEPS = (
    Step("create", "log/1"),
    Step("create", "log/2"),
    Step("replace", "log/1"),
    Step("replace_if", "log/1"),
    Step("send", "data/j/f"),
    Step("delete", "log/1"),
    Step("delete", "data/j/f"),
)


def _take(store: LocalStorage, recorder: Recorder, step: Step, number: int) -> None:
    """Make a call, and note what it may leave while it is under way, and what it leaves once acknowledged."""
    name, data = step.name, f"{step.call} {number} ".encode() * 20
    before = store.get(name)
    recorder.note("begin", name, None if step.call == "delete" else data)
    left: bytes | None
    if step.call == "create":
        left = data if store.create(name, data) is PutOutcome.CREATED else before
    elif step.call == "replace":
        store.replace(name, data)
        left = data
    elif step.call == "replace_if":
        found = store.get_versioned(name)
        done = found is not None and store.replace_if(name, found.version, data) is PutOutcome.CREATED
        left = data if done else before
    elif step.call == "send":
        left = _sent(store, name, data, before)
    else:
        store.delete([name])
        left = None
    if step.call == "delete":
        recorder.note("delete", name)
    elif left is not None:
        recorder.note("acknowledged", name, left)


def _sent(store: LocalStorage, name: str, data: bytes, before: bytes | None) -> bytes | None:
    source = store.folder.parent / "sent"
    source.write_bytes(data)
    try:
        store.send(name, source)
    except Error:
        source.unlink()
        return before
    return data


def check_steps(steps: Sequence[Step], chance: random.Random, done: Slice, *, laid_out: float = 0.0) -> None:
    """Check every image after every call of some steps; a share of them as files, read by the store itself."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        recorder = Recorder(root)
        with recorder.recording():
            store = LocalStorage(root)
            for number, step in enumerate(steps):
                _take(store, recorder, step, number)
        disk, allowed = Disk(), {name: {None} for name in NAMES}
        label = ", ".join(f"{step.call} {step.name}" for step in steps)
        for place, event in enumerate(recorder.events):
            _allow(allowed, event)
            disk.apply(event)
            for image in disk.images(chance):
                done.units += 1
                done.events[f"after: {event[0]}"] += 1
                seen = _read_laid_out(image, Path(folder), done) if chance.random() < laid_out else image
                for name in NAMES:
                    if seen.get(name) not in allowed[name]:
                        done.findings.append(f"{label}: after call {place}, {event[0]}: {name} is {seen.get(name)!r}")
                        return


def _allow(allowed: dict[str, set[Any]], event: Event) -> None:
    match event:
        case "begin", name, value:
            allowed[name] = allowed[name] | {value}
        case "acknowledged", name, value:
            allowed[name] = {value}
        # What was deleted may be there again: it is needed no more, and is deleted again.
        case "delete", name, _:
            allowed[name] = allowed[name] | {None}


def _read_laid_out(image: Image, folder: Path, done: Slice) -> dict[str, bytes | None]:
    place = folder / f"image-{done.units}"
    lay_out(image, place)
    done.events["images read by the store"] += 1
    store = LocalStorage(place, durability="none")
    return {listed.name: store.get(listed.name) for listed in store.list("")}


ALL_STEPS = [steps for length in (1, 2, 3) for steps in itertools.product(STEPS, repeat=length)]
SEQUENCES = 20
"""Sequences of a slice: of up to three calls, each in turn, then random ones of four to eight."""


def power_cuts(seed: int) -> Slice:
    """T9: every image after every call of some sequences of calls; then of tables."""
    done, chance = Slice(), random.Random(seed)
    for number in range(seed * SEQUENCES, (seed + 1) * SEQUENCES):
        every = number < len(ALL_STEPS)
        steps = ALL_STEPS[number] if every else chance.choices(STEPS, k=chance.randint(4, 8))
        check_steps(steps, chance, done, laid_out=0.02)
        done.events["sequences of up to three calls" if every else "longer sequences"] += 1
    lake_cuts(chance, done)
    return done


# -- tables -----------------------------------------------------------------------------------------------------

WRITES = 4
LAKE_IMAGES = 25


def lake_cuts(chance: random.Random, done: Slice) -> None:
    """Write to a table, and open it from some images: acknowledged rows are there once, others once or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        made = lakebed.create(root)
        made.create_table("t", Schema({"k": "int64"}, values={"v": "int64"}))
        made.close()
        disk, recorder = _durable(root), Recorder(root)
        with recorder.recording():
            lake = lakebed.open(root)
            table = lake.table("t")
            for number in range(WRITES):
                recorder.note("begin", number)
                table.write(pa.table({"k": [number, 100 + number], "v": [number, number]}), commit_id=f"c{number}")
                recorder.note("acknowledged", number)
            table.tag("last")
            lake.close()
        ends = sorted(chance.sample(range(len(recorder.events)), min(LAKE_IMAGES, len(recorder.events))))
        begun: set[int] = set()
        acknowledged: set[int] = set()
        for place, event in enumerate(recorder.events):
            if event[0] == "begin":
                begun.add(event[1])
            elif event[0] == "acknowledged":
                acknowledged.add(event[1])
            else:
                disk.apply(event)
            if place in ends:
                image = chance.choice(list(disk.images(chance)))
                done.units += 1
                done.events["images opened as a table"] += 1
                try:
                    _check_lake(image, Path(folder) / f"image-{place}", begun, acknowledged)
                except (AssertionError, Error) as error:
                    done.findings.append(f"table after call {place}, {event[0]} {event[1]}: {error!r}")
                    return


def _durable(root: Path) -> Disk:
    """Return a disk on which all that there is below the folder is durable."""
    disk = Disk()
    for path in sorted(root.rglob("*")):
        folder, name = disk.at(path.relative_to(root).as_posix())
        folder.durable[name] = Folder() if path.is_dir() else Contents(path.read_bytes(), path.read_bytes())
    return disk


def _check_lake(image: Image, place: Path, begun: set[int], acknowledged: set[int]) -> None:
    lay_out(image, place)
    table = lakebed.open(place).table("t")
    found = Counter(table.to_arrow()["v"].to_pylist())
    assert set(found.values()) <= {2}, f"rows are {found}"
    assert acknowledged <= set(found), f"acknowledged {acknowledged}, found {set(found)}"
    assert set(found) <= begun, f"begun {begun}, found {set(found)}"
    assert table.verify(files=True).sound
    table.write(pa.table({"k": [1_000], "v": [1_000]}))
    assert table.get(1_000).num_rows == 1
