"""Verification: a table's log is replayed and compared with its checkpoints and its objects.

Data files are checked at three levels: not at all; existence and size, from a listing; or content, by reading them
(:mod:`lakebed.inspect.scrub`).

Differences are reported as findings with a remedy, not raised, so that one damaged entry does not hide the next.
Nothing is repaired here. Applying is a pure function, so a checkpoint that equals the replayed state at its version
leads to the same state at the head; it is compared there, and invariants are checked once, at the end. The replay
begins with entry 1, or for a truncated log with the oldest retained checkpoint; checkpoints of earlier tags must be
complete by themselves.

Other processes may commit meanwhile: checkpoints are read before the entries are listed, and entries before they are
replayed, and a missing file counts only if it is still referenced afterwards. If the log was truncated meanwhile,
everything is read again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import DamagedError, StorageError, UnsupportedFormatError
from lakebed.inspect.used_files import Scrubbed, Used, placed, sampled, used_files
from lakebed.log import entry as entries
from lakebed.log.checkpoint import Head
from lakebed.log.last_modified_times import gone
from lakebed.log.replay import advance
from lakebed.model.checks import check_flag
from lakebed.model.files import data_folder, data_name, object_names, summary_name
from lakebed.model.findings import RESTORE, Deep, Finding, damage, note
from lakebed.state.machine import TABLE
from lakebed.state.table_state import TableState, check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebed.log.committer import Log
    from lakebed.model.files import DataFile
    from lakebed.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage

_MENDS_ITSELF = "nothing is lost: the log is read instead, and a later commit writes another"
_AMISS = (DamagedError, UnsupportedFormatError, StorageError)
_EMPTY: Head[TableState] = Head(0, "", TABLE.empty)


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was looked at, and what was found.

    ``version`` is the last entry that could be applied, ``entries`` how many the store lists, ``log_start`` the version
    up to which they may be gone, ``checkpoint`` the newest checkpoint's version, ``kept`` those of the kept ones,
    ``objects`` how many were looked for (None: none, for it was not asked), ``checked`` which of the files were read
    (None: none).
    """

    table: str
    version: int
    entries: int
    log_start: int
    checkpoint: int | None
    retained: tuple[int, ...]
    objects: int | None
    findings: tuple[Finding, ...]
    checked: Scrubbed | None = None

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not any(finding.damage for finding in self.findings)


def verify(
    log: Log[TableState, Proposal, Transaction],
    table_id: str,
    name: str,
    storage: Storage | None,
    deep: Deep | None = None,
) -> VerificationReport:
    """Verify a table's log; where the ``storage`` of its data is given, its objects; and if ``deep``, their contents.

    Waits for a checkpoint that this process is writing, which would be reported as missing. Raises StorageError if the
    store is out of reach: then nothing is known.
    """
    log.wait_for_checkpoint()
    found = _verified(log, table_id)
    findings, objects, checked = found.findings, None, None
    if storage is not None:
        # Where the log is broken, a claim may know of files that came after.
        known = max((found.head, *found.claims.values()), key=lambda one: one.version).state
        used = used_files(known)
        amiss, checked = _files(storage, known, used, deep)
        latest = known if any(finding.damage for finding in findings) or not amiss else log.follow()
        # A file that lost its references while all this was looked at may go.
        there = ((one, f) for one, f in amiss if one.file.id in latest.files and latest.files[one.file.id].references)
        findings = [*findings, *(placed(finding, one, known, storage) for one, finding in there)]
        objects = sum(len(object_names(table_id, one.file)) for one in used)
    return VerificationReport(
        name,
        found.head.version,
        found.entries,
        found.log_start,
        found.checkpoint,
        found.retained,
        objects,
        tuple(findings),
        checked,
    )


def asked(storage: Storage, files: bool, deep: bool | Deep) -> tuple[Storage | None, Deep | None]:  # noqa: FBT001 - as they were given
    """The last two arguments of :func:`verify` for those of ``Table.verify``. Raises UsageError."""
    check_flag("files", files)
    if not isinstance(deep, Deep):
        check_flag("deep", deep)
        return storage if files or deep else None, Deep() if deep else None
    return storage, deep


@dataclass(frozen=True, slots=True)
class _Verified:
    """What a log came to. ``claims`` are heads that others tell of, by who does."""

    head: Head[TableState]
    claims: Mapping[str, Head[TableState]]
    entries: int
    log_start: int
    checkpoint: int | None
    retained: tuple[int, ...]
    findings: list[Finding]


