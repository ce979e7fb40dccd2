"""The types that key fields may have, each a class: :data:`KEY_TYPES`. Pure.

What handles keys asks the type of a field (``Field.key_type``) for what it needs, and names none. So a new type is a
class of :class:`lakebed.model.key_type.KeyType`, and a line here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakebed.model.byte_keys import Binaries, FixedBytes, Texts, Uuids
from lakebed.model.number_keys import Booleans, Decimals, Floats, Integers
from lakebed.model.time_keys import Dates, TimesOfDay, Timestamps

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.key_type import Ends, KeyType, Word

KEY_TYPES: list[type[KeyType]] = [
    Integers, Decimals, Floats, Booleans, Texts, Binaries, FixedBytes, Uuids, Dates, TimesOfDay, Timestamps,
]  # fmt: skip
"""The classes of types. An Arrow type belongs to one at most."""


@lru_cache(maxsize=1024)
def key_type(kind: pa.DataType) -> KeyType | None:
    """Return the key type of an Arrow type; None if key fields cannot have it."""
    return next((found for one in KEY_TYPES if (found := one.of(kind)) is not None), None)


def ends_of(key: KeyType, literal: pa.Scalar) -> Ends | None:
    """Return the encoded ends of the values below the literal, and of those up to it; an end is None if all values are
    below.

    None if the two cannot be compared, or a cast may not keep their order. An engine compares a column with a literal
    of another type by casting one of them.
    """
    other = key_type(literal.type)
    return key.ends_of(literal, None if other is None else other.number(literal))


def word_of(value: Any) -> Word | None:
    """Return a value of Python in the JSON of a request, which the service parses by the type of its field; None if no
    type of keys has such values.
    """
    classes = (one for one in KEY_TYPES if isinstance(value, one.values))
    return next((word for one in classes if (word := one.word(value)) is not None), None)
