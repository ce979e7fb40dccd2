"""Publishes the files of an export: all or none (docs/decisions/0023, docs/format.md 11).

1. Tasks send files under names unique to the attempt (:func:`send`).
2. The driver puts the manifest, which lists the files of the export, create-if-absent.
3. It lists the folder, and deletes the files that other attempts of this export have sent, and temporaries of killed
   processes from before the manifest.
4. It puts ``_SUCCESS``.

An abandoned attempt that still runs sends its file, then looks for the manifest, and deletes the file if the manifest
does not list it. Each side writes before it reads, so at least one sees the other's write: after ``_SUCCESS``, no file
remains that the manifest does not list, and no row is there twice. No object is renamed, because object stores cannot
rename.

Several attempts of one export may run, in several processes. The first manifest wins.

Core types: :class:`ExportedFile`, :class:`ExportIds`. Errors: ExistsError if the target has other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.clock import random_token
from lakebed.errors import Code, DamagedError, Error
from lakebed.model.checks import check_request_key
from lakebed.model.documents import decode_document, encode_document, reading
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One object of an export."""

    name: str
    rows: int
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to send, and its rows."""

    path: Path
    rows: int


@dataclass(frozen=True, slots=True)
class ExportIds:
    """The id of an export, and that of one attempt of it, which begins with it and is in the names of its files."""

    export: str
    attempt: str

    @classmethod
    def of(cls, job_id: str | None) -> ExportIds:
        """Return new ids; the attempts of one ``job_id`` are attempts of one export."""
        if job_id is None:
            new = clock.new_id()
            return cls(new, new)
        check_request_key("job_id", job_id)
        export = hashlib.sha256(job_id.encode()).hexdigest()[:32]
        return cls(export, f"{export}-{clock.random_token()}")


def check_empty(target: Storage, attempts_of: str | None = None) -> None:
    """Raise ExistsError if there is anything at the target but files of attempts of that export."""
    names = (found for found in target.list("") if attempts_of is None or f"-{attempts_of}-" not in found.name)
    found = next(names, None)
    if found is not None:
        finished = target.get(SUCCESS) is not None
        what = "an export that was finished" if finished else "it may be what an export left that did not finish"
        raise Code.EXPORT_TARGET_NOT_EMPTY(
            f"{target.url} is not empty: it contains {found.name} ({what}). Export to another folder, or empty "
            "this one",
            url=target.url,
        )


def send(file: LocalFile, export_id: str, index: int, target: Storage) -> ExportedFile:
    """Send a file as the one with this index, and delete the local file.

    Raises NotFoundError if the export was published meanwhile without it.
    """
    name = f"part-{index:05d}-{export_id}-{random_token()}{file.path.suffix}"
    stored = target.send(name, file.path)
    file.path.unlink(missing_ok=True)
    manifest = target.get(MANIFEST)
    if manifest is not None and name not in names_of(_loaded(manifest)):
        target.delete([name])
        raise Code.EXPORT_INCOMPLETE(
            f"the export was finished without {name}, which another attempt wrote as well", name=name
        )
    return ExportedFile(name, file.rows, stored.size_bytes, stored.digest)


def read_published(target: Storage) -> Mapping[str, Any] | None:
    """Return the manifest of the export at the target; None if none was published."""
    manifest = target.get(MANIFEST)
    return None if manifest is None else _loaded(manifest)


def finished(target: Storage, export: str) -> Mapping[str, Any] | None:
    """Return the manifest if an attempt of the export published it, after completing an interrupted publication."""
    manifest = read_published(target)
    return publish(target, manifest, export) if manifest is not None and manifest.get("export") == export else None


def publish(target: Storage, manifest: Mapping[str, Any], attempts_of: str) -> Mapping[str, Any]:
    """Put the manifest, and delete the other files of the export whose ids begin with ``attempts_of``.

    Returns the manifest in force: this one, or that of another attempt of the same ``export``.
    """
    data = encode_document(manifest)
    outcome = create_until_clear(target, MANIFEST, data)
    counts = manifest
    if outcome is PutOutcome.EXISTS and (found := target.get(MANIFEST)) != data:
        try:
            counts = _loaded(found or b"")
        except DamagedError:
            counts = {}
        if counts.get("export") != manifest["export"]:
            raise _taken(target, MANIFEST)
    _delete_sent(target, attempts_of, names_of(counts))
    with suppress(Error):
        if (at := target.last_modified(MANIFEST)) is not None:
            target.delete_temporaries("", at)
    if create_until_clear(target, SUCCESS, b"") is PutOutcome.EXISTS and target.get(SUCCESS):
        raise _taken(target, SUCCESS)
    return counts


def names_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of an export's files, in the order of their rows."""
    return [file[0] for file in manifest["files"]]


@contextmanager
def withdrawn_on_failure(target: Storage, export_id: str) -> Iterator[None]:
    """If the block fails, delete the files that the export has sent, unless it was published."""
    try:
        yield
    except BaseException:
        with suppress(Error):
            if target.get(MANIFEST) is None:
                _delete_sent(target, export_id, ())
        raise


def _delete_sent(target: Storage, export_id: str, kept: Sequence[str]) -> None:
    ours = [found.name for found in target.list("") if f"-{export_id}" in found.name]
    target.delete(sorted(set(ours) - set(kept)))


def _loaded(manifest: bytes) -> Mapping[str, Any]:
    with reading(f"{MANIFEST} of the export is not one that an export writes"):
        found = decode_document(manifest, f"{MANIFEST} of the export", "export to another folder")
        names_of(found)
        return found


def _taken(target: Storage, name: str) -> Exception:
    return Code.EXPORT_TARGET_NOT_EMPTY(
        f"{target.object_url(name)} exists: another export wrote to the same folder", name=name
    )