def _verified(log: Log[TableState, Proposal, Transaction], table_id: str) -> _Verified:
    while True:
        log_start = log.log_start()
        claims = {"this process's state": log.head} if log.head.version else {}
        checkpoint, findings = _newest(log)
        if checkpoint is not None:
            claims["the checkpoint"] = checkpoint
        retained, amiss_retained = _kept(log)
        claims |= {f"the checkpoint kept at {version}": claim for version, claim in retained.items()}
        listed = sorted(log.backend.versions())
        base = next((claim for claim in retained.values() if claim.version > log_start), None) if log_start else _EMPTY
        head, broken = _replay(log, table_id, base or _EMPTY, claims)
        if log.log_start() == log_start:
            break
    findings += amiss_retained
    if base is None:
        findings.append(
            damage("truncated", f"the log is truncated up to {log_start}, and no checkpoint from there on is whole")
        )
    findings += [
        note("foreign", f"{stranger} lies among the entries and is none", "it is not read; move it away")
        for stranger in log.backend.foreign()
    ]
    above = [version for version in listed if version > log_start]
    findings += [*numbering(above, max(head.version, log_start)), *broken]
    unapplied = [version for version in above if version > head.version]
    findings += [finding for finding in _chain(log, table_id, unapplied) if finding not in broken]
    if not unapplied:
        findings += [
            damage("cut_off", f"the log ends at {head.version}, {what} is of {claim.version}: newer entries are gone")
            for what, claim in claims.items()
            if claim.version > head.version
        ]
    findings += [
        damage("tag", f"tag {tag} stands at version {version}, whose checkpoint is gone, and so are the entries")
        for tag, version in sorted(head.state.tags.items())
        if version <= log_start and version not in retained
    ]
    latest = checkpoint.version if checkpoint is not None else None
    return _Verified(head, claims, len(listed), log_start, latest, tuple(retained), findings)


def _files(
    storage: Storage, state: TableState, used: Sequence[Used], deep: Deep | None
) -> tuple[list[tuple[Used, Finding]], Scrubbed | None]:
    """What is amiss with the objects of the files, and which of them were read for that."""
    by_id = {one.file.id: one for one in used}
    files = [one.file for one in used]
    sizes = _sizes(storage, state.table, files)
    amiss = [(by_id[file], finding) for file, finding in objects_amiss(state.table, files, sizes)]
    if deep is None:
        return amiss, None
    from lakebed.inspect.scrub import scrub

    sample = deep.share < 1
    seed = (clock.chance(None).getrandbits(32) if deep.seed is None else deep.seed) if sample else None
    chosen = list(used) if seed is None else sampled(used, deep.share, seed)
    # Of one that is not there, or cut, enough is known.
    gone = {one.file.id for one, finding in amiss if finding.damage}
    amiss += scrub(storage, state, [one for one in chosen if one.file.id not in gone], deep)
    size_bytes, of_bytes = (sum(one.file.size_bytes for one in some) for some in (chosen, used))
    return amiss, Scrubbed(len(chosen), len(used), size_bytes, of_bytes, sum(one.file.rows for one in chosen), seed)


def _newest(log: Log[TableState, Proposal, Transaction]) -> tuple[Head[TableState] | None, list[Finding]]:
    try:
        found = log.checkpoints.read_whole()
    except (UnsupportedFormatError, StorageError) as error:
        return None, [_unbelieved(error)]
    except DamagedError as error:
        return None, [damage("checkpoint_damaged", error.message, _MENDS_ITSELF)]
    return found, [] if found is not None else [note("checkpoint_missing", "there is no checkpoint", _MENDS_ITSELF)]


def _kept(log: Log[TableState, Proposal, Transaction]) -> tuple[dict[int, Head[TableState]], list[Finding]]:
    """The retained checkpoints that are whole, oldest first, and what is amiss with the others."""
    whole, findings = {}, []
    for version in log.retained.versions():
        try:
            whole[version] = log.retained.read(version)
        except _AMISS as error:
            findings.append(_unbelieved(error))
    return whole, findings


