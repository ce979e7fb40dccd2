"""The state of one table at one log number: an immutable value, derived from the log alone.

Holds of every state: the leaves tile the key space; a reference names a known leaf and a known, living file that
reaches it; ``CommittedFile.references`` counts them; a file with none has the number at which the last one went.
Applying is deterministic and total over valid transactions: no clock, no randomness, no reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.errors import DamagedError
from lakebed.partitions import Leaves
from lakebed.state.layers import Layers

if TYPE_CHECKING:
    from lakebed.files import CommittedFile, Reference
    from lakebed.schema import Schema
    from lakebed.state.transactions import Job


@dataclass(frozen=True, slots=True)
class TableState:
    """Everything that is known of a table at ``number``. ``references`` are by leaf id, in the order of arrival.

    ``schemas`` are all that the table ever had, in the order of their versions. From ``retained_from`` on, and at every
    tag, no file of an older state has been given up for deletion.
    """

    number: int = 0
    table: str = ""
    schemas: tuple[Schema, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    leaves: Leaves = field(default_factory=Leaves)
    files: Layers[str, CommittedFile] = field(default_factory=Layers)
    references: Layers[int, tuple[Reference, ...]] = field(default_factory=Layers)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    requests: Layers[str, int] = field(default_factory=Layers)
    next_sequence: int = 1
    tags: Mapping[str, int] = field(default_factory=dict)
    retained_from: int = 0
    dropped: bool = False

    @property
    def created(self) -> Schema:
        """The newest schema of a table that exists. Raises DamagedError for a log without its creation."""
        if not self.schemas:
            raise DamagedError(f"the log of table {self.table or '?'} does not begin with its creation")
        return self.schemas[-1]

    def references_of(self, leaf: int) -> tuple[Reference, ...]:
        """The references of a leaf."""
        return self.references.get(leaf, ())

    def retains(self, number: int) -> bool:
        """Whether all files of the table at that older number are kept."""
        return number >= self.retained_from or number in self.tags.values()

    def tagged(self, committed: CommittedFile) -> bool:
        """Whether a tag stands at a number that needs the file."""
        return any(map(committed.needed_at, self.tags.values()))

    def rows(self) -> tuple[int, bool]:
        """Rows of the table, and whether that is exact (a file wholly referenced counts exactly)."""
        held = [r for references in self.references.values() for r in references]
        by_file: dict[str, int] = {}
        for reference in held:
            by_file[reference.file] = by_file.get(reference.file, 0) + reference.rows
        exact = all(r.exact or by_file[r.file] == self.files[r.file].file.rows for r in held)
        return sum(r.rows for r in held), exact


def check_invariants(state: TableState) -> None:
    """Raise DamagedError if something that holds of every state does not hold of this one. Linear; for verification."""
    counted: dict[str, int] = {}
    for leaf, references in state.references.items():
        position = state.leaves.position_of(leaf)
        if position is None:
            raise DamagedError(f"references of a leaf that is not there: {leaf}", leaf=leaf)
        keys = state.leaves.range_at(position)
        for reference in references:
            committed = state.files.get(reference.file)
            if committed is None or committed.dead:
                raise DamagedError(f"leaf {leaf} references {reference.file}, which is forgotten or dead", leaf=leaf)
            if not committed.file.reaches(keys):
                raise DamagedError(f"leaf {leaf} references {reference.file}, which does not reach it", leaf=leaf)
            counted[reference.file] = counted.get(reference.file, 0) + 1
    for file_id, committed in state.files.items():
        if committed.references != counted.get(file_id, 0):
            raise DamagedError(f"file {file_id} has {counted.get(file_id, 0)} references, not {committed.references}")
        if (committed.dropped is None) != (committed.references > 0):
            raise DamagedError(f"file {file_id}: dropped at {committed.dropped} with {committed.references} references")
