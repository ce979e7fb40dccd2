"""Verification: a table's log is replayed and compared with its checkpoints and its objects.

Data files are checked at three levels: not at all; existence and size, from a listing; or content, by reading them
(:mod:`lakebed.read.inspect.scrub`).

Differences are reported as findings with a remedy, not raised, so that one damaged entry does not hide the next.
Nothing is repaired here. Applying is a pure function, so a checkpoint that equals the replayed state at its version
leads to the same state at the head; it is compared there. Invariants are checked after each entry, where it changed the
state, and of the whole state at the end. The replay begins with entry 1, or for a truncated log with the oldest
retained checkpoint; checkpoints of earlier tags must be complete by themselves.

Other processes may commit meanwhile: checkpoints are read before the entries are listed, and entries before they are
replayed, and a missing file counts only if it is still referenced afterwards. If the log was truncated meanwhile,
everything is read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import DamagedError, StorageError, UnsupportedFormatError
from lakebed.log import entry as entries
from lakebed.log.checkpoint import Head
from lakebed.log.entry import entry_missing
from lakebed.log.replay import advance
from lakebed.model.checks import check_flag
from lakebed.model.files import data_folder, data_name, object_names, summary_name
from lakebed.model.findings import RESTORE, Deep, Finding, damage, note
from lakebed.model.html_tables import FactsView
from lakebed.model.state.invariants import check_invariants, violations_by
from lakebed.model.state.machine import TABLE
from lakebed.model.state.table_state import TableState
from lakebed.read.inspect.scrub import Scrubbed, Used, located_in, sampled, scrub, used_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakebed.log.log import Log
    from lakebed.log.replay import Advanced
    from lakebed.model.files import DataFile
    from lakebed.model.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage

_IMPOSSIBLE = "report this: no sequence of entries may lead here"
_PUT_BACK = "put back these entries alone, unchanged, from a copy, and overwrite nothing: see `lakebed docs operations`"
_REPAIRED_LATER = "nothing is lost: the log is read instead, and a later commit writes a new one"
_FAILURES = (DamagedError, UnsupportedFormatError, StorageError)
_EMPTY: Head[TableState] = Head(0, "", TABLE.empty)


@dataclass(frozen=True, slots=True)
class VerificationReport(FactsView):
    """What was checked, and what was found.

    ``version`` is the last entry that could be applied, ``entries`` the number that the store lists, ``log_start`` the
    version up to which they may be deleted, ``checkpoint`` the version of the latest checkpoint, ``retained`` those of
    the retained ones, ``objects`` the number of objects that were looked for (None: not requested), and ``checked`` the
    files that were read (None: not requested).
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
        """Whether no finding is damage."""
        return not any(finding.damage for finding in self.findings)


def verify(
    log: Log[TableState, Proposal, Transaction],
    table_id: str,
    name: str,
    storage: Storage | None,
    deep: Deep | None = None,
) -> VerificationReport:
    """Verify a table's log; with the ``storage`` of its data, its objects too; with ``deep``, also their content.

    Waits for a checkpoint that this process is writing, which would be reported as missing. Raises StorageError if the
    store cannot be reached.
    """
    log.wait_for_checkpoint()
    found = _verified(log, table_id)
    findings, objects, checked = found.findings, None, None
    if storage is not None:
        # If the log is damaged, a checkpoint may have files that were added later.
        known = max((found.head, *found.reference_heads.values()), key=lambda one: one.version).state
        used = used_files(known)
        file_findings, checked = _check_files(storage, table_id, known, used, deep)
        latest = known if any(finding.damage for finding in findings) or not file_findings else log.follow()
        # A file whose references were dropped meanwhile may have been deleted.
        live = (
            (one, f) for one, f in file_findings if one.file.id in latest.files and latest.files[one.file.id].references
        )
        findings = [*findings, *(located_in(finding, one, known, storage) for one, finding in live)]
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


def checked_arguments(storage: Storage, files: bool, deep: bool | Deep) -> tuple[Storage | None, Deep | None]:  # noqa: FBT001 - as the user gave them
    """Return the last two arguments of :func:`verify` for those of ``Table.verify``. Raises UsageError."""
    check_flag("files", files)
    if not isinstance(deep, Deep):
        check_flag("deep", deep)
        return storage if files or deep else None, Deep() if deep else None
    return storage, deep


@dataclass(frozen=True, slots=True)
class _Verified:
    """The result of a replay. ``reference_heads`` are heads from other sources than the log, by their description."""

    head: Head[TableState]
    reference_heads: Mapping[str, Head[TableState]]
    entries: int
    log_start: int
    checkpoint: int | None
    retained: tuple[int, ...]
    findings: list[Finding]