def _replay(
    log: Log[TableState, Proposal, Transaction],
    table_id: str,
    base: Head[TableState],
    claims: Mapping[str, Head[TableState]],
) -> tuple[Head[TableState], list[Finding]]:
    """The head of all that can be applied from ``base`` on; ``claims`` are heads that it should pass."""
    head = base
    findings: list[Finding] = []
    while True:
        try:
            data = log.backend.get(head.version + 1)
            if data is None:
                break
            head, _ = advance(head, data, table_id, TABLE, log.read_sidecars)
        except _AMISS as error:
            findings.append(_unbelieved(error))
            break
        findings += [finding for what, claim in claims.items() for finding in compared(what, claim, head)]
    try:
        check_invariants(head.state)
    except DamagedError as error:
        findings.append(damage("invariant", error.message, "report this: no sequence of entries may lead here"))
    return head, findings


def _chain(log: Log[TableState, Proposal, Transaction], table_id: str, versions: Iterable[int]) -> Iterator[Finding]:
    """What is wrong with entries that could not be applied: each by itself, and with the one before it."""
    last, digest = 0, None
    for version in dict.fromkeys(versions):
        previous, digest = digest if last == version - 1 else None, None
        try:
            data = log.backend.get(version)
            if data is None:
                raise gone(table_id, version)
            entry = entries.decode(data, table_id, version, previous)
            digest = entry.digest
            log.read_sidecars(entry)
        except _AMISS as error:
            yield _unbelieved(error)
        last = version


def _sizes(storage: Storage, table_id: str, files: Iterable[DataFile]) -> dict[str, int]:
    """The sizes of those objects of the files that are there, by listing: one request a thousand objects."""
    names = {name for file in files for name in object_names(table_id, file)}
    listing = storage.list(data_folder(table_id))
    return {listed.name: listed.size_bytes for listed in listing if listed.name in names}


def objects_amiss(table_id: str, files: Iterable[DataFile], sizes: Mapping[str, int]) -> list[tuple[str, Finding]]:
    """Objects of the files that are not there, or not of their size; with the file's id. Pure."""
    amiss = []
    for file in files:
        name, summary = data_name(table_id, file), summary_name(table_id, file)
        size_bytes = sizes.get(name)
        if size_bytes is None:
            amiss.append((file.id, damage("file_missing", f"{name} is not there")))
        elif size_bytes != file.size_bytes:
            text = f"{name} has {size_bytes} bytes; {file.size_bytes} were written"
            amiss.append((file.id, damage("file_size", text)))
        if file.summarised and summary not in sizes:
            remedy = "nothing is lost: it is made again from its file when it is needed"
            amiss.append((file.id, note("summary_missing", f"{summary} is not there", remedy)))
    return amiss


def numbering(versions: Sequence[int], applied: int = 0) -> list[Finding]:
    """Gaps and doubles in an ascending list of entry numbers. Pure.

    What was ``applied`` is there, even if a listing made while others committed passed it over.
    """
    if not versions and not applied:
        return [damage("gap", "the log has no entries")]
    steps = pairwise((applied, *(version for version in versions if version > applied)))
    found = [damage("gap", f"{_entries(a + 1, b - 1)} missing") for a, b in steps if b > a + 1]
    return found + [
        damage("double", f"entry {version} is there {count} times", "keep the one that the next entry's header names")
        for version, count in Counter(versions).items()
        if count > 1
    ]


def compared(what: str, claim: Head[TableState], head: Head[TableState]) -> list[Finding]:
    """How a head that someone told of differs from the replayed one, if that is of the same number. Pure."""
    if claim.version != head.version:
        return []
    if claim.digest != head.digest:
        text = f"entry {head.version} is not the one that {what} was made behind: another was put in its place"
        remedy = (
            "restore the entry from a copy; or, if it is the right one, delete the checkpoint and open the table anew"
        )
        return [damage("forked", text, remedy)]
    if claim.state != head.state:
        text = f"{what} of {head.version} is not the state that the entries lead to"
        return [damage("differs", text, f"delete the checkpoint and open the table anew; {_MENDS_ITSELF}")]
    return []


def _entries(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def _unbelieved(error: DamagedError | UnsupportedFormatError | StorageError) -> Finding:
    """One object that cannot be read is a finding; a store that is out of reach is raised again."""
    if isinstance(error, StorageError):
        if error.facts.get("transient"):
            raise error
        return damage("unreadable", error.message)
    what, _, remedy = error.message.partition("; ")
    if isinstance(error, UnsupportedFormatError):
        return damage(error.kind, error.message, "upgrade Lakebed")
    return damage(error.kind, what, remedy or RESTORE)
