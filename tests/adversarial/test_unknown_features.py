"""A document with a feature that this Lakebed does not know is refused with the name of the feature, of whatever kind.

The kinds and their readers are those of test_flips_of_documents: a new kind of object is held to this as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from lakebed.errors import Error
from tests.adversarial.test_flips_of_documents import READERS, Lake, kind_of, made
from tests.documents import contents, objects
from tests.later import FEATURE, replace, rewritten

__all__ = ["made"]

NAMES = {"queries/*/released-*.json", "jobs/retries/*.json"}
"""Only their names count, so they are not read."""

DOCUMENTS = [kind for kind in READERS if kind.endswith(("json", "ndjson")) and "iceberg" not in kind]


@contextmanager
def later(path: Path, change):
    data = path.read_bytes()
    replace(path, change(data))
    try:
        yield
    finally:
        replace(path, data)


@pytest.mark.parametrize("kind", [kind for kind in DOCUMENTS if kind not in NAMES])
def test_an_unknown_feature_of_a_document_is_refused_by_name(made: Lake, kind: str) -> None:
    refused = 0
    for name, path in objects(made.root).items():
        if kind_of(name) != kind:
            continue
        with later(path, lambda data: rewritten(data, [FEATURE])):
            before = contents(made.root)
            with pytest.raises(Error, match=f"with {FEATURE}") as raised:
                READERS[kind](made)
            assert "upgrade" in str(raised.value)
            assert "restore" not in str(raised.value)
            assert contents(made.root) == before
        refused += 1
    assert refused


@pytest.mark.parametrize("kind", [kind for kind in DOCUMENTS if "log/*" not in kind and "checkpoints" not in kind])
def test_an_unknown_field_of_a_document_changes_nothing(made: Lake, kind: str) -> None:
    """Logs and checkpoints: tests/golden/test_additions.py."""
    expected = READERS[kind](made)
    for name, path in objects(made.root).items():
        if kind_of(name) == kind and path.stat().st_size:
            with later(path, lambda data: rewritten(data, fields={"later": {"x": [1]}})):
                found = READERS[kind](made)
                if kind == "queries/*/rows/_manifest.json":
                    # Its readers take the fields that they know.
                    del found["later"]
                assert found == expected, name