def _verified(log: Log[TableState, Proposal, Transaction], table_id: str) -> _Verified:
    while True:
        log_start = log.log_start()
        heads = {"this process's state": log.head} if log.head.version else {}
        checkpoint, findings = _newest(log)
        if checkpoint is not None:
            heads["the checkpoint"] = checkpoint
        retained, retained_findings = _retained(log)
        heads |= {f"the checkpoint retained at {version}": claim for version, claim in retained.items()}
        # A store may list an object twice.
        listed = sorted(set(log.backend.versions()))
        base = next((claim for claim in retained.values() if claim.version > log_start), None) if log_start else _EMPTY
        head, broken = _replay(log, table_id, base or _EMPTY, heads)
        if log.log_start() == log_start:
            break
    findings += retained_findings
    if base is None:
        findings.append(
            damage("truncated", f"the log is truncated up to {log_start}, and no later checkpoint can be read")
        )
    findings += [
        note("foreign", f"{name} is among the entries and is not one", "it is not read; move it elsewhere")
        for name in log.backend.foreign()
    ]
    above = [version for version in listed if version > log_start]
    findings += [*numbering(above, max(head.version, log_start)), *broken]
    unapplied = [version for version in above if version > head.version]
    findings += [finding for finding in _check_links(log, table_id, unapplied) if finding not in broken]
    if not unapplied:
        findings += [
            damage("cut_off", f"the log ends at {head.version}, but {what} is at {claim.version}: entries are missing")
            for what, claim in heads.items()
            if claim.version > head.version
        ]
    findings += [
        damage("tag", f"tag {tag} is at version {version}, whose checkpoint and entries are missing")
        for tag, version in sorted(head.state.tags.items())
        if version <= log_start and version not in retained
    ]
    latest = checkpoint.version if checkpoint is not None else None
    return _Verified(head, heads, len(listed), log_start, latest, tuple(retained), findings)


def _check_files(
    storage: Storage, table_id: str, state: TableState, used: Sequence[Used], deep: Deep | None
) -> tuple[list[tuple[Used, Finding]], Scrubbed | None]:
    """Return the findings about the objects of the files, and which of these were read."""
    by_id = {one.file.id: one for one in used}
    files = [one.file for one in used]
    # The state of a log of which nothing can be read has no id.
    sizes = _sizes(storage, table_id, files)
    file_findings = [(by_id[file], finding) for file, finding in check_objects(table_id, files, sizes)]
    if deep is None:
        return file_findings, None
    sample = deep.share < 1
    seed = (clock.chance(None).getrandbits(32) if deep.seed is None else deep.seed) if sample else None
    chosen = list(used) if seed is None else sampled(used, deep.share, seed)
    # A missing or truncated file is not read.
    damaged = {one.file.id for one, finding in file_findings if finding.damage}
    file_findings += scrub(storage, state, [one for one in chosen if one.file.id not in damaged], deep)
    size_bytes, of_bytes = (sum(one.file.size_bytes for one in some) for some in (chosen, used))
    return file_findings, Scrubbed(
        len(chosen), len(used), size_bytes, of_bytes, sum(one.file.rows for one in chosen), seed
    )


def _newest(log: Log[TableState, Proposal, Transaction]) -> tuple[Head[TableState] | None, list[Finding]]:
    try:
        found = log.checkpoints.read_whole()
    except (UnsupportedFormatError, StorageError) as error:
        return None, [_finding_of(error)]
    except DamagedError as error:
        return None, [damage("checkpoint_damaged", error.message, _REPAIRED_LATER)]
    return found, [] if found is not None else [note("checkpoint_missing", "there is no checkpoint", _REPAIRED_LATER)]


def _retained(log: Log[TableState, Proposal, Transaction]) -> tuple[dict[int, Head[TableState]], list[Finding]]:
    """Return the retained checkpoints that can be read, oldest first, and findings about the others."""
    whole, findings = {}, []
    for version in log.retained.versions():
        try:
            whole[version] = log.retained.read(version)
        except _FAILURES as error:
            findings.append(_finding_of(error))
    return whole, findings


