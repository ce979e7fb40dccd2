"""Requires features of the format of the readers, the writers or the collectors of a log. Pure.

The same transaction is one of tables and of the catalog. Who must know a feature and does not is refused: readers when
they apply the transaction or open a checkpoint, writers before each entry (:mod:`lakebed.log.group_commit`), collectors
before each entry and each deletion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.documents import FEATURES
from lakebed.model.features import COLLECTORS, READERS, WRITERS, require_features
from lakebed.model.state.fields import FeatureName, StoredAsIs
from lakebed.model.state.transactions.resolution import Description, Rejected

if TYPE_CHECKING:
    from lakebed.model.features import RequiredFeatures
    from lakebed.model.state.reference_lists import ReferenceCounts
    from lakebed.model.state.table_state import TableState


class RequireFeatures(StoredAsIs, frozen=True, tag="require_features"):
    """Require features, each of a kind of program; None: not any more."""

    features: Annotated[dict[FeatureName, str | None], Meta(min_length=1)]

    def resolve(self, _state: TableState) -> RequireFeatures | Rejected:
        """Return self if this Lakebed knows the features: another one cannot tell what they ask for."""
        return self.refused() or self

    def refused(self) -> Rejected | None:
        """Return why the features cannot be required; None if they can."""
        unknown = sorted(self.features.keys() - set(FEATURES))
        if not unknown:
            strange = set(self.features.values()) - {None, READERS, WRITERS, COLLECTORS}
            text = f"features are required of readers, writers or collectors, not of {', '.join(map(str, strange))}"
            return Rejected(Code.PROPOSAL_INVALID, text) if strange else None
        text = f"this Lakebed does not know {', '.join(unknown)}; it knows {', '.join(FEATURES)}: upgrade"
        return Rejected(Code.FORMAT_TOO_NEW, text)

    def required(self, before: RequiredFeatures, what: str) -> RequiredFeatures:
        """Return what is required after the transaction. Raises UnsupportedFormatError if readers must know more."""
        after = {name: of for name, of in {**before, **self.features}.items() if of is not None}
        require_features(after, READERS, what)
        return after

    def apply(self, state: TableState) -> TableState:
        """Return the state with the requirements."""
        return replace(state, features=self.required(state.features, f"entry {state.version} of {state.table}"))

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the features, and the programs that they are required of."""
        return Description(
            ", ".join(f"{name} of {of}" if of else f"no longer {name}" for name, of in self.features.items())
        )

    @property
    def of_readers(self) -> tuple[str, ...]:
        """The features that the document of this transaction needs."""
        return features_of_readers({name: of for name, of in self.features.items() if of is not None})


def features_of_readers(required: RequiredFeatures) -> tuple[str, ...]:
    """Return the features that every document needs which was written under these requirements."""
    return tuple(sorted(name for name, of in required.items() if of == READERS))
