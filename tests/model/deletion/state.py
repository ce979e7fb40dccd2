"""The state of a table for the purposes of deletion, and its transactions: each returns the next state, or None if
refused.

A file is live while `dropped` is 0; otherwise that is the state that dropped its last reference: older states need it.
"""

from typing import NamedTuple

from .rules import Rules


class File(NamedTuple):
    """A file on record: the state that added it, the state that dropped its last reference, and whether it is
    retired.
    """

    name: str
    added: int
    dropped: int = 0
    retired: bool = False


class Job(NamedTuple):
    """An open job: its inputs, and a last-modified time of the store no later than its opening."""

    id: str
    inputs: tuple[str, ...]
    start: int


class State(NamedTuple):
    """A table at one version."""

    version: int = 0
    files: tuple[File, ...] = ()
    keys: frozenset[str] = frozenset()
    jobs: tuple[Job, ...] = ()
    tags: frozenset[int] = frozenset()
    cutoff: int = 0
    earliest_retained_version: int = 0

    def file(self, name: str) -> File | None:
        return next((file for file in self.files if file.name == name), None)

    def live(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files if not file.dropped)

    def next(self, **changes: object) -> "State":
        return self._replace(version=self.version + 1, **changes)  # type: ignore[arg-type]


def needed_by(state: State, version: int) -> tuple[str, ...]:
    """Return the files that the state of this version refers to, from the record of the given later state."""
    return tuple(f.name for f in state.files if f.added <= version and (not f.dropped or f.dropped > version))


def add(state: State, key: str, name: str) -> State | None:
    if state.file(name) is not None or key in state.keys:
        return None
    return state.next(files=(*state.files, File(name, state.version + 1)), keys=state.keys | {key})


def open_job(state: State, job: Job) -> State | None:
    taken = {name for other in state.jobs for name in other.inputs}
    if any(name not in state.live() or name in taken for name in job.inputs):
        return None
    return state.next(jobs=(*state.jobs, job))


def close_job(state: State, job_id: str) -> State | None:
    jobs = tuple(job for job in state.jobs if job.id != job_id)
    return state.next(jobs=jobs) if jobs != state.jobs else None


def replace(state: State, job: Job, output: str, rules: Rules) -> State | None:
    if job.id not in {other.id for other in state.jobs} and rules.outputs == "of open jobs only":
        return None
    if any(name not in state.live() for name in job.inputs):
        return None
    version = state.version + 1
    files = tuple(f._replace(dropped=version) if f.name in job.inputs else f for f in state.files)
    jobs = tuple(other for other in state.jobs if other.id != job.id)
    return state.next(files=(*files, File(output, version)), jobs=jobs)


def raise_cutoff(state: State, cutoff: int, rules: Rules) -> State | None:
    """Raise the cutoff: older files may no longer be added. It stays below the outputs of open jobs."""
    if cutoff <= state.cutoff:
        return None
    if rules.open_jobs == "hold the cutoff" and any(job.start < cutoff for job in state.jobs):
        return None
    return state.next(cutoff=cutoff)


def collectable(state: State) -> tuple[str, ...]:
    """Return the files that no reference and no tag needs, and that are not marked yet."""
    return tuple(
        f.name
        for f in state.files
        if f.dropped and not f.retired and not any(f.added <= tag < f.dropped for tag in state.tags)
    )


def retire_files(state: State, names: tuple[str, ...]) -> State | None:
    """Retire files to delete: no tag and no reader can need them after this."""
    marked = [f for f in state.files if f.name in names and not f.retired]
    if not marked:
        return None
    files = tuple(f._replace(retired=True) if f in marked else f for f in state.files)
    return state.next(
        files=files, earliest_retained_version=max(state.earliest_retained_version, *(f.dropped for f in marked))
    )


def drop(state: State, names: tuple[str, ...]) -> State | None:
    files = tuple(f for f in state.files if f.name not in names)
    return state.next(files=files) if files != state.files else None


def tag(state: State, version: int) -> State | None:
    return state.next(tags=state.tags | {version}) if version not in state.tags else None