def _replay(
    log: Log[TableState, Proposal, Transaction],
    table_id: str,
    base: Head[TableState],
    heads: Mapping[str, Head[TableState]],
) -> tuple[Head[TableState], list[Finding]]:
    """Return the head after all entries that can be applied to ``base``; it is compared with ``heads`` on the way."""
    head = base
    findings: list[Finding] = []
    while True:
        try:
            data = log.backend.get(head.version + 1)
            if data is None:
                break
            advanced = advance(head, data, table_id, TABLE, log.read_sidecars)
            findings += _broken(head, advanced)
            head = advanced.head
        except _FAILURES as error:
            findings.append(_finding_of(error))
            break
        findings += [finding for what, claim in heads.items() for finding in compared(what, claim, head)]
    try:
        check_invariants(head.state)
    except DamagedError as error:
        findings.append(damage("invariant", error.message, _IMPOSSIBLE))
    return head, findings


def _broken(head: Head[TableState], advanced: Advanced[TableState, Transaction]) -> Iterator[Finding]:
    """Findings about the invariants that an entry breaks."""
    before = head.state
    for change, after in advanced.changes:
        for violation in violations_by(before, after, (change,)):
            yield damage("invariant", f"entry {advanced.head.version}: {violation}", _IMPOSSIBLE)
        before = after


def _check_links(
    log: Log[TableState, Proposal, Transaction], table_id: str, versions: Iterable[int]
) -> Iterator[Finding]:
    """Findings about entries that could not be applied: each one decoded, and its link to the previous one."""
    last, digest = 0, None
    for version in dict.fromkeys(versions):
        previous, digest = digest if last == version - 1 else None, None
        try:
            data = log.backend.get(version)
            if data is None:
                raise entry_missing(table_id, version)
            entry = entries.decode(data, table_id, version, previous)
            digest = entry.digest
            log.read_sidecars(entry)
        except _FAILURES as error:
            yield _finding_of(error)
        last = version


def _sizes(storage: Storage, table_id: str, files: Iterable[DataFile]) -> dict[str, int]:
    """Return the sizes of the existing objects of the files, from a listing: one request for a thousand objects."""
    names = {name for file in files for name in object_names(table_id, file)}
    listing = storage.list(data_folder(table_id))
    return {listed.name: listed.size_bytes for listed in listing if listed.name in names}


def check_objects(table_id: str, files: Iterable[DataFile], sizes: Mapping[str, int]) -> list[tuple[str, Finding]]:
    """Findings about objects of the files that are missing or have another size, with the file's id. Pure."""
    file_findings = []
    for file in files:
        name, summary = data_name(table_id, file), summary_name(table_id, file)
        size_bytes = sizes.get(name)
        if size_bytes is None:
            file_findings.append((file.id, damage("file_missing", f"{name} is missing")))
        elif size_bytes != file.size_bytes:
            text = f"{name} has {size_bytes} bytes; {file.size_bytes} were written"
            file_findings.append((file.id, damage("file_size", text)))
        if file.summarised and summary not in sizes:
            remedy = "nothing is lost: it is computed from its file when it is needed"
            file_findings.append((file.id, note("summary_missing", f"{summary} is missing", remedy)))
    return file_findings


def numbering(versions: Sequence[int], applied: int = 0) -> list[Finding]:
    """Gaps in an ascending list of distinct entry versions. Pure.

    Entries up to ``applied`` exist, even if a listing during other commits did not show them.
    """
    if not versions and not applied:
        return [damage("gap", "the log has no entries")]
    steps = pairwise((applied, *(version for version in versions if version > applied)))
    return [damage("gap", f"{_entries(a + 1, b - 1)} missing", _PUT_BACK) for a, b in steps if b > a + 1]


def compared(what: str, claim: Head[TableState], head: Head[TableState]) -> list[Finding]:
    """Return how a head from another source differs from the replayed one, if both have the same version. Pure."""
    if claim.version != head.version:
        return []
    if claim.digest != head.digest:
        text = f"entry {head.version} is not the one from which {what} was made: it was replaced"
        remedy = (
            "restore the entry from a copy; or, if it is the right one, delete the checkpoint and open the table again"
        )
        return [damage("forked", text, remedy)]
    if claim.state != head.state:
        text = f"{what} at {head.version} differs from the state that the entries give"
        return [damage("differs", text, f"delete the checkpoint and open the table again; {_REPAIRED_LATER}")]
    return []


def _entries(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def _finding_of(error: DamagedError | UnsupportedFormatError | StorageError) -> Finding:
    """Return the finding about an object that cannot be read. Raises the error again if the store cannot be reached."""
    if isinstance(error, StorageError):
        if error.facts.get("transient"):
            raise error
        return damage("unreadable", error.message)
    what, _, remedy = error.message.partition("; ")
    if isinstance(error, UnsupportedFormatError):
        return damage(error.kind, error.message, "upgrade Lakebed")
    return damage(error.kind, what, remedy or RESTORE)
